//! The ledger: the state that all machines of the loop share.
//!
//! It holds the session, its strategy, the parts of the next request, and what the current input has produced: effects
//! and steps. Appending an event changes the session and emits the write in one call, so the two never differ.

use crate::agent_loop::io::{Append, CallModel, Caller, Effect, Mark, RequestId};
use crate::{
    agent_loop::{
        deployment::Deployment,
        hooks::chain::InputChains,
        late::EndedCalls,
        prompt::Prompt,
        records::{done, session_updated},
        roster::Roster,
        seed::Seed,
        step::Step,
        turn::memory::TurnMemory,
    },
    compaction::machine::memory::CompactionMemory,
};
use crate::{
    compaction::{ContextManager, strategies::threshold::Threshold, strategy::Options},
    model::ModelRequest,
    session::{IdSource, Session},
};
use reseed_protocol::{
    Entry, EntryData, EntryId, ErrorBody, Timestamp, TurnId,
    context::RequestOptions,
    event::{EphemeralEvent, Event, SessionUpdated},
    ids::InvalidId,
    reply::{Done, Reply},
};
use std::{str::FromStr, sync::Arc};

/// The state that all machines share.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) generation: u64,
    pub(crate) deployment: Arc<Deployment>,
    pub(crate) session: Session,
    pub(crate) prompt: Prompt,
    /// Calls that are over: what late answers to them are compared with.
    pub(crate) ended: EndedCalls,
    /// The time of the current input.
    pub(crate) now: Timestamp,
    /// The session's strategy, built from its settings.
    manager: Box<dyn ContextManager>,
    ids: IdSource,
    next_request: u64,
    /// True once the next loop is being seeded: this one does nothing more.
    is_over: bool,
    /// True if no turn may start: the server is stopping, or nobody is connected.
    holding: bool,
    /// True if the model or strategy has changed: this loop ends at the next request.
    reseed_due: bool,
    /// The error for every pending command if the loop is being stopped.
    ending: Option<Box<ErrorBody>>,
    /// The steps to take once the current one is over, in order.
    next: Vec<Step>,
    /// The effects of the current input.
    out: Vec<Effect>,
}

impl Ledger {
    /// Builds the ledger of a loop from the parts of its seed that belong to no machine.
    pub(crate) fn seeded(generation: u64, seed: Seed) -> Self {
        let Seed { mut session, deployment, calibration, next_request, holding, ids, prompt, ended, .. } = seed;
        let counter = deployment.counter(&session.state.model);
        let mut this = Self {
            generation,
            prompt: Prompt::new(prompt, counter, calibration, &mut session),
            deployment,
            session,
            ended,
            now: Timestamp(0),
            // Replaced below, once the path's patches are known.
            manager: Box::new(Threshold::new(Options::default())),
            ids,
            next_request,
            is_over: false,
            holding,
            reseed_due: false,
            ending: None,
            next: Vec::new(),
            out: Vec::new(),
        };
        this.adopt_tools();
        this.refresh_manager();
        this
    }

    /// Returns the seed of the next loop, with what the machines hand to it. The path is counted again if the next
    /// loop's model uses a different counter.
    pub(crate) fn into_seed(
        self,
        roster: Roster,
        turn: TurnMemory,
        compaction: CompactionMemory,
        hooks: InputChains,
    ) -> Seed {
        let Self { mut session, deployment, next_request, ids, prompt, ended, holding, .. } = self;
        let counter = deployment.counter(&session.state.model);
        if counter.method() != prompt.counter().method() {
            session.tree.recount(&counter);
        }
        let (calibration, prompt) = prompt.into_carried();
        Seed {
            session,
            deployment,
            calibration,
            next_request,
            holding,
            ids,
            prompt,
            roster,
            ended,
            turn,
            compaction,
            hooks,
        }
    }

    /// Returns the session's strategy.
    pub(crate) fn manager(&self) -> &dyn ContextManager {
        &*self.manager
    }

    /// Rebuilds the strategy from the settings. Must be called when they change, or the maximum answer length does.
    pub(crate) fn refresh_manager(&mut self) {
        let (state, options) = (&self.session.state, self.strategy_options());
        let made =
            self.deployment.strategies.make(&state.strategy, state.settings.strategy_settings.as_ref(), &options);
        // A newer version's log may name a strategy unknown to this one; that must not close the session.
        self.manager = made.unwrap_or_else(|_| Box::new(Threshold::new(options)));
    }

    /// Recompiles everything sent before the messages. Must be called when the instructions change.
    pub(crate) fn refresh_fixed(&mut self) {
        let own = self.session.state.settings.instructions.as_deref();
        self.prompt.refresh(own.unwrap_or(&self.deployment.instructions), self.session.tree.carried());
    }

    /// Returns the default strategy settings, for a session that has none of its own.
    pub(crate) fn strategy_options(&self) -> Options {
        let asked = self.session.tree.carried().options(&self.options()).max_output_tokens;
        let max_output_tokens = self.deployment.output_tokens(asked);
        Options { max_output_tokens, ..self.deployment.options.clone() }
    }

    /// Returns the request options before any patch.
    pub(crate) fn options(&self) -> RequestOptions {
        let settings = &self.session.state.settings;
        RequestOptions {
            temperature: settings.temperature,
            max_output_tokens: settings.max_output_tokens,
            reasoning_effort: settings.reasoning_effort.clone(),
        }
    }

    /// Returns a new id.
    pub(crate) fn new_id<T: FromStr<Err = InvalidId>>(&mut self) -> T {
        self.ids.next_id()
    }

    /// Returns a new id as text.
    pub(crate) fn new_text(&mut self) -> String {
        self.ids.next_text()
    }

    /// Queues a step behind those that the current step has queued.
    pub(crate) fn then(&mut self, step: Step) {
        self.next.push(step);
    }

    /// Takes the steps that the current step has queued, in order.
    pub(crate) fn take_steps(&mut self) -> impl DoubleEndedIterator<Item = Step> {
        self.next.drain(..)
    }

    /// Frees the room for steps, which an idle session does not need.
    pub(crate) fn free_steps(&mut self) {
        self.next = Vec::new();
    }

    /// Adds an effect of the current input.
    pub(crate) fn push(&mut self, effect: Effect) {
        self.out.push(effect);
    }

    /// Publishes a transient event.
    pub(crate) fn emit(&mut self, event: EphemeralEvent) {
        self.push(Effect::Emit(event));
    }

    /// Sends a request for a summary to the model; it makes way for users' requests if nobody waits for it.
    pub(crate) fn call_for_summary(&mut self, body: ModelRequest, makes_way: bool) -> RequestId {
        self.call(body, None, false, makes_way)
    }

    /// Sends a request to the model; its answer is streamed as `shown_as`, or only shown once complete if `withheld`.
    pub(crate) fn call_model(
        &mut self,
        body: ModelRequest,
        shown_as: Option<(EntryId, TurnId)>,
        withheld: bool,
    ) -> RequestId {
        self.call(body, shown_as, withheld, false)
    }

    fn call(
        &mut self,
        body: ModelRequest,
        shown_as: Option<(EntryId, TurnId)>,
        withheld: bool,
        makes_way: bool,
    ) -> RequestId {
        let request = RequestId(self.next_request);
        self.next_request += 1;
        self.push(Effect::CallModel(Box::new(CallModel { request, body, shown_as, withheld, makes_way })));
        request
    }

    /// Ends the current input. Returns its effects, in order.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        self.ending = None;
        std::mem::take(&mut self.out)
    }

    /// Lets no turn start.
    pub(crate) fn hold(&mut self) {
        self.holding = true;
    }

    /// Lets turns start again.
    pub(crate) fn resume(&mut self) {
        self.holding = false;
    }

    /// Returns true if no turn may start.
    pub(crate) fn is_holding(&self) -> bool {
        self.holding
    }

    /// Notes that the model or strategy has changed: this loop ends at the next request.
    pub(crate) fn require_reseed(&mut self) {
        self.reseed_due = true;
    }

    /// Returns true if this loop ends at the next request.
    pub(crate) fn is_reseed_due(&self) -> bool {
        self.reseed_due
    }

    /// Sets the error for every command that is no longer waited for, until the current input is over.
    pub(crate) fn refuse_pending_with(&mut self, error: Box<ErrorBody>) {
        self.ending = Some(error);
    }

    /// Returns the reply to a command that is no longer waited for: why the session is stopping, or this error.
    pub(crate) fn ending_or(&self, error: ErrorBody) -> Reply {
        Reply::Error(self.ending.as_deref().cloned().unwrap_or(error))
    }

    /// Applies events to the session and emits them as one durable step.
    pub(crate) fn append(&mut self, events: Vec<Event>, marks: Vec<Mark>) {
        let begins_work = |event: &Event| matches!(event, Event::TurnStarted(_) | Event::QueueItemAdded(_));
        debug_assert!(!events.iter().any(begins_work), "what begins work is appended with the hooks that it needs");
        self.write(events, marks);
    }

    /// Appends events that begin work, with the required hooks that it is accepted under: see `Roster::to_keep`.
    pub(crate) fn append_work(&mut self, mut events: Vec<Event>, hooks: Option<Event>, marks: Vec<Mark>) {
        events.extend(hooks);
        self.write(events, marks);
    }

    fn write(&mut self, events: Vec<Event>, marks: Vec<Mark>) {
        for event in &events {
            self.prompt.note(event, &self.session.state);
            self.session.apply(event, self.prompt.counter());
        }
        self.follow_patches();
        self.out.push(Effect::Append(Append { events, marks }));
    }

    /// Recompiles everything sent before the messages, and rebuilds the strategy, if the path's patches have changed.
    fn follow_patches(&mut self) {
        if !self.prompt.follows(self.session.tree.carried()) {
            self.refresh_fixed();
            self.refresh_manager();
        }
    }

    /// Replies to a command that wrote nothing.
    pub(crate) fn reply(&mut self, caller: &Caller, reply: Reply) {
        self.out.push(Effect::Reply { origin: caller.origin, id: caller.id.clone(), reply });
    }

    /// Answers a copy of an answer that was taken.
    pub(crate) fn reply_duplicate(&mut self, caller: &Caller) {
        let as_of_seq = Some(self.session.state.seq);
        self.reply(caller, Reply::Ok(Done { as_of_seq, duplicate: Some(true), ..Done::default() }));
    }

    /// Remembers a command that writes no event, and replies `ok`.
    pub(crate) fn remember(&mut self, caller: &Caller) {
        let mark = caller.mark(done(Some(self.session.state.seq)));
        self.append(Vec::new(), vec![mark]);
    }

    /// Appends entries and a session update in one step, and replies `ok`.
    pub(crate) fn update(&mut self, caller: &Caller, entries: Vec<Event>, change: impl FnOnce(&mut SessionUpdated)) {
        let mark = caller.mark(done(Some(self.session.state.seq)));
        let mut events = entries;
        events.push(session_updated(|updated| {
            updated.command_id = Some(caller.id.clone());
            change(updated);
        }));
        self.append(events, vec![mark]);
    }

    /// Ends this loop: the next one is seeded and continues.
    pub(crate) fn hand_over(&mut self) {
        self.out.push(Effect::Reseed);
        self.is_over = true;
    }

    /// Returns true once the next loop is being seeded.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns the running turn's id.
    pub(crate) fn turn_id(&self) -> Option<TurnId> {
        self.session.state.turn.as_ref().map(|turn| turn.turn_id.clone())
    }

    /// Returns an entry whose parent is the leaf.
    pub(crate) fn entry(&self, entry_id: EntryId, data: EntryData) -> Entry {
        Entry { entry_id, parent_id: self.session.state.leaf.clone(), timestamp: self.now, imported: None, data }
    }
}
