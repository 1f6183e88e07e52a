//! Clients that read slowly, hang up halfway or leave, and bodies that are compressed.

use super::{Door, text_in};
use crate::{
    doors::door::Lane,
    support::{
        http,
        scripted::{Gate, Reply, Scripted},
        server::Server,
        talk::text_of,
    },
};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// More than the buffers of a connection and of the kernel hold.
const ANSWER_BYTES: usize = 3_000_000;

/// A zstd frame of blocks that are stored as they are, or as one repeated byte.
struct Zstd(Vec<u8>);

impl Zstd {
    fn new() -> Self {
        // The magic number, no further fields in the header, and a window of 128 KiB.
        Self(vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0x38])
    }

    fn block(&mut self, kind: u32, bytes: usize, content: &[u8], is_last: bool) {
        let header = u32::try_from(bytes).unwrap() << 3 | kind << 1 | u32::from(is_last);
        self.0.extend(&header.to_le_bytes()[..3]);
        self.0.extend(content);
    }

    fn raw(mut self, text: &str, is_last: bool) -> Self {
        self.block(0, text.len(), text.as_bytes(), is_last);
        self
    }

    fn repeated(mut self, byte: u8, bytes: usize, blocks: usize) -> Self {
        (0..blocks).for_each(|_| self.block(1, bytes, &[byte], false));
        self
    }
}

async fn compressed(server: &Server, path: &str, body: &[u8]) -> http::Answered {
    let headers = [("Content-Type", "application/json"), ("Content-Encoding", "zstd")];
    http::send_bytes(&server.address(), "POST", path, &headers, body).await
}

#[tokio::test]
async fn a_zstd_body_is_read_and_a_bomb_is_refused() {
    let model = Scripted::answering(|request| Reply::text(text_of(request)));
    let server = Server::start(model, &[]).await;
    let body = Zstd::new().raw(r#"{"input":"Hello from "#, false).repeated(b'z', 100, 1).raw(r#""}"#, true);
    let answer = compressed(&server, "/v1/responses", &body.0).await;
    assert_eq!(answer.status, 200, "{}", answer.head);
    assert!(text_in(&answer.json()).starts_with("Hello from zzz"));
    // 4 GiB in 128 KiB.
    let bomb = Zstd::new().raw(r#"{"input":""#, false).repeated(b' ', 128 * 1024, 32 * 1024).raw(r#""}"#, true);
    for path in ["/v1/responses", "/v1/responses/compact", "/v1/conversations", "/v1/chat/completions"] {
        let answer = compressed(&server, path, &bomb.0).await;
        assert_eq!((answer.status, &answer.json()["error"]["code"]), (413, &json!("request_too_large")), "{path}");
    }
    let cut = &body.0[..body.0.len() - 4];
    let answer = compressed(&server, "/v1/responses", cut).await;
    assert_eq!((answer.status, &answer.json()["error"]["type"]), (400, &json!("invalid_request_error")));
}

/// Sends a request and reads the head of its stream, up to the first event. Returns the connection and the response's
/// id.
async fn begun(server: &Server, body: &Value) -> (TcpStream, String) {
    let mut socket = TcpStream::connect(server.address()).await.unwrap();
    let body = body.to_string();
    let request = format!(
        "POST /v1/responses HTTP/1.0\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        server.address(),
        body.len()
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    loop {
        let mut piece = vec![0; 1];
        socket.read_exact(&mut piece).await.unwrap();
        text.push_str(std::str::from_utf8(&piece).unwrap());
        let event = text.split_once("data: ").and_then(|(_, event)| event.split_once("\n\n"));
        if let Some((event, _)) = event {
            let event: Value = serde_json::from_str(event).unwrap();
            return (socket, event["response"]["id"].as_str().unwrap().to_owned());
        }
    }
}

/// Waits until a response has ended.
async fn ended(door: &Door, id: &str) -> Value {
    for _ in 0..600 {
        let response = door.get(&format!("/v1/responses/{id}")).await;
        if response["status"] != "in_progress" {
            return response;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{id} does not end");
}

#[tokio::test]
async fn a_reader_that_is_slow_holds_up_nobody_and_misses_nothing() {
    let long: String = (0..).map(|word| format!("word {word} ")).take(ANSWER_BYTES / 12).collect();
    let answer = long.clone();
    let model = Scripted::answering(move |request| match text_of(request).lines().last() {
        Some("long") => Reply::text(answer.clone()).in_pieces(1_000),
        _ => Reply::text("short"),
    });
    let settings = [("CONTEXT_WINDOW", "100000000"), ("MESSAGE_BYTES_MAX", "33554432"), ("SLOW_READER_SECS", "3600")];
    let server = Server::start(model, &settings).await;
    let door = Door::of(&server);
    let (mut slow, id) = begun(&server, &json!({ "input": "long", "stream": true })).await;
    let mut lane = Lane::of(&server).await;
    lane.send(&json!({ "type": "response.create", "input": "long" })).await;
    let on_lane = lane.until("response.created").await["response"]["id"].clone();
    assert_eq!(text_in(&door.create(json!({ "input": "x" })).await), "short", "others go on");
    // The turns end although nobody reads them.
    assert_eq!(text_in(&ended(&door, &id).await), long);
    assert_eq!(text_in(&ended(&door, on_lane.as_str().unwrap()).await), long);
    let mut rest = String::new();
    slow.read_to_string(&mut rest).await.unwrap();
    let events = rest.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    let events: Vec<Value> = events.map(|event| serde_json::from_str(event).unwrap()).collect();
    let said: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(said.len(), long.len());
    assert!(said == long && rest.ends_with("data: [DONE]\n\n"));
    let events = lane.rest().await;
    let said: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
    assert!(said == long);
}

#[tokio::test]
async fn a_turn_goes_on_when_its_client_hangs_up_halfway_or_leaves() {
    let model = Scripted::new();
    let server = Server::start(model.clone(), &[]).await;
    let door = Door::of(&server);
    for (asked, leaves) in [(1, true), (2, false)] {
        let gate = Gate::new();
        model.push(Reply::text("Still here. At last.").in_pieces(4).held_by(&gate));
        let (mut socket, id) = begun(&server, &json!({ "input": "Wait.", "stream": true })).await;
        model.wait_for_requests(asked).await;
        if leaves {
            drop(socket);
        } else {
            socket.shutdown().await.unwrap();
        }
        gate.open();
        let response = ended(&door, &id).await;
        assert_eq!(
            (response["status"].as_str(), text_in(&response)),
            (Some("completed"), "Still here. At last.".into())
        );
        let events = door.stream("GET", &format!("/v1/responses/{id}?stream=true"), &Value::Null).await;
        assert_eq!(events.last().unwrap()["type"], "response.completed");
    }
    let gate = Gate::new();
    model.push(Reply::text("Over the socket.").held_by(&gate));
    let mut lane = Lane::of(&server).await;
    lane.send(&json!({ "type": "response.create", "input": "Wait." })).await;
    let id = lane.until("response.created").await["response"]["id"].clone();
    drop(lane);
    gate.open();
    assert_eq!(text_in(&ended(&door, id.as_str().unwrap()).await), "Over the socket.");
}

#[tokio::test]
async fn a_request_that_never_ends_is_given_up() {
    let server = Server::start(Scripted::new(), &[]).await;
    let mut socket = TcpStream::connect(server.address()).await.unwrap();
    let head = format!("POST /v1/responses HTTP/1.1\r\nHost: {}\r\nContent-Length: 100\r\n\r\n{{", server.address());
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.shutdown().await.unwrap();
    let mut rest = Vec::new();
    // An end or an error, but no waiting.
    let _ = socket.read_to_end(&mut rest).await;
    assert!(!String::from_utf8_lossy(&rest).starts_with("HTTP/1.1 200"), "{}", String::from_utf8_lossy(&rest));
}
