//! Too much of anything: commands, bad frames, connections, sessions, silent sockets. Flooding clients get errors and
//! are then disconnected; others do not notice.

use crate::support::scripted::{Gate, Reply, Scripted};
use crate::support::{client::Client, server::Server};
use reseed_client::Message;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// Most bad frames in a row that a connection may send.
const BAD_FRAMES_MAX: usize = 50;

async fn server(settings: &[(&str, &str)]) -> Server {
    Server::start(Scripted::answering(|_| Reply::text("yes")), settings).await
}

#[tokio::test]
async fn a_connection_that_only_sends_bad_frames_is_closed() {
    let server = server(&[]).await;
    for v2 in [true, false] {
        for message in [Message::text("{"), Message::text(r#"{"id":"1","type":"fly"}"#), Message::binary("{}")] {
            let mut client =
                if v2 { Client::v2_session(&server.ws()).await.0 } else { Client::connect(&server.ws()).await };
            // A valid one resets the count.
            for _ in 0..BAD_FRAMES_MAX - 1 {
                client.send_message(message.clone()).await;
            }
            let good = if v2 { "ping" } else { "get_context_info" };
            client.ask(good, json!({})).await;
            for _ in 0..BAD_FRAMES_MAX {
                client.send_message(message.clone()).await;
            }
            assert_eq!(client.closed().await, 4400, "{message:?}, v2: {v2}");
            let errors = client.seen.iter().filter(|frame| frame["type"] == "error").count();
            assert_eq!(errors, 2 * BAD_FRAMES_MAX - 1, "{message:?}, v2: {v2}");
        }
    }
    let (mut other, _) = Client::v2_session(&server.ws()).await;
    assert_eq!(other.turn("still well?").await["status"], "completed");
}

#[tokio::test]
async fn who_sends_faster_than_is_allowed_is_told_how_long_to_wait() {
    let tokens = "ann:token-of-ann-0123456789,bob:token-of-bob-0123456789";
    let server = server(&[("RATE_LIMIT_PER_MINUTE", "10"), ("AUTH_TOKENS", tokens)]).await;
    let connect = async |token: &str| {
        let mut client = Client::connect(&server.ws()).await;
        let welcome = client.ask("hello", json!({ "protocolVersion": 2, "token": token })).await;
        assert_eq!(welcome["type"], "welcome", "{welcome}");
        client
    };
    let mut ann = connect("token-of-ann-0123456789").await;
    let mut limited = None;
    for _ in 0..11 {
        let reply = ann.ask("ping", json!({ "sessionId": "k7m2q9xw4hfatz8n" })).await;
        if reply["payload"]["code"] == "rate_limited" {
            limited = Some(reply);
            break;
        }
    }
    let limited = limited.unwrap();
    assert_eq!(limited["sessionId"], "k7m2q9xw4hfatz8n", "as every reply about a session: {limited}");
    let limited = limited["payload"].clone();
    assert_eq!((&limited["code"], &limited["retriable"]), (&json!("rate_limited"), &json!(true)), "{limited}");
    assert_eq!(limited["details"], json!({ "limit": "commands_per_minute", "max": 10 }));
    let wait = limited["retryAfterMs"].as_u64().unwrap();
    assert!((1..=6_000).contains(&wait), "{limited}");

    let mut bob = connect("token-of-bob-0123456789").await;
    assert_eq!(bob.ask("ping", json!({})).await["type"], "pong", "others are not slowed down");

    for _ in 0..BAD_FRAMES_MAX {
        ann.send("ping", json!({})).await;
    }
    assert_eq!(ann.closed().await, 4429);
}

#[tokio::test]
async fn sockets_that_never_speak_take_their_places_and_no_more() {
    const MAX: usize = 300;
    let server = server(&[("CONNECTIONS_MAX", &MAX.to_string())]).await;
    let (mut talker, _) = Client::v2_session(&server.ws()).await;
    let mut silent = Vec::new();
    for _ in 1..MAX {
        silent.push(Client::connect(&server.ws()).await);
    }
    for _ in 0..3 {
        assert_eq!(Client::connect(&server.ws()).await.closed().await, 1013);
    }
    assert_eq!(talker.turn("is there room for me?").await["status"], "completed");
    // A released permit can be taken again. The server notices the release within the handshake of a later connection.
    silent.pop().unwrap().hang_up();
    loop {
        let mut next = Client::connect(&server.ws()).await;
        next.send("hello", json!({ "protocolVersion": 2 })).await;
        if next.next_frame().await.is_some_and(|frame| frame["type"] == "welcome") {
            break;
        }
    }
    assert_eq!(silent.len(), MAX - 2);
}

#[tokio::test]
async fn connections_that_send_no_request_are_let_go() {
    // Clients that do send something must manage to within the same time.
    let server = server(&[("HELLO_TIMEOUT_SECS", "5")]).await;
    let mut waiting = Vec::new();
    for sent in ["", "GET /ws HTTP/1.1\r\nhost: 127.0.0.1\r\nx-slow", "GET"] {
        for _ in 0..30 {
            let mut stream = TcpStream::connect(server.address()).await.unwrap();
            stream.write_all(sent.as_bytes()).await.unwrap();
            waiting.push((sent, stream));
        }
    }
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    assert_eq!(client.turn("is there room for me?").await["status"], "completed");
    for (sent, mut stream) in waiting {
        let mut answer = Vec::new();
        // The connection ends, with or without a response. `read_to_end` waits for that, within the test's own limit.
        let ended = tokio::time::timeout(std::time::Duration::from_secs(20), stream.read_to_end(&mut answer)).await;
        assert!(ended.is_ok(), "after {sent:?} the server went on waiting");
    }
    assert_eq!(client.turn("still well?").await["status"], "completed");
}

#[tokio::test]
async fn a_full_queue_and_a_full_house_say_so() {
    let (model, gate) = (Scripted::answering(|_| Reply::text("yes")), Gate::new());
    model.push(Reply::text("slowly").held_by(&gate));
    let settings = [("QUEUE_ITEMS_MAX", "2"), ("SESSIONS_OPEN_MAX", "2")];
    let server = Server::start(model, &settings).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    for expected in ["accepted", "accepted", "accepted", "error"] {
        let reply = client.ask("user_input", json!({ "input": "hi" })).await;
        assert_eq!(reply["type"], expected, "{reply}");
    }
    let full = client.seen.iter().rfind(|frame| frame["type"] == "error").unwrap()["payload"].clone();
    assert_eq!((&full["code"], &full["retriable"]), (&json!("queue_full"), &json!(true)), "{full}");

    let _second = Client::v2_session(&server.ws()).await;
    let mut third = Client::v2(&server.ws()).await;
    let refused = third.ask("open_session", json!({})).await;
    assert_eq!(refused["payload"]["code"], "overloaded", "{refused}");
    gate.open();
    for _ in 0..3 {
        assert_eq!(client.event("turn_finished").await["payload"]["status"], "completed");
    }
}
