//! What it costs to decide about a request, and to plan a compaction of a long context, beside one pass over the counts
//! of its messages: less than looking at each message once no plan can do.

use crate::figures::{Figures, Goal, median, median_of, ms};
use anyhow::anyhow;
use reseed::core::{
    context::{
        build_context,
        compaction::summary_tokens_max,
        count::{Fixed, Freshness, count},
        counter::{Calibration, Counter, Estimator},
        cut::Keep,
        factory::Strategies,
        strategy::{Options, Planning},
        structure::Structure,
    },
    session::Node,
};
use reseed_protocol::{CallId, Entry, EntryData, EntryId, Message, Part, Role, Timestamp};
use std::{hint::black_box, sync::Arc, time::Instant};

/// Entries, and the milliseconds in which a compaction of them is to be planned.
const SIZES: [(usize, f64); 2] = [(1_000, 1.0), (100_000, 20.0)];

/// Microseconds in which a request that may go out as it is is to be told from one that may not.
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
        let fresh = Freshness { model: "test", envelope_key: "", estimator: Estimator::Own };
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
    Ok(())
}

fn timed<T>(work: impl FnOnce() -> T) -> std::time::Duration {
    let begun = Instant::now();
    black_box(work());
    begun.elapsed()
}

/// A path of questions, calls with results, and answers, one after the other.
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
            data: EntryData::Message(message),
        };
        path.push(Arc::new(Node::counted(entry, counter)));
    }
    Ok(path)
}
