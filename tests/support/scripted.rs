//! A provider in this process that answers from a script.

use reseed::{
    core::{
        model::{Answer, Delta, ModelFault, ModelRequest, ReportedUsage},
        need::Needs,
    },
    provider::{AnswerFuture, Delay, DeltaSink, ModelsFuture, Provider},
};
use reseed_protocol::{ErrorCode, Part, StopReason};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::{Semaphore, watch};

type Script = Box<dyn FnMut(&ModelRequest) -> Reply + Send>;

/// A scripted provider. Clones are handles to the same one.
#[derive(Clone)]
pub(crate) struct Scripted {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// The number of requests that arrived, and of those dropped before completion.
    counts: watch::Sender<Counts>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    asked: usize,
    dropped: usize,
}

struct State {
    queue: VecDeque<Reply>,
    script: Option<Script>,
    requests: Vec<ModelRequest>,
}

/// The reply to one request.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    parts: Vec<Part>,
    pieces: usize,
    stop_reason: Option<StopReason>,
    usage: Option<ReportedUsage>,
    fault: Option<ModelFault>,
    gate: Option<Gate>,
    delays: Vec<Delay>,
    learnt: Needs,
}

/// Holds a reply back until the gate is opened. Clones share one gate.
#[derive(Debug, Clone)]
pub(crate) struct Gate(Arc<Semaphore>);

impl Gate {
    /// Returns a closed gate.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// Opens the gate permanently.
    pub(crate) fn open(&self) {
        self.0.close();
    }

    /// Waits until the gate is open.
    pub(crate) async fn passed(&self) {
        // The semaphore never has permits. Closing it ends the wait and thereby opens the gate.
        let _ = self.0.acquire().await;
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Reply {
    /// Returns the answer as if its request had been adapted, and these needs learnt about its model.
    pub(crate) fn having_learnt(self, needs: Needs) -> Self {
        Self { learnt: needs, ..self }
    }

    /// Returns an answer of these parts, with one delta per part and no reported usage. Tool calls are streamed too.
    pub(crate) fn parts(parts: Vec<Part>) -> Self {
        let (pieces, delays, learnt) = (1, Vec::new(), Needs::default());
        Self { parts, pieces, stop_reason: None, usage: None, fault: None, gate: None, delays, learnt }
    }

    /// Returns an answer of one text.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::parts(vec![Part::Text { text: text.into() }])
    }

    /// Returns a failure before any delta.
    pub(crate) fn fault(fault: ModelFault) -> Self {
        Self { fault: Some(fault), ..Self::parts(Vec::new()) }
    }

    /// Sends each text, and the arguments of each call, in this many deltas.
    pub(crate) fn in_pieces(self, pieces: usize) -> Self {
        Self { pieces: pieces.max(1), ..self }
    }

    /// Reports the request's usage, in tokens.
    pub(crate) fn usage(self, input_tokens: u64, output_tokens: u64) -> Self {
        Self { usage: Some(ReportedUsage { input_tokens, output_tokens, ..ReportedUsage::default() }), ..self }
    }

    /// Ends with this stop reason. The default is `ToolCalls` if there are calls, and otherwise `Stop`.
    pub(crate) fn stopping(self, stop_reason: StopReason) -> Self {
        Self { stop_reason: Some(stop_reason), ..self }
    }

    /// Fails after its deltas. The fault's `shown` is set if there were any.
    pub(crate) fn then_fault(self, fault: ModelFault) -> Self {
        Self { fault: Some(fault), ..self }
    }

    /// Reports these waits before its first delta, without waiting.
    pub(crate) fn delayed(self, delays: &[Delay]) -> Self {
        Self { delays: delays.to_vec(), ..self }
    }

    /// Pauses until the gate opens: before its last delta with text, or before its end if it has at most one.
    pub(crate) fn held_by(self, gate: &Gate) -> Self {
        Self { gate: Some(gate.clone()), ..self }
    }
}

impl Default for Scripted {
    fn default() -> Self {
        Self::new()
    }
}

impl Scripted {
    /// Returns a provider without replies. A request takes a [`Scripted::push`]ed one, or fails.
    pub(crate) fn new() -> Self {
        let state = State { queue: VecDeque::new(), script: None, requests: Vec::new() };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), counts: watch::Sender::new(Counts::default()) }) }
    }

    /// Returns a provider that calls `script` for a reply whenever none is queued.
    pub(crate) fn answering(script: impl FnMut(&ModelRequest) -> Reply + Send + 'static) -> Self {
        let scripted = Self::new();
        scripted.state().script = Some(Box::new(script));
        scripted
    }

    /// Queues a reply. Requests take replies in order.
    pub(crate) fn push(&self, reply: Reply) {
        self.state().queue.push_back(reply);
    }

    /// Returns the requests that arrived, in order.
    pub(crate) fn requests(&self) -> Vec<ModelRequest> {
        self.state().requests.clone()
    }

    /// Waits until this many requests have arrived in total.
    pub(crate) async fn wait_for_requests(&self, asked: usize) {
        let _ = self.shared.counts.subscribe().wait_for(|counts| counts.asked >= asked).await;
    }

    /// Waits until this many requests were dropped before completion.
    pub(crate) async fn wait_for_dropped(&self, dropped: usize) {
        let _ = self.shared.counts.subscribe().wait_for(|counts| counts.dropped >= dropped).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test whose script panicked has already failed, and others can continue.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, request: &ModelRequest) -> Reply {
        let mut state = self.state();
        state.requests.push(request.clone());
        let queued = state.queue.pop_front();
        let reply = queued.or_else(|| state.script.as_mut().map(|script| script(request)));
        drop(state);
        self.shared.counts.send_modify(|counts| counts.asked += 1);
        reply.unwrap_or_else(|| Reply::fault(ModelFault::new(ErrorCode::UpstreamError, "no reply is scripted")))
    }
}

/// Counts a request as dropped unless it completed.
struct Unfinished<'a> {
    counts: &'a watch::Sender<Counts>,
    finished: bool,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.counts.send_modify(|counts| counts.dropped += 1);
        }
    }
}

impl Provider for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn answer<'a>(&'a self, request: &'a ModelRequest, sink: &'a mut dyn DeltaSink) -> AnswerFuture<'a> {
        Box::pin(async move {
            let mut unfinished = Unfinished { counts: &self.shared.counts, finished: false };
            let reply = self.take(request);
            let shown = play(&reply, sink).await;
            unfinished.finished = true;
            if let Some(fault) = reply.fault {
                return Err(ModelFault { shown, ..fault });
            }
            let calls = reply.parts.iter().any(|part| matches!(part, Part::ToolCall { .. }));
            let stop_reason = reply.stop_reason.unwrap_or(if calls { StopReason::ToolCalls } else { StopReason::Stop });
            let (usage, needs) = (reply.usage, reply.learnt);
            Ok(Answer { usage, adapted: needs, learnt: needs, ..Answer::new(reply.parts, stop_reason) })
        })
    }

    fn models(&self) -> ModelsFuture<'_> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

/// Sends the reply's texts and calls to the sink. Returns true if there were any.
async fn play(reply: &Reply, sink: &mut dyn DeltaSink) -> bool {
    reply.delays.iter().for_each(|delay| sink.delayed(delay));
    let mut deltas: Vec<Delta<'_>> = Vec::new();
    for (part, content) in reply.parts.iter().enumerate() {
        match content {
            Part::Text { text } => deltas.extend(cut(text, reply.pieces).map(|text| Delta::Text { part, text })),
            Part::Reasoning { text, .. } => {
                deltas.extend(cut(text, reply.pieces).map(|text| Delta::Reasoning { part, text }));
            }
            Part::ToolCall { name, arguments, .. } => {
                deltas.push(Delta::Call { part, name });
                deltas.extend(cut(arguments, reply.pieces).map(|text| Delta::Arguments { part, text }));
                deltas.push(Delta::CallEnd { part });
            }
            _ => {}
        }
    }
    let mut texts = (0..deltas.len()).rev().filter(|&at| !deltas[at].text().is_empty());
    let (last, before) = (texts.next(), texts.next());
    let held_at = last.filter(|_| before.is_some());
    for (at, &delta) in deltas.iter().enumerate() {
        if let (Some(gate), true) = (&reply.gate, held_at == Some(at)) {
            gate.passed().await;
        }
        sink.delta(delta);
        // Other tasks run between deltas, as with a real server.
        tokio::task::yield_now().await;
    }
    if let (Some(gate), None) = (&reply.gate, held_at) {
        gate.passed().await;
    }
    !deltas.is_empty()
}

/// Splits a text into at most this many non-empty pieces, each with about the same number of characters.
fn cut(text: &str, pieces: usize) -> impl Iterator<Item = &str> {
    let chars = text.chars().count();
    let size = chars.div_ceil(pieces).max(1);
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = rest.char_indices().nth(size).map_or(rest.len(), |(at, _)| at);
        let (piece, after) = rest.split_at(end);
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

mod tests {
    use super::*;
    use reseed::core::model::Purpose;
    use reseed_protocol::context::{ContextEnvelope, EnvelopeMessages, EnvelopeMeta, RequestOptions, SystemPrompt};

    #[derive(Default)]
    struct Shown(Vec<String>);

    impl DeltaSink for Shown {
        fn delta(&mut self, delta: Delta<'_>) {
            self.0.push(delta.text().to_owned());
        }
    }

    fn request(model: &str) -> ModelRequest {
        ModelRequest {
            model: model.into(),
            envelope: ContextEnvelope {
                system: SystemPrompt::default(),
                tools: Vec::new(),
                messages: EnvelopeMessages::default(),
                options: RequestOptions::default(),
                meta: EnvelopeMeta::default(),
            },
            purpose: Purpose::Turn,
            compared_with: None,
            compacts: None,
        }
    }

    #[tokio::test]
    async fn queued_replies_come_before_the_script() {
        let scripted = Scripted::answering(|request| Reply::text(format!("script for {}", request.model)));
        scripted.push(Reply::text("grüße").in_pieces(2).usage(9, 2));
        let broken = ModelFault::new(ErrorCode::UpstreamTruncated, "x");
        scripted.push(Reply::text("half").then_fault(broken.clone()));
        let mut shown = Shown::default();
        let answer = scripted.answer(&request("a"), &mut shown).await.unwrap();
        assert_eq!((answer.stop_reason, answer.usage.map(|usage| usage.input_tokens)), (StopReason::Stop, Some(9)));
        let fault = scripted.answer(&request("b"), &mut shown).await.unwrap_err();
        assert_eq!(fault, ModelFault { shown: true, ..broken });
        scripted.answer(&request("c"), &mut shown).await.unwrap();
        assert_eq!(shown.0, ["grü", "ße", "half", "script for c"]);
        assert_eq!(scripted.requests().len(), 3);
    }

    #[tokio::test]
    async fn a_gate_holds_the_last_piece_and_a_dropped_request_is_counted() {
        let (scripted, gate) = (Scripted::new(), Gate::new());
        scripted.push(Reply::text("ab").in_pieces(2).held_by(&gate));
        scripted.push(Reply::text("ab").in_pieces(2).held_by(&gate));
        let (request, mut shown) = (request("a"), Shown::default());
        tokio::select! {
            biased;
            answer = scripted.answer(&request, &mut shown) => panic!("{answer:?}"),
            () = async { for _ in 0..10 { tokio::task::yield_now().await } } => {}
        }
        assert_eq!(shown.0, ["a"]);
        scripted.wait_for_dropped(1).await;
        gate.open();
        scripted.answer(&request, &mut shown).await.unwrap();
        assert_eq!(shown.0, ["a", "a", "b"]);
        assert_eq!(scripted.answer(&request, &mut shown).await.unwrap_err().code, ErrorCode::UpstreamError);
    }
}
