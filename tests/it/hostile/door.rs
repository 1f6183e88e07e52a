//! Connections that send nothing, never read or never end a message: nobody else is shut out, and nothing is held
//! indefinitely.

use crate::support::scripted::{Reply, Scripted};
use crate::support::{client::Client, http, server::Server};
use serde_json::json;
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// The time within which the server gives up a client; only a failing test reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

const TOKENS: [(&str, &str); 1] = [("AUTH_TOKENS", "ada:token-of-ada-4d1f9a73c2,bob:token-of-bob-90bb2e6a51")];

async fn server(settings: &[(&str, &str)]) -> Server {
    Server::start(Scripted::answering(|_| Reply::text("It is calm.")), settings).await
}

async fn connected(server: &Server) -> TcpStream {
    TcpStream::connect(server.address()).await.expect("the server listens")
}

/// Sends the handshake of a WebSocket, with these lines among the headers, and reads the answer to it.
async fn upgraded(server: &Server, path: &str, lines: &str) -> TcpStream {
    let mut stream = connected(server).await;
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{lines}\r\n",
        server.address()
    );
    stream.write_all(request.as_bytes()).await.expect("the server reads");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("the server answers"));
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    stream
}

/// Reads to the end of the connection. Returns the code of the close frame, if the end is one.
async fn close_code(mut stream: TcpStream) -> Option<u16> {
    let mut bytes = Vec::new();
    // A reset is an end as well.
    let _ = stream.read_to_end(&mut bytes).await;
    let close = bytes.iter().position(|byte| *byte == 0x88)?;
    Some(u16::from_be_bytes([*bytes.get(close + 2)?, *bytes.get(close + 3)?]))
}

/// Returns the beginning of a masked text frame that announces this length, with this many of its bytes.
fn partial(length: u64, sent: usize) -> Vec<u8> {
    let mut bytes = vec![0x81, 0x80 | 127];
    bytes.extend(length.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(std::iter::repeat_n(b' ', sent));
    bytes
}

#[tokio::test]
async fn a_crowd_that_says_nothing_shuts_nobody_out() {
    let settings = [("GUESTS_MAX", "8"), ("HELLO_TIMEOUT_SECS", "3600"), TOKENS[0]];
    let server = server(&settings).await;
    let ticket = [("Authorization", "Bearer token-of-ada-4d1f9a73c2")];
    let mut known = Client::connect_with(&server.ws(), &ticket).await;
    known.ask("hello", json!({ "protocolVersion": 2 })).await;
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(connected(&server).await);
        silent.push(upgraded(&server, "/ws", "sec-websocket-protocol: reseed.v2\r\n").await);
    }
    let mut late = Client::connect_with(&server.ws(), &ticket).await;
    late.ask("hello", json!({ "protocolVersion": 2 })).await;
    for client in [&mut known, &mut late] {
        assert_eq!(client.ask("open_session", json!({})).await["type"], "session_opened");
        assert_eq!(client.turn("How is the sea?").await["status"], "completed");
    }
    // The oldest connections had to leave.
    for stream in silent.drain(..40) {
        close_code(stream).await;
    }
    let metrics = http::get(&server.address(), "/metrics").await.body;
    assert!(!metrics.contains("reseed_limits_refused_total{limit=\"guests\"} 0\n"), "refusals are counted");
}

#[tokio::test]
async fn a_client_that_never_reads_its_responses_is_disconnected() {
    let server = server(&[("SLOW_READER_SECS", "1"), ("HELLO_TIMEOUT_SECS", "3600")]).await;
    let page = http::get(&server.address(), "/").await.body;
    let asset = page.split('"').find(|part| part.starts_with("assets/main-")).expect("the page has its script");
    let (mut reading, mut writing) = connected(&server).await.into_split();
    let request = format!("GET /{asset} HTTP/1.1\r\nhost: {}\r\n\r\n", server.address());
    // It sends until the server reads no more, and the server ends it.
    let ended = timeout(PATIENCE, async {
        while writing.write_all(request.as_bytes()).await.is_ok() {}
        let mut rest = Vec::new();
        let _ = reading.read_to_end(&mut rest).await;
    });
    ended.await.expect("the server gives it up");
}

#[tokio::test]
async fn what_a_message_may_hold_depends_on_who_sends_it() {
    let v2 = "sec-websocket-protocol: reseed.v2\r\n";
    let ada = "authorization: Bearer token-of-ada-4d1f9a73c2\r\n";
    let settings =
        [TOKENS[0], ("MESSAGE_BYTES_MAX", "100000"), ("PARTIAL_BYTES_MAX", "400000"), ("HELLO_TIMEOUT_SECS", "3600")];
    let server = server(&settings).await;
    // Two connections hold what they may.
    let mut held = Vec::new();
    for (lines, sent) in [(v2.to_owned(), 10_000), (format!("{v2}{ada}"), 80_000)] {
        let mut stream = upgraded(&server, "/ws", &lines).await;
        stream.write_all(&partial(90_000, sent)).await.expect("the server reads");
        held.push(stream);
    }
    for (who, path, lines, sent, code) in [
        ("one that is unknown", "/ws", v2.to_owned(), 20_000, 1009),
        ("one that is unknown and speaks v1", "/", String::new(), 20_000, 1009),
        ("a user beyond a share of the budget", "/ws", format!("{v2}{ada}"), 80_000, 1013),
    ] {
        let mut stream = upgraded(&server, path, &lines).await;
        let _ = stream.write_all(&partial(90_000, sent)).await;
        assert_eq!(close_code(stream).await, Some(code), "{who}");
    }
    let url = format!("ws://{}/", server.address());
    let mut v1 = Client::connect_with(&url, &[("Authorization", "Bearer token-of-bob-90bb2e6a51")]).await;
    v1.send_raw(json!({ "type": "nothing_of_v1", "text": "x".repeat(90_000) }).to_string()).await;
    let answered = v1.next_frame().await.expect("the first message is answered");
    assert_eq!(answered["type"], "error", "{answered}");
}
