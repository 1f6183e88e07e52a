//! Small synthetic conversations under every kind of policy: what is compacted, kept, sent and reported.

use super::{
    Replay,
    meter::Kept,
    outcome::Outcome,
    policy::Policy,
    recorded::{Builder, Recorded, Sources},
    report,
    summariser::Summariser,
};
use crate::core::{
    agent_loop::Deployment,
    prices::{Price, Prices},
};
use reseed_protocol::{CallId, Message, Part, Role};

fn deployment() -> Deployment {
    Deployment {
        model: "test".to_owned(),
        strategy: "threshold".to_owned(),
        tool_timeout_ms: 60_000,
        queue_items_max: 4,
        ..Deployment::default()
    }
}

/// Returns a chat in which the user states a fact in every turn and the model answers at length.
fn chat(turns: usize) -> Recorded {
    let counter = deployment().counter("test");
    let mut builder = Builder::new("chat", counter);
    for turn in 0..turns {
        let fact = format!("Fact number {turn}: the box {turn} holds {} marbles.", turn * 7);
        builder.message(Some(format!("u{turn}")), Message::user(fact));
        let answer = format!("Box {turn} is noted. {}", format!("Word{turn} goes on and on here. ").repeat(40));
        let answer = vec![Part::Text { text: answer }];
        builder.message(Some(format!("a{turn}")), Message::new(Role::Assistant, answer));
    }
    let sources = (0..turns).map(|turn| Sources(vec![format!("u{turn}")])).collect::<Vec<_>>();
    builder.finish(&sources)
}

/// Returns a turn with this many calls, each with a long result.
fn calls(calls: usize) -> Recorded {
    let mut builder = Builder::new("calls", deployment().counter("test"));
    builder.message(None, Message::user("Read all of it."));
    for call in 0..calls {
        let call_id: CallId = format!("call-{call}").parse().unwrap();
        let arguments = format!("{{\"page\":{call}}}");
        let part = Part::ToolCall { call_id: call_id.clone(), name: "read".to_owned(), arguments };
        builder.message(None, Message::new(Role::Assistant, vec![part]));
        let output = format!("Page {call} says a lot. ").repeat(60);
        builder.message(None, Message::new(Role::Tool, vec![Part::ToolResult { call_id, output, is_error: false }]));
    }
    builder.message(None, Message::new(Role::Assistant, vec![Part::Text { text: "I have read it.".to_owned() }]));
    builder.finish(&[])
}

/// Plays a conversation in a small window.
fn replay(recorded: &Recorded, policies: &[&str], summariser: &Summariser) -> Replay {
    let prices = Prices::new([("test".to_owned(), Price::parse("1/0.1/4").unwrap())]);
    let deployment = Deployment { prices, ..deployment() };
    let policies: Vec<Policy> = policies.iter().map(|policy| Policy::parse(policy, &deployment).unwrap()).collect();
    let mut replay = Replay::new(&deployment, &[4_000], &policies, std::slice::from_ref(summariser), true);
    replay.play(recorded).unwrap();
    replay
}

fn outcome(recorded: &Recorded, policy: &str, summariser: &Summariser) -> Outcome {
    replay(recorded, &[policy], summariser).runs.remove(0).sessions.remove(0).outcome
}

#[test]
fn without_a_policy_everything_is_kept_and_the_window_ends() {
    let outcome = outcome(&chat(30), "none", &Summariser::Empty);
    assert_eq!((outcome.curve.len(), outcome.unplayed, outcome.turns.requests), (0, 0, 30));
    assert_eq!((outcome.kept.sources, outcome.kept.sources_said), (30, 30));
    assert_eq!(outcome.kept.user_tokens, outcome.kept.user_tokens_said);
    let end = outcome.window_ends_at.unwrap();
    assert_eq!(outcome.over_window, 30 - end + 1);
    assert!(outcome.requests[end as usize - 2] <= 4_000 && outcome.requests[end as usize - 1] > 4_000);
    // Every request begins with the previous one.
    let sent: u64 = outcome.requests.iter().sum();
    assert_eq!((outcome.turns.input_tokens, outcome.turns.lost_tokens), (sent, 0));
    assert_eq!(outcome.turns.cached_tokens, sent - outcome.requests.last().unwrap());
}

#[test]
fn every_strategy_stays_in_the_window_and_what_it_keeps_is_counted() {
    let recorded = chat(30);
    for policy in [
        "threshold",
        "threshold:keepRecentTokens=400,target=0.3",
        "threshold:background=1",
        "sliding_window",
        "tool_results",
        "truncate",
        "importance:{\"summarise\":false}",
        "pipeline:steps=[\"threshold\",\"truncate\"]",
    ] {
        let outcome = outcome(&recorded, policy, &Summariser::Empty);
        assert!(outcome.curve.len() > 2, "{policy}: {outcome:?}");
        assert_eq!((outcome.over_window, outcome.unplayed, outcome.failed), (0, 0, 0), "{policy}");
        assert_eq!(outcome.turns.requests, 30, "{policy}");
        let Kept { sources, sources_said, user_tokens, user_tokens_said } = outcome.kept;
        assert!(sources_said == 30 && (1..=30).contains(&sources), "{policy}: {sources}");
        assert!(0 < user_tokens && user_tokens <= user_tokens_said, "{policy}: {user_tokens} of {user_tokens_said}");
        for point in &outcome.curve {
            assert!(point.tokens_after < point.tokens_before, "{policy}: {point:?}");
            assert!(point.kept.sources_said > 0, "{policy}: {point:?}");
        }
        assert!(outcome.turns.lost_tokens > 0 && outcome.turns.cached_tokens > 0, "{policy}");
        let dollars = outcome.dollars.unwrap();
        assert!(dollars.input_nano_usd > 0 && dollars.output_nano_usd > 0, "{policy}");
        assert_eq!(dollars.summaries_nano_usd > 0, outcome.summaries.requests > 0, "{policy}");
    }
}

#[test]
fn a_replay_repeats_itself() {
    let once = || outcome(&chat(25), "threshold", &Summariser::Quote);
    assert_eq!(once(), once());
}

#[test]
fn the_rules_of_others_decide_what_stays() {
    let recorded = chat(30);
    // No request fits below the reserve in this window: it compacts after every turn, and keeps the most recent 20,000
    // tokens, which is everything.
    let pi = outcome(&recorded, "pi", &Summariser::Empty);
    assert_eq!((pi.curve.len(), pi.kept.sources), (0, 30));
    let codex = outcome(&recorded, "codex", &Summariser::Empty);
    assert_eq!((codex.kept.sources, codex.over_window), (30, 0));
    assert!(codex.curve.iter().all(|point| point.tokens_before > 3_600 && point.how == "summary"), "{codex:?}");
    let truncation = outcome(&recorded, "truncation", &Summariser::Empty);
    assert!(truncation.curve.iter().all(|point| point.tokens_after <= 3_800 && point.how == "dropped"));
    assert!((1..30).contains(&truncation.kept.sources) && truncation.summaries.requests == 0);
    let sliding = outcome(&recorded, "sliding", &Summariser::Empty);
    assert!(sliding.kept.sources <= 20 && sliding.over_window == 0, "{sliding:?}");
}

#[test]
fn recorded_tools_are_called_and_their_results_are_sent() {
    let recorded = calls(20);
    for policy in ["none", "threshold", "tool_results", "codex", "truncation"] {
        let outcome = outcome(&recorded, policy, &Summariser::Empty);
        assert_eq!((outcome.turns.requests, outcome.unplayed), (21, 0), "{policy}");
        let is_small = policy != "none";
        assert_eq!(outcome.over_window == 0, is_small, "{policy}: {:?}", outcome.requests);
        assert_eq!(outcome.curve.is_empty(), !is_small, "{policy}");
    }
}

#[test]
fn a_turn_without_an_answer_is_cancelled_and_the_next_one_is_played() {
    let mut builder = Builder::new("cancelled", deployment().counter("test"));
    let call = Part::ToolCall { call_id: "c".parse().unwrap(), name: "x".to_owned(), arguments: "{}".to_owned() };
    builder.message(None, Message::user("First."));
    builder.message(None, Message::user("Second."));
    builder.message(None, Message::new(Role::Assistant, vec![call]));
    builder.message(None, Message::user("Third."));
    builder.message(None, Message::new(Role::Assistant, vec![Part::Text { text: "Done.".to_owned() }]));
    let recorded = builder.finish(&[]);
    let outcome = outcome(&recorded, "threshold", &Summariser::Empty);
    assert_eq!((outcome.turns.requests, outcome.unplayed), (4, 0));
    assert_eq!(outcome.kept.user_tokens, outcome.kept.user_tokens_said);
}

#[test]
fn a_turn_larger_than_the_window_is_left_out_and_the_next_is_played() {
    let mut builder = Builder::new("large", deployment().counter("test"));
    let answer = || Message::new(Role::Assistant, vec![Part::Text { text: "Yes.".to_owned() }]);
    for text in ["Small.".to_owned(), "Large. ".repeat(5_000), "Small again.".to_owned()] {
        builder.message(None, Message::user(text));
        builder.message(None, answer());
    }
    let outcome = outcome(&builder.finish(&[]), "threshold", &Summariser::Empty);
    assert_eq!((outcome.turns.requests, outcome.unplayed, outcome.over_window), (2, 1, 0));
    assert!(outcome.kept.user_tokens < outcome.kept.user_tokens_said);
}

#[test]
fn summaries_are_those_of_the_summariser() {
    let mut recorded = chat(30);
    recorded.summaries = vec![(10, "## Goal\n- The marbles of the record".to_owned())];
    for summariser in [Summariser::Empty, Summariser::Quote, Summariser::Recorded] {
        assert!(outcome(&recorded, "codex", &summariser).summaries.requests > 0, "{summariser:?}");
    }
    // A source that a summary quotes completely is kept.
    let short = outcome(&recorded, "threshold:keepRecentTokens=100", &Summariser::Quote);
    let silent = outcome(&recorded, "threshold:keepRecentTokens=100", &Summariser::Empty);
    assert!(short.kept.sources >= silent.kept.sources);
}

#[test]
fn an_invalid_policy_is_refused_with_the_reason() {
    for (policy, why) in [
        ("thresold", "there is no strategy `thresold`"),
        ("threshold:keep=3", "unknown field `keep`"),
        ("threshold:keepRecentTokens=0", "keepRecentTokens must be 1 to"),
        ("threshold:keepRecentTokens", "is not SETTING=VALUE"),
        ("codex:target=0.5", "has no settings"),
    ] {
        let error = format!("{:#}", Policy::parse(policy, &deployment()).unwrap_err());
        assert!(error.contains(why), "{policy}: {error}");
    }
}

#[test]
fn a_policy_without_summaries_is_played_once() {
    let policies = ["none", "threshold", "truncate"].map(|name| Policy::parse(name, &deployment()).unwrap());
    let summarisers = [Summariser::Empty, Summariser::Quote];
    let replay = Replay::new(&deployment(), &[4_000, 8_000], &policies, &summarisers, false);
    let runs: Vec<String> = replay.runs.iter().map(|run| format!("{} {:?}", run.policy, run.summariser)).collect();
    let of_window =
        ["none None", "threshold Some(\"empty\")", "truncate None", "threshold Some(\"quote\")"].map(str::to_owned);
    assert_eq!(runs, [of_window.clone(), of_window].concat());
}

#[test]
fn the_table_and_the_document_have_every_run() {
    let recorded = chat(30);
    let replay = replay(&recorded, &["none", "threshold", "codex"], &Summariser::Quote);
    let table = report::table(&replay);
    assert_eq!(table.len(), 4, "{table:?}");
    let document = report::document(&replay, &[]);
    assert_eq!(document["runs"][1]["sessions"][0]["name"], recorded.name.as_str());
    assert!(document["runs"][1]["sessions"][0]["curve"][0]["kept"]["sources"].is_u64());
}
