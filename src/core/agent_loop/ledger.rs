//! The ledger: the session, and the effects and steps that the current input has produced.
//!
//! Every machine writes to it. Appending an event changes the session and emits the write in one call, so the two never
//! differ. The ledger is below the machines, the prompt and the roster, and knows none of them. So the caller of an
//! append that begins work passes in the required hooks, and the prompt picks up the path's patches after the step that
//! appended them.

use crate::agent_loop::io::{Append, CallModel, Caller, Effect, Mark, RequestId};
use crate::agent_loop::{
    causes::Causes,
    deployment::Deployment,
    late::EndedCalls,
    records::{done, session_updated},
    seed::Seed,
    step::Step,
};
use crate::usage_row::UsagePurpose;
use crate::{
    compaction::strategy::Options,
    context::{
        Context,
        counter::{Calibration, Counter},
        node::Node,
        windows::WINDOW_TOKENS_MIN,
    },
    model::ModelRequest,
    session::{IdSource, Session, SessionState},
};
use reseed_protocol::{
    CommandId, Entry, EntryData, EntryId, ErrorBody, Timestamp, TurnId,
    context::RequestOptions,
    event::{EphemeralEvent, Event},
    ids::InvalidId,
    reply::{Done, Reply},
    session::SessionUpdated,
    turn::{QueueReleased, TurnStarted},
};
use std::{str::FromStr, sync::Arc};

/// The session of a loop, and the results of its current input.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) generation: u64,
    pub(crate) deployment: Arc<Deployment>,
    pub(crate) session: Session,
    /// The causes noted since the last request was sent.
    pub(crate) causes: Causes,
    /// Calls that are over; late answers are compared with them.
    pub(crate) ended: EndedCalls,
    /// The time of the current input.
    pub(crate) now: Timestamp,
    /// The counter of the session's model. It counts each entry once.
    counter: Counter,
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
    /// The steps to take after the current one, in order.
    next: Vec<Step>,
    /// The effects of the current input.
    out: Vec<Effect>,
}

impl Ledger {
    /// Builds the ledger of a loop from its parts of the seed.
    pub(crate) fn seeded(generation: u64, seed: Seed) -> Self {
        let Seed { mut session, deployment, next_request, holding, ids, ended, causes, .. } = seed;
        let counter = deployment.counter(&session.state.model);
        if counter.method() != Counter::for_model(&session.state.model).method() {
            // The store's reader counted the path with the model's default counter.
            session.tree.recount(&counter);
        }
        Self {
            generation,
            deployment,
            session,
            causes,
            ended,
            now: Timestamp(0),
            counter,
            ids,
            next_request,
            is_over: false,
            holding,
            reseed_due: false,
            ending: None,
            next: Vec::new(),
            out: Vec::new(),
        }
    }

    /// Returns this loop's part of the seed for the next loop. If the next loop's model uses a different counter, the
    /// path is counted again.
    pub(crate) fn into_seed(self, calibration: Calibration) -> Seed {
        let Self { mut session, deployment, next_request, ids, ended, causes, holding, .. } = self;
        let counter = deployment.counter(&session.state.model);
        if counter.method() != self.counter.method() {
            session.tree.recount(&counter);
        }
        Seed {
            session,
            deployment,
            calibration,
            next_request,
            holding,
            ids,
            ended,
            causes,
            prompt: Default::default(),
            roster: Default::default(),
            turn: Default::default(),
            compaction: Default::default(),
            hooks: Default::default(),
        }
    }

    /// Returns the default strategy settings, for a session that has none of its own.
    pub(crate) fn strategy_options(&self) -> Options {
        let asked = self.session.tree.carried().options(&self.options()).max_output_tokens;
        let max_output_tokens = self.deployment.output_tokens(asked);
        Options { max_output_tokens, ..self.deployment.options.clone() }
    }

    /// Returns the request options before any patch.
    pub(crate) fn options(&self) -> RequestOptions {
        let settings = &self.state().settings;
        RequestOptions {
            temperature: settings.temperature,
            top_p: settings.top_p,
            max_output_tokens: settings.max_output_tokens,
            reasoning_effort: settings.reasoning_effort.clone(),
            answer: settings.answer.clone(),
        }
    }

    /// Returns the counter of the session's model.
    pub(crate) fn counter(&self) -> &Counter {
        &self.counter
    }

    /// Returns the window of the session's model.
    pub(crate) fn window_tokens(&self) -> u64 {
        let known = self.deployment.windows.tokens(&self.state().model);
        self.state().settings.learned_window_tokens.map_or(known, |learned| learned.min(known))
    }

    /// Remembers the window that a refused summary request names, but none smaller than what the model's last answer
    /// read.
    pub(crate) fn remember_told_window(&mut self, tokens: u64) {
        let read = self.last_read_tokens().unwrap_or(0);
        self.remember_window(tokens.max(read));
    }

    /// Returns the tokens that the model's last stored answer read.
    pub(crate) fn last_read_tokens(&self) -> Option<u64> {
        let model = &self.state().model;
        let path = self.path();
        let mut answers = path.iter().rev().filter_map(|node| node.entry.message());
        let answer = answers.find(|message| message.usage.is_some() && message.model.as_ref() == Some(model))?;
        answer.usage.as_ref().map(|usage| usage.input_tokens)
    }

    /// Remembers, for this session, a window smaller than the current one.
    pub(crate) fn remember_window(&mut self, tokens: u64) {
        let tokens = tokens.max(WINDOW_TOKENS_MIN);
        if tokens < self.window_tokens() {
            self.learn_window(Some(tokens));
        }
    }

    /// Records the learned window; `None` restores the known one.
    pub(crate) fn learn_window(&mut self, window_tokens: Option<u64>) {
        let mut settings = self.state().settings.clone();
        settings.learned_window_tokens = window_tokens;
        self.append(vec![session_updated(|updated| updated.settings = Some(settings))], Vec::new());
    }

    /// Returns true if a system prompt leaves room for a conversation, because no compaction removes a system prompt.
    pub(crate) fn fits_as_system_prompt(&self, text: &str) -> bool {
        self.counter.system(text) <= self.window_tokens() / 2
    }

    /// Returns the session's state.
    pub(crate) fn state(&self) -> &SessionState {
        &self.session.state
    }

    /// Returns the path to the leaf.
    pub(crate) fn path(&self) -> &[Arc<Node>] {
        self.session.tree.path()
    }

    /// Returns the model's context as it is now.
    pub(crate) fn context(&self) -> Arc<Context> {
        self.session.tree.context()
    }

    /// Returns a new id.
    pub(crate) fn new_id<T: FromStr<Err = InvalidId>>(&mut self) -> T {
        self.ids.next_id()
    }

    /// Returns a new id as text.
    pub(crate) fn new_text(&mut self) -> String {
        self.ids.next_text()
    }

    /// Queues a step after those that the current step has queued.
    pub(crate) fn then(&mut self, step: Step) {
        self.next.push(step);
    }

    /// Takes the steps that the current step has queued, in order.
    pub(crate) fn take_steps(&mut self) -> impl DoubleEndedIterator<Item = Step> {
        self.next.drain(..)
    }

    /// Frees the memory of the step queue, which an idle session does not need.
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

    /// Sends a request to the model. Its answer is streamed as `shown_as`, or shown only once complete if `withheld`.
    /// If it `makes_way`, it yields to users' requests.
    pub(crate) fn call_model(
        &mut self,
        body: ModelRequest,
        shown_as: Option<(EntryId, TurnId)>,
        withheld: bool,
        makes_way: bool,
        spent_on: UsagePurpose,
    ) -> RequestId {
        let request = RequestId(self.next_request);
        self.next_request += 1;
        self.push(Effect::CallModel(Box::new(CallModel { request, body, shown_as, withheld, makes_way, spent_on })));
        request
    }

    /// Ends the current input. Returns its effects, in order.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        self.ending = None;
        std::mem::take(&mut self.out)
    }

    /// Prevents turns from starting.
    pub(crate) fn hold(&mut self) {
        self.holding = true;
    }

    /// Allows turns to start again.
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

    /// Sets the error for every command that is no longer waited for, until the current input has been handled.
    pub(crate) fn refuse_pending_with(&mut self, error: Box<ErrorBody>) {
        self.ending = Some(error);
    }

    /// Returns the reply to a command that is no longer waited for: the reason why the session is stopping, or this
    /// error.
    pub(crate) fn ending_or(&self, error: ErrorBody) -> Reply {
        Reply::Error(self.ending.as_deref().cloned().unwrap_or(error))
    }

    /// Applies events to the session and emits them as one durable step.
    pub(crate) fn append(&mut self, events: Vec<Event>, marks: Vec<Mark>) {
        let begins_work = |event: &Event| matches!(event, Event::TurnStarted(_) | Event::QueueItemAdded(_));
        debug_assert!(!events.iter().any(begins_work), "what begins work is appended with the hooks that it needs");
        self.write(events, marks);
    }

    /// Appends events that begin work, together with the required hooks under which it is accepted: see
    /// `Roster::hooks_to_keep`.
    pub(crate) fn append_work(&mut self, mut events: Vec<Event>, hooks: Option<Event>, marks: Vec<Mark>) {
        events.extend(hooks);
        self.write(events, marks);
    }

    fn write(&mut self, events: Vec<Event>, marks: Vec<Mark>) {
        for event in &events {
            self.causes.note(event, &self.session.state);
            self.session.apply(event, &self.counter);
        }
        self.out.push(Effect::Append(Append { events, marks }));
    }

    /// Replies to a command that wrote nothing.
    pub(crate) fn reply(&mut self, caller: &Caller, reply: Reply) {
        self.out.push(Effect::Reply { origin: caller.origin, id: caller.id.clone(), reply });
    }

    /// Replies to a duplicate of an answer that was taken.
    pub(crate) fn reply_duplicate(&mut self, caller: &Caller) {
        let as_of_seq = Some(self.state().seq);
        self.reply(caller, Reply::Ok(Done { as_of_seq, duplicate: Some(true), ..Done::default() }));
    }

    /// Remembers a command that writes no event, and replies `ok`.
    pub(crate) fn remember(&mut self, caller: &Caller) {
        let mark = caller.mark(done(Some(self.state().seq)));
        self.append(Vec::new(), vec![mark]);
    }

    /// Appends entries and a session update in one step, and replies `ok`.
    pub(crate) fn update(&mut self, caller: &Caller, entries: Vec<Event>, change: impl FnOnce(&mut SessionUpdated)) {
        let mark = caller.mark(done(Some(self.state().seq)));
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

    /// Returns the event for a turn that starts.
    pub(crate) fn turn_started(&self, turn_id: TurnId, command_ids: Vec<CommandId>) -> Event {
        Event::TurnStarted(TurnStarted { turn_id, command_ids, generation: self.generation })
    }

    /// Returns the queue's change after a completed move: inputs sent during it may now be delivered.
    pub(crate) fn released(&self, command_id: &CommandId) -> Option<Event> {
        let held = self.state().queue.iter().any(|item| item.after.is_some());
        held.then(|| Event::QueueReleased(QueueReleased { command_id: Some(command_id.clone()) }))
    }

    /// Returns the running turn's id.
    pub(crate) fn turn_id(&self) -> Option<TurnId> {
        self.state().turn.as_ref().map(|turn| turn.turn_id.clone())
    }

    /// Returns an entry whose parent is the leaf.
    pub(crate) fn entry(&self, entry_id: EntryId, data: EntryData) -> Entry {
        Entry { entry_id, parent_id: self.state().leaf.clone(), timestamp: self.now, imported: None, data }
    }
}
