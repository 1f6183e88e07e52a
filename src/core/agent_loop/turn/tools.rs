//! Calls of client tools: how they are made, and what limits them.

use crate::agent_loop::{
    deadline::Deadline, records::appended, step::Step, subject::answer::Called, turn::Turn, workspace::Workspace,
};
use reseed_protocol::{
    CallId, Entry, EntryData, EntryId, Message, Part, Role, Timestamp, TurnId,
    event::{CallOutcome, CallResolved, EphemeralEvent, Event, ToolCall, ToolCancelled},
    reply::PendingCall,
};

impl Turn {
    /// Moves the deadline of a pending tool call. Returns the new one.
    pub(crate) fn on_tool_progress(&mut self, ws: &Workspace, call: &CallId) -> Option<Timestamp> {
        let deadline = self.deadlines.get_mut(call)?;
        *deadline = deadline.moved(ws.now);
        Some(deadline.at)
    }

    /// Appends a timeout result for each call whose deadline has passed.
    pub(crate) fn on_tools_tick(&mut self, ws: &mut Workspace) {
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

    pub(crate) fn after_results(&self, ws: &mut Workspace) {
        if self.awaits_tools && ws.session.state.pending.is_empty() {
            ws.then(Step::Proceed);
        }
    }

    /// Sends the allowed calls to the client, and tells the model why the others are not made.
    pub(crate) fn begin_calls(
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
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.values().map(|deadline| deadline.at).min().filter(|_| self.awaits_tools)
    }

    /// Notes that a call has its answer: its time limit ends.
    pub(crate) fn has_answer(&mut self, call_id: &CallId) {
        self.deadlines.remove(call_id);
    }

    /// Notes that the turn no longer waits for tools.
    pub(crate) fn tools_are_over(&mut self) {
        self.awaits_tools = false;
    }

    /// Returns results for the calls that are still open when their turn ends.
    pub(crate) fn drop_calls(&mut self, ws: &mut Workspace, turn_id: &TurnId) -> Vec<Event> {
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
    pub(crate) fn withdraw(&mut self, call: PendingCall, outcome: CallOutcome) {
        let PendingCall { call_id, name, turn_id, .. } = call;
        let cancelled = ToolCancelled { call_id, name, turn_id, outcome };
        self.emit(EphemeralEvent::ToolCancelled(cancelled));
    }

    /// Returns a tool's answer as an entry under `parent_id`.
    pub(crate) fn result_entry(
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
