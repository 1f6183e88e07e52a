//! Answers to calls that are over: a copy of the answer that was taken is a duplicate, any other is too late.
//!
//! The store keeps how every tool call ended (`session/ended.rs`). Of hook calls nothing is stored,
//! so a bounded memory serves: it is carried from loop to loop, and ends with the session's time in memory.

use super::{commands::Caller, workspace::Workspace};
use crate::session::{Lookup, ended};
use reseed_protocol::{
    CallId, ErrorBody, ErrorCode,
    event::CallOutcome,
    reply::{Done, Reply},
};
use serde_json::json;
use std::collections::VecDeque;

/// Calls that are remembered in memory. A client is late by seconds, in which a session makes a few calls; older ones
/// are unknown.
const ENDED_MAX: usize = 64;

/// A hook call that is over, or a tool call whose answer was taken.
#[derive(Debug, Clone)]
struct Ended {
    call: CallId,
    outcome: CallOutcome,
    /// The fingerprint of the answer as sent; `None` if none was taken.
    answer: Option<u64>,
}

/// The newest calls that are over.
#[derive(Debug, Default)]
pub(super) struct EndedCalls(VecDeque<Ended>);

impl EndedCalls {
    /// Notes how a call ended, and the fingerprint of the answer that it took.
    pub(super) fn note(&mut self, call: CallId, outcome: CallOutcome, answer: Option<u64>) {
        if self.0.len() >= ENDED_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Ended { call, outcome, answer });
    }

    /// Returns how a call ended, and the fingerprint of its answer, if it is remembered.
    pub(super) fn get(&self, call: &CallId) -> Option<(CallOutcome, Option<u64>)> {
        let ended = self.0.iter().rev().find(|ended| ended.call == *call)?;
        Some((ended.outcome, ended.answer))
    }
}

/// The kind of a call.
#[derive(Debug, Clone, Copy)]
pub(super) enum Callee {
    Tool,
    Hook,
}

impl Callee {
    /// Returns the field that names the call.
    fn field(self) -> &'static str {
        match self {
            Self::Tool => "toolCallId",
            Self::Hook => "hookCallId",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Hook => "hook",
        }
    }

    /// Returns the error for a call that this session does not know.
    pub(super) fn unknown(self, call: &CallId) -> ErrorBody {
        let message = format!("no {} call `{call}` is pending", self.name());
        ErrorBody::new(ErrorCode::UnknownCall, message).with_field(self.field())
    }

    /// Returns the error for a call that is over, or whose answer hooks are inspecting (`None`).
    pub(super) fn too_late(self, call: &CallId, outcome: Option<CallOutcome>) -> ErrorBody {
        let (name, field) = (self.name(), self.field());
        let how = match outcome {
            Some(CallOutcome::Answered | CallOutcome::Failed) | None => "was answered already",
            Some(CallOutcome::TimedOut) => "has timed out",
            Some(CallOutcome::Dropped) => "is no longer needed",
        };
        let mut details = json!({ "field": field, field: call });
        if let Some(outcome) = outcome {
            details["outcome"] = json!(outcome);
        }
        ErrorBody::new(ErrorCode::TooLate, format!("the {name} call `{call}` {how}; nothing was stored"))
            .with_details(details)
    }
}

impl Workspace {
    /// Answers a `tool_result` whose call is not pending: `ok` for a copy of the answer that was taken.
    ///
    /// # Errors
    /// `unknown_call`; `too_late`.
    pub(super) fn answer_late_result(
        &mut self,
        caller: &Caller,
        call: &CallId,
        result: u64,
        lookup: Option<Lookup>,
    ) -> Result<(), ErrorBody> {
        // As it was sent: hooks may have changed what was stored.
        let is_copy = self.ended.get(call).is_some_and(|(_, answer)| answer == Some(result));
        let ended = lookup.and_then(Lookup::ended_call).or_else(|| self.ended_on_path(call));
        match ended {
            Some(ended) if !is_copy && !ended.has_taken(result) => Err(Callee::Tool.too_late(call, ended.outcome)),
            None if !is_copy => Err(Callee::Tool.unknown(call)),
            _ => {
                self.reply_duplicate(caller);
                Ok(())
            }
        }
    }

    /// Returns the error for `call_progress` of a tool call that is not pending.
    pub(super) fn late_progress(&self, call: &CallId, lookup: Option<Lookup>) -> ErrorBody {
        match lookup.and_then(Lookup::ended_call).or_else(|| self.ended_on_path(call)) {
            Some(ended) => Callee::Tool.too_late(call, ended.outcome),
            None => Callee::Tool.unknown(call),
        }
    }

    /// Answers a copy of an answer that was taken.
    pub(super) fn reply_duplicate(&mut self, caller: &Caller) {
        let as_of_seq = Some(self.session.state.seq);
        self.reply(caller, Reply::Ok(Done { as_of_seq, duplicate: Some(true), ..Done::default() }));
    }

    /// Returns how a call ended that has a result on the path and no mark: a fork has the entries of its source only,
    /// and older versions wrote no marks.
    fn ended_on_path(&self, call: &CallId) -> Option<ended::EndedCall> {
        let messages = self.session.tree.path().iter().rev().filter_map(|node| node.message.as_ref());
        let result = messages.filter_map(|message| ended::result_of(call, message)).next()?;
        Some(ended::EndedCall { outcome: None, result })
    }
}
