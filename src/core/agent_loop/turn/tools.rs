//! Calls of client tools: how they are made, what limits them, and how their results are handled.

use crate::{
    agent_loop::{
        AgentLoop,
        deadline::Deadline,
        io::Caller,
        late::Callee,
        records::{appended, done},
        step::Step,
        subject::{answer::Called, result::ToolAnswer},
        turn::Turn,
        workspace::Workspace,
    },
    session::{
        Lookup,
        ended::{self, result_fingerprint},
    },
};
use reseed_protocol::{
    CallId, Entry, EntryData, EntryId, ErrorBody, ErrorCode, Message, Part, Role, Timestamp, TurnId,
    command::{CallProgress, ToolResult},
    event::{CallOutcome, CallProgressed, CallResolved, EphemeralEvent, Event, ToolCall, ToolCancelled},
    hook::HookPoint,
    reply::PendingCall,
};

impl AgentLoop {
    /// Takes a tool's answer. An answer to a call that is over is a copy of the one that was taken, or too late.
    ///
    /// # Errors
    /// `unknown_call`; `too_late`.
    pub(in crate::agent_loop) fn on_tool_result(
        &mut self,
        caller: &Caller,
        result: ToolResult,
        lookup: Option<Lookup>,
    ) -> Result<(), ErrorBody> {
        let ToolResult { call_id, output, is_error } = result;
        let is_error = is_error.unwrap_or(false);
        let sent = result_fingerprint(&output, is_error);
        let Some(call) = self.ws.session.state.pending.iter().find(|call| call.call_id == call_id).cloned() else {
            return self.ws.answer_late_result(caller, &call_id, sent, lookup);
        };
        match self.hooks.inspected_answer(&call_id) {
            Some(inspected) if inspected == sent => {
                self.ws.reply_duplicate(caller);
                return Ok(());
            }
            Some(_) => return Err(Callee::Tool.too_late(&call_id, None)),
            None => {}
        }
        let answer = ToolAnswer::new(caller.clone(), call, sent, output, is_error);
        if self.ws.has_hooks(HookPoint::ToolResult, None) || self.ws.has_hooks(HookPoint::Message, None) {
            self.turn.look_at_result(&mut self.ws, answer);
        } else {
            self.turn.write_result(&mut self.ws, answer);
        }
        Ok(())
    }

    /// Moves the deadline of a call that is at work.
    ///
    /// # Errors
    /// `missing_field`, `invalid_field`: it must name one call; `unknown_call`; `too_late`.
    pub(in crate::agent_loop) fn on_call_progress(
        &mut self,
        caller: &Caller,
        progress: CallProgress,
        lookup: Option<Lookup>,
    ) -> Result<(), ErrorBody> {
        let CallProgress { tool_call_id, hook_call_id, message } = progress;
        let deadline = match (&tool_call_id, &hook_call_id) {
            (None, Some(call)) => {
                self.hooks.on_hook_progress(&mut self.ws, call).ok_or_else(|| self.late_for_hook(call))?
            }
            (Some(call), None) => {
                self.turn.on_tool_progress(&self.ws, call).ok_or_else(|| self.ws.late_progress(call, lookup))?
            }
            (None, None) => {
                let message = "`call_progress` names the call that is at work: give `toolCallId` or `hookCallId`";
                return Err(ErrorBody::new(ErrorCode::MissingField, message).with_field("toolCallId"));
            }
            (Some(_), Some(_)) => {
                let message = "`call_progress` names one call: give `toolCallId` or `hookCallId`, not both";
                return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("hookCallId"));
            }
        };
        self.ws.reply(caller, done(None));
        let event = CallProgressed { tool_call_id, hook_call_id, message, deadline };
        self.ws.emit(EphemeralEvent::CallProgressed(event));
        Ok(())
    }
}

impl Turn {
    /// Moves the deadline of a pending tool call. Returns the new one.
    fn on_tool_progress(&mut self, ws: &Workspace, call: &CallId) -> Option<Timestamp> {
        let deadline = self.deadlines.get_mut(call)?;
        *deadline = deadline.moved(ws.now);
        Some(deadline.at)
    }

    /// Appends a timeout result for each call whose deadline has passed.
    pub(in crate::agent_loop) fn on_tools_tick(&mut self, ws: &mut Workspace) {
        if !self.awaits_tools {
            return;
        }
        let over: Vec<CallId> =
            self.deadlines.iter().filter(|(_, deadline)| deadline.at <= ws.now).map(|(id, _)| id.clone()).collect();
        if over.is_empty() {
            return;
        }
        let turn_id = ws.session.state.turn.as_ref().map(|turn| turn.turn_id.clone());
        for call_id in over {
            let limit_ms = self.deadlines.remove(&call_id).map_or(0, |deadline| deadline.timeout_ms);
            let output = format!("The tool did not answer within {limit_ms} ms.");
            let entry = ws.result_entry(ws.session.state.leaf.clone(), call_id.clone(), output, true);
            let call = ws.session.state.pending.iter().find(|call| call.call_id == call_id).cloned();
            let resolved = CallResolved { call_id, outcome: CallOutcome::TimedOut };
            ws.append(vec![appended(entry, turn_id.clone(), None), Event::CallResolved(resolved)], Vec::new());
            call.into_iter().for_each(|call| ws.withdraw(call, CallOutcome::TimedOut));
        }
        self.meter_due = true;
        self.after_results(ws);
    }

    pub(in crate::agent_loop) fn after_results(&self, ws: &mut Workspace) {
        if self.awaits_tools && ws.session.state.pending.is_empty() {
            ws.then(Step::Proceed);
        }
    }

    /// Sends the allowed calls to the client, and tells the model why the others are not made.
    pub(in crate::agent_loop) fn begin_calls(
        &mut self,
        ws: &mut Workspace,
        mut events: Vec<Event>,
        leaf: EntryId,
        called: Vec<Called>,
    ) {
        let Some(turn_id) = ws.session.state.turn.as_ref().map(|turn| turn.turn_id.clone()) else { return };
        let mut leaf = leaf;
        self.deadlines.clear();
        for Called { call_id, name, arguments, verdict } in called {
            match verdict {
                Ok(timeout_ms) => {
                    let timeout_ms = timeout_ms.unwrap_or(ws.deployment.tool_timeout_ms);
                    let deadline = Deadline::after(ws.now, timeout_ms);
                    self.deadlines.insert(call_id.clone(), deadline);
                    let turn_id = turn_id.clone();
                    events.push(Event::ToolCall(ToolCall { call_id, turn_id, name, arguments, deadline: deadline.at }));
                }
                Err(why) => {
                    let result = ws.result_entry(Some(leaf), call_id, why, true);
                    leaf = result.entry_id.clone();
                    events.push(appended(result, Some(turn_id.clone()), None));
                }
            }
        }
        ws.append(events, Vec::new());
        self.awaits_tools = true;
    }

    /// Returns when the next tool call times out.
    pub(in crate::agent_loop) fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.values().map(|deadline| deadline.at).min().filter(|_| self.awaits_tools)
    }

    /// Notes that a call has its answer: its time limit ends.
    pub(in crate::agent_loop) fn has_answer(&mut self, call_id: &CallId) {
        self.deadlines.remove(call_id);
    }

    /// Notes that the turn no longer waits for tools.
    pub(in crate::agent_loop) fn tools_are_over(&mut self) {
        self.awaits_tools = false;
    }

    /// Returns results for the calls that are still open when their turn ends.
    pub(in crate::agent_loop) fn drop_calls(&mut self, ws: &mut Workspace, turn_id: &TurnId) -> Vec<Event> {
        self.awaits_tools = false;
        self.deadlines.clear();
        let mut leaf = ws.session.state.leaf.clone();
        let pending = ws.session.state.pending.clone();
        let mut events = Vec::with_capacity(2 * pending.len());
        for call in pending {
            let output = "The turn ended before the tool answered.".to_owned();
            let entry = ws.result_entry(leaf, call.call_id.clone(), output, true);
            leaf = Some(entry.entry_id.clone());
            events.push(appended(entry, Some(turn_id.clone()), None));
            events.push(Event::CallResolved(CallResolved { call_id: call.call_id, outcome: CallOutcome::Dropped }));
        }
        events
    }
}

impl Workspace {
    /// Notifies the client that hosts a tool that its answer is no longer needed.
    pub(in crate::agent_loop) fn withdraw(&mut self, call: PendingCall, outcome: CallOutcome) {
        let PendingCall { call_id, name, turn_id, .. } = call;
        let cancelled = ToolCancelled { call_id, name, turn_id, outcome };
        self.emit(EphemeralEvent::ToolCancelled(cancelled));
    }
}

impl Workspace {
    /// Returns a tool's answer as an entry under `parent_id`.
    pub(in crate::agent_loop) fn result_entry(
        &mut self,
        parent_id: Option<EntryId>,
        call_id: CallId,
        output: String,
        is_error: bool,
    ) -> Entry {
        let message = Message::new(Role::Tool, vec![Part::ToolResult { call_id, output, is_error }]);
        Entry {
            entry_id: self.new_id(),
            parent_id,
            timestamp: self.now,
            imported: None,
            data: EntryData::Message(message),
        }
    }
}

impl Workspace {
    /// Answers a `tool_result` whose call is not pending: `ok` for a copy of the answer that was taken.
    ///
    /// # Errors
    /// `unknown_call`; `too_late`.
    fn answer_late_result(
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
    pub(in crate::agent_loop) fn late_progress(&self, call: &CallId, lookup: Option<Lookup>) -> ErrorBody {
        match lookup.and_then(Lookup::ended_call).or_else(|| self.ended_on_path(call)) {
            Some(ended) => Callee::Tool.too_late(call, ended.outcome),
            None => Callee::Tool.unknown(call),
        }
    }

    /// Returns how a call ended that has a result on the path and no mark: a fork has the entries of its source only,
    /// and older versions wrote no marks.
    fn ended_on_path(&self, call: &CallId) -> Option<ended::EndedCall> {
        let messages = self.session.tree.path().iter().rev().filter_map(|node| node.message.as_ref());
        let result = messages.filter_map(|message| ended::result_of(call, message)).next()?;
        Some(ended::EndedCall { outcome: None, result })
    }
}
