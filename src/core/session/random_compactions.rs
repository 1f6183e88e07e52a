//! Random histories, cut and compacted repeatedly in every way. What must stay stays, nothing that was removed returns,
//! and whatever the model writes as a summary, the context shrinks or stays the same.
//!
//! A failure prints its seed; `SEED=72 cargo test -p reseed-core random_compactions` replays it alone.

mod checks;
mod held;
mod talk;

use super::{Session, SessionTree, tree::PathReader};
use crate::{
    compaction::{
        Job, Next, Order, Outcome, Surroundings, Writing,
        cut::{Keep, cut_from, cut_units, must_stay, turns_cut},
        extract::extract,
        factory::Strategies,
        segments::Room,
        strategy::{ContextManager, FallbackStep, Options, Planning},
        structure::Structure,
        summary_tokens_max,
    },
    context::{
        build::build_context,
        counter::Counter,
        envelope::{Compiled, envelope},
        messages::{Context, Counted, Kind},
    },
    model::{Answer, ModelRequest, Purpose},
    prices::Prices,
    text::files::FileTools,
};
use fastrand::Rng;
use reseed_protocol::{
    Entry, EntryData, EntryId, Message, Part, Role, SessionId, StopReason, Timestamp,
    compaction::{Compaction, CompactionRung, CompactionTrigger, Pin},
    context::{EnvelopeMeta, RequestOptions},
    event::Event,
    session::SessionUpdated,
    tree::{BranchSummary, CustomMessage, EntryAppended},
};
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

const HISTORIES: u64 = 70;
const OPERATIONS: usize = 60;

/// Tokens that the text around the summary and the file lists may add to the summary's bound.
const WRAPPING_TOKENS: u64 = 700;

struct World {
    seed: u64,
    rng: Rng,
    counter: Counter,
    session: Session,
    manager: Box<dyn ContextManager>,
    window: u64,
    entries: Vec<Entry>,
    /// Compactions that may be undone, each with the context before it and the number of entries then.
    undoable: Vec<(EntryId, Vec<Seen>, usize)>,
    /// Counts of what happened.
    tally: Tally,
}

type Tally = BTreeMap<String, u64>;

type Seen = (Option<EntryId>, Arc<Message>);

fn seen(context: &Context) -> Vec<Seen> {
    context.messages.iter().map(|counted| (counted.entry_id.clone(), counted.message.clone())).collect()
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let strategies = Strategies::default();
        let names: Vec<&str> = strategies.names().collect();
        let options = Options {
            keep_recent_tokens: rng.u64(1..2_000),
            keep_turns: rng.u64(1..5),
            keep_tool_results: rng.u64(0..4),
            summarise: rng.bool(),
            steps: vec!["tool_results", "sliding_window", "importance", "truncate"],
            ..Options::default()
        };
        let name = names[usize::try_from(seed).unwrap() % names.len()];
        let manager = strategies.make(name, None, &options).unwrap();
        let id: SessionId = "session".parse().unwrap();
        Self {
            seed,
            counter: Counter::for_model("test"),
            session: Session::new(id, Timestamp(0)),
            manager,
            window: rng.u64(2_000..8_000),
            rng,
            entries: Vec::new(),
            undoable: Vec::new(),
            tally: Tally::new(),
        }
    }

    fn count(&mut self, what: String) {
        *self.tally.entry(what).or_default() += 1;
    }

    fn context(&self) -> Context {
        build_context(self.session.tree.path())
    }

    fn append(&mut self, data: EntryData) -> EntryId {
        let entry_id: EntryId = format!("e{}", self.entries.len()).parse().unwrap();
        let parent_id = self.session.state.leaf.clone();
        let entry = Entry { entry_id: entry_id.clone(), parent_id, timestamp: Timestamp(0), imported: None, data };
        self.entries.push(entry.clone());
        let appended = EntryAppended { entry, turn_id: None, command_id: None };
        self.session.apply(&Event::EntryAppended(Box::new(appended)), &self.counter);
        // The path is read with its marks, as in the agent loop.
        self.session.tree.mark(&self.session.state);
        entry_id
    }

    fn read(&self) -> SessionTree {
        let mut reader = PathReader::new(&self.session.state, &self.counter);
        for entry in self.entries.iter().rev() {
            if !reader.take(entry.clone()) {
                break;
            }
        }
        reader.finish()
    }

    fn operate(&mut self) {
        match self.rng.u8(..100) {
            0..25 => self.say(Role::User),
            25..45 => self.say(Role::Assistant),
            45..65 => self.call(),
            65..69 => {
                let content = vec![Part::Text { text: self.text() }];
                let note = CustomMessage { custom_type: "note".into(), content, display: true, details: None };
                drop(self.append(EntryData::CustomMessage(note)));
            }
            69..71 => {
                let summary = self.text();
                let branch = BranchSummary { summary, ..BranchSummary::default() };
                drop(self.append(EntryData::BranchSummary(branch)));
            }
            71..76 => self.pin(),
            76..78 => self.set_pins(Vec::new()),
            78..82 => self.undo(),
            82..88 => self.cut_somewhere(),
            // This is another program's compaction with a boundary off the path, so it keeps nothing.
            88 => {
                let context = self.context();
                let elsewhere = Some("elsewhere".parse().unwrap());
                let summary = self.text();
                self.commit(&context, (elsewhere, Vec::new(), Vec::new(), summary));
                self.say(Role::User);
            }
            _ => self.compact(),
        }
    }

    /// Pins a visible entry and its whole unit.
    fn pin(&mut self) {
        let context = self.context();
        let structure = Structure::of(&context);
        let Some(unit) = self.rng.choice(&structure.units) else { return };
        let ids = context.messages[unit.messages.clone()].iter().filter_map(|counted| counted.entry_id.clone());
        let mut pins = self.session.state.pins.clone();
        pins.extend(ids.map(|entry_id| Pin { entry_id, with: None, under: None }));
        self.set_pins(pins);
    }

    fn set_pins(&mut self, pins: Vec<Pin>) {
        let updated = SessionUpdated { pins: Some(pins), ..SessionUpdated::default() };
        self.session.apply(&Event::SessionUpdated(Box::new(updated)), &self.counter);
        self.session.tree = self.read();
    }

    fn undo(&mut self) {
        let newest = self.session.tree.path().iter().rev().find(|node| node.compaction().is_some());
        let Some(newest) = newest.map(|node| node.id().clone()) else { return };
        let Some((_, before, entries)) = self.undoable.pop().filter(|(id, ..)| *id == newest) else { return };
        self.session.state_mut().undone.push(newest);
        self.session.tree = self.read();
        let since: HashSet<EntryId> = self.entries[entries..].iter().map(|entry| entry.entry_id.clone()).collect();
        let mut now = seen(&self.context());
        now.retain(|(id, _)| id.as_ref().is_some_and(|id| !since.contains(id)));
        let before: Vec<Seen> = before.into_iter().filter(|(id, _)| id.is_some()).collect();
        self.count("undone".into());
        assert!(now == before, "seed {}: an undone compaction does not bring back what was seen", self.seed);
    }

    /// Cuts at random, or as close to a random amount as is legal, and accepts any model summary.
    fn cut_somewhere(&mut self) {
        let context = self.context();
        let structure = Structure::of(&context);
        let all = structure.tokens().max(1);
        let tokens = self.rng.u64(1..=all);
        let keep = Keep { tokens, tokens_max: self.rng.u64(tokens..=all) };
        let cut = match self.rng.u8(..4) {
            0 => {
                let mut kept = must_stay(&context, &structure);
                kept.iter_mut().for_each(|kept| *kept |= self.rng.bool());
                cut_units(&context, &structure, &kept)
            }
            1 => turns_cut(&context, &structure, self.rng.usize(1..6), keep.tokens_max),
            2 => cut_from(&context, &structure, self.rng.usize(..=structure.units.len())),
            _ => self.nearest(&context, &structure, keep),
        };
        let Some(cut) = cut else { return };
        self.check_cut(&context, &structure, &cut);
        self.count(if cut.turn_prefix.is_some() { "cut within a turn" } else { "cut" }.into());
        let cleared = context.messages.iter().enumerate().filter(|(at, _)| !cut.summarised.contains(at));
        let cleared =
            cleared.filter(|(_, counted)| counted.cleared).filter_map(|(_, counted)| counted.entry_id.clone());
        let outcome = (cut.first_kept.clone(), cut.kept.clone(), cleared.collect(), self.text());
        self.commit(&context, outcome);
        let places = (0..context.messages.len()).filter(|at| Some(*at) != structure.summary);
        let kept = places.filter(|at| !cut.summarised.contains(at)).map(|at| &context.messages[at]);
        self.check_kept(&kept.collect::<Vec<_>>());
    }

    /// Compacts as the session's strategy says, with an unpredictable model.
    fn compact(&mut self) {
        let context = self.context();
        let structure = Structure::of(&context);
        let window = self.window;
        let summary_tokens = self.room().expected(&context);
        let target_tokens = self.manager.target_tokens(window);
        let keep =
            Keep { tokens: self.manager.keep_tokens(window), tokens_max: target_tokens.saturating_sub(summary_tokens) };
        let planning = Planning { context: &context, structure: &structure, keep, target_tokens, summary_tokens };
        let steps = self.manager.steps(&planning);
        assert_eq!(steps, self.manager.steps(&planning), "seed {}: planned twice, two plans", self.seed);
        for step in &steps {
            match step {
                FallbackStep::Summarise(cut) | FallbackStep::Truncate(cut) => self.check_cut(&context, &structure, cut),
                FallbackStep::Clear { results, .. } => {
                    let all = results.iter().map(|at| &context.messages[*at]);
                    assert!(all.clone().all(|counted| counted.message.role == Role::Tool && !counted.pinned));
                }
            }
        }
        if steps.is_empty() {
            return;
        }
        let Some(outcome) = self.run(&context, steps, target_tokens) else {
            self.count("nothing did".into());
            return;
        };
        self.count(format!("{} {:?}", self.manager.name(), outcome.rung));
        let outcome = self.hold(outcome);
        let context = self.context();
        let first = outcome.first_kept.as_ref();
        let tail = context
            .messages
            .iter()
            .position(|counted| counted.entry_id.is_some() && counted.entry_id.as_ref() == first);
        let kept: Vec<&Counted> = context
            .messages
            .iter()
            .enumerate()
            .filter(|(at, counted)| {
                let beside = counted.entry_id.as_ref().is_some_and(|id| outcome.kept.contains(id)) || counted.pinned;
                counted.kind != Kind::Summary && (tail.is_some_and(|tail| *at >= tail) || beside)
            })
            .map(|(_, counted)| counted)
            .collect();
        let Outcome { first_kept, kept: beside, cleared, summary, .. } = outcome;
        self.commit(&context, (first_kept, beside, cleared, summary));
        self.check_kept(&kept);
    }

    fn room(&self) -> Room {
        let options = self.manager.options();
        let target_tokens = self.manager.target_tokens(self.window);
        Room::of(target_tokens, summary_tokens_max(self.window), options.user_share, options.summary_mode)
    }

    /// Walks the fallback chain; returns `None` if no offer was acceptable.
    fn run(&mut self, context: &Context, steps: Vec<FallbackStep>, target_tokens: u64) -> Option<Outcome> {
        let path = self.session.tree.path().to_vec();
        let earlier =
            path.iter().rev().find_map(|node| node.compaction().map(|compaction| (node.id().clone(), compaction)));
        let originals = |id: &EntryId| path.iter().find(|node| node.id() == id)?.entry.shared_message().cloned();
        let conversation = self.rng.bool().then(|| ModelRequest {
            model: "test".into(),
            envelope: envelope(&Compiled::default(), context, &RequestOptions::default(), EnvelopeMeta::default()),
            purpose: Purpose::Summary,
            compared_with: None,
            compacts: None,
        });
        let around = Surroundings {
            model: "test",
            window_tokens: self.window,
            counter: self.counter,
            reasons: false,
            earlier: earlier.as_ref().map(|(_, compaction)| *compaction),
            details: None,
            file_tools: FileTools::default(),
            now: Timestamp(0),
            deadline: Timestamp(1),
            delimiter: "quoted".into(),
            asks_model: self.rng.u8(..4) > 0,
            room: self.room(),
            conversation,
            native: None,
            prices: Prices::default(),
            writing: Writing::default(),
        };
        let order = Order::automatic("job".parse().unwrap(), CompactionTrigger::Threshold);
        let base = earlier.as_ref().map(|(id, _)| id.clone());
        let largest = steps.iter().filter_map(|step| match step {
            FallbackStep::Truncate(cut) => Some(cut.dropped_tokens - Structure::of(context).summary_tokens),
            _ => None,
        });
        let largest = largest.max().unwrap_or(0);
        let mut job = Job::stage(order, base, context, originals, steps, around);
        let before = tokens(context);
        for _ in 0..500 {
            match job.advance() {
                Next::Ask(_) => self.answer(&mut job),
                Next::Offer(outcome) => {
                    let after = self.would_be(&outcome);
                    let gains = after + before / 20 < before;
                    if outcome.rung != CompactionRung::ClearToolResults {
                        let bound = outcome.allowed_tokens + WRAPPING_TOKENS;
                        let by_rule = matches!(outcome.rung, CompactionRung::Extract | CompactionRung::Truncate);
                        assert!(!by_rule || after <= bound, "seed {}: {after} by rule, {bound} at most", self.seed);
                    }
                    let does = outcome.any_gain || after <= target_tokens || after <= outcome.allowed_tokens;
                    if gains && does {
                        return Some(*outcome);
                    }
                    job.refuse(outcome, if after < before { "too_little" } else { "not_smaller" }, after);
                }
                Next::Exhausted => {
                    let best = job.best().filter(|(after, _)| after + before / 20 < before);
                    let hopeless = largest < WRAPPING_TOKENS + before / 20;
                    assert!(best.is_some() || hopeless, "seed {}: {largest} could go and stay", self.seed);
                    return best.map(|(_, outcome)| *outcome);
                }
            }
        }
        panic!("seed {}: a compaction does not end", self.seed);
    }

    /// Gives the model's answer, or a failure.
    fn answer(&mut self, job: &mut Job) {
        let said = self.text();
        let good = extract(&[Message::user(said.clone())], self.rng.usize(300..3_000));
        let (text, stop_reason) = match self.rng.u8(..10) {
            0..5 => (good, StopReason::Stop),
            5 => (good, StopReason::Length),
            6 => (said, StopReason::Stop),
            7 => (format!("{good}\n{}", "- more and more\n".repeat(3_000)), StopReason::Stop),
            8 => return job.too_large(None),
            _ => return if self.rng.bool() { job.out_of_time() } else { job.fall_back("upstream_error") },
        };
        job.take(&Answer::new(vec![Part::Text { text }], stop_reason));
    }

    fn would_be(&self, outcome: &Outcome) -> u64 {
        let mut other = Self {
            rng: self.rng.clone(),
            session: self.session.clone(),
            manager: Strategies::default().make("manual", None, &Options::default()).unwrap(),
            entries: self.entries.clone(),
            undoable: Vec::new(),
            tally: Tally::new(),
            ..*self
        };
        let Outcome { first_kept, kept, cleared, summary, .. } = outcome.clone();
        other.commit(&self.context(), (first_kept, kept, cleared, summary));
        tokens(&other.context())
    }

    /// Appends a compaction: the tail's first entry, the ones kept beside it, the cleared ones, the summary.
    fn commit(&mut self, context: &Context, made: (Option<EntryId>, Vec<EntryId>, Vec<EntryId>, String)) {
        let (first_kept_entry_id, mut kept_entry_ids, cleared_entry_ids, summary) = made;
        let path = self.session.tree.path();
        let tail = path.iter().position(|node| Some(node.id()) == first_kept_entry_id.as_ref()).unwrap_or(path.len());
        kept_entry_ids = path[..tail]
            .iter()
            .filter(|node| node.message.is_some() && (node.pinned || kept_entry_ids.contains(node.id())))
            .map(|node| node.id().clone())
            .collect();
        let compaction =
            Compaction { summary, first_kept_entry_id, kept_entry_ids, cleared_entry_ids, ..Compaction::default() };
        let entries = self.entries.len();
        let id = self.append(EntryData::Compaction(compaction));
        self.undoable.push((id, seen(context), entries));
    }
}

fn tokens(context: &Context) -> u64 {
    context.messages.iter().map(|counted| counted.tokens.total()).sum()
}

fn play(seed: u64) -> (Vec<Seen>, Tally) {
    let mut world = World::new(seed);
    for _ in 0..OPERATIONS {
        world.operate();
        world.check();
    }
    (seen(&world.context()), world.tally)
}

#[test]
fn every_compaction_keeps_what_must_stay() {
    let seeds = crate::seeds::seeds("HISTORIES", HISTORIES);
    let is_whole = seeds.clone().count() > 1;
    let mut all = Tally::new();
    for seed in seeds {
        let (end, tally) = play(seed);
        if seed % 10 == 0 {
            assert!((end, tally.clone()) == play(seed), "seed {seed}: played twice, two ends");
        }
        tally.into_iter().for_each(|(what, times)| *all.entry(what).or_default() += times);
    }
    if is_whole {
        let happened =
            |what: &str| all.iter().filter(|(key, _)| key.contains(what)).map(|(_, times)| *times).sum::<u64>();
        for what in [
            "undone",
            "held",
            "cut within",
            "Clear",
            "ModelSummary",
            "ChunkedSummary",
            "Extract",
            "Truncate",
            "nothing did",
        ]
        .into_iter()
        .chain(Strategies::default().names())
        {
            assert!(happened(what) >= 5, "hardly ever `{what}`: {all:#?}");
        }
    }
}
