//! `SUMMARY_REQUEST=cached_prefix`, and `auto` with a provider that caches: the summary request extends the
//! conversation's own request, so that the upstream server finds most of it in its cache. Also `SUMMARY_MODEL`, which
//! has no such cache.

use crate::support::{
    client::Client,
    json::{present, whole},
    server::Server,
    talk::{is_summary, rides, summary, words},
    upstream::{Asked, Reply, Upstream},
};
use serde_json::{Value, json};

const APIS: [&str; 2] = ["chat", "responses"];

/// Returns what a server's cache depends on, in the order in which it is read: tools, instructions, messages.
fn read_by_the_cache(asked: &Asked) -> String {
    let messages: Vec<String> = asked.messages().iter().map(Value::to_string).collect();
    format!("{}\n{}\n{}", asked.body["tools"], asked.system(), messages.join("\n"))
}

fn common_prefix(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count()
}

/// Builds a conversation of half a window with tools and instructions and compacts it; returns the outcome.
async fn compacted(upstream: &Upstream, api: &str, more: &[(&str, &str)]) -> Value {
    let usual = [("OPENAI_API", api), ("CONTEXT_WINDOW", "16000"), ("strategy.background", "1")];
    let server = Server::facing(&upstream.base_url(), &[&usual, more].concat()).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    let tool = json!({ "name": "look", "description": "Looks.", "parameters": { "type": "object" } });
    client.ask("register_tools", json!({ "tools": [tool] })).await;
    client.ask("set_instructions", json!({ "instructions": "Answer as a sailor would." })).await;
    for number in 0..40 {
        let finished = client.turn(&words(number, 150)).await;
        assert_eq!(finished["status"], "completed", "{finished}");
        if whole(&finished["contextInfo"]["tokenCount"]) >= 8_000 {
            break;
        }
    }
    assert_eq!(client.ask("start_compaction", json!({})).await["type"], "ok");
    let came = client.until(|frame| ["context_compacted", "compaction_failed"].contains(&kind(frame))).await;
    assert_eq!(kind(&came), "context_compacted", "{came}");
    assert_eq!(client.turn("Go on.").await["status"], "completed");
    upstream.assert_clean();
    came["payload"].clone()
}

fn kind(frame: &Value) -> &str {
    frame["type"].as_str().unwrap_or_default()
}

/// A server that answers cached-prefix summary requests with `riding`.
async fn sailor(riding: fn() -> Reply) -> Upstream {
    reporting(riding, false).await
}

/// Like [`sailor`]. If it `caches`, it reports how much of a request it finds in its cache: the prefix shared with the
/// previous request.
async fn reporting(riding: fn() -> Reply, caches: bool) -> Upstream {
    let (mut number, mut before) = (1_000, String::new());
    Upstream::start(move |asked| {
        number += 1;
        let read = read_by_the_cache(asked);
        let cached = asked.tokens * common_prefix(&before, &read) as u64 / read.len() as u64;
        before = read;
        let reply = match asked {
            asked if rides(asked) => riding(),
            asked if is_summary(asked) => Reply::text(summary(&["The ship is called Aurora"])),
            _ => Reply::text(words(number, 150)),
        };
        if caches { reply.with_cached(cached) } else { reply }
    })
    .await
}

fn good() -> Reply {
    Reply::text(summary(&["The ship is called Aurora"]))
}

#[tokio::test]
async fn the_summary_request_begins_as_the_conversation_did() {
    for api in APIS {
        let upstream = reporting(good, true).await;
        let compacted = compacted(&upstream, api, &[("SUMMARY_REQUEST", "cached_prefix")]).await;
        assert_eq!(compacted["rung"], "model_summary", "{compacted}");
        assert!(compacted["failedRungs"].as_array().is_none_or(Vec::is_empty), "{compacted}");
        let requests = upstream.requests();
        let at = requests.iter().position(rides).expect("the summary rides on the conversation");
        let (before, asked) = (&requests[at - 1], &requests[at]);
        let (sent, read) = (read_by_the_cache(asked), read_by_the_cache(before));
        // This is relative to the previous request: its answer and the instruction follow.
        let percent = |part: f64, of: f64| part * 100.0 / of;
        let share = percent(common_prefix(&sent, &read) as f64, read.len() as f64);
        let reported = compacted["summaryUsage"]["cachedTokens"].as_u64().unwrap();
        println!(
            "{api}: {share:.1} % of the {} bytes of the request before begin the summary's; the server reports \
             {reported} cached tokens of the {} there were, {:.1} %",
            read.len(),
            before.tokens,
            percent(reported as f64, before.tokens as f64)
        );
        assert!(share >= 99.0, "{api}: only {share:.1} % of the request before begin the summary's");
        assert!(percent(reported as f64, before.tokens as f64) >= 97.0, "{api}: {reported} of {}", before.tokens);
        assert_eq!(
            (present(&asked.body["model"]), present(&asked.body["tools"])),
            (&before.body["model"], &before.body["tools"])
        );
        assert_eq!(requests.iter().filter(|asked| is_summary(asked)).count(), 0, "{api}: asked once");
    }
}

#[tokio::test]
async fn auto_rides_where_the_provider_was_seen_to_cache() {
    // Whether the server reports a cache, the settings beside the defaults, and whether the cached prefix is used.
    for (caches, settings, expected) in [
        (true, &[][..], true),
        (false, &[], false),
        (true, &[("SUMMARY_MODEL", "clerk")], false),
        (true, &[("SUMMARY_REQUEST", "quoted")], false),
    ] {
        let upstream = reporting(good, caches).await;
        let compacted = compacted(&upstream, "chat", settings).await;
        assert_eq!(compacted["rung"], "model_summary", "{compacted}");
        let requests = upstream.requests();
        assert_eq!(requests.iter().any(rides), expected, "{caches} {settings:?}");
        assert_eq!(requests.iter().any(is_summary), !expected, "{caches} {settings:?}");
    }
}

#[tokio::test]
async fn quoted_shares_nothing_with_the_conversation() {
    let upstream = sailor(good).await;
    compacted(&upstream, "chat", &[]).await;
    let requests = upstream.requests();
    let at = requests.iter().position(is_summary).expect("the conversation is quoted");
    assert!(!requests.iter().any(rides));
    let (sent, read) = (read_by_the_cache(&requests[at]), read_by_the_cache(&requests[at - 1]));
    assert!(common_prefix(&sent, &read) * 100 < sent.len());
}

#[tokio::test]
async fn what_fails_behind_the_conversation_is_quoted() {
    /// The model's answer, and the expected reason.
    type Case = (fn() -> Reply, &'static str);
    let table: [Case; 3] = [
        (|| Reply::text("[User]: Aye aye?"), "continued"),
        (|| Reply::text("Aye aye, and so on and so forth! ".repeat(100)), "malformed"),
        (|| Reply::call("look", "{}"), "malformed"),
    ];
    for api in APIS {
        for (riding, reason) in table {
            let upstream = sailor(riding).await;
            let compacted = compacted(&upstream, api, &[("SUMMARY_REQUEST", "cached_prefix")]).await;
            assert_eq!(compacted["rung"], "model_summary", "{compacted}");
            assert_eq!(compacted["failedRungs"], json!([{ "rung": "model_summary", "reason": reason }]), "{api}");
            let requests = upstream.requests();
            let at = requests.iter().position(rides).unwrap();
            assert!(is_summary(&requests[at + 1]), "{api}: quoted at once");
            assert!(compacted["summary"].as_str().unwrap().contains("Aurora"));
        }
    }
}

#[tokio::test]
async fn a_model_of_its_own_never_rides() {
    for api in APIS {
        let upstream = sailor(good).await;
        let settings = [("SUMMARY_REQUEST", "cached_prefix"), ("SUMMARY_MODEL", "clerk")];
        let compacted = compacted(&upstream, api, &settings).await;
        assert_eq!(compacted["rung"], "model_summary", "{compacted}");
        let requests = upstream.requests();
        assert!(!requests.iter().any(rides), "{api}");
        for asked in &requests {
            let expected = if is_summary(asked) { "clerk" } else { "test" };
            assert_eq!(asked.body["model"], expected, "{api}");
        }
        assert_eq!(requests.iter().filter(|asked| is_summary(asked)).count(), 1, "{api}");
    }
}
