//! Tests of whole servers: scripted ones within the process, and small programs.

mod calls;
mod keeping;
mod listing;
#[cfg(unix)]
mod processes;
#[cfg(unix)]
mod reloading;
mod script;
mod sessions;

use super::{
    Mcp,
    file::{Link, Listed, Spec},
};
use crate::tools::{Call, Output, Progress, Tool};
use reseed_protocol::{CallId, SessionId};
use script::Wire;
use serde_json::Value;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// The time limit for what takes milliseconds. Only a failing test waits for it.
const SOON: Duration = Duration::from_secs(30);

/// Returns a server with this name. `serve` plays it, once for each connection, counted from 0.
fn played<F, Fut>(name: &str, serve: F) -> Spec
where
    F: Fn(Wire, usize) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let connections = Mutex::new(0);
    let connect = move || {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let mut connections = connections.lock().unwrap();
        tokio::spawn(serve(Wire::new(theirs), *connections));
        *connections += 1;
        ours
    };
    Spec {
        name: name.into(),
        prefix: name.into(),
        link: Link::Scripted(Arc::new(connect)),
        startup: Duration::from_secs(60),
        timeout_ms: None,
        idle: None,
        only: None,
        without: Default::default(),
        secrets: Default::default(),
    }
}

/// Opens these servers and waits until they are up or down.
async fn opened(servers: Vec<Spec>) -> Mcp {
    let mcp = Mcp::of(Listed { servers, ..Listed::default() });
    mcp.settled(Duration::from_secs(600)).await;
    mcp
}

/// Returns the names of the tools.
fn names(mcp: &Mcp) -> Vec<String> {
    mcp.tools().iter().map(|tool| tool.offer().name).collect()
}

fn tool(mcp: &Mcp, name: &str) -> Arc<dyn Tool> {
    let found = mcp.tools().into_iter().find(|tool| tool.offer().name == name);
    found.unwrap_or_else(|| panic!("no `{name}` among {:?}: {:?}", names(mcp), mcp.status()))
}

/// Calls a tool, with a list of the progress that it reports.
async fn call_with(tool: Arc<dyn Tool>, arguments: Value, progress: Progress) -> Output {
    let call = Call {
        call_id: "call_1".parse::<CallId>().unwrap(),
        session: "ses_1".parse::<SessionId>().unwrap(),
        leaf: None,
        arguments,
        progress,
    };
    tool.call(call).await
}

async fn call(mcp: &Mcp, name: &str, arguments: Value) -> Output {
    call_with(tool(mcp, name), arguments, Progress::new(|_| {})).await
}
