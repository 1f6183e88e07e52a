//! Asks the server's hooks for a session: those whose answer is waited for, and those that are only told.

use super::{handle::Message, hook_session::HookSession, shared::Shared};
use crate::{
    core::{
        agent_loop::Input,
        hook::{HookFault, HookSpec},
    },
    hooks::Session,
    metrics::{
        Outcome,
        hooks::{AskedHook, HookKind, hook_passed_over},
    },
};
use reseed_protocol::{
    CallId, ErrorCode, SessionId, Timestamp,
    hook::{HookAnswer, HookCall},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::AbortHandle,
    time::timeout,
};

/// Calls of one session whose answers are waited for: hooks of one point are asked one after the other, and the calls of
/// tools that ask at the same time are fewer.
const CALLS_MAX: usize = 256;

/// Calls of one session that nobody waits for. Each holds what it tells, perhaps a whole context; a hook that falls so far
/// behind is passed over.
const OBSERVERS_MAX: usize = 64;

/// A session's calls of the server's hooks. Dropped, it cancels those whose answer is waited for; who is only told is
/// told to the end, also when the session leaves memory.
pub(super) struct HookCalls {
    shared: Arc<Shared>,
    session: SessionId,
    mailbox: mpsc::WeakSender<Box<Message>>,
    /// Of at most [`CALLS_MAX`].
    awaited: BTreeMap<CallId, Awaited>,
    observers: Arc<Semaphore>,
}

/// A hook whose answer is waited for.
struct Awaited {
    deadline: Option<Timestamp>,
    asked: Arc<AskedHook>,
    task: AbortHandle,
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl HookCalls {
    pub(super) fn new(shared: Arc<Shared>, session: SessionId, mailbox: mpsc::WeakSender<Box<Message>>) -> Self {
        let observers = Arc::new(Semaphore::new(OBSERVERS_MAX));
        Self { shared, session, mailbox, awaited: BTreeMap::new(), observers }
    }

    /// Asks the hook at that place; its answer comes into the mailbox where it is waited for.
    pub(super) fn ask(&mut self, at: usize, call: HookCall, awaited: bool) {
        let Some((spec, kind)) = self.shared.hooks.get(at).map(|(spec, kind)| (spec.clone(), kind)) else {
            // The core's list of hooks is made of this one.
            tracing::error!(session = %self.session, at, "there is no such hook");
            return;
        };
        if awaited {
            self.ask_and_wait(at, &spec, kind, call);
        } else {
            self.tell(at, spec, kind, call);
        }
    }

    /// The session, for a hook that has to do with it.
    fn handle(&self, call_id: CallId) -> Session {
        let (shared, session, mailbox) = (self.shared.clone(), self.session.clone(), self.mailbox.clone());
        Session::new(Arc::new(HookSession { shared, session, mailbox, call_id, commands: AtomicU64::new(0) }))
    }

    fn ask_and_wait(&mut self, at: usize, spec: &HookSpec, kind: HookKind, call: HookCall) {
        self.awaited.retain(|_, call| !call.task.is_finished());
        let asked = Arc::new(AskedHook::new(kind, spec.point));
        let (id, deadline) = (call.call_id.clone(), call.deadline);
        let room = self.awaited.len() < CALLS_MAX;
        let (shared, session, mailbox) = (self.shared.clone(), self.session.clone(), self.mailbox.clone());
        let (call_id, name, outcome) = (id.clone(), spec.name.clone(), asked.clone());
        let handle = self.handle(id.clone());
        let task = tokio::spawn(async move {
            let answer = match room {
                true => shared.hooks.call(at, call, handle).await,
                false => Err(HookFault::failed(format!("{CALLS_MAX} hooks of this session are at work already"))),
            };
            outcome.ended(outcome_of(&answer));
            log_fault(&session, &name, &answer);
            let input = Input::HookAnswered { call_id, answer: Box::new(answer) };
            if let Some(mailbox) = mailbox.upgrade() {
                let _ = mailbox.send(Box::new(Message::Input(input))).await;
            }
        });
        self.awaited.insert(id, Awaited { deadline, asked, task: task.abort_handle() });
    }

    fn tell(&self, at: usize, spec: HookSpec, kind: HookKind, call: HookCall) {
        let Ok(permit) = self.observers.clone().try_acquire_owned() else {
            hook_passed_over(kind, spec.point);
            tracing::warn!(session = %self.session, hook = spec.name, "passed over: it is told faster than it listens");
            return;
        };
        let limit = Duration::from_millis(spec.timeout_ms.unwrap_or(self.shared.deployment.hook_timeout_ms));
        let (shared, session, handle) = (self.shared.clone(), self.session.clone(), self.handle(call.call_id.clone()));
        tokio::spawn(async move {
            let _told: OwnedSemaphorePermit = permit;
            let asked = AskedHook::new(kind, spec.point);
            let answer = timeout(limit, shared.hooks.call(at, call, handle)).await.unwrap_or_else(|_| {
                let message = format!("it took longer than {} ms", limit.as_millis());
                Err(HookFault { code: ErrorCode::HookTimeout, message })
            });
            asked.ended(outcome_of(&answer));
            log_fault(&session, &spec.name, &answer);
        });
    }

    /// Nobody waits for that answer any more: the hook's future is dropped.
    pub(super) fn cancel(&mut self, now: Timestamp, id: &CallId) {
        let Some(call) = self.awaited.remove(id) else { return };
        if call.deadline.is_some_and(|deadline| deadline <= now) {
            call.asked.ended(Outcome::Error(ErrorCode::HookTimeout));
        }
    }

    /// Cancels whatever is waited for.
    pub(super) fn cancel_all(&mut self) {
        self.awaited.clear();
    }
}

/// How a call ended. A hook that says that it could not do its work has failed.
fn outcome_of(answer: &Result<HookAnswer, HookFault>) -> Outcome {
    match answer {
        Ok(answer) if answer.error.is_none() => Outcome::Ok,
        Ok(_) => Outcome::Error(ErrorCode::HookFailed),
        Err(fault) => Outcome::Error(fault.code),
    }
}

/// What a hook says of itself may repeat what was said to it; a fault's message does not.
fn log_fault(session: &SessionId, hook: &str, answer: &Result<HookAnswer, HookFault>) {
    match answer {
        Ok(answer) if answer.error.is_none() => {}
        Ok(_) => tracing::warn!(%session, hook, "the hook answered with an error"),
        Err(fault) => tracing::warn!(%session, hook, code = %fault.code, "hook: {}", fault.message),
    }
}

#[cfg(test)]
mod tests;
