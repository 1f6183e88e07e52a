//! The processor time of a compaction beside the model's: staging its request, and making an outcome of its answer.

use crate::figures::{Figures, Goal, median, ms};
use anyhow::bail;
use reseed::core::{
    compaction::{
        Job, Next, Order, Surroundings, Writing,
        cut::{Keep, find_cut},
        segments::Room,
        strategy::FallbackStep,
        structure::Structure,
        summary::FileTools,
        summary_tokens_max,
    },
    context::{Context, build_context, counter::Counter},
    model::Answer,
    prices::Prices,
    session::Node,
};
use reseed_protocol::{
    CallId, Entry, EntryData, EntryId, Message, Part, Role, StopReason, Timestamp, command::SummaryMode,
    event::CompactionTrigger,
};
use rustix::time::{ClockId, clock_gettime};
use std::{fmt::Write as _, sync::Arc, time::Duration};

/// Returns the milliseconds that the compaction of this many tokens may take.
fn goal_ms(tokens: u64) -> f64 {
    if tokens <= 60_000 { 5.0 } else { 60.0 }
}

/// Models whose texts are counted by character weights and by a real tokenizer.
const MODELS: [&str; 2] = ["test", "gpt-4o"];

pub(crate) fn measure(sizes: &[u64], rounds: usize, figures: &mut Figures) -> anyhow::Result<()> {
    for model in MODELS {
        let counter = Counter::for_model(model);
        counter.warm();
        for tokens in sizes.iter().copied() {
            let context = conversation(tokens, &counter)?;
            let (mut staged, mut taken) = (Vec::new(), Vec::new());
            for _ in 0..rounds {
                let (stage, take) = compacted(&context, tokens, model, counter)?;
                staged.push(stage);
                taken.push(take);
            }
            let (stage, take) = (median(staged), median(taken));
            let name = format!("compacting: {tokens} tokens, {model}");
            figures.add(&format!("{name}, staging the request"), ms(stage), "ms", Goal::None);
            figures.add(&format!("{name}, taking the summary"), ms(take), "ms", Goal::None);
            figures.add(&format!("{name}, together"), ms(stage + take), "ms", Goal::AtMost(goal_ms(tokens)));
        }
    }
    Ok(())
}

/// Compacts once; returns the time until the model was asked, and from its answer to the outcome.
fn compacted(context: &Context, tokens: u64, model: &str, counter: Counter) -> anyhow::Result<(Duration, Duration)> {
    let window = tokens * 2;
    let structure = Structure::of(context);
    let keep = Keep { tokens: 1_000, tokens_max: window / 2 };
    let Some(cut) = find_cut(context, &structure, keep) else { bail!("nothing can be cut") };
    let around = Surroundings {
        model,
        window_tokens: window,
        counter,
        counted_by: counter.method(),
        answer_tokens_max: None,
        reasons: false,
        earlier: None,
        details: None,
        file_tools: FileTools::default(),
        now: Timestamp(0),
        deadline: Timestamp(1),
        delimiter: "quoted".into(),
        asks_model: true,
        room: Room::of(window / 2, summary_tokens_max(window), 0.5, SummaryMode::Segments),
        conversation: None,
        prices: Prices::default(),
        writing: Writing::default(),
    };
    let order = Order::automatic("job".parse()?, CompactionTrigger::Threshold);
    let begun = processor_time();
    let mut job = Job::stage(order, None, context, |_| None, vec![FallbackStep::Summarise(cut)], around);
    let Next::Ask(request) = job.advance() else { bail!("the model is not asked") };
    let stage = processor_time().saturating_sub(begun);
    drop(request);
    let answer = Answer::new(vec![Part::Text { text: summary() }], StopReason::Stop);
    let begun = processor_time();
    job.take(&answer);
    let Next::Offer(outcome) = job.advance() else { bail!("the summary is not taken") };
    let take = processor_time().saturating_sub(begun);
    if outcome.failed.is_empty() { Ok((stage, take)) } else { bail!("the summary is not used: {:?}", outcome.failed) }
}

/// Returns the processor time that this thread has used.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Builds a conversation of questions, answers, calls and their results, as in work on files.
fn conversation(tokens: u64, counter: &Counter) -> anyhow::Result<Context> {
    let (mut path, mut parent, mut counted) = (Vec::new(), None, 0);
    for at in 0_usize.. {
        if counted >= tokens {
            break;
        }
        let call_id: CallId = format!("c{}", at / 4).parse()?;
        let message = match at % 4 {
            0 => Message::user(prose(at, 60)),
            1 => {
                let arguments = format!(r#"{{"path":"src/harbour/tides_{at}.rs"}}"#);
                Message::new(Role::Assistant, vec![Part::ToolCall { call_id, name: "read".into(), arguments }])
            }
            2 => {
                let output = prose(at, 300);
                Message::new(Role::Tool, vec![Part::ToolResult { call_id, output, is_error: false }])
            }
            _ => Message::new(Role::Assistant, vec![Part::Text { text: prose(at, 150) }]),
        };
        let entry_id: EntryId = format!("e{at}").parse()?;
        let entry = Entry {
            entry_id: entry_id.clone(),
            parent_id: parent.replace(entry_id),
            timestamp: Timestamp(0),
            imported: None,
            data: EntryData::message(message),
        };
        let node = Node::counted(entry, counter);
        counted += node.tokens.total();
        path.push(Arc::new(node));
    }
    Ok(build_context(&path))
}

/// Returns sentences with names, numbers and paths, of about this many words; another `seed` gives others.
fn prose(seed: usize, words: usize) -> String {
    const SAID: [&str; 8] = [
        "The tide at the western pier is high at",
        "we decided to keep the schedule in the file",
        "please look again at what the parser does with",
        "the request failed after several attempts with code",
        "My cat is called Miso and sleeps on the",
        "it would be better to move the check before line",
        "nothing of that has changed since the release of",
        "the ferry to the island leaves from gate number",
    ];
    let mut text = String::new();
    for at in 0..words / 8 {
        let n = seed * 31 + at * 7;
        let _ = write!(text, "{} {n} (`tides_{}`, see src/harbour/{}.rs). ", SAID[n % SAID.len()], n % 97, n % 53);
        if at % 6 == 5 {
            text.push('\n');
        }
    }
    text
}

fn summary() -> String {
    let points: Vec<String> =
        (0..60).map(|at| format!("- The {at}th point is about pier {at} and gate {}", at * 3)).collect();
    format!(
        "## Goal\n- Keep the schedule\n\n## Constraints & Preferences\n- none\n\n## Progress\n### Done\n- none\n### In \
         Progress\n- none\n### Blocked\n- none\n\n## Key Decisions\n- none\n\n## Next Steps\n- none\n\n## Critical \
         Context\n{}",
        points.join("\n")
    )
}
