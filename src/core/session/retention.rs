//! What ten and more compactions preserve: a conversation of 300 turns with 200 planted facts in a window of 16,000
//! tokens, through every strategy, with a summariser that selects sentences by rule and with one that forgets half of
//! what it should keep. The table is in `src/core/compaction/summary/README.md`.
//!
//! Everything derives from a fixed seed: the table is the same on every machine.

mod kinds;
mod talk;

use super::SessionTree;
use crate::core::{
    compaction::{
        Job, Next, Order, Outcome, Surroundings, Writing,
        cut::Keep,
        extract::extract,
        factory::Strategies,
        strategy::{ContextManager, Options, Planning, share},
        structure::Structure,
        summary::read_prompt,
        summary_tokens_max,
    },
    context::{build::build_context, counter::Counter, node::Node},
    model::{Answer, ModelRequest},
    prices::Prices,
    text::files::FileTools,
};
use reseed_protocol::{
    Entry, EntryData, EntryId, Message, Part, Role, StopReason, Timestamp, entry::Compaction, event::CompactionTrigger,
};
use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path, sync::Arc};
use talk::{Dice, KINDS, Summariser, facts, honest, lossy, turns};

const WINDOW_TOKENS: u64 = 16_000;
/// `tool_results` is covered as the first step of the pipeline.
const STRATEGIES: [&str; 4] = ["threshold", "sliding_window", "importance", "pipeline"];
const BEGIN: &str = "<!-- retention: begin -->\n";
const END: &str = "<!-- retention: end -->\n";

/// Minimum percentage of facts, all identifiers or open tasks, that survive with repair on.
const PERCENT_MIN: f64 = 99.0;
/// The same with a summariser that forgets half of everything more than fifty times: nearly everything ever stated is
/// missing then, and the section has no room for it.
const OFTEN_FORGOTTEN_PERCENT_MIN: f64 = 93.0;

/// A session without an agent loop.
struct World {
    tree: SessionTree,
    counter: Counter,
    manager: Box<dyn ContextManager>,
    summariser: Summariser,
    restored_tokens_max: u64,
    next: usize,
    base: Option<EntryId>,
    compactions: u32,
    /// Maximum tokens of any section of restored facts.
    restored_tokens: u64,
}

impl World {
    fn append(&mut self, data: EntryData) -> EntryId {
        let id: EntryId = format!("e{}", self.next).parse().unwrap();
        self.next += 1;
        let parent_id = self.tree.leaf().cloned();
        let entry = Entry { entry_id: id.clone(), parent_id, timestamp: Timestamp(0), imported: None, data };
        self.tree.append(Arc::new(Node::counted(entry, &self.counter)));
        id
    }

    fn say(&mut self, role: Role, parts: Vec<Part>) {
        self.append(EntryData::message(Message::new(role, parts)));
    }

    fn tokens(&self) -> u64 {
        build_context(self.tree.path()).messages.iter().map(|counted| counted.tokens.total()).sum()
    }

    /// Compacts when the strategy would.
    fn settle(&mut self) {
        let options = self.manager.options();
        let turns = Structure::of(&build_context(self.tree.path())).turns() as u64;
        let by_turns = self.manager.name() == "sliding_window" && turns > options.keep_turns / 2 * 3;
        let limit = self.manager.compact_at_tokens(WINDOW_TOKENS).unwrap();
        if self.tokens() > limit || by_turns {
            self.compact();
        }
        assert!(self.tokens() <= limit, "{} is still above {limit}", self.manager.name());
    }

    fn compact(&mut self) {
        let context = build_context(self.tree.path());
        let structure = Structure::of(&context);
        let summary_tokens = summary_tokens_max(WINDOW_TOKENS) + self.restored_tokens_max;
        let target_tokens = self.manager.target_tokens(WINDOW_TOKENS);
        let keep = Keep {
            tokens: self.manager.keep_tokens(WINDOW_TOKENS),
            tokens_max: target_tokens.saturating_sub(summary_tokens),
        };
        let planning = Planning { context: &context, structure: &structure, keep, target_tokens, summary_tokens };
        let steps = self.manager.steps(&planning);
        let path = self.tree.path();
        let earlier = path.iter().rev().find_map(|node| node.compaction()).cloned();
        let originals = |id: &EntryId| {
            let node = path.iter().find(|node| node.id() == id)?;
            node.entry.shared_message().cloned()
        };
        let around = Surroundings {
            model: "gpt-4o",
            window_tokens: WINDOW_TOKENS,
            counter: self.counter,
            counted_by: self.counter.method(),
            summary_tokens_max: summary_tokens_max(WINDOW_TOKENS),
            reasons: false,
            answer_tokens_max: None,
            earlier: earlier.as_ref(),
            details: earlier.as_ref().and_then(|earlier| earlier.details.clone()),
            file_tools: FileTools::default(),
            now: Timestamp(0),
            deadline: Timestamp(1),
            delimiter: "k3j9x2".to_owned(),
            asks_model: true,
            restored_tokens_max: self.restored_tokens_max,
            conversation: None,
            prices: Prices::default(),
            writing: Writing::default(),
            rules: Vec::new(),
        };
        let order = Order::automatic("job".parse().unwrap(), CompactionTrigger::Threshold);
        let mut job = Job::stage(order, self.base.clone(), &context, originals, steps, around);
        let before = self.tokens();
        loop {
            match job.advance() {
                Next::Ask(request) => {
                    let text = (self.summariser)(&request);
                    let answer = Answer::new(vec![Part::Text { text }], StopReason::Stop);
                    job.take(&answer);
                }
                Next::Offer(outcome) => {
                    let after = self.would_be(&outcome);
                    let gains = after + share(before, self.manager.options().min_gain) <= before;
                    let enough = outcome.any_gain || after <= target_tokens.max(outcome.allowed_tokens);
                    if gains && enough {
                        assert!(job.failed().iter().all(|failed| failed.reason == "too_little"), "{:?}", job.failed());
                        return self.commit(&outcome);
                    }
                    job.refuse(outcome, "too_little", after);
                }
                Next::Exhausted => panic!("{} finds no room: {:?}", self.manager.name(), job.failed()),
            }
        }
    }

    fn would_be(&self, outcome: &Outcome) -> u64 {
        let mut tree = self.tree.clone();
        let entry = Entry {
            entry_id: "would-be".parse().unwrap(),
            parent_id: tree.leaf().cloned(),
            timestamp: Timestamp(0),
            imported: None,
            data: compaction(outcome),
        };
        tree.append(Arc::new(Node::counted(entry, &self.counter)));
        tree.clear(&outcome.cleared, &self.counter);
        build_context(tree.path()).messages.iter().map(|counted| counted.tokens.total()).sum()
    }

    fn commit(&mut self, outcome: &Outcome) {
        let section = outcome.summary.split_once("\n\n## Restored Facts\n").map_or("", |(_, section)| section);
        let section = section.split("\n\n<").next().unwrap_or_default();
        self.restored_tokens = self.restored_tokens.max(self.counter.text(section));
        let id = self.append(compaction(outcome));
        self.tree.clear(&outcome.cleared, &self.counter);
        self.base = Some(id);
        self.compactions += 1;
    }
}

fn compaction(outcome: &Outcome) -> EntryData {
    EntryData::Compaction(Compaction {
        summary: outcome.summary.clone(),
        first_kept_entry_id: outcome.first_kept.clone(),
        kept_entry_ids: outcome.kept.clone(),
        cleared_entry_ids: outcome.cleared.clone(),
        tokens_before: 0,
        tokens_after: None,
        trigger: None,
        duration_ms: None,
        details: Some(outcome.details.clone()),
        constraints: outcome.constraints.clone(),
        ..Compaction::default()
    })
}

/// The result of one conversation.
struct Retained {
    compactions: u32,
    /// Surviving and stated facts, by kind.
    by_kind: BTreeMap<usize, (u32, u32)>,
    restored_tokens: u64,
}

impl Retained {
    fn percent(&self, kinds: impl Fn(usize) -> bool) -> f64 {
        let counts = self.by_kind.iter().filter(|(kind, _)| kinds(**kind)).map(|(_, counts)| *counts);
        let (kept, told) = counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        f64::from(kept) * 100.0 / f64::from(told)
    }
}

fn world(name: &str, summariser: Summariser, repairs: bool) -> World {
    let manager = Strategies::default().make(name, None, &Options::default()).unwrap();
    let restored_tokens_max = if repairs { manager.target_tokens(WINDOW_TOKENS) / 10 } else { 0 };
    World {
        tree: SessionTree::default(),
        counter: Counter::for_model("gpt-4o"),
        manager,
        summariser,
        restored_tokens_max,
        next: 0,
        base: None,
        compactions: 0,
        restored_tokens: 0,
    }
}

/// Plays all turns.
fn conversation(name: &str, summariser: Summariser, repairs: bool) -> Retained {
    let mut world = world(name, summariser, repairs);
    let facts = facts();
    for (turn, said) in turns(&facts).enumerate() {
        world.say(Role::User, vec![Part::Text { text: said.user }]);
        if let Some(output) = said.looked {
            let call_id: reseed_protocol::CallId = format!("c{turn}").parse().unwrap();
            let arguments = "{}".to_owned();
            world.say(
                Role::Assistant,
                vec![Part::ToolCall { call_id: call_id.clone(), name: "look".into(), arguments }],
            );
            world.say(Role::Tool, vec![Part::ToolResult { call_id, output, is_error: false }]);
        }
        world.say(Role::Assistant, vec![Part::Text { text: said.assistant }]);
        world.settle();
    }
    let seen: String =
        build_context(world.tree.path()).messages.iter().map(|sent| sent.message.text() + "\n").collect();
    let mut by_kind: BTreeMap<usize, (u32, u32)> = BTreeMap::new();
    for fact in &facts {
        let (kept, told) = by_kind.entry(fact.kind).or_default();
        *kept += u32::from(seen.contains(&fact.exact));
        *told += 1;
    }
    Retained { compactions: world.compactions, by_kind, restored_tokens: world.restored_tokens }
}

const IS_TASK: usize = 5;

#[test]
fn the_table_in_the_readme_is_what_is_retained() {
    let kinds: Vec<String> = KINDS.iter().map(|kind| format!("{kind} |")).collect();
    let mut table = format!(
        "| strategy | summariser | repair | compactions | put back, tokens | {} identifiers | all |\n",
        kinds.join(" ")
    );
    table += &format!("| --- | --- | --- |{}\n", " ---: |".repeat(KINDS.len() + 4));
    let mut missed = Vec::new();
    for name in STRATEGIES {
        for (called, summariser) in [("honest", honest as Summariser), ("lossy", lossy)] {
            let both = std::thread::scope(|scope| {
                let of = |repairs| scope.spawn(move || conversation(name, summariser, repairs));
                [of(false), of(true)].map(|talk| talk.join().unwrap())
            });
            for (repairs, retained) in [false, true].into_iter().zip(both) {
                let identifiers = retained.percent(|kind| kind != IS_TASK);
                let repair = if repairs { "on" } else { "off" };
                let _ = write!(
                    table,
                    "| {name} | {called} | {repair} | {} | {} |",
                    retained.compactions, retained.restored_tokens
                );
                let each = (0..KINDS.len()).map(|kind| retained.percent(|of| of == kind));
                for percent in each.chain([identifiers, retained.percent(|_| true)]) {
                    let _ = write!(table, " {percent:.1} % |");
                }
                table.push('\n');
                if retained.compactions < 10 {
                    missed.push(format!("{name} {called}: {} compactions", retained.compactions));
                }
                let is_worst = called == "lossy" && retained.compactions > 50;
                let least = if is_worst { OFTEN_FORGOTTEN_PERCENT_MIN } else { PERCENT_MIN };
                let all = retained.percent(|_| true);
                if repairs && all < least {
                    missed.push(format!("{name} {called}: {all:.1} % of all facts"));
                }
            }
        }
    }
    println!("{table}");
    between(BEGIN, END, &table);
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// Compares a table with the one between these marks in the README.
fn between(begin: &str, end: &str, table: &str) {
    // Two tables may be written at the same time.
    static README: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _alone = README.lock().unwrap();
    let path = Path::new("compaction/summary/README.md");
    let committed = fs::read_to_string(path).unwrap();
    let (head, rest) = committed.split_once(begin).unwrap();
    let (_, tail) = rest.split_once(end).unwrap();
    let measured = format!("{head}{begin}{table}{end}{tail}");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(path, measured).unwrap();
    } else {
        assert_eq!(committed, measured, "run `UPDATE=1 cargo test` to rewrite it");
    }
}
