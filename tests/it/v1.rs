//! What the original client needs of v1, frame by frame.

use crate::support::scripted::{Gate, Reply, Scripted};
use crate::support::{
    client::Client,
    json::{number, present, whole},
    server::Server,
    talk::{talker, words},
    time::StoppedTime,
};
use reseed::core::model::ModelFault;
use reseed_protocol::{ErrorCode, Part};
use serde_json::{Value, json};
use std::{collections::HashSet, time::Instant};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_tungstenite::{WebSocketStream, tungstenite::protocol};

/// Summarises a frame in a word or two, so that sequences compare as lists of words.
fn short(frame: &Value) -> String {
    let payload = &frame["payload"];
    match frame["type"].as_str().unwrap() {
        "loading_state" => format!("loading {}", payload["loading"]),
        "response_item" => payload["type"].as_str().unwrap().to_owned(),
        "error" => format!("error {}", payload["details"]["code"].as_str().unwrap()),
        other => other.to_owned(),
    }
}

fn shorts(frames: &[Value]) -> Vec<String> {
    frames.iter().map(short).collect()
}

fn said(text: &str) -> Value {
    json!({ "input": [{ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": text }] }] })
}

/// Returns every frame up to and including the first of this type.
async fn through(client: &mut Client, kind: &str) -> Vec<Value> {
    let mut frames = Vec::new();
    loop {
        let frame = client.next_frame().await.expect("the server does not hang up on v1");
        let last = frame["type"] == kind;
        frames.push(frame);
        if last {
            return frames;
        }
    }
}

/// Says something and returns every frame until the turn is over.
async fn turn(client: &mut Client, text: &str) -> Vec<Value> {
    client.send("user_input", said(text)).await;
    through(client, "agent_finished").await
}

async fn info(client: &mut Client) -> Value {
    client.ask("get_context_info", json!({})).await["payload"].clone()
}

fn call(name: &str) -> Part {
    Part::ToolCall { call_id: "call_0".parse().unwrap(), name: name.into(), arguments: "{}".into() }
}

fn text(text: &str) -> Part {
    Part::Text { text: text.into() }
}

#[tokio::test]
async fn the_frames_of_a_turn_come_in_this_order() {
    let thought = Part::Reasoning { text: "hm".into(), payload: None };
    let broken = || ModelFault::new(ErrorCode::UpstreamTruncated, "the answer stopped in the middle");
    let begin = "loading true";
    let end = ["loading false", "context_info", "agent_finished"];
    let table: Vec<(Vec<Reply>, Vec<&str>)> = vec![
        (vec![Reply::text("Fine.")], vec!["message"]),
        (vec![Reply::text("Fine, in many pieces.").in_pieces(7)], vec!["message"]),
        (vec![Reply::parts(vec![thought, text("Fine.")])], vec!["reasoning", "message"]),
        (
            vec![Reply::parts(vec![text("Let me look."), call("look")]), Reply::text("There is no such tool.")],
            vec!["message", "function_call", "function_call_output", "message"],
        ),
        (vec![Reply::fault(broken())], vec!["error upstream_truncated"]),
        (vec![Reply::text("half of").in_pieces(2).then_fault(broken())], vec!["message", "error upstream_truncated"]),
    ];
    for path in ["/", "/ws"] {
        let model = Scripted::new();
        let server = Server::start(model.clone(), &[]).await;
        for (replies, expected) in &table {
            replies.iter().for_each(|reply| model.push(reply.clone()));
            let mut client = Client::connect(&format!("ws://{}{path}", server.address())).await;
            let frames = turn(&mut client, "How are you?").await;
            let expected: Vec<&str> = [begin].iter().chain(expected).chain(&end).copied().collect();
            assert_eq!(shorts(&frames), expected, "{path}");
            // A second turn would show any leftovers.
            model.push(Reply::text("Again."));
            let again: Vec<&str> = [begin, "message"].into_iter().chain(end).collect();
            assert_eq!(shorts(&turn(&mut client, "And now?").await), again, "{path}");
        }
    }
}

#[tokio::test]
async fn an_item_comes_whole_and_once_under_an_id_of_its_own() {
    let model = Scripted::new();
    let server = Server::start(model.clone(), &[]).await;
    let mut client = Client::connect(&server.ws()).await;
    let mut ids = HashSet::new();
    for _ in 0..3 {
        // The same words and the same call id each time, as from a server that numbers from 0 in each answer.
        model.push(Reply::parts(vec![text("Looking."), call("look")]).in_pieces(5));
        model.push(Reply::text("Nothing to see.").in_pieces(5));
        let frames = turn(&mut client, "Look!").await;
        let items: Vec<&Value> =
            frames.iter().filter(|frame| frame["type"] == "response_item").map(|frame| &frame["payload"]).collect();
        let texts: Vec<&str> = items.iter().filter_map(|item| item["content"][0]["text"].as_str()).collect();
        assert_eq!(texts, ["Looking.", "Nothing to see."]);
        for item in &items {
            assert!(ids.insert(item["id"].as_str().unwrap().to_owned()), "{item}");
        }
        assert_eq!(*present(&items[1]["call_id"]), items[2]["call_id"], "a result names its call");
    }
}

#[tokio::test]
async fn nothing_that_the_client_does_not_know_reaches_it() {
    let known = ["loading_state", "response_item", "context_info", "context_compacted", "agent_finished", "error"];
    let server = Server::start(talker(150), &[]).await;
    let mut client = Client::connect(&server.ws()).await;
    for number in 0..12 {
        turn(&mut client, &words(number, 60)).await;
    }
    let mut compactions = 0;
    for frame in &client.seen {
        assert!(known.contains(&frame["type"].as_str().unwrap()), "{frame}");
        assert!(frame.get("seq").is_none(), "{frame}");
        let payload = &frame["payload"];
        match frame["type"].as_str().unwrap() {
            "agent_finished" => assert_eq!(payload.as_object().unwrap().len(), 1, "{payload}"),
            "response_item" => assert_eq!(payload["role"], "assistant", "{payload}"),
            "context_compacted" => compactions += 1,
            _ => {}
        }
    }
    assert!(compactions >= 1, "twelve long turns pass a window of 2,000 tokens");
}

#[tokio::test]
async fn numbers_are_finite_and_percentages_within_a_hundred() {
    let manual = ("CONTEXT_STRATEGY", "dummy");
    // The model's own count for a context of about 1,300 tokens, and the percentage that is shown.
    let table: [(Option<(u64, u64)>, f64); 4] =
        [(None, 0.9), (Some((0, 0)), 0.9), (Some((4_000, 1_400)), 2.7), (Some((1_999, 1)), 1.0)];
    for (usage, ratio_max) in table {
        let model = Scripted::new();
        let reply = Reply::text(words(1, 900));
        model.push(if let Some((input, output)) = usage { reply.usage(input, output) } else { reply });
        let server = Server::start(model, &[manual]).await;
        let mut client = Client::connect(&server.ws()).await;
        info(&mut client).await;
        turn(&mut client, "Tell me a long story.").await;
        let last = info(&mut client).await;
        for frame in client.seen.iter().filter(|frame| frame["type"] == "context_info") {
            let payload = &frame["payload"];
            let percent = payload["usagePercent"].as_f64().expect("a number");
            assert!((0.0..=100.0).contains(&percent), "{payload}");
            for name in ["tokenCount", "transcriptLength", "maxTokens", "usageTokens", "trailingTokens"] {
                assert!(payload[name].is_u64(), "{name}: {payload}");
            }
            assert!(payload["breakdown"].as_object().unwrap().values().all(Value::is_u64), "{payload}");
        }
        let (ratio, percent) = (last["usageRatio"].as_f64().unwrap(), last["usagePercent"].as_f64().unwrap());
        assert!(ratio > 0.3 && ratio <= ratio_max, "{usage:?}: {ratio}");
        assert!((percent - (ratio * 100.0).min(100.0)).abs() < 0.01, "{percent} of {ratio}");
        assert_eq!(last["warning"].is_string(), ratio >= 0.9, "{last}");
    }
}

#[tokio::test]
async fn strategies_have_class_style_names() {
    for (setting, name) in [
        ("threshold", "ThresholdContextManager"),
        ("manual", "DummyContextManager"),
        ("dummy", "DummyContextManager"),
        ("none", "DummyContextManager"),
    ] {
        let server = Server::start(talker(200), &[("CONTEXT_STRATEGY", setting)]).await;
        let mut client = Client::connect(&server.ws()).await;
        assert_eq!(info(&mut client).await["strategy"], name);
        turn(&mut client, "Hello").await;
        turn(&mut client, "Hello again").await;
        client.send("manual_compact", json!({})).await;
        assert_eq!(client.event("context_compacted").await["payload"]["strategy"], name);
        assert_eq!(info(&mut client).await["strategy"], name);
    }
}

#[tokio::test]
async fn the_output_of_a_tool_is_a_json_text_with_metadata() {
    let model = Scripted::new();
    model.push(Reply::parts(vec![call("look")]));
    model.push(Reply::text("I cannot."));
    let server = Server::start(model.clone(), &[]).await;
    let mut client = Client::connect(&server.ws()).await;
    let began = Instant::now();
    let frames = turn(&mut client, "Look!").await;
    let item =
        frames.iter().map(|frame| &frame["payload"]).find(|item| item["type"] == "function_call_output").unwrap();
    let output: Value = serde_json::from_str(item["output"].as_str().expect("a text")).expect("that is JSON");
    assert!(output["output"].as_str().unwrap().contains("no tool `look`"), "{output}");
    assert_eq!(output["metadata"]["exit_code"], 1);
    // No tool ran: the reported duration is no longer than the turn. Longer ones are tested in `server/dialects/v1.rs`.
    let told = number(&output["metadata"]["duration_seconds"]);
    assert!((0.0..=began.elapsed().as_secs_f64()).contains(&told), "{told}");
    assert_eq!(model.requests()[1].messages().count(), 3, "the model is told: question, call, result");
}

#[tokio::test]
async fn a_previous_response_id_is_ignored() {
    let model = talker(5);
    let server = Server::start(model.clone(), &[]).await;
    let mut client = Client::connect(&server.ws()).await;
    turn(&mut client, "My cat is called Miso.").await;
    let mut input = said("And yours?");
    input["previousResponseId"] = json!("resp_of_another_server");
    client.send("user_input", input).await;
    through(&mut client, "agent_finished").await;
    let texts: Vec<String> = model.requests()[1].messages().map(|message| message.message.text()).collect();
    assert_eq!((texts.len(), texts[0].as_str(), texts[2].as_str()), (3, "My cat is called Miso.", "And yours?"));
}

#[tokio::test]
async fn the_context_can_be_asked_for_at_any_time() {
    let server = Server::start(talker(20), &[("INSTRUCTIONS", "Be brief.")]).await;
    let mut client = Client::connect(&server.ws()).await;
    let before = info(&mut client).await;
    assert_eq!((&before["transcriptLength"], &before["maxTokens"]), (&json!(0), &json!(2_000)));
    assert!(before["tokenCount"].as_u64().unwrap() > 0, "the instructions are sent too");
    let frames = turn(&mut client, "Hello").await;
    let after = info(&mut client).await;
    assert_eq!(after["transcriptLength"], 2);
    assert!(whole(&after["tokenCount"]) > whole(&before["tokenCount"]));
    assert_eq!(frames[frames.len() - 2]["payload"], after, "what the turn ended with");
}

#[tokio::test]
async fn a_compaction_answers_or_says_that_there_is_nothing_to_do() {
    let model = talker(150);
    let server = Server::start(model.clone(), &[]).await;
    let mut client = Client::connect(&server.ws()).await;
    let refused = |frame: &Value| {
        let details = frame["payload"]["details"].clone();
        (short(frame), details["retriable"].clone())
    };
    let expected = ("error nothing_to_compact".to_owned(), json!(false));
    client.send("manual_compact", json!({})).await;
    assert_eq!(refused(&client.next_frame().await.unwrap()), expected, "before anything was said");
    turn(&mut client, "Hello").await;
    client.send("manual_compact", json!({})).await;
    assert_eq!(refused(&client.next_frame().await.unwrap()), expected, "with one turn, which is kept");

    turn(&mut client, "Hello again").await;
    let before = info(&mut client).await["tokenCount"].clone();
    let asked = model.requests().len();
    client.send("manual_compact", json!({})).await;
    let compacted = client.next_frame().await.unwrap();
    assert_eq!(short(&compacted), "context_compacted", "and nothing before it");
    let payload = &compacted["payload"];
    assert_eq!(*present(&payload["oldTokenCount"]), before);
    let after = info(&mut client).await;
    assert_eq!(*present(&payload["newTokenCount"]), after["tokenCount"], "and nothing came after it but this answer");
    assert!(whole(&after["tokenCount"]) < whole(&before));
    assert!(payload["reductionPercent"].as_f64().is_some_and(|percent| percent > 0.0 && percent < 100.0));
    assert_eq!(model.requests().len(), asked + 1, "the summary, and no answer that nobody asked for");
    turn(&mut client, "Still there?").await;
}

#[tokio::test]
async fn each_connection_is_a_session_of_its_own() {
    let model = talker(5);
    let server = Server::start(model.clone(), &[]).await;
    let (mut one, mut two) = (Client::connect(&server.ws()).await, Client::connect(&server.ws()).await);
    turn(&mut one, "I am one.").await;
    turn(&mut two, "I am two.").await;
    turn(&mut one, "Who am I?").await;
    let texts: Vec<Vec<String>> = model
        .requests()
        .iter()
        .map(|request| request.messages().map(|message| message.message.text()).collect())
        .collect();
    assert_eq!((texts[1].len(), texts[1][0].as_str()), (1, "I am two."));
    assert_eq!((texts[2].len(), texts[2][0].as_str()), (3, "I am one."));
    let (first, second) = (info(&mut one).await, info(&mut two).await);
    assert_ne!(*present(&first["sessionId"]), *present(&second["sessionId"]));
}

#[tokio::test]
async fn ids_may_be_used_again_and_input_during_a_turn_waits() {
    let (model, gate) = (Scripted::new(), Gate::new());
    model.push(Reply::text("first").held_by(&gate));
    model.push(Reply::text("second"));
    let server = Server::start(model.clone(), &[]).await;
    let mut client = Client::connect(&server.ws()).await;
    for _ in 0..2 {
        client.send_as("1", "user_input", said("The same words.")).await;
    }
    client.send_as("1", "get_context_info", json!({})).await;
    let first = through(&mut client, "context_info").await;
    assert_eq!(first.last().unwrap()["id"], "1", "an answer has the id of its question");
    gate.open();
    let mut answers = Vec::new();
    for _ in 0..2 {
        let frames = through(&mut client, "agent_finished").await;
        let answer = frames.iter().find(|frame| frame["type"] == "response_item").unwrap();
        answers.push(answer["payload"]["content"][0]["text"].clone());
    }
    assert_eq!(answers, ["first", "second"]);
    assert_eq!(model.requests().len(), 2);
}

#[tokio::test]
async fn an_answer_to_no_approval_says_so_in_every_spelling() {
    let server = Server::start(talker(5), &[]).await;
    let mut client = Client::connect(&server.ws()).await;
    for lower in ["yes", "no-exit", "no-continue", "always", "explain"] {
        for review in [lower.to_owned(), lower.to_uppercase(), lower.to_uppercase().replace('-', "_")] {
            let payload =
                json!({ "review": review, "applyPatch": null, "customDenyMessage": "no", "explanation": null });
            client.send("approval_response", payload).await;
            let frame = client.next_frame().await.unwrap();
            assert_eq!(short(&frame), "error no_pending_approval", "{review}");
        }
    }
    turn(&mut client, "Hello").await;
    client.send("approval_response", json!({ "review": "yes" })).await;
    assert_eq!(short(&client.next_frame().await.unwrap()), "error no_pending_approval");
}

/// Opens a socket by hand, so that nothing answers its pings.
async fn silent(address: &str) -> TcpStream {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET /ws HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
    socket
}

/// An empty ping.
const PING: u16 = 0x8900;

/// An empty pong of a client's, under a mask of zeros.
const PONG: [u8; 6] = [0x8a, 0x80, 0, 0, 0, 0];

/// Returns the code of the next close frame.
async fn close_code(socket: &mut TcpStream) -> u16 {
    let head = socket.read_u16().await.unwrap();
    assert_eq!(head & 0xff00, 0x8800, "a close frame, not {head:#x}");
    socket.read_u16().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_silent_socket_that_answers_pings_may_think_for_an_hour() {
    use futures_util::{SinkExt as _, StreamExt as _};
    let time = StoppedTime::new();
    let server = Server::start(talker(5), &[("HEARTBEAT_SECS", "20"), ("HELLO_TIMEOUT_SECS", "10")]).await;
    let mut socket = silent(&server.address()).await;
    for _ in 0..180 {
        time.pass(20).await;
        assert_eq!(socket.read_u16().await.unwrap(), PING);
        socket.write_all(&PONG).await.unwrap();
    }
    let mut socket = WebSocketStream::from_raw_socket(socket, protocol::Role::Client, None).await;
    let ask = || protocol::Message::text(r#"{"id":"1","type":"get_context_info"}"#);
    socket.send(ask()).await.unwrap();
    while !socket.next().await.unwrap().unwrap().is_text() {}
    // It has started to speak v1, whose clients do not reconnect, so it is no longer closed if it answers no ping.
    for _ in 0..180 {
        time.pass(20).await;
        assert_eq!(socket.get_mut().read_u16().await.unwrap(), PING);
    }
    socket.send(ask()).await.unwrap();
    while !socket.next().await.unwrap().unwrap().is_text() {}
}

#[tokio::test(start_paused = true)]
async fn a_silent_socket_that_answers_no_ping_is_closed() {
    let time = StoppedTime::new();
    let server = Server::start(talker(5), &[("HEARTBEAT_SECS", "20"), ("HELLO_TIMEOUT_SECS", "10")]).await;
    for answered in [0, 3] {
        let mut socket = silent(&server.address()).await;
        for _ in 0..answered {
            time.pass(20).await;
            assert_eq!(socket.read_u16().await.unwrap(), PING);
            socket.write_all(&PONG).await.unwrap();
        }
        for _ in 0..2 {
            time.pass(20).await;
            assert_eq!(socket.read_u16().await.unwrap(), PING);
        }
        time.pass(20).await;
        assert_eq!(close_code(&mut socket).await, 4508, "after {answered} answers");
    }
}
