//! Hooks on what a tool answered.

use super::{
    super::{AgentLoop, commands::Caller, info, turn::appended},
    Subject,
};
use reseed_protocol::{
    CallId, CommandId, Timestamp,
    event::{CallOutcome, Event, RequestResolved},
    hook::{HookAnswer, HookEvent},
    reply::PendingCall,
};

/// A tool's answer, as hooks made it so far.
#[derive(Debug)]
pub(in crate::core::agent_loop) struct Given {
    pub(in crate::core::agent_loop) caller: Caller,
    pub(in crate::core::agent_loop) call: PendingCall,
    pub(in crate::core::agent_loop) output: String,
    pub(in crate::core::agent_loop) is_error: bool,
}

impl Given {
    pub(super) fn event(&self) -> HookEvent {
        HookEvent::ToolResult {
            tool_call_id: self.call.call_id.clone(),
            name: self.call.name.clone(),
            arguments: self.call.arguments.clone(),
            output: self.output.clone(),
            is_error: self.is_error,
        }
    }

    pub(super) fn take(&mut self, answer: HookAnswer) -> bool {
        let before = (self.output.clone(), self.is_error);
        self.output = answer.output.unwrap_or_else(|| before.0.clone());
        self.is_error = answer.is_error.unwrap_or(before.1);
        (&before.0, before.1) != (&self.output, self.is_error)
    }
}

impl AgentLoop {
    /// Whether hooks are looking at this call's answer.
    pub(in crate::core::agent_loop) fn is_looked_at(&self, call: &CallId) -> bool {
        self.chains.iter().any(|chain| matches!(&chain.subject, Subject::Result(given) if given.call.call_id == *call))
    }

    /// The commands whose answers hooks are looking at.
    pub(in crate::core::agent_loop) fn results_looked_at(&self) -> impl Iterator<Item = &CommandId> {
        self.chains.iter().filter_map(|chain| match &chain.subject {
            Subject::Result(given) => Some(&given.caller.id),
            _ => None,
        })
    }

    /// Writes a tool's answer, and goes on once all calls have theirs.
    pub(in crate::core::agent_loop) fn write_result(&mut self, now: Timestamp, given: Given) {
        let Given { caller, call, output, is_error } = given;
        let outcome = if is_error { CallOutcome::Failed } else { CallOutcome::Answered };
        let output = self.fitting_output(output);
        let entry = self.result_entry(now, self.session.state.leaf.clone(), call.call_id.clone(), output, is_error);
        let events = vec![
            appended(entry, Some(call.turn_id), Some(caller.id.clone())),
            Event::RequestResolved(RequestResolved { call_id: call.call_id.clone(), outcome }),
        ];
        let mark = caller.mark(info::done(Some(self.session.state.seq)));
        self.deadlines.remove(&call.call_id);
        self.append(events, vec![mark]);
        self.meter_due = true;
        self.after_results(now);
    }

    /// The turn ends: answers that hooks still look at came too late, as those to calls that were dropped.
    pub(in crate::core::agent_loop) fn drop_looked_at(&mut self) -> Vec<Caller> {
        let dropped = self.cancel_hooks(|subject| matches!(subject, Subject::Result(_)));
        let caller = |subject| match subject {
            Subject::Result(given) => Some(given.caller),
            _ => None,
        };
        dropped.into_iter().filter_map(caller).collect()
    }
}
