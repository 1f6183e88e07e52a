//! The scripted model of a run: it answers in pieces, calls tools, fails before or after its first text, refuses
//! requests as too large, says nothing, and hangs. It records every request and whether another one of its kind was in
//! progress. A race holds its summaries back.

use crate::{
    disk::Disk,
    history::{Asked, Trace},
};
use fastrand::Rng;
use reseed::{
    core::{
        compaction::summary::SECTIONS,
        model::{Answer, Delta, ModelFault, ModelRequest, OverflowHint, Purpose, ReportedUsage},
    },
    provider::{AnswerFuture, DeltaSink, ModelsFuture, Provider},
};
use reseed_protocol::{ErrorCode, Part, StopReason};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{sync::watch, task::yield_now, time::sleep};

/// The time for which a hanging model hangs: longer than any other wait of a run.
const HANG: Duration = Duration::from_secs(300);

/// Most pieces of a text.
const PIECES_MAX: usize = 8;

/// State shared by all models of a run.
pub(crate) struct Script {
    trace: Trace,
    inner: Mutex<Inner>,
    /// Summaries are held back.
    held: watch::Sender<bool>,
}

struct Inner {
    rng: Rng,
    calm: bool,
    /// Answers are short, without reported usage.
    plain: bool,
    /// The next turn's answer calls this many tools.
    calls: usize,
    answers: u64,
    asked: Vec<Asked>,
    /// The nodes and purposes of requests in progress.
    open: Vec<(usize, Purpose)>,
}

/// The model's treatment of a request.
#[derive(Debug)]
enum Plan {
    Say {
        parts: Vec<Part>,
        stop_reason: StopReason,
        usage: Option<ReportedUsage>,
    },
    /// Shows this much and fails.
    Fail {
        shown: String,
        fault: ModelFault,
    },
    Hang {
        shown: String,
    },
}

impl Script {
    pub(crate) fn new(seed: u64, trace: Trace) -> Arc<Self> {
        let rng = Rng::with_seed(seed ^ 0x30de1);
        let (asked, open) = (Vec::new(), Vec::new());
        let inner = Inner { rng, calm: false, plain: false, calls: 0, answers: 0, asked, open };
        Arc::new(Self { trace, inner: Mutex::new(inner), held: watch::Sender::new(false) })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes it answer every request, at once.
    pub(crate) fn calm_down(&self) {
        self.lock().calm = true;
    }

    /// Makes it answer every request briefly and report no usage, so that only sent text is counted.
    pub(crate) fn be_plain(&self) {
        let mut inner = self.lock();
        (inner.calm, inner.plain) = (true, true);
    }

    /// Makes the next turn's answer call this many tools at once.
    pub(crate) fn call_next(&self, calls: usize) {
        self.lock().calls = calls;
    }

    /// Holds summaries back, or releases them.
    pub(crate) fn hold_summaries(&self, held: bool) {
        self.trace.line(format_args!("model: summaries are {}", if held { "held back" } else { "let go" }));
        self.held.send_replace(held);
    }

    /// Returns the number of summaries requested so far.
    pub(crate) fn summaries(&self) -> usize {
        self.lock().asked.iter().filter(|asked| !asked.is_turn()).count()
    }

    /// Takes the requests received, in order.
    pub(crate) fn take_asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.lock().asked)
    }
}

impl Inner {
    fn plan(&mut self, request: &ModelRequest) -> Plan {
        self.answers += 1;
        let number = self.answers;
        let shown = format!("half of {number} 🌍é");
        match self.rng.u8(..100) {
            _ if self.calm => {}
            0..4 => {
                let window_tokens = self.rng.bool().then_some(1_000);
                let prompt_tokens = self.rng.bool().then(|| self.rng.u64(900..3_000));
                let mut fault = ModelFault::new(ErrorCode::ContextOverflow, "too large");
                fault.overflow = OverflowHint { prompt_tokens, window_tokens };
                return Plan::Fail { shown: String::new(), fault };
            }
            4..14 => {
                let codes = [
                    ErrorCode::UpstreamError,
                    ErrorCode::UpstreamEmpty,
                    ErrorCode::UpstreamTruncated,
                    ErrorCode::UpstreamAuth,
                ];
                let mut fault = ModelFault::new(codes[self.rng.usize(..codes.len())], "a fault of the run");
                fault.shown = fault.code != ErrorCode::UpstreamEmpty && self.rng.bool();
                return Plan::Fail { shown: if fault.shown { shown } else { String::new() }, fault };
            }
            14..18 => return Plan::Hang { shown: if self.rng.bool() { shown } else { String::new() } },
            _ => {}
        }
        let mut parts = Vec::new();
        match request.purpose {
            Purpose::Summary if self.calm || self.rng.u8(..4) > 0 => {
                let text = SECTIONS.iter().map(|section| format!("## {section}\n- of {number}\n")).collect();
                parts.push(Part::Text { text });
            }
            Purpose::Turn if self.calls > 0 && request.envelope.tools.iter().any(|tool| tool.name == "look") => {
                parts.extend((0..std::mem::take(&mut self.calls)).map(good_call));
            }
            Purpose::Turn if self.plain => parts.push(Part::Text { text: format!("answer {number}") }),
            Purpose::Turn if !self.calm && !request.envelope.tools.is_empty() && self.rng.u8(..100) < 40 => {
                if self.rng.bool() {
                    parts.push(Part::Text { text: format!("let me see {number}") });
                }
                parts.extend((0..self.rng.usize(1..4)).map(|_| some_call(&mut self.rng)));
            }
            _ => {
                if self.rng.u8(..4) == 0 {
                    parts.push(Part::Reasoning { text: format!("hm 🤔 {number}"), payload: None });
                }
                let words = self.rng.usize(1..60);
                parts.push(Part::Text { text: format!("answer {number} 🌍 é {}", "said ".repeat(words)) });
            }
        }
        let calls = parts.iter().any(|part| matches!(part, Part::ToolCall { .. }));
        let stop_reason = match calls {
            true => StopReason::ToolCalls,
            false if !self.plain && self.rng.u8(..20) == 0 => StopReason::Length,
            false => StopReason::Stop,
        };
        let usage = (!self.plain && self.rng.bool()).then(|| ReportedUsage {
            input_tokens: self.rng.u64(100..1_500),
            output_tokens: self.rng.u64(..200),
            ..ReportedUsage::default()
        });
        Plan::Say { parts, stop_reason, usage }
    }

    fn pause(&mut self) -> Duration {
        let slow = !self.calm && self.rng.u8(..4) == 0;
        Duration::from_millis(if slow { self.rng.u64(1..30) } else { 0 })
    }
}

fn some_call(rng: &mut Rng) -> Part {
    let (name, arguments) = [
        ("look", r#"{"at":"x"}"#),
        ("look", r#"{"at":"y"}"#),
        ("look", "{"),
        ("nothing", "{}"),
        ("peek", "{}"),
        ("dig", r#"{"deep":1}"#),
        ("dig", "{}"),
        ("fell", "{}"),
        ("look", r#"{"at":"x"}"#),
        ("look", r#"{"at":"z"}"#),
        ("look", r#"{"at":"y"}"#),
    ][rng.usize(..11)];
    // Upstreams use the same call id in every answer.
    Part::ToolCall { call_id: "call_0".parse().expect("an id"), name: name.into(), arguments: arguments.into() }
}

/// Returns a call that can be answered.
fn good_call(at: usize) -> Part {
    let call_id = format!("call_{at}").parse().expect("an id");
    Part::ToolCall { call_id, name: "look".into(), arguments: r#"{"at":"x"}"#.into() }
}

/// A server's model.
pub(crate) struct Model {
    pub(crate) script: Arc<Script>,
    pub(crate) disk: Arc<Disk>,
    pub(crate) node: usize,
    pub(crate) alive: Arc<AtomicBool>,
}

/// A request in progress, until answered or dropped.
struct Answering<'a>(&'a Model, Purpose);

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        let mut inner = self.0.script.lock();
        if let Some(at) = inner.open.iter().position(|open| *open == (self.0.node, self.1)) {
            inner.open.swap_remove(at);
        }
    }
}

impl Model {
    fn begin(&self, request: &ModelRequest) -> (Answering<'_>, Plan) {
        let mut inner = self.script.lock();
        let open = (self.node, request.purpose);
        let overlaps = inner.open.contains(&open);
        inner.open.push(open);
        let as_of = self.disk.last_of(self.node);
        let stale = self.disk.is_stale(self.node);
        let plan = inner.plan(request);
        let messages = request.messages().count();
        let said = match &plan {
            Plan::Say { parts, .. } => format!("{} parts", parts.len()),
            Plan::Fail { fault, .. } => fault.code.to_string(),
            Plan::Hang { .. } => "nothing".to_owned(),
        };
        self.script.trace.line(format_args!(
            "model: node {} asks at {as_of} for a {:?} with {messages} messages; it will say {said}",
            self.node, request.purpose
        ));
        inner.asked.push(Asked { node: self.node, as_of, request: request.clone(), overlaps, stale });
        (Answering(self, request.purpose), plan)
    }

    async fn pause(&self) {
        let pause = self.script.lock().pause();
        if pause.is_zero() {
            yield_now().await
        } else {
            sleep(pause).await
        }
        if !self.alive.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
    }

    /// Streams a text in pieces, which `delta` makes of their part and text.
    async fn show(&self, part: usize, text: &str, delta: fn(usize, &str) -> Delta<'_>, sink: &mut dyn DeltaSink) {
        let chars: Vec<char> = text.chars().collect();
        for text in chars.chunks(chars.len().div_ceil(PIECES_MAX).max(3)) {
            let text = &text.iter().collect::<String>();
            sink.delta(delta(part, text));
            self.pause().await;
        }
    }
}

fn said(part: usize, text: &str) -> Delta<'_> {
    Delta::Text { part, text }
}

fn thought(part: usize, text: &str) -> Delta<'_> {
    Delta::Reasoning { part, text }
}

fn called(part: usize, text: &str) -> Delta<'_> {
    Delta::Arguments { part, text }
}

impl Provider for Model {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn answer<'a>(&'a self, request: &'a ModelRequest, sink: &'a mut dyn DeltaSink) -> AnswerFuture<'a> {
        Box::pin(async move {
            if !self.alive.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            let (_answering, plan) = self.begin(request);
            if request.purpose == Purpose::Summary {
                let _ = self.script.held.subscribe().wait_for(|held| !held).await;
            }
            self.pause().await;
            match plan {
                Plan::Say { parts, stop_reason, usage } => {
                    for (at, part) in parts.iter().enumerate() {
                        match part {
                            Part::Text { text } => self.show(at, text, said, sink).await,
                            Part::Reasoning { text, .. } => self.show(at, text, thought, sink).await,
                            Part::ToolCall { name, arguments, .. } => {
                                sink.delta(Delta::Call { part: at, name });
                                self.show(at, arguments, called, sink).await;
                                sink.delta(Delta::CallEnd { part: at });
                            }
                            _ => {}
                        }
                    }
                    Ok(Answer { usage, ..Answer::new(parts, stop_reason) })
                }
                Plan::Fail { shown, fault } => {
                    self.show(0, &shown, said, sink).await;
                    Err(fault)
                }
                Plan::Hang { shown } => {
                    self.show(0, &shown, said, sink).await;
                    sleep(HANG).await;
                    Err(ModelFault::new(ErrorCode::UpstreamTimeout, "it hung"))
                }
            }
        })
    }

    fn models(&self) -> ModelsFuture<'_> {
        Box::pin(async { Ok(Vec::new()) })
    }
}
