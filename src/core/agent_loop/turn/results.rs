//! The results of tool calls: accepted from their client, passed to hooks, and appended.

use crate::agent_loop::{
    io::Caller, late::Callee, ledger::Ledger, prompt::Prompt, records::appended, records::done, roster::Roster,
    step::Step, subject::Subject, subject::result::ToolAnswer, turn::Turn, turn::tools::result_entry,
};
use crate::session::{
    Lookup,
    ended::{self, result_fingerprint},
};
use crate::tool::{Output, ToolPlace};
use reseed_protocol::{
    CallId, EntryData, ErrorBody, ErrorCode, Part,
    event::Event,
    hooks::HookPoint,
    tools::{CallOutcome, CallResolved, PendingCall, ToolResult},
};
use std::sync::Arc;

impl Turn {
    /// Returns a tool's answer if it is to be taken. An answer to a call that is over is a duplicate of the one that
    /// was taken, or too late.
    ///
    /// `inspected` is the fingerprint of the answer that hooks are inspecting, if there is one.
    ///
    /// # Errors
    /// `unknown_call`; `too_late`.
    pub(crate) fn on_tool_result(
        ledger: &mut Ledger,
        caller: &Caller,
        result: ToolResult,
        inspected: Option<u64>,
        lookup: Option<Lookup>,
    ) -> Result<Option<ToolAnswer>, ErrorBody> {
        let ToolResult { call_id, output, is_error } = result;
        let is_error = is_error.unwrap_or(false);
        let sent = result_fingerprint(&output, is_error);
        let Some(call) = ledger.state().pending.iter().find(|call| call.call_id == call_id).cloned() else {
            return answer_late_result(ledger, caller, &call_id, sent, lookup).map(|()| None);
        };
        if call.place == ToolPlace::Server {
            let message = format!("the server runs the tool call `{call_id}` itself");
            return Err(ErrorBody::new(ErrorCode::UnknownCall, message).with_field("toolCallId"));
        }
        match inspected {
            Some(inspected) if inspected == sent => {
                ledger.reply_duplicate(caller);
                return Ok(None);
            }
            Some(_) => return Err(Callee::Tool.too_late(&call_id, None)),
            None => {}
        }
        let output = Output { text: output, images: Vec::new(), is_error };
        Ok(Some(ToolAnswer::new(Some(caller.clone()), call, sent, output)))
    }

    /// Takes the answer of a tool that the server ran. An answer to a call that is over is dropped.
    pub(crate) fn on_server_result(&self, ledger: &Ledger, call_id: &CallId, output: Output) -> Option<ToolAnswer> {
        let call = ledger.state().pending.iter().find(|call| call.call_id == *call_id)?;
        let sent = result_fingerprint(&output.text, output.is_error);
        self.is_running(call_id).then(|| ToolAnswer::new(None, call.clone(), sent, output))
    }

    /// Passes a tool's answer to its hooks, or appends it if there are none.
    pub(crate) fn take_answer(&mut self, ledger: &mut Ledger, prompt: &Prompt, roster: &Roster, answer: ToolAnswer) {
        if roster.has_hooks(ledger, HookPoint::ToolResult, None) || roster.has_hooks(ledger, HookPoint::Message, None) {
            self.look_at_result(ledger, roster, answer);
        } else {
            self.write_result(ledger, prompt, answer);
        }
    }

    /// Passes a tool's answer to its `tool_result` hooks, then to the `message` hooks.
    fn look_at_result(&mut self, ledger: &mut Ledger, roster: &Roster, mut result: ToolAnswer) {
        // The tool has answered, so the hooks' time does not count towards its limit.
        self.has_answer(&result.call.call_id);
        if !roster.has_hooks(ledger, HookPoint::ToolResult, None) {
            result.as_message = Some(ledger.new_id());
        }
        ledger.then(Step::Ask(Subject::Result(Box::new(result))));
    }

    /// Calls the `message` hooks for a result after the `tool_result` hooks, or appends it if there are none.
    pub(crate) fn pass_result_on(
        &mut self,
        ledger: &mut Ledger,
        prompt: &Prompt,
        roster: &Roster,
        mut result: ToolAnswer,
    ) {
        if result.as_message.is_none() && roster.has_hooks(ledger, HookPoint::Message, None) {
            result.as_message = Some(ledger.new_id());
            ledger.then(Step::Ask(Subject::Result(Box::new(result))));
        } else {
            self.write_result(ledger, prompt, result);
        }
    }

    /// Appends a tool's answer, and continues once every call has its result.
    pub(crate) fn write_result(&mut self, ledger: &mut Ledger, prompt: &Prompt, result: ToolAnswer) {
        let ToolAnswer { caller, call, sent, output, is_error, images, as_message } = result;
        let outcome = if is_error { CallOutcome::Failed } else { CallOutcome::Answered };
        ledger.ended.note(call.call_id.clone(), outcome, Some(sent));
        let mut entry = result_entry(ledger, ledger.state().leaf.clone(), call.call_id.clone(), output, is_error);
        entry.entry_id = as_message.unwrap_or(entry.entry_id);
        if let EntryData::Message(message) = &mut entry.data {
            let message = Arc::make_mut(message);
            prompt.fit_result(ledger, &entry.entry_id, message);
            message.content.extend(images.into_iter().map(|url| Part::Image { url, detail: None }));
        }
        let events = vec![
            appended(entry, Some(call.turn_id), caller.as_ref().map(|caller| caller.id.clone())),
            Event::CallResolved(CallResolved::over(call.call_id.clone(), outcome)),
        ];
        let seq = ledger.state().seq;
        let marks = caller.map(|caller| caller.mark(done(Some(seq)))).into_iter().collect();
        self.has_answer(&call.call_id);
        ledger.append(events, marks);
        self.meter_is_due();
        self.after_results(ledger);
    }

    /// Appends this result instead of the answer that the tool gave.
    pub(crate) fn drop_result(&mut self, ledger: &mut Ledger, call: &PendingCall, why: String) {
        let entry = result_entry(ledger, ledger.state().leaf.clone(), call.call_id.clone(), why, true);
        let resolved = CallResolved::over(call.call_id.clone(), CallOutcome::Dropped);
        let events = vec![appended(entry, Some(call.turn_id.clone()), None), Event::CallResolved(resolved)];
        self.has_answer(&call.call_id);
        ledger.append(events, Vec::new());
    }
}

/// Answers a `tool_result` whose call is not pending: `ok` for a duplicate of the answer that was taken.
///
/// # Errors
/// `unknown_call`; `too_late`.
fn answer_late_result(
    ledger: &mut Ledger,
    caller: &Caller,
    call: &CallId,
    result: u64,
    lookup: Option<Lookup>,
) -> Result<(), ErrorBody> {
    // The comparison is with the answer as it was sent, because hooks may have changed what was stored.
    let is_copy = ledger.ended.get(call).is_some_and(|(_, answer)| answer == Some(result));
    let ended = lookup.and_then(Lookup::ended_call).or_else(|| ended_on_path(ledger, call));
    match ended {
        Some(ended) if !is_copy && !ended.has_taken(result) => Err(Callee::Tool.too_late(call, ended.outcome)),
        None if !is_copy => Err(Callee::Tool.unknown(call)),
        _ => {
            ledger.reply_duplicate(caller);
            Ok(())
        }
    }
}

/// Returns the error for `call_progress` of a tool call that is not pending.
pub(crate) fn late_progress(ledger: &Ledger, call: &CallId, lookup: Option<Lookup>) -> ErrorBody {
    match lookup.and_then(Lookup::ended_call).or_else(|| ended_on_path(ledger, call)) {
        Some(ended) => Callee::Tool.too_late(call, ended.outcome),
        None => Callee::Tool.unknown(call),
    }
}

/// Returns how a call ended that has a result on the path but no mark: a fork has only the entries of its source, and
/// older versions wrote no marks.
fn ended_on_path(ledger: &Ledger, call: &CallId) -> Option<ended::EndedCall> {
    let messages = ledger.path().iter().rev().filter_map(|node| node.message.as_ref());
    let result = messages.filter_map(|message| ended::result_of(call, message)).next()?;
    Some(ended::EndedCall { outcome: None, result })
}
