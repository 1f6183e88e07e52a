//! Calls of hosted tools and hooks. Each runs once, however often the server requests it.
//!
//! Invariants:
//! - A tool runs when the server asks this connection to run it, not when the server announces the call to everyone.
//! - A running call is not started again. If a call has ended, its answer is sent again instead.
//! - A cancelled call is aborted, and its answer is not sent.
//! - Only the server judges deadlines, and reports when a call is cancelled.

use crate::{
    fold::Call,
    machine::Machine,
    update::{NotTaken, Session, SessionEvent, Unanswered, Update},
};
use reseed_protocol::{
    CallId, CommandId, ErrorCode,
    command::Command,
    event::{EphemeralEvent, Event},
    hooks::{HookAnswer, HookCall, HookResult},
    session::Resumed,
    tools::{PendingCall, ToolResult},
};
use std::collections::{BTreeMap, VecDeque};

/// Maximum number of ended calls that are remembered. A session has only a few open calls at a time.
const ENDED_MAX: usize = 256;

/// Maximum number of calls that run at a time, which exceeds what any turn makes. Further calls run into their
/// deadlines.
const RUNNING_MAX: usize = 1_024;

/// A task for the program that hosts tools and hooks.
#[derive(Debug, Clone, PartialEq)]
pub enum Task {
    /// Run this tool, and pass its result to [`Calls::answer_tool`].
    RunTool(Call),
    /// Run this hook. If it has a deadline, pass its answer to [`Calls::answer_hook`].
    RunHook(Box<HookCall>),
    /// Stop the work on this call, because nobody waits for it any more.
    Abort(CallId),
    /// The answer was not accepted. Give another answer. If the error is temporary, give the same one later.
    Unanswered {
        /// The call, which stays open until its deadline.
        call: CallId,
        /// The reason.
        why: Unanswered,
    },
}

/// The calls of one session. Pass it each [`Update`] of the client, and execute the tasks that it returns.
#[derive(Debug)]
pub struct Calls {
    session: Session,
    calls: BTreeMap<CallId, State>,
    /// The ended calls, oldest first.
    ended: VecDeque<CallId>,
    /// The answers that were sent and have no reply yet.
    sent: BTreeMap<CommandId, CallId>,
}

#[derive(Debug)]
struct State {
    is_tool: bool,
    /// The answer, once it is known. A hook's answer is forgotten when it is accepted, because it may be as large as
    /// the context, and nobody requests it again.
    answer: Answer,
}

#[derive(Debug)]
enum Answer {
    Awaited,
    Known(Box<Command>),
    Accepted,
}

impl Calls {
    /// Creates the calls of a session, which are initially empty.
    #[must_use]
    pub fn new(session: Session) -> Self {
        Self { session, calls: BTreeMap::new(), ended: VecDeque::new(), sent: BTreeMap::new() }
    }

    /// Handles an update. Sends known answers again, and returns the tasks for the program.
    pub fn take(&mut self, machine: &mut Machine, update: &Update) -> Vec<Task> {
        match update {
            Update::Event { session, event } if *session == self.session => match event {
                SessionEvent::Durable(_, Event::CallResolved(resolved)) => self.drop_call(&resolved.call_id),
                SessionEvent::Durable(..) => Vec::new(),
                SessionEvent::Ephemeral(event) => self.ephemeral(machine, event),
            },
            Update::Opened { session, opened }
                if *session == self.session && opened.resumed != Some(Resumed::Replay) =>
            {
                self.keep_only(&opened.pending)
            }
            Update::Ended { session, .. } if *session == self.session => self.stop(),
            Update::Reply { id, result } => self.replied(id, result.as_ref().err()),
            _ => Vec::new(),
        }
    }

    /// Sends the result of a tool. The result is dropped if nobody waits for the call any more.
    ///
    /// # Errors
    /// Returns an error if too many commands are waiting. Try again later.
    pub fn answer_tool(
        &mut self,
        machine: &mut Machine,
        call: &CallId,
        output: impl Into<String>,
        is_error: bool,
    ) -> Result<(), NotTaken> {
        let is_error = is_error.then_some(true);
        let result = ToolResult { call_id: call.clone(), output: output.into(), is_error };
        self.answer(machine, call, Command::ToolResult(result))
    }

    /// Sends the answer of a hook. The answer is dropped if nobody waits for the call any more.
    ///
    /// # Errors
    /// Returns an error if too many commands are waiting. Try again later.
    pub fn answer_hook(&mut self, machine: &mut Machine, call: &CallId, answer: HookAnswer) -> Result<(), NotTaken> {
        self.answer(machine, call, Command::HookResult(Box::new(HookResult::new(call.clone(), answer))))
    }

    /// Forgets all calls, for example before the session is closed. Returns the tasks that stop running work.
    pub fn stop(&mut self) -> Vec<Task> {
        let running: Vec<CallId> = self.calls.keys().cloned().collect();
        running.iter().flat_map(|call| self.drop_call(call)).collect()
    }

    fn answer(&mut self, machine: &mut Machine, call: &CallId, command: Command) -> Result<(), NotTaken> {
        if self.calls.contains_key(call) {
            let id = machine.send(self.session, &command)?;
            self.sent.insert(id, call.clone());
            self.ends(call, Answer::Known(Box::new(command)));
        }
        Ok(())
    }

    fn ends(&mut self, call: &CallId, answer: Answer) {
        let Some(state) = self.calls.get_mut(call) else { return };
        if matches!(state.answer, Answer::Awaited) {
            self.ended.push_back(call.clone());
        }
        state.answer = answer;
        if self.ended.len() > ENDED_MAX
            && let Some(oldest) = self.ended.pop_front()
        {
            self.calls.remove(&oldest);
        }
    }

    fn ephemeral(&mut self, machine: &mut Machine, event: &EphemeralEvent) -> Vec<Task> {
        match event {
            EphemeralEvent::RunTool(run) => {
                // The previous event announced the call. If the call is no longer open, it needs no result.
                let call = machine.snapshot(self.session).and_then(|now| now.call(&run.tool_call_id)).cloned();
                call.filter(|call| self.begins(machine, &call.call_id, true)).map(Task::RunTool).into_iter().collect()
            }
            EphemeralEvent::HookCall(call) if self.begins(machine, &call.call_id, false) => {
                // A call that only observes has no answer, so it ends immediately.
                if call.deadline.is_none() {
                    self.ends(&call.call_id, Answer::Accepted);
                }
                vec![Task::RunHook(call.clone())]
            }
            EphemeralEvent::ToolCancelled(cancelled) => self.drop_call(&cancelled.call_id),
            EphemeralEvent::HookCancelled(cancelled) => self.drop_call(&cancelled.call_id),
            _ => Vec::new(),
        }
    }

    /// Returns true if a call is new. Sends the answer again if the call has ended.
    fn begins(&mut self, machine: &mut Machine, call: &CallId, is_tool: bool) -> bool {
        match self.calls.get(call).map(|state| &state.answer) {
            Some(Answer::Awaited | Answer::Accepted) => return false,
            Some(Answer::Known(command)) => {
                // If there is no room, the server requests the call again, on the next connection at the latest.
                if let Ok(id) = machine.send(self.session, command) {
                    self.sent.insert(id, call.clone());
                }
                return false;
            }
            None => {}
        }
        let is_new = self.calls.len() - self.ended.len() < RUNNING_MAX;
        if is_new {
            self.calls.insert(call.clone(), State { is_tool, answer: Answer::Awaited });
        }
        is_new
    }

    /// Aborts the tool calls that a new snapshot does not list as open, because the events that ended them were
    /// skipped.
    fn keep_only(&mut self, pending: &[PendingCall]) -> Vec<Task> {
        let is_over = |call: &CallId, state: &State| state.is_tool && !pending.iter().any(|open| open.call_id == *call);
        let over: Vec<CallId> =
            self.calls.iter().filter(|(call, state)| is_over(call, state)).map(|(call, _)| call.clone()).collect();
        over.iter().flat_map(|call| self.drop_call(call)).collect()
    }

    fn replied(&mut self, id: &CommandId, why: Option<&Unanswered>) -> Vec<Task> {
        let Some(call) = self.sent.remove(id) else { return Vec::new() };
        let Some(state) = self.calls.get_mut(&call) else { return Vec::new() };
        match why {
            None if !state.is_tool => state.answer = Answer::Accepted,
            // The server requests the call again, and then the answer is sent again. A tool's answer is kept until the
            // call is resolved.
            None | Some(Unanswered::Lost | Unanswered::SessionClosed | Unanswered::Stopped(_)) => {}
            Some(Unanswered::Refused(error)) if matches!(error.code, ErrorCode::TooLate | ErrorCode::UnknownCall) => {
                state.answer = Answer::Accepted;
            }
            Some(why) => return vec![Task::Unanswered { call, why: why.clone() }],
        }
        Vec::new()
    }

    fn drop_call(&mut self, call: &CallId) -> Vec<Task> {
        let Some(state) = self.calls.remove(call) else { return Vec::new() };
        self.ended.retain(|ended| ended != call);
        let is_running = matches!(state.answer, Answer::Awaited);
        is_running.then(|| Task::Abort(call.clone())).into_iter().collect()
    }
}
