//! A model server that works on one request at a time: a summary in the background makes way for users' requests.

use crate::support::scripted::Gate;
use crate::support::{
    client::Client,
    server::Server,
    talk::{is_summary, summary, words},
    upstream::{Reply, Setup, Upstream},
};
use serde_json::{Value, json};

/// In the window of 2,000 tokens a compaction is prepared from 1,200 on and waited for from 1,600 on.
const SETTINGS: [(&str, &str); 5] = [
    ("MODEL", "smol.gguf"),
    ("CONTEXT_WINDOW", "2000"),
    ("strategy.background", "0.7"),
    ("SUMMARY_REQUEST", "quoted"),
    ("strategy.userShare", "0"),
];

/// Starts llama.cpp's server with this many slots. Summaries end when `summaries` is open, and an answer to `Wait.`
/// when `turns` is.
async fn llama_cpp(slots: u64, summaries: &Gate, turns: &Gate) -> Upstream {
    let (summaries, turns, mut number) = (summaries.clone(), turns.clone(), 1_000);
    let setup = Setup {
        models: json!({ "data": [{ "id": "smol.gguf", "owned_by": "llamacpp" }] }),
        props: Some(json!({ "total_slots": slots, "default_generation_settings": { "n_ctx": 2_000 } })),
        has_one_slot: slots == 1,
        ..Setup::default()
    };
    let script = move |asked: &_| {
        number += 1;
        match asked {
            asked if is_summary(asked) => {
                Reply::text(summary(&["The ship is called Aurora."])).in_pieces(4).held_by(&summaries)
            }
            asked if asked.last_user_text() == "Wait." => Reply::text("Well, yes.").in_pieces(2).held_by(&turns),
            _ => Reply::text(words(number, 40)),
        }
    };
    Upstream::start_with(setup, script).await
}

/// Talks in small turns until a summary is due; returns its job.
async fn until_due(client: &mut Client) -> Value {
    for number in 0..40 {
        assert_eq!(client.turn(&words(number, 50)).await["status"], "completed");
        client.ask("get_context_info", json!({})).await;
        if let Some(started) = client.seen.iter().find(|frame| frame["type"] == "compaction_started") {
            assert_eq!(started["payload"]["background"], true);
            return started["payload"]["jobId"].clone();
        }
    }
    panic!("forty turns did not come near the limit");
}

fn summaries(upstream: &Upstream) -> usize {
    upstream.requests().iter().filter(|asked| is_summary(asked)).count()
}

/// Waits until a request for a summary has come after this many of all kinds.
async fn summary_after(upstream: &Upstream, asked: usize) {
    let mut asked = asked;
    while !upstream.requests()[asked..].iter().any(is_summary) {
        upstream.wait_for_requests(asked + 1).await;
        if !upstream.requests()[asked..].iter().any(is_summary) {
            asked += 1;
        }
    }
}

#[tokio::test]
async fn a_turn_withdraws_a_summary_which_is_asked_for_again_after_it() {
    let (gate, turns) = (Gate::new(), Gate::new());
    let upstream = llama_cpp(1, &gate, &turns).await;
    let server = Server::facing(&upstream.base_url(), &SETTINGS).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    let job = until_due(&mut client).await;
    summary_after(&upstream, 0).await;
    for question in ["Who is there?", "And who else?"] {
        let asked = upstream.requests().len();
        // The summary would not end before the gate is open.
        assert_eq!(client.turn(question).await["status"], "completed", "{question}");
        summary_after(&upstream, asked).await;
    }
    upstream.wait_for_hang_ups(2).await;
    gate.open();
    let prepared = client.event("compaction_prepared").await["payload"].clone();
    assert_eq!((&prepared["jobId"], &prepared["rung"]), (&job, &json!("model_summary")), "{prepared}");
    assert!(summaries(&upstream) >= 3);
    for number in 100..120 {
        assert_eq!(client.turn(&words(number, 50)).await["status"], "completed");
        if client.seen.iter().any(|frame| frame["type"] == "context_compacted") {
            break;
        }
    }
    let compacted = client.event("context_compacted").await["payload"].clone();
    assert_eq!((&compacted["jobId"], &compacted["pausedMs"]), (&job, &json!(0)), "{compacted}");
    upstream.assert_clean();
}

#[tokio::test]
async fn with_several_slots_nothing_makes_way() {
    let (gate, turns) = (Gate::new(), Gate::new());
    let upstream = llama_cpp(4, &gate, &turns).await;
    let server = Server::facing(&upstream.base_url(), &SETTINGS).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    until_due(&mut client).await;
    summary_after(&upstream, 0).await;
    assert_eq!(client.turn("Who is there?").await["status"], "completed");
    assert_eq!(summaries(&upstream), 1);
    gate.open();
    assert_eq!(client.event("compaction_prepared").await["payload"]["rung"], "model_summary");
    assert_eq!(summaries(&upstream), 1);
}

#[tokio::test]
async fn a_summary_that_a_turn_waits_for_makes_way_no_more() {
    let (gate, turns) = (Gate::new(), Gate::new());
    let upstream = llama_cpp(1, &gate, &turns).await;
    let server = Server::facing(&upstream.base_url(), &SETTINGS).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    until_due(&mut client).await;
    // Another user's turn takes the server.
    let (mut other, _) = Client::v2_session(&server.ws()).await;
    other.ask("user_input", json!({ "input": "Wait." })).await;
    other.event("item_delta").await;
    let (asked, before) = (upstream.requests().len(), summaries(&upstream));
    // The next request does not fit, so the summary is requested at once, behind that turn.
    client.ask("user_input", json!({ "input": words(77, 420) })).await;
    summary_after(&upstream, asked).await;
    // A third one does not withdraw it.
    let (mut third, _) = Client::v2_session(&server.ws()).await;
    third.ask("user_input", json!({ "input": "And I?" })).await;
    upstream.wait_for_requests(asked + 2).await;
    turns.open();
    gate.open();
    assert_eq!(client.event("turn_finished").await["payload"]["status"], "completed");
    assert_eq!(third.event("turn_finished").await["payload"]["status"], "completed");
    assert_eq!(summaries(&upstream), before + 1);
    let compacted = client.seen.iter().find(|frame| frame["type"] == "context_compacted").unwrap();
    assert_eq!(compacted["payload"]["rung"], "model_summary", "{compacted}");
}
