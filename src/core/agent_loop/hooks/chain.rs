//! A chain: one subject that passes through the hooks of a point, one after the other.

use crate::agent_loop::{deadline::Deadline, io::Caller, late::EndedCalls, roster::Roster, subject::Subject};
use crate::hook::{HookFault, HookPlace, HookSpec};
use reseed_protocol::{
    CallId, CommandId, ErrorCode, Timestamp,
    command::SessionCommand,
    event::EphemeralEvent,
    hooks::{HookCall, HookFailed},
    receipt::{HookOutcome, HookRun},
    tools::CallOutcome,
};
use std::collections::VecDeque;

/// One subject that passes through the hooks of a point.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) subject: Subject,
    pub(crate) rest: VecDeque<(HookPlace, HookSpec)>,
    pub(crate) open: Open,
}

impl Chain {
    pub(crate) fn call_id(&self) -> CallId {
        self.open.call.call_id.clone()
    }

    /// Returns true if the client no longer offers the hook.
    pub(crate) fn has_left(&self, roster: &Roster) -> bool {
        roster.is_gone(self.open.place, &self.open.spec)
    }

    pub(crate) fn is_of_input(&self) -> bool {
        self.input_id().is_some()
    }

    /// Returns the command whose input hooks are inspecting.
    pub(crate) fn input_id(&self) -> Option<&CommandId> {
        match &self.subject {
            Subject::Input(offered) => Some(&offered.caller.id),
            _ => None,
        }
    }
}

/// The hook call in progress.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) call: Box<HookCall>,
    pub(crate) place: HookPlace,
    pub(crate) spec: HookSpec,
    /// True if the call was sent. If no client offers the hook, there is no call to cancel.
    pub(crate) is_sent: bool,
    pub(crate) asked_at: Timestamp,
    pub(crate) deadline: Deadline,
    /// The time at which its client disconnected. The hook's time limit is paused from then on.
    pub(crate) away_since: Option<Timestamp>,
    /// The milliseconds for which its client may still be away, over all absences.
    pub(crate) away_left_ms: u64,
}

impl Open {
    /// Remembers a client hook's call that ended without an answer.
    pub(crate) fn note_unanswered(&self, ended: &mut EndedCalls, outcome: CallOutcome) {
        if self.place == HookPlace::Client {
            ended.note(self.call.call_id.clone(), outcome, None);
        }
    }

    /// Returns the receipt's record of this call, if its subject belongs to a request.
    pub(crate) fn run(
        &self,
        subject: &Subject,
        now: Timestamp,
        outcome: HookOutcome,
        code: Option<ErrorCode>,
    ) -> Option<HookRun> {
        subject.is_of_request().then(|| HookRun {
            hook: self.spec.name.clone(),
            point: subject.event().to_owned(),
            outcome,
            duration_ms: now.millis_since(self.asked_at),
            code,
        })
    }

    /// Returns the event that reports the failure to clients.
    pub(crate) fn failed(&self, fault: &HookFault) -> EphemeralEvent {
        EphemeralEvent::HookFailed(HookFailed {
            hook: self.spec.name.clone(),
            point: self.spec.point,
            turn_id: self.call.turn_id.clone(),
            error: fault.error(),
        })
    }

    /// Notes that the hook's client has disconnected.
    pub(crate) fn leaves(&mut self, now: Timestamp) {
        self.away_since = self.away_since.or(Some(now));
    }

    /// Notes that a client that offers the hook is back. The hook's time limit resumes where it was paused.
    pub(crate) fn returns(&mut self, now: Timestamp) {
        if let Some(since) = self.away_since.take() {
            let away_ms = now.millis_since(since);
            self.away_left_ms = self.away_left_ms.saturating_sub(away_ms);
            self.deadline = self.deadline.later(away_ms);
        }
    }

    /// Returns the time at which the hook fails if it has not answered.
    pub(crate) fn due(&self) -> Timestamp {
        self.away_since.map_or(self.deadline.at, |since| since.plus_millis(self.away_left_ms))
    }

    pub(crate) fn late(&self) -> HookFault {
        if self.away_since.is_some() {
            return HookFault::unavailable("its client is not connected, and did not come back in time");
        }
        let limit_ms = self.deadline.timeout_ms;
        HookFault {
            code: ErrorCode::HookTimeout,
            message: format!("it did not answer within its limit of {limit_ms} ms, nor say that it is still at work"),
        }
    }
}

/// A command that waits in line until hooks have inspected an earlier input.
#[derive(Debug)]
pub(crate) struct InLine {
    pub(crate) caller: Caller,
    pub(crate) command: SessionCommand,
}

/// The chains that are passed from one loop to the next: those about inputs.
#[derive(Debug, Default)]
pub(crate) struct InputChains {
    pub(crate) asked: Option<Chain>,
    pub(crate) line: VecDeque<InLine>,
}
