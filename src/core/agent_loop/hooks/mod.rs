//! The hooks machine: which hooks are asked at a point, in what order, for how long, and how their answers are applied.
//!
//! Inputs: a hook's answer or failure; a client that hosts hooks and comes or goes; the commands `register_hooks` and
//! `hook_result`; the steps `Ask`, `AfterHooks`, `HookFailed`, `HookLate`, `AfterInput` and `NextInLine`.
//!
//! Outputs: the effects that call a hook and cancel the call; `hook_failed`, the entries and patches that hooks add,
//! and the answer that they have passed; the steps `Ask`, `AfterHooks`, `HookFailed`, `HookLate`, and those by which
//! the subject continues: `Proceed`, `Send`, `EndTurn`, `AfterInput`, `NextInLine` and `Command`.
//!
//! A [`Chain`] passes one subject through all hooks of a point, one after the other: each sees the subject as the
//! earlier ones left it. The [`Subject`] is what is asked about:
//!
//! - `subject`: all subjects, how each is described, and what it may be answered
//! - `outcome`: what follows an answer or a failure
//! - `input`: a client's input, before it is accepted
//! - `request`: the start of a turn, the envelope before and after a request
//! - `model_answer`: the model's answer and its tool calls; `result`: a tool's answer
//! - `roster`: which hooks are asked, including those owed to work started under hooks whose client is gone
//!
//! Hooks before a compaction or a move are with those machines, in their own `hooks` modules.
//!
//! Without registered hooks none of this runs, and no value is built for it.

mod asked;
pub(super) mod chain;
mod input;
mod model_answer;
mod outcome;
mod request;
mod result;
pub(super) mod roster;

use crate::{
    agent_loop::{
        AgentLoop,
        deadline::Deadline,
        hooks::chain::{Chain, InLine, InputChains, Open},
        io::{CallHook, Caller, Effect},
        late::Callee,
        records::done,
        step::Step,
        subject::{Subject, navigation::ProposedMove},
        turn::Turn,
        workspace::Workspace,
    },
    hook::{HookFault, HookPlace, HookSpec},
    session::fingerprint::fingerprint_of,
};
use reseed_protocol::{
    CallId, ErrorBody, ErrorCode, Timestamp,
    event::{CallOutcome, EphemeralEvent, HookFailed},
    hook::{ContextReason, HookCall, HookEvent, HookResult},
    receipt::{HookOutcome, HookRun},
};
use std::{collections::VecDeque, sync::Arc};

/// The hook chains in progress.
#[derive(Debug, Default)]
pub(super) struct Hooks {
    /// One that the turn or the session waits for, one for the running compaction, one for an input, and one for each
    /// tool answer being inspected.
    chains: Vec<Chain>,
    /// Commands in line behind the input being inspected, in the order of arrival.
    line: VecDeque<InLine>,
}

impl Hooks {
    /// Returns true if no hook's answer is pending.
    pub(super) fn is_quiet(&self) -> bool {
        self.chains.is_empty()
    }

    /// Returns true if the turn or the session waits for a chain.
    pub(super) fn are_awaited(&self) -> bool {
        self.chains.iter().any(|chain| chain.subject.is_awaited())
    }

    /// Returns true if hooks are inspecting the running compaction.
    pub(super) fn looks_at_compaction(&self) -> bool {
        self.chains.iter().any(|chain| matches!(chain.subject, Subject::Compaction(_)))
    }

    /// Returns the move that hooks are inspecting.
    pub(super) fn proposed_move(&self) -> Option<&ProposedMove> {
        self.chains.iter().find_map(|chain| match &chain.subject {
            Subject::Navigation(proposed) => Some(&**proposed),
            _ => None,
        })
    }

    /// Returns the senders of commands that wait for hooks or in line. They are answered after later ones.
    pub(super) fn callers(&mut self) -> impl Iterator<Item = &mut Caller> {
        let asked = self.chains.iter_mut().filter_map(|chain| match &mut chain.subject {
            Subject::Navigation(proposed) => Some(&mut proposed.caller),
            Subject::Result(result) => Some(&mut result.caller),
            Subject::Input(offered) => Some(&mut offered.caller),
            _ => None,
        });
        asked.chain(self.line.iter_mut().map(|waiting| &mut waiting.caller))
    }

    pub(super) fn new(carried: InputChains) -> Self {
        Self { chains: carried.asked.into_iter().collect(), line: carried.line }
    }

    pub(super) fn into_carried(self) -> InputChains {
        InputChains { asked: self.chains.into_iter().find(Chain::is_of_input), line: self.line }
    }
}

impl AgentLoop {
    pub(super) fn on_hook_result(&mut self, caller: &Caller, result: HookResult) -> Result<(), ErrorBody> {
        let sent = fingerprint_of(&result);
        let (call_id, answer) = result.into_answer();
        let is_open = self.hooks.chains.iter().any(|chain| {
            chain.call_id() == call_id && chain.open.place == HookPlace::Client && !chain.has_left(&self.ws.roster)
        });
        if !is_open {
            if self.ws.ended.get(&call_id).is_some_and(|(_, answer)| answer == Some(sent)) {
                self.ws.reply_duplicate(caller);
                return Ok(());
            }
            return Err(self.late_for_hook(&call_id));
        }
        self.ws.ended.note(call_id.clone(), CallOutcome::Answered, Some(sent));
        self.ws.reply(caller, done(None));
        self.on_hook_answer(&call_id, Ok(answer));
        Ok(())
    }

    /// Returns the error for what a client says about a hook call that does not wait for it.
    pub(super) fn late_for_hook(&self, call: &CallId) -> ErrorBody {
        match self.ws.ended.get(call) {
            Some((outcome, _)) => Callee::Hook.too_late(call, Some(outcome)),
            None => Callee::Hook.unknown(call),
        }
    }

    /// Returns the pending calls to client hooks that the connected client could answer.
    #[must_use]
    pub fn open_client_calls(&self) -> Vec<HookCall> {
        let of_client = self.hooks.chains.iter().filter(|chain| chain.open.place == HookPlace::Client);
        let of_client = of_client.filter(|chain| !chain.has_left(&self.ws.roster));
        of_client
            .map(|chain| HookCall { deadline: Some(chain.open.deadline.at), ..(*chain.open.call).clone() })
            .collect()
    }

    /// Returns true if pending work needs a client's required hooks.
    #[must_use]
    pub fn needs_its_client(&self) -> bool {
        self.ws.roster.needs_its_client(&self.ws.session.state)
    }

    /// Returns true if a pending hook's client is away.
    #[must_use]
    pub fn waits_for_client(&self) -> bool {
        self.hooks.chains.iter().any(|chain| chain.open.away_since.is_some())
    }

    /// Returns true if an answer to this call is still awaited.
    #[must_use]
    pub fn waits_for_hook(&self, call_id: &CallId) -> bool {
        self.hooks.chains.iter().any(|chain| chain.open.call.call_id == *call_id)
    }

    /// Returns the event that hooks of this subject receive.
    fn hook_event(&self, subject: &Subject) -> HookEvent {
        match subject {
            Subject::Start(start) => start.event(),
            Subject::Input(offered) => offered.event(),
            Subject::BeforeRequest => self.ws.context_event(ContextReason::BeforeRequest, &self.ws.context()),
            Subject::Ephemeral(overlay) => self.ws.context_event(ContextReason::Ephemeral, &overlay.context),
            Subject::TurnEnd(_) => self.ws.context_event(ContextReason::TurnEnd, &self.ws.context()),
            Subject::Answer(whole) => whole.event(),
            Subject::Calls(calls) => calls.event(),
            Subject::Result(result) => result.event(),
            Subject::Compaction(decision) => self.compaction.compaction_event(&self.ws, decision),
            Subject::Navigation(proposed) => proposed.event(self.ws.session.state.leaf.clone()),
        }
    }

    /// Asks every hook of the subject's point, then continues with the result.
    pub(super) fn ask_hooks(&mut self, subject: Subject) {
        let (point, reason) = subject.point();
        let is_asked = |(_, spec): &(HookPlace, &HookSpec)| spec.is_asked(point, reason);
        let owned = |(place, spec): (HookPlace, &HookSpec)| (place, spec.clone());
        let rest = match &subject {
            Subject::Input(offered) => self.ws.hooks_on_input(&offered.caller.id).filter(is_asked).map(owned).collect(),
            _ => self.ws.all_hooks().filter(is_asked).map(owned).collect(),
        };
        self.ask_next(subject, rest);
    }

    /// Notifies the observing hooks.
    pub(super) fn tell_hooks(&mut self, subject: &Subject) {
        let (point, reason) = subject.point();
        let observers = self.ws.all_hooks().filter(|(_, spec)| spec.observe && spec.is_asked(point, reason));
        let observers: Vec<(HookPlace, HookSpec)> = observers.map(|(place, spec)| (place, spec.clone())).collect();
        for (place, spec) in observers {
            let _ = self.call_hook(subject, place, &spec, false);
        }
    }

    fn call_hook(
        &mut self,
        subject: &Subject,
        place: HookPlace,
        spec: &HookSpec,
        is_gone: bool,
    ) -> (HookCall, Deadline) {
        let timeout_ms = spec.timeout_ms.unwrap_or(self.ws.deployment.hook_timeout_ms);
        let deadline = Deadline::after(self.ws.now, timeout_ms);
        let call = HookCall {
            call_id: self.ws.new_id(),
            hook: spec.name.clone(),
            session_id: self.ws.session.id.clone(),
            turn_id: self
                .ws
                .session
                .state
                .turn
                .as_ref()
                .filter(|_| subject.is_of_turn())
                .map(|turn| turn.turn_id.clone()),
            deadline: (!spec.observe).then_some(deadline.at),
            event: self.hook_event(subject),
        };
        if !is_gone {
            self.ws.push(Effect::CallHook(Box::new(CallHook { place, call: call.clone(), awaited: !spec.observe })));
        }
        (call, deadline)
    }

    /// Cancels a hook call that is no longer waited for.
    pub(super) fn on_hook_late(&mut self, call_id: CallId, is_sent: bool, fault: HookFault) {
        if is_sent {
            self.ws.push(Effect::CancelHook(call_id.clone()));
        }
        self.on_hook_answer(&call_id, Err(fault));
    }
}

impl Turn {
    fn note_run(
        &mut self,
        ws: &mut Workspace,
        subject: &Subject,
        open: &Open,
        outcome: HookOutcome,
        code: Option<ErrorCode>,
    ) {
        if subject.is_of_request() {
            let run = HookRun {
                hook: open.spec.name.clone(),
                point: subject.event().to_owned(),
                outcome,
                duration_ms: ws.now.millis_since(open.asked_at),
                code,
            };
            self.hook_ran(&ws.session.state, run);
        }
    }
}

impl Hooks {
    /// Replaces the hooks that the host offers.
    pub(super) fn on_hooks_offered(&mut self, ws: &mut Workspace, hooks: Arc<[HookSpec]>) {
        // Calls in progress continue: the new hooks are called from the next chain on.
        ws.roster.offer(hooks);
        ws.keep_hooks_of_work();
        let gone: Vec<CallId> =
            self.chains.iter().filter(|chain| chain.has_left(&ws.roster)).map(Chain::call_id).collect();
        for call_id in gone {
            let fault = HookFault::unavailable("its client no longer offers it");
            ws.then(Step::HookLate { call_id, is_sent: false, fault });
        }
    }

    /// Sends pending calls to the connected client again, under their ids: all of them, or those whose client was away.
    /// A client that offers a hook takes over the calls of an absent client for it; calls of hooks that it does not
    /// offer are not sent to it.
    pub(super) fn ask_again(&mut self, ws: &mut Workspace, only_away: bool) {
        for chain in &mut self.chains {
            let open = &mut chain.open;
            let is_offered = ws.roster.is_offered(&open.spec);
            if open.place != HookPlace::Client || !is_offered || (only_away && open.away_since.is_none()) {
                continue;
            }
            open.returns(ws.now);
            open.is_sent = true;
            let call = HookCall { deadline: Some(open.deadline.at), ..(*open.call).clone() };
            let place = HookPlace::Client;
            ws.push(Effect::CallHook(Box::new(CallHook { place, call, awaited: true })));
        }
    }

    /// Handles progress of a client hook: restarts its time limit, up to its hard cap. Returns `None` if no call has
    /// this id.
    pub(super) fn on_hook_progress(&mut self, ws: &mut Workspace, call_id: &CallId) -> Option<Timestamp> {
        let of_client = |chain: &&mut Chain| chain.open.place == HookPlace::Client;
        let chain = self.chains.iter_mut().filter(of_client).find(|chain| chain.call_id() == *call_id)?;
        // Progress shows that the client is back.
        chain.open.returns(ws.now);
        chain.open.deadline = chain.open.deadline.moved(ws.now);
        Some(chain.open.deadline.at)
    }

    /// Returns the earliest deadline of a pending hook.
    pub(super) fn next_hook_deadline(&self) -> Option<Timestamp> {
        self.chains.iter().map(|chain| chain.open.due()).min()
    }

    /// Fails the hooks whose deadline has passed.
    pub(super) fn on_hook_tick(&mut self, ws: &mut Workspace) {
        let over = |chain: &&Chain| chain.open.due() <= ws.now;
        let told = |chain: &Chain| (chain.call_id(), chain.open.is_sent, chain.open.late());
        let over: Vec<(CallId, bool, HookFault)> = self.chains.iter().filter(over).map(told).collect();
        for (call_id, is_sent, fault) in over {
            ws.then(Step::HookLate { call_id, is_sent, fault });
        }
    }

    /// Cancels the chains whose subject matches, and returns their subjects.
    pub(super) fn cancel_hooks(&mut self, ws: &mut Workspace, is_such: impl Fn(&Subject) -> bool) -> Vec<Subject> {
        let (gone, rest) = std::mem::take(&mut self.chains).into_iter().partition(|chain| is_such(&chain.subject));
        self.chains = rest;
        let gone: Vec<Chain> = gone;
        gone.into_iter()
            .map(|chain| {
                if chain.open.is_sent {
                    ws.push(Effect::CancelHook(chain.call_id()));
                }
                chain.open.note_unanswered(&mut ws.ended, CallOutcome::Dropped);
                chain.subject
            })
            .collect()
    }

    /// Cancels the hooks that the turn or the session is waiting for.
    pub(super) fn cancel_awaited(&mut self, ws: &mut Workspace) {
        for subject in self.cancel_hooks(ws, Subject::is_awaited) {
            match subject {
                Subject::Calls(calls) => ws.drop_uncalled(*calls),
                Subject::Navigation(proposed) => ws.stay_here(&proposed),
                Subject::Input(offered) => ws.refuse_unseen(&offered.caller),
                _ => {}
            }
        }
    }
}

impl Workspace {
    fn report_hook(&mut self, open: &Open, fault: &HookFault) {
        self.emit(EphemeralEvent::HookFailed(HookFailed {
            hook: open.spec.name.clone(),
            point: open.spec.point,
            turn_id: open.call.turn_id.clone(),
            error: fault.error(),
        }));
    }
}

#[cfg(test)]
mod tests;
