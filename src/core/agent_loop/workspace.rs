//! The workspace: what every machine of the loop works on.
//!
//! It holds the session, the parts of the next request, and the effects of the input at hand. Appending an event
//! changes the session and asks for it to be written, in one call: the two never differ.

use super::{
    Append, Deployment, Effect, Mark, RequestId,
    commands::Caller,
    hooks::{Roster, begins_work},
    prompt::{self, Prompt, done, session_updated},
    stage::Current,
    step::Step,
};
use crate::{
    context::{
        ContextManager,
        counter::{Calibration, Counter},
        strategies::threshold::Threshold,
        strategy::Options,
    },
    session::{IdSource, Session},
};
use reseed_protocol::{
    Entry, EntryData, EntryId, ErrorBody, Timestamp,
    event::{Event, SessionUpdated},
    reply::Reply,
};
use std::sync::Arc;

/// What every machine works on.
#[derive(Debug)]
pub(super) struct Workspace {
    pub(super) generation: u64,
    pub(super) deployment: Arc<Deployment>,
    pub(super) session: Session,
    /// The session's strategy, made from its settings.
    pub(super) manager: Box<dyn ContextManager>,
    pub(super) prompt: Prompt,
    pub(super) roster: Roster,
    /// Makes ids.
    pub(super) ids: IdSource,
    pub(super) next_request: u64,
    /// The time of the input at hand.
    pub(super) now: Timestamp,
    pub(super) stage: Current,
    /// True if no turn may begin: the server is stopping, or nobody is here.
    pub(super) holding: bool,
    /// Model or strategy changed: this loop ends at the next request.
    pub(super) reseed_due: bool,
    /// Why the loop is being stopped: what each command is told that still waits for something.
    pub(super) ending: Option<Box<ErrorBody>>,
    /// What happens once the step at hand is over, in order.
    pub(super) next: Vec<Step>,
    /// The effects of the input at hand.
    pub(super) out: Vec<Effect>,
}

impl Workspace {
    #[expect(clippy::too_many_arguments, reason = "one for each part that goes from loop to loop")]
    pub(super) fn new(
        generation: u64,
        mut session: Session,
        deployment: Arc<Deployment>,
        calibration: Calibration,
        next_request: u64,
        ids: IdSource,
        prompt: prompt::Carried,
        roster: Roster,
    ) -> Self {
        let counter = Counter::chosen(deployment.estimator, &session.state.model);
        let prompt = Prompt::new(prompt, counter, calibration, &mut session);
        // Replaced below, where the patches of the path are known.
        let manager = Box::new(Threshold::new(Options::default()));
        let now = Timestamp(0);
        let (next, out) = (Vec::new(), Vec::new());
        let mut this = Self {
            generation,
            deployment,
            session,
            manager,
            prompt,
            roster,
            ids,
            next_request,
            now,
            stage: Current::new(),
            holding: false,
            reseed_due: false,
            ending: None,
            next,
            out,
        };
        this.refresh_fixed();
        this.refresh_manager();
        this
    }

    /// Counts the path anew where the next loop's model counts otherwise.
    pub(super) fn recount_for_next(&mut self) {
        let next = Counter::chosen(self.deployment.estimator, &self.session.state.model);
        if next.method() != self.prompt.counter.method() {
            self.session.tree.recount(&next);
        }
    }

    /// Takes events into the session and asks for them to be written as one step.
    pub(super) fn append(&mut self, mut events: Vec<Event>, marks: Vec<Mark>) {
        if begins_work(&events) {
            self.roster.forget_what_is_done(&self.session.state);
            events.extend(self.roster.to_keep(&self.session.state));
        }
        for event in &events {
            self.prompt.carried.receipts.note(event, &self.session.state);
            self.session.apply(event, &self.prompt.counter);
        }
        if *self.session.tree.carried() != self.prompt.compiled.carried {
            self.refresh_fixed();
            self.refresh_manager();
        }
        self.out.push(Effect::Append(Append { events, marks }));
    }

    /// Answers a command that wrote nothing.
    pub(super) fn reply(&mut self, caller: &Caller, reply: Reply) {
        self.out.push(Effect::Reply { origin: caller.origin, id: caller.id.clone(), reply });
    }

    /// Remembers a command that writes no event, and answers `ok`.
    pub(super) fn remember(&mut self, caller: &Caller) {
        let mark = caller.mark(done(Some(self.session.state.seq)));
        self.append(Vec::new(), vec![mark]);
    }

    /// Writes entries and a change of the session in one step, and answers `ok`.
    pub(super) fn update(&mut self, caller: &Caller, entries: Vec<Event>, change: impl FnOnce(&mut SessionUpdated)) {
        let mark = caller.mark(done(Some(self.session.state.seq)));
        let mut events = entries;
        events.push(session_updated(|updated| {
            updated.command_id = Some(caller.id.clone());
            change(updated);
        }));
        self.append(events, vec![mark]);
    }

    /// Returns an entry that hangs from the leaf.
    pub(super) fn entry(&self, entry_id: EntryId, data: EntryData) -> Entry {
        Entry { entry_id, parent_id: self.session.state.leaf.clone(), timestamp: self.now, imported: None, data }
    }

    pub(super) fn next_request_id(&mut self) -> RequestId {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        id
    }
}
