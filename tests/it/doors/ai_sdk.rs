//! The AI SDK's door, frame by frame as `WebSocketChatTransport` sends and takes them.

mod history;
mod page;
mod settings;
mod takeover;

use crate::support::{
    client::Client as V2,
    json::{present, whole},
    scripted::{Gate, Reply, Scripted},
    server::Server,
    tools::{ask, results},
};
use page::Page;
use reseed::{
    core::model::{ModelFault, ModelRequest},
    store::memory::MemoryStore,
    tools::{Call, CallFuture, Output, Tool},
};
use reseed_client::Message;
use reseed_protocol::{
    ErrorCode, Part, Role,
    tools::{ToolAnnotations, ToolOffer},
};
use serde_json::{Value, json};
use std::sync::Arc;

/// Returns the types of chunks, without the gauge.
fn types(chunks: &[Value]) -> Vec<&str> {
    let types = chunks.iter().map(|chunk| chunk["type"].as_str().unwrap());
    types.filter(|kind| *kind != "data-reseed-context").collect()
}

/// Returns the text of an answer.
fn text(chunks: &[Value]) -> String {
    chunks.iter().filter(|chunk| chunk["type"] == "text-delta").filter_map(|chunk| chunk["delta"].as_str()).collect()
}

/// Returns what a request to the model says, in short.
fn told(request: &ModelRequest) -> Vec<String> {
    let said = request.messages().map(|message| &message.message).filter(|message| message.role != Role::Tool);
    said.map(|said| format!("{}: {}", if said.role == Role::User { "u" } else { "a" }, said.text())).collect()
}

fn call(name: &str, arguments: &str) -> Part {
    Part::ToolCall { call_id: "call_0".parse().unwrap(), name: name.into(), arguments: arguments.into() }
}

#[tokio::test]
async fn an_answer_is_streamed_in_the_order_of_the_ai_sdk() {
    let model = Scripted::new();
    let server = Server::start(model.clone(), &[]).await;
    let mut page = Page::open(&server, "chat").await;
    let thought = Part::Reasoning { text: "hm".into(), payload: None };
    model.push(Reply::parts(vec![thought, Part::Text { text: "Fine.".into() }]).usage(10, 2));
    let chunks = page.say("u1", "How are you?").await;
    let expected = [
        "start",
        "start-step",
        "reasoning-start",
        "reasoning-delta",
        "reasoning-end",
        "text-start",
        "text-delta",
        "text-end",
        "finish-step",
        "finish",
    ];
    assert_eq!(types(&chunks), expected);
    let (first, last) = (&chunks[0], chunks.last().unwrap());
    assert!(first["messageId"].as_str().unwrap().starts_with("msg_"), "{first}");
    assert_eq!(last["finishReason"], "stop");
    assert_eq!(last["messageMetadata"]["usage"]["totalTokens"], 12);
    let gauge = chunks.iter().find(|chunk| chunk["type"] == "data-reseed-context").unwrap();
    assert_eq!((&gauge["transient"], &gauge["data"]["maxTokens"]), (&json!(true), &json!(2000)));
    model.push(Reply::text("Yes."));
    page.say("u2", "Really?").await;
    assert_eq!(told(&model.requests()[1]), ["u: How are you?", "a: Fine.", "u: Really?"]);
}

#[tokio::test]
async fn a_page_that_comes_back_gets_the_answer_from_its_beginning() {
    let (model, gate) = (Scripted::new(), Gate::new());
    let server = Server::start(model.clone(), &[]).await;
    let mut page = Page::open(&server, "chat").await;
    model.push(Reply::text("one two three four").in_pieces(4).held_by(&gate));
    page.said("u1", "Count.");
    page.send("submit-message", None).await;
    let started = page.chunk("start").await;
    page.chunk("text-delta").await;
    drop(page);
    let mut page = Page::open(&server, "chat").await;
    page.request(json!({"type": "resume"})).await;
    assert_eq!(page.frame().await["type"], "start");
    let again = page.chunk("start").await;
    assert_eq!(again["messageId"], *present(&started["messageId"]));
    page.chunk("text-delta").await;
    gate.open();
    page.chunk("text-end").await;
    page.chunks().await;
    page.request(json!({"type": "resume"})).await;
    assert_eq!(page.frame().await["type"], "no-active", "the answer is complete");
    let mut other = Page::open(&server, "another chat").await;
    other.request(json!({"type": "resume"})).await;
    assert_eq!(other.frame().await["type"], "no-active", "there is no answer");
}

#[tokio::test]
async fn two_pages_read_one_answer() {
    let (model, gate) = (Scripted::new(), Gate::new());
    let server = Server::start(model.clone(), &[]).await;
    let (mut one, mut two) = (Page::open(&server, "chat").await, Page::open(&server, "chat").await);
    model.push(Reply::text("one two three four").in_pieces(4).held_by(&gate));
    one.said("u1", "Count.");
    one.send("submit-message", None).await;
    one.chunk("text-delta").await;
    two.request(json!({"type": "resume"})).await;
    assert_eq!(two.frame().await["type"], "start");
    two.chunk("text-delta").await;
    gate.open();
    assert_eq!(one.chunks().await.last().unwrap()["finishReason"], "stop");
    assert_eq!(two.chunks().await.last().unwrap()["finishReason"], "stop");
}

#[tokio::test]
async fn regenerate_and_edit_branch() {
    let model = Scripted::new();
    let server = Server::start(model.clone(), &[]).await;
    let mut page = Page::open(&server, "chat").await;
    for answer in ["A1", "A2", "A2 again", "A2 edited", "A3", "A1 edited"] {
        model.push(Reply::text(answer));
    }
    page.say("u1", "Q1").await;
    page.say("u2", "Q2").await;
    let replaced = present(&page.messages.pop().unwrap()["id"]).clone();
    page.send("regenerate-message", replaced.as_str()).await;
    let chunks = page.chunks().await;
    assert_ne!(present(&chunks[0]["messageId"]), &replaced, "it is another answer");
    page.keep(&chunks);
    assert_eq!(told(&model.requests()[2]), ["u: Q1", "a: A1", "u: Q2"]);
    page.messages.truncate(2);
    page.said("u2", "Q2 edited");
    page.send("submit-message", Some("u2")).await;
    let chunks = page.chunks().await;
    page.keep(&chunks);
    assert_eq!(told(&model.requests()[3]), ["u: Q1", "a: A1", "u: Q2 edited"]);
    page.say("u3", "Q3").await;
    assert_eq!(told(&model.requests()[4]), ["u: Q1", "a: A1", "u: Q2 edited", "a: A2 edited", "u: Q3"]);
    page.messages.clear();
    page.said("u1", "Q1 edited");
    page.send("submit-message", Some("u1")).await;
    page.chunks().await;
    assert_eq!(told(&model.requests()[5]), ["u: Q1 edited"]);
}

#[tokio::test]
async fn a_page_on_another_branch_stays_on_it() {
    let model = Scripted::answering(|request| Reply::text(format!("answer to {}", told(request).last().unwrap())));
    let server = Server::start(model.clone(), &[]).await;
    let (mut one, mut two) = (Page::open(&server, "chat").await, Page::open(&server, "chat").await);
    one.say("u1", "Q1").await;
    one.say("u2", "Q2").await;
    two.messages.clone_from(&one.messages);
    two.messages.pop();
    two.send("regenerate-message", None).await;
    let chunks = two.chunks().await;
    two.keep(&chunks);
    one.say("u3", "Q3").await;
    two.say("u4", "Q4").await;
    let before = ["u: Q1", "a: answer to u: Q1", "u: Q2", "a: answer to u: Q2"];
    assert_eq!(told(&model.requests()[3]), [&before[..], &["u: Q3"]].concat());
    assert_eq!(told(&model.requests()[4]), [&before[..], &["u: Q4"]].concat());
}

#[tokio::test]
async fn a_conversation_from_elsewhere_is_taken_over_and_goes_on() {
    let model = Scripted::answering(|_| Reply::text("Yes."));
    let server = Server::start(model.clone(), &[]).await;
    let mut page = Page::open(&server, "chat").await;
    page.said("x1", "Old question");
    page.messages.push(json!({"id": "x2", "role": "assistant", "parts": [{"type": "text", "text": "Old answer"}]}));
    page.say("u1", "New?").await;
    page.say("u2", "Still?").await;
    let old = ["u: Old question", "a: Old answer", "u: New?"];
    assert_eq!(told(&model.requests()[0]), old);
    assert_eq!(told(&model.requests()[1]), [&old[..], &["a: Yes.", "u: Still?"]].concat());
}

#[tokio::test]
async fn a_tool_of_the_browser_ends_the_answer_and_goes_on_in_the_same_message() {
    let model = Scripted::new();
    let server = Server::start(model.clone(), &[]).await;
    let mut page = Page::open(&server, "chat").await;
    page.body = json!({"tools": [{"name": "place", "description": "Where.", "parameters": {"type": "object"}}]});
    model.push(Reply::parts(vec![Part::Text { text: "Let me see.".into() }, call("place", "{\"of\":1}")]));
    let chunks = page.say("u1", "Where am I?").await;
    let available = chunks.iter().find(|chunk| chunk["type"] == "tool-input-available").unwrap();
    assert_eq!((&available["input"], &available["dynamic"]), (&json!({"of": 1}), &Value::Null));
    assert_eq!(chunks.last().unwrap()["finishReason"], "tool-calls");
    page.change("tool-place", |part| {
        part["state"] = json!("output-available");
        part["output"] = json!({"city": "Kiel"});
    });
    model.push(Reply::text("In Kiel."));
    let id = chunks[0]["messageId"].as_str().unwrap();
    page.send("submit-message", Some(id)).await;
    let more = page.chunks().await;
    assert_eq!(more[0]["messageId"], id);
    assert_eq!(text(&more), "In Kiel.");
    assert_eq!(results(&model.requests()[1]), [("{\"city\":\"Kiel\"}".to_owned(), false)]);
    page.keep(&more);
    model.push(Reply::text("On the sea."));
    page.say("u2", "And where is that?").await;
    let expected = ["u: Where am I?", "a: Let me see.", "a: In Kiel.", "u: And where is that?"];
    assert_eq!(told(&model.requests()[2]), expected);
    page.send("submit-message", page.messages[1]["id"].clone().as_str()).await;
    assert_eq!(page.frame().await["type"], "chunk", "what the page may not have is sent again");
}

/// A tool that repeats its arguments, and that a person must allow.
struct Dig;

impl Tool for Dig {
    fn offer(&self) -> ToolOffer {
        let annotations = Some(ToolAnnotations { read_only: Some(false), ..ToolAnnotations::default() });
        ToolOffer { annotations, ..ToolOffer::new("dig", "Digs.", json!({"type": "object"})) }
    }

    fn call(&self, call: Call) -> CallFuture<'_> {
        Box::pin(async move { Output::text(format!("dug with {}", call.arguments)) })
    }
}

async fn digging(model: &Scripted) -> Server {
    Server::over_with_tools(model.clone(), Arc::new(MemoryStore::new()), vec![Arc::new(Dig)], &[]).await
}

#[tokio::test]
async fn an_approval_parks_the_answer_until_the_page_decides() {
    for approved in [true, false] {
        let model = Scripted::new();
        let server = digging(&model).await;
        let mut page = Page::open(&server, "chat").await;
        model.push(Reply::parts(vec![call("dig", "{\"at\":1}")]));
        model.push(Reply::text("Done."));
        let chunks = page.say("u1", "Dig!").await;
        let available = chunks.iter().find(|chunk| chunk["type"] == "tool-input-available").unwrap();
        assert_eq!((&available["dynamic"], &available["providerExecuted"]), (&json!(true), &json!(true)));
        assert_eq!(*types(&chunks).iter().rev().nth(2).unwrap(), "tool-approval-request");
        assert_eq!(chunks.last().unwrap()["finishReason"], "tool-calls");
        page.request(json!({"type": "resume"})).await;
        let again = page.chunks().await;
        assert_eq!(types(&again).last(), types(&chunks).last(), "a page that comes back is asked too");
        page.change("tool-dig", |part| {
            part["state"] = json!("approval-responded");
            part["approval"]["approved"] = json!(approved);
        });
        let id = chunks[0]["messageId"].as_str().unwrap();
        page.send("submit-message", Some(id)).await;
        let more = page.chunks().await;
        assert_eq!((&more[0]["messageId"], text(&more).as_str()), (&json!(id), "Done."));
        let outcome = if approved { "tool-output-available" } else { "tool-output-denied" };
        assert!(types(&more).contains(&outcome), "{more:#?}");
        assert!(!types(&more).contains(&"tool-output-error"), "{more:#?}");
    }
}

#[tokio::test]
async fn who_goes_on_without_deciding_leaves_the_call_behind() {
    let model = Scripted::new();
    let server = digging(&model).await;
    let mut page = Page::open(&server, "chat").await;
    model.push(Reply::parts(vec![call("dig", "{}")]));
    page.say("u1", "Dig!").await;
    model.push(Reply::text("Never mind."));
    assert_eq!(text(&page.say("u2", "No, wait.").await), "Never mind.");
}

#[tokio::test]
async fn abort_detaches_and_cancels_only_where_the_page_says_so() {
    for cancels in [false, true] {
        let (model, gate) = (Scripted::new(), Gate::new());
        let server = Server::start(model.clone(), &[]).await;
        let mut page = Page::open(&server, "chat").await;
        if cancels {
            page.body = json!({"onAbort": "cancel"});
        }
        model.push(Reply::text("one two three four").in_pieces(4).held_by(&gate));
        page.said("u1", "Count.");
        let request = page.send("submit-message", None).await;
        page.chunk("text-delta").await;
        page.raw(json!({"type": "abort", "requestId": request}).to_string()).await;
        if cancels {
            model.wait_for_dropped(1).await;
        } else {
            page.request(json!({"type": "resume"})).await;
            assert_eq!(page.frame().await["type"], "start");
            gate.open();
            assert_eq!(text(&page.chunks().await), "one two three four");
        }
    }
}

#[tokio::test]
async fn a_page_that_resumes_may_cancel_and_leaves_the_tools_of_others() {
    let (model, gate) = (Scripted::new(), Gate::new());
    let server = digging(&model).await;
    let mut one = Page::open(&server, "chat").await;
    one.body = json!({"tools": [{"name": "place", "parameters": {"type": "object"}}]});
    model.push(Reply::parts(vec![call("dig", "{}")]));
    let chunks = one.say("u1", "Dig!").await;
    let mut two = Page::open(&server, "chat").await;
    two.request(json!({"type": "resume"})).await;
    assert_eq!(two.chunks().await.last().unwrap()["finishReason"], "tool-calls");
    drop(two);
    one.change("tool-dig", |part| {
        part["state"] = json!("approval-responded");
        part["approval"]["approved"] = json!(true);
    });
    model.push(Reply::text("one two three four").in_pieces(4).held_by(&gate));
    one.send("submit-message", chunks[0]["messageId"].as_str()).await;
    one.chunk("text-delta").await;
    let tools = model.requests()[1].envelope.tools.clone();
    assert!(tools.iter().any(|tool| tool.name == "place"), "{tools:?}");
    let mut two = Page::open(&server, "chat").await;
    two.body = json!({"onAbort": "cancel"});
    let request = two.request(json!({"type": "resume"})).await;
    two.chunk_after_start("text-delta").await;
    two.raw(json!({"type": "abort", "requestId": request}).to_string()).await;
    assert_eq!(one.chunks().await.last().unwrap()["type"], "abort");
}

#[tokio::test]
async fn a_failed_attempt_is_reset_and_a_failed_turn_is_an_error() {
    let model = Scripted::new();
    let server = Server::start(model.clone(), &[]).await;
    let mut page = Page::open(&server, "chat").await;
    model.push(Reply::fault(ModelFault::new(ErrorCode::UpstreamRejected, "the model refuses")));
    let chunks = page.say("u1", "Hi").await;
    let last = chunks.last().unwrap();
    assert!(last["type"] == "error" && last["errorText"].as_str().unwrap().contains("refuses"), "{last}");
    page.messages.pop();
    model.push(Reply::text("Hello."));
    page.send("regenerate-message", None).await;
    assert_eq!(text(&page.chunks().await), "Hello.");
    assert_eq!(told(&model.requests()[1]), ["u: Hi"]);
}

#[tokio::test]
async fn invalid_frames_close_the_connection_and_wrong_requests_do_not() {
    let model = Scripted::new();
    let server = Server::start(model.clone(), &[]).await;
    let send = json!({
        "type": "send", "requestId": "r", "id": "c", "trigger": "submit-message", "messages": [], "headers": {},
        "body": {},
    });
    for (key, value) in [("requestId", json!(1)), ("trigger", json!("x")), ("messages", json!(1)), ("body", json!(1))] {
        let mut page = Page::open(&server, "chat").await;
        let mut frame = send.clone();
        frame[key] = value;
        page.raw(frame.to_string()).await;
        assert_eq!(page.closed().await, 1008, "{key}");
    }
    let mut page = Page::open(&server, "chat").await;
    page.socket.send_message(Message::binary(vec![1])).await.unwrap();
    assert_eq!(page.closed().await, 1008);
    let mut page = Page::open(&server, "chat").await;
    let pdf = json!([{"type": "file", "mediaType": "application/pdf", "url": "https://a.example/b"}]);
    for (key, value) in [
        ("messages", json!([])),
        ("body", json!({"tools": 1})),
        ("body", json!({"onAbort": "explode"})),
        ("messages", json!([{"id": "m", "role": "user", "parts": pdf}])),
        ("messages", json!([{"id": "m", "role": "user", "parts": []}])),
        ("messages", json!([{"id": "m", "role": "assistant", "parts": []}])),
    ] {
        let mut frame = send.clone();
        frame[key] = value;
        page.raw(frame.to_string()).await;
        let error = page.frame().await;
        assert_eq!((&error["type"], &error["requestId"]), (&json!("error"), &json!("r")), "{error}");
        assert!(error["errorText"].is_string());
    }
    model.push(Reply::text("Still here."));
    assert_eq!(text(&page.say("u1", "Hi").await), "Still here.");
}

#[tokio::test]
async fn a_connection_reads_any_number_of_large_messages() {
    let model = Scripted::new();
    let server = Server::start(model.clone(), &[]).await;
    let mut page = Page::open(&server, "chat").await;
    let note = json!([{"id": "m", "role": "user", "parts": [{"type": "data-note", "data": "x".repeat(200_000)}]}]);
    for _ in 0..150 {
        page.request(json!({"type": "send", "trigger": "submit-message", "messages": note})).await;
        assert_eq!(page.frame().await["type"], "error", "there is nothing to say");
    }
    let huge = json!({"type": "abort", "requestId": "x".repeat(70_000_000)});
    let _ = page.socket.send_message(Message::text(huge.to_string())).await;
    assert!(matches!(page.closed().await, 1009 | 1006));
}

#[tokio::test]
async fn users_are_apart_and_need_credentials() {
    let model = Scripted::answering(|request| Reply::text(told(request).join(", ")));
    let server = Server::start(model, &[("AUTH_TOKENS", "ann:token-of-ann-0001,bob:token-of-bob-0001")]).await;
    let url = format!("ws://{}/ai", server.address());
    let mut ann = Page::open_at(&url, &[("Authorization", "Bearer token-of-ann-0001")], "chat").await;
    let mut bob = Page::open_at(&format!("{url}?token=token-of-bob-0001"), &[], "chat").await;
    ann.say("u1", "I am Ann").await;
    assert_eq!(text(&bob.say("u1", "I am Bob").await), "u: I am Bob");
    let mut stranger = Page::open_at(&format!("{url}?token=wrong"), &[], "chat").await;
    assert_eq!(stranger.closed().await, 4401);
    let head = [("Authorization", "Bearer token-of-ann-0001")];
    let ticket = crate::support::http::send(&server.address(), "POST", "/api/tickets", &head, "").await.json();
    let with_ticket = format!("{url}?ticket={}", ticket["ticket"].as_str().unwrap());
    let mut again = Page::open_at(&with_ticket, &[], "chat").await;
    again.messages.clone_from(&ann.messages);
    assert_eq!(text(&again.say("u2", "Who?").await), "u: I am Ann, a: u: I am Ann, u: Who?");
}

#[tokio::test]
async fn a_stopping_server_closes_with_1012() {
    let (model, gate) = (Scripted::new(), Gate::new());
    let server = Server::start(model.clone(), &[]).await;
    let mut page = Page::open(&server, "chat").await;
    let mut idle = Page::open(&server, "chat").await;
    model.push(Reply::text("one two three four").in_pieces(4).held_by(&gate));
    page.said("u1", "Count.");
    page.send("submit-message", None).await;
    page.chunk("text-delta").await;
    let stopping = tokio::spawn(async move { server.service.stop().await });
    assert_eq!((page.closed().await, idle.closed().await), (1012, 1012));
    stopping.await.unwrap();
}

#[tokio::test]
async fn a_compaction_is_shown_as_data() {
    let model = Scripted::answering(|_| Reply::text("word ".repeat(200)));
    let server = Server::start(model, &[]).await;
    let mut page = Page::open(&server, "chat").await;
    let mut shown = Vec::new();
    for turn in 0..20 {
        let chunks = page.say(&format!("u{turn}"), &format!("Question {turn}")).await;
        if let Some(shown) = chunks.iter().rev().find(|chunk| chunk["type"] == "data-reseed-compaction") {
            assert_eq!((&shown["id"], &shown["data"]["state"]), (&json!("reseed-compaction"), &json!("done")));
            assert!(whole(&shown["data"]["tokensBefore"]) > whole(&shown["data"]["tokensAfter"]), "{shown}");
            return;
        }
        shown.push(chunks.iter().rev().find(|chunk| chunk["type"] == "data-reseed-context").unwrap()["data"].clone());
    }
    panic!("nothing was compacted: {shown:#?}");
}

#[tokio::test]
async fn the_chat_is_a_session_like_any_other() {
    let model = Scripted::answering(|_| Reply::text("Yes."));
    let server = Server::start(model, &[]).await;
    let mut page = Page::open(&server, "chat").await;
    let chunks = page.say("u1", "Is it there?").await;
    let session = chunks.last().unwrap()["messageMetadata"]["sessionId"].clone();
    let mut v2 = V2::v2(&server.ws()).await;
    let opened = v2.ask("open_session", json!({"sessionId": session})).await;
    assert_eq!(opened["payload"]["entries"][0]["details"]["ai"]["id"], "u1", "{opened}");
    ask(&mut v2, "From elsewhere").await;
    v2.event("turn_finished").await;
}
