//! Receipts and the provider's own verdict: both APIs are asked for a comparison, and agree with the receipts of random
//! sessions.

use super::{answers, kind};
use crate::support::{
    client::Client,
    http,
    json::present,
    server::Server,
    talk::{is_summary, reply_to, rides, words},
    upstream::{Api, Asked, Finish, Reply, Setup, Upstream},
};
use reseed::{
    config::DiagnosticsChoice,
    core::hook::HookSpec,
    hooks::{Hook, on},
    provider::{
        anthropic::{Anthropic, AnthropicOptions},
        openai::{ApiChoice, OpenAi, OpenAiOptions},
    },
};
use reseed_protocol::{
    Message, Role,
    context::{ContextEnvelope, MessageEdit, PatchOp},
    hooks::{ContextReason, HookAnswer, HookEvent, HookPoint},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

const APIS: [&str; 2] = ["responses", "messages"];

/// Returns the settings of a server that faces this one.
fn settings<'a>(api: &str, url: &'a str) -> Vec<(&'static str, &'a str)> {
    let address = match api {
        "messages" => vec![("ANTHROPIC_BASE_URL", url)],
        _ => vec![("OPENAI_BASE_URL", url), ("OPENAI_API", "responses")],
    };
    let others =
        [("MODEL", "test"), ("CONTEXT_WINDOW", "100000"), ("CACHE_DIAGNOSTICS", "on"), ("HISTORY_TOOLS", "off")];
    address.into_iter().chain(others).collect()
}

fn url(api: &str, upstream: &Upstream) -> String {
    if api == "messages" { upstream.messages_url() } else { upstream.base_url() }
}

async fn comparing() -> Upstream {
    let mut number = 0;
    let setup = Setup { compares: true, ..Setup::default() };
    Upstream::start_with(setup, move |asked| {
        number += 1;
        reply_to(asked, number, 20)
    })
    .await
}

/// Returns the id with which a request asks to be compared.
fn compared_with(asked: &Asked) -> Value {
    match asked.api {
        Api::Messages => asked.body["diagnostics"]["previous_message_id"].clone(),
        _ => asked.body["prompt_cache_options"]["comparison_response_id"].clone(),
    }
}

fn receipts(client: &Client) -> Vec<Value> {
    answers(client).into_iter().map(|answer| answer["receipt"].clone()).collect()
}

#[tokio::test]
async fn both_apis_are_asked_with_the_id_of_the_last_answer() {
    for api in APIS {
        let upstream = comparing().await;
        let url = url(api, &upstream);
        let server = Server::with_settings(&settings(api, &url)).await;
        let (mut client, opened) = Client::v2_session(&server.ws()).await;
        client.turn("one").await;
        client.turn("two").await;
        client.ask("set_instructions", json!({ "instructions": "Be kind." })).await;
        client.turn("three").await;
        client.ask("set_options", json!({ "reasoningEffort": "high" })).await;
        client.ask("set_model", json!({ "model": "test", "reasoningEffort": "high" })).await;
        client.turn("four").await;
        upstream.assert_clean();
        let prefix = if api == "messages" { "msg" } else { "resp" };
        let ids: Vec<Value> = (1..4).map(|number| json!(format!("{prefix}_{number}"))).collect();
        let asked: Vec<Value> = upstream.requests().iter().map(compared_with).collect();
        assert_eq!((&asked[0], &asked[1..]), (&Value::Null, &ids[..]), "{api}");
        let receipts = receipts(&client);
        assert_eq!(present(&receipts[2]["response"])["id"], ids[2], "{api}");
        assert_eq!(receipts[0].get("provider"), None, "{api}: nothing to compare with");
        assert_eq!(receipts[1]["provider"], json!({ "verdict": "hit", "agrees": true }), "{api}");
        let (reason, part) = if api == "messages" { ("system_changed", "system") } else { ("input_changed", "input") };
        let missed = json!({ "verdict": "miss", "reason": reason, "part": part, "lostTokens": 321, "agrees": true });
        assert_eq!(receipts[2]["provider"], missed, "{api}");
        let optional = match api {
            "messages" => json!({ "verdict": "unknown", "reason": "unavailable" }),
            _ => json!({
                "verdict": "miss", "reason": "reasoning_effort_changed", "part": "options", "lostTokens": 321,
            }),
        };
        assert_eq!(receipts[3]["provider"], optional, "{api}");
        // Operators and clients see both.
        let path = format!("/api/sessions/{}/context?format=envelope", opened["sessionId"].as_str().unwrap());
        let shown: Value = serde_json::from_str(&http::get(&server.address(), &path).await.body).unwrap();
        assert_eq!(present(&shown["answered"])["provider"], optional, "{api}");
        let own = client.ask("get_context", json!({})).await["payload"].clone();
        assert_eq!(own["answered"], receipts[3], "{api}");
        let metrics = http::get(&server.address(), "/metrics").await.body;
        for line in [r#"receipt="agrees",part="none""#, r#"receipt="unknown",part="none""#] {
            assert!(metrics.contains(&format!("reseed_cache_verdicts_total{{{line}}}")), "{line}");
        }
    }
}

#[tokio::test]
async fn a_verdict_that_is_not_ready_or_not_known_fails_no_answer() {
    for (said, verdict) in [
        (json!({ "cache_miss_reason": null }), json!({ "verdict": "unknown" })),
        (
            json!({ "cache_miss_reason": { "type": "tools_changed" } }),
            json!({ "verdict": "miss", "reason": "tools_changed", "part": "tools", "agrees": false }),
        ),
        (
            json!({ "cache_miss_reason": { "type": "moon_phase_changed", "cache_missed_input_tokens": "many" } }),
            json!({ "verdict": "unknown", "reason": "moon_phase_changed" }),
        ),
        (json!({ "cache_miss_reason": "a text" }), json!({ "verdict": "unknown" })),
        (json!({}), json!({ "verdict": "unknown" })),
        (json!("what"), json!({ "verdict": "hit", "agrees": true })),
    ] {
        let message = json!({
            "id": "msg_7", "type": "message", "role": "assistant", "content": [{ "type": "text", "text": "Aye." }],
            "stop_reason": "end_turn", "usage": { "input_tokens": 9, "output_tokens": 1 }, "diagnostics": said,
        });
        let setup = Setup { compares: true, ..Setup::default() };
        let upstream = Upstream::start_with(setup, move |_| Reply::json(200, &message)).await;
        let url = upstream.messages_url();
        let server = Server::with_settings(&settings("messages", &url)).await;
        let (mut client, _) = Client::v2_session(&server.ws()).await;
        client.turn("one").await;
        client.turn("two").await;
        let receipts = receipts(&client);
        assert_eq!(receipts[0].get("provider"), None);
        assert_eq!(receipts[1]["provider"], verdict, "{said}");
    }
}

#[tokio::test]
async fn a_server_that_refuses_to_compare_costs_one_request() {
    for (api, refusal) in [
        (
            "messages",
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"diagnostics: Extra inputs are not permitted"}}"#,
        ),
        (
            "messages",
            r#"{"error":{"message":"Unexpected value(s) `cache-diagnosis-2026-04-07` for the `anthropic-beta` header"}}"#,
        ),
        (
            "responses",
            r#"{"error":{"message":"Unsupported parameter: 'prompt_cache_options' is not supported with this model.","param":"prompt_cache_options"}}"#,
        ),
        ("responses", "Bad Request"),
    ] {
        let setup = Setup { compares: true, ..Setup::default() };
        let upstream = Upstream::start_with(setup, move |asked| {
            match compared_with(asked) == Value::Null && asked.body.get("diagnostics").is_none() {
                true => Reply::text("Aye."),
                false => Reply::error(400, refusal),
            }
        })
        .await;
        let url = url(api, &upstream);
        let server = Server::with_settings(&settings(api, &url)).await;
        let (mut client, _) = Client::v2_session(&server.ws()).await;
        for text in ["one", "two", "three"] {
            assert_eq!(client.turn(text).await["status"], "completed", "{api} {refusal}");
        }
        assert_eq!(upstream.requests().len(), 4, "{api} {refusal}");
        let receipts = receipts(&client);
        assert_eq!(receipts[2]["adapted"], json!(["cache_diagnostics"]), "{api} {refusal}");
        assert_eq!(receipts[2].get("provider"), None);
        upstream.assert_clean();
    }
}

#[tokio::test]
async fn no_other_server_is_asked_unless_the_setting_says_so() {
    for (choice, asks) in [("auto", false), ("off", false), ("on", true)] {
        for api in APIS {
            let upstream = comparing().await;
            let url = url(api, &upstream);
            let mut settings = settings(api, &url);
            settings.push(("CACHE_DIAGNOSTICS", choice));
            let server = Server::with_settings(&settings).await;
            let (mut client, _) = Client::v2_session(&server.ws()).await;
            client.turn("one").await;
            client.turn("two").await;
            let is_asked = compared_with(&upstream.requests()[1]) != Value::Null;
            assert_eq!(is_asked, asks, "{api} {choice}");
            upstream.assert_clean();
        }
    }
}

/// What the hooks change before the next request.
#[derive(Debug, Clone, Copy)]
enum Wish {
    Part(u8),
    Drop,
    Tools,
    Edit,
    Once,
}

fn ops(wish: Wish, envelope: &ContextEnvelope) -> Vec<PatchOp> {
    let invalidate_cache_reason = "the test wishes it".to_owned();
    match wish {
        Wish::Part(number) => {
            let text = format!("\nThe tide is at {number}.");
            vec![PatchOp::SystemPartSet { part_name: "tide".to_owned(), text, invalidate_cache_reason }]
        }
        Wish::Drop => {
            vec![PatchOp::SystemPartSet { part_name: "tide".to_owned(), text: String::new(), invalidate_cache_reason }]
        }
        Wish::Tools => {
            let mut tools = envelope.tools.clone();
            tools.iter_mut().for_each(|tool| tool.description.push_str(" With care."));
            vec![PatchOp::ToolsReplace { tools, invalidate_cache_reason }]
        }
        Wish::Edit => {
            let of_user = |one: &&reseed_protocol::context::ContextMessage| one.message.role == Role::User;
            let user = envelope.messages.cached.iter().filter(of_user).find_map(|one| one.entry_id.clone());
            let edits = user.map(|entry_id| MessageEdit { entry_id, message: Some(Message::user("[redacted]")) });
            vec![PatchOp::MessagesCachedEdit { edits: edits.into_iter().collect(), invalidate_cache_reason }]
        }
        Wish::Once => vec![PatchOp::MessagesUncachedAppend { messages: vec![Message::user("It is noon.")] }],
    }
}

fn hooks_of(wishes: &Arc<Mutex<Vec<Wish>>>) -> Vec<Arc<dyn Hook>> {
    let hook = |name: &str, reason: ContextReason, is_once: bool| -> Arc<dyn Hook> {
        let wishes = wishes.clone();
        on([HookSpec::new(name, HookPoint::Context).for_reasons(&[reason])], move |call| {
            let mut waiting = wishes.lock().unwrap();
            let (now, later): (Vec<Wish>, Vec<Wish>) =
                waiting.drain(..).partition(|wish| matches!(wish, Wish::Once) == is_once);
            *waiting = later;
            let HookEvent::Context { envelope, .. } = call.event else { panic!("another event") };
            let ops = now.into_iter().flat_map(|wish| ops(wish, &envelope)).collect();
            async move { Ok(HookAnswer::patch(ops)) }
        })
    };
    vec![hook("wisher", ContextReason::BeforeRequest, false), hook("once", ContextReason::Ephemeral, true)]
}

/// Plays a random session and returns how often the provider had each verdict. `server` faces `upstream`.
async fn play(seed: u64, server: &Server, upstream: &Upstream, wishes: &Mutex<Vec<Wish>>) -> BTreeMap<String, u64> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    for step in 0..60 {
        match rng.u8(..20) {
            0 => {
                let instructions = ["Be kind.", "Be brief.", "Be bold."][rng.usize(..3)];
                client.ask("set_instructions", json!({ "instructions": instructions })).await;
            }
            1 => {
                let tools: Vec<Value> = ["look", "wait", "sail"].into_iter().filter(|_| rng.bool()).map(tool).collect();
                client.ask("register_tools", json!({ "tools": tools })).await;
            }
            2 => {
                let model = ["test", "other"][rng.usize(..2)];
                client.ask("set_model", json!({ "model": model })).await;
            }
            3 => {
                if client.ask("start_compaction", json!({})).await["type"] == "ok" {
                    let ends = ["context_compacted", "compaction_failed"];
                    client.until(|frame| ends.contains(&kind(frame))).await;
                }
            }
            4 => {
                client.ask("undo_compaction", json!({})).await;
            }
            5 | 6 => {
                let entries: Vec<Value> = answers(&client).iter().map(|entry| entry["entryId"].clone()).collect();
                if let Some(entry) = rng.choice(entries) {
                    let position = ["at", "before"][rng.usize(..2)];
                    let back = json!({ "entryId": entry, "position": position, "summarize": rng.u8(..4) == 0 });
                    client.ask("navigate", back).await;
                }
            }
            7 => wishes.lock().unwrap().push(Wish::Part(rng.u8(..3))),
            8 => wishes.lock().unwrap().push([Wish::Drop, Wish::Tools, Wish::Edit][rng.usize(..3)]),
            9 | 10 => wishes.lock().unwrap().push(Wish::Once),
            11 => {
                client.ask("set_options", json!({ "temperature": f64::from(rng.u8(..9)) / 10.0 })).await;
            }
            roll => {
                let word = ["look", "break", "say"][usize::from(roll % 3)];
                turn(&mut client, &format!("{word} {}", words(seed * 100 + step, 30))).await;
            }
        }
    }
    upstream.assert_clean();
    let mut counts = BTreeMap::new();
    for answer in answers(&client) {
        let receipt = &answer["receipt"];
        let Some(provider) = receipt.get("provider") else { continue };
        let said = provider["reason"].as_str().unwrap_or("hit").to_owned();
        assert_eq!(*present(&provider["agrees"]), true, "seed {seed}: {receipt:#}\n{answer:#}");
        *counts.entry(said).or_insert(0) += 1;
    }
    counts
}

fn tool(name: &str) -> Value {
    json!({ "name": name, "description": format!("Can {name}."), "parameters": { "type": "object" } })
}

/// Sends input and answers the calls. The turn may fail.
async fn turn(client: &mut Client, text: &str) {
    let accepted = client.ask("user_input", json!({ "input": text })).await;
    assert_eq!(accepted["type"], "accepted", "{accepted}");
    loop {
        let frame = client.until(|frame| ["tool_call", "turn_finished"].contains(&kind(frame))).await;
        if kind(&frame) == "turn_finished" {
            return;
        }
        let answer = json!({ "toolCallId": frame["payload"]["toolCallId"], "output": "the sea" });
        client.send("tool_result", answer).await;
    }
}

/// Starts a server that compares, thinks, calls a tool if it is to look, and breaks off if it is told to.
async fn talking() -> Upstream {
    let mut number = 0;
    let setup = Setup { compares: true, ..Setup::default() };
    Upstream::start_with(setup, move |asked| {
        number += 1;
        let last = asked.last_user_text();
        match asked {
            asked if is_summary(asked) || rides(asked) => reply_to(asked, number, 20),
            asked if last.starts_with("look") && asked.contains("Can look.") && !asked.ends_with_result() => {
                Reply::text("I look.").and_call("look", "{}").and_call("look", r#"{"at":1.50}"#)
            }
            _ if last.starts_with("break") && number % 3 == 0 => Reply::text("Half").ending(Finish::Error),
            asked => reply_to(asked, number, 20).with_reasoning("They ask."),
        }
    })
    .await
}

#[tokio::test]
async fn receipts_of_random_sessions_agree_with_the_providers() {
    // A failing seed prints itself.
    let seeds = match std::env::var("SEED").ok().and_then(|seed| seed.parse::<u64>().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..8,
    };
    let diagnostics = DiagnosticsChoice::On;
    let settings = [
        ("MODEL", "test"),
        ("CONTEXT_WINDOW", "100000"),
        ("HISTORY_TOOLS", "off"),
        ("CONTEXT_STRATEGY", "threshold:keepRecentTokens=200"),
    ];
    for api in APIS {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for seed in seeds.clone() {
            let (upstream, wishes) = (talking().await, Arc::default());
            let (url, hooks) = (url(api, &upstream), hooks_of(&wishes));
            let server = match api {
                "messages" => {
                    let options = AnthropicOptions { base_url: url, diagnostics, ..AnthropicOptions::default() };
                    Server::with_hooks(Anthropic::new(options).unwrap(), hooks, &settings).await
                }
                _ => {
                    let api = ApiChoice::Responses;
                    let options = OpenAiOptions { base_url: url, api, diagnostics, ..OpenAiOptions::default() };
                    Server::with_hooks(OpenAi::new(options).unwrap(), hooks, &settings).await
                }
            };
            for (said, count) in play(seed, &server, &upstream, &wishes).await {
                *counts.entry(said).or_default() += count;
            }
        }
        let expected: &[&str] = match api {
            "messages" => &["hit", "model_changed", "tools_changed", "system_changed", "messages_changed"],
            _ => &["hit", "model_changed", "tools_changed", "input_changed"],
        };
        let is_whole = seeds.clone().count() > 1;
        assert!(!is_whole || expected.iter().all(|said| counts.get(*said) > Some(&3)), "{api}: {counts:?}");
    }
}
