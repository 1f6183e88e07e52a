//! The faults of the server that this one takes the place of, each as a test that would catch it.

use crate::support::{
    conversation::{Conversation, Dialect},
    server::Server,
    talk::{reply_to, words},
    upstream::{Asked, Reply, Upstream},
};
use serde_json::{Value, json};

/// A model that talks in answers of 60 words and keeps facts, asked through a server with a window of 2,000 tokens.
async fn talker(api: &str) -> (Upstream, Server) {
    let mut number = 0;
    asking(api, move |asked| {
        number += 1;
        reply_to(asked, number, 60)
    })
    .await
}

async fn asking(api: &str, script: impl FnMut(&Asked) -> Reply + Send + 'static) -> (Upstream, Server) {
    let upstream = Upstream::start(script).await;
    let server = Server::facing(&upstream.base_url(), &[("OPENAI_API", api)]).await;
    (upstream, server)
}

/// Sends `manual_compact` and waits for what comes of it.
async fn compact(conversation: &mut Conversation) -> Value {
    conversation.client.send("manual_compact", json!({})).await;
    conversation
        .client
        .until(|frame| ["context_compacted", "compaction_failed", "error"].iter().any(|kind| frame["type"] == *kind))
        .await
}

/// The fault: after a compaction the count was 0 and the reduction 100 %.
#[tokio::test]
async fn the_count_after_a_compaction_is_that_of_the_next_request() {
    for (api, dialect) in [("chat", Dialect::V1), ("responses", Dialect::V2)] {
        let (upstream, server) = talker(api).await;
        let mut conversation = Conversation::begin(&server.ws(), dialect).await;
        for turn in 0..5 {
            conversation.talk(&words(turn, 60)).await;
        }
        let before = conversation.info().await["tokenCount"].as_u64().unwrap();
        let compacted = compact(&mut conversation).await["payload"].clone();
        let (old, new) = (compacted["oldTokenCount"].as_u64().unwrap(), compacted["newTokenCount"].as_u64().unwrap());
        assert_eq!((old, new), (before, conversation.info().await["tokenCount"].as_u64().unwrap()), "{dialect:?}");
        let percent = 100.0 * (old - new) as f64 / old as f64;
        assert!((compacted["reductionPercent"].as_f64().unwrap() - percent).abs() <= 0.05, "{compacted}");

        // What the model's server counts of the next request, with a question of one token more.
        conversation.talk("Yes").await;
        let counted = upstream.requests().last().unwrap().tokens;
        assert!(new.abs_diff(counted) <= counted / 4, "told {new}, then asked {counted}");
    }
}
