//! The server's tools in a run: they answer, fail, report progress, hang, and disappear. Each start of a call is
//! recorded.

use crate::history::Trace;
use fastrand::Rng;
use reseed::tools::{Call, CallFuture, Output, Tool, Toolset};
use reseed_protocol::{
    CallId,
    tools::{ToolAnnotations, ToolOffer},
};
use serde_json::json;
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::sleep;

/// The state shared by the tools of all servers of a run.
pub(crate) struct Workshop {
    trace: Trace,
    inner: Mutex<Inner>,
}

struct Inner {
    rng: Rng,
    calm: bool,
    started: Vec<CallId>,
}

/// What a call does.
#[derive(Debug)]
enum Plan {
    Answers(Output),
    Progresses(Output),
    Hangs,
}

impl Workshop {
    pub(crate) fn new(seed: u64, trace: Trace) -> Arc<Self> {
        let inner = Inner { rng: Rng::with_seed(seed ^ 0x7001), calm: false, started: Vec::new() };
        Arc::new(Self { trace, inner: Mutex::new(inner) })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes every call answer at once.
    pub(crate) fn calm_down(&self) {
        self.lock().calm = true;
    }

    /// Returns every start of a call, in order.
    pub(crate) fn started(&self) -> Vec<CallId> {
        self.lock().started.clone()
    }

    /// Returns the tools of a server: `peek` only reads, `dig` and `fell` must be allowed, and `fell` runs alone.
    /// Without `all`, `peek` has disappeared.
    pub(crate) fn tools(self: &Arc<Self>, all: bool) -> Toolset {
        let names: &[&'static str] = if all { &["peek", "dig", "fell"] } else { &["dig", "fell"] };
        let tool = |name: &&'static str| Arc::new(SimTool { name, workshop: self.clone() }) as Arc<dyn Tool>;
        Toolset::new(names.iter().map(tool).collect(), Vec::new()).expect("three tools that may be so")
    }

    fn begin(&self, name: &str, call: &Call) -> (Plan, Duration) {
        let mut inner = self.lock();
        inner.started.push(call.call_id.clone());
        let millis = if inner.calm { 0 } else { inner.rng.u64(0..60) };
        let text = format!("{name} found {}", "ore ".repeat(inner.rng.usize(1..40)));
        let plan = match inner.rng.u8(..10) {
            _ if inner.calm => Plan::Answers(Output::text(text)),
            0 => Plan::Answers(Output::error(text)),
            1 => Plan::Hangs,
            2 | 3 => Plan::Progresses(Output::text(text)),
            4 => Plan::Answers(Output { images: vec!["data:image/png;base64,AAAA".to_owned()], ..Output::text(text) }),
            _ => Plan::Answers(Output::text(text)),
        };
        self.trace.line(format_args!("tool: {name} is called as {}, it {plan:?}", call.call_id));
        (plan, Duration::from_millis(millis))
    }
}

struct SimTool {
    name: &'static str,
    workshop: Arc<Workshop>,
}

impl Tool for SimTool {
    fn offer(&self) -> ToolOffer {
        let reads = self.name == "peek";
        ToolOffer {
            annotations: Some(ToolAnnotations { read_only: Some(reads), ..ToolAnnotations::default() }),
            sequential: Some(self.name == "fell"),
            timeout_ms: Some(5_000),
            ..ToolOffer::new(self.name, "A tool of the run.", json!({ "type": "object" }))
        }
    }

    fn call(&self, call: Call) -> CallFuture<'_> {
        Box::pin(async move {
            let (plan, pause) = self.workshop.begin(self.name, &call);
            sleep(pause).await;
            match plan {
                Plan::Answers(output) => output,
                Plan::Progresses(output) => {
                    call.progress.report(Some("half of it".to_owned()));
                    sleep(pause).await;
                    output
                }
                Plan::Hangs => std::future::pending().await,
            }
        })
    }
}
