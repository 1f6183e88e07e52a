//! Property tests of ordered compactions over random sessions, strategies, sizes and models. An order never drops more
//! than it must; a preview shows what the order does; naming the session's own strategy is the same as naming none.
//!
//! A failure prints its seed; `SEED=72 cargo test -p reseed-core random_orders` replays it alone, and `ORDERS=20000`
//! runs more.

use super::{AgentLoop, Deployment, Effect, Input, Origin, RequestId, Seed};
use crate::{
    compaction::{extract::extract, factory::Strategies, strategy::Options, structure::Structure},
    context::{
        Context,
        build::build_context,
        counter::{Calibration, Counter},
        windows::Windows,
    },
    model::{Answer, ModelFault},
    session::{IdSource, Session},
};
use fastrand::Rng;
use reseed_protocol::{
    CallId, Entry, EntryData, EntryId, ErrorBody, ErrorCode, Message, Part, Role, StopReason, Timestamp,
    command::SessionCommand,
    compaction::{Compaction, CompactionPreview, CompactionRung, ContextCompacted, PreviewCompaction, StartCompaction},
    event::Event,
    reply::Reply,
    tree::EntryAppended,
};
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

const ORDERS: u64 = 80;
const NOW: Timestamp = Timestamp(1_000_000);

/// The model's response to a summary request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Model {
    Summarises,
    Fails,
    Refuses,
    Rambles,
}

/// A session of random size, determined by its seed.
struct World {
    seed: u64,
    agent: AgentLoop,
    model: Model,
    commands: u32,
}

/// The outcome of an order.
#[derive(Debug)]
enum Came {
    Compacted(Box<(Compaction, ContextCompacted)>),
    Shown(Box<CompactionPreview>),
    Nothing(ErrorBody),
}

/// The sizes and settings of a session.
struct Plan {
    window: u64,
    own: &'static str,
    options: Options,
    model: Model,
    named: Option<&'static str>,
}

fn plan(seed: u64) -> Plan {
    let mut rng = Rng::with_seed(seed);
    let names: Vec<&'static str> = Strategies::default().names().collect();
    let window = *rng.choice(&[2_000, 3_000, 5_000, 8_000]).unwrap();
    let parts: &[&[&str]] = &[
        &["tool_results", "threshold", "truncate"],
        &["tool_results", "sliding_window", "truncate"],
        &["importance", "truncate"],
        &["truncate"],
    ];
    Plan {
        window,
        own: rng.choice(&names).unwrap(),
        options: Options {
            keep_recent_tokens: rng.u64(window / 20..window / 3),
            keep_turns: rng.u64(1..8),
            keep_tool_results: rng.u64(0..4),
            summarise: rng.bool(),
            steps: rng.choice(parts).unwrap().to_vec(),
            ..Options::default()
        },
        model: *rng
            .choice(&[Model::Summarises, Model::Summarises, Model::Fails, Model::Refuses, Model::Rambles])
            .unwrap(),
        named: if rng.u8(..4) == 0 { None } else { rng.choice(&names).copied() },
    }
}

/// Returns the entries of turns of random length that fill a random share of the window.
fn history(rng: &mut Rng, window: u64, counter: &Counter) -> Vec<EntryData> {
    let wanted = window * rng.u64(2..110) / 100;
    let (mut said, mut tokens) = (Vec::new(), 0);
    let longest = usize::try_from(window / 8).unwrap();
    let text = |rng: &mut Rng| {
        let words = if rng.u8(..5) == 0 { rng.usize(1..longest) } else { rng.usize(1..120) };
        let kinds = ["The harbour lies to the west. ", "My cat is called Miso. ", "apple pear ", "line 120 of a/b.rs "];
        (0..words / 4 + 1).map(|_| *rng.choice(&kinds).unwrap()).collect::<String>()
    };
    while tokens < wanted || said.is_empty() {
        let mut turn = vec![Message::user(text(rng))];
        for _ in 0..rng.usize(..3) {
            let call_id: CallId = format!("c{}x{}", said.len(), turn.len()).parse().unwrap();
            let call = Part::ToolCall {
                call_id: call_id.clone(),
                name: "read".into(),
                arguments: r#"{"path":"a/b.rs"}"#.into(),
            };
            turn.push(Message::new(Role::Assistant, vec![call]));
            let result = Part::ToolResult { call_id, output: text(rng), is_error: false };
            turn.push(Message::new(Role::Tool, vec![result]));
        }
        turn.push(Message::new(Role::Assistant, vec![Part::Text { text: text(rng) }]));
        tokens += turn.iter().map(|message| counter.message(message).total()).sum::<u64>();
        said.extend(turn.into_iter().map(EntryData::message));
    }
    said
}

impl World {
    fn new(seed: u64) -> Self {
        let Plan { window, own, options, model, .. } = plan(seed);
        let mut rng = Rng::with_seed(!seed);
        let counter = Counter::for_model("test");
        let mut session = Session::new("session".parse().unwrap(), Timestamp(0));
        session.state_mut().model = "test".into();
        session.state_mut().strategy = own.into();
        for (at, data) in history(&mut rng, window, &counter).into_iter().enumerate() {
            let parent_id = session.state.leaf.clone();
            let entry_id = format!("e{at}").parse().unwrap();
            let entry = Entry { entry_id, parent_id, timestamp: Timestamp(0), imported: None, data };
            let appended = EntryAppended { entry, turn_id: None, command_id: None };
            session.apply(&Event::EntryAppended(Box::new(appended)), &counter);
        }
        let windows = Windows::new(Some(window), Vec::new());
        let deployment = Deployment { model: "test".into(), windows, options, ..Deployment::default() };
        let calibration = Calibration::new(counter.method());
        let seeded = Seed::new(session, Arc::new(deployment), calibration, IdSource::seeded(seed));
        Self { seed, agent: AgentLoop::seeded(1, seeded), model, commands: 0 }
    }

    fn answer(&self, request: RequestId) -> Input {
        let said = |text: String| {
            let parts = vec![Part::Text { text }];
            Input::Answered { request, answer: Answer::new(parts, StopReason::Stop) }
        };
        match self.model {
            Model::Summarises => said(extract(&[Message::user("My cat is called Miso.")], 400)),
            Model::Fails => {
                let fault = ModelFault::new(ErrorCode::UpstreamError, "it broke");
                Input::Failed { request, fault, shown: Vec::new() }
            }
            Model::Refuses => said(String::new()),
            Model::Rambles => {
                let long: Vec<String> = (0..800).map(|number| format!("number {number} of many")).collect();
                said(extract(&[Message::user(long.join(". "))], 12_000))
            }
        }
    }

    /// Sends a command, answers as the model, and returns the outcome.
    fn order(&mut self, command: SessionCommand) -> Came {
        self.commands += 1;
        let id = format!("command-{:012}", self.commands).parse().unwrap();
        let command = Box::new(command);
        let mut effects =
            self.agent.handle(NOW, Input::Command { origin: Origin(1), id, fingerprint: 0, command, lookup: None });
        loop {
            let mut asked = None;
            let mut entry = None;
            for effect in effects {
                match effect {
                    Effect::Reply { reply: Reply::Error(error), .. } => return Came::Nothing(error),
                    Effect::Reply { reply: Reply::CompactionPreview(shown), .. } => return Came::Shown(shown),
                    Effect::CallModel(call) => asked = Some(call.request),
                    Effect::Append(append) => {
                        for event in append.events {
                            match event {
                                Event::EntryAppended(appended) => {
                                    if let EntryData::Compaction(compaction) = appended.entry.data {
                                        entry = Some(compaction);
                                    }
                                }
                                Event::CompactionFailed(failed) => {
                                    return Came::Nothing(failed.error);
                                }
                                Event::ContextCompacted(compacted) => {
                                    return Came::Compacted(Box::new((entry.unwrap(), *compacted)));
                                }
                                _ => {}
                            }
                        }
                    }
                    _ => {}
                }
            }
            let asked = asked.unwrap_or_else(|| panic!("seed {}: it ends without an answer", self.seed));
            effects = self.agent.handle(NOW, self.answer(asked));
        }
    }

    fn compact(&mut self, strategy: Option<&str>) -> Came {
        let strategy = strategy.map(str::to_owned);
        self.order(SessionCommand::StartCompaction(StartCompaction { strategy, ..StartCompaction::default() }))
    }

    fn preview(&mut self, strategy: Option<&str>) -> Came {
        let strategy = strategy.map(str::to_owned);
        self.order(SessionCommand::PreviewCompaction(PreviewCompaction { strategy, ..PreviewCompaction::default() }))
    }

    fn context(&self) -> Context {
        build_context(self.agent.ledger.session.tree.path())
    }

    fn target(&self, strategy: Option<&str>) -> u64 {
        let deployment = &self.agent.ledger.deployment;
        let name = strategy.unwrap_or(&self.agent.ledger.session.state.strategy);
        let manager = deployment.strategies.make(name, None, &deployment.options).unwrap();
        manager.target_tokens(self.agent.ledger.window_tokens())
    }
}

/// Returns the boundary stored in the entry, used for comparison where ids differ.
fn boundary(compaction: &Compaction) -> (Option<EntryId>, Vec<EntryId>, Vec<EntryId>, String) {
    (
        compaction.first_kept_entry_id.clone(),
        compaction.kept_entry_ids.clone(),
        compaction.cleared_entry_ids.clone(),
        compaction.summary.clone(),
    )
}

/// The units that stay, and the tokens of the largest units that are dropped or cleared.
struct Parted {
    kept_tokens: u64,
    /// The newest dropped unit.
    newest_gone: u64,
    /// The turn of the newest dropped unit.
    newest_turn_gone: u64,
    largest_cleared: u64,
    /// True if exactly the oldest turns are dropped as wholes, apart from units that must stay.
    is_whole_turns: bool,
    last_turn_tokens: u64,
    must_stay: u64,
}

fn parted(context: &Context, compaction: &Compaction) -> Parted {
    let structure = Structure::of(context);
    let stays = crate::compaction::cut::must_stay(context, &structure);
    let kept: HashSet<&EntryId> = compaction.kept_entry_ids.iter().collect();
    let id = |at: usize| context.messages[at].entry_id.as_ref();
    let units = &structure.units;
    let first = units.iter().position(|unit| id(unit.messages.start) == compaction.first_kept_entry_id.as_ref());
    let first = first.unwrap_or(units.len());
    let is_kept = |at: usize| at >= first || id(units[at].messages.start).is_some_and(|id| kept.contains(id));
    let gone = (0..units.len()).filter(|at| !is_kept(*at));
    let turn = |turn: usize| units.iter().filter(|unit| unit.turn == turn).map(|unit| unit.tokens).sum::<u64>();
    let newest_gone = gone.clone().next_back();
    let cleared: HashSet<&EntryId> = compaction.cleared_entry_ids.iter().collect();
    let cleared =
        context.messages.iter().filter(|counted| counted.entry_id.as_ref().is_some_and(|id| cleared.contains(id)));
    Parted {
        kept_tokens: (0..units.len()).filter(|at| is_kept(*at)).map(|at| units[at].tokens).sum(),
        newest_gone: newest_gone.map_or(0, |at| units[at].tokens),
        newest_turn_gone: newest_gone.map_or(0, |at| turn(units[at].turn)),
        largest_cleared: cleared.map(|counted| counted.tokens.total()).max().unwrap_or(0),
        is_whole_turns: units.get(first).is_some_and(|unit| unit.is_input)
            && gone.clone().count() == (0..first).filter(|at| !stays[*at]).count(),
        last_turn_tokens: units.last().map_or(0, |unit| turn(unit.turn)),
        must_stay: units.iter().zip(&stays).filter(|(_, stays)| **stays).map(|(unit, _)| unit.tokens).sum(),
    }
}

/// The smallest amount dropped at once, and the tolerance for estimates of notes and summaries.
const SLACK: u64 = 200;

fn check(seed: u64) -> String {
    let Plan { window, own, options, model, named } = plan(seed);
    let name = format!("seed {seed}: {named:?} in a session of {own}, window {window}, {model:?}");
    let mut world = World::new(seed);
    let (context, before) = (world.context(), world.agent.context_info().token_count);
    let target = world.target(named);
    let came = world.compact(named);

    // A preview must have the same outcome.
    let shown = World::new(seed).preview(named);
    match (&came, &shown) {
        (Came::Compacted(done), Came::Shown(shown)) => {
            let (compaction, compacted) = &**done;
            assert_eq!(
                (&shown.summary, shown.rung, &shown.failed_rungs, &shown.first_kept_entry_id, &shown.kept_entry_ids),
                (
                    &compaction.summary,
                    compacted.rung,
                    &compacted.failed_rungs,
                    &compaction.first_kept_entry_id,
                    &compaction.kept_entry_ids
                ),
                "{name}"
            );
            assert_eq!(shown.tokens_after, compacted.tokens_after, "{name}");
        }
        (Came::Nothing(done), Came::Nothing(shown)) => {
            assert_eq!((done.code, &done.message), (shown.code, &shown.message), "{name}");
        }
        _ => panic!("{name}: the order came to {came:?}, its preview to {shown:?}"),
    }

    // Naming the session's own strategy must not change the outcome.
    if named.is_none_or(|named| named == own) {
        let other = if named.is_some() { None } else { Some(own) };
        match (&came, &World::new(seed).compact(other)) {
            (Came::Compacted(one), Came::Compacted(two)) => {
                assert_eq!(boundary(&one.0), boundary(&two.0), "{name}");
                assert_eq!((one.1.rung, &one.1.strategy), (two.1.rung, &two.1.strategy), "{name}");
            }
            (Came::Nothing(one), Came::Nothing(two)) => assert_eq!(one, two, "{name}"),
            (one, two) => panic!("{name}: named {one:?}, not named {two:?}"),
        }
    }

    let done = match came {
        Came::Nothing(error) => {
            assert_eq!(error.code, ErrorCode::NothingToCompact, "{name}: {error:?}");
            let internal = ["ModelSummary", "not_smaller", "too_little", "Extract", "model_summary", "upstream_error"];
            assert!(!internal.iter().any(|word| error.message.contains(word)), "{name}: {}", error.message);
            assert_eq!(world.agent.context_info().token_count, before, "{name}: nothing gained, and changed");
            return "nothing".into();
        }
        Came::Compacted(done) => *done,
        Came::Shown(_) => panic!("{name}: a preview was not asked for"),
    };
    let (compaction, compacted) = done;
    assert!(compacted.tokens_after < compacted.tokens_before, "{name}: {compacted:?}");
    let parted = parted(&context, &compaction);
    let without_summary = match compacted.rung {
        CompactionRung::Truncate => Some(parted.newest_turn_gone.max(parted.newest_gone)),
        CompactionRung::ClearToolResults => Some(parted.largest_cleared),
        _ => None,
    };
    let strategy = named.unwrap_or(own);
    if let Some(last_dropped) = without_summary {
        assert!(before > target, "{name}: {before} tokens are within the target of {target}, and something is dropped");
        let least = target.saturating_sub(last_dropped + SLACK);
        assert!(
            compacted.tokens_after >= least,
            "{name}: {} tokens are left where {target} have room, the last that went has {last_dropped}",
            compacted.tokens_after
        );
    }
    if compacted.rung == CompactionRung::Truncate && strategy == "truncate" {
        let fits = parted.last_turn_tokens + parted.must_stay + SLACK < target;
        assert!(parted.is_whole_turns || !fits, "{name}: a turn is parted, and whole ones would fit: {compaction:?}");
        assert!(!compaction.summary.is_empty(), "{name}: the model is not told that something is missing");
    }
    let by_tokens = matches!(strategy, "threshold" | "manual" | "tool_results");
    if without_summary.is_none() && by_tokens {
        let keep = options.keep_in(window);
        let all: u64 = Structure::of(&context).tokens();
        if all >= keep {
            // Keeping one more unit would have exceeded the requested amount.
            let most = parted.kept_tokens + parted.newest_gone + SLACK;
            assert!(most >= keep, "{name}: {} are kept, {keep} wanted", parted.kept_tokens);
        }
    }
    format!("{strategy} {:?}", compacted.rung)
}

#[test]
fn an_order_keeps_as_much_as_it_can_and_matches_its_preview() {
    let seeds = crate::seeds::seeds("ORDERS", ORDERS);
    let is_whole = seeds.clone().count() > 100;
    let mut all: BTreeMap<String, u64> = BTreeMap::new();
    for seed in seeds {
        *all.entry(check(seed)).or_default() += 1;
    }
    if is_whole {
        for what in ["nothing", "truncate Truncate", "tool_results ClearToolResults", "ModelSummary", "Extract"] {
            let times: u64 = all.iter().filter(|(key, _)| key.contains(what)).map(|(_, times)| *times).sum();
            assert!(times >= 5, "hardly ever `{what}`: {all:#?}");
        }
    }
}

/// Nothing is dropped from three short messages, whichever strategy is named.
#[test]
fn a_short_conversation_is_left_alone() {
    for named in std::iter::once(None).chain(Strategies::default().names().map(Some)) {
        let counter = Counter::for_model("test");
        let mut session = Session::new("session".parse().unwrap(), Timestamp(0));
        session.state_mut().model = "test".into();
        session.state_mut().strategy = "threshold".into();
        let said = [
            "My cat is called Miso, she is four years old and afraid of thunder and of the neighbour's dog.",
            "What a lovely name. Miso sounds like a cat who has good taste, and thunder frightens many cats.",
            "She likes to sleep in the laundry basket, preferably when the towels in it are still warm.",
            "That makes sense: it is warm, it smells of you, and its walls make her feel safe from the dog.",
            "Remind me what we have to buy for her tomorrow morning at the market, before it closes at noon?",
            "You did not say yet what she needs. Shall we make a list: food, litter, perhaps a small toy?",
        ];
        for (at, text) in said.iter().enumerate() {
            let role = [Role::User, Role::Assistant][at % 2];
            let data = EntryData::message(Message::new(role, vec![Part::Text { text: (*text).into() }]));
            let parent_id = session.state.leaf.clone();
            let entry_id = format!("e{at}").parse().unwrap();
            let entry = Entry { entry_id, parent_id, timestamp: Timestamp(0), imported: None, data };
            let appended = EntryAppended { entry, turn_id: None, command_id: None };
            session.apply(&Event::EntryAppended(Box::new(appended)), &counter);
        }
        let windows = Windows::new(Some(8_000), Vec::new());
        let deployment = Deployment { model: "test".into(), windows, ..Deployment::default() };
        let seeded = Seed::new(session, Arc::new(deployment), Calibration::new(counter.method()), IdSource::seeded(1));
        let mut world = World { seed: 0, agent: AgentLoop::seeded(1, seeded), model: Model::Rambles, commands: 0 };
        match world.compact(named) {
            Came::Nothing(error) => assert_eq!(error.code, ErrorCode::NothingToCompact, "{named:?}"),
            came => panic!("{named:?}: {came:?}"),
        }
        assert_eq!(world.context().messages.len(), 6, "{named:?}");
    }
}
