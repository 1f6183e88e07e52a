//! The whole cost of a compaction, from a client's `start_compaction` to `context_compacted` and the loop that follows.

use crate::{
    client::Client,
    figures::{Figures, Goal, median, ms},
    history_store,
    process::{Bench, Process},
    turn::commit,
};
use anyhow::Context as _;
use reseed::core::context::counter::Counter;
use reseed_protocol::{CallId, Message, Part, Role};
use serde_json::json;
use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

/// Returns the milliseconds of processor time, and of waiting beyond the model and a commit, that the compaction of
/// this many tokens may take.
fn goals(tokens: u64) -> (f64, f64) {
    match tokens {
        0..=10_000 => (3.0, 5.0),
        10_001..=60_000 => (8.0, 10.0),
        _ => (60.0, 80.0),
    }
}

/// Models whose texts are counted by character weights and by a real tokenizer.
const MODELS: [&str; 2] = ["test", "gpt-4o"];

/// Rounds that do not count: one-time loading.
const WARM: usize = 2;

pub(crate) async fn measure(bench: &Bench, sizes: &[u64], rounds: usize, figures: &mut Figures) -> anyhow::Result<()> {
    let database = bench.database("compacting");
    for model in MODELS {
        let counter = Counter::for_model(model);
        for tokens in sizes {
            let messages = conversation(*tokens, &counter)?;
            history_store::write_messages(&database, &format!("{model}-{tokens}"), model, messages).await?;
        }
    }
    let base_url = bench.upstream.base_url();
    let settings = [
        ("OPENAI_BASE_URL", &*base_url),
        ("MODEL_WINDOWS", "test=1000000,gpt-4o=1000000"),
        ("CONTEXT_STRATEGY", "threshold:keepRecentTokens=1000,background=1"),
    ];
    let server = bench.reseed_with(&database, &settings).await?;
    bench.upstream.answer_with(&summary());
    let commit = commit(bench, "compacting-commit").await?;
    for model in MODELS {
        for tokens in sizes.iter().copied() {
            let mut client = Client::session(&server, Some(&format!("{model}-{tokens}"))).await?;
            let (mut waited, mut used) = (Vec::new(), Vec::new());
            for round in 0..WARM + rounds {
                let (wait, cpu) = compacted(bench, &server, &mut client).await?;
                if round >= WARM {
                    waited.push(wait.saturating_sub(commit));
                    used.push(cpu);
                }
            }
            let (cpu_goal, wait_goal) = goals(tokens);
            let name = format!("compacting: {tokens} tokens, {model}");
            figures.add(&format!("{name}, processor time"), ms(median(used)), "ms", Goal::AtMost(cpu_goal));
            let wait = ms(median(waited));
            figures.add(&format!("{name}, waiting beyond model and commit"), wait, "ms", Goal::AtMost(wait_goal));
            client.close().await?;
        }
    }
    Ok(())
}

/// Compacts once and undoes it. Returns the time from the command to `context_compacted` without the model's, and the
/// processor time of the server until the next loop answers.
async fn compacted(bench: &Bench, server: &Process, client: &mut Client) -> anyhow::Result<(Duration, Duration)> {
    let before = server.cpu()?;
    let began = Instant::now();
    let event = client.ask_for("start_compaction", json!({}), "context_compacted").await?;
    let waited = began.elapsed().saturating_sub(bench.upstream.answered_in());
    client.ask("get_context_info", json!({}), "context_info").await?;
    let used = server.cpu()?.saturating_sub(before);
    let compacted = event.map_err(|error| anyhow::anyhow!("start_compaction was answered with {error}"))?;
    anyhow::ensure!(compacted["rung"] == "model_summary", "the summary is not the model's: {}", compacted["rung"]);
    let entry_id = compacted["entryId"].as_str().context("no entry")?;
    client.ask("undo_compaction", json!({ "entryId": entry_id }), "ok").await?;
    Ok((waited, used))
}

/// Builds a conversation of questions, answers, calls and their results, as in work on files.
fn conversation(tokens: u64, counter: &Counter) -> anyhow::Result<Vec<Message>> {
    let (mut messages, mut counted) = (Vec::new(), 0);
    // Ends with an answer.
    for at in 0_usize.. {
        if counted >= tokens && at % 4 == 0 {
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
        counted += counter.message(&message).total();
        messages.push(message);
    }
    Ok(messages)
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
