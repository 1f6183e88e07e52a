//! Random scripts: whatever happens, the loop keeps its promises.
//!
//! A failure prints its seed; `SEED=72 cargo test -p reseed-core random_scripts` replays it alone, and `SCRIPTS=20000`
//! runs more. `DIGESTS=FILE` writes a digest of each script's effects, which a purely structural change must not alter.

mod hooks;
mod promises;
mod steps;
mod tools;

use super::{AgentLoop, CallHook, Deployment, Effect, Input, Origin, RequestId, Seed};
use crate::{
    compaction::{Held, strategy::Options},
    context::{
        counter::{Calibration, Counter},
        windows::Windows,
    },
    hook::HookSpec,
    model::{Answer, Purpose},
    session::{Destination, IdSource, Lookup, Session, SessionState, SessionTree, tree::PathReader},
};
use fastrand::Rng;
use reseed_protocol::{
    CallId, CommandId, Entry, EntryId, JobId, Part, StopReason, Timestamp, command::SessionCommand, event::Event,
    turn::EditQueue,
};
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

const SCRIPTS: u64 = 300;
const STEPS: usize = 70;

/// The loop's surroundings: the log, the model, time.
struct World {
    rng: Rng,
    seed: u64,
    now: Timestamp,
    agent: AgentLoop,
    log: Vec<Event>,
    entries: BTreeMap<EntryId, Entry>,
    /// The acknowledged inputs by command, each with the number of times that it was appended.
    said: BTreeMap<CommandId, u32>,
    waiting: HashSet<CommandId>,
    asked: BTreeMap<RequestId, Purpose>,
    forgotten: Vec<RequestId>,
    calls: Vec<CallId>,
    /// The calls that run in the server.
    running: Vec<CallId>,
    /// Every call that has ever started there.
    started: BTreeSet<CallId>,
    hooks: Vec<HookSpec>,
    /// Pending hook calls.
    hook_calls: Vec<CallHook>,
    /// The pending calls whose client is away.
    away: Vec<CallHook>,
    /// The calls that are no longer awaited.
    hushed: Vec<CallId>,
    /// The first words of inputs that hooks replaced.
    taken_out: Vec<String>,
    /// True if a hook changed cached messages for the next request alone.
    overlaid: bool,
    commands: u64,
    replies: HashSet<CommandId>,
    open_turn: bool,
    undone: usize,
    /// The held compaction, and whether the process has died since.
    held: Option<JobId>,
    crashed_since_held: bool,
    of_held: usize,
    of_held_after_crash: usize,
    /// Digest of all effects, if requested.
    digest: Option<u64>,
}

fn deployment(hooks: Vec<HookSpec>) -> Arc<Deployment> {
    Arc::new(Deployment {
        model: "test".into(),
        strategy: "threshold".into(),
        instructions: "Be brief.".into(),
        options: Options::default(),
        summaries: super::Summaries::default(),
        windows: Windows::new(Some(1_500), Vec::new()),
        tool_timeout_ms: 10_000,
        tool_rounds_max: 4,
        queue_items_max: 3,
        tool_parallel_max: 2,
        turn_timeout_ms: Some(600_000),
        server_tools: tools::server_tools(),
        approval_expiry_ms: 1_800_000,
        hooks,
        ..Deployment::default()
    })
}

fn unwritten() -> Session {
    let mut session = Session::new("session".parse().unwrap(), Timestamp(0));
    session.state_mut().model = "test".into();
    session.state_mut().strategy = "threshold".into();
    session
}

impl World {
    fn new(seed: u64) -> Self {
        let calibration = Calibration::new(Counter::for_model("test").method());
        let mut rng = Rng::with_seed(seed);
        let hooks = hooks::some_hooks(&mut rng);
        let deployment = deployment(hooks.clone());
        let agent = AgentLoop::seeded(1, Seed::new(unwritten(), deployment, calibration, IdSource::seeded(seed)));
        let mut world = Self {
            rng,
            seed,
            now: Timestamp(1_000_000),
            agent,
            log: Vec::new(),
            entries: BTreeMap::new(),
            said: BTreeMap::new(),
            waiting: HashSet::new(),
            asked: BTreeMap::new(),
            forgotten: Vec::new(),
            calls: Vec::new(),
            running: Vec::new(),
            started: BTreeSet::new(),
            hooks,
            hook_calls: Vec::new(),
            away: Vec::new(),
            hushed: Vec::new(),
            taken_out: Vec::new(),
            overlaid: false,
            commands: 0,
            replies: HashSet::new(),
            open_turn: false,
            undone: 0,
            held: None,
            crashed_since_held: false,
            of_held: 0,
            of_held_after_crash: 0,
            digest: None,
        };
        world.tell(Input::Recovered);
        world
    }

    /// Passes an input to the loop and adds its effects and state to the digest.
    fn told(&mut self, input: Input) -> Vec<Effect> {
        let effects = self.agent.handle(self.now, input);
        if self.digest.is_some() {
            let agent = &self.agent;
            let says = (agent.snapshot(), agent.next_deadline(), agent.is_idle(), agent.is_busy(), agent.tripped());
            let waits = (agent.answers_late(), agent.open_client_calls(), agent.waits_for_client());
            let rest = (agent.needs_its_client(), agent.has_stale_path(), agent.leaving_by(), agent.generation());
            let text = format!("{:?} {effects:?} {says:?} {waits:?} {rest:?}", self.digest);
            self.digest = Some(crate::fingerprint::fingerprint_of(&text));
        }
        effects
    }

    fn tell(&mut self, input: Input) {
        let effects = self.told(input);
        self.carry_out(effects);
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        let mut waiting: std::collections::VecDeque<Effect> = effects.into();
        let mut rounds = 0;
        while let Some(effect) = waiting.pop_front() {
            rounds += 1;
            assert!(rounds < 1_000, "seed {}: effects without end", self.seed);
            match effect {
                Effect::Append(append) => self.append(append),
                Effect::Reply { id, reply, .. } => self.replied(id, &reply),
                Effect::CallModel(call) => self.call(&call),
                Effect::CancelModel(request) => {
                    if self.asked.remove(&request).is_some() {
                        self.forgotten.push(request);
                    }
                    let shown = if self.rng.bool() { vec![Part::Text { text: "half".into() }] } else { Vec::new() };
                    waiting.extend(self.told(Input::Cancelled { request, shown }));
                }
                Effect::Reseed => {
                    let generation = self.agent.generation() + 1;
                    let seed = self.next_seed();
                    self.agent = AgentLoop::seeded(generation, seed);
                    // The new loop ignores answers to the old loop's requests.
                    self.forgotten.extend(std::mem::take(&mut self.asked).into_keys());
                    waiting.extend(self.told(Input::Seeded));
                }
                Effect::CallHook(call) => self.asked(*call),
                Effect::CancelHook(id) => self.hush(id),
                Effect::ToolsRefused(_) | Effect::CallWritten(_) | Effect::ContextCut { .. } | Effect::Hurry(_) => {}
                Effect::CallTool(call) => self.tool_started(*call),
                Effect::CancelTool(id) => self.running.retain(|running| *running != id),
                Effect::Emit(_) | Effect::Calibrate { .. } => {}
            }
        }
    }

    /// Returns the next seed. Half of the time it is rebuilt from the log, which must make no difference.
    fn next_seed(&mut self) -> Seed {
        let calibration = Calibration::new(Counter::for_model("test").method());
        let ids = IdSource::seeded(self.rng.u64(..));
        let old = std::mem::replace(
            &mut self.agent,
            AgentLoop::seeded(0, Seed::new(unwritten(), deployment(Vec::new()), calibration, ids)),
        );
        let is_stale = old.has_stale_path();
        let mut seed = old.into_seed();
        if self.rng.bool() {
            seed.session = self.read_back();
        } else if is_stale {
            seed.session.tree = self.path_to(seed.session.state.leaf.as_ref());
        }
        seed
    }

    /// Returns the session as the store would: the folded log, and the path as far back as the model can see.
    fn read_back(&self) -> Session {
        let mut session = unwritten();
        session.state = Arc::default();
        self.log.iter().for_each(|event| session.state_mut().apply(event));
        session.tree = self.path_to(session.state.leaf.as_ref());
        session.held = session.state.held.as_ref().and_then(|at| {
            let record = &self.log[usize::try_from(at.seq - 1).unwrap()];
            let Event::SessionUpdated(updated) = record else { panic!("seed {}: {record:?} holds nothing", self.seed) };
            updated.held.as_ref().and_then(Held::read_back).map(Arc::new)
        });
        session
    }

    /// Returns the path to an entry as the store would.
    fn path_to(&self, leaf: Option<&EntryId>) -> SessionTree {
        self.path_in(&self.folded(), leaf)
    }

    fn folded(&self) -> SessionState {
        let mut state = SessionState::default();
        self.log.iter().for_each(|event| state.apply(event));
        state
    }

    /// Returns the path to an entry as a session in this state would see it.
    fn path_in(&self, state: &SessionState, leaf: Option<&EntryId>) -> SessionTree {
        let counter = Counter::for_model(&state.model);
        let mut reader = PathReader::new(state, &counter);
        let mut next = leaf;
        while let Some(entry) = next.and_then(|id| self.entries.get(id)) {
            next = entry.parent_id.as_ref();
            if !reader.take(entry.clone()) {
                break;
            }
        }
        reader.finish()
    }

    /// Returns the entry and its ancestors, newest first.
    fn way_back(&self, leaf: Option<&EntryId>) -> Vec<&Entry> {
        std::iter::successors(leaf.and_then(|id| self.entries.get(id)), |entry| {
            entry.parent_id.as_ref().and_then(|id| self.entries.get(id))
        })
        .collect()
    }

    /// Returns a command's destination as the runtime would read it from the store.
    fn destination(&self, leaf: Option<EntryId>, input: Option<Vec<Part>>) -> Box<Lookup> {
        let theirs: HashSet<&EntryId> = self.way_back(leaf.as_ref()).into_iter().map(|entry| &entry.entry_id).collect();
        let state = &self.agent.ledger.session.state;
        let ours = self.way_back(state.leaf.as_ref());
        let (common, ours): (Vec<&Entry>, Vec<&Entry>) =
            ours.into_iter().partition(|entry| theirs.contains(&entry.entry_id));
        let common = common.first().map(|entry| entry.entry_id.clone());
        let left = ours.into_iter().cloned().collect();
        let tree = self.path_to(leaf.as_ref());
        Box::new(Lookup::Destination(Destination { tree, leaf, input, left, common }))
    }

    fn some_entry(&mut self) -> Option<Entry> {
        let at = self.rng.usize(..self.entries.len().max(1));
        self.entries.values().nth(at).cloned()
    }

    fn command(&mut self, command: SessionCommand) {
        self.command_to(command, None);
    }

    fn command_to(&mut self, command: SessionCommand, lookup: Option<Box<Lookup>>) {
        let late = Self::may_be_late(&command);
        self.commands += 1;
        let id: CommandId = format!("command-{:012}", self.commands).parse().unwrap();
        self.tell(Input::Command {
            origin: Origin(1),
            id: id.clone(),
            fingerprint: self.commands,
            command: Box::new(command),
            lookup,
        });
        let waits = self.agent.answers_late().contains(&id);
        assert!((late && waits) || self.replies.contains(&id), "seed {}: {id} was not answered", self.seed);
    }

    /// Checks that a stale response changes nothing.
    fn stale_response(&mut self) {
        let Some(request) = self.rng.choice(&self.forgotten).copied() else { return };
        let events = self.log.len();
        let answer = Answer::new(vec![Part::Text { text: "late".into() }], StopReason::Stop);
        let effects = self.told(Input::Answered { request, answer });
        assert!(
            effects.is_empty() && self.log.len() == events,
            "seed {}: the stale response to {request} had an effect",
            self.seed
        );
    }

    /// Kills the process, so that only the log is left.
    fn crash(&mut self) {
        self.crashed_since_held = true;
        self.forgotten.extend(std::mem::take(&mut self.asked).into_keys());
        let asked = std::mem::take(&mut self.hook_calls).into_iter().chain(std::mem::take(&mut self.away));
        self.hushed.extend(asked.map(|asked| asked.call.call_id));
        self.overlaid = false;
        self.running.clear();
        let session = self.read_back();
        let calibration = Calibration::new(Counter::for_model("test").method());
        let generation = session.state.generation;
        let deployment = deployment(self.hooks.clone());
        let mut seed = Seed::new(session, deployment, calibration, IdSource::seeded(self.rng.u64(..)));
        // A new process would start request ids from the beginning, since no stale response can reach it; here both
        // share one world.
        seed.next_request = self.forgotten.iter().map(|request| request.0).max().unwrap_or(0) + 1;
        self.agent = AgentLoop::seeded(generation, seed);
        self.tell(Input::Recovered);
        assert!(self.agent.ledger.session.state.turn.is_none() || self.open_turn);
    }

    /// Answers everything until nothing is running. Every turn must then have ended.
    fn settle(&mut self) {
        self.tell(Input::Go);
        for _ in 0..400 {
            if self.agent.is_idle() {
                if self.waiting.is_empty() {
                    break;
                }
                // Input for a destination that the session did not reach stays queued until somebody edits the queue.
                self.command(SessionCommand::EditQueue(EditQueue { remove: None, order: None }));
                continue;
            }
            // Half of the pending requests are answered, the others fail.
            if self.rng.bool() {
                self.hooks_pass();
            }
            self.now = self.now.plus_millis(60_000);
            match self.asked.pop_first() {
                Some((request, _)) => {
                    let parts = vec![Part::Text { text: "done".into() }];
                    let answer = Answer::new(parts, StopReason::Stop);
                    self.tell(Input::Answered { request, answer });
                }
                None => self.tell(Input::Tick),
            }
        }
        let agent = &self.agent;
        let (stage, line, queue) = (agent.stage(), agent.answers_late().len(), agent.ledger.session.state.queue.len());
        let (chains, running) = (!agent.hooks.is_quiet(), agent.compaction.is_at_work());
        assert!(
            agent.is_idle() && !self.open_turn,
            "seed {}: it does not come to rest: {stage:?}, hooks: {chains}, {line} wait for their answer, {queue} in \
             the queue, compacting: {running}, in a turn: {}",
            self.seed,
            self.open_turn
        );
        assert!(self.hook_calls.is_empty(), "seed {}: a hook is waited for by nobody", self.seed);
        assert!(self.away.is_empty(), "seed {}: a client that is away is waited for by nobody", self.seed);
        assert!(self.agent.answers_late().is_empty(), "seed {}: a command is left without an answer", self.seed);
        self.check_taken_out();
        self.check_results();
        let mut folded = SessionState::default();
        self.log.iter().for_each(|event| folded.apply(event));
        let twice = self.said.iter().find(|(_, times)| **times > 1);
        assert!(twice.is_none(), "seed {}: {twice:?} was said twice", self.seed);
        assert!(self.waiting.is_empty(), "seed {}: inputs wait for ever", self.seed);
        assert_eq!(
            folded, *self.agent.ledger.session.state,
            "seed {}: the state is not the fold of the log",
            self.seed
        );
    }
}

fn summary() -> String {
    crate::compaction::summary::SECTIONS.iter().map(|section| format!("## {section}\n- x\n")).collect()
}

#[test]
fn whatever_happens_the_promises_hold() {
    let seeds = crate::seeds::seeds("SCRIPTS", SCRIPTS);
    let mut compactions = 0;
    let mut turns = 0;
    let mut moves = 0;
    let mut undone = 0;
    let mut hooked = 0;
    let (mut of_held, mut of_held_after_crash) = (0, 0);
    let mut taken_out = 0;
    let digests = std::env::var("DIGESTS").ok();
    let mut digested = String::new();
    for seed in seeds.clone() {
        let mut world = World::new(seed);
        world.digest = digests.as_ref().map(|_| 0);
        for _ in 0..STEPS {
            world.step();
            world.check_seen();
        }
        world.settle();
        if let Some(digest) = world.digest {
            digested.push_str(&format!("{seed} {digest:016x}\n"));
        }
        undone += world.undone;
        of_held += world.of_held;
        of_held_after_crash += world.of_held_after_crash;
        hooked += world.hushed.len();
        taken_out += world.taken_out.len();
        compactions += world.agent.ledger.session.state.compactions;
        let moved = |event: &&Event| matches!(event, Event::SessionUpdated(updated) if updated.leaf_id.is_some());
        moves += world.log.iter().filter(moved).count();
        turns += world.log.iter().filter(|event| matches!(event, Event::TurnFinished(_))).count();
    }
    if let Some(file) = digests {
        std::fs::write(file, digested).unwrap();
    }
    if seeds.end() > seeds.start() {
        assert!(
            of_held > SCRIPTS as usize / 20 && of_held_after_crash > 0,
            "{of_held} compactions were held first, {of_held_after_crash} through a crash: too few to mean anything"
        );
        assert!(moves > SCRIPTS as usize / 2, "{moves} moves: too few to mean anything");
        assert!(hooked > 8 * SCRIPTS as usize, "{hooked} hooks were asked: too few to mean anything");
        assert!(taken_out > SCRIPTS as usize / 10, "{taken_out} inputs changed by hooks: too few to mean anything");
        assert!(undone > SCRIPTS as usize / 20, "{undone} compactions taken back: too few to mean anything");
        assert!(
            compactions > SCRIPTS && turns > 3 * SCRIPTS as usize,
            "{compactions} compactions, {turns} turns: too few to mean anything"
        );
    }
}
