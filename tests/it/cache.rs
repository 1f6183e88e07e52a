//! The provider's cache: every request starts with the exact bytes of the previous one; if not, its receipt says where
//! and why.

mod breaks;
mod golden;
mod prewarm;
mod verdicts;

use crate::support::{
    binary::Binary,
    client::Client,
    talk::words,
    upstream::{Asked, Reply, Upstream},
};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

/// Turns of the long conversation.
const TURNS: u64 = 100;

/// A request's body, each part in its original bytes.
#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    model: &'a RawValue,
    #[serde(borrow, default)]
    tools: Option<&'a RawValue>,
    #[serde(borrow, default)]
    instructions: Option<&'a RawValue>,
    #[serde(borrow, default)]
    messages: Vec<&'a RawValue>,
    #[serde(borrow, default)]
    input: Vec<&'a RawValue>,
}

/// Returns what a provider's cache compares in a request, in order: the model whose cache it is, tools, instructions,
/// messages.
fn read_by_a_cache(asked: &Asked) -> Vec<&str> {
    let body: Body<'_> = serde_json::from_str(&asked.raw).unwrap_or_else(|error| panic!("{error}: {}", asked.raw));
    let head = [Some(body.model), body.tools, body.instructions].map(|part| part.map_or("", RawValue::get));
    head.into_iter().chain(body.messages.into_iter().chain(body.input).map(RawValue::get)).collect()
}

/// Checks that every request starts with all of the previous one, byte for byte; otherwise returns where the first one
/// does not.
fn check_unbroken(requests: &[Asked]) -> Result<(), String> {
    for (number, pair) in requests.windows(2).enumerate() {
        let (before, after) = (read_by_a_cache(&pair[0]), read_by_a_cache(&pair[1]));
        if !after.starts_with(&before) {
            let same = before.iter().zip(&after).take_while(|(one, other)| one == other).count();
            let (was, is) = (before.get(same), after.get(same));
            return Err(format!("request {} parts from the one before it: {was:?} became {is:?}", number + 2));
        }
    }
    Ok(())
}

/// Starts a model server that reasons, calls a tool in every third turn, and caches everything it was sent.
async fn upstream() -> Upstream {
    let (mut number, mut sent) = (0, 0);
    Upstream::start(move |asked| {
        number += 1;
        let cached = std::mem::replace(&mut sent, asked.tokens);
        let reply = match number % 4 {
            1 if asked.offers_tools() && !asked.ends_with_result() => {
                Reply::text("Let me see.").and_call("look", &format!(r#"{{"depth": {number},"at":"ä"}}"#))
            }
            _ => Reply::text(words(number, 30)),
        };
        let reply = if number % 3 == 0 { reply.with_reasoning("They want to know more.") } else { reply };
        reply.with_cached(cached)
    })
    .await
}

/// Returns the tools, their keys in no particular order.
fn tools() -> Value {
    serde_json::from_str(
        r#"[{ "name": "look", "parameters": { "type": "object", "required": [], "properties": { "depth": {}, "at": {} } },
              "description": "Looks – around." },
            { "name": "wait", "description": "Waits.", "parameters": { "properties": {}, "type": "object" } }]"#,
    )
    .unwrap()
}

/// Sends input, answers the calls, and returns `turn_finished`'s payload.
async fn turn(client: &mut Client, text: &str) -> Value {
    client.ask("user_input", json!({ "input": text })).await;
    loop {
        let frame = client.until(|frame| ["tool_call", "turn_finished"].contains(&kind(frame))).await;
        if kind(&frame) == "turn_finished" {
            assert_eq!(frame["payload"]["status"], "completed", "{frame}");
            return frame["payload"].clone();
        }
        let answer = json!({ "toolCallId": frame["payload"]["toolCallId"], "output": format!("🌊 {}", words(7, 20)) });
        client.send("tool_result", answer).await;
    }
}

fn kind(frame: &Value) -> &str {
    frame["type"].as_str().unwrap_or_default()
}

/// Returns the answers that the client received.
fn answers(client: &Client) -> Vec<&Value> {
    let entries = client.seen.iter().filter(|frame| kind(frame) == "entry_appended");
    entries.map(|frame| &frame["payload"]["entry"]).filter(|entry| entry["role"] == "assistant").collect()
}

#[tokio::test]
async fn a_hundred_turns_with_tools_and_a_restart_begin_each_with_the_one_before() {
    for api in ["chat", "responses"] {
        let upstream = upstream().await;
        let folder = tempfile::tempdir().unwrap();
        let base_url = upstream.base_url();
        let settings = [
            ("OPENAI_BASE_URL", base_url.as_str()),
            ("OPENAI_API", api),
            ("MODEL", "test"),
            ("CONTEXT_WINDOW", "200000"),
        ];
        let mut server = Binary::start(folder.path(), &settings).await;
        let (mut client, opened) = Client::v2_session(&server.ws()).await;
        client.ask("register_tools", json!({ "tools": tools() })).await;
        // The size of each request, as counted by its server.
        let mut sizes: Vec<u64> = Vec::new();
        for number in 0..TURNS {
            if number == TURNS / 2 {
                server.kill().await;
                server = Binary::start(folder.path(), &settings).await;
                client = Client::v2(&server.ws()).await;
                let open = json!({ "sessionId": opened["sessionId"], "tools": tools() });
                assert_eq!(kind(&client.ask("open_session", open).await), "session_opened");
            }
            let seen = client.seen.len();
            let finished = turn(&mut client, &format!("{number}: {}", words(number, 25))).await;
            let entries = client.seen[seen..].iter().map(|frame| &frame["payload"]["entry"]);
            let mut shared = 0;
            for answer in entries.filter(|entry| entry["role"] == "assistant") {
                let (receipt, usage) = (&answer["receipt"], &answer["usage"]);
                assert_eq!(receipt.get("broke"), None, "turn {number} over {api}: {receipt:#}");
                // The previous request's usage is how much could be shared.
                let before = sizes.last().copied().unwrap_or(0);
                assert_eq!(receipt["prefixTokens"], before, "turn {number} over {api}: {receipt:#}");
                assert_eq!(usage["prefixTokens"], before);
                assert_eq!(usage["cachedTokens"], before);
                shared += before;
                sizes.push(usage["inputTokens"].as_u64().unwrap());
            }
            assert_eq!(finished["usage"]["prefixTokens"], shared, "{finished:#}");
        }
        let requests = upstream.requests();
        assert!(requests.len() as u64 > TURNS + TURNS / 5, "tools were called");
        assert_eq!(sizes, requests.iter().map(|asked| asked.tokens).collect::<Vec<_>>());
        check_unbroken(&requests).unwrap_or_else(|why| panic!("over {api}: {why}"));
        upstream.assert_clean();
    }
}
