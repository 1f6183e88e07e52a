//! Hooks on the model's answer and on its tool calls.

use crate::{
    agent_loop::{
        AgentLoop,
        records::appended,
        step::Step,
        subject::{
            Subject,
            answer::{Called, Calls, CompleteAnswer},
        },
        workspace::Workspace,
    },
    session::Node,
};
use reseed_protocol::{CallId, EntryData, ErrorBody, ErrorCode, Part, Role, StopReason, hook::HookPoint};
use std::{collections::VecDeque, sync::Arc};

impl AgentLoop {
    /// Handles a complete answer: passes it to the hooks, if it was withheld until now. If it was streamed, they were
    /// registered too late: what was shown stays, and they are only notified.
    pub(in crate::agent_loop) fn look_at_answer(&mut self, whole: CompleteAnswer, withheld: bool) {
        let subject = Subject::Answer(Box::new(whole));
        if withheld {
            self.ws.then(Step::Ask(subject));
        } else {
            self.tell_hooks(&subject);
            self.ws.then(Step::AfterHooks(subject));
        }
    }

    /// Appends the final answer as one entry, then makes its tool calls or ends the turn.
    pub(in crate::agent_loop) fn append_answer(&mut self, whole: CompleteAnswer) {
        let Some(turn) = self.ws.session.state.turn.clone() else { return };
        let CompleteAnswer { item, mut message, stop_reason, tools } = whole;
        let runs = self.turn.answer_is_stored(&self.ws.session.state);
        if let Some(receipt) = &mut message.receipt {
            receipt.hooks = runs;
        }
        let too_many = turn.answers + 1 > self.ws.deployment.tool_rounds_max;
        let mut called: VecDeque<Called> = message
            .tool_calls()
            .map(|(id, name, arguments)| Called {
                call_id: id.clone(),
                name: name.to_owned(),
                arguments: arguments.to_owned(),
                verdict: Ok(None),
            })
            .collect();
        for call in &mut called {
            call.verdict = if too_many {
                Err(format!(
                    "Not called: this turn has had its {} rounds of tool calls.",
                    self.ws.deployment.tool_rounds_max
                ))
            } else {
                self.ws.prompt.tools().check_call(&tools, &call.name, &call.arguments)
            };
        }
        let entry = self.ws.entry(item, EntryData::Message(message));
        let leaf = entry.entry_id.clone();
        let events = vec![appended(entry, Some(turn.turn_id), None)];
        if called.is_empty() {
            self.ws.append(events, Vec::new());
            self.answered(stop_reason);
            return;
        }
        if self.ws.has_hooks(HookPoint::ToolCall, None) && called.iter().any(|call| call.verdict.is_ok()) {
            self.ws.append(events, Vec::new());
            self.look_at_calls(Calls { to_do: called, done: Vec::new(), tools });
        } else {
            self.turn.begin_calls(&mut self.ws, events, leaf, called.into());
            if too_many {
                let rounds = self.ws.deployment.tool_rounds_max;
                let message = format!("the model called tools {rounds} times without an answer");
                self.ws.then(Step::fail_turn(ErrorBody::new(ErrorCode::TooManyToolRounds, message)));
            } else {
                self.turn.after_results(&mut self.ws);
            }
        }
    }

    /// Ends the turn after its last hooks were asked.
    pub(in crate::agent_loop) fn answered(&mut self, stop_reason: StopReason) {
        if !self.ws.before_the_end(stop_reason) {
            self.ws.then(Step::complete_turn(stop_reason));
        }
    }

    /// Asks the hooks about the next call that may be made; makes the calls once all were inspected.
    fn look_at_calls(&mut self, mut calls: Calls) {
        let waits = self.ws.awaits_hooks(HookPoint::ToolCall);
        while let Some(called) = calls.to_do.front() {
            if called.verdict.is_ok() {
                if waits {
                    break;
                }
                // A loop, not recursion: an answer may have a thousand calls.
                let subject = Subject::Calls(Box::new(calls));
                self.tell_hooks(&subject);
                let Subject::Calls(told) = subject else { return };
                calls = *told;
            }
            calls.done.extend(calls.to_do.pop_front());
        }
        if calls.to_do.is_empty() {
            if let Some(leaf) = self.ws.session.state.leaf.clone() {
                self.turn.begin_calls(&mut self.ws, Vec::new(), leaf, calls.done);
                self.turn.after_results(&mut self.ws);
            }
        } else {
            self.ws.then(Step::Ask(Subject::Calls(Box::new(calls))));
        }
    }

    /// Continues with the answer's next call.
    pub(super) fn ask_about_next_call(&mut self, mut calls: Calls) {
        calls.done.extend(calls.to_do.pop_front());
        self.look_at_calls(calls);
    }
}

impl Workspace {
    /// Answers calls that hooks were inspecting when the turn ended: none of them is made.
    pub(super) fn drop_uncalled(&mut self, calls: Calls) {
        let calls = calls.done.into_iter().chain(calls.to_do).map(|called| called.call_id).collect();
        self.answer_unmade(calls);
    }

    /// Answers calls that hooks were inspecting when the process died: none of them was made.
    pub(in crate::agent_loop) fn drop_unmade_calls(&mut self) {
        let path = self.session.tree.path();
        let said = |role: Role| move |node: &&Arc<Node>| node.message.as_ref().is_some_and(|said| said.role == role);
        let Some(answer) = path.iter().rposition(|node| said(Role::Assistant)(&node)) else { return };
        let is_turns = self.session.state.turn.as_ref().is_some_and(|turn| turn.answers > 0);
        if !is_turns || path[answer..].iter().any(|node| said(Role::User)(&node)) {
            // A branch may start between two results. The missing ones were never this turn's.
            return;
        }
        let results = path[answer..].iter().filter(said(Role::Tool)).filter_map(|node| node.message.as_ref());
        let answered: Vec<&CallId> = results
            .flat_map(|result| &result.content)
            .filter_map(|part| match part {
                Part::ToolResult { call_id, .. } => Some(call_id),
                _ => None,
            })
            .collect();
        let is_made = |id: &CallId| self.session.state.pending.iter().any(|call| call.call_id == *id);
        let calls = path[answer].message.iter().flat_map(|message| message.tool_calls().map(|(id, _, _)| id));
        let unmade: Vec<CallId> = calls.filter(|id| !answered.contains(id) && !is_made(id)).cloned().collect();
        if !unmade.is_empty() {
            self.answer_unmade(unmade);
        }
    }

    fn answer_unmade(&mut self, calls: Vec<CallId>) {
        let turn_id = self.session.state.turn.as_ref().map(|turn| turn.turn_id.clone());
        let mut leaf = self.session.state.leaf.clone();
        let mut events = Vec::with_capacity(calls.len());
        for call_id in calls {
            let why = "The turn ended before the tool was called.".to_owned();
            let entry = self.result_entry(leaf, call_id, why, true);
            leaf = Some(entry.entry_id.clone());
            events.push(appended(entry, turn_id.clone(), None));
        }
        self.append(events, Vec::new());
    }
}
