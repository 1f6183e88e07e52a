//! Reloads of the file while servers run: new, removed, changed and unchanged entries.

use super::{SOON, call, names, played, processes::sh, script::OLD, script::tool};
use crate::tools::{
    Output, Progress,
    mcp::{
        Mcp, McpFile, ServerState,
        file::{Listed, Spec},
    },
};
use serde_json::json;
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{sync::mpsc, time::timeout};

fn file(servers: Vec<Spec>) -> McpFile {
    McpFile(Listed { servers, ..Listed::default() })
}

fn states(mcp: &Mcp) -> Vec<(String, ServerState, u64)> {
    mcp.status().into_iter().map(|status| (status.name, status.state, status.starts)).collect()
}

/// Waits until a condition holds.
async fn until(mcp: &Mcp, is_so: impl Fn(&Mcp) -> bool) {
    let mut changed = mcp.changed();
    let so = async {
        while !is_so(mcp) {
            changed.changed().await.unwrap();
        }
    };
    timeout(Duration::from_secs(600), so).await.unwrap_or_else(|_| panic!("{:?}", mcp.status()));
}

/// Returns a copy of a spec, equal to the one from reading the same file again.
fn again(spec: &Spec) -> Spec {
    let link = match &spec.link {
        crate::tools::mcp::file::Link::Scripted(connect) => crate::tools::mcp::file::Link::Scripted(connect.clone()),
        other => panic!("{other:?} is not scripted"),
    };
    Spec {
        name: spec.name.clone(),
        prefix: spec.prefix.clone(),
        link,
        only: spec.only.clone(),
        without: spec.without.clone(),
        secrets: spec.secrets.clone(),
        ..*spec
    }
}

#[tokio::test(start_paused = true)]
async fn servers_join_leave_and_stay() {
    let starts = Arc::new(AtomicUsize::new(0));
    let (entered, mut began) = mpsc::unbounded_channel();
    let started = starts.clone();
    let stays = played("stays", move |mut wire, _| {
        started.fetch_add(1, Ordering::Relaxed);
        let entered = entered.clone();
        async move {
            while let Some(call) = wire.up(OLD, &[tool("a")]).await {
                entered.send(()).unwrap();
                tokio::time::sleep(Duration::from_secs(30)).await;
                wire.text(&call, "from before").await;
            }
        }
    });
    let other =
        |name: &str| played(name, |mut wire, _| async move { while wire.up(OLD, &[tool("b")]).await.is_some() {} });
    let (before, after) = (again(&stays), again(&stays));
    let mcp = Mcp::none();
    assert_eq!((names(&mcp).len(), mcp.status().len()), (0, 0));
    mcp.take_up(file(vec![other("goes"), before]));
    mcp.settled(SOON).await;
    assert_eq!(names(&mcp), ["goes__b", "stays__a"]);

    let running = mcp.tools().remove(1);
    let running = tokio::spawn(super::call_with(running, json!({}), Progress::new(|_| {})));
    began.recv().await.unwrap();
    let gone = mcp.tools().remove(0);
    mcp.take_up(file(vec![other("comes"), after]));
    assert_eq!(names(&mcp), ["stays__a"], "tools of a server that is gone are withdrawn at once");
    until(&mcp, |mcp| names(mcp) == ["comes__b", "stays__a"]).await;
    assert_eq!(running.await.unwrap(), Output::text("from before"));
    assert_eq!(starts.load(Ordering::Relaxed), 1);
    assert_eq!(
        states(&mcp),
        [("comes".to_owned(), ServerState::Ready, 1), ("stays".to_owned(), ServerState::Ready, 1)]
    );
    let late = super::call_with(gone, json!({}), Progress::new(|_| {})).await;
    assert_eq!(late, Output::error("The MCP server `goes` is stopping. The call was not made."));

    mcp.take_up(McpFile::default());
    assert_eq!((names(&mcp).len(), mcp.status().len()), (0, 0));
    mcp.close().await;
    mcp.take_up(file(vec![other("late")]));
    assert_eq!(mcp.status().len(), 0, "nothing is started after the end");
}

#[tokio::test(start_paused = true)]
async fn a_changed_server_keeps_its_tools_while_it_is_restarted_except_those_that_are_left_out() {
    let slow = |text: &'static str, tools: &'static [&'static str]| {
        played("s", move |mut wire, _| async move {
            tokio::time::sleep(Duration::from_secs(20)).await;
            let tools: Vec<_> = tools.iter().map(|name| tool(name)).collect();
            while let Some(call) = wire.up(OLD, &tools).await {
                wire.text(&call, text).await;
            }
        })
    };
    let mcp = super::opened(vec![slow("old", &["a", "b", "c"])]).await;
    let without = ["b".to_owned()].into();
    mcp.take_up(file(vec![Spec { without, ..slow("new", &["a", "b", "d"]) }]));
    assert_eq!(names(&mcp), ["s__a", "s__c"]);
    assert_eq!(mcp.status()[0].state, ServerState::Starting);
    // The call waits for the server with its new entry.
    assert_eq!(call(&mcp, "s__a", json!({})).await, Output::text("new"));
    assert_eq!(names(&mcp), ["s__a", "s__d"]);
    mcp.close().await;
}

/// Makes a call that does not end by itself, and waits until the server has received it.
async fn call_in(mcp: &Mcp, folder: &Path, began: &str) -> tokio::task::JoinHandle<Output> {
    let tool = mcp.tools().into_iter().next().unwrap();
    let running = tokio::spawn(super::call_with(tool, json!({}), Progress::new(|_| {})));
    let path = folder.join(began);
    while !path.exists() {
        tokio::task::yield_now().await;
    }
    running
}

#[tokio::test]
async fn a_process_that_is_not_in_the_file_any_more_gets_sigterm_and_its_call_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let end = "trap 'touch told; exit 0' TERM; while :; do sleep 0.05; done";
    let spec = sh(
        folder.path(),
        &[("BEGIN", "echo $$ > pid; trap 'touch told; exit 0' TERM"), ("CALL", "touch began; sleep 600"), ("END", end)],
    );
    let mcp = super::opened(vec![spec]).await;
    let running = call_in(&mcp, folder.path(), "began").await;
    mcp.take_up(McpFile::default());
    let output = timeout(SOON, running).await.expect("the call ends").unwrap();
    assert!(output.is_error && output.text.contains("may have been carried out"), "{output:?}");
    mcp.close().await;
    assert!(super::processes::gone(&super::processes::read(folder.path().join("pid"))));
    assert!(folder.path().join("told").exists(), "SIGTERM came before SIGKILL");
}

#[tokio::test]
async fn a_process_with_another_entry_ends_before_it_starts_again_and_the_same_entry_runs_on() {
    let folder = tempfile::tempdir().unwrap();
    // Each process reports when it begins and when it has ended.
    let lives = |reply: &str| {
        let call = format!("echo {reply}");
        sh(
            folder.path(),
            &[("BEGIN", "echo begin >> lives"), ("CALL", call.as_str()), ("END", "sleep 0.2; echo end >> lives")],
        )
    };
    let mcp = super::opened(vec![lives("one")]).await;
    mcp.take_up(file(vec![lives("one")]));
    assert_eq!(call(&mcp, "sh__do", json!({})).await, Output::text("one"));
    assert_eq!(states(&mcp), [("sh".to_owned(), ServerState::Ready, 1)]);
    mcp.take_up(file(vec![lives("two")]));
    assert_eq!(names(&mcp), ["sh__do"]);
    assert_eq!(call(&mcp, "sh__do", json!({})).await, Output::text("two"));
    assert_eq!(super::processes::read(folder.path().join("lives")), "begin\nend\nbegin\n");
    mcp.close().await;
}
