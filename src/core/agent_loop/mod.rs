//! The agent loop: a value with one total function from what happened to what should now be done.
//!
//! Contract: tell it what happened ([`AgentLoop::handle`]), carry out every effect it returns, in order, each to its
//! end. It never waits, never fails, and knows no clock.
//!
//! A loop has a generation. It is built only from what the tree says ([`AgentLoop::seeded`]) and torn down at every
//! compaction, navigation, model or strategy change, so it can be dropped at any moment and made again, here or after a
//! crash, and the next request is the same. Answers to requests of an older loop carry request ids that no later loop
//! knows: they are late words, expected and dropped.
//!
//! - `commands`: what clients ask; `queue`: what waits; `navigate`: moving about in the tree; `annotate`: names and
//!   data
//! - `turn`: asking the model; `overflow`: when it refuses or fails; `tools`: calling tools
//! - `plan`: whether and how to compact; `compact`: a compaction at work, in the background or waited for; `commit`:
//!   writing what it came to; `held`: keeping it until it is due; `fail`: one that comes to nothing; `preview`: looking
//!   at one first; `keep`: pins, and taking a compaction back
//! - `hooks`: asking code of others' at defined points
//! - `made_of`: what a request consists of, compiled and counted
//! - `receipts`: what each request shares with the one before it
//! - `weight`: which inputs take long
//! - `instructions`: what summaries are asked to look at
//! - `info`: the meter, the report and the snapshot; `shown`: what the next request would send

mod annotate;
mod commands;
mod commit;
mod compact;
mod deployment;
mod fail;
mod held;
mod hooks;
mod info;
mod instructions;
pub mod io;
mod keep;
mod made_of;
mod navigate;
mod overflow;
mod plan;
mod preview;
mod queue;
mod receipts;
mod shown;
mod tools;
mod turn;
mod weight;

#[cfg(test)]
mod random_orders;
#[cfg(test)]
mod random_scripts;

pub use deployment::{Deployment, Summaries};
pub use hooks::{Added, Inputs, Owed, TurnHooks};
pub use info::{Snapshot, usage_percent};
pub use instructions::INSTRUCTIONS_WINDOW_PART;
pub use io::{Append, CallHook, CallModel, Effect, Input, Mark, Origin, RequestId};
pub use keep::{PINS_MAX, pins_without, undo_target};
pub use preview::Prepared;
pub use receipts::Receipts;
pub use tools::{TOOLS_MAX, Tools, check_offers};

use compact::{Ready, Running};
use hooks::{Chain, ClientHooks};
use tools::SentTools;

use crate::{
    context::{
        ContextManager, RequestCount,
        compaction::Order,
        counter::{Calibration, Counter, Estimator},
        envelope::Compiled,
        guards::Guards,
        strategies::threshold::Threshold,
        strategy::Options,
    },
    hook::HookSpec,
    session::{IdSource, Session},
};
use reseed_protocol::{
    CallId, EntryId, ErrorBody, Timestamp,
    context::SystemPart,
    event::{Event, TurnStatus},
    receipt::{HookRun, Receipt},
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// What requests of a session showed of its model's window, as long as the session stays in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// The largest count that was answered.
    pub answered_tokens_max: u64,
    /// The count of a request that ended without a word and is being compacted for.
    pub empty_tokens: Option<u64>,
    /// The count of the last such request whose question was answered once it was smaller.
    pub too_large_tokens: Option<u64>,
}

/// From what a loop is made: the session as its log says, and what goes from one loop to the next.
#[derive(Debug)]
pub struct Seed {
    /// The session.
    pub session: Session,
    /// What the deployment says.
    pub deployment: Arc<Deployment>,
    /// The tools on offer. They belong to the owner's client, which offers them again after a restart.
    pub tools: Tools,
    /// How far this model's estimates were off so far.
    pub calibration: Calibration,
    /// Makes ids.
    pub ids: IdSource,
    /// The number of the next request, so that no later loop knows an earlier one's.
    pub next_request: u64,
    /// A compaction that was asked for and not yet begun.
    pub ordered: Option<Order>,
    /// What was seen of the model's window.
    pub seen: Seen,
    /// How automatic compaction went.
    pub guards: Guards,
    /// A compaction that was previewed and may be applied.
    pub preview: Option<Box<Prepared>>,
    /// The hooks of the owner's client. Like its tools they are offered again after a restart.
    pub client_hooks: Arc<[HookSpec]>,
    /// Required hooks whose client is gone, and the work that needs them.
    pub owed: Owed,
    /// How far the running turn is with its hooks.
    pub turn_hooks: TurnHooks,
    /// The inputs that hooks look at, and those that wait behind them.
    pub inputs: Inputs,
    /// The hooks that were asked for the request to come.
    pub hook_runs: Vec<HookRun>,
    /// What the last request was, and what happened since.
    pub receipts: Receipts,
    /// What hooks added for the last request alone.
    pub added: Added,
    /// No turn is to begin any more: the server will stop.
    pub holding: bool,
}

impl Seed {
    /// The first seed of a session.
    #[must_use]
    pub fn new(session: Session, deployment: Arc<Deployment>, calibration: Calibration, ids: IdSource) -> Self {
        let receipts = Receipts::read(session.tree.path());
        Self {
            session,
            deployment,
            tools: Tools::default(),
            calibration,
            ids,
            next_request: 1,
            ordered: None,
            seen: Seen::default(),
            guards: Guards::default(),
            preview: None,
            client_hooks: Arc::default(),
            owed: Owed::default(),
            turn_hooks: TurnHooks::default(),
            inputs: Inputs::default(),
            hook_runs: Vec::new(),
            receipts,
            added: Added::default(),
            holding: false,
        }
    }
}

/// What the loop is doing.
#[derive(Debug)]
enum Stage {
    /// Nothing.
    Idle,
    /// The model is answering.
    Asking { request: RequestId, item: EntryId, asked: Box<Asked> },
    /// The answer is being stopped; what was shown of it comes back.
    Stopping { request: RequestId, item: EntryId, status: TurnStatus, asked: Box<Asked> },
    /// Hooks are asked before anything goes on.
    Hooking,
    /// Tools are at work: those of the state's pending calls.
    AwaitingTools,
    /// Waiting for the compaction at work.
    Compacting,
    /// The model is summarising the branch that a client leaves.
    Leaving { request: RequestId, leaving: Box<navigate::Move> },
    /// The next loop is being seeded; this one does nothing more.
    Done,
}

/// What a request was made with: model and settings may change before its answer comes.
#[derive(Debug)]
struct Asked {
    count: RequestCount,
    model: String,
    envelope_key: String,
    /// Nothing of its answer is shown before it is whole.
    withheld: bool,
    /// The client's hooks that were to look at it, by name: without them nothing of it goes on.
    guards: Vec<String>,
    receipt: Receipt,
    tools: SentTools,
}

/// The loop. See the head of this file.
#[derive(Debug)]
pub struct AgentLoop {
    generation: u64,
    deployment: Arc<Deployment>,
    session: Session,
    tools: Tools,
    calibration: Calibration,
    ids: IdSource,
    next_request: u64,
    ordered: Option<Order>,
    seen: Seen,
    guards: Guards,
    /// The compaction at work, whether anybody waits for it or not.
    running: Option<Running>,
    /// A compaction that is made and waits for a place between two requests.
    ready: Option<Box<Ready>>,
    preview: Option<Box<Prepared>>,
    client_hooks: ClientHooks,
    owed: Owed,
    turn_hooks: TurnHooks,
    hook_runs: Vec<HookRun>,
    receipts: Receipts,
    added: Added,
    /// The questions to hooks that are open: one that the turn or the session waits for, one of the compaction at work,
    /// one about an input, and one for each tool's answer that hooks look at.
    chains: Vec<Chain>,
    /// Inputs behind the one that hooks look at, in the order in which they came.
    line: VecDeque<hooks::InLine>,
    holding: bool,
    /// When it was last told something.
    now: Timestamp,

    manager: Box<dyn ContextManager>,
    counter: Counter,
    /// The system prompt before any patch.
    parts: Vec<SystemPart>,
    compiled: Compiled,
    stage: Stage,
    deadlines: BTreeMap<CallId, Deadline>,
    /// Model or strategy changed: this loop ends at the next request.
    reseed_due: bool,
    /// Something was pinned after the place was read to which a move goes: what of it stands there is read once more.
    pinned_before_move: bool,
    /// The user was told that the window is nearly full.
    warned: bool,
    /// What was said in the middle of the turn is to be counted and told.
    meter_due: bool,
    /// The count that was told last in the middle of a turn, and when.
    metered: Option<(u64, Timestamp)>,
    /// A compaction failed in this turn: it is not tried again before the turn is over, so that a summary that always
    /// fails is not asked for before every round of tools.
    gave_up: bool,
    /// Why the loop is being stopped: what each command is told that still waits for something.
    ending: Option<Box<ErrorBody>>,
    out: Vec<Effect>,
}

/// When a tool call fails.
#[derive(Debug, Clone, Copy)]
struct Deadline {
    at: Timestamp,
    /// Progress does not move it beyond this.
    at_most: Timestamp,
    timeout_ms: u64,
}

impl AgentLoop {
    /// Makes the loop of this generation from what the tree says. Tell it [`Input::Seeded`] or [`Input::Recovered`].
    #[must_use]
    pub fn seeded(generation: u64, mut seed: Seed) -> Self {
        let state = &seed.session.state;
        // Replaced below, where the patches of the path are known.
        let manager = Box::new(Threshold::new(Options::default()));
        let counter = Counter::chosen(seed.deployment.estimator, &state.model);
        if counter.estimator() != Estimator::Own {
            // Whoever read the path from the store counted it by the model.
            seed.session.tree.recount(&counter);
        }
        let mut this = Self {
            generation,
            deployment: seed.deployment,
            session: seed.session,
            tools: seed.tools,
            calibration: seed.calibration,
            ids: seed.ids,
            next_request: seed.next_request,
            ordered: seed.ordered,
            seen: seed.seen,
            guards: seed.guards,
            running: None,
            ready: None,
            preview: seed.preview,
            client_hooks: seed.client_hooks,
            owed: seed.owed,
            turn_hooks: seed.turn_hooks,
            hook_runs: seed.hook_runs,
            receipts: seed.receipts,
            added: seed.added,
            chains: seed.inputs.asked.into_iter().collect(),
            line: seed.inputs.line,
            holding: seed.holding,
            now: Timestamp(0),
            manager,
            counter,
            parts: Vec::new(),
            compiled: Compiled::default(),
            stage: Stage::Idle,
            deadlines: BTreeMap::new(),
            reseed_due: false,
            pinned_before_move: false,
            warned: false,
            meter_due: false,
            metered: None,
            gave_up: false,
            ending: None,
            out: Vec::new(),
        };
        this.refresh_fixed();
        this.refresh_manager();
        this
    }

    /// What the next loop is made from. A change of model is a change of counter: then the path is counted anew.
    #[must_use]
    pub fn into_seed(mut self) -> Seed {
        let next = Counter::chosen(self.deployment.estimator, &self.session.state.model);
        if next.method() != self.counter.method() {
            self.session.tree.recount(&next);
        }
        Seed {
            session: self.session,
            deployment: self.deployment,
            tools: self.tools,
            calibration: self.calibration,
            ids: self.ids,
            next_request: self.next_request,
            ordered: self.ordered,
            seen: self.seen,
            guards: self.guards,
            preview: self.preview,
            client_hooks: self.client_hooks,
            owed: self.owed,
            turn_hooks: self.turn_hooks,
            inputs: Inputs { asked: self.chains.into_iter().find(Chain::is_of_input), line: self.line },
            hook_runs: self.hook_runs,
            receipts: self.receipts,
            added: self.added,
            holding: self.holding,
        }
    }

    /// Takes one input to completion and returns what the outside should now do, in order.
    #[must_use]
    pub fn handle(&mut self, now: Timestamp, input: Input) -> Vec<Effect> {
        self.now = now;
        match (&self.stage, input) {
            (Stage::Done, _) => {}
            (_, Input::Seeded) => {
                self.proceed();
                self.prepare_idle();
                self.next_in_line();
            }
            (_, Input::Recovered) => self.recover(),
            (_, Input::Command { origin, id, fingerprint, command, place }) => {
                let place = place.map(|place| *place);
                self.on_command(commands::Caller { origin, id, fingerprint }, *command, place);
            }
            (Stage::Asking { request: asked, .. }, Input::Answered { request, answer }) if *asked == request => {
                self.on_answer(answer);
            }
            (Stage::Asking { request: asked, .. }, Input::Failed { request, fault }) if *asked == request => {
                self.on_fault(&fault);
            }
            (Stage::Stopping { request: asked, .. }, Input::Cancelled { request, shown }) if *asked == request => {
                self.on_stopped(shown);
            }
            (_, Input::Answered { request, answer }) if self.is_running(request) => self.on_summary(&answer),
            (_, Input::Failed { request, fault }) if self.is_running(request) => self.on_summary_fault(&fault),
            (Stage::Leaving { request: asked, .. }, Input::Answered { request, answer }) if *asked == request => {
                self.on_branch_summary(&answer);
            }
            (Stage::Leaving { request: asked, .. }, Input::Failed { request, fault }) if *asked == request => {
                self.on_branch_summary_fault(&fault);
            }
            (_, Input::HookAnswered { call_id, answer }) => self.on_hook_answer(&call_id, *answer),
            (_, Input::HostLeft) => self.on_host_left(),
            (_, Input::AskAgain { only_away }) => self.ask_again(only_away),
            (_, Input::Tick) => self.on_tick(),
            (_, Input::Hold(error)) => self.on_hold(&error),
            (_, Input::Go) => {
                self.holding = false;
                if matches!(self.stage, Stage::Idle) {
                    self.proceed();
                }
            }
            (_, Input::Stop(error)) => self.on_stop(error),
            // Late words of a request that was cancelled, or of an older loop's.
            (_, Input::Answered { .. } | Input::Failed { .. } | Input::Cancelled { .. }) => {}
        }
        self.check_held();
        self.tell_meter();
        self.forget_what_is_done();
        std::mem::take(&mut self.out)
    }

    /// When [`Input::Tick`] is due, if ever.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let tools = match self.stage {
            Stage::AwaitingTools => self.deadlines.values().map(|deadline| deadline.at).min(),
            _ => None,
        };
        tools.into_iter().chain(self.compaction_deadline()).chain(self.next_hook_deadline()).min()
    }

    /// Returns true if the path in memory may lack what the log makes the model see: the next loop is seeded with the
    /// path as it is read from the store.
    #[must_use]
    pub fn has_stale_path(&self) -> bool {
        self.pinned_before_move && matches!(self.stage, Stage::Done)
    }

    /// The session as this loop knows it.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// How often the session's loop was seeded.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether nothing is running and nothing waits: the session may leave memory.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        !self.is_busy() && self.running.is_none() && self.chains.is_empty()
    }

    /// Whether something keeps a new input from being asked at once. A compaction that is made meanwhile does not.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        let waits = self.session.state.queue.iter().any(|item| item.after.is_none()) && !self.holding;
        !matches!(self.stage, Stage::Idle) || self.session.state.turn.is_some() || waits || self.looks_at_input()
    }

    /// Takes the next step that the tree calls for: a compaction that was ordered, the next request, the next input.
    fn proceed(&mut self) {
        self.stage = Stage::Idle;
        if let Some(ready) = self.ready.take()
            && self.commit_ready(*ready)
        {
            return;
        }
        if let Some(order) = self.ordered.take()
            && self.start_ordered(order)
        {
            return;
        }
        if self.reseed_due {
            self.reseed();
            return;
        }
        if self.session.state.turn.is_some() {
            self.deliver_steered();
            self.request();
            return;
        }
        if self.holding {
            return;
        }
        self.deliver_custom();
        if !self.session.state.queue.is_empty() {
            self.start_queued();
        }
    }

    /// Ends this loop; the next one goes on.
    fn reseed(&mut self) {
        self.void_running("another model or strategy was chosen");
        let generation = Some(self.generation + 1);
        self.append(vec![info::session_updated(|updated| updated.generation = generation)], Vec::new());
        self.out.push(Effect::Reseed);
        self.stage = Stage::Done;
    }

    /// Takes events into the session and has them written as one step.
    fn append(&mut self, mut events: Vec<Event>, marks: Vec<Mark>) {
        if hooks::begins_work(&events) {
            self.forget_what_is_done();
            events.extend(self.hooks_to_keep());
        }
        for event in &events {
            self.receipts.note(event, &self.session.state);
            self.session.apply(event, &self.counter);
            if matches!(event, Event::TurnStarted(_) | Event::TurnFinished(_)) {
                self.turn_hooks = TurnHooks::default();
                self.hook_runs.clear();
            }
        }
        if *self.session.tree.carried() != self.compiled.carried {
            self.refresh_fixed();
            self.refresh_manager();
        }
        self.out.push(Effect::Append(Append { events, marks }));
    }

    fn next_request_id(&mut self) -> RequestId {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        id
    }
}
