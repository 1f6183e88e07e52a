//! A complete answer and its tool calls: passed to hooks, appended, and made.

use crate::agent_loop::subject::answer::{Called, Calls, CompleteAnswer};
use crate::agent_loop::{records::appended, step::Step, subject::Subject, turn::Turn, workspace::Workspace};
use crate::context::node::Node;
use reseed_protocol::{CallId, EntryData, ErrorBody, ErrorCode, Part, Role, StopReason, hook::HookPoint};
use std::{collections::VecDeque, sync::Arc};

impl Turn {
    /// Handles a complete answer: passes it to the hooks, if it was withheld until now. If it was streamed, they were
    /// registered too late: what was shown stays, and they are only notified.
    pub(crate) fn look_at_answer(&mut self, ws: &mut Workspace, whole: CompleteAnswer, withheld: bool) {
        let event = whole.event();
        let subject = Subject::Answer(Box::new(whole));
        if withheld {
            ws.then(Step::Ask(subject));
        } else {
            ws.tell_hooks(&subject, &event);
            ws.then(Step::AfterHooks(subject));
        }
    }

    /// Appends the final answer as one entry, then makes its tool calls or ends the turn.
    pub(crate) fn append_answer(&mut self, ws: &mut Workspace, whole: CompleteAnswer) {
        let Some(turn) = ws.session.state.turn.clone() else { return };
        let CompleteAnswer { item, mut message, stop_reason, tools } = whole;
        let runs = self.answer_is_stored(&ws.session.state);
        if let Some(receipt) = &mut message.receipt {
            receipt.hooks = runs;
        }
        let too_many = turn.answers + 1 > ws.deployment.tool_rounds_max;
        let mut called: VecDeque<Called> = message
            .tool_calls()
            .map(|(id, name, arguments)| Called {
                call_id: id.clone(),
                name: name.to_owned(),
                arguments: arguments.to_owned(),
                proposed: None,
                verdict: Err(String::new()),
            })
            .collect();
        for call in &mut called {
            call.verdict = if too_many {
                Err(format!(
                    "Not called: this turn has had its {} rounds of tool calls.",
                    ws.deployment.tool_rounds_max
                ))
            } else {
                ws.prompt.tools().check_call(&tools, &call.name, &call.arguments)
            };
        }
        let entry = ws.entry(item, EntryData::message(message));
        let leaf = entry.entry_id.clone();
        let events = vec![appended(entry, Some(turn.turn_id), None)];
        if called.is_empty() {
            ws.append(events, Vec::new());
            self.answered(ws, stop_reason);
            return;
        }
        if ws.has_hooks(HookPoint::ToolCall, None) && called.iter().any(|call| call.verdict.is_ok()) {
            ws.append(events, Vec::new());
            self.look_at_calls(ws, Calls { to_do: called, done: Vec::new(), tools });
        } else {
            self.begin_calls(ws, events, leaf, called.into());
            if too_many {
                let rounds = ws.deployment.tool_rounds_max;
                let message = format!("the model called tools {rounds} times without an answer");
                ws.then(Step::fail_turn(ErrorBody::new(ErrorCode::TooManyToolRounds, message)));
            } else {
                self.after_results(ws);
            }
        }
    }

    /// Ends the turn after its last hooks were asked.
    pub(crate) fn answered(&mut self, ws: &mut Workspace, stop_reason: StopReason) {
        if !ws.before_the_end(stop_reason) {
            ws.then(Step::complete_turn(stop_reason));
        }
    }

    /// Asks the hooks about the next call that may be made; makes the calls once all were inspected.
    fn look_at_calls(&mut self, ws: &mut Workspace, mut calls: Calls) {
        let waits = ws.awaits_hooks(HookPoint::ToolCall);
        while let Some(called) = calls.to_do.front() {
            if called.verdict.is_ok() {
                if waits {
                    break;
                }
                // A loop, not recursion: an answer may have a thousand calls.
                let event = calls.event();
                let subject = Subject::Calls(Box::new(calls));
                ws.tell_hooks(&subject, &event);
                let Subject::Calls(told) = subject else { return };
                calls = *told;
            }
            calls.done.extend(calls.to_do.pop_front());
        }
        if calls.to_do.is_empty() {
            if let Some(leaf) = ws.session.state.leaf.clone() {
                self.begin_calls(ws, Vec::new(), leaf, calls.done);
                self.after_results(ws);
            }
        } else {
            ws.then(Step::Ask(Subject::Calls(Box::new(calls))));
        }
    }

    /// Continues with the answer's next call.
    pub(crate) fn ask_about_next_call(&mut self, ws: &mut Workspace, mut calls: Calls) {
        calls.done.extend(calls.to_do.pop_front());
        self.look_at_calls(ws, calls);
    }
}

impl Workspace {
    /// Answers calls that hooks were inspecting when the turn ended: none of them is made.
    pub(crate) fn drop_uncalled(&mut self, calls: Calls) {
        let calls = calls.done.into_iter().chain(calls.to_do).map(|called| called.call_id).collect();
        self.answer_unmade(calls);
    }

    /// Answers calls that hooks were inspecting when the process died: none of them was made.
    pub(crate) fn drop_unmade_calls(&mut self) {
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
        let state = &self.session.state;
        let is_made = |id: &CallId| {
            state.pending.iter().any(|call| call.call_id == *id)
                || state.approvals.iter().any(|approval| approval.call_id == *id)
        };
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
