//! Models that fail at summarising in every way, for every trigger and at every fallback step that uses the model. The
//! tables state the outcome: a compaction by rule that names what failed, or the unchanged old context.
//!
//! Nothing here sleeps: what hangs is ended by `COMPACTION_TIMEOUT_SECS`, and what must be inspected first is held by a
//! gate.

mod planned;

use super::{compact, context, fill, info, session};
use crate::support::scripted::Reply;
use crate::support::{
    client::Client,
    json::{present, whole},
    server::Server,
    talk::{summaries, words},
};
use planned::{ACCEPTED, FACT, FAULTS, Fault, Planned, Said};
use reseed::core::model::{ModelFault, Purpose};
use reseed_protocol::ErrorCode;
use serde_json::{Value, json};
use std::time::Duration;

/// The time limit for a request; only a failing test reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ends a compaction whose model does not answer. What the model does send before must arrive within the same time.
const ENDS_SOON: (&str, &str) = ("COMPACTION_TIMEOUT_SECS", "5");

/// Compactions are prepared from 85 % of the threshold on.
const IN_THE_BACKGROUND: (&str, &str) = ("strategy.background", "0.85");

/// The trigger of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trigger {
    Manual,
    Threshold,
    Overflow,
    Background,
}

impl Trigger {
    /// Starts a server that this trigger will make compact, after a fact was stated.
    async fn start(self, planned: &Planned, more: &[(&str, &str)]) -> (Server, Client) {
        let mut settings = more.to_vec();
        match self {
            Self::Manual | Self::Threshold => settings.push(("strategy.background", "1")),
            // This is three times what the model is said to take.
            Self::Overflow => settings.extend([("strategy.background", "1"), ("CONTEXT_WINDOW", "6000")]),
            Self::Background => settings.push(IN_THE_BACKGROUND),
        }
        let (server, mut client) = session(&planned.model, &settings).await;
        assert_eq!(client.turn(FACT).await["status"], "completed");
        (server, client)
    }

    /// Fills the window and causes a compaction to start; returns the context from before it.
    async fn provoke(self, planned: &Planned, client: &mut Client) -> Value {
        let until_tokens = match self {
            Self::Manual => 800,
            Self::Threshold => 1_350,
            Self::Overflow => 1_400,
            // One above the soft limit: 85 % of the trigger.
            Self::Background => 1_361,
        };
        fill(client, until_tokens).await;
        let before = context(client).await;
        match self {
            Self::Manual => assert_eq!(client.ask("start_compaction", json!({})).await["type"], "ok"),
            Self::Threshold => drop(client.ask("user_input", json!({ "input": words(99, 450) })).await),
            Self::Overflow => {
                planned.model.push(Reply::fault(ModelFault::new(ErrorCode::ContextOverflow, "too large")));
                drop(client.ask("user_input", json!({ "input": "And now?" })).await);
            }
            Self::Background => planned.gate.open(),
        }
        before
    }

    fn is_in_turn(self) -> bool {
        matches!(self, Self::Threshold | Self::Overflow)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::Threshold | Self::Background => "threshold",
            Self::Overflow => "overflow",
        }
    }
}

/// Waits for the outcome of a compaction.
async fn outcome(client: &mut Client) -> Value {
    client.until(|frame| frame["type"] == "context_compacted" || frame["type"] == "compaction_failed").await
}

fn messages(context: &Value) -> &[Value] {
    context["envelope"]["messages"]["cached"].as_array().unwrap()
}

/// A background result is held: talks on until the trigger is passed, where it is committed.
async fn until_committed(client: &mut Client, name: &str) {
    let prepared = client.event("compaction_prepared").await;
    let job = &prepared["payload"]["jobId"];
    let committed = |frame: &Value| frame["type"] == "context_compacted";
    assert!(!client.seen.iter().any(committed), "{name}: it is held until it is due");
    for number in 200..220 {
        assert_eq!(client.turn(&words(number, 50)).await["status"], "completed", "{name}");
        if let Some(compacted) = client.seen.iter().find(|frame| committed(frame)) {
            let compacted = &compacted["payload"];
            assert_eq!(
                (present(&compacted["jobId"]), &compacted["background"]),
                (job, &json!(true)),
                "{name}: {compacted}"
            );
            return;
        }
    }
    panic!("{name}: twenty turns did not pass the trigger");
}

/// Returns the steps that failed, as `step: reason`.
fn failed(payload: &Value) -> Vec<String> {
    let rungs = payload["failedRungs"].as_array().cloned().unwrap_or_default();
    let text = |rung: &Value| format!("{}: {}", rung["rung"].as_str().unwrap(), rung["reason"].as_str().unwrap());
    rungs.iter().map(text).collect()
}

/// Makes one fault happen after the given prior turns and compares the outcome with the expected step and failures.
async fn check(
    trigger: Trigger,
    before: &[Said],
    fault: Fault,
    settings: &[(&str, &str)],
    expected: (&str, &[String]),
) {
    let name = format!("{trigger:?} {before:?} {fault:?}");
    let mut settings = settings.to_vec();
    if fault.is_endless() {
        settings.push(ENDS_SOON);
    }
    let planned = Planned::new(&[before, &[Said::Bad(fault)]].concat(), trigger == Trigger::Background);
    let (_server, mut client) = trigger.start(&planned, &settings).await;
    trigger.provoke(&planned, &mut client).await;
    if trigger == Trigger::Background {
        until_committed(&mut client, &name).await;
    }
    let came = outcome(&mut client).await;
    let compacted = &came["payload"];
    assert_eq!(came["type"], "context_compacted", "{name}: {came}");
    let (rung, failures) = expected;
    assert_eq!((&compacted["rung"], &compacted["trigger"]), (&json!(rung), &json!(trigger.name())), "{name}");
    // How far an answer that is too long gets depends on what it replaces and on its limit.
    let too_long =
        |step: String| ["too_little", "truncated"].iter().fold(step, |step, why| step.replace(why, "not_smaller"));
    let steps = failed(compacted).into_iter();
    let steps: Vec<_> = steps.map(|step| if fault == Fault::Longer { too_long(step) } else { step }).collect();
    assert_eq!(steps, failures, "{name}");
    assert!(whole(&compacted["tokensAfter"]) < whole(&compacted["tokensBefore"]), "{name}: {compacted}");
    assert!(compacted["summary"].as_str().unwrap().contains("Aurora"), "{name}: {compacted}");
    if trigger.is_in_turn() {
        let finished = client.event("turn_finished").await["payload"].clone();
        assert_eq!(finished["status"], "completed", "{name}: {finished}");
    }
    planned.heal();
    assert_eq!(client.turn("Go on.").await["status"], "completed", "{name}");
}

/// Returns what a fault leads to if the model is asked for everything at once, and if the first request covers one
/// piece.
fn failures(rung: &str, fault: Fault, reason: &str) -> Vec<String> {
    let first = format!("{rung}: {reason}");
    match fault {
        // Smaller pieces are tried as often as they may be halved, and refused each time.
        Fault::Overflow => {
            let pieces = std::iter::repeat_n("chunked_summary: context_overflow".to_owned(), 3);
            std::iter::once(first).chain(pieces).collect()
        }
        fault if fault.is_asked_again() => vec![first.clone(), first],
        _ => vec![first],
    }
}

#[tokio::test]
async fn a_compaction_that_is_asked_for_makes_room_whatever_the_model_does() {
    for (fault, reason, _) in FAULTS {
        check(Trigger::Manual, &[], fault, &[], ("extract", &failures("model_summary", fault, reason))).await;
    }
}

#[tokio::test]
async fn what_a_summary_says_is_not_judged_and_the_users_words_are_there() {
    for fault in ACCEPTED {
        check(Trigger::Manual, &[], fault, &[], ("model_summary", &[])).await;
    }
}

#[tokio::test]
async fn a_turn_at_the_threshold_goes_on_whatever_the_model_does() {
    // A message that long does not fit into one request beside the prompt. A summary that is longer than wanted and
    // makes room is kept.
    for (fault, reason, _) in FAULTS.into_iter().filter(|(fault, ..)| *fault != Fault::Longer) {
        check(Trigger::Threshold, &[], fault, &[], ("extract", &failures("chunked_summary", fault, reason))).await;
    }
}

#[tokio::test]
async fn a_refused_request_gets_its_answer_whatever_the_model_does() {
    // As above.
    for (fault, reason, _) in FAULTS.into_iter().filter(|(fault, ..)| *fault != Fault::Longer) {
        check(Trigger::Overflow, &[], fault, &[], ("extract", &failures("chunked_summary", fault, reason))).await;
    }
}

#[tokio::test]
async fn a_fault_in_the_middle_of_the_pieces_ends_in_an_extract() {
    let before = [Said::Bad(Fault::Overflow), Said::Good];
    for (fault, reason, _) in FAULTS.into_iter().filter(|(fault, ..)| *fault != Fault::Overflow) {
        let first = std::iter::once("model_summary: context_overflow".to_owned());
        let failures: Vec<String> = first.chain(failures("chunked_summary", fault, reason)).collect();
        check(Trigger::Manual, &before, fault, &[], ("extract", &failures)).await;
    }
}

#[tokio::test]
async fn what_fails_behind_the_conversation_is_asked_in_a_request_of_its_own() {
    for (fault, reason, _) in FAULTS {
        // After a summary that is too long there is one, only not a smaller one. Once the time is up, nothing more is
        // requested.
        let is_final = fault == Fault::Longer || fault.is_endless();
        let rung = if is_final { "extract" } else { "model_summary" };
        let failures = [format!("model_summary: {reason}")];
        let settings: &[_] = &[("SUMMARY_REQUEST", "cached_prefix")];
        let name = format!("{fault:?}");
        let planned = Planned::new(&[Said::Bad(fault), Said::Good], false);
        let timeout: &[_] = if fault.is_endless() { &[ENDS_SOON] } else { &[] };
        let (_server, mut client) = Trigger::Manual.start(&planned, &[settings, timeout].concat()).await;
        Trigger::Manual.provoke(&planned, &mut client).await;
        let came = outcome(&mut client).await;
        assert_eq!(came["payload"]["rung"], rung, "{name}: {came}");
        assert_eq!(failed(&came["payload"]), failures, "{name}");
        let asked = summaries(&planned.model.requests());
        assert_eq!(asked, if is_final { 1 } else { 2 }, "{name}");
    }
}

#[tokio::test]
async fn in_the_background_what_is_of_no_use_is_made_by_rule_and_an_outage_changes_nothing() {
    for (fault, reason, code) in FAULTS {
        let Some(code) = code else {
            check(Trigger::Background, &[], fault, &[], ("extract", &failures("chunked_summary", fault, reason))).await;
            continue;
        };
        for before in [&[][..], &[Said::Bad(Fault::Overflow), Said::Good][..]] {
            let name = format!("{before:?} {fault:?}");
            let timeout: &[_] = if fault.is_endless() { &[ENDS_SOON] } else { &[] };
            let planned = Planned::new(&[before, &[Said::Bad(fault)]].concat(), true);
            let (_server, mut client) = Trigger::Background.start(&planned, timeout).await;
            let old = Trigger::Background.provoke(&planned, &mut client).await;
            let came = outcome(&mut client).await;
            assert_eq!(
                (&came["type"], &came["payload"]["error"]["code"]),
                (&json!("compaction_failed"), &json!(code)),
                "{name}"
            );
            assert_eq!(came["payload"]["background"], true, "{name}");
            assert_eq!(context(&mut client).await.to_string(), old.to_string(), "{name}");
            planned.heal();
            assert_eq!(client.turn("Go on.").await["status"], "completed", "{name}");
        }
    }
}

#[tokio::test]
async fn a_compaction_is_cancelled_at_every_point_and_the_context_is_as_it_was() {
    let pieces: &[Said] = &[Said::Bad(Fault::Overflow), Said::Good];
    let riding: &[(&str, &str)] = &[("SUMMARY_REQUEST", "cached_prefix")];
    /// The trigger, what the model says before it is held, and the steps that have failed by then.
    type Case<'a> = (Trigger, &'a [Said], &'a [(&'a str, &'a str)]);
    let table: [Case<'_>; 10] = [
        (Trigger::Manual, &[], &[]),
        (Trigger::Manual, &pieces[..1], &[]),
        (Trigger::Manual, pieces, &[]),
        (Trigger::Manual, &[], riding),
        (Trigger::Manual, &[Said::Bad(Fault::NoText)], riding),
        (Trigger::Threshold, &[], &[]),
        (Trigger::Threshold, pieces, &[]),
        (Trigger::Overflow, &[], &[]),
        (Trigger::Background, &[], &[]),
        (Trigger::Background, pieces, &[]),
    ];
    for (trigger, before, settings) in table {
        let name = format!("{trigger:?} {before:?} {settings:?}");
        let planned = Planned::new(&[before, &[Said::Held]].concat(), trigger == Trigger::Background);
        let (_server, mut client) = trigger.start(&planned, settings).await;
        let old = trigger.provoke(&planned, &mut client).await;
        tokio::time::timeout(PATIENCE, planned.held.notified()).await.unwrap_or_else(|_| panic!("{name}: not asked"));
        assert_eq!(client.ask("cancel_compaction", json!({})).await["type"], "ok", "{name}");
        let came = outcome(&mut client).await;
        assert_eq!(came["type"], "compaction_failed", "{name}: {came}");
        assert_eq!(came["payload"]["error"]["code"], "compaction_cancelled", "{name}");
        planned.model.wait_for_dropped(1).await;
        let added = match trigger {
            Trigger::Manual | Trigger::Background => 0,
            // The question, and its answer.
            Trigger::Threshold => {
                assert_eq!(client.event("turn_finished").await["payload"]["status"], "completed", "{name}");
                2
            }
            // What was refused is not sent again automatically.
            Trigger::Overflow => {
                let finished = client.event("turn_finished").await["payload"].clone();
                assert_eq!(finished["error"]["code"], "compaction_cancelled", "{name}: {finished}");
                1
            }
        };
        let now = context(&mut client).await;
        assert_eq!(messages(&now)[..messages(&now).len() - added], *messages(&old), "{name}");
        planned.heal();
        // Near the limit the next compaction may have started already, with nobody waiting for it.
        client.ask("cancel_compaction", json!({})).await;
        assert_eq!(client.turn("Go on.").await["status"], "completed", "{name}");
    }
}

#[tokio::test]
async fn three_failures_open_the_breaker_and_a_person_closes_it() {
    let planned = Planned::new(&[Said::Bad(Fault::Broken)], false);
    let (_server, mut client) = session(&planned.model, &[IN_THE_BACKGROUND, ("CONTEXT_WINDOW", "8000")]).await;
    client.turn(FACT).await;
    for number in 0..60 {
        client.turn(&words(number, 100)).await;
        if info(&mut client).await["breaker"].is_object() {
            break;
        }
    }
    let open = info(&mut client).await;
    assert_eq!((&open["breaker"]["reason"], &open["breaker"]["failures"]), (&json!("failures"), &json!(3)), "{open}");
    let asked = summaries(&planned.model.requests());
    assert_eq!(asked, 3, "each failure is one request");
    assert_eq!(open["compactions"], 0);
    for number in 0..3 {
        assert_eq!(client.turn(&words(number, 5)).await["status"], "completed");
    }
    assert_eq!(summaries(&planned.model.requests()), asked, "it rests");
    planned.heal();
    compact(&mut client, json!({})).await;
    assert!(info(&mut client).await["breaker"].is_null(), "a compaction that gains ends the rest");
}

#[tokio::test]
async fn two_compactions_without_gain_open_the_breaker() {
    let planned = Planned::new(&[Said::Bad(Fault::Longer)], false);
    let (_server, mut client) = session(&planned.model, &[IN_THE_BACKGROUND, ("CONTEXT_WINDOW", "8000")]).await;
    // Pinned entries are kept verbatim, so that what may be removed is never worth a compaction.
    let mut tokens = 0;
    while tokens < 5_300 {
        let accepted = client.ask("user_input", json!({ "input": words(tokens, 200) })).await;
        let finished = client.event("turn_finished").await["payload"].clone();
        assert_eq!(finished["status"], "completed", "{finished}");
        for entry in [&accepted["payload"]["entryId"], &last_entry(&mut client).await] {
            assert_eq!(client.ask("pin_entry", json!({ "entryId": entry })).await["type"], "ok");
        }
        tokens = finished["contextInfo"]["tokenCount"].as_u64().unwrap();
    }
    let mut turns = 0;
    while !info(&mut client).await["breaker"].is_object() {
        assert_eq!(client.turn(&words(turns, 20)).await["status"], "completed");
        turns += 1;
        assert!(turns < 20, "no breaker: {}", info(&mut client).await);
    }
    let open = info(&mut client).await;
    assert_eq!(open["breaker"]["reason"], "no_gain", "{open}");
    assert!(whole(&open["breaker"]["retryAboveTokens"]) > whole(&open["tokenCount"]), "{open}");
    let asked = summaries(&planned.model.requests());
    client.turn("Go on.").await;
    assert_eq!(summaries(&planned.model.requests()), asked, "it rests");
}

async fn last_entry(client: &mut Client) -> Value {
    let entries = client.ask("get_entries", json!({ "path": true, "limit": 500 })).await;
    entries["payload"]["items"].as_array().unwrap().last().unwrap()["entryId"].clone()
}

#[tokio::test]
async fn no_model_makes_it_compact_in_a_loop() {
    for fault in [Fault::Longer, Fault::Empty, Fault::Copied, Fault::Overflow, Fault::RateLimited] {
        for background in ["0.85", "1"] {
            let planned = Planned::new(&[Said::Bad(fault)], false);
            let (_server, mut client) = session(&planned.model, &[("strategy.background", background)]).await;
            for number in 0..30 {
                let length = if number % 5 == 4 { 300 } else { 80 };
                let finished = client.turn(&words(number, length)).await;
                assert_eq!(finished["status"], "completed", "{fault:?} {background} {number}: {finished}");
            }
            let requests = planned.model.requests();
            // One message passes between two attempts. A summary refused as too large takes a few requests, and an
            // empty one is requested once more.
            let pieces = match fault {
                Fault::Overflow => 4,
                // A summary that is too long leaves less room until the next.
                Fault::Empty | Fault::Longer => 2,
                _ => 1,
            };
            let streak = requests.split(|request| request.purpose == Purpose::Turn).map(<[_]>::len).max();
            assert!(streak <= Some(2 * pieces), "{fault:?} {background}: {streak:?} in a row");
            let asked = summaries(&requests);
            assert!(asked >= 1 && asked < 30 * pieces, "{fault:?} {background}: {asked} requests in 30 turns");
        }
    }
}
