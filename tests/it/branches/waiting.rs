//! The queue: its order, steering, and editing it.

use super::{said, user_messages};
use crate::support::scripted::{Gate, Reply, Scripted};
use crate::support::{client::Client, json::present, server::Server};
use reseed_protocol::Part;
use serde_json::{Value, json};

/// Returns a session whose first turn waits for a tool, with the call.
async fn at_a_tool(model: &Scripted) -> (Server, Client, Value) {
    let call = Part::ToolCall { call_id: "c".parse().unwrap(), name: "look".into(), arguments: "{}".into() };
    model.push(Reply::parts(vec![call]));
    let server = Server::start(model.clone(), &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    let look = json!({ "name": "look", "description": "Looks.", "parameters": { "type": "object" } });
    client.ask("register_tools", json!({ "tools": [look] })).await;
    client.ask("user_input", json!({ "input": "one" })).await;
    let call = client.event("tool_call").await;
    (server, client, call["payload"]["toolCallId"].clone())
}

async fn say(client: &mut Client, text: &str, when_busy: &str) -> Value {
    let reply = client.ask("user_input", json!({ "input": text, "whenBusy": when_busy })).await;
    assert_eq!(reply["payload"]["queued"], true, "{reply}");
    reply["re"].clone()
}

#[tokio::test]
async fn steered_input_goes_with_the_next_request_of_the_running_turn() {
    let model = Scripted::new();
    let (_server, mut client, call) = at_a_tool(&model).await;
    say(&mut client, "later", "queue").await;
    say(&mut client, "the left one", "steer").await;
    say(&mut client, "quickly", "steer").await;
    let note = json!({ "customType": "place", "content": "the user walks", "display": false });
    let written = client.ask("append_custom_message", note).await;
    let mut queue = Vec::new();
    for _ in 0..4 {
        let added = client.event("queue_item_added").await["payload"].clone();
        let position = usize::try_from(added["position"].as_u64().unwrap()).unwrap();
        queue.insert(position, added["item"]["content"][0]["text"].as_str().unwrap().to_owned());
    }
    assert_eq!(queue, ["the left one", "quickly", "the user walks", "later"], "as it is shown");
    model.push(Reply::text("done"));
    model.push(Reply::text("and later"));
    client.ask("tool_result", json!({ "toolCallId": call, "output": "seen" })).await;
    let first = client.event("turn_finished").await;
    let second = client.event("turn_finished").await;
    assert_ne!(*present(&first["payload"]["turnId"]), *present(&second["payload"]["turnId"]));
    let requests = model.requests();
    let told = said(&requests[1]);
    assert_eq!(told, ["one", "call look", "result seen", "the left one", "quickly", "the user walks"]);
    assert_eq!(said(&requests[2]).last().unwrap(), "later");
    let entry = client.until(|frame| frame["payload"]["entry"]["type"] == "custom_message").await;
    assert_eq!(
        *present(&entry["payload"]["entry"]["entryId"]),
        written["payload"]["entryId"],
        "the id that was promised"
    );
    assert_eq!(*present(&entry["payload"]["turnId"]), first["payload"]["turnId"]);
    let removed = client.seen.iter().filter(|frame| frame["type"] == "queue_item_removed");
    let reasons: Vec<&str> = removed.map(|frame| frame["payload"]["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["steered", "steered", "steered", "started"]);
}

#[tokio::test]
async fn what_was_steered_too_late_is_the_next_turn() {
    let (model, gate) = (Scripted::new(), Gate::new());
    model.push(Reply::text("first").held_by(&gate));
    model.push(Reply::text("second"));
    model.push(Reply::text("third"));
    let server = Server::start(model.clone(), &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    client.ask("user_input", json!({ "input": "one" })).await;
    say(&mut client, "three", "queue").await;
    say(&mut client, "two", "steer").await;
    gate.open();
    for _ in 0..3 {
        assert_eq!(client.event("turn_finished").await["payload"]["status"], "completed");
    }
    assert_eq!(said(&model.requests()[2]), ["one", "first", "two", "second", "three"]);
}

#[tokio::test]
async fn the_queue_can_be_edited_and_refuses_what_is_not_in_it() {
    let (model, gate) = (Scripted::new(), Gate::new());
    model.push(Reply::text("first").held_by(&gate));
    for _ in 0..2 {
        model.push(Reply::text("more"));
    }
    let server = Server::start(model.clone(), &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    client.ask("user_input", json!({ "input": "one" })).await;
    let mut ids = Vec::new();
    for text in ["two", "three", "four"] {
        ids.push(say(&mut client, text, "queue").await);
    }
    let [two, three, four] = &ids[..] else { unreachable!() };
    let nobody = "00000000-nobody-waits";
    let table = [
        (json!({ "remove": [nobody] }), "not_queued"),
        (json!({ "order": [two, three, nobody] }), "not_queued"),
        (json!({ "order": [two, three] }), "invalid_field"),
        (json!({ "order": [two, two, three] }), "invalid_field"),
        (json!({ "remove": [two], "order": [two, three] }), "not_queued"),
    ];
    for (payload, code) in table {
        let reply = client.ask("edit_queue", payload.clone()).await;
        assert_eq!(reply["payload"]["code"], code, "{payload}: {reply}");
    }
    let reply = client.ask("edit_queue", json!({ "remove": [two], "order": [four, three] })).await;
    assert_eq!(reply["type"], "ok", "{reply}");
    gate.open();
    for _ in 0..3 {
        client.event("turn_finished").await;
    }
    assert_eq!(said(model.requests().last().unwrap()), ["one", "first", "four", "more", "three"]);
    assert_eq!(user_messages(model.requests().last().unwrap()), 3, "what was taken out is never asked");
}
