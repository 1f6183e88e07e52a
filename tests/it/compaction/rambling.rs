//! Summaries of models that do not stop: cut off at twice what is wanted, and ended early when they repeat themselves.

use super::{WAITED_FOR, fill};
use crate::support::{
    client::Client,
    json::whole,
    server::Server,
    talk::{is_summary, summary, words},
    upstream::{Asked, Finish, Reply, Upstream},
};
use serde_json::{Value, json};

/// The output limit of a summary in a window of 2,000 tokens: twice the 256 that it may have.
const LIMIT: u64 = 512;

/// Compacts once, with these answers to requests for summaries; returns the outcome and those requests.
async fn compacted(upstream: &Upstream) -> (Value, Vec<Asked>) {
    let settings = [WAITED_FOR, ("SUMMARY_REQUEST", "quoted"), ("OPENAI_API", "chat"), ("strategy.userShare", "0")];
    let server = Server::facing(&upstream.base_url(), &settings).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    fill(&mut client, 1_000).await;
    assert_eq!(client.ask("start_compaction", json!({})).await["type"], "ok");
    let outcome = client.event("context_compacted").await["payload"].clone();
    let asked = upstream.requests().into_iter().filter(is_summary).collect();
    (outcome, asked)
}

/// A server that answers requests for summaries with these replies, then with a good one.
async fn summarising(replies: Vec<Reply>) -> Upstream {
    let (mut replies, mut number) = (replies.into_iter(), 1_000);
    Upstream::start(move |asked| {
        number += 1;
        match is_summary(asked) {
            true => replies.next().unwrap_or_else(|| Reply::text(summary(&["The ship is called Aurora"]))),
            false => Reply::text(words(number, 40)),
        }
    })
    .await
}

fn limits(asked: &[Asked]) -> Vec<u64> {
    asked.iter().map(|asked| whole(&asked.body["max_tokens"])).collect()
}

#[tokio::test]
async fn a_model_that_repeats_itself_is_ended_and_what_it_said_before_is_kept() {
    let good = summary(&["The ship is called Aurora"]);
    let looped = format!("{good}\n{}", "- The captain likes the sea and the wind\n".repeat(40));
    // The model would continue, and nothing more comes, so only the end of the request ends it.
    let upstream = summarising(vec![Reply::text(looped).in_pieces(90).ending(Finish::Hang)]).await;
    let (outcome, asked) = compacted(&upstream).await;
    upstream.wait_for_hang_ups(1).await;
    assert_eq!(outcome["rung"], "model_summary", "{outcome}");
    assert_eq!((limits(&asked), outcome["failedRungs"].clone()), (vec![LIMIT], Value::Null));
    let text = outcome["summary"].as_str().unwrap();
    assert!(text.contains("Aurora") && text.matches("The captain").count() == 1, "{text}");
    upstream.assert_clean();
}

#[tokio::test]
async fn a_loop_from_the_first_line_on_is_no_summary() {
    let looped = "I am happy to help you with the boat today.\n".repeat(40);
    let reply = || Reply::text(looped.clone()).in_pieces(50).ending(Finish::Hang);
    let upstream = summarising(vec![reply(), reply()]).await;
    let (outcome, asked) = compacted(&upstream).await;
    upstream.wait_for_hang_ups(2).await;
    assert_eq!((&outcome["rung"], asked.len()), (&json!("extract"), 2), "asked for once more: {outcome}");
}

#[tokio::test]
async fn a_server_that_ignores_the_limit_is_left_beyond_it() {
    let endless = (0..3_000).map(|n| format!("- fact {n} of many is {}\n", n * 7)).collect::<String>();
    let reply = || Reply::text(endless.clone()).in_pieces(300).ending(Finish::Hang);
    let upstream = summarising(vec![reply(), reply()]).await;
    let (outcome, asked) = compacted(&upstream).await;
    upstream.wait_for_hang_ups(2).await;
    assert_eq!((&outcome["rung"], limits(&asked)), (&json!("extract"), vec![LIMIT; 2]), "{outcome}");
    assert_eq!(outcome["failedRungs"][0]["reason"], "truncated");
}

#[tokio::test]
async fn a_model_that_reasons_up_to_the_limit_is_asked_once_more_with_room_for_it() {
    let cut_off = [
        Reply::text("").with_reasoning("First I think about the ship.").ending(Finish::Length),
        Reply::text("## Goal\n- Sail").with_reasoning("First I think.").ending(Finish::Length),
        Reply::text("").ending(Finish::Length).with_usage(900, 512),
    ];
    for reply in cut_off {
        let case = format!("{reply:?}");
        let upstream = summarising(vec![reply]).await;
        let (outcome, asked) = compacted(&upstream).await;
        assert_eq!((&outcome["rung"], asked.len()), (&json!("model_summary"), 2), "{case}: {outcome}");
        let limits = limits(&asked);
        assert!(limits[0] == LIMIT && limits[1] > LIMIT, "{case}: {limits:?}");
    }
    // Once with room for reasoning, then once more as after any answer that is cut off.
    let thinks = || Reply::text("").with_reasoning("I think.").ending(Finish::Length);
    let upstream = summarising(vec![thinks(), thinks(), thinks()]).await;
    let (outcome, asked) = compacted(&upstream).await;
    assert_eq!((&outcome["rung"], asked.len()), (&json!("extract"), 3), "{outcome}");
}
