//! The workspace: the state that all machines of the loop share.
//!
//! It holds the session, the parts of the next request, and the effects of the current input. Appending an event
//! changes the session and emits the write in one call, so the two never differ.

use super::{
    Append, Deployment, Effect, Mark, RequestId, Seed,
    commands::Caller,
    hooks::{Roster, begins_work},
    prompt::{Prompt, done, session_updated},
    step::Step,
};
use crate::{
    context::{ContextManager, strategies::threshold::Threshold, strategy::Options},
    session::{IdSource, Session},
};
use reseed_protocol::{
    Entry, EntryData, EntryId, ErrorBody, Timestamp,
    event::{Event, SessionUpdated},
    reply::Reply,
};
use std::sync::Arc;

/// The state that all machines share.
#[derive(Debug)]
pub(super) struct Workspace {
    pub(super) generation: u64,
    pub(super) deployment: Arc<Deployment>,
    pub(super) session: Session,
    /// The session's strategy, built from its settings.
    pub(super) manager: Box<dyn ContextManager>,
    pub(super) prompt: Prompt,
    pub(super) roster: Roster,
    /// The source of ids.
    pub(super) ids: IdSource,
    pub(super) next_request: u64,
    /// The time of the current input.
    pub(super) now: Timestamp,
    /// True once the next loop is being seeded: this one does nothing more.
    is_over: bool,
    /// True if no turn may start: the server is stopping, or nobody is connected.
    pub(super) holding: bool,
    /// True if the model or strategy has changed: this loop ends at the next request.
    pub(super) reseed_due: bool,
    /// The error for every pending command if the loop is being stopped.
    pub(super) ending: Option<Box<ErrorBody>>,
    /// The steps to take once the current one is over, in order.
    pub(super) next: Vec<Step>,
    /// The effects of the current input.
    pub(super) out: Vec<Effect>,
}

impl Workspace {
    /// Builds the workspace of a loop from the parts of its seed that belong to no machine.
    pub(super) fn seeded(generation: u64, seed: Seed) -> Self {
        let Seed { mut session, deployment, calibration, next_request, holding, ids, prompt, roster, .. } = seed;
        let counter = deployment.counter(&session.state.model);
        let mut this = Self {
            generation,
            prompt: Prompt::new(prompt, counter, calibration, &mut session),
            deployment,
            session,
            // Replaced below, once the path's patches are known.
            manager: Box::new(Threshold::new(Options::default())),
            roster,
            ids,
            next_request,
            now: Timestamp(0),
            is_over: false,
            holding,
            reseed_due: false,
            ending: None,
            next: Vec::new(),
            out: Vec::new(),
        };
        this.refresh_fixed();
        this.refresh_manager();
        this
    }

    /// Counts the path again if the next loop's model uses a different counter.
    pub(super) fn recount_for_next(&mut self) {
        let next = self.deployment.counter(&self.session.state.model);
        if next.method() != self.prompt.counter().method() {
            self.session.tree.recount(&next);
        }
    }

    /// Applies events to the session and emits them as one durable step.
    pub(super) fn append(&mut self, mut events: Vec<Event>, marks: Vec<Mark>) {
        if begins_work(&events) {
            self.roster.forget_what_is_done(&self.session.state);
            events.extend(self.roster.to_keep(&self.session.state));
        }
        for event in &events {
            self.prompt.note(event, &self.session.state);
            self.session.apply(event, self.prompt.counter());
        }
        self.follow_patches();
        self.out.push(Effect::Append(Append { events, marks }));
    }

    /// Replies to a command that wrote nothing.
    pub(super) fn reply(&mut self, caller: &Caller, reply: Reply) {
        self.out.push(Effect::Reply { origin: caller.origin, id: caller.id.clone(), reply });
    }

    /// Remembers a command that writes no event, and replies `ok`.
    pub(super) fn remember(&mut self, caller: &Caller) {
        let mark = caller.mark(done(Some(self.session.state.seq)));
        self.append(Vec::new(), vec![mark]);
    }

    /// Appends entries and a session update in one step, and replies `ok`.
    pub(super) fn update(&mut self, caller: &Caller, entries: Vec<Event>, change: impl FnOnce(&mut SessionUpdated)) {
        let mark = caller.mark(done(Some(self.session.state.seq)));
        let mut events = entries;
        events.push(session_updated(|updated| {
            updated.command_id = Some(caller.id.clone());
            change(updated);
        }));
        self.append(events, vec![mark]);
    }

    /// Ends this loop: the next one is seeded and continues.
    pub(super) fn hand_over(&mut self) {
        self.out.push(Effect::Reseed);
        self.is_over = true;
    }

    /// Returns true once the next loop is being seeded.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns an entry whose parent is the leaf.
    pub(super) fn entry(&self, entry_id: EntryId, data: EntryData) -> Entry {
        Entry { entry_id, parent_id: self.session.state.leaf.clone(), timestamp: self.now, imported: None, data }
    }

    pub(super) fn next_request_id(&mut self) -> RequestId {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        id
    }
}
