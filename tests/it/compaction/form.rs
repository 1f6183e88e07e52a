//! Summaries in another form than requested: missing sections are requested once, and then the model's text is accepted
//! if it is a summary.

use super::{compact, fill, session};
use crate::support::talk::{summary, text_of, words};
use reseed::{
    core::model::{ModelFault, ModelRequest, Purpose},
    provider::scripted::{Gate, Reply, Scripted},
};
use reseed_protocol::{ErrorCode, StopReason};
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
const REST: &str = "## Constraints & Preferences\n- none\n## Key Decisions\n- none\n## Next Steps\n- Sail\n## Critical \
                    Context\n- Berth 17";
const ANSWER: &str = "Sure! Copper is best for the harbour, paper is not.";

/// The model's reply to a request for a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Text(&'static str),
    CutOff(&'static str),
    Whole,
    Fault(ErrorCode),
    Nothing,
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
            Said::Fault(code) => Reply::fault(ModelFault::new(code, "it broke")),
            Said::Nothing => Reply::text("").held_by(&Gate::new()),
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
    let mut settings = settings.to_vec();
    if plan.contains(&Said::Nothing) {
        // What the model does answer must arrive within the same time.
        settings.push(("COMPACTION_TIMEOUT_SECS", "5"));
    }
    let (_server, mut client) = session(&model, &settings).await;
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
async fn a_summary_without_its_sections_is_completed_or_taken_as_it_is() {
    use Said::{CutOff, Fault, Nothing, Text, Whole};
    const SECTIONS: (&str, &str, &[&str]) = ("model_summary", "sections", &[]);
    const FREE: (&str, &str, &[&str]) = ("model_summary", "free", &[]);
    /// The model's replies, and the expected step, form and failures.
    type Case<'a> = (&'a [Said], (&'a str, &'a str, &'a [&'a str]));
    let table: &[Case<'_>] = &[
        (&[Whole], SECTIONS),
        (&[Text(PROSE), Whole], SECTIONS),
        (&[Text(PARTS), Text(REST)], SECTIONS),
        (&[Text(ANSWER), Whole], SECTIONS),
        (&[Text(PROSE), Text(PROSE)], FREE),
        (&[Text(PROSE), Text(ANSWER)], FREE),
        (&[Text(PROSE), CutOff(PARTS)], FREE),
        (&[Text(PROSE), Text(" ")], FREE),
        (&[Text(PROSE), Text("I'm sorry, but I can't help with that.")], FREE),
        (&[Text(PROSE), Fault(ErrorCode::UpstreamError)], FREE),
        (&[Text(PROSE), Fault(ErrorCode::ContextOverflow)], FREE),
        (&[Text(PROSE), Fault(ErrorCode::ContentFiltered)], FREE),
        (&[Text(PROSE), Nothing], FREE),
        (&[Text(ANSWER), Text(PROSE)], FREE),
    ];
    for request in [QUOTED, RIDING] {
        for (plan, expected) in table {
            let compacted = check(plan, &[request], json!({}), *expected).await;
            let text = compacted["summary"].as_str().unwrap();
            assert!(text.contains("Aurora") && text.contains("/srv/berth/17.txt"), "{plan:?}: {text}");
            if expected.1 == "free" {
                assert!(text.starts_with(PROSE), "{plan:?}: {text}");
            }
        }
    }
    // A text that is not a summary in any form is replaced by extraction.
    let failed: &[&str] = &["model_summary: continued"];
    check(&[Text(ANSWER), Text(ANSWER)], &[QUOTED], json!({}), ("extract", "sections", failed)).await;
    let cut: &[&str] = &["model_summary: truncated"];
    check(&[CutOff(PROSE)], &[QUOTED], json!({}), ("extract", "sections", cut)).await;
}

/// Returns the number of pieces of a summary that is refused as too large in one.
async fn pieces() -> usize {
    let plan: Vec<Said> = std::iter::once(Said::Fault(ErrorCode::ContextOverflow)).chain([Said::Whole; 40]).collect();
    let model = model(&plan);
    let (_server, mut client) = session(&model, &[QUOTED]).await;
    assert_eq!(client.turn(FACT).await["status"], "completed");
    fill(&mut client, 800).await;
    compact(&mut client, json!({})).await;
    summaries(&model).len() - 1
}

/// Of several pieces, the first one that lacks sections is completed; a later one is accepted as it is.
#[tokio::test]
async fn a_piece_that_lacks_sections_is_completed_once() {
    use Said::{Fault, Text, Whole};
    let pieces = pieces().await;
    assert!(pieces > 2, "{pieces} pieces");
    let failed: &[&str] = &["model_summary: context_overflow"];
    // The replies to the first pieces and to the last, and how many pieces those are; the ones between are complete.
    let table: &[(&[Said], &[Said], usize, &str)] = &[
        (&[], &[], 0, "sections"),
        (&[Text(PARTS), Text(REST)], &[], 1, "sections"),
        (&[], &[Text(PARTS), Text(REST)], 1, "sections"),
        (&[Text(PROSE), Text(PROSE)], &[], 1, "sections"),
        (&[Text(PROSE), Text(PROSE)], &[Text(PROSE)], 2, "free"),
    ];
    for (first, last, said, form) in table {
        let between = vec![Whole; pieces - said];
        let plan = [&[Fault(ErrorCode::ContextOverflow)], *first, between.as_slice(), *last].concat();
        let compacted = check(&plan, &[QUOTED], json!({}), ("chunked_summary", form, failed)).await;
        let text = compacted["summary"].as_str().unwrap();
        assert!(text.contains("Aurora") && text.contains("/srv/berth/17.txt"), "{plan:?}: {text}");
    }
}

#[tokio::test]
async fn what_is_missing_is_named_behind_the_same_request() {
    for settings in [QUOTED, RIDING] {
        let model = model(&[Said::Text(PARTS), Said::Text(REST)]);
        let (_server, mut client) = session(&model, &[settings]).await;
        client.turn(FACT).await;
        fill(&mut client, 800).await;
        let compacted = compact(&mut client, json!({})).await;
        let text = compacted["summary"].as_str().unwrap();
        assert!(text.contains("The ship Aurora was named") && text.contains("- Sail"), "{text}");
        let asked = summaries(&model);
        let sent = |request: &ModelRequest| -> Vec<String> {
            request.messages().map(|sent| format!("{:?}: {}", sent.message.role, sent.message.text())).collect()
        };
        let (first, second) = (sent(&asked[0]), sent(&asked[1]));
        assert_eq!(first, second[..first.len()], "{settings:?}: it begins with the same words");
        assert_eq!(second[first.len()], format!("Assistant: {PARTS}"), "{settings:?}");
        let named: Vec<&str> = second[first.len() + 1].lines().filter(|line| line.starts_with("## ")).collect();
        let lacking = ["## Constraints & Preferences", "## Key Decisions", "## Next Steps", "## Critical Context"];
        assert_eq!(named, lacking, "{settings:?}");
    }
}

#[tokio::test]
async fn a_deployment_and_a_client_choose_the_form() {
    let free =
        check(&[Said::Text(PROSE)], &[("SUMMARY_FORM", "free")], json!({}), ("model_summary", "free", &[])).await;
    assert!(free["summary"].as_str().unwrap().contains("/srv/berth/17.txt"), "exact facts are put back: {free}");
    let replaced = json!({ "instructions": "Write a poem about the ship.", "replaceInstructions": true });
    let poem =
        check(&[Said::Text("O Aurora, ship of ships")], &[], replaced.clone(), ("model_summary", "free", &[])).await;
    assert_eq!(poem["summary"], "O Aurora, ship of ships", "the client's form stays as it is");

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
