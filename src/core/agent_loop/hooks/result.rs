//! Hooks on a tool's answer: `tool_result` on its output, then `message` on the message that the model would get.

use crate::agent_loop::{
    hooks::Hooks,
    io::Caller,
    records::{appended, done},
    step::Step,
    subject::{Subject, result::ToolAnswer},
    turn::Turn,
    workspace::Workspace,
};
use reseed_protocol::{
    CallId, CommandId, EntryData,
    event::{CallOutcome, CallResolved, Event},
    hook::HookPoint,
    reply::PendingCall,
};

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
