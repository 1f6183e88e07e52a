//! The next request: it is what `get_context` returns, settings take effect on it, and its count says where it comes
//! from.

use super::{compact, context, fill, info, session, tokens};
use crate::support::scripted::{Gate, Reply, Scripted};
use crate::support::{
    client::Client,
    json::present,
    server::Server,
    talk::{talker, words},
};
use reseed::{core::model::ModelFault, store::sqlite::SqliteStore};
use reseed_protocol::ErrorCode;
use serde_json::{Value, json};
use std::sync::Arc;

fn tool() -> Value {
    let parameters = json!({ "type": "object", "properties": { "at": { "type": "string" } } });
    json!({ "name": "look", "description": "Looks at something.", "parameters": parameters })
}

/// Fails a turn, so that a request is pending.
async fn fail_a_turn(model: &Scripted, client: &mut Client) {
    model.push(Reply::fault(ModelFault::new(ErrorCode::UpstreamError, "it broke")));
    assert_eq!(client.turn("What is pending?").await["status"], "failed");
}

async fn retry(client: &mut Client) -> Value {
    let accepted = client.ask("retry_turn", json!({})).await;
    assert_eq!(accepted["type"], "accepted", "{accepted}");
    client.event("turn_finished").await["payload"].clone()
}

/// Removes from an envelope what is not sent: the turn and request that it is for, and the tokens of each part.
fn sendable(mut envelope: Value) -> Value {
    let meta = envelope.as_object_mut().unwrap().remove("meta").unwrap();
    assert!(meta["tokens"].as_u64().unwrap() > 0, "{meta}");
    envelope
}

#[tokio::test]
async fn the_context_told_is_the_request_that_is_sent() {
    let model = talker(100);
    let (_server, mut client) = session(&model, &[]).await;
    fill(&mut client, 800).await;
    let changes = [
        ("get_context_info", json!({})),
        ("set_instructions", json!({ "instructions": "Answer in verse." })),
        ("register_tools", json!({ "tools": [tool()] })),
        ("set_options", json!({ "temperature": 0.5, "maxOutputTokens": 99 })),
        ("set_model", json!({ "model": "another", "reasoningEffort": "low" })),
        ("set_context_strategy", json!({ "strategy": "manual" })),
        ("start_compaction", json!({ "instructions": "ships" })),
        ("set_instructions", json!({ "instructions": "" })),
        ("set_instructions", json!({})),
        ("register_tools", json!({ "tools": [] })),
    ];
    for (change, payload) in changes {
        fail_a_turn(&model, &mut client).await;
        let reply = client.ask(change, payload).await;
        assert_ne!(*present(&reply["type"]), "error", "{change}: {reply}");
        if change == "start_compaction" {
            client.event("context_compacted").await;
        }
        let told = context(&mut client).await;
        assert_eq!(told["tokens"], tokens(&mut client).await, "{change}");
        retry(&mut client).await;
        let sent = model.requests().pop().unwrap();
        assert_eq!(
            sendable(serde_json::to_value(&sent.envelope).unwrap()),
            sendable(told["envelope"].clone()),
            "{change}"
        );
    }
    assert_eq!(model.requests().pop().unwrap().model, "another");
}

#[tokio::test]
async fn settings_take_effect_on_the_next_request_and_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Arc::new(SqliteStore::open(&folder.path().join("reseed.db")).unwrap());
    // The window of a known model by name, which CONTEXT_WINDOW does not override.
    let windows = [("MODEL_WINDOWS", "gpt-4o=2000")];
    let model = talker(60);
    let server = Server::over(model.clone(), open(), &windows).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    fill(&mut client, 500).await;
    let settings = json!({ "threshold": 0.5, "keepRecentTokens": 100 });
    for (command, payload) in [
        ("set_model", json!({ "model": "gpt-4o", "reasoningEffort": "low" })),
        ("set_context_strategy", json!({ "strategy": "threshold", "settings": settings })),
        ("set_instructions", json!({ "instructions": "Answer in verse." })),
        ("set_options", json!({ "temperature": 0.5, "maxOutputTokens": 77 })),
        ("rename_session", json!({ "name": "Harbour" })),
    ] {
        let reply = client.ask(command, payload).await;
        assert_eq!(reply["type"], "ok", "{command}: {reply}");
    }
    let check = |requests: usize| {
        let sent = model.requests().pop().unwrap();
        assert_eq!((model.requests().len(), sent.model.as_str()), (requests, "gpt-4o"));
        assert_eq!(sent.envelope.system.compiled, "Answer in verse.");
        let options = serde_json::to_value(&sent.envelope.options).unwrap();
        assert_eq!(options, json!({ "temperature": 0.5, "maxOutputTokens": 77, "reasoningEffort": "low" }));
    };
    let asked = model.requests().len();
    client.turn("Hello").await;
    check(asked + 1);
    let before = info(&mut client).await;
    assert_eq!(before["compactAtTokens"], 1_000);
    server.service.stop().await;
    drop(server);

    let server = Server::over(model.clone(), open(), &windows).await;
    let mut client = Client::v2(&server.ws()).await;
    let reopened = client.ask("open_session", json!({ "sessionId": opened["sessionId"] })).await["payload"].clone();
    assert_eq!((&reopened["name"], &reopened["model"]), (&json!("Harbour"), &json!("gpt-4o")));
    assert_eq!(reopened["settings"]["strategySettings"], settings);
    assert_eq!(*present(&reopened["contextInfo"]["tokenCount"]), before["tokenCount"], "the count is the same");
    client.turn("Hello again").await;
    check(asked + 2);
    server.service.stop().await;
}

#[tokio::test]
async fn the_count_says_where_it_comes_from() {
    let model = Scripted::answering(|request| {
        let before = request.messages().count() as u64 - 1;
        Reply::text(words(1, 100)).usage(500 + 60 * before, 130)
    });
    let (_server, mut client) = session(&model, &[]).await;
    let of = |info: &Value| {
        let [tokens, usage, trailing] =
            ["tokenCount", "usageTokens", "trailingTokens"].map(|name| info[name].as_u64().unwrap());
        assert_eq!(tokens, usage + trailing, "{info}");
        assert_eq!(info["lastUsageEntryId"].is_string(), usage > 0, "{info}");
        info["source"].as_str().unwrap().to_owned()
    };
    assert_eq!(of(&info(&mut client).await), "estimated", "nothing was asked yet");
    client.turn(&words(2, 300)).await;
    let reported = info(&mut client).await;
    assert_eq!((of(&reported).as_str(), &reported["tokenCount"]), ("reported", &json!(630)));

    fail_a_turn(&model, &mut client).await;
    assert_eq!(of(&info(&mut client).await), "mixed", "the question came after the report");
    retry(&mut client).await;
    assert_eq!(of(&info(&mut client).await), "reported");

    for (change, payload) in [
        ("set_model", json!({ "model": "another" })),
        ("register_tools", json!({ "tools": [tool()] })),
        ("set_instructions", json!({ "instructions": "Answer in verse." })),
    ] {
        assert_eq!(client.ask(change, payload).await["type"], "ok");
        assert_eq!(of(&info(&mut client).await), "estimated", "stale after {change}");
        client.turn("Go on.").await;
        assert_eq!(of(&info(&mut client).await), "reported", "fresh after {change}");
    }
    compact(&mut client, json!({})).await;
    assert_eq!(of(&info(&mut client).await), "estimated", "stale after a compaction");
}

/// Changes while the model answers do not belong to that answer.
#[tokio::test]
async fn a_report_belongs_to_the_request_that_it_was_made_for() {
    for (change, payload) in [
        ("set_model", json!({ "model": "another" })),
        ("register_tools", json!({ "tools": [tool()] })),
        ("set_instructions", json!({ "instructions": "Answer in verse." })),
    ] {
        let (model, gate) = (Scripted::new(), Gate::new());
        model.push(Reply::text(words(1, 100)).usage(500, 130).held_by(&gate));
        let (_server, mut client) = session(&model, &[]).await;
        client.ask("user_input", json!({ "input": words(2, 300) })).await;
        model.wait_for_requests(1).await;
        assert_eq!(client.ask(change, payload).await["type"], "ok");
        gate.open();
        client.event("turn_finished").await;
        let entries = client.ask("get_entries", json!({})).await;
        let answer = entries["payload"]["items"].as_array().unwrap().last().unwrap().clone();
        assert_eq!((&answer["role"], &answer["model"]), (&json!("assistant"), &json!("test")), "{change}");
        assert_eq!(info(&mut client).await["source"], "estimated", "stale after {change}");
    }
}

/// A context that is too large for one frame is refused and not cut; as Markdown it has no images.
#[tokio::test]
async fn a_context_of_many_pictures_is_shown_without_them_and_one_of_too_much_text_not_at_all() {
    let server = Server::start(talker(2), &[("CONTEXT_WINDOW", "100000000")]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    let large = "x".repeat(900_000);
    let picture = json!([{ "type": "input_text", "text": "look" },
        { "type": "input_image", "image_url": format!("data:image/png;base64,{large}") }]);
    for (content, markdown) in [(picture, "context"), (json!(large), "error")] {
        for _ in 0..19 {
            let content = json!({ "customType": "note", "content": content, "display": true });
            assert_eq!(client.ask("append_custom_message", content).await["type"], "ok");
        }
        let refused = client.ask("get_context", json!({})).await;
        assert_eq!(
            (&refused["payload"]["code"], &refused["payload"]["details"]["field"]),
            (&json!("invalid_field"), &json!("format"))
        );
        let shown = client.ask("get_context", json!({ "format": "markdown" })).await;
        assert_eq!(shown["type"], markdown);
    }
    assert_eq!(client.ask("get_context_info", json!({})).await["type"], "context_info");
}
