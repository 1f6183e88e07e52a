//! The roster: decides which hooks are called at which point.
//!
//! It combines the server's hooks with those of the client that hosts the session, and with owed hooks. Owed hooks are
//! required hooks whose client is gone: another client is the host, or the session was read from the store. A required
//! hook fails closed, so work accepted under it must not continue without it. Owed hooks are treated like those of a
//! client that is away, until a client offers them again or the work is done.
//!
//! Invariant: the append that starts a turn or queues an input also stores the required hooks in the session's state,
//! so that a restart at any moment finds them.

use crate::agent_loop::{
    deadline::Deadline, io::CallHook, io::Effect, ledger::Ledger, records::session_updated, subject::Subject,
};
use crate::{
    hook::{HOOKS_MAX, HookPlace, HookSpec},
    session::SessionState,
};
use reseed_protocol::{
    CommandId, TurnId,
    event::Event,
    hooks::{ContextReason, HookCall, HookEvent, HookOffer, HookPoint},
};
use std::{collections::BTreeSet, sync::Arc};

/// Maximum number of hooks owed individually: those of the last host, and of the one before it. Beyond it, a hook is
/// added only if none is owed at its point, which is enough to fail closed.
const OWED_MAX: usize = 2 * HOOKS_MAX;

/// The client hooks, passed from loop to loop.
#[derive(Debug, Clone, Default)]
pub(crate) struct Roster {
    /// The hooks that the host offers. Like its tools, it must offer them again after a restart.
    client: Arc<[HookSpec]>,
    owed: Owed,
    /// The commands whose inputs are not accepted yet: the one that hooks are inspecting, and those in line behind it.
    waiting: BTreeSet<CommandId>,
}

/// Required hooks whose client is gone, and the work that needs them.
#[derive(Debug, Clone, Default)]
struct Owed {
    hooks: Arc<[HookSpec]>,
    /// The turn that was running.
    turn: Option<TurnId>,
    /// The commands whose inputs were waiting. The queue and the line before it bound their number.
    inputs: BTreeSet<CommandId>,
}

impl Owed {
    fn has_work(&self) -> bool {
        self.turn.is_some() || !self.inputs.is_empty()
    }

    fn add(&mut self, hooks: impl Iterator<Item = HookSpec>) {
        let mut owed = self.hooks.to_vec();
        for spec in hooks {
            let is_at_its_point = |other: &HookSpec| stands_for(other, &spec) || other.covers(&spec);
            let is_there = match owed.len() < OWED_MAX {
                true => owed.iter().any(|other| other.covers(&spec)),
                false => owed.iter().any(is_at_its_point),
            };
            if !is_there {
                owed.push(spec);
            }
        }
        self.hooks = owed.into();
    }
}

/// Returns true if this required hook is called at every point where the other one is.
fn stands_for(hook: &HookSpec, other: &HookSpec) -> bool {
    HookSpec { name: other.name.clone(), ..hook.clone() }.covers(other)
}

impl Roster {
    /// Replaces the hooks that the client offers.
    pub(crate) fn offer(&mut self, hooks: Arc<[HookSpec]>) {
        self.client = hooks;
    }

    /// Notes which inputs are not accepted yet.
    pub(crate) fn note_waiting(&mut self, waiting: BTreeSet<CommandId>) {
        self.waiting = waiting;
    }

    /// Returns true if pending work needs a client's required hooks.
    pub(crate) fn needs_its_client(&self, state: &SessionState) -> bool {
        let has_required = self.client.iter().any(|spec| spec.required);
        self.owed.has_work() || (has_required && has_work(state))
    }

    /// Marks the stored required hooks as owed after the session was read from the store: pending work was accepted
    /// under hooks that no client offers yet.
    pub(crate) fn owe_what_was_kept(&mut self, state: &SessionState) {
        self.owe(state, state.hooks.iter().map(spec_of).collect());
    }

    /// Marks the previous host's required hooks as owed after another client has become the host: work started under
    /// them still needs them.
    pub(crate) fn host_left(&mut self, state: &SessionState) {
        let gone = std::mem::take(&mut self.client);
        self.owe(state, gone.iter().filter(|spec| spec.required).cloned().collect());
    }

    fn owe(&mut self, state: &SessionState, hooks: Vec<HookSpec>) {
        if hooks.is_empty() {
            return;
        }
        self.owed.turn = state.turn.as_ref().map(|turn| turn.turn_id.clone());
        self.owed.inputs.extend(state.queue.iter().map(|item| item.command_id.clone()));
        self.owed.inputs.extend(self.waiting.iter().cloned());
        self.owed.add(hooks.into_iter());
        self.forget_what_is_done(state);
    }

    /// Drops owed hooks whose work is done.
    pub(crate) fn forget_what_is_done(&mut self, state: &SessionState) {
        if self.owed.hooks.is_empty() {
            return;
        }
        self.owed.inputs.retain(|id| {
            state.queue.iter().any(|item| item.command_id == *id)
                || state.turn.as_ref().is_some_and(|turn| turn.command_ids.contains(id))
                || self.waiting.contains(id)
        });
        let is_running = |id: &TurnId| state.turn.as_ref().is_some_and(|turn| turn.turn_id == *id);
        self.owed.turn = self.owed.turn.take().filter(is_running);
        if !self.owed.has_work() {
            self.owed = Owed::default();
        }
    }

    /// Returns the owed hooks that the running turn needs and no client offers.
    fn owed_to_turn(&self, state: &SessionState) -> impl Iterator<Item = &HookSpec> {
        let turn = state.turn.as_ref();
        let needs = turn.is_some_and(|turn| {
            self.owed.turn.as_ref() == Some(&turn.turn_id)
                || turn.command_ids.iter().any(|id| self.owed.inputs.contains(id))
        });
        self.still_owed().filter(move |_| needs)
    }

    /// Returns the owed hooks that this unaccepted input needs.
    fn owed_to_input(&self, id: &CommandId) -> impl Iterator<Item = &HookSpec> {
        let needs = self.owed.inputs.contains(id);
        self.still_owed().filter(move |_| needs)
    }

    fn still_owed(&self) -> impl Iterator<Item = &HookSpec> {
        self.owed.hooks.iter().filter(|owed| !self.client.iter().any(|offered| offered.covers(owed)))
    }

    /// Returns true if the client offers a hook of this name at this point.
    pub(crate) fn is_offered(&self, spec: &HookSpec) -> bool {
        self.client.iter().any(|offered| offered.name == spec.name && offered.point == spec.point)
    }

    /// Returns true if this hook cannot be called now: it belongs to a client that does not offer it.
    pub(crate) fn is_gone(&self, place: HookPlace, spec: &HookSpec) -> bool {
        place == HookPlace::Client && !self.is_offered(spec)
    }

    /// Returns the names of the required client hooks that must inspect an answer. Server hooks are always present.
    pub(crate) fn guards(&self, state: &SessionState) -> Vec<String> {
        let guards = self.client.iter().chain(self.owed_to_turn(state));
        let guards = guards.filter(|spec| spec.point == HookPoint::Message && spec.required);
        guards.map(|spec| spec.name.clone()).collect()
    }

    /// Returns the first of these hooks that the client no longer offers as required.
    pub(crate) fn missing_guard<'a>(&self, state: &SessionState, guards: &'a [String]) -> Option<&'a str> {
        let here = self.guards(state);
        let count = |among: &[String], name: &str| among.iter().filter(|other| *other == name).count();
        guards.iter().map(String::as_str).find(|name| count(&here, name) < count(guards, name))
    }

    /// Returns the hooks of the server and of the host.
    fn here<'a>(&'a self, ledger: &'a Ledger) -> impl Iterator<Item = (HookPlace, &'a HookSpec)> {
        let server = ledger.deployment.hooks.iter().map(|spec| (HookPlace::Server, spec));
        server.chain(self.client.iter().map(|spec| (HookPlace::Client, spec)))
    }

    /// Returns all hooks that apply to the running turn.
    pub(crate) fn of_turn<'a>(&'a self, ledger: &'a Ledger) -> impl Iterator<Item = (HookPlace, &'a HookSpec)> {
        let owed = self.owed_to_turn(ledger.state());
        self.here(ledger).chain(owed.map(|spec| (HookPlace::Client, spec)))
    }

    /// Returns the hooks that are called for an input.
    pub(crate) fn of_input<'a>(
        &'a self,
        ledger: &'a Ledger,
        id: &CommandId,
    ) -> impl Iterator<Item = (HookPlace, &'a HookSpec)> {
        self.here(ledger).chain(self.owed_to_input(id).map(|spec| (HookPlace::Client, spec)))
    }

    /// Returns true if any hook is called for this command's input.
    pub(crate) fn inspects_input(&self, ledger: &Ledger, id: &CommandId) -> bool {
        self.of_input(ledger, id).any(|(_, spec)| spec.is_asked(HookPoint::Message, None))
    }

    /// Returns true if any hook is called at this point.
    pub(crate) fn has_hooks(&self, ledger: &Ledger, point: HookPoint, reason: Option<ContextReason>) -> bool {
        self.of_turn(ledger).any(|(_, spec)| spec.is_asked(point, reason))
    }

    /// Returns true if any hook at this point must be waited for.
    pub(crate) fn awaits_hooks(&self, ledger: &Ledger, point: HookPoint) -> bool {
        self.of_turn(ledger).any(|(_, spec)| spec.point == point && !spec.observe)
    }

    /// Notifies the observing hooks.
    pub(crate) fn tell(&self, ledger: &mut Ledger, subject: &Subject, event: &HookEvent) {
        let (point, reason) = subject.point();
        let observers = self.of_turn(ledger).filter(|(_, spec)| spec.observe && spec.is_asked(point, reason));
        let observers: Vec<(HookPlace, HookSpec)> = observers.map(|(place, spec)| (place, spec.clone())).collect();
        for (place, spec) in observers {
            let _ = call_hook(ledger, subject, event.clone(), place, &spec, false);
        }
    }

    /// Stores the required hooks if work in progress needs them.
    pub(crate) fn keep_for_work(&mut self, ledger: &mut Ledger) {
        if has_work(ledger.state())
            && let Some(event) = self.hooks_to_keep(ledger.state())
        {
            ledger.append(vec![event], Vec::new());
        }
    }

    /// Returns an update of the required client hooks stored in the session's state, if they have changed.
    pub(crate) fn hooks_to_keep(&mut self, state: &SessionState) -> Option<Event> {
        self.forget_what_is_done(state);
        let required = self.client.iter().filter(|spec| spec.required);
        let hooks: Vec<HookOffer> = required.chain(self.still_owed()).map(offer_of).collect();
        (hooks != state.hooks).then(|| session_updated(|updated| updated.hooks = Some(hooks)))
    }
}

/// Returns true if the server no longer has this hook.
pub(crate) fn has_lost(ledger: &Ledger, place: HookPlace, spec: &HookSpec) -> bool {
    place == HookPlace::Server && !ledger.deployment.hooks.iter().any(|here| here.overlaps(spec))
}

/// Calls a hook, unless no client offers it now (`is_gone`).
pub(crate) fn call_hook(
    ledger: &mut Ledger,
    subject: &Subject,
    event: HookEvent,
    place: HookPlace,
    spec: &HookSpec,
    is_gone: bool,
) -> (HookCall, Deadline) {
    let timeout_ms = spec.timeout_ms.unwrap_or(ledger.deployment.hook_timeout_ms);
    let deadline = Deadline::after(ledger.now, timeout_ms);
    let call = HookCall {
        call_id: ledger.new_id(),
        hook: spec.name.clone(),
        session_id: ledger.session.id.clone(),
        turn_id: ledger.turn_id().filter(|_| subject.is_of_turn()),
        deadline: (!spec.observe).then_some(deadline.at),
        event,
    };
    if !is_gone {
        ledger.push(Effect::CallHook(Box::new(CallHook { place, call: call.clone(), awaited: !spec.observe })));
    }
    (call, deadline)
}

fn has_work(state: &SessionState) -> bool {
    state.turn.is_some() || !state.queue.is_empty()
}

fn spec_of(offer: &HookOffer) -> HookSpec {
    HookSpec {
        name: offer.name.clone().unwrap_or_default(),
        point: offer.point,
        reasons: offer.reasons.clone().unwrap_or_default(),
        timeout_ms: offer.timeout_ms,
        required: true,
        observe: false,
    }
}

fn offer_of(spec: &HookSpec) -> HookOffer {
    HookOffer {
        name: Some(spec.name.clone()),
        point: spec.point,
        reasons: Some(spec.reasons.clone()).filter(|reasons| !reasons.is_empty()),
        timeout_ms: spec.timeout_ms,
        required: None,
        observe: None,
    }
}
