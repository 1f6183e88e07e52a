//! Hooks hosted by a client. They are called over the host's connection, and again when it reconnects.
//!
//! A call is only for the host, and others do not see it. The loop decides what happens if the client is absent.

use super::{
    Actor, End,
    hosting::{Asked, Host},
    members::Member,
};
use crate::{
    core::{
        agent_loop::{AgentLoop, Input},
        hook::HookFault,
    },
    metrics::{
        Outcome,
        calls::{HookCallMeter, HookKind, hook_skipped},
    },
    runtime::hooks::end,
    trace::Span,
};
use reseed_protocol::{
    CallId, ErrorCode, Timestamp,
    command::SessionCommand,
    event::EphemeralEvent,
    hooks::{HookCall, HookCancelled},
    tools::CallOutcome,
};
use std::time::Duration;
use tokio::time::Instant;

/// The interval for checking whether a client reads again, after a call was not sent because it did not read. Used only
/// while a hook of such a client is awaited.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Maximum number of calls measured at once. A client has fewer open, because its hooks are called one after the other.
const ASKED_MAX: usize = 256;

impl Host {
    /// Records that a call is sent. A call that is sent again when its client returns counts as one call.
    fn note_asked(&mut self, call: &HookCall, span: impl FnOnce() -> Span) {
        if let Some(asked) = self.asked.get_mut(&call.call_id) {
            asked.deadline = call.deadline;
        } else if self.asked.len() < ASKED_MAX {
            let meter = HookCallMeter::new(HookKind::Client, call.event.point());
            let asked = Asked { meter, span: span(), deadline: call.deadline };
            self.asked.insert(call.call_id.clone(), asked);
        }
    }

    /// Records how a call ended. `None` means that it was cancelled.
    fn ended(&mut self, call_id: &CallId, outcome: Option<Outcome>) {
        if let Some((asked, outcome)) = self.asked.remove(call_id).zip(outcome) {
            asked.meter.ended(outcome);
            end(asked.span, outcome);
        }
    }
}

impl Actor {
    /// Returns the host, if it is connected.
    pub(super) fn host_here(&mut self) -> Option<&mut Member> {
        self.members.get_mut(self.host.as_ref()?.client.origin)
    }

    /// Sends a call to the client that hosts the hook.
    ///
    /// # Errors
    /// `hook_unavailable`: the client is not connected, or does not read.
    fn send_call(&mut self, call: HookCall) -> Result<(), HookFault> {
        let (session, after) = (self.id.clone(), self.feed.seq());
        let sent = match self.host_here() {
            Some(member) => member.send_event(&session, after, &EphemeralEvent::HookCall(Box::new(call))),
            None => Err("is not connected"),
        };
        sent.map_err(|why| HookFault::unavailable(format!("its client {why}")))
    }

    /// Sends an awaited call like [`Self::send_call`]. Returns the loop's input if no answer will come.
    fn ask_client(&mut self, call: HookCall) -> Option<Input> {
        let call_id = call.call_id.clone();
        if let Some(host) = &mut self.host {
            host.note_asked(&call, || self.effects.trace.hook(&call, "client"));
        }
        let sent = self.send_call(call);
        sent.err().map(|fault| Input::HookAnswered { call_id, answer: Box::new(Err(fault)) })
    }

    /// Calls a client's hook, either awaited or as an observer. Returns the resulting input for the loop, if any.
    pub(super) fn call_client(&mut self, call: HookCall, awaited: bool) -> Option<Input> {
        if awaited {
            return self.ask_client(call);
        }
        let point = call.event.point();
        match self.send_call(call) {
            Ok(()) => HookCallMeter::new(HookKind::Client, point).ended(Outcome::Ok),
            Err(_) => hook_skipped(HookKind::Client, point),
        }
        None
    }

    /// Records that the loop continues without a hook whose client is absent.
    pub(super) fn passed_over(&mut self, call_id: &CallId) {
        if let Some(host) = &mut self.host {
            host.ended(call_id, Some(Outcome::Error(ErrorCode::HookUnavailable)));
        }
    }

    /// Cancels a call that nobody waits for any more.
    pub(super) fn call_off(&mut self, now: Timestamp, call_id: &CallId) {
        let Some(host) = &mut self.host else { return };
        let Some(Asked { deadline, .. }) = host.asked.get(call_id) else { return };
        let is_late = deadline.is_some_and(|deadline| deadline <= now);
        let is_here = self.members.get(host.client.origin).is_some();
        let code = if is_here { ErrorCode::HookTimeout } else { ErrorCode::HookUnavailable };
        host.ended(call_id, (is_late || !is_here).then_some(Outcome::Error(code)));
        let (session, after) = (self.id.clone(), self.feed.seq());
        if let Some(member) = self.host_here() {
            let outcome = if is_late { CallOutcome::TimedOut } else { CallOutcome::Dropped };
            let event = EphemeralEvent::HookCancelled(HookCancelled { call_id: call_id.clone(), outcome });
            // If the event does not fit because the client does not read, the client learns of the cancellation by
            // `too_late`.
            let _ = member.send_event(&session, after, &event);
        }
    }

    /// Records how a hook call ended, if the command reports that.
    pub(super) fn note_hook_result(&mut self, command: &SessionCommand) {
        let (SessionCommand::HookResult(result), Some(host)) = (command, &mut self.host) else { return };
        let outcome = match result.error {
            Some(_) => Outcome::Error(ErrorCode::HookFailed),
            None => Outcome::Ok,
        };
        host.ended(&result.call_id, Some(outcome));
    }

    /// Returns when to check whether the host that hooks or tools wait for reads again.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let host = self.host.as_ref().and_then(|host| self.members.get(host.client.origin));
        let has_unsent = host.is_some_and(Member::has_unsent);
        let waits = |agent: &AgentLoop| agent.waits_for_client() || !agent.session().state.pending.is_empty();
        let waits = has_unsent && self.agent.as_deref().is_some_and(waits);
        waits.then(|| Instant::now() + LOOK_AGAIN)
    }

    /// Sends calls to the host again once it reads again.
    pub(super) async fn look_again(&mut self) -> Result<(), End> {
        if self.host_here().is_some_and(Member::reads_again) {
            self.run_open_calls();
            self.tell(Input::AskAgain { only_away: true }, None).await?;
        }
        Ok(())
    }
}
