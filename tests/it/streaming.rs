//! Tool calls that are shown to connections while the model writes them.

use crate::support::scripted::{Gate, Reply, Scripted};
use crate::support::{
    client::Client,
    json::present,
    server::Server,
    upstream::{Reply as Upstreams, Upstream},
};
use reseed::{
    config::ApiChoice,
    provider::openai::{OpenAi, OpenAiOptions},
};
use reseed_protocol::Part;
use serde_json::{Value, json};

/// The arguments of the call, in two halves of as many characters.
const HALVES: [&str; 2] = [r#"{"at":"🌍"#, r#" north"}"#];

fn arguments() -> String {
    HALVES.concat()
}

/// An answer of a text and a call of `look`, held before the second half of the call's arguments.
fn looking(text: &str, gate: &Gate) -> Reply {
    let call_id = "call_0".parse().unwrap();
    let call = Part::ToolCall { call_id, name: "look".into(), arguments: arguments() };
    let text = Some(Part::Text { text: text.to_owned() }).filter(|_| !text.is_empty());
    Reply::parts(text.into_iter().chain([call]).collect()).in_pieces(2).held_by(gate)
}

/// Starts a turn whose client offers `look`, and waits until the first half of the arguments is shown.
async fn half_written(text: &str, gate: &Gate) -> (Server, Client, Value) {
    let model = Scripted::new();
    model.push(looking(text, gate));
    model.push(Reply::text("It is a planet."));
    let server = Server::start(model, &[]).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    let look = json!({ "name": "look", "description": "Looks.", "parameters": { "type": "object" } });
    assert_eq!(client.ask("register_tools", json!({ "tools": [look] })).await["type"], "ok");
    client.ask("user_input", json!({ "input": "Look there." })).await;
    client.until(|frame| frame["payload"]["kind"] == "arguments").await;
    (server, client, opened)
}

/// Returns the frames about items and their entries so far, each by what identifies it; pieces of one part are joined.
fn story(frames: &[Value]) -> Vec<String> {
    let mut told: Vec<String> = Vec::new();
    let mut last_part = None;
    for frame in frames {
        let payload = &frame["payload"];
        let part = payload["part"].as_u64();
        let line = match frame["type"].as_str().unwrap() {
            "item_delta" if last_part == part => {
                told.last_mut().unwrap().push_str(payload["text"].as_str().unwrap());
                continue;
            }
            "item_delta" => {
                last_part = part;
                format!("{}@{} {}", payload["part"], payload["offset"], payload["text"].as_str().unwrap())
            }
            "item_started" => {
                format!("{} {}", payload["kind"].as_str().unwrap(), payload["name"].as_str().unwrap_or("-"))
            }
            "item_finished" => format!("finished {}", part.map_or("all".to_owned(), |part| part.to_string())),
            "entry_appended" if payload["entry"]["role"] == "assistant" => "entry".to_owned(),
            kind @ ("item_aborted" | "tool_call") => kind.to_owned(),
            _ => continue,
        };
        if frame["type"] != "item_delta" {
            last_part = None;
        }
        told.push(line);
    }
    told
}

#[tokio::test]
async fn a_call_streams_and_a_reader_joins_or_resumes_in_the_middle_of_its_arguments() {
    let gate = Gate::new();
    let (server, mut owner, opened) = half_written("Let me see.", &gate).await;
    let session = &opened["sessionId"];
    let item = owner.seen.iter().find(|frame| frame["type"] == "item_started").unwrap()["payload"]["itemId"].clone();
    let seq = owner.seen.iter().filter_map(|frame| frame["seq"].as_u64()).max().unwrap();
    let watching = |more: Value| {
        let mut open = json!({ "sessionId": session, "role": "observer" });
        open.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        open
    };
    let place = |part: u64, offset: u64| json!({ "itemId": item, "part": part, "offset": offset });
    let resume = |items: Value| watching(json!({ "resume": { "epoch": opened["epoch"], "seq": seq, "items": items } }));
    let at = |offset: u64| resume(json!([place(0, 11), place(1, offset)]));
    let rest = |from: &str, rest: &str| vec![format!("1@{from} {rest}")];
    let call = "tool_call look".to_owned();
    let begun = vec!["message -".to_owned(), "0@0 Let me see.".to_owned(), call.clone()];
    // The options of `open_session`, and the parts of the item that are shown until the call is complete.
    let table: Vec<(Value, Vec<String>)> = vec![
        (watching(json!({})), rest("9", HALVES[1])),
        (at(9), rest("9", HALVES[1])),
        (at(7), rest("7", r#"🌍 north"}"#)),
        (at(0), [vec![call.clone()], rest("0", &arguments())].concat()),
        (resume(json!([place(0, 11)])), [vec![call.clone()], rest("0", &arguments())].concat()),
        (resume(json!([])), [begun.clone(), rest("0", &arguments())].concat()),
    ];
    let mut clients = Vec::new();
    for (open, expected) in table {
        let mut client = Client::v2(&server.ws()).await;
        let reply = client.ask("open_session", open.clone()).await["payload"].clone();
        if open.get("resume").is_none() {
            let parts = json!([
                { "type": "text", "text": "Let me see." },
                { "type": "tool_call", "name": "look", "arguments": HALVES[0] },
            ]);
            assert_eq!(reply["turn"]["items"], json!([{ "itemId": item, "parts": parts }]));
        } else {
            assert_eq!(reply["resumed"], "replay", "{open}");
        }
        clients.push((client, expected));
    }
    let mut whole = Client::v2(&server.ws()).await;
    whole.ask("open_session", watching(json!({ "deltas": false }))).await;
    // Between the two units of one character.
    let mut lost = Client::v2(&server.ws()).await;
    assert_eq!(lost.ask("open_session", at(8)).await["payload"]["resumed"], "snapshot");
    gate.open();
    let ended = ["finished 1", "finished all", "entry", "tool_call"].map(str::to_owned);
    for (mut client, expected) in clients {
        client.event("tool_call").await;
        assert_eq!(story(&client.seen), [&expected[..], &ended].concat());
    }
    whole.event("tool_call").await;
    assert_eq!(story(&whole.seen), ended[2..], "without deltas, only the entry and the call");
    let called = owner.event("tool_call").await["payload"].clone();
    assert_eq!(story(&owner.seen), [&begun[..], &rest("0", &arguments()), &ended].concat());
    assert_eq!((&called["name"], &called["arguments"]), (&json!("look"), &json!(arguments())));
    let entry = owner.seen.iter().find(|frame| frame["payload"]["entry"]["entryId"] == *present(&item)).unwrap();
    assert_eq!(present(&entry["payload"]["entry"]["content"][1]["toolCallId"]), &called["toolCallId"]);
}

#[tokio::test]
async fn a_cancelled_call_is_no_part_of_the_entry() {
    // The text before the call, and the end of the answer.
    for (text, expected) in [("Let me see.", &["finished all", "entry"][..]), ("", &["item_aborted"])] {
        let (server, mut client, _) = half_written(text, &Gate::new()).await;
        client.ask("cancel_turn", json!({})).await;
        client.event("turn_finished").await;
        let story = story(&client.seen);
        let shown = story.iter().position(|line| line.contains(HALVES[0])).unwrap();
        assert_eq!(story[shown + 1..], *expected, "{text:?}");
        let entries = client.ask("get_entries", json!({})).await["payload"]["items"].clone();
        let answer = entries.as_array().unwrap().iter().find(|entry| entry["role"] == "assistant");
        let content = answer.map(|answer| (answer["incomplete"].clone(), answer["content"].clone()));
        let said = json!([{ "type": "text", "text": text }]);
        assert_eq!(content, (!text.is_empty()).then_some((json!(true), said)));
        drop(server);
    }
}

#[tokio::test]
async fn a_call_in_an_answer_that_a_hook_may_change_is_not_shown() {
    let (model, gate) = (Scripted::new(), Gate::new());
    gate.open();
    model.push(looking("Let me see.", &gate));
    let server = Server::start(model, &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    client.ask("register_hooks", json!({ "hooks": [{ "name": "guard", "point": "message" }] })).await;
    client.send("user_input", json!({ "input": "Look there." })).await;
    // The question, then the answer.
    for role in ["user", "assistant"] {
        let call = client.event("hook_call").await["payload"].clone();
        assert_eq!(call["message"]["role"], role, "{call}");
        let passed = client.ask("hook_result", json!({ "hookCallId": call["hookCallId"] })).await;
        assert_eq!(passed["type"], "ok", "{passed}");
    }
    client.until(|frame| frame["payload"]["entry"]["role"] == "assistant").await;
    assert_eq!(story(&client.seen), ["entry"]);
}

#[tokio::test]
async fn calls_stream_from_both_apis() {
    for api in [ApiChoice::Chat, ApiChoice::Responses] {
        let reply = Upstreams::text("Let me see.").and_call("look", &arguments()).and_call("see", "{}");
        let upstream = Upstream::replying([reply, Upstreams::text("done")]).await;
        let options = OpenAiOptions { base_url: upstream.base_url(), api, ..OpenAiOptions::default() };
        let server = Server::start(OpenAi::new(options).unwrap(), &[]).await;
        let (mut client, _) = Client::v2_session(&server.ws()).await;
        let tool = |name: &str| json!({ "name": name, "description": name, "parameters": { "type": "object" } });
        client.ask("register_tools", json!({ "tools": [tool("look"), tool("see")] })).await;
        client.ask("user_input", json!({ "input": "Look there." })).await;
        client.event("tool_call").await;
        client.event("tool_call").await;
        let mut told = story(&client.seen);
        // Only one of the two APIs ends each call when it is complete.
        let ends =
            |told: &[String]| told.iter().filter(|line| line.starts_with("finished")).cloned().collect::<Vec<_>>();
        assert_eq!(ends(&told), ["finished 1", "finished 2", "finished all"], "{api:?}");
        told.retain(|line| !line.starts_with("finished"));
        let look = format!("1@0 {}", arguments());
        let expected = ["message -", "0@0 Let me see.", "tool_call look", &look, "tool_call see", "2@0 {}"];
        assert_eq!(told, [&expected[..], &["entry", "tool_call", "tool_call"]].concat(), "{api:?}");
        upstream.assert_clean();
    }
}
