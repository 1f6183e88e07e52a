//! The spans of a session that last longer than one effect: its turn, its compaction, and the calls of clients' tools.
//!
//! | span | parent |
//! | --- | --- |
//! | turn | the command whose input it answers; further ones are linked |
//! | compaction | the turn that waits for it, or its command; in the background none, but a link to the turn |
//! | others | the compaction for its hooks and requests; otherwise the turn, or the command that is executed |
//!
//! If no spans are made, nothing is kept.

use super::inference::Cause;
use crate::{
    core::{model::Purpose, tool::ToolPlace},
    metrics::{compaction, word},
    trace::{KeyValue, Span, SpanBuilder, SpanContext, SpanKind, Traces},
};
use reseed_protocol::{
    CallId, CommandId, JobId, SessionId,
    compaction::FailedRung,
    event::{EphemeralEvent, Event},
    hooks::{HookCall, HookPoint},
    tools::CallOutcome,
    turn::{TurnFinished, TurnStatus},
};
use std::{
    collections::{BTreeMap, VecDeque},
    mem::take,
};

/// Maximum number of commands whose context waits for a turn. A session queues fewer inputs.
const COMMANDS_MAX: usize = 64;

/// Maximum number of failed steps in a span. There may be as many as a history has pieces.
const STEPS_MAX: usize = 16;

/// The spans of a session.
pub(super) struct SessionTrace(Option<Box<Open>>);

struct Open {
    traces: Traces,
    session: SessionId,
    /// The context of the command that is executed.
    command: Option<SpanContext>,
    /// The contexts of the last commands, one of which may wait in the queue; at most [`COMMANDS_MAX`].
    commands: VecDeque<(CommandId, SpanContext)>,
    turn: Span,
    /// The turn that ends with the append in progress, which also starts the next one.
    ending: Option<Span>,
    compaction: Option<Compaction>,
    /// The running calls of a client's tools. Bounded by the calls of one answer.
    calls: BTreeMap<CallId, Span>,
}

struct Compaction {
    job: JobId,
    span: Span,
    is_in_background: bool,
}

impl SessionTrace {
    /// Starts with a session that is opened. `has_turn` is true if its last turn has not ended.
    pub(super) fn new(traces: &Traces, session: &SessionId, has_turn: bool) -> Self {
        Self(traces.is_on().then(|| {
            let mut open = Box::new(Open {
                traces: traces.clone(),
                session: session.clone(),
                command: None,
                commands: VecDeque::new(),
                turn: Span::default(),
                ending: None,
                compaction: None,
                calls: BTreeMap::new(),
            });
            if has_turn {
                open.start_turn(None);
            }
            open
        }))
    }

    /// Notes the context of a command that is executed from now on.
    pub(super) fn begin_command(&mut self, id: &CommandId, context: Option<Box<SpanContext>>) {
        let (Some(open), Some(context)) = (&mut self.0, context) else { return };
        if open.commands.len() == COMMANDS_MAX {
            open.commands.pop_front();
        }
        open.commands.push_back((id.clone(), (*context).clone()));
        open.command = Some(*context);
    }

    /// Notes that the command was executed.
    pub(super) fn end_command(&mut self) {
        if let Some(open) = &mut self.0 {
            open.command = None;
        }
    }

    /// Returns the context for what happens now.
    pub(super) fn context(&self) -> Option<SpanContext> {
        self.0.as_ref()?.context()
    }

    /// Returns what surrounds a request.
    pub(super) fn cause(&self, purpose: Purpose, is_compacted: bool) -> Cause {
        let parent = match purpose {
            Purpose::Turn => self.context(),
            Purpose::Summary => self.of_compaction(),
        };
        Cause { parent, is_compacted }
    }

    /// Starts the span of a hook call.
    pub(super) fn hook(&self, call: &HookCall, place: &'static str) -> Span {
        let Some(open) = &self.0 else { return Span::default() };
        let point = call.event.point();
        let parent = match point {
            HookPoint::BeforeCompaction => self.of_compaction(),
            _ => open.context(),
        };
        open.traces.start(parent, || {
            SpanBuilder::from_name(format!("hook {}", point.as_str())).with_kind(SpanKind::Client).with_attributes([
                KeyValue::new("reseed.hook.name", call.hook.clone()),
                KeyValue::new("reseed.hook.place", place),
                open.conversation(),
            ])
        })
    }

    /// Starts the span of a tool call.
    pub(super) fn tool(&self, name: &str, call: &CallId) -> Span {
        self.0.as_ref().map_or_else(Span::default, |open| open.tool(name, call, "server"))
    }

    /// Starts the span of a store commit, if it belongs to something.
    pub(super) fn commit(&self, records: usize) -> Span {
        let Some((open, parent)) = self.0.as_ref().and_then(|open| Some((open, open.context()?))) else {
            return Span::default();
        };
        open.traces.start(Some(parent), || {
            let records = i64::try_from(records).unwrap_or(i64::MAX);
            let attributes = [KeyValue::new("reseed.store.records", records), open.conversation()];
            SpanBuilder::from_name("store commit").with_kind(SpanKind::Client).with_attributes(attributes)
        })
    }

    /// Notes the events that are about to be stored.
    pub(super) fn appending(&mut self, events: &[Event]) {
        let Some(open) = &mut self.0 else { return };
        for event in events {
            match event {
                Event::TurnStarted(started) => {
                    if open.turn.is_open() {
                        open.ending = Some(take(&mut open.turn));
                    }
                    let commands = take(&mut open.commands);
                    let (answered, waiting) =
                        commands.into_iter().partition(|(id, _)| started.command_ids.contains(id));
                    open.commands = waiting;
                    let mut causes: VecDeque<(CommandId, SpanContext)> = answered;
                    open.start_turn(causes.pop_front().map(|(_, context)| context));
                    causes.into_iter().for_each(|(_, context)| open.turn.link(context));
                }
                Event::ToolCall(call) if call.place == ToolPlace::Client => {
                    let span = open.tool(&call.name, &call.call_id, "client");
                    open.calls.insert(call.call_id.clone(), span);
                }
                _ => {}
            }
        }
    }

    /// Notes the events that were stored.
    pub(super) fn appended(&mut self, events: &[Event]) {
        let Some(open) = &mut self.0 else { return };
        for event in events {
            match event {
                Event::TurnFinished(finished) => open.finish_turn(finished),
                // With an approval's id, it only reports a person's decision.
                Event::CallResolved(resolved) if resolved.approval_id.is_none() => {
                    match (open.calls.remove(&resolved.call_id), resolved.outcome) {
                        (Some(span), CallOutcome::Answered) => span.end(),
                        (Some(span), CallOutcome::Failed) => span.fail("tool_failed"),
                        (span, _) => drop(span),
                    }
                }
                Event::ContextCompacted(compacted) => {
                    let steps = steps(&compacted.failed_rungs);
                    let outcome = || {
                        vec![
                            KeyValue::new("reseed.compaction.step", word(compacted.rung)),
                            tokens("reseed.compaction.tokens_before", compacted.tokens_before),
                            tokens("reseed.compaction.tokens_after", compacted.tokens_after),
                            tokens("reseed.compaction.paused_ms", compacted.paused_ms),
                        ]
                    };
                    match open.compaction.take_if(|open| open.job == compacted.job_id) {
                        Some(Compaction { mut span, .. }) => {
                            steps.for_each(|step| span.event("step failed", || step));
                            span.record(outcome);
                            span.end();
                        }
                        // It was prepared earlier.
                        None => open.turn.event("compaction committed", outcome),
                    }
                }
                Event::CompactionFailed(failed) => {
                    if let Some(Compaction { mut span, .. }) = open.compaction.take_if(|open| open.job == failed.job_id)
                    {
                        steps(&failed.failed_rungs).for_each(|step| span.event("step failed", || step));
                        span.fail(failed.error.code.as_str());
                    }
                }
                _ => {}
            }
        }
    }

    /// Notes an event that is not stored.
    pub(super) fn emitted(&mut self, event: &EphemeralEvent) {
        let Some(open) = &mut self.0 else { return };
        match event {
            EphemeralEvent::CompactionStarted(started) => {
                let is_in_background = started.background;
                let cause = open.context();
                let parent = cause.clone().filter(|_| !is_in_background);
                let mut span = open.traces.start(parent, || {
                    SpanBuilder::from_name("compaction").with_attributes([
                        KeyValue::new("reseed.compaction.trigger", word(started.trigger)),
                        KeyValue::new("reseed.compaction.background", is_in_background),
                        KeyValue::new("reseed.compaction.job", started.job_id.to_string()),
                        open.conversation(),
                    ])
                });
                cause.into_iter().filter(|_| is_in_background).for_each(|cause| span.link(cause));
                open.compaction = Some(Compaction { job: started.job_id.clone(), span, is_in_background });
            }
            EphemeralEvent::CompactionPrepared(prepared) => {
                if let Some(Compaction { mut span, .. }) = open.compaction.take_if(|open| open.job == prepared.job_id) {
                    span.record(|| {
                        vec![
                            KeyValue::new("reseed.compaction.step", word(prepared.rung)),
                            KeyValue::new("reseed.compaction.held", true),
                            tokens("reseed.compaction.tokens_before", prepared.tokens_before),
                            tokens("reseed.compaction.tokens_after", prepared.tokens_after),
                        ]
                    });
                    span.end();
                }
            }
            _ => {}
        }
    }

    /// Ends the turn's span, because the session leaves memory. A turn that waits for a person continues later.
    pub(super) fn leave(&mut self) {
        if let Some(open) = &mut self.0 {
            open.turn.event("left memory", Vec::new);
            take(&mut open.turn).end();
        }
    }

    /// Returns the context of the compaction, if one runs.
    fn of_compaction(&self) -> Option<SpanContext> {
        let open = self.0.as_ref()?;
        open.compaction.as_ref().map_or_else(|| open.context(), |compaction| compaction.span.context())
    }
}

impl Open {
    fn context(&self) -> Option<SpanContext> {
        let turn = self.ending.as_ref().unwrap_or(&self.turn);
        let awaited = || self.compaction.as_ref().filter(|compaction| !compaction.is_in_background);
        let awaited = || awaited().and_then(|compaction| compaction.span.context());
        turn.context().or_else(|| self.command.clone()).or_else(awaited)
    }

    fn conversation(&self) -> KeyValue {
        KeyValue::new("gen_ai.conversation.id", self.session.to_string())
    }

    fn tool(&self, name: &str, call: &CallId, place: &'static str) -> Span {
        self.traces.start(self.context(), || {
            SpanBuilder::from_name(format!("execute_tool {name}")).with_attributes([
                KeyValue::new("gen_ai.operation.name", "execute_tool"),
                KeyValue::new("gen_ai.tool.name", name.to_owned()),
                KeyValue::new("gen_ai.tool.call.id", call.to_string()),
                KeyValue::new("reseed.tool.place", place),
                self.conversation(),
            ])
        })
    }

    fn start_turn(&mut self, cause: Option<SpanContext>) {
        self.turn = self.traces.start(cause, || {
            SpanBuilder::from_name("turn")
                .with_kind(SpanKind::Server)
                .with_attributes([KeyValue::new("gen_ai.operation.name", "invoke_agent"), self.conversation()])
        });
    }

    fn finish_turn(&mut self, finished: &TurnFinished) {
        let mut span = self.ending.take().unwrap_or_else(|| take(&mut self.turn));
        span.record(|| {
            vec![
                KeyValue::new("reseed.turn.status", word(finished.status)),
                tokens("reseed.context.tokens", finished.context_info.token_count),
            ]
        });
        match (&finished.error, finished.status) {
            (Some(error), _) => span.fail(error.code.as_str()),
            (None, TurnStatus::Completed) => span.end(),
            (None, _) => drop(span),
        }
    }
}

/// Returns the attributes of each failed step, from closed sets.
fn steps(failed: &[FailedRung]) -> impl Iterator<Item = Vec<KeyValue>> {
    failed.iter().take(STEPS_MAX).map(|failed| {
        let reason = compaction::reason(&failed.reason);
        vec![KeyValue::new("reseed.compaction.step", word(failed.rung)), KeyValue::new("error.type", reason)]
    })
}

fn tokens(name: &'static str, count: u64) -> KeyValue {
    KeyValue::new(name, i64::try_from(count).unwrap_or(i64::MAX))
}
