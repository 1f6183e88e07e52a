//! Summaries in whatever form a model writes them, and in the form that a deployment or a client asks for.

use super::{compact, fill, session};
use crate::support::scripted::{Reply, Scripted};
use crate::support::talk::{summary, text_of, words};
use reseed::core::{
    compaction::summary::read_prompt,
    model::{ModelRequest, Purpose},
};
use reseed_protocol::StopReason;
use serde_json::{Value, json};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

const FACT: &str = "My ship is called Aurora and its papers lie in /srv/berth/17.txt.";

/// Good prose that forgets where the papers are.
const PROSE: &str = "The user talks about the harbour and a ship called Aurora. Copper, paper and timber came up; \
                     nothing was decided, and nothing is open.";
const PARTS: &str = "## Goal\n- Talk about the harbour\n\n## Progress\n### Done\n- The ship Aurora was named";
const ANSWER: &str = "Sure! Copper is best for the harbour, paper is not.";

/// The model's reply to a request for a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Text(&'static str),
    CutOff(&'static str),
    Whole,
}

fn model(plan: &[Said]) -> Scripted {
    let plan = Arc::new(Mutex::new(plan.iter().copied().collect::<VecDeque<Said>>()));
    let mut asked = 0;
    Scripted::answering(move |request| {
        asked += 1;
        if request.purpose == Purpose::Turn {
            return Reply::text(words(asked, 100));
        }
        match plan.lock().unwrap().pop_front().expect("no more summaries are asked for than are planned") {
            Said::Text(text) => Reply::text(text),
            Said::CutOff(text) => Reply::text(text).stopping(StopReason::Length),
            Said::Whole => Reply::text(summary(&[FACT])),
        }
    })
}

fn summaries(model: &Scripted) -> Vec<ModelRequest> {
    model.requests().into_iter().filter(|request| request.purpose == Purpose::Summary).collect()
}

/// Compacts with these replies; checks its step, its form, what failed and the number of requests.
async fn check(plan: &[Said], settings: &[(&str, &str)], order: Value, expected: (&str, &str, &[&str])) -> Value {
    let name = format!("{plan:?} {settings:?}");
    let model = model(plan);
    let (_server, mut client) = session(&model, settings).await;
    assert_eq!(client.turn(FACT).await["status"], "completed");
    fill(&mut client, 800).await;
    let compacted = compact(&mut client, order).await;
    let failed = compacted["failedRungs"].as_array().cloned().unwrap_or_default();
    let failed: Vec<String> =
        failed.iter().map(|failed| format!("{}: {}", failed["rung"], failed["reason"]).replace('"', "")).collect();
    let (rung, form, reasons) = expected;
    assert_eq!((&compacted["rung"], &compacted["form"]), (&json!(rung), &json!(form)), "{name}: {compacted}");
    assert_eq!(failed, reasons, "{name}");
    assert_eq!(summaries(&model).len(), plan.len(), "{name}");
    assert!(compacted["tokensAfter"].as_u64().unwrap() < compacted["tokensBefore"].as_u64().unwrap(), "{name}");
    let entry = client.ask("get_entries", json!({ "path": true, "limit": 500 })).await;
    let entries = entry["payload"]["items"].as_array().unwrap();
    let entry = entries.iter().find(|entry| entry["type"] == "compaction").unwrap();
    assert_eq!(entry["form"], form, "{name}: the entry keeps the form");
    assert_eq!(client.turn("Go on.").await["status"], "completed", "{name}");
    compacted
}

const RIDING: (&str, &str) = ("SUMMARY_REQUEST", "cached_prefix");
const QUOTED: (&str, &str) = ("SUMMARY_REQUEST", "quoted");

#[tokio::test]
async fn a_summary_is_taken_as_it_is_and_asked_for_once_more_if_it_is_none() {
    use Said::{CutOff, Text, Whole};
    const SECTIONS: (&str, &str, &[&str]) = ("model_summary", "sections", &[]);
    const FREE: (&str, &str, &[&str]) = ("model_summary", "free", &[]);
    const EMPTY: &[&str] = &["model_summary: empty"];
    const CUT: &[&str] = &["model_summary: truncated"];
    const CUT_TWICE: &[&str] = &["model_summary: truncated", "model_summary: truncated"];
    /// The model's replies, and the expected step, form and failures.
    type Case<'a> = (&'a [Said], (&'a str, &'a str, &'a [&'a str]));
    let table: &[Case<'_>] = &[
        (&[Whole], SECTIONS),
        (&[Text(PARTS)], SECTIONS),
        (&[Text(PROSE)], FREE),
        (&[Text(ANSWER)], FREE),
        (&[Text(" "), Text(PROSE)], ("model_summary", "free", EMPTY)),
        (&[CutOff(PARTS), Whole], ("model_summary", "sections", CUT)),
        (&[CutOff(PROSE), CutOff(PROSE)], ("extract", "free", CUT_TWICE)),
    ];
    for request in [QUOTED, RIDING] {
        for (plan, expected) in table {
            let compacted = check(plan, &[request], json!({}), *expected).await;
            let text = compacted["summary"].as_str().unwrap();
            assert!(text.contains("Aurora") && text.contains("/srv/berth/17.txt"), "{plan:?}: {text}");
            let written = match plan.last() {
                Some(Text(text)) => text,
                _ => "",
            };
            assert!(text.contains(written), "{plan:?}: {text}");
        }
    }
}

#[tokio::test]
async fn half_as_many_words_are_asked_for_after_an_answer_that_was_cut_off() {
    let model = model(&[Said::CutOff(PARTS), Said::Whole]);
    let (_server, mut client) = session(&model, &[QUOTED]).await;
    client.turn(FACT).await;
    fill(&mut client, 800).await;
    compact(&mut client, json!({})).await;
    let asked = summaries(&model);
    let words = asked.iter().map(|asked| read_prompt(&text_of(asked)).unwrap().words_max.unwrap());
    let words: Vec<u32> = words.collect();
    assert_eq!(words[1], words[0] / 2, "{words:?}");
}

#[tokio::test]
async fn a_client_chooses_the_form() {
    let replaced = json!({ "instructions": "Write a poem about the ship.", "replaceInstructions": true });
    let poem =
        check(&[Said::Text("O Aurora, ship of ships")], &[], replaced.clone(), ("model_summary", "free", &[])).await;
    assert!(poem["summary"].as_str().unwrap().ends_with("\nO Aurora, ship of ships"), "the client's form: {poem}");

    let model = model(&[Said::Text("O Aurora")]);
    let (_server, mut client) = session(&model, &[]).await;
    client.turn(FACT).await;
    fill(&mut client, 800).await;
    let shown = client.ask("preview_compaction", replaced).await;
    assert_eq!((&shown["type"], &shown["payload"]["form"]), (&json!("compaction_preview"), &json!("free")), "{shown}");
    let request = &summaries(&model)[0];
    let asked = text_of(request);
    assert!(asked.contains("Write a poem about the ship.") && !asked.contains("## Goal"), "{asked}");
}

#[tokio::test]
async fn long_instructions_reach_the_model_whole_or_are_refused() {
    let long = "Mind the berths of every ship. ".repeat(500);
    assert!(long.len() > 15_000 && long.len() <= 16 * 1024);
    let model = model(&[Said::Whole]);
    let (_server, mut client) = session(&model, &[("CONTEXT_WINDOW", "40000")]).await;
    client.turn(FACT).await;
    for number in 0..6 {
        client.turn(&words(number, 4_000)).await;
    }
    let too_long = "x".repeat(16 * 1024 + 1);
    for command in ["start_compaction", "preview_compaction", "navigate"] {
        let mut order = json!({ "instructions": too_long });
        if command == "navigate" {
            order["entryId"] = json!("root");
            order["summarize"] = json!(true);
        }
        let refused = client.ask(command, order).await;
        assert_eq!(refused["payload"]["code"], "invalid_field", "{command}: {refused}");
        let message = refused["payload"]["message"].as_str().unwrap();
        assert!(message.contains("16385 bytes; at most 16384 are allowed"), "{command}: {message}");
    }
    let missing = client.ask("start_compaction", json!({ "replaceInstructions": true })).await;
    assert_eq!(missing["payload"]["code"], "missing_field", "{missing}");
    compact(&mut client, json!({ "instructions": long })).await;
    assert!(text_of(&summaries(&model)[0]).contains(long.trim()), "nothing is cut out of them");
    // In a small window there is room for a quarter of it.
    let (_server, mut client) = session(&Scripted::new(), &[]).await;
    let refused = client.ask("start_compaction", json!({ "instructions": long })).await;
    let message = refused["payload"]["message"].as_str().unwrap();
    assert!(message.contains("at most 500 are allowed, a quarter of the window"), "{message}");
}
