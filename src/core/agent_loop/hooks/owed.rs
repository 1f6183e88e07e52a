//! Required hooks whose client is gone: another one owns the session, or the session was read from the store.
//!
//! A required hook fails closed, so work that was accepted under it must not go on without it. [`Owed`] says which
//! hooks those are and which work needs them: the turn that was running and the inputs that were waiting. The hooks are
//! asked like those of a client that is away, until a client offers them again or the work is done.
//!
//! Invariant: the session's state names the required hooks with the step that begins a turn or puts an input in line,
//! so a restart at any moment finds them.

use super::{
    super::{AgentLoop, info::session_updated},
    Chain, Subject,
};
use crate::hook::{HOOKS_MAX, HookPlace, HookSpec};
use reseed_protocol::{
    CommandId, TurnId,
    event::Event,
    hook::{HookOffer, HookPoint},
};
use std::{collections::BTreeSet, sync::Arc};

/// Hooks that may be owed one by one: those of one client that was taken over from, and of the one before it. Beyond it
/// a hook is added only where none is owed at its point, which is enough to fail closed.
const OWED_MAX: usize = 2 * HOOKS_MAX;

/// Required hooks whose client is gone, and the work that needs them. It lives from loop to loop.
#[derive(Debug, Clone, Default)]
pub struct Owed {
    hooks: Arc<[HookSpec]>,
    /// The turn that was running.
    turn: Option<TurnId>,
    /// The commands whose inputs were waiting. As many as the queue and the line before it hold.
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

/// Whether a required hook is asked wherever the other one is.
fn stands_for(hook: &HookSpec, other: &HookSpec) -> bool {
    HookSpec { name: other.name.clone(), ..hook.clone() }.covers(other)
}

impl AgentLoop {
    /// Whether work is waiting that needs a client's required hooks.
    #[must_use]
    pub fn needs_its_client(&self) -> bool {
        let has_required = self.client_hooks.iter().any(|spec| spec.required);
        self.owed.has_work() || (has_required && (self.session.state.turn.is_some() || self.has_queue()))
    }

    fn has_queue(&self) -> bool {
        !self.session.state.queue.is_empty()
    }

    /// The session was read from the store: what waits was accepted under hooks that no client offers yet.
    pub(in crate::agent_loop) fn owe_what_was_kept(&mut self) {
        let specs: Vec<HookSpec> = self.session.state.hooks.iter().map(spec_of).collect();
        if !specs.is_empty() {
            self.owe(specs);
        }
    }

    /// Another client owns the session from now on: what was begun under the hooks of the one before still needs them.
    pub(in crate::agent_loop) fn on_host_left(&mut self) {
        let gone = std::mem::take(&mut self.client_hooks);
        self.owe(gone.iter().filter(|spec| spec.required).cloned().collect());
    }

    fn owe(&mut self, hooks: Vec<HookSpec>) {
        if hooks.is_empty() {
            return;
        }
        self.owed.turn = self.session.state.turn.as_ref().map(|turn| turn.turn_id.clone());
        self.owed.inputs.extend(self.session.state.queue.iter().map(|item| item.command_id.clone()));
        let waiting: Vec<CommandId> = self.inputs_waiting().cloned().collect();
        self.owed.inputs.extend(waiting);
        self.owed.add(hooks.into_iter());
        self.forget_what_is_done();
    }

    /// Work that is done needs no hooks any more.
    pub(in crate::agent_loop) fn forget_what_is_done(&mut self) {
        if self.owed.hooks.is_empty() {
            return;
        }
        let state = &self.session.state;
        let mut inputs = std::mem::take(&mut self.owed.inputs);
        inputs.retain(|id| {
            state.queue.iter().any(|item| item.command_id == *id)
                || state.turn.as_ref().is_some_and(|turn| turn.command_ids.contains(id))
                || self.inputs_waiting().any(|waiting| waiting == id)
        });
        let is_running = |id: &TurnId| self.session.state.turn.as_ref().is_some_and(|turn| turn.turn_id == *id);
        let turn = self.owed.turn.take().filter(is_running);
        let hooks = std::mem::take(&mut self.owed.hooks);
        let owed = Owed { hooks, turn, inputs };
        self.owed = if owed.has_work() { owed } else { Owed::default() };
    }

    /// The owed hooks that the running turn needs and that no client offers.
    pub(super) fn owed_to_turn(&self) -> impl Iterator<Item = &HookSpec> {
        let turn = self.session.state.turn.as_ref();
        let needs = turn.is_some_and(|turn| {
            self.owed.turn.as_ref() == Some(&turn.turn_id)
                || turn.command_ids.iter().any(|id| self.owed.inputs.contains(id))
        });
        self.still_owed().filter(move |_| needs)
    }

    /// The same for an input that is not accepted yet.
    pub(super) fn owed_to_input(&self, id: &CommandId) -> impl Iterator<Item = &HookSpec> {
        let needs = self.owed.inputs.contains(id);
        self.still_owed().filter(move |_| needs)
    }

    fn still_owed(&self) -> impl Iterator<Item = &HookSpec> {
        self.owed.hooks.iter().filter(|owed| !self.client_hooks.iter().any(|offered| offered.covers(owed)))
    }

    /// Whether the client offers a hook of this name at this point.
    pub(super) fn is_offered(&self, spec: &HookSpec) -> bool {
        self.client_hooks.iter().any(|offered| offered.name == spec.name && offered.point == spec.point)
    }

    /// Whether this place cannot be asked now: it is of a client that does not offer the hook.
    pub(super) fn is_gone(&self, place: HookPlace, spec: &HookSpec) -> bool {
        place == HookPlace::Client && !self.is_offered(spec)
    }

    /// Whether any hook is asked about what this command says.
    pub(in crate::agent_loop) fn has_input_hooks(&self, id: &CommandId) -> bool {
        self.hooks_on_input(id).any(|(_, spec)| spec.is_asked(HookPoint::Message, None))
    }

    /// The hooks that are asked about an input.
    pub(super) fn hooks_on_input(&self, id: &CommandId) -> impl Iterator<Item = (HookPlace, &HookSpec)> {
        self.hooks_here().chain(self.owed_to_input(id).map(|spec| (HookPlace::Client, spec)))
    }

    /// The required hooks of clients under which work is begun from now on, if the session's state names others.
    pub(in crate::agent_loop) fn hooks_to_keep(&self) -> Option<Event> {
        let required = self.client_hooks.iter().filter(|spec| spec.required);
        let hooks: Vec<HookOffer> = required.chain(self.still_owed()).map(offer_of).collect();
        (hooks != self.session.state.hooks).then(|| session_updated(|updated| updated.hooks = Some(hooks)))
    }

    /// Keeps them where work is under way that needs them.
    pub(super) fn keep_hooks_of_work(&mut self) {
        if (self.session.state.turn.is_some() || self.has_queue())
            && let Some(event) = self.hooks_to_keep()
        {
            self.append(vec![event], Vec::new());
        }
    }
}

impl Chain {
    /// The command whose input hooks look at.
    pub(super) fn input_id(&self) -> Option<&CommandId> {
        match &self.subject {
            Subject::Input(offered) => Some(&offered.caller.id),
            _ => None,
        }
    }
}

/// Whether a step begins work that hooks may be needed for.
pub(in crate::agent_loop) fn begins_work(events: &[Event]) -> bool {
    events.iter().any(|event| match event {
        Event::TurnStarted(_) => true,
        Event::QueueChanged(changed) => !changed.items.is_empty(),
        _ => false,
    })
}

fn spec_of(offer: &HookOffer) -> HookSpec {
    HookSpec {
        name: offer.name.clone().unwrap_or_default(),
        point: offer.event,
        reasons: offer.reasons.clone().unwrap_or_default(),
        timeout_ms: offer.timeout_ms,
        required: true,
        observe: false,
    }
}

fn offer_of(spec: &HookSpec) -> HookOffer {
    HookOffer {
        name: Some(spec.name.clone()),
        event: spec.point,
        reasons: Some(spec.reasons.clone()).filter(|reasons| !reasons.is_empty()),
        timeout_ms: spec.timeout_ms,
        required: None,
        observe: None,
    }
}
