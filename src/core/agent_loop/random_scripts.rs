//! The loop driven through random scripts: whatever happens, its promises hold.
//!
//! A failing seed is in the message; `SEED=72 cargo test random_scripts` plays that one alone.

use super::{AgentLoop, Append, CallModel, Deployment, Effect, Input, Origin, RequestId, Seed};
use crate::core::{
    context::{
        counter::{Calibration, Counter},
        strategy::Options,
        windows::Windows,
    },
    model::{Answer, ModelFault, ModelRequest, OverflowHint, Purpose, ReportedUsage},
    session::{IdSource, Place, Session, SessionState, SessionTree, place::landing, tree::PathReader},
};
use fastrand::Rng;
use reseed_protocol::{
    CallId, CommandId, Entry, EntryId, ErrorCode, Message, Part, Role, StopReason, Timestamp,
    command::{
        AppendCustom, AppendCustomMessage, CancelCompaction, CancelTurn, Command, EditQueue, Empty, Input as Said,
        InputContent, ManualCompact, Navigate, NavigatePosition, RegisterTools, RenameSession, RetryTurn,
        SetContextStrategy, SetInstructions, SetLabel, SetModel, ToolOffer, ToolResult, UserInput, WhenBusy,
    },
    event::Event,
    reply::Reply,
};
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

const SCRIPTS: u64 = 1_200;
const STEPS: usize = 70;

/// What stands outside the loop: the log, the model, time.
struct World {
    rng: Rng,
    seed: u64,
    now: Timestamp,
    agent: AgentLoop,
    log: Vec<Event>,
    entries: BTreeMap<EntryId, Entry>,
    /// Inputs that were acknowledged, by their commands, and what became of them.
    said: BTreeMap<CommandId, u32>,
    waiting: HashSet<CommandId>,
    asked: BTreeMap<RequestId, Purpose>,
    forgotten: Vec<RequestId>,
    calls: Vec<CallId>,
    commands: u64,
    replies: HashSet<CommandId>,
    open_turn: bool,
}

fn deployment() -> Arc<Deployment> {
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
        ..Deployment::default()
    })
}

fn unwritten() -> Session {
    let mut session = Session::new("session".parse().unwrap(), Timestamp(0));
    session.state.model = "test".into();
    session.state.strategy = "threshold".into();
    session
}

impl World {
    fn new(seed: u64) -> Self {
        let calibration = Calibration::new(Counter::for_model("test").method());
        let agent = AgentLoop::seeded(1, Seed::new(unwritten(), deployment(), calibration, IdSource::seeded(seed)));
        let mut world = Self {
            rng: Rng::with_seed(seed),
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
            commands: 0,
            replies: HashSet::new(),
            open_turn: false,
        };
        world.tell(Input::Recovered);
        world
    }

    fn tell(&mut self, input: Input) {
        let effects = self.agent.handle(self.now, input);
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
                    waiting.extend(self.agent.handle(self.now, Input::Cancelled { request, shown }));
                }
                Effect::Reseed => {
                    let generation = self.agent.generation() + 1;
                    let seed = self.next_seed();
                    self.agent = AgentLoop::seeded(generation, seed);
                    // What the old one asked is no business of the new one.
                    self.forgotten.extend(std::mem::take(&mut self.asked).into_keys());
                    waiting.extend(self.agent.handle(self.now, Input::Seeded));
                }
                Effect::Emit(_) | Effect::Calibrate { .. } => {}
            }
        }
    }

    /// Half of the time the session is made again from the log: that must make no difference.
    fn next_seed(&mut self) -> Seed {
        let calibration = Calibration::new(Counter::for_model("test").method());
        let ids = IdSource::seeded(self.rng.u64(..));
        let old = std::mem::replace(
            &mut self.agent,
            AgentLoop::seeded(0, Seed::new(unwritten(), deployment(), calibration, ids)),
        );
        let mut seed = old.into_seed();
        if self.rng.bool() {
            seed.session = self.read_back();
        }
        seed
    }

    /// The session as the store would give it: the fold of the log, and the path as far back as the model can see.
    fn read_back(&self) -> Session {
        let mut session = unwritten();
        session.state = SessionState::default();
        self.log.iter().for_each(|event| session.state.apply(event));
        session.tree = self.path_to(session.state.leaf.as_ref(), &session.state.model);
        session
    }

    /// The path to an entry, as the store would give it.
    fn path_to(&self, leaf: Option<&EntryId>, model: &str) -> SessionTree {
        let counter = Counter::for_model(model);
        let mut state = SessionState::default();
        self.log.iter().for_each(|event| state.apply(event));
        let mut reader = PathReader::new(&state, &counter);
        let mut next = leaf;
        while let Some(entry) = next.and_then(|id| self.entries.get(id)) {
            next = entry.parent_id.as_ref();
            if !reader.take(entry.clone()) {
                break;
            }
        }
        reader.finish()
    }

    /// The entry and those above it, newest first.
    fn way_back(&self, leaf: Option<&EntryId>) -> Vec<&Entry> {
        std::iter::successors(leaf.and_then(|id| self.entries.get(id)), |entry| {
            entry.parent_id.as_ref().and_then(|id| self.entries.get(id))
        })
        .collect()
    }

    /// The place that a command goes to, as the runtime reads it from the store.
    fn place(&self, leaf: Option<EntryId>, input: Option<Vec<Part>>) -> Box<Place> {
        let theirs: HashSet<&EntryId> = self.way_back(leaf.as_ref()).into_iter().map(|entry| &entry.entry_id).collect();
        let state = &self.agent.session.state;
        let ours = self.way_back(state.leaf.as_ref());
        let left = ours.into_iter().take_while(|entry| !theirs.contains(&entry.entry_id)).cloned().collect();
        Box::new(Place { tree: self.path_to(leaf.as_ref(), &state.model), leaf, input, left })
    }

    fn some_entry(&mut self) -> Option<Entry> {
        let at = self.rng.usize(..self.entries.len().max(1));
        self.entries.values().nth(at).cloned()
    }

    fn append(&mut self, append: Append) {
        for event in append.events {
            match &event {
                Event::EntryAppended(appended) => {
                    let entry = &appended.entry;
                    let known = entry.parent_id.as_ref().is_none_or(|parent| self.entries.contains_key(parent));
                    assert!(known, "seed {}: entry {} hangs from nothing", self.seed, entry.entry_id);
                    let before = self.entries.insert(entry.entry_id.clone(), entry.clone());
                    assert!(before.is_none(), "seed {}: entry id used twice", self.seed);
                    if let Some(id) = &appended.command_id
                        && crate::core::session::place::is_message(entry)
                        && entry.message().is_none_or(|message| message.role == Role::User)
                    {
                        self.waiting.remove(id);
                        *self.said.entry(id.clone()).or_default() += 1;
                    }
                }
                Event::TurnStarted(_) => {
                    assert!(!self.open_turn, "seed {}: a turn began in a turn", self.seed);
                    self.open_turn = true;
                }
                Event::TurnFinished(finished) => {
                    assert!(self.open_turn, "seed {}: a turn ended twice", self.seed);
                    self.open_turn = false;
                    let info = &finished.context_info;
                    assert_eq!(info.breakdown.total(), info.token_count, "seed {}", self.seed);
                    assert!((0.0..=100.0).contains(&info.usage_percent), "seed {}", self.seed);
                }
                Event::QueueChanged(changed) => {
                    let ids = changed.items.iter().map(|item| &item.command_id);
                    let now: HashSet<CommandId> = ids.cloned().collect();
                    assert_eq!(now.len(), changed.items.len(), "seed {}: an input waits twice", self.seed);
                    self.waiting = now;
                }
                Event::ToolCall(call) => self.calls.push(call.call_id.clone()),
                Event::ContextCompacted(compacted) => {
                    assert!(compacted.new_token_count > 0 && compacted.new_token_count < compacted.old_token_count);
                    assert_eq!(compacted.breakdown.after.total(), compacted.new_token_count, "seed {}", self.seed);
                }
                _ => {}
            }
            self.log.push(event);
        }
        for mark in append.marks {
            self.replied(mark.id, &mark.reply);
        }
    }

    fn replied(&mut self, id: CommandId, reply: &Reply) {
        assert!(self.replies.insert(id.clone()), "seed {}: {id} was answered twice", self.seed);
        if let Reply::Accepted(accepted) = reply
            && (accepted.queued || accepted.entry_id.is_some())
        {
            let kept = self.waiting.contains(&id) || self.said.contains_key(&id);
            assert!(kept, "seed {}: {id} was accepted and is nowhere", self.seed);
        }
        if let Reply::Navigated(navigated) = reply {
            assert_eq!(navigated.leaf_id, self.agent.session.state.leaf, "seed {}", self.seed);
        }
        if let Reply::Accepted(accepted) = reply
            && let Some(entry) = &accepted.entry_id
        {
            assert!(
                self.entries.contains_key(entry),
                "seed {}: {entry} was announced before it was durable",
                self.seed
            );
        }
    }

    fn call(&mut self, call: &CallModel) {
        assert!(self.asked.is_empty(), "seed {}: two requests at once", self.seed);
        self.asked.insert(call.request, call.body.purpose);
        let sent: Vec<&EntryId> = call.body.messages().filter_map(|message| message.entry_id.as_ref()).collect();
        let all = sent.iter().all(|id| self.entries.contains_key(*id));
        assert!(all, "seed {}: a request holds an entry that is not durable", self.seed);
        check_pairs(self.seed, &call.body);
        if call.body.purpose == Purpose::Turn {
            assert!(self.open_turn, "seed {}: the model was asked without a turn", self.seed);
            let read = crate::core::context::build_context(self.read_back().tree.path());
            let again: Vec<_> = read.to_messages();
            let live: Vec<_> = call.body.messages().cloned().collect();
            assert_eq!(live, again, "seed {}: the request differs from what the log says", self.seed);
        }
    }

    fn command(&mut self, command: Command) {
        self.command_to(command, None);
    }

    fn command_to(&mut self, command: Command, place: Option<Box<Place>>) {
        let late = matches!(command, Command::Navigate(_));
        self.commands += 1;
        let id: CommandId = format!("command-{:012}", self.commands).parse().unwrap();
        self.tell(Input::Command {
            origin: Origin(1),
            id: id.clone(),
            fingerprint: self.commands,
            command: Box::new(command),
            place,
        });
        let leaving = matches!(self.agent.stage, super::Stage::Leaving { .. });
        assert!((late && leaving) || self.replies.contains(&id), "seed {}: {id} was not answered", self.seed);
    }

    fn step(&mut self) {
        self.now = self.now.plus_millis(self.rng.u64(1..4_000));
        match self.rng.u8(..100) {
            0..40 => self.model_speaks(),
            40..60 => {
                let words = self.rng.usize(1..120);
                let input = Said::Text("word ".repeat(words));
                let when_busy = [None, None, Some(WhenBusy::Steer), Some(WhenBusy::Reject)][self.rng.usize(..4)];
                let mut said = UserInput { when_busy, ..UserInput::plain(input) };
                let mut place = None;
                match self.rng.u8(..10) {
                    0 | 1 => {
                        let parent = self.some_entry().map(|entry| entry.entry_id);
                        place = Some(self.place(parent.clone(), None));
                        said.parent_id = Some(parent);
                    }
                    2 => said.if_leaf = Some(self.some_entry().map(|entry| entry.entry_id)),
                    _ => {}
                }
                self.command_to(Command::UserInput(said), place);
            }
            60..70 => self.tool_answers(),
            70..74 => self.command(Command::CancelTurn(CancelTurn { turn_id: None })),
            74..78 => self.command(Command::RetryTurn(RetryTurn { turn_id: None })),
            78..80 => self.command(Command::ManualCompact(ManualCompact::default())),
            80..82 => self.move_about(),
            82..84 => self.command(Command::CancelCompaction(CancelCompaction { job_id: None })),
            84..86 => {
                let strategy = if self.rng.bool() { "manual" } else { "threshold" }.to_owned();
                self.command(Command::SetContextStrategy(SetContextStrategy { strategy, settings: None }));
            }
            86..88 => {
                let model = format!("test-{}", self.rng.u8(..3));
                self.command(Command::SetModel(SetModel { model, reasoning_effort: None }));
            }
            88..90 => self.command(Command::SetInstructions(SetInstructions { instructions: "Be kind.".into() })),
            90..92 => self.register_tools(),
            92..94 => self.annotate(),
            94..96 => self.tell(Input::Tick),
            96..98 => self.late_word(),
            98 => match self.rng.u8(..4) {
                0 => self.tell(Input::Hold),
                1 => self.tell(Input::Stop),
                2 => self.tell(Input::Go),
                _ => self.crash(),
            },
            _ => self.command(Command::GetContextInfo(Empty {})),
        }
    }

    fn move_about(&mut self) {
        let Some(entry) = self.some_entry() else { return };
        let position = [NavigatePosition::At, NavigatePosition::Before][self.rng.usize(..2)];
        let to_start = self.rng.u8(..8) == 0;
        let (leaf, input) = if to_start { (None, None) } else { landing(&entry, position) };
        let navigate = Navigate {
            entry_id: (!to_start).then(|| entry.entry_id.clone()),
            position: Some(position),
            summarize: Some(self.rng.bool()),
            instructions: self.rng.bool().then(|| "Mind the cat.".into()),
            replace_instructions: Some(self.rng.bool()),
            label: self.rng.bool().then(|| "there".into()),
        };
        let place = self.place(leaf, input);
        self.command_to(Command::Navigate(navigate), Some(place));
    }

    fn annotate(&mut self) {
        let waiting: Vec<CommandId> =
            self.agent.session.state.queue.iter().map(|item| item.command_id.clone()).collect();
        match self.rng.u8(..6) {
            0 => self.command(Command::RenameSession(RenameSession { session_id: None, name: "A name".into() })),
            1 => {
                let Some(entry) = self.some_entry() else { return };
                let set = SetLabel { entry_id: entry.entry_id, label: self.rng.bool().then(|| "here".into()) };
                self.command(Command::SetLabel(set));
            }
            2 => {
                let data = serde_json::json!({ "at": 1 });
                self.command(Command::AppendCustom(AppendCustom { custom_type: "mark".into(), data }));
            }
            3 | 4 => {
                let content = InputContent::Text("note ".repeat(self.rng.usize(1..20)));
                let note = AppendCustomMessage { custom_type: "note".into(), content, display: true };
                self.command(Command::AppendCustomMessage(note));
            }
            _ => {
                let mut order = waiting.clone();
                self.rng.shuffle(&mut order);
                let steered: HashSet<CommandId> = self
                    .agent
                    .session
                    .state
                    .queue
                    .iter()
                    .filter(|item| item.steer)
                    .map(|item| item.command_id.clone())
                    .collect();
                order.sort_by_key(|id| !steered.contains(id));
                let removed = order.pop().filter(|_| self.rng.bool());
                let remove = removed.clone().map(|id| vec![id]);
                let order = if removed.is_some() { order } else { waiting };
                self.command(Command::EditQueue(EditQueue { remove, order: Some(order) }));
            }
        }
    }

    fn model_speaks(&mut self) {
        let Some((request, purpose)) = self.asked.pop_first() else { return };
        self.forgotten.push(request);
        if self.rng.u8(..100) < 12 {
            let codes = [
                ErrorCode::ContextOverflow,
                ErrorCode::UpstreamError,
                ErrorCode::UpstreamEmpty,
                ErrorCode::UpstreamAuth,
            ];
            let mut fault = ModelFault::new(codes[self.rng.usize(..codes.len())], "a fault");
            fault.shown = self.rng.bool();
            if self.rng.bool() {
                fault.overflow =
                    OverflowHint { prompt_tokens: Some(self.rng.u64(1..3_000)), window_tokens: Some(1_000) };
            }
            self.tell(Input::Failed { request, fault });
            return;
        }
        let text = "said ".repeat(self.rng.usize(1..60));
        let parts = match purpose {
            Purpose::Summary if self.rng.bool() => vec![Part::Text { text: summary() }],
            Purpose::Turn if self.rng.u8(..100) < 35 => self.some_calls(),
            _ => vec![Part::Text { text }],
        };
        let stop_reason = if self.rng.u8(..100) < 8 { StopReason::Length } else { StopReason::Stop };
        let usage = self.rng.bool().then(|| ReportedUsage {
            input_tokens: self.rng.u64(..2_000),
            output_tokens: self.rng.u64(..200),
            ..ReportedUsage::default()
        });
        self.tell(Input::Answered { request, answer: Answer { parts, stop_reason, usage } });
    }

    fn some_calls(&mut self) -> Vec<Part> {
        let one = |rng: &mut Rng| {
            let (name, arguments) =
                [("look", r#"{"at":"x"}"#), ("look", "{}"), ("look", "{"), ("nothing", "{}")][rng.usize(..4)];
            // Upstreams use the same call id in every answer.
            Part::ToolCall { call_id: "call_0".parse().unwrap(), name: name.into(), arguments: arguments.into() }
        };
        (0..self.rng.usize(1..4)).map(|_| one(&mut self.rng)).collect()
    }

    fn tool_answers(&mut self) {
        let call_id = match self.rng.choice(&self.calls) {
            Some(call) => call.clone(),
            None => "unknown".parse().unwrap(),
        };
        let output = "result ".repeat(self.rng.usize(1..80));
        let is_error = Some(self.rng.bool());
        self.command(Command::ToolResult(ToolResult { call_id, output, is_error }));
    }

    fn register_tools(&mut self) {
        let parameters =
            serde_json::json!({ "type": "object", "properties": { "at": { "type": "string" } }, "required": ["at"] });
        let offer = ToolOffer {
            name: "look".into(),
            description: "Looks.".into(),
            parameters,
            timeout_ms: None,
            idempotent: None,
        };
        self.command(Command::RegisterTools(RegisterTools { tools: vec![offer] }));
    }

    /// An answer to a request that nobody waits for any more changes nothing.
    fn late_word(&mut self) {
        let Some(request) = self.rng.choice(&self.forgotten).copied() else { return };
        let events = self.log.len();
        let answer =
            Answer { parts: vec![Part::Text { text: "late".into() }], stop_reason: StopReason::Stop, usage: None };
        let effects = self.agent.handle(self.now, Input::Answered { request, answer });
        assert!(effects.is_empty() && self.log.len() == events, "seed {}: {request} was late and was heard", self.seed);
    }

    /// The process dies: only the log is left.
    fn crash(&mut self) {
        self.forgotten.extend(std::mem::take(&mut self.asked).into_keys());
        let session = self.read_back();
        let calibration = Calibration::new(Counter::for_model("test").method());
        let generation = session.state.generation;
        let mut seed = Seed::new(session, deployment(), calibration, IdSource::seeded(self.rng.u64(..)));
        // Request ids begin anew in a new process, where no old word can arrive; here they share one world.
        seed.next_request = self.forgotten.iter().map(|request| request.0).max().unwrap_or(0) + 1;
        self.agent = AgentLoop::seeded(generation, seed);
        self.tell(Input::Recovered);
        assert!(self.agent.session.state.turn.is_none() || self.open_turn);
    }

    /// Answers until nothing runs any more: then every turn has ended.
    fn settle(&mut self) {
        self.tell(Input::Go);
        for _ in 0..400 {
            if self.agent.is_idle() {
                if self.waiting.is_empty() {
                    break;
                }
                // What was said for a place that the session did not come to waits until somebody looks at it.
                self.command(Command::EditQueue(EditQueue { remove: None, order: None }));
                continue;
            }
            self.now = self.now.plus_millis(60_000);
            match self.asked.pop_first() {
                Some((request, _)) => {
                    let parts = vec![Part::Text { text: "done".into() }];
                    let answer = Answer { parts, stop_reason: StopReason::Stop, usage: None };
                    self.tell(Input::Answered { request, answer });
                }
                None => self.tell(Input::Tick),
            }
        }
        assert!(self.agent.is_idle() && !self.open_turn, "seed {}: it does not come to rest", self.seed);
        let mut folded = SessionState::default();
        self.log.iter().for_each(|event| folded.apply(event));
        let twice = self.said.iter().find(|(_, times)| **times > 1);
        assert!(twice.is_none(), "seed {}: {twice:?} was said twice", self.seed);
        assert!(self.waiting.is_empty(), "seed {}: inputs wait for ever", self.seed);
        assert_eq!(folded, self.agent.session.state, "seed {}: the state is not the fold of the log", self.seed);
    }
}

fn summary() -> String {
    crate::core::context::summary::SECTIONS.iter().map(|section| format!("## {section}\n- x\n")).collect()
}

fn check_pairs(seed: u64, request: &ModelRequest) {
    let mut open: HashSet<CallId> = HashSet::new();
    let messages: Vec<&Message> = request.messages().map(|message| &*message.message).collect();
    assert!(!messages.is_empty(), "seed {seed}: an empty request");
    for message in messages {
        if message.role != Role::Tool {
            assert!(open.is_empty(), "seed {seed}: a call without its result in a request");
        }
        for part in &message.content {
            match part {
                Part::ToolCall { call_id, .. } => assert!(open.insert(call_id.clone()), "seed {seed}: a call id twice"),
                Part::ToolResult { call_id, .. } => {
                    assert!(open.remove(call_id), "seed {seed}: a result without its call")
                }
                _ => {}
            }
        }
    }
    assert!(open.is_empty(), "seed {seed}: a call without its result at the end of a request");
}

#[test]
fn whatever_happens_the_promises_hold() {
    let seeds = match std::env::var("SEED") {
        Ok(seed) => seed.parse().unwrap()..=seed.parse().unwrap(),
        Err(_) => 1..=SCRIPTS,
    };
    let mut compactions = 0;
    let mut turns = 0;
    let mut moves = 0;
    for seed in seeds.clone() {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        world.settle();
        compactions += world.agent.session.state.compactions;
        let moved = |event: &&Event| matches!(event, Event::SessionUpdated(updated) if updated.leaf_id.is_some());
        moves += world.log.iter().filter(moved).count();
        turns += world.log.iter().filter(|event| matches!(event, Event::TurnFinished(_))).count();
    }
    if seeds.end() > seeds.start() {
        assert!(moves > SCRIPTS as usize / 2, "{moves} moves: too few to mean anything");
        assert!(
            compactions > SCRIPTS && turns > 3 * SCRIPTS as usize,
            "{compactions} compactions, {turns} turns: too few to mean anything"
        );
    }
}
