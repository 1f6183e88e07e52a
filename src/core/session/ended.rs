//! Tool calls that are over, as the store remembers them. A late or repeated answer is compared with them.
//!
//! The append that resolves a call also stores a mark under the call's id, as for commands. So an answer is recognised
//! as late even after a restart, a compaction or a move to another branch, when the path no longer shows the call.

use crate::fingerprint::fingerprint_of;
use reseed_protocol::{CallId, Message, Part, event::Event, tools::CallOutcome};

/// A tool call that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedCall {
    /// Its outcome; `None` if only its result is known, in a fork or from an older version.
    pub outcome: Option<CallOutcome>,
    /// The fingerprint of its result, as stored.
    pub result: u64,
}

impl EndedCall {
    /// Returns true if the call ended with this answer from its tool.
    #[must_use]
    pub fn has_taken(&self, result: u64) -> bool {
        !matches!(self.outcome, Some(CallOutcome::TimedOut | CallOutcome::Dropped)) && self.result == result
    }
}

/// Returns the id of a finished call's mark. No client can use it, because the prefix is reserved for the server.
#[must_use]
pub fn mark_id(call: &CallId) -> String {
    format!("s_call:{call}")
}

/// Returns the fingerprint of a tool's answer.
#[must_use]
pub fn result_fingerprint(output: &str, is_error: bool) -> u64 {
    fingerprint_of(&(output, is_error))
}

/// Returns the fingerprint of a call's result if this message contains it. If the result was cut and the complete one
/// is known, that one is used.
#[must_use]
pub fn result_of(call: &CallId, message: &Message) -> Option<u64> {
    let whole = message.cut.as_deref().and_then(|cut| cut.whole.as_deref());
    message.content.iter().find_map(|part| match part {
        Part::ToolResult { call_id, output, is_error } if call_id == call => {
            Some(result_fingerprint(whole.unwrap_or(output), *is_error))
        }
        _ => None,
    })
}

/// Returns the calls and approvals that these events resolve. The same step appends the results of calls; the
/// "result" of an approval is the fingerprint of its answer.
#[must_use]
pub fn ended_calls(events: &[Event]) -> Vec<(CallId, EndedCall)> {
    let resolved = events.iter().filter_map(|event| match event {
        Event::CallResolved(resolved) => Some(resolved),
        _ => None,
    });
    let ended = resolved.flat_map(|resolved| {
        let results = events.iter().filter_map(|event| match event {
            Event::EntryAppended(appended) => appended.entry.message(),
            _ => None,
        });
        let result = results.filter_map(|message| result_of(&resolved.call_id, message)).next();
        // An allowed call is made now, so it is not over.
        let is_over = resolved.outcome != CallOutcome::Allowed;
        let outcome = Some(resolved.outcome);
        let call = is_over.then(|| (resolved.call_id.clone(), EndedCall { outcome, result: result.unwrap_or(0) }));
        let answer = resolved.option.map_or(0, |option| fingerprint_of(&option));
        let approval = resolved.approval_id.as_ref().and_then(|id| id.as_str().parse().ok());
        let approval = approval.map(|id| (id, EndedCall { outcome, result: answer }));
        call.into_iter().chain(approval)
    });
    ended.collect()
}
