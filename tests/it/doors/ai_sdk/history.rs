//! The messages of a chat over HTTP, for a page that is loaded.

use super::{Page, call, digging};
use crate::support::{
    client::Client as V2,
    http::send,
    scripted::{Reply, Scripted},
    server::Server,
    tools::ask,
};
use serde_json::{Value, json};

const ANN: [(&str, &str); 1] = [("Authorization", "Bearer token-of-ann-0001")];
const BOB: [(&str, &str); 1] = [("Authorization", "Bearer token-of-bob-0001")];

/// Returns the status and the messages, in short: `user u1: text`.
async fn read(server: &Server, path: &str, head: &[(&str, &str)]) -> (u16, Vec<String>) {
    let response = send(&server.address(), "GET", &format!("/ai/chats/{path}"), head, "").await;
    let body = response.json();
    let Some(messages) = body.as_array() else {
        return (response.status, vec![body["error"]["code"].as_str().unwrap().to_owned()]);
    };
    let texts = |parts: &Value| -> String {
        parts.as_array().unwrap().iter().filter_map(|part| part["text"].as_str()).collect()
    };
    let short = messages.iter().map(|message| {
        let (role, id) = (message["role"].as_str().unwrap(), message["id"].as_str().unwrap());
        let shown = if role == "user" { format!("user {id}") } else { "assistant".to_owned() };
        format!("{shown}: {}", texts(&message["parts"]))
    });
    (response.status, short.collect())
}

#[tokio::test]
async fn a_chat_is_read_in_pages_and_only_by_its_user() {
    let model = Scripted::answering(|request| Reply::text(format!("answer {}", request.messages().count())));
    let server = Server::start(model, &[("AUTH_TOKENS", "ann:token-of-ann-0001,bob:token-of-bob-0001")]).await;
    let unknown = |code: &str| (404, vec![code.to_owned()]);
    assert_eq!(read(&server, "chat", &ANN).await, unknown("chat_not_found"));
    assert_eq!(read(&server, "chat", &ANN).await, unknown("chat_not_found"), "reading creates no chat");
    let url = format!("ws://{}/ai", server.address());
    let mut page = Page::open_at(&url, &ANN, "chat").await;
    for turn in 1..=3 {
        page.say(&format!("u{turn}"), &format!("Q{turn}")).await;
    }
    let all = [
        "user u1: Q1",
        "assistant: answer 1",
        "user u2: Q2",
        "assistant: answer 3",
        "user u3: Q3",
        "assistant: answer 5",
    ];
    for (query, expected) in [
        ("", &all[..]),
        ("?limit=2", &all[4..]),
        ("?limit=1", &all[4..]),
        ("?limit=0", &all[4..]),
        ("?before=u3&limit=2", &all[2..4]),
        ("?before=u3", &all[..4]),
        ("?before=u1", &[]),
    ] {
        let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
        assert_eq!(read(&server, &format!("chat{query}"), &ANN).await, (200, expected), "{query}");
    }
    let answer = page.messages[5]["id"].as_str().unwrap().to_owned();
    assert_eq!(read(&server, &format!("chat?before={answer}&limit=2"), &ANN).await.1, all[2..4]);
    assert_eq!(read(&server, "chat?before=u9", &ANN).await, unknown("message_not_found"));
    assert_eq!(read(&server, "chat?before=msg_u9", &ANN).await, unknown("message_not_found"));
    assert_eq!(read(&server, "chat", &BOB).await, unknown("chat_not_found"));
    assert_eq!(read(&server, "chat", &[]).await.0, 401);
    let bad = send(&server.address(), "GET", "/ai/chats/chat?limit=all", &ANN, "").await;
    assert_eq!(bad.status, 400);
    let ticket = send(&server.address(), "POST", "/api/tickets", &ANN, "").await.json();
    let with_ticket = format!("chat?limit=2&ticket={}", ticket["ticket"].as_str().unwrap());
    assert_eq!(read(&server, &with_ticket, &[]).await.1, all[4..]);
    assert_eq!(read(&server, &with_ticket, &[]).await.0, 401, "a ticket works once");
}

#[tokio::test]
async fn a_call_that_waits_for_approval_is_shown_as_waiting() {
    let model = Scripted::new();
    let server = digging(&model).await;
    let mut page = Page::open(&server, "chat").await;
    model.push(Reply::parts(vec![call("dig", "{\"at\":1}")]));
    let chunks = page.say("u1", "Dig!").await;
    let asked = chunks.iter().find(|chunk| chunk["type"] == "tool-approval-request").unwrap();
    let stored = send(&server.address(), "GET", "/ai/chats/chat", &[], "").await.json();
    let expected = json!([
        {"type": "step-start"},
        {
            "type": "dynamic-tool", "toolName": "dig", "toolCallId": asked["toolCallId"], "providerExecuted": true,
            "state": "approval-requested", "input": {"at": 1},
            "approval": {"id": asked["approvalId"], "requestReason": asked["reason"]},
        },
    ]);
    assert_eq!((&stored[1]["parts"], &stored[1]["metadata"]["usage"]), (&expected, &Value::Null));
}

#[tokio::test]
async fn a_message_from_another_client_can_be_edited() {
    let model = Scripted::answering(|_| Reply::text("Yes."));
    let server = Server::start(model.clone(), &[]).await;
    let mut page = Page::open(&server, "chat").await;
    let chunks = page.say("u1", "Is it there?").await;
    let mut v2 = V2::v2(&server.ws()).await;
    v2.ask("open_session", json!({"sessionId": chunks.last().unwrap()["messageMetadata"]["sessionId"]})).await;
    ask(&mut v2, "From elsewhere").await;
    v2.event("turn_finished").await;
    let stored = send(&server.address(), "GET", "/ai/chats/chat", &[], "").await.json();
    page.messages = stored.as_array().unwrap()[..3].to_vec();
    page.messages[2]["parts"][0]["text"] = json!("Edited");
    let edited = page.messages[2]["id"].as_str().unwrap().to_owned();
    page.send("submit-message", Some(&edited)).await;
    page.chunks().await;
    let (status, messages) = read(&server, "chat", &[]).await;
    let expected = ["user u1: Is it there?", "assistant: Yes.", &format!("user {edited}: Edited"), "assistant: Yes."];
    assert_eq!((status, &messages[..]), (200, &expected.map(str::to_owned)[..]));
}
