//! Asking hooks: who is asked at a point, in which order, for how long, and what becomes of their answers.
//!
//! A [`Chain`] is one question that goes through all hooks of a point, one after the other: each sees the subject as
//! the earlier ones left it. What the question is about, and what goes on once it is through, is its [`Subject`]:
//!
//! - `subject`: all of them, how each is told and what an answer makes of it
//! - `failure`: what a hook that fails or is away ends
//! - `input`: what a client says, before it is accepted
//! - `request`: the beginning of a turn, the envelope before and after a request
//! - `added`: what was added for the last request alone, to be looked at
//! - `answer`: what the model said, and the tools that it calls; `result`: what a tool said
//! - `owed`: what was begun under hooks whose client is gone
//! - `compaction`: a compaction that is about to be made; `navigation`: a move in the tree
//!
//! Where no hook is registered nothing of this happens: not one value is built.

mod added;
mod answer;
mod compaction;
mod failure;
mod input;
mod navigation;
mod owed;
mod request;
mod result;
mod subject;

pub use added::Added;
pub(super) use answer::Whole;
pub use input::Inputs;
pub(super) use input::{InLine, What};
pub(super) use navigation::{BranchGiven, Wish};
pub use owed::Owed;
pub(super) use owed::begins_work;
pub(super) use result::Given;
pub(super) use subject::Subject;

use self::subject::check_answer;
use super::{AgentLoop, CallHook, Deadline, Effect, Stage, commands::Caller, info};
use crate::hook::{HookFault, HookPlace, HookSpec, check_hooks};
use reseed_protocol::{
    CallId, ErrorBody, ErrorCode, Timestamp, Usage,
    event::{EphemeralEvent, HookFailed},
    hook::{ContextReason, HookAnswer, HookCall, HookOffer, HookPoint, HookResult},
    receipt::{HookOutcome, HookRun},
};
use std::{collections::VecDeque, sync::Arc};

/// Hooks that a receipt names: two rounds of as many as there may be. A request that asked more has a shorter receipt.
const RUNS_MAX: usize = 2 * crate::hook::HOOKS_MAX;

/// Characters of what a hook says of its own failure that are told on.
const ERROR_CHARS_MAX: usize = 500;

/// How far the running turn is with its hooks. It lives from loop to loop, so that a compaction in between asks none of
/// them twice.
#[derive(Debug, Default)]
pub struct TurnHooks {
    /// The hooks of its beginning were asked.
    started: bool,
    /// The hooks before the next request were asked.
    before_request: bool,
    /// The system prompt of this turn, where a hook has set one.
    pub(super) system_prompt: Option<TurnPrompt>,
    /// What an answer cost that is not stored yet, since hooks look at it.
    pub(super) looked_at_usage: Option<Usage>,
}

/// A system prompt that is a turn's own.
#[derive(Debug)]
pub(super) struct TurnPrompt {
    pub(super) text: String,
    /// Who has set it.
    pub(super) hook: String,
}

impl TurnHooks {
    /// A request was sent: the next one asks its hooks anew.
    pub(super) fn sent(&mut self) {
        self.before_request = false;
    }
}

/// One question that goes through the hooks of a point.
#[derive(Debug)]
pub(super) struct Chain {
    subject: Subject,
    rest: VecDeque<(HookPlace, HookSpec)>,
    open: Open,
}

/// The hook that is being asked.
#[derive(Debug)]
struct Open {
    call: Box<HookCall>,
    place: HookPlace,
    spec: HookSpec,
    /// Whether the question has left: where nobody offers the hook there is none to withdraw.
    is_sent: bool,
    asked_at: Timestamp,
    deadline: Deadline,
    /// Since when its client is not connected; its time limit stands still meanwhile.
    away_since: Option<Timestamp>,
    /// Milliseconds that its client may still be away, all absences taken together.
    away_left_ms: u64,
}

impl AgentLoop {
    pub(super) fn on_register_hooks(&mut self, caller: &Caller, offers: Vec<HookOffer>) -> Result<(), ErrorBody> {
        // What is being asked now goes on: the new ones are asked from the next question on.
        self.client_hooks = check_hooks(offers)?.into();
        self.keep_hooks_of_work();
        self.reply(caller, info::done(None));
        let gone: Vec<CallId> = self.chains.iter().filter(|chain| self.has_left(chain)).map(Chain::call_id).collect();
        for call_id in gone {
            let fault = HookFault::unavailable("its client offers it no more");
            self.on_hook_answer(&call_id, Err(fault));
        }
        Ok(())
    }

    /// Sends open questions to the client that is here now, under their ids: all, or those whose client was away.
    /// Whoever offers a hook of a client that is away takes over what that one was asked; what it does not offer is not
    /// its own.
    pub(super) fn ask_again(&mut self, only_away: bool) {
        let client_hooks = self.client_hooks.clone();
        for chain in &mut self.chains {
            let open = &mut chain.open;
            let is_offered =
                client_hooks.iter().any(|spec| spec.name == open.spec.name && spec.point == open.spec.point);
            if open.place != HookPlace::Client || !is_offered || (only_away && open.away_since.is_none()) {
                continue;
            }
            open.returns(self.now);
            open.is_sent = true;
            let call = HookCall { deadline: Some(open.deadline.at), ..(*open.call).clone() };
            let place = HookPlace::Client;
            self.out.push(Effect::CallHook(Box::new(CallHook { place, call, awaited: true })));
        }
    }

    fn has_left(&self, chain: &Chain) -> bool {
        self.is_gone(chain.open.place, &chain.open.spec)
    }

    pub(super) fn on_hook_result(&mut self, caller: &Caller, result: HookResult) -> Result<(), ErrorBody> {
        let (call_id, answer) = result.into_answer();
        let is_open = self
            .chains
            .iter()
            .any(|chain| chain.call_id() == call_id && chain.open.place == HookPlace::Client && !self.has_left(chain));
        if !is_open {
            let message = format!("no hook call `{call_id}` waits for an answer");
            return Err(ErrorBody::new(ErrorCode::UnknownCall, message).with_field("callId"));
        }
        self.reply(caller, info::done(None));
        self.on_hook_answer(&call_id, Ok(answer));
        Ok(())
    }

    /// Progress of a client's hook: resets its time limit, up to its hard cap. `None`: none is asked under this id.
    pub(super) fn on_hook_progress(&mut self, call_id: &CallId) -> Option<Timestamp> {
        let of_client = |chain: &&mut Chain| chain.open.place == HookPlace::Client;
        let chain = self.chains.iter_mut().filter(of_client).find(|chain| chain.call_id() == *call_id)?;
        // Who says so is here again.
        chain.open.returns(self.now);
        chain.open.deadline = chain.open.deadline.moved(self.now);
        Some(chain.open.deadline.at)
    }

    /// Calls to the client's hooks that are waited for and that the client which is here could answer.
    #[must_use]
    pub fn open_client_calls(&self) -> Vec<HookCall> {
        let of_client = self.chains.iter().filter(|chain| chain.open.place == HookPlace::Client);
        let of_client = of_client.filter(|chain| !self.has_left(chain));
        of_client
            .map(|chain| HookCall { deadline: Some(chain.open.deadline.at), ..(*chain.open.call).clone() })
            .collect()
    }

    /// Whether a client's hook is waited for that is away.
    #[must_use]
    pub fn waits_for_client(&self) -> bool {
        self.chains.iter().any(|chain| chain.open.away_since.is_some())
    }

    /// Whether an answer to this call changes anything.
    #[must_use]
    pub fn waits_for_hook(&self, call_id: &CallId) -> bool {
        self.chains.iter().any(|chain| chain.open.call.call_id == *call_id)
    }

    /// Whether any hook is asked there.
    pub(super) fn has_hooks(&self, point: HookPoint, reason: Option<ContextReason>) -> bool {
        self.all_hooks().any(|(_, spec)| spec.is_asked(point, reason))
    }

    /// Whether a hook may change what the model says before anybody sees it.
    pub(super) fn withholds(&self) -> bool {
        self.all_hooks().any(|(_, spec)| spec.point == HookPoint::Message && !spec.observe)
    }

    /// The client's hooks without which no answer of the model's goes on, by name. The server's own never leave.
    pub(super) fn guards(&self) -> Vec<String> {
        let guards = self.client_hooks.iter().chain(self.owed_to_turn());
        let guards = guards.filter(|spec| spec.point == HookPoint::Message && spec.required);
        guards.map(|spec| spec.name.clone()).collect()
    }

    /// The first of these that the client offers no more, or no more as required.
    pub(super) fn missing_guard<'a>(&self, guards: &'a [String]) -> Option<&'a str> {
        let here = self.guards();
        let count = |among: &[String], name: &str| among.iter().filter(|other| *other == name).count();
        guards.iter().map(String::as_str).find(|name| count(&here, name) < count(guards, name))
    }

    fn all_hooks(&self) -> impl Iterator<Item = (HookPlace, &HookSpec)> {
        self.hooks_here().chain(self.owed_to_turn().map(|spec| (HookPlace::Client, spec)))
    }

    /// The hooks of the server's and of the client that owns the session.
    fn hooks_here(&self) -> impl Iterator<Item = (HookPlace, &HookSpec)> {
        let server = self.deployment.hooks.iter().enumerate().map(|(at, spec)| (HookPlace::Server(at), spec));
        server.chain(self.client_hooks.iter().map(|spec| (HookPlace::Client, spec)))
    }

    /// Asks every hook of the subject's point, then goes on with what they made of it.
    pub(super) fn ask_hooks(&mut self, subject: Subject) {
        if subject.holds_the_stage() {
            self.stage = Stage::Hooking;
        }
        let (point, reason) = subject.point();
        let is_asked = |(_, spec): &(HookPlace, &HookSpec)| spec.is_asked(point, reason);
        let owned = |(place, spec): (HookPlace, &HookSpec)| (place, spec.clone());
        let rest = match &subject {
            Subject::Input(offered) => self.hooks_on_input(&offered.caller.id).filter(is_asked).map(owned).collect(),
            _ => self.all_hooks().filter(is_asked).map(owned).collect(),
        };
        self.walk(subject, rest);
    }

    /// Tells the hooks that only observe.
    fn tell_hooks(&mut self, subject: &Subject) {
        let (point, reason) = subject.point();
        let observers = self.all_hooks().filter(|(_, spec)| spec.observe && spec.is_asked(point, reason));
        let observers: Vec<(HookPlace, HookSpec)> = observers.map(|(place, spec)| (place, spec.clone())).collect();
        for (place, spec) in observers {
            let _ = self.call_hook(subject, place, &spec, false);
        }
    }

    fn walk(&mut self, subject: Subject, mut rest: VecDeque<(HookPlace, HookSpec)>) {
        while let Some((place, spec)) = rest.pop_front() {
            // Nobody is here who could be asked: a required hook is waited for, any other one passed over.
            let is_gone = self.is_gone(place, &spec);
            if is_gone && spec.observe {
                continue;
            }
            let (call, deadline) = self.call_hook(&subject, place, &spec, is_gone);
            if spec.observe {
                continue;
            }
            let away_since = is_gone.then_some(self.now);
            let away_left_ms = self.deployment.hook_away_ms;
            let (call, is_sent) = (Box::new(call), !is_gone);
            let open = Open { call, place, spec, is_sent, asked_at: self.now, deadline, away_since, away_left_ms };
            if is_gone && !open.spec.required {
                self.note_run(&subject, &open, HookOutcome::Skipped, None);
                continue;
            }
            self.chains.push(Chain { subject, rest, open });
            return;
        }
        self.hooked(subject);
    }

    fn call_hook(
        &mut self,
        subject: &Subject,
        place: HookPlace,
        spec: &HookSpec,
        is_gone: bool,
    ) -> (HookCall, Deadline) {
        let timeout_ms = spec.timeout_ms.unwrap_or(self.deployment.hook_timeout_ms);
        let deadline = Deadline::after(self.now, timeout_ms);
        let call = HookCall {
            call_id: self.ids.next_id(),
            hook: spec.name.clone(),
            session_id: self.session.id.clone(),
            turn_id: self.session.state.turn.as_ref().filter(|_| subject.is_of_turn()).map(|turn| turn.turn_id.clone()),
            deadline: (!spec.observe).then_some(deadline.at),
            event: self.hook_event(subject),
        };
        if !is_gone {
            self.out.push(Effect::CallHook(Box::new(CallHook { place, call: call.clone(), awaited: !spec.observe })));
        }
        (call, deadline)
    }

    /// A hook has answered, or has not.
    pub(super) fn on_hook_answer(&mut self, call_id: &CallId, answer: Result<HookAnswer, HookFault>) {
        let Some(at) = self.chains.iter().position(|chain| chain.call_id() == *call_id) else { return };
        let answer = match self.chains[at].open.place {
            HookPlace::Client => answer,
            // Only a client can be away: any other hook that does not answer has failed.
            HookPlace::Server(_) => answer.map_err(|fault| match fault.code {
                ErrorCode::HookUnavailable => HookFault::failed(fault.message),
                _ => fault,
            }),
        };
        if let Err(fault) = &answer
            && fault.code == ErrorCode::HookUnavailable
        {
            let open = &mut self.chains[at].open;
            if open.spec.required {
                open.leaves(self.now);
                if self.now < open.due() {
                    // It may come back: then it is asked again.
                    return;
                }
            }
        }
        let Chain { mut subject, rest, open } = self.chains.remove(at);
        let is_skipped =
            !open.spec.required && matches!(&answer, Err(fault) if fault.code == ErrorCode::HookUnavailable);
        if is_skipped {
            self.note_run(&subject, &open, HookOutcome::Skipped, None);
            self.walk(subject, rest);
            return;
        }
        let taken = answer.and_then(|answer| {
            check_answer(&subject, &answer)?;
            if answer.fields().is_empty() { Ok(false) } else { self.take_answer(&mut subject, &open, answer) }
        });
        match taken {
            Ok(changed) => {
                let outcome = if changed { HookOutcome::Changed } else { HookOutcome::Unchanged };
                self.note_run(&subject, &open, outcome, None);
                // What is decided for good is nobody else's business.
                let rest = if subject.is_settled() { VecDeque::new() } else { rest };
                self.walk(subject, rest);
            }
            Err(fault) => {
                self.note_run(&subject, &open, HookOutcome::Failed, Some(fault.code));
                self.report_hook(&open, &fault);
                if open.spec.required {
                    self.hook_failed(subject, &open, &fault);
                } else {
                    self.walk(subject, rest);
                }
            }
        }
    }

    fn note_run(&mut self, subject: &Subject, open: &Open, outcome: HookOutcome, code: Option<ErrorCode>) {
        if !subject.is_of_request() || self.hook_runs.len() >= RUNS_MAX {
            return;
        }
        self.hook_runs.push(HookRun {
            hook: open.spec.name.clone(),
            event: subject.event().to_owned(),
            outcome,
            duration_ms: self.now.millis_since(open.asked_at),
            code,
        });
    }

    fn report_hook(&mut self, open: &Open, fault: &HookFault) {
        self.out.push(Effect::Emit(EphemeralEvent::HookFailed(HookFailed {
            hook: open.spec.name.clone(),
            event: open.spec.point,
            turn_id: open.call.turn_id.clone(),
            code: fault.code,
            message: fault.message.clone(),
        })));
    }

    /// When the next hook's time is over.
    pub(super) fn next_hook_deadline(&self) -> Option<Timestamp> {
        self.chains.iter().map(|chain| chain.open.due()).min()
    }

    /// Hooks whose time is over have failed.
    pub(super) fn on_hook_tick(&mut self) {
        let over = |chain: &&Chain| chain.open.due() <= self.now;
        let told = |chain: &Chain| (chain.call_id(), chain.open.is_sent, chain.open.late());
        let over: Vec<(CallId, bool, HookFault)> = self.chains.iter().filter(over).map(told).collect();
        for (call_id, is_sent, fault) in over {
            if is_sent {
                self.out.push(Effect::CancelHook(call_id.clone()));
            }
            self.on_hook_answer(&call_id, Err(fault));
        }
    }

    /// Asks those hooks no more whose subject is such, and hands back what they were asked about.
    pub(super) fn cancel_hooks(&mut self, is_such: impl Fn(&Subject) -> bool) -> Vec<Subject> {
        let (gone, rest) = std::mem::take(&mut self.chains).into_iter().partition(|chain| is_such(&chain.subject));
        self.chains = rest;
        let gone: Vec<Chain> = gone;
        gone.into_iter()
            .map(|chain| {
                if chain.open.is_sent {
                    self.out.push(Effect::CancelHook(chain.call_id()));
                }
                chain.subject
            })
            .collect()
    }

    /// The hooks that the turn, or the session, waits for are asked no more.
    pub(super) fn cancel_stage_hooks(&mut self) {
        for subject in self.cancel_hooks(Subject::holds_the_stage) {
            match subject {
                Subject::Calls(calls) => self.drop_uncalled(*calls),
                Subject::Navigation(wish) => self.stay_here(&wish),
                Subject::Input(offered) => self.refuse_unseen(&offered.caller),
                _ => {}
            }
        }
    }
}

impl Chain {
    fn call_id(&self) -> CallId {
        self.open.call.call_id.clone()
    }

    pub(super) fn is_of_input(&self) -> bool {
        self.input_id().is_some()
    }
}

impl Open {
    /// Its client is not connected.
    fn leaves(&mut self, now: Timestamp) {
        self.away_since = self.away_since.or(Some(now));
    }

    /// Its client, or another one that offers it, is here: its time limit goes on where it stood still.
    fn returns(&mut self, now: Timestamp) {
        if let Some(since) = self.away_since.take() {
            let away_ms = now.millis_since(since);
            self.away_left_ms = self.away_left_ms.saturating_sub(away_ms);
            self.deadline = self.deadline.later(away_ms);
        }
    }

    /// When it is waited for no more.
    fn due(&self) -> Timestamp {
        self.away_since.map_or(self.deadline.at, |since| since.plus_millis(self.away_left_ms))
    }

    fn late(&self) -> HookFault {
        if self.away_since.is_some() {
            return HookFault::unavailable("its client is not connected, and did not come back in time");
        }
        let limit_ms = self.deadline.timeout_ms;
        HookFault {
            code: ErrorCode::HookTimeout,
            message: format!("it did not answer within its limit of {limit_ms} ms, nor say that it is still at work"),
        }
    }
}

/// Specs of the client's hooks, shared from loop to loop.
pub(super) type ClientHooks = Arc<[HookSpec]>;

#[cfg(test)]
mod tests;
