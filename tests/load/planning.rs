//! The cost of deciding about a request, and of planning a compaction of a long context, compared with one pass over
//! the counts of its messages: less than looking at each message once is impossible for a plan. And the cost of stored
//! patches.

use crate::figures::{Figures, Goal, median, median_of, ms};
use anyhow::anyhow;
use reseed::core::{
    compaction::{
        cut::Keep,
        factory::Strategies,
        strategy::{Options, Planning},
        structure::Structure,
        summary_tokens_max,
    },
    context::{
        build_context,
        count::{Fixed, Freshness, count},
        counter::{Calibration, Counter},
    },
    session::{Node, SessionTree},
};
use reseed_protocol::{CallId, Entry, EntryData, EntryId, Message, Part, Role, Timestamp};
use serde_json::json;
use std::{hint::black_box, sync::Arc, time::Instant};

/// Entries, and the goal in milliseconds for planning a compaction of them.
const SIZES: [(usize, f64); 2] = [(1_000, 1.0), (100_000, 20.0)];

/// The goal in microseconds for deciding that a request needs no compaction.
const NOT_YET_MICROS: f64 = 2.0;

/// Decisions that are timed together: one is too short for the clock.
const DECISIONS: u32 = 100_000;

const ROUNDS: usize = 15;

pub(crate) fn measure(entries: usize, figures: &mut Figures) -> anyhow::Result<()> {
    let counter = Counter::for_model("test");
    let strategies = Strategies::default();
    for (entries, goal_ms) in SIZES.map(|(size, goal_ms)| (size.min(entries), goal_ms)) {
        let path = path(entries, &counter)?;
        let context = build_context(&path);
        let tokens: u64 = context.messages.iter().map(|counted| counted.tokens.total()).sum();
        // Just above the trigger.
        let window = tokens / 4 * 5;
        let fresh = Freshness { model: "test", envelope_key: "" };
        let calibration = Calibration::new(counter.method());
        let (mut floors, mut built, mut counted) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            floors.push(timed(|| context.messages.iter().map(|counted| counted.tokens.total()).sum::<u64>()));
            built.push(timed(|| build_context(&path)));
            counted.push(timed(|| count(&context, Fixed::default(), fresh, &counter, &calibration)));
        }
        let floor = median(floors);
        figures.add(
            &format!("planning: {entries} entries, the floor: one pass over counts"),
            ms(floor),
            "ms",
            Goal::None,
        );
        figures.add("planning: building the context", ms(median(built)), "ms", Goal::None);
        figures.add("planning: counting the request", ms(median(counted)), "ms", Goal::None);
        for name in strategies.names() {
            let manager = strategies.make(name, None, &Options::default()).map_err(|error| anyhow!(error.message))?;
            let summary_tokens = summary_tokens_max(window);
            let target_tokens = manager.target_tokens(window);
            let keep = Keep { tokens: manager.keep_tokens(window), tokens_max: target_tokens - summary_tokens };
            let (mut plans, mut ratios) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                let floor = timed(|| context.messages.iter().map(|counted| counted.tokens.total()).sum::<u64>());
                let plan = timed(|| {
                    let structure = Structure::of(&context);
                    let planning =
                        Planning { context: &context, structure: &structure, keep, target_tokens, summary_tokens };
                    manager.steps(&planning).len()
                });
                ratios.push(plan.as_secs_f64() / floor.as_secs_f64());
                plans.push(plan);
            }
            figures.add(&format!("planning: {name}"), ms(median(plans)), "ms", Goal::AtMost(goal_ms));
            figures.add(&format!("planning: {name}, to the floor"), median_of(ratios), "x", Goal::None);

            let count = count(&context, Fixed::default(), fresh, &counter, &calibration);
            let decided = timed(|| {
                for _ in 0..DECISIONS {
                    black_box(manager.before_request(black_box(&count), black_box(window * 2)));
                }
            });
            let micros = ms(decided) * 1e3 / f64::from(DECISIONS);
            figures.add(&format!("planning: {name}, to decide: not yet"), micros, "us", Goal::AtMost(NOT_YET_MICROS));
        }
    }
    replay(entries.min(REPLAYED), figures)
}

/// Entries of a path on which every tenth is a patch.
const REPLAYED: usize = 10_000;

/// The goal in milliseconds for applying the patches of such a path when its session is opened.
const REPLAY_MS: f64 = 20.0;

/// Measures the cost of stored patches: once when a session is opened, and with each later request that adds none.
fn replay(entries: usize, figures: &mut Figures) -> anyhow::Result<()> {
    let counter = Counter::for_model("test");
    let plain = path(entries, &counter)?;
    let patched = patched(&plain, &counter)?;
    let (mut floors, mut built, mut later) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        floors.push(timed(|| build_context(&plain)));
        built.push(timed(|| build_context(&patched)));
        let mut tree = SessionTree::default();
        patched.iter().for_each(|node| tree.append(node.clone()));
        black_box(tree.context());
        later.push(timed(|| tree.context()));
    }
    let (floor, built) = (median(floors), median(built));
    let patches = entries / 10;
    figures.add(&format!("replay: {entries} entries, the floor: without patches"), ms(floor), "ms", Goal::None);
    figures.add(&format!("replay: {patches} patches among them"), ms(built), "ms", Goal::AtMost(REPLAY_MS));
    figures.add("replay: patches, to the floor", built.as_secs_f64() / floor.as_secs_f64(), "x", Goal::None);
    figures.add("replay: a later request that adds none", ms(median(later)) * 1e3, "us", Goal::None);
    Ok(())
}

/// Returns the path with a patch after every ninth entry: of parts of the system prompt, of options, and of the message
/// just before.
fn patched(plain: &[Arc<Node>], counter: &Counter) -> anyhow::Result<Vec<Arc<Node>>> {
    let mut patched: Vec<Arc<Node>> = Vec::with_capacity(plain.len());
    for (at, node) in plain.iter().enumerate() {
        if at % 10 != 9 {
            patched.push(node.clone());
            continue;
        }
        let reason = "invalidateCacheReason";
        let op = match at / 10 % 3 {
            0 => {
                json!({ "op": "system_part_set", "partName": format!("part{}", at % 7), "text": "Be brief.", reason: "r" })
            }
            1 => json!({ "op": "options_set", "maxOutputTokens": at, reason: "r" }),
            _ => {
                let said =
                    plain[..at].iter().rev().find(|node| node.message.as_ref().is_some_and(|m| m.role == Role::User));
                let id = said.map(|node| node.id().to_string());
                let message = json!({ "role": "user", "content": [{ "type": "text", "text": "[taken out]" }] });
                json!({ "op": "messages_cached_edit", "edits": [{ "entryId": id, "message": message }], reason: "r" })
            }
        };
        let entry = json!({
            "entryId": format!("t{at}"), "parentId": null, "timestamp": Timestamp(0), "type": "context_transform",
            "schemaVersion": 1, "transformerName": "load", "patch": [op],
        });
        let mut entry: Entry = serde_json::from_value(entry)?;
        entry.parent_id = patched.last().map(|node| node.id().clone());
        patched.push(Arc::new(Node::counted(entry, counter)));
    }
    Ok(patched)
}

fn timed<T>(work: impl FnOnce() -> T) -> std::time::Duration {
    let begun = Instant::now();
    black_box(work());
    begun.elapsed()
}

/// Returns a path of questions, calls with results, and answers, one after the other.
fn path(entries: usize, counter: &Counter) -> anyhow::Result<Vec<Arc<Node>>> {
    let mut parent: Option<EntryId> = None;
    let mut path = Vec::with_capacity(entries);
    for at in 0..entries {
        let call_id: CallId = format!("call{}", at / 4).parse()?;
        let text =
            |words: &str| Part::Text { text: format!("{words} {at} of the tides in src/harbour/tides_{at}.rs.") };
        let message = match at % 4 {
            0 => Message::new(Role::User, vec![text("Please look up the tables")]),
            1 => {
                let arguments = format!(r#"{{"path":"src/harbour/tides_{at}.rs"}}"#);
                Message::new(Role::Assistant, vec![Part::ToolCall { call_id, name: "read".into(), arguments }])
            }
            2 => {
                let output = format!("line {at}: high water at 17:40, low water at 23:52. ").repeat(3);
                Message::new(Role::Tool, vec![Part::ToolResult { call_id, output, is_error: false }])
            }
            _ => Message::new(Role::Assistant, vec![text("High water is at 17:40, as it says in table")]),
        };
        let entry_id: EntryId = format!("e{at}").parse()?;
        let entry = Entry {
            entry_id: entry_id.clone(),
            parent_id: parent.replace(entry_id),
            timestamp: Timestamp(0),
            imported: None,
            data: EntryData::message(message),
        };
        path.push(Arc::new(Node::counted(entry, counter)));
    }
    Ok(path)
}
