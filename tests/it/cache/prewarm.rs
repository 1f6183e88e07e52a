//! The provider's cache is filled after a compaction, and a turn that begins ends that.

use super::answers;
use crate::support::{
    client::Client,
    http,
    json::{present, whole},
    polling::until,
    server::Server,
    talk::{is_summary, reply_to, rides, words},
    upstream::{Api, Asked, Reply, Setup, Upstream},
};
use reseed::{internals::Faulty, store::memory::MemoryStore};
use serde_json::{Value, json};
use std::sync::Arc;

async fn server(api: &str, upstream: &Upstream, prewarms: &str) -> Server {
    let url = if api == "messages" { upstream.messages_url() } else { upstream.base_url() };
    let address = match api {
        "messages" => vec![("ANTHROPIC_BASE_URL", &*url)],
        _ => vec![("OPENAI_BASE_URL", &*url), ("OPENAI_API", api)],
    };
    let others = [
        ("MODEL", "test"),
        ("CONTEXT_WINDOW", "100000"),
        ("CONTEXT_STRATEGY", "threshold:keepRecentTokens=200"),
        ("CACHE_DIAGNOSTICS", "on"),
        ("CACHE_PREWARM", prewarms),
        ("MODEL_PRICES", "test=3/0.3/15/3.75/6"),
    ];
    Server::with_settings(&[&address[..], &others[..]].concat()).await
}

/// Starts a server that talks, and answers a request that fills its cache like this.
async fn talking(prewarmed: impl Fn(&Asked) -> Reply + Send + 'static) -> Upstream {
    let mut number = 0;
    let setup = Setup { compares: true, ..Setup::default() };
    Upstream::start_with(setup, move |asked| {
        number += 1;
        match asked.prewarms() {
            true => prewarmed(asked),
            false => reply_to(asked, number, 100),
        }
    })
    .await
}

async fn compacted(server: &Server) -> Client {
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    for number in 0..4 {
        client.turn(&words(number, 150)).await;
    }
    assert_eq!(client.ask("start_compaction", json!({})).await["type"], "ok");
    client.event("context_compacted").await;
    client
}

/// Returns the messages of a request without its marks for the cache.
fn messages(asked: &Asked) -> Vec<String> {
    let text = |message: &Value| message.to_string().replace(r#""cache_control":{"type":"ephemeral"},"#, "");
    asked.messages().iter().map(text).collect()
}

#[tokio::test]
async fn the_cache_is_filled_after_a_compaction_and_it_is_paid() {
    for api in ["messages", "responses"] {
        let upstream = talking(Reply::prewarmed).await;
        let server = server(api, &upstream, "on").await;
        let mut client = compacted(&server).await;
        upstream.wait_for_requests(6).await;
        let requests = upstream.requests();
        assert!(is_summary(&requests[4]) || rides(&requests[4]));
        let asked = &requests[5];
        assert!(asked.prewarms() && asked.body["stream"] == false, "{:#}", asked.body);
        assert_eq!(asked.api == Api::Messages, asked.body["max_tokens"] == 0);
        client.turn("And now?").await;
        upstream.assert_clean();
        let next = upstream.requests().pop().unwrap();
        let (filled, sent) = (messages(asked), messages(&next));
        assert_eq!(filled[..2], sent[..2], "the next request begins with the messages that were sent");
        let shown: Value = serde_json::from_str(&http::get(&server.address(), "/api/sessions").await.body).unwrap();
        let prewarmed = present(&shown["items"][0]["compaction"]["prewarmed"]);
        assert_eq!(prewarmed["requests"], 1, "{api}");
        assert_eq!(whole(&prewarmed["costNanoUsd"]), asked.tokens * 3_750, "{api}");
        let metrics = http::get(&server.address(), "/metrics").await.body;
        let counted = r#"reseed_model_requests_total{purpose="prewarm",outcome="ok"} "#;
        let counted = metrics.lines().find_map(|line| line.strip_prefix(counted)).unwrap();
        assert!(counted.parse::<u64>().unwrap() > 0);
    }
}

#[tokio::test]
async fn it_is_not_filled_unless_the_setting_says_so_and_the_api_can() {
    for (api, prewarms) in [("messages", "off"), ("chat", "on")] {
        let upstream = talking(Reply::prewarmed).await;
        let server = server(api, &upstream, prewarms).await;
        let mut client = compacted(&server).await;
        client.turn("And now?").await;
        assert_eq!(upstream.requests().len(), 6, "{api}");
        upstream.assert_clean();
    }
}

#[tokio::test]
async fn a_turn_that_begins_ends_it_and_a_refusal_changes_nothing() {
    let upstream = talking(|_| Reply::silence()).await;
    let hanging = server("messages", &upstream, "on").await;
    let mut client = compacted(&hanging).await;
    upstream.wait_for_requests(6).await;
    assert_eq!(client.turn("And now?").await["status"], "completed");
    upstream.wait_for_hang_ups(1).await;

    let refusal = r#"{"error":{"message":"max_tokens: must be greater than or equal to 1"}}"#;
    let upstream = talking(|_| Reply::error(400, refusal)).await;
    let refused = server("messages", &upstream, "on").await;
    let mut client = compacted(&refused).await;
    upstream.wait_for_requests(6).await;
    assert_eq!(client.turn("And now?").await["status"], "completed");
    let requests = upstream.requests();
    assert_eq!(requests.len(), 7, "it is sent once");
    let last = answers(&client).pop().unwrap();
    assert_eq!(present(&last["receipt"]).get("adapted"), None);
    upstream.assert_clean();
}

#[tokio::test]
async fn what_it_costs_is_written_although_a_turn_begins_meanwhile() {
    let upstream = talking(Reply::prewarmed).await;
    let store = Arc::new(Faulty::new(MemoryStore::new()));
    let url = upstream.messages_url();
    let settings = [
        ("ANTHROPIC_BASE_URL", &*url),
        ("MODEL_PROVIDER", "anthropic"),
        ("CONTEXT_WINDOW", "100000"),
        ("CONTEXT_STRATEGY", "threshold:keepRecentTokens=200"),
        ("CACHE_PREWARM", "on"),
    ];
    let server = Server::facing_over(&upstream.base_url(), store.clone(), &settings).await;
    let held = store.hold_usage().await;
    let mut client = compacted(&server).await;
    store.usage_begins().await;
    let asked = upstream.requests().pop().unwrap();
    assert!(asked.prewarms());
    client.turn("And now?").await;
    drop(held);
    until("the request is in the account", async || {
        let sums = http::get(&server.address(), "/api/usage?by=total").await.json();
        let written = sums["items"][0]["cacheWriteTokens"].as_u64();
        if written == Some(asked.tokens) { Ok(()) } else { Err(sums.to_string()) }
    })
    .await;
    upstream.assert_clean();
}
