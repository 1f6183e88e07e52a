//! Answers to calls that are over: a copy of the answer that was taken is a duplicate; any other is too late.
//!
//! The store records how every tool call ended (`session/ended.rs`). Nothing is stored about hook calls, so a bounded
//! memory serves. It is passed from loop to loop, and ends when the session leaves memory.

use reseed_protocol::{CallId, ErrorBody, ErrorCode, tools::CallOutcome};
use serde_json::json;
use std::collections::VecDeque;

/// Maximum calls remembered in memory. A client is late by seconds, in which a session makes few calls; older calls are
/// unknown.
const ENDED_MAX: usize = 64;

/// A hook call that is over, or a tool call whose answer was taken.
#[derive(Debug, Clone)]
struct Ended {
    call: CallId,
    outcome: CallOutcome,
    /// The fingerprint of the answer as sent; `None` if none was taken.
    answer: Option<u64>,
}

/// The most recent calls that are over.
#[derive(Debug, Default)]
pub(crate) struct EndedCalls(VecDeque<Ended>);

impl EndedCalls {
    /// Notes how a call ended, and the fingerprint of the answer that was taken.
    pub(crate) fn note(&mut self, call: CallId, outcome: CallOutcome, answer: Option<u64>) {
        if self.0.len() >= ENDED_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Ended { call, outcome, answer });
    }

    /// Returns how a call ended and the fingerprint of its answer, if the call is remembered.
    pub(crate) fn get(&self, call: &CallId) -> Option<(CallOutcome, Option<u64>)> {
        let ended = self.0.iter().rev().find(|ended| ended.call == *call)?;
        Some((ended.outcome, ended.answer))
    }

    /// Returns the error for a client's answer to a hook call that does not wait for it.
    pub(crate) fn late_for_hook(&self, call: &CallId) -> ErrorBody {
        match self.get(call) {
            Some((outcome, _)) => Callee::Hook.too_late(call, Some(outcome)),
            None => Callee::Hook.unknown(call),
        }
    }
}

/// The kind of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Callee {
    Tool,
    Hook,
    Approval,
}

impl Callee {
    /// Returns the field that names the call.
    fn field(self) -> &'static str {
        match self {
            Self::Tool => "toolCallId",
            Self::Hook => "hookCallId",
            Self::Approval => "approvalId",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Tool => "tool call",
            Self::Hook => "hook call",
            Self::Approval => "approval",
        }
    }

    /// Returns the error for a call that this session does not know.
    pub(crate) fn unknown(self, call: &CallId) -> ErrorBody {
        let message = format!("no {} `{call}` is pending", self.name());
        ErrorBody::new(ErrorCode::UnknownCall, message).with_field(self.field())
    }

    /// Returns the error for a call that is over, or whose answer hooks are inspecting (`None`).
    pub(crate) fn too_late(self, call: &CallId, outcome: Option<CallOutcome>) -> ErrorBody {
        let (name, field) = (self.name(), self.field());
        let how = match outcome {
            Some(CallOutcome::Answered | CallOutcome::Failed) | None => "was answered already",
            Some(CallOutcome::TimedOut) => "has timed out",
            Some(CallOutcome::Dropped) => "is no longer needed",
            Some(CallOutcome::Allowed) => "was allowed already",
            Some(CallOutcome::Rejected) => "was rejected already",
            Some(CallOutcome::Expired) => "has expired",
        };
        let mut details = json!({ "field": field, field: call });
        if let Some(outcome) = outcome {
            details["outcome"] = json!(outcome);
        }
        ErrorBody::new(ErrorCode::TooLate, format!("the {name} `{call}` {how}; nothing was stored"))
            .with_details(details)
    }
}
