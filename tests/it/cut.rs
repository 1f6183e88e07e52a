//! Tool results that are too large: the entry says what was left out, and the whole is kept, even across a restart, a
//! fork, an export and an import.

use crate::support::scripted::{Reply, Scripted};
use crate::support::{client::Client, json::present, server::Server};
use reseed::{
    internals::{ImportOptions, export, import},
    store::sqlite::SqliteStore,
};
use reseed_protocol::{Part, SessionId, Timestamp};
use serde_json::{Value, json};
use std::sync::Arc;

const SETTINGS: [(&str, &str); 1] = [("CONTEXT_WINDOW", "4000")];

/// A result of about 4,000 tokens, four times what is shown of it, with characters of every length.
fn large() -> String {
    (0..1_000).map(|number| format!("Zeile {number}: ö 猫 🐈\n")).collect()
}

fn look() -> Value {
    json!({ "name": "look", "description": "Looks.", "parameters": { "type": "object" } })
}

/// A model that calls `look` when it is asked to, and otherwise says a word.
fn looking() -> Scripted {
    Scripted::answering(|request| match request.messages().last() {
        Some(last) if last.message.text() == "Look!" => Reply::parts(vec![Part::ToolCall {
            call_id: "call_0".parse().unwrap(),
            name: "look".into(),
            arguments: "{}".into(),
        }]),
        _ => Reply::text("I see."),
    })
}

/// Has the model look, and answers with `output`. Returns the call's id and the entry of its result.
async fn looked(client: &mut Client, output: &str) -> (Value, Value) {
    client.ask("user_input", json!({ "input": "Look!" })).await;
    let call = client.event("tool_call").await["payload"]["toolCallId"].clone();
    client.ask("tool_result", json!({ "toolCallId": call, "output": output })).await;
    let entry = client.until(|frame| frame["payload"]["entry"]["role"] == "tool").await["payload"]["entry"].clone();
    assert_eq!(client.event("turn_finished").await["payload"]["status"], "completed");
    (call, entry)
}

/// Returns the whole of an entry's result.
async fn whole(client: &mut Client, entry: &Value) -> Value {
    let reply = client.ask("get_entries", json!({ "entryId": entry["entryId"] })).await;
    let items = reply["payload"]["items"].as_array().unwrap_or_else(|| panic!("{reply}"));
    assert_eq!((items.len(), &reply["payload"]["more"]), (1, &json!(false)));
    let mut found = items[0].clone();
    let whole = found.get_mut("cut").and_then(|cut| cut.as_object_mut()?.remove("whole"));
    assert_eq!(found, *entry, "the same entry besides");
    whole.unwrap_or_default()
}

#[tokio::test]
async fn a_large_result_is_cut_says_so_and_is_kept_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("reseed.db");
    let store = || Arc::new(SqliteStore::open(&path).unwrap());
    let model = looking();
    let server = Server::over(model.clone(), store(), &SETTINGS).await;
    let mut client = Client::v2(&server.ws()).await;
    let opened = client.ask("open_session", json!({ "tools": [look()] })).await["payload"].clone();
    let (_, small) = looked(&mut client, "blue").await;
    assert!(small.get("cut").is_none(), "{small}");
    assert_eq!(whole(&mut client, &small).await, Value::Null, "an entry that was not cut is what it is");
    let (call, entry) = looked(&mut client, &large()).await;

    // The entry says what is shown, and from where it was cut.
    let units: Vec<u16> = large().encode_utf16().collect();
    let cut = &entry["cut"];
    let number = |name: &str| usize::try_from(cut[name].as_u64().unwrap()).unwrap();
    let (characters, shown, from) = (number("characters"), number("shown"), number("from"));
    assert_eq!(characters, units.len());
    assert!(cut.get("whole").is_none(), "not to everybody");
    let text = |units: &[u16]| String::from_utf16(units).unwrap();
    let (head, tail) = (text(&units[..from]), text(&units[characters - (shown - from)..]));
    let output = entry["content"][0]["output"].as_str().unwrap();
    let note = output.strip_prefix(&head).and_then(|rest| rest.strip_suffix(&tail)).unwrap();
    assert!(note.starts_with("\n[…") && note.ends_with("left out …]\n"), "{note}");
    // The model got what the entry shows.
    let sent = model.requests().pop().unwrap();
    let sent: Vec<String> = sent
        .messages()
        .flat_map(|message| message.message.content.clone())
        .filter_map(|part| match part {
            Part::ToolResult { output, .. } => Some(output),
            _ => None,
        })
        .collect();
    assert_eq!(sent.last().map(String::as_str), Some(output));
    assert!(!client.ask("get_context", json!({})).await.to_string().contains("\"whole\""));

    assert_eq!(whole(&mut client, &entry).await, json!(large()));
    // The whole is what a repeated answer is compared with.
    for (output, kind) in [(large(), "ok"), (output.to_owned(), "error")] {
        let again = client.ask("tool_result", json!({ "toolCallId": call, "output": output })).await;
        assert_eq!(again["type"], kind, "{again}");
    }
    for (payload, code) in [
        (json!({ "entryId": entry["entryId"], "limit": 3 }), "invalid_field"),
        (json!({ "entryId": "nobody" }), "entry_not_found"),
    ] {
        let refused = client.ask("get_entries", payload).await["payload"].clone();
        assert_eq!((&refused["code"], &refused["details"]["field"]), (&json!(code), &json!("entryId")));
    }

    // A fork has it, and so does the session after a restart.
    let leaf = entry["entryId"].clone();
    let forked = client.ask("fork_session", json!({ "entryId": leaf, "position": "at" })).await;
    let copy = present(&forked["payload"]["sessionId"]).clone();
    server.service.stop().await;
    drop(server);
    let again = store();
    let mut file = Vec::new();
    let source: SessionId = serde_json::from_value(opened["sessionId"].clone()).unwrap();
    export(&*again, &source, Timestamp(0), &mut file).await.unwrap();
    let exported = folder.path().join("exported.jsonl");
    std::fs::write(&exported, file).unwrap();
    let options = ImportOptions {
        skip_broken: false,
        owner: String::new(),
        new_id: true,
        model: "test-model".to_owned(),
        strategy: "threshold".to_owned(),
        deployment: None,
        seed: 1,
        now: Timestamp(1),
    };
    let imported = json!(import(&*again, &exported, &options).await.unwrap().session);
    let server = Server::over(model, again, &SETTINGS).await;
    for session in [&opened["sessionId"], &copy, &imported] {
        let mut client = Client::v2(&server.ws()).await;
        let opened = client.ask("open_session", json!({ "sessionId": session })).await["payload"].clone();
        let shown = opened["entries"].as_array().unwrap().iter().find(|shown| shown["cut"].is_object());
        let shown = shown.unwrap().clone();
        assert_eq!((present(&shown["content"]), present(&shown["cut"])), (&entry["content"], &entry["cut"]));
        assert_eq!(whole(&mut client, &shown).await, json!(large()), "of {session}");
    }
    server.service.stop().await;
}
