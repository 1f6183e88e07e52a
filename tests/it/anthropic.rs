//! Anthropic's Messages API over real sockets: sessions with tools, thinking, images and compactions, and sessions that
//! change between two providers. The scripted server checks every request.

use crate::support::{
    client::Client,
    json::whole,
    server::Server,
    talk::{facts, is_summary, reply_to, rides, summary, words},
    upstream::{Api, Asked, Finish, Reply, Setup, Step, Upstream, unsealed},
};
use reseed::store::sqlite::SqliteStore;
use reseed::{
    core::model::{Answer, Delta, ModelFault, ModelRequest, Purpose},
    provider::{
        Delay, DeltaSink, Provider,
        anthropic::{Anthropic, AnthropicOptions},
        retry::RetryPolicy,
    },
};
use reseed_protocol::{
    ErrorCode, Message, Part, StopReason,
    context::{ContextEnvelope, ContextMessage, EnvelopeMessages, EnvelopeMeta, RequestOptions, SystemPrompt},
};
use serde_json::{Value, json};
use std::sync::Arc;

const PICTURE: &str = "data:image/png;base64,iVBORw0KGgo=";

/// Models as Anthropic lists them.
fn models() -> Value {
    let capabilities = json!({
        "image_input": { "supported": true }, "effort": { "supported": true },
        "thinking": { "supported": true, "types": { "adaptive": { "supported": true }, "enabled": { "supported": false } } },
    });
    json!({ "data": [{
        "type": "model", "id": "claude-test-20260101", "display_name": "Claude Test", "created_at": "2026-01-01T00:00:00Z",
        "max_input_tokens": 4_000, "max_tokens": 700, "capabilities": capabilities,
    }], "has_more": false })
}

fn request(text: &str) -> ModelRequest {
    let said = ContextMessage { entry_id: None, message: Arc::new(Message::user(text)) };
    ModelRequest {
        model: "claude-test".into(),
        envelope: ContextEnvelope {
            system: SystemPrompt::default(),
            tools: Vec::new(),
            messages: EnvelopeMessages { cached: vec![said], uncached: Vec::new() },
            options: RequestOptions::default(),
            meta: EnvelopeMeta::default(),
        },
        purpose: Purpose::Turn,
        compared_with: None,
        compacts: None,
    }
}

/// What was shown, and the reasons for waiting.
#[derive(Default)]
struct Shown(String, Vec<ErrorCode>);

impl DeltaSink for Shown {
    fn delta(&mut self, delta: Delta<'_>) {
        self.0.push_str(delta.text());
    }

    fn delayed(&mut self, delay: &Delay) {
        self.1.push(delay.reason);
    }
}

async fn asked(upstream: &Upstream) -> (Result<Answer, ModelFault>, Shown) {
    let retry = RetryPolicy { jitter: || 0.0, ..RetryPolicy::default() };
    let options = AnthropicOptions {
        base_url: upstream.messages_url(),
        api_key: Some("sk-ant".into()),
        retry,
        ..Default::default()
    };
    let (provider, mut shown) = (Anthropic::new(options).unwrap(), Shown::default());
    let answer = provider.answer(&request("hello"), &mut shown).await;
    upstream.assert_clean();
    (answer, shown)
}

fn overloaded() -> Reply {
    let error = json!({ "type": "overloaded_error", "message": "Overloaded" });
    Reply::json(529, &json!({ "type": "error", "error": error })).with_header("retry-after", "0")
}

#[tokio::test]
async fn answers_end_as_the_server_says() {
    let cut = |finish| Reply::text("half").ending(finish);
    for (reply, stop_reason, is_full) in [
        (Reply::text("half"), StopReason::Stop, false),
        (cut(Finish::Length), StopReason::Length, false),
        (cut(Finish::ContentFilter), StopReason::ContentFilter, false),
        (cut(Finish::Full), StopReason::Length, true),
    ] {
        let upstream = Upstream::replying([overloaded(), reply]).await;
        let (answer, shown) = asked(&upstream).await;
        let answer = answer.unwrap();
        assert_eq!((answer.stop_reason, answer.filled_window, shown.0.as_str()), (stop_reason, is_full, "half"));
        assert_eq!(shown.1, [ErrorCode::UpstreamOverloaded]);
    }
    let upstream = Upstream::replying([Reply::text("half").ending(Finish::Error)]).await;
    let (answer, _) = asked(&upstream).await;
    let fault = answer.unwrap_err();
    assert_eq!((fault.code, fault.shown), (ErrorCode::UpstreamError, true));
    let first = &upstream.requests()[0];
    assert_eq!((first.header("x-api-key"), first.header("anthropic-version")), (Some("sk-ant"), Some("2023-06-01")));
}

#[tokio::test]
async fn a_paused_answer_is_continued_and_what_fails_then_is_not_repeated() {
    let pause = || Reply::text("I search. ").ending(Finish::Pause).with_usage(100, 10);
    let upstream = Upstream::replying([pause(), pause(), Reply::text("Found.").with_usage(140, 5)]).await;
    let (answer, shown) = asked(&upstream).await;
    let answer = answer.unwrap();
    assert_eq!(shown.0, "I search. I search. Found.");
    let texts: Vec<Part> = ["I search. ", "I search. ", "Found."].map(|text| Part::Text { text: text.into() }).into();
    assert_eq!(answer.parts, texts);
    let usage = answer.usage.unwrap();
    assert_eq!((usage.input_tokens, usage.output_tokens, usage.further.unwrap().input_tokens), (100, 25, 240));
    let last = &upstream.requests()[2].body["messages"];
    let kinds: Vec<&Value> = last[1]["content"].as_array().unwrap().iter().map(|block| &block["type"]).collect();
    assert_eq!(kinds, ["text", "server_tool_use", "text", "server_tool_use"]);

    let upstream = Upstream::replying([pause(), overloaded()]).await;
    let (answer, _) = asked(&upstream).await;
    assert_eq!(answer.unwrap_err().code, ErrorCode::UpstreamOverloaded);
    assert_eq!(upstream.requests().len(), 2, "the words so far were shown");
}

#[tokio::test]
async fn a_changed_thought_is_refused_and_left_out() {
    let refused = json!({ "type": "error", "error": {
        "type": "invalid_request_error", "message": "messages.1.content.0: Invalid `signature` in `thinking` block",
    } });
    let upstream = Upstream::start(move |asked| match asked.contains("EuYB") {
        true => Reply::json(400, &refused),
        false => Reply::text("yes").with_reasoning("hm"),
    })
    .await;
    let url = upstream.messages_url();
    let server = Server::with_settings(&[("ANTHROPIC_BASE_URL", &url), ("MODEL", "claude-test")]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    client.turn("one").await;
    assert_eq!(client.turn("two").await["status"], "completed");
    let last = answers(&mut client).await.pop().unwrap();
    assert_eq!(last["receipt"]["adapted"], json!(["encrypted_reasoning"]));
    // The session remembers it.
    client.turn("three").await;
    assert_eq!(upstream.requests().len(), 4);
    upstream.assert_clean();
}

/// Returns the answers of a session, oldest first.
async fn answers(client: &mut Client) -> Vec<Value> {
    let entries = client.ask("get_entries", json!({})).await["payload"]["items"].clone();
    entries.as_array().unwrap().iter().filter(|entry| entry["role"] == "assistant").cloned().collect()
}

/// A server that thinks, calls a tool when it is told to look, and caches what it has read before.
async fn thinking(setup: Setup) -> Upstream {
    let (mut number, mut before) = (0, 0);
    Upstream::start_with(setup, move |asked| {
        number += 1;
        let cached = std::mem::replace(&mut before, asked.tokens).min(asked.tokens);
        if asked.compacts {
            return Reply::compaction(asked, &summary(&facts(&asked.text())));
        }
        let reply = match asked {
            asked if is_summary(asked) || rides(asked) => reply_to(asked, number, 30),
            asked if asked.last_user_text().contains("look") && !asked.ends_with_result() && asked.offers_tools() => {
                // Anthropic does not accept such an id of another server.
                let id = (asked.api != Api::Messages).then_some("functions.look:0");
                Reply::text("I look.").and_call_as(id, "look", r#"{"at": 1.50}"#).and_call("look", "{}")
            }
            asked => reply_to(asked, number, 30),
        };
        let reply = reply.with_reasoning(&format!("They say {number}.")).with_cached(cached / 2);
        if number % 3 == 0 { reply.with_redacted("eHh4").with_cache_write(10) } else { reply }
    })
    .await
}

async fn offer(client: &mut Client) {
    let tool = json!({ "name": "look", "description": "Looks.", "parameters": { "type": "object" } });
    client.ask("register_tools", json!({ "tools": [tool] })).await;
}

/// Sends input, and answers the calls.
async fn turn(client: &mut Client, input: Value) -> Value {
    let accepted = client.ask("user_input", json!({ "input": input })).await;
    assert_eq!(accepted["type"], "accepted", "{accepted}");
    loop {
        let wanted = |frame: &Value| frame["type"] == "tool_call" || frame["type"] == "turn_finished";
        let frame = client.until(wanted).await;
        let payload = frame["payload"].clone();
        if frame["type"] == "turn_finished" {
            assert_eq!(payload["status"], "completed", "{payload}");
            return payload;
        }
        client.send("tool_result", json!({ "toolCallId": payload["toolCallId"], "output": "the sea" })).await;
    }
}

fn picture(text: &str) -> Value {
    let content = json!([{ "type": "input_text", "text": text }, { "type": "input_image", "image_url": PICTURE }]);
    json!([{ "type": "message", "role": "user", "content": content }])
}

/// Returns the blocks of a request of this type.
fn blocks(asked: &Asked, kind: &str) -> usize {
    let messages = asked.messages().iter().flat_map(|message| message["content"].as_array().into_iter().flatten());
    messages.filter(|block| block["type"] == kind).count()
}

#[tokio::test]
async fn a_session_with_tools_thinking_images_and_compactions_is_served() {
    let setup = Setup { models: models(), window_tokens: Some(4_000), ..Setup::default() };
    let upstream = thinking(setup).await;
    let url = upstream.messages_url();
    let server = Server::with_settings(&[
        ("ANTHROPIC_BASE_URL", &url),
        ("ANTHROPIC_API_KEY", "sk-ant-test"),
        ("ANTHROPIC_CACHE_TTL", "1h"),
        ("MODEL", "claude-test"),
        ("CONTEXT_WINDOW", ""),
        ("MODEL_PRICES", "claude-test=3/0.3/15/3.75/6"),
    ])
    .await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    offer(&mut client).await;
    client.ask("set_model", json!({ "model": "claude-test", "reasoningEffort": "high" })).await;
    turn(&mut client, json!("My cat is called Miso. (fact: miso)")).await;
    turn(&mut client, json!("look twice")).await;
    turn(&mut client, picture("What is this?")).await;
    for number in 0..30 {
        let finished = turn(
            &mut client,
            json!(format!("{} {}", if number % 3 == 0 { "look" } else { "go on" }, words(number, 90))),
        )
        .await;
        assert_eq!(finished["contextInfo"]["maxTokens"], 4_000);
    }
    upstream.assert_clean();
    let requests = upstream.requests();
    assert!(requests.iter().all(|asked| asked.api == Api::Messages && whole(&asked.body["max_tokens"]) <= 700));
    let turns: Vec<&Asked> = requests.iter().filter(|asked| !is_summary(asked)).collect();
    assert_eq!(turns[0].body["thinking"], json!({ "type": "adaptive", "display": "summarized" }));
    assert_eq!(turns[0].body["output_config"], json!({ "effort": "high" }));
    assert!(turns.iter().any(|asked| blocks(asked, "thinking") > 1 && blocks(asked, "tool_result") > 1));
    assert!(turns.iter().any(|asked| blocks(asked, "redacted_thinking") > 0 && blocks(asked, "image") > 0));
    let marks = |asked: &Asked| asked.raw.matches(r#""cache_control":{"type":"ephemeral","ttl":"1h"}"#).count();
    assert!(turns.iter().all(|asked| (2..=4).contains(&marks(asked))));
    assert!(client.seen.iter().any(|frame| frame["type"] == "context_compacted"), "it was compacted");
    for answer in answers(&mut client).await {
        let tokens = |name: &str| answer["usage"][name].as_u64().unwrap_or(0);
        let (read, written, hour) =
            (tokens("cachedTokens"), tokens("cacheWriteTokens"), tokens("cacheWriteHourTokens"));
        let due = (tokens("inputTokens") - read - written) * 3_000
            + read * 300
            + (written - hour) * 3_750
            + hour * 6_000
            + tokens("outputTokens") * 15_000;
        assert_eq!(tokens("costNanoUsd"), due, "{answer}");
    }
}

#[tokio::test]
async fn a_session_changes_from_one_provider_to_the_other_and_back() {
    let openai = thinking(Setup::default()).await;
    let anthropic = thinking(Setup { models: models(), ..Setup::default() }).await;
    for api in ["responses", "chat"] {
        let (openai_url, anthropic_url) = (openai.base_url(), anthropic.messages_url());
        let server = Server::with_settings(&[
            ("OPENAI_BASE_URL", &openai_url),
            ("OPENAI_API", api),
            ("ANTHROPIC_BASE_URL", &anthropic_url),
            ("MODEL", "test-model"),
            ("CONTEXT_WINDOW", "100000"),
            ("CONTEXT_STRATEGY", "manual"),
            ("MODEL_PRICES", "test-model=2/0.5/8, anthropic/claude-test-20260101=3/0.3/15/3.75/6"),
        ])
        .await;
        let (mut client, _) = Client::v2_session(&server.ws()).await;
        offer(&mut client).await;
        let models = client.ask("list_models", json!({})).await["payload"]["items"].clone();
        let listed = models.as_array().unwrap().iter().find(|item| item["id"] == "anthropic/claude-test-20260101");
        assert_eq!(listed.map(|item| &item["windowTokens"]), Some(&json!(4_000)), "{models}");
        let talk = async |client: &mut Client, model: &str| {
            assert_eq!(client.ask("set_model", json!({ "model": model })).await["type"], "ok");
            turn(client, json!(format!("look, {model}"))).await;
            turn(client, json!("and go on")).await;
        };
        turn(&mut client, picture("My cat is called Miso. (fact: miso)")).await;
        talk(&mut client, "test-model").await;
        talk(&mut client, "anthropic/claude-test-20260101").await;
        turn(&mut client, json!(words(7, 1_500))).await;
        turn(&mut client, json!("go on")).await;
        assert_eq!(client.ask("start_compaction", json!({})).await["type"], "ok");
        client.event("context_compacted").await;
        talk(&mut client, "test-model").await;
        talk(&mut client, "anthropic/claude-test-20260101").await;
        openai.assert_clean();
        anthropic.assert_clean();
        assert!(anthropic.requests().iter().all(|asked| asked.body["model"] == "claude-test-20260101"));
        let first = anthropic.requests().into_iter().find(|asked| !is_summary(asked)).unwrap();
        assert!(blocks(&first, "tool_result") == 2 && blocks(&first, "image") == 1 && blocks(&first, "thinking") == 0);
        let answers = answers(&mut client).await;
        assert!(answers.iter().all(|answer| whole(&answer["usage"]["costNanoUsd"]) > 0));
        // The Responses API seals its reasoning.
        let notes: Vec<&Value> = answers.iter().map(|answer| &answer["receipt"]["adapted"]).collect();
        let is_noted = notes.contains(&&json!(["foreign_reasoning"]));
        assert!(is_noted, "{notes:?}");
    }
}

/// Returns all that a request says, with what its server has sealed.
fn known(asked: &Asked) -> String {
    let sealed = asked.messages().iter().find_map(unsealed);
    asked.text() + &sealed.unwrap_or_default()
}

#[tokio::test]
async fn a_session_tours_three_apis_and_comes_back_with_all_it_was_told() {
    const OPENAI: &str = "test-model";
    const CLAUDE: &str = "anthropic/claude-test-20260101";
    const LLAMA: &str = "llama-3";
    /// Nanodollars per token of input, cached input, output, and cache writes for five minutes and an hour.
    const PRICES: [(&str, [u64; 5]); 3] = [
        (OPENAI, [2_000, 500, 8_000, 2_000, 2_000]),
        (CLAUDE, [3_000, 300, 15_000, 3_750, 6_000]),
        (LLAMA, [10, 5, 20, 10, 10]),
    ];
    const TOLD: [&str; 3] = ["FACT the cat is called Miso", "FACT the boat is red", "FACT the lamp is lit"];
    let openai = thinking(Setup::default()).await;
    let mut listed = models();
    listed["data"][0]["max_input_tokens"] = json!(100_000);
    listed["data"][0]["capabilities"]["compaction"] = json!({ "supported": false });
    let anthropic = thinking(Setup { models: listed, ..Setup::default() }).await;
    let llama = thinking(Setup::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let serve = async |upstream: &Upstream, api: &str| {
        let store = Arc::new(SqliteStore::open(&folder.path().join("reseed.db")).unwrap());
        let settings = [
            ("OPENAI_API", api),
            ("ANTHROPIC_BASE_URL", &anthropic.messages_url()),
            ("MODEL", OPENAI),
            ("CONTEXT_WINDOW", "100000"),
            ("CONTEXT_STRATEGY", "manual"),
            ("SUMMARY_REQUEST", "provider_native"),
            ("strategy.keepRecentTokens", "1"),
            (
                "MODEL_PRICES",
                "test-model=2/0.5/8, anthropic/claude-test-20260101=3/0.3/15/3.75/6, llama-3=0.01/0.005/0.02",
            ),
        ];
        Server::facing_over(&upstream.base_url(), store, &settings).await
    };
    let talk = async |client: &mut Client, model: &str, told: &str| {
        assert_eq!(client.ask("set_model", json!({ "model": model })).await["type"], "ok");
        turn(client, picture(told)).await;
        turn(client, json!(format!("look, {model}"))).await;
        turn(client, json!(words(7, 900))).await;
        turn(client, json!("go on")).await;
    };
    let compacted = async |client: &mut Client| {
        assert_eq!(client.ask("start_compaction", json!({})).await["type"], "ok");
        client.event("context_compacted").await["payload"].clone()
    };
    let last = |upstream: &Upstream| upstream.requests().pop().unwrap();

    let server = serve(&openai, "responses").await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    let session = opened["sessionId"].clone();
    offer(&mut client).await;
    talk(&mut client, OPENAI, TOLD[0]).await;
    let first = compacted(&mut client).await;
    assert_eq!(first["rung"], "provider_native", "{first}");
    turn(&mut client, json!("go on")).await;
    let asked = last(&openai);
    assert!(asked.messages().iter().any(|item| item["type"] == "compaction") && known(&asked).contains(TOLD[0]));
    talk(&mut client, CLAUDE, TOLD[1]).await;
    let asked = last(&anthropic);
    assert!(TOLD[..2].iter().all(|told| known(&asked).contains(told)));
    server.service.stop().await;

    let server = serve(&llama, "chat").await;
    let mut client = Client::v2(&server.ws()).await;
    client.ask("open_session", json!({ "sessionId": session })).await;
    offer(&mut client).await;
    talk(&mut client, LLAMA, TOLD[2]).await;
    assert!(TOLD.iter().all(|told| known(&last(&llama)).contains(told)));
    let second = compacted(&mut client).await;
    assert_eq!(second["rung"], "model_summary", "{second}");
    assert_eq!(second["failedRungs"], json!([{ "rung": "provider_native", "reason": "upstream_not_found" }]));
    turn(&mut client, json!("go on")).await;
    server.service.stop().await;

    let server = serve(&openai, "responses").await;
    let mut client = Client::v2(&server.ws()).await;
    client.ask("open_session", json!({ "sessionId": session })).await;
    offer(&mut client).await;
    talk(&mut client, OPENAI, "And now?").await;
    talk(&mut client, CLAUDE, "And there?").await;
    for upstream in [&openai, &anthropic, &llama] {
        upstream.assert_clean();
        let asked = last(upstream);
        assert!(TOLD.iter().all(|told| known(&asked).contains(told)));
    }

    let due = |model: &str, usage: &Value| {
        let [input, cached, output, written, hour] =
            PRICES.iter().find(|(name, _)| *name == model).unwrap_or_else(|| panic!("{model}")).1;
        let pass = |pass: &Value| {
            let tokens = |name: &str| pass[name].as_u64().unwrap_or(0);
            let (read, wrote, kept) =
                (tokens("cachedTokens"), tokens("cacheWriteTokens"), tokens("cacheWriteHourTokens"));
            (tokens("inputTokens") - read - wrote) * input
                + read * cached
                + (wrote - kept) * written
                + kept * hour
                + tokens("outputTokens") * output
        };
        pass(usage) + pass(&usage["further"])
    };
    let mut total = 0;
    let answered = answers(&mut client).await;
    let answered = answered.iter().map(|answer| (answer["model"].as_str().unwrap(), &answer["usage"]));
    let compacted = [(OPENAI, &first["summaryUsage"]), (LLAMA, &second["summaryUsage"])];
    for (model, usage) in answered.chain(compacted) {
        assert_eq!(whole(&usage["costNanoUsd"]), due(model, usage), "{model} {usage}");
        total += whole(&usage["costNanoUsd"]);
    }
    let list = client.ask("list_sessions", json!({})).await["payload"]["items"].clone();
    assert_eq!(whole(&list[0]["costNanoUsd"]), total, "{list}");
}

/// What the scripted server sends, byte for byte, for the official SDKs: `tests/clients` shows that they read it.
#[test]
fn the_streams_that_the_sdks_read_are_those_of_the_scripted_server() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/anthropic.json");
    let cases = [
        ("text", Reply::text("Fair winds.").in_pieces(3)),
        ("tools", Reply::text("I look.").and_call("look", r#"{"at": 1.50}"#).and_call("look", "{}")),
        ("thinking", Reply::text("Yes.").with_reasoning("They ask.").with_redacted("eHh4")),
        ("cached", Reply::text("Yes.").with_cached(60).with_cache_write(30)),
        ("length", Reply::text("Half").ending(Finish::Length)),
        ("refusal", Reply::text("Half").ending(Finish::ContentFilter)),
        ("full", Reply::text("Half").ending(Finish::Full)),
        ("paused", Reply::text("I search.").ending(Finish::Pause)),
        ("broken", Reply::text("Half").ending(Finish::Error)),
        ("overloaded", overloaded()),
    ];
    let case = |(name, reply): (&str, Reply)| {
        let steps = reply.steps(Api::Messages, (100, 1_000)).into_iter();
        let bytes = steps.flat_map(|step| match step {
            Step::Bytes(bytes) => bytes,
            other => panic!("{other:?}"),
        });
        json!({ "name": name, "response": String::from_utf8(bytes.collect()).unwrap() })
    };
    let sent = format!("{:#}\n", Value::Array(cases.map(case).into()));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(file, sent).unwrap();
    } else {
        assert!(
            std::fs::read_to_string(file).unwrap() == sent,
            "{file} is out of date: set UPDATE=1 and run this test"
        );
    }
}
