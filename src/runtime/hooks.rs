//! Calls the server's hooks for a session. Some are awaited, and others only observe.

use super::{handle::WeakMailbox, hook_session::HookSession, shared::Shared};
use crate::{
    core::{
        agent_loop::Input,
        hook::{HookFault, HookSpec},
    },
    hooks::{Hooks, Session},
    metrics::{
        Outcome,
        calls::{HookCallMeter, HookKind, hook_skipped},
    },
    trace::{Span, within},
};
use reseed_protocol::{
    CallId, ErrorCode, SessionId, Timestamp,
    hooks::{HookAnswer, HookCall},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::AbortHandle,
    time::timeout,
};

/// Maximum number of awaited calls per session. The hooks of one point are called one after the other, and fewer tool
/// calls than this run hooks at the same time.
const CALLS_MAX: usize = 256;

/// Maximum number of observer calls per session. Each holds its report, possibly a whole context. A hook that falls
/// this far behind is skipped.
const OBSERVERS_MAX: usize = 64;

/// A session's calls of server hooks. Dropping it cancels awaited calls. Observer calls run to completion, even if the
/// session leaves memory.
pub(super) struct HookCalls {
    shared: Arc<Shared>,
    session: SessionId,
    mailbox: WeakMailbox,
    /// At most [`CALLS_MAX`].
    awaited: BTreeMap<CallId, Awaited>,
    observers: Arc<Semaphore>,
}

/// A hook with its list, which stays in use until the call is over.
struct Found {
    hooks: Hooks,
    at: usize,
    spec: HookSpec,
    kind: HookKind,
}

/// An awaited call.
struct Awaited {
    deadline: Option<Timestamp>,
    meter: Arc<HookCallMeter>,
    task: AbortHandle,
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl HookCalls {
    pub(super) fn new(shared: Arc<Shared>, session: SessionId, mailbox: WeakMailbox) -> Self {
        let observers = Arc::new(Semaphore::new(OBSERVERS_MAX));
        Self { shared, session, mailbox, awaited: BTreeMap::new(), observers }
    }

    /// Calls the hook. An awaited answer arrives in the mailbox.
    pub(super) fn ask(&mut self, call: HookCall, awaited: bool, span: Span) {
        let hooks = self.shared.parts.in_use().hooks.clone();
        let found = hooks.find(&call).and_then(|at| hooks.get(at).map(|(spec, kind)| (at, spec.clone(), kind)));
        let Some((at, spec, kind)) = found else {
            // The settings have just removed it.
            tracing::warn!(session = %self.session, hook = call.hook, "the hook was removed");
            if awaited {
                self.answer_removed(call.call_id);
            }
            return;
        };
        let hook = Found { hooks, at, spec, kind };
        if awaited {
            self.ask_and_wait(hook, call, span);
        } else {
            self.tell(hook, call, span);
        }
    }

    fn answer_removed(&self, call_id: CallId) {
        let fault = HookFault::unavailable("it was removed from the server's settings; try again");
        self.mailbox.post(Input::HookAnswered { call_id, answer: Box::new(Err(fault)) });
    }

    /// Returns access to the session for a hook that needs it.
    fn handle(&self, call_id: CallId) -> Session {
        let (shared, session, mailbox) = (self.shared.clone(), self.session.clone(), self.mailbox.clone());
        Session::new(Arc::new(HookSession { shared, session, mailbox, call_id, commands: AtomicU64::new(0) }))
    }

    fn ask_and_wait(&mut self, hook: Found, call: HookCall, span: Span) {
        let Found { hooks, at, spec, kind } = hook;
        self.awaited.retain(|_, call| !call.task.is_finished());
        let meter = Arc::new(HookCallMeter::new(kind, spec.point));
        let (id, deadline) = (call.call_id.clone(), call.deadline);
        let room = self.awaited.len() < CALLS_MAX;
        let (session, mailbox) = (self.session.clone(), self.mailbox.clone());
        let (call_id, name, outcome) = (id.clone(), spec.name.clone(), meter.clone());
        let handle = self.handle(id.clone());
        let task = tokio::spawn(async move {
            let answer = match room {
                true => within(span.context(), hooks.call(at, call, handle)).await,
                false => Err(HookFault::failed(format!("{CALLS_MAX} hook calls of this session are already running"))),
            };
            outcome.ended(outcome_of(&answer));
            end(span, outcome_of(&answer));
            log_fault(&session, &name, &answer);
            mailbox.tell(Input::HookAnswered { call_id, answer: Box::new(answer) }).await;
        });
        self.awaited.insert(id, Awaited { deadline, meter, task: task.abort_handle() });
    }

    fn tell(&self, hook: Found, call: HookCall, span: Span) {
        let Found { hooks, at, spec, kind } = hook;
        let Ok(permit) = self.observers.clone().try_acquire_owned() else {
            hook_skipped(kind, spec.point);
            tracing::warn!(session = %self.session, hook = spec.name, "skipped: the hook is too slow for its events");
            return;
        };
        let limit = Duration::from_millis(spec.timeout_ms.unwrap_or(self.shared.parts.deployment().hook_timeout_ms));
        let (session, handle) = (self.session.clone(), self.handle(call.call_id.clone()));
        tokio::spawn(async move {
            let _told: OwnedSemaphorePermit = permit;
            let meter = HookCallMeter::new(kind, spec.point);
            let calling = within(span.context(), hooks.call(at, call, handle));
            let answer = timeout(limit, calling).await.unwrap_or_else(|_| {
                let message = format!("it took longer than {} ms", limit.as_millis());
                Err(HookFault { code: ErrorCode::HookTimeout, message })
            });
            meter.ended(outcome_of(&answer));
            end(span, outcome_of(&answer));
            log_fault(&session, &spec.name, &answer);
        });
    }

    /// Cancels a call that nobody waits for any more, by dropping the hook's future.
    pub(super) fn cancel(&mut self, now: Timestamp, id: &CallId) {
        let Some(call) = self.awaited.remove(id) else { return };
        if call.deadline.is_some_and(|deadline| deadline <= now) {
            call.meter.ended(Outcome::Error(ErrorCode::HookTimeout));
        }
    }

    /// Cancels all awaited calls.
    pub(super) fn cancel_all(&mut self) {
        self.awaited.clear();
    }
}

/// Ends the span of a call.
pub(super) fn end(span: Span, outcome: Outcome) {
    match outcome {
        Outcome::Error(code) => span.fail(code.as_str()),
        _ => span.end(),
    }
}

/// Returns the outcome of a call. A hook that reports an error counts as failed.
fn outcome_of(answer: &Result<HookAnswer, HookFault>) -> Outcome {
    match answer {
        Ok(answer) if answer.error.is_none() => Outcome::Ok,
        Ok(_) => Outcome::Error(ErrorCode::HookFailed),
        Err(fault) => Outcome::Error(fault.code),
    }
}

/// Logs a hook's failure. The hook's own error text is not logged, because it may repeat what the hook was sent. A
/// fault's message does not.
fn log_fault(session: &SessionId, hook: &str, answer: &Result<HookAnswer, HookFault>) {
    match answer {
        Ok(answer) if answer.error.is_none() => {}
        Ok(_) => tracing::warn!(%session, hook, "the hook answered with an error"),
        Err(fault) => tracing::warn!(%session, hook, code = %fault.code, "hook: {}", fault.message),
    }
}

#[cfg(test)]
mod tests;
