//! Hooks on a tool's answer: `tool_result` on its output, then `message` on the message that the model would get.

use super::super::step::Step;
use super::{
    super::{commands::Caller, prompt::done, turn::appended},
    Subject,
    model_answer::MESSAGE_BYTES_MAX,
    request::ANOTHER_ROLE,
};
use crate::agent_loop::hooks::Hooks;
use crate::agent_loop::turn::Turn;
use crate::agent_loop::workspace::Workspace;
use crate::hook::HookFault;
use reseed_protocol::{
    CallId, CommandId, EntryData, EntryId, Message, Part, Role,
    event::{CallOutcome, CallResolved, Event},
    hook::{HookAnswer, HookEvent, HookPoint},
    reply::PendingCall,
};

/// A tool's answer, as changed by hooks so far.
#[derive(Debug)]
pub(in crate::agent_loop) struct ToolAnswer {
    pub(in crate::agent_loop) caller: Caller,
    pub(in crate::agent_loop) call: PendingCall,
    /// Fingerprint of the answer as the tool gave it.
    sent: u64,
    pub(in crate::agent_loop) output: String,
    pub(in crate::agent_loop) is_error: bool,
    /// The entry that will hold it, once it is inspected as a message.
    pub(super) as_message: Option<EntryId>,
}

impl ToolAnswer {
    pub(in crate::agent_loop) fn new(
        caller: Caller,
        call: PendingCall,
        sent: u64,
        output: String,
        is_error: bool,
    ) -> Self {
        Self { caller, call, sent, output, is_error, as_message: None }
    }

    pub(super) fn event(&self) -> HookEvent {
        if let Some(entry_id) = self.as_message.clone() {
            return HookEvent::Message { entry_id, message: self.message() };
        }
        HookEvent::ToolResult {
            tool_call_id: self.call.call_id.clone(),
            name: self.call.name.clone(),
            arguments: self.call.arguments.clone(),
            output: self.output.clone(),
            is_error: self.is_error,
        }
    }

    fn message(&self) -> Message {
        let (call_id, output) = (self.call.call_id.clone(), self.output.clone());
        Message::new(Role::Tool, vec![Part::ToolResult { call_id, output, is_error: self.is_error }])
    }

    pub(super) fn take(&mut self, answer: HookAnswer) -> Result<bool, HookFault> {
        let (output, is_error) = match answer.message {
            Some(message) => self.result_of(message)?,
            None => (answer.output, answer.is_error),
        };
        let output = output.unwrap_or_else(|| self.output.clone());
        if output.len() > MESSAGE_BYTES_MAX {
            let bytes = output.len();
            return Err(HookFault::failed(format!(
                "its output has {bytes} bytes; at most {MESSAGE_BYTES_MAX} are allowed"
            )));
        }
        let is_error = is_error.unwrap_or(self.is_error);
        let changed = (&output, is_error) != (&self.output, self.is_error);
        (self.output, self.is_error) = (output, is_error);
        if changed {
            self.caller = self.caller.without_content("tool_result");
        }
        Ok(changed)
    }

    /// Returns the output and error flag of a message that replaces this result.
    fn result_of(&self, message: Message) -> Result<(Option<String>, Option<bool>), HookFault> {
        if message.role != Role::Tool {
            return Err(HookFault::failed(ANOTHER_ROLE));
        }
        let mut parts = message.content.into_iter();
        match (parts.next(), parts.next()) {
            (Some(Part::ToolResult { call_id, output, is_error }), None) if call_id == self.call.call_id => {
                Ok((Some(output), Some(is_error)))
            }
            _ => Err(HookFault::failed("its message is not one result of the same call")),
        }
    }
}

impl Turn {
    /// Passes a tool's answer to its `tool_result` hooks, then to the `message` hooks.
    pub(in crate::agent_loop) fn look_at_result(&mut self, ws: &mut Workspace, mut result: ToolAnswer) {
        // The tool has answered: the hooks' time does not count towards its limit.
        self.has_answer(&result.call.call_id);
        if !ws.has_hooks(HookPoint::ToolResult, None) {
            result.as_message = Some(ws.new_id());
        }
        ws.then(Step::Ask(Subject::Result(Box::new(result))));
    }

    /// Asks the `message` hooks about a result after the `tool_result` hooks; otherwise appends it.
    pub(super) fn pass_result_on(&mut self, ws: &mut Workspace, mut result: ToolAnswer) {
        if result.as_message.is_none() && ws.has_hooks(HookPoint::Message, None) {
            result.as_message = Some(ws.new_id());
            ws.then(Step::Ask(Subject::Result(Box::new(result))));
        } else {
            self.write_result(ws, result);
        }
    }

    /// Appends a tool's answer, and continues once all calls have theirs.
    pub(in crate::agent_loop) fn write_result(&mut self, ws: &mut Workspace, result: ToolAnswer) {
        let ToolAnswer { caller, call, sent, output, is_error, as_message } = result;
        let outcome = if is_error { CallOutcome::Failed } else { CallOutcome::Answered };
        ws.ended.note(call.call_id.clone(), outcome, Some(sent));
        let (output, cut) = ws.fitting_output(output);
        let mut entry = ws.result_entry(ws.session.state.leaf.clone(), call.call_id.clone(), output, is_error);
        entry.entry_id = as_message.unwrap_or(entry.entry_id);
        if let EntryData::Message(message) = &mut entry.data {
            message.cut = cut;
        }
        let events = vec![
            appended(entry, Some(call.turn_id), Some(caller.id.clone())),
            Event::CallResolved(CallResolved { call_id: call.call_id.clone(), outcome }),
        ];
        let mark = caller.mark(done(Some(ws.session.state.seq)));
        self.has_answer(&call.call_id);
        ws.append(events, vec![mark]);
        self.meter_is_due();
        self.after_results(ws);
    }

    /// Appends this result instead of the answer that the tool gave.
    pub(super) fn drop_result(&mut self, ws: &mut Workspace, call: &PendingCall, why: String) {
        let entry = ws.result_entry(ws.session.state.leaf.clone(), call.call_id.clone(), why, true);
        let resolved = CallResolved { call_id: call.call_id.clone(), outcome: CallOutcome::Dropped };
        let events = vec![appended(entry, Some(call.turn_id.clone()), None), Event::CallResolved(resolved)];
        self.has_answer(&call.call_id);
        ws.append(events, Vec::new());
    }
}

impl Hooks {
    /// Returns the fingerprint of the answer to this call that hooks are inspecting, as the tool gave it.
    pub(in crate::agent_loop) fn inspected_answer(&self, call: &CallId) -> Option<u64> {
        self.chains.iter().find_map(|chain| match &chain.subject {
            Subject::Result(result) if result.call.call_id == *call => Some(result.sent),
            _ => None,
        })
    }

    /// Returns the commands whose tool answers hooks are inspecting.
    pub(in crate::agent_loop) fn results_looked_at(&self) -> impl Iterator<Item = &CommandId> {
        self.chains.iter().filter_map(|chain| match &chain.subject {
            Subject::Result(result) => Some(&result.caller.id),
            _ => None,
        })
    }

    /// Drops the answers that hooks are still inspecting when the turn ends, and returns their senders with the calls.
    pub(in crate::agent_loop) fn drop_looked_at(&mut self, ws: &mut Workspace) -> Vec<(Caller, CallId)> {
        let dropped = self.cancel_hooks(ws, |subject| matches!(subject, Subject::Result(_)));
        let caller = |subject| match subject {
            Subject::Result(result) => Some((result.caller, result.call.call_id)),
            _ => None,
        };
        dropped.into_iter().filter_map(caller).collect()
    }
}
