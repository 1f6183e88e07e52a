//! A complete answer and its tool calls: passed to hooks, appended, and executed.

use crate::agent_loop::subject::{
    answer::{Called, Calls, CompleteAnswer},
    request::Ended,
};
use crate::agent_loop::{
    ledger::Ledger, prompt::Prompt, records::appended, roster::Roster, step::Step, subject::Subject, turn::Turn,
    turn::tools::result_entry,
};
use crate::context::node::Node;
use reseed_protocol::{
    CallId, EntryData, ErrorBody, ErrorCode, Part, Role, StopReason,
    hooks::{ContextReason, HookPoint},
};
use std::{collections::VecDeque, sync::Arc};

impl Turn {
    /// Handles a complete answer: passes it to the hooks if it was withheld until now. If it was streamed, the hooks
    /// were registered too late: the shown text stays, and they are only notified.
    pub(crate) fn look_at_answer(ledger: &mut Ledger, roster: &Roster, whole: CompleteAnswer, withheld: bool) {
        let event = whole.event();
        let subject = Subject::Answer(Box::new(whole));
        if withheld {
            ledger.then(Step::Ask(subject));
        } else {
            roster.tell(ledger, &subject, &event);
            ledger.then(Step::AfterHooks(subject));
        }
    }

    /// Appends the final answer as one entry, then makes its tool calls or ends the turn.
    pub(crate) fn append_answer(
        &mut self,
        ledger: &mut Ledger,
        prompt: &Prompt,
        roster: &Roster,
        whole: CompleteAnswer,
    ) {
        let Some(turn) = ledger.state().turn.clone() else { return };
        let CompleteAnswer { item, mut message, stop_reason, tools } = whole;
        let runs = self.answer_is_stored(ledger.state());
        if let Some(receipt) = &mut message.receipt {
            receipt.hooks = runs;
        }
        let too_many = turn.answers + 1 > ledger.deployment.tool_rounds_max;
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
                    ledger.deployment.tool_rounds_max
                ))
            } else {
                prompt.tools().check_call(&tools, &call.name, &call.arguments)
            };
        }
        let entry = ledger.entry(item, EntryData::message(message));
        let leaf = entry.entry_id.clone();
        let events = vec![appended(entry, Some(turn.turn_id), None)];
        if called.is_empty() {
            ledger.append(events, Vec::new());
            Self::answered(ledger, roster, stop_reason);
            return;
        }
        if roster.has_hooks(ledger, HookPoint::ToolCall, None) && called.iter().any(|call| call.verdict.is_ok()) {
            ledger.append(events, Vec::new());
            self.look_at_calls(ledger, roster, Calls { to_do: called, done: Vec::new(), tools });
        } else {
            self.begin_calls(ledger, events, leaf, called.into());
            if too_many {
                let rounds = ledger.deployment.tool_rounds_max;
                let message = format!("the model called tools {rounds} times without an answer");
                ledger.then(Step::fail_turn(ErrorBody::new(ErrorCode::TooManyToolRounds, message)));
            } else {
                self.after_results(ledger);
            }
        }
    }

    /// Ends the turn after its last hooks were called.
    pub(crate) fn answered(ledger: &mut Ledger, roster: &Roster, stop_reason: StopReason) {
        let asks = roster.has_hooks(ledger, HookPoint::Context, Some(ContextReason::TurnEnd));
        let ended = Subject::TurnEnd(Ended { finish_reason: stop_reason });
        ledger.then(if asks { Step::Ask(ended) } else { Step::complete_turn(stop_reason) });
    }

    /// Calls the hooks for the next call that may be made; makes the calls once all were inspected.
    fn look_at_calls(&mut self, ledger: &mut Ledger, roster: &Roster, mut calls: Calls) {
        let waits = roster.awaits_hooks(ledger, HookPoint::ToolCall);
        while let Some(called) = calls.to_do.front() {
            if called.verdict.is_ok() {
                if waits {
                    break;
                }
                // This is a loop, not recursion, because an answer may contain a thousand calls.
                let event = calls.event();
                let subject = Subject::Calls(Box::new(calls));
                roster.tell(ledger, &subject, &event);
                let Subject::Calls(told) = subject else { return };
                calls = *told;
            }
            calls.done.extend(calls.to_do.pop_front());
        }
        if calls.to_do.is_empty() {
            if let Some(leaf) = ledger.state().leaf.clone() {
                self.begin_calls(ledger, Vec::new(), leaf, calls.done);
                self.after_results(ledger);
            }
        } else {
            ledger.then(Step::Ask(Subject::Calls(Box::new(calls))));
        }
    }

    /// Continues with the answer's next call.
    pub(crate) fn ask_about_next_call(&mut self, ledger: &mut Ledger, roster: &Roster, mut calls: Calls) {
        calls.done.extend(calls.to_do.pop_front());
        self.look_at_calls(ledger, roster, calls);
    }
}

/// Returns results for calls that hooks were inspecting when the turn ended: none of them is made.
pub(crate) fn drop_uncalled(ledger: &mut Ledger, calls: Calls) {
    let calls = calls.done.into_iter().chain(calls.to_do).map(|called| called.call_id).collect();
    answer_unmade(ledger, calls);
}

/// Appends results for calls that hooks were inspecting when the process died: none of them was made. Returns true if
/// there are such calls, but they are left to the client: an answer's calls are made or left together with the request
/// for approvals.
pub(crate) fn drop_unmade_calls(ledger: &mut Ledger) -> bool {
    let path = ledger.path();
    let said = |role: Role| move |node: &&Arc<Node>| node.message.as_ref().is_some_and(|said| said.role == role);
    let Some(answer) = path.iter().rposition(|node| said(Role::Assistant)(&node)) else { return false };
    let is_turns = ledger.state().turn.as_ref().is_some_and(|turn| turn.answers > 0);
    if !is_turns || path[answer..].iter().any(|node| said(Role::User)(&node)) {
        // A branch may start between two results. The missing ones never belonged to this turn.
        return false;
    }
    let results = path[answer..].iter().filter(said(Role::Tool)).filter_map(|node| node.message.as_ref());
    let answered: Vec<&CallId> = results
        .flat_map(|result| &result.content)
        .filter_map(|part| match part {
            Part::ToolResult { call_id, .. } => Some(call_id),
            _ => None,
        })
        .collect();
    let state = ledger.state();
    let is_made = |id: &CallId| {
        state.pending.iter().any(|call| call.call_id == *id)
            || state.approvals.iter().any(|approval| approval.call_id == *id)
    };
    let calls = path[answer].message.iter().flat_map(|message| message.tool_calls().map(|(id, _, _)| id));
    let unmade: Vec<CallId> = calls.filter(|id| !answered.contains(id) && !is_made(id)).cloned().collect();
    if unmade.is_empty() || !state.approvals.is_empty() {
        return !unmade.is_empty();
    }
    answer_unmade(ledger, unmade);
    false
}

fn answer_unmade(ledger: &mut Ledger, calls: Vec<CallId>) {
    let turn_id = ledger.turn_id();
    let mut leaf = ledger.state().leaf.clone();
    let mut events = Vec::with_capacity(calls.len());
    for call_id in calls {
        let why = "The turn ended before the tool was called.".to_owned();
        let entry = result_entry(ledger, leaf, call_id, why, true);
        leaf = Some(entry.entry_id.clone());
        events.push(appended(entry, turn_id.clone(), None));
    }
    ledger.append(events, Vec::new());
}
