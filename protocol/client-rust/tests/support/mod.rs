//! A scripted server on a socket of this machine.

use futures_util::{Sink, Stream};
use reseed_client::Address;
use reseed_protocol::SUBPROTOCOL_V2;
use serde_json::{Value, json};
use std::{future::poll_fn, pin::Pin};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async,
    tungstenite::{
        Message,
        handshake::server::{ErrorResponse, Request, Response},
        http::HeaderValue,
        protocol::{CloseFrame, frame::coding::CloseCode},
    },
};

/// A server that does what the test says.
pub(crate) struct Server {
    listener: TcpListener,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").await.expect("there is a free port") }
    }

    pub(crate) fn address(&self) -> Address {
        self.address_of("ws")
    }

    pub(crate) fn address_of(&self, scheme: &str) -> Address {
        let here = self.listener.local_addr().expect("it is bound");
        format!("{scheme}://{here}").parse().expect("it is an address")
    }

    /// Takes the next connection, before its upgrade.
    pub(crate) async fn accept_tcp(&self) -> TcpStream {
        self.listener.accept().await.expect("a client connects").0
    }

    /// Takes the next connection and upgrades it.
    pub(crate) async fn accept(&self) -> Peer {
        let choose = |request: &Request, mut response: Response| -> Result<Response, ErrorResponse> {
            assert_eq!(request.headers()["sec-websocket-protocol"], SUBPROTOCOL_V2);
            let chosen = HeaderValue::from_static(SUBPROTOCOL_V2);
            response.headers_mut().insert("sec-websocket-protocol", chosen);
            Ok(response)
        };
        Peer { stream: accept_hdr_async(self.accept_tcp().await, choose).await.expect("it upgrades") }
    }

    /// Takes the next connection and welcomes it. Returns what it said.
    pub(crate) async fn welcome(&self) -> (Peer, Value) {
        let mut peer = self.accept().await;
        let hello = peer.read("hello").await;
        peer.reply(&hello, example("replies/welcome.json")).await;
        (peer, hello)
    }

    /// Answers the upgrade of the next connection with this status.
    pub(crate) async fn refuse(&self, status: &str) {
        let mut stream = self.accept_tcp().await;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("the client asks for an upgrade"));
        }
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.expect("the client reads");
        stream.shutdown().await.expect("it is still there");
    }
}

/// A client as the server sees it.
pub(crate) struct Peer {
    stream: WebSocketStream<TcpStream>,
}

impl Peer {
    /// Returns the next message; `None` once the client has gone.
    pub(crate) async fn message(&mut self) -> Option<Message> {
        poll_fn(|cx| Pin::new(&mut self.stream).poll_next(cx)).await?.ok()
    }

    /// Returns the next frame, which is a command of this name.
    pub(crate) async fn read(&mut self, name: &str) -> Value {
        let message = self.message().await.expect("the client says something");
        let frame: Value = serde_json::from_str(message.to_text().expect("it is text")).expect("it is JSON");
        assert_eq!(frame["type"], name, "{frame}");
        frame
    }

    pub(crate) async fn send(&mut self, message: Message) {
        poll_fn(|cx| Pin::new(&mut self.stream).poll_ready(cx)).await.expect("the client is there");
        Pin::new(&mut self.stream).start_send(message).expect("it can be sent");
        poll_fn(|cx| Pin::new(&mut self.stream).poll_flush(cx)).await.expect("the client is there");
    }

    pub(crate) async fn write(&mut self, frame: &Value) {
        self.send(Message::text(frame.to_string())).await;
    }

    /// Sends a durable event of the session `ses` in pieces, between which the client may run.
    pub(crate) async fn event_in_pieces(&mut self, seq: u64, bytes: usize, random: &mut fastrand::Rng) {
        let payload = json!({"name": "x".repeat(bytes)});
        let frame = json!({"sessionId": "ses", "seq": seq, "type": "session_updated", "payload": payload}).to_string();
        let length = u16::try_from(frame.len()).expect("it is a short frame");
        // The head of a text frame, which a server does not mask.
        let mut whole = vec![0x81, 126];
        whole.extend(length.to_be_bytes());
        whole.extend(frame.as_bytes());
        let mut rest = whole.as_slice();
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(random.usize(1..=rest.len()));
            self.write_raw(piece).await;
            tokio::task::yield_now().await;
            rest = behind;
        }
    }

    /// Sends bytes that are no frame, or half of one.
    pub(crate) async fn write_raw(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).await.expect("the client is there");
    }

    pub(crate) async fn reply(&mut self, command: &Value, mut reply: Value) {
        reply["re"] = command["id"].clone();
        self.write(&reply).await;
    }

    pub(crate) async fn done(&mut self, command: &Value) {
        self.reply(command, json!({"type": "ok", "payload": {}})).await;
    }

    /// Opens the session `ses` for the command that comes next, and returns that.
    pub(crate) async fn opens(&mut self, fields: Value) -> Value {
        let command = self.read("open_session").await;
        let mut opened = example("replies/session_opened.json");
        (opened["sessionId"], opened["payload"]["sessionId"]) = (json!("ses"), json!("ses"));
        for (field, value) in fields.as_object().expect("fields are an object") {
            opened["payload"][field] = value.clone();
        }
        self.reply(&command, opened).await;
        command
    }

    /// Sends a durable event of the session `ses` with a name of this length.
    pub(crate) async fn event(&mut self, seq: u64, bytes: usize) {
        let payload = json!({"name": "x".repeat(bytes)});
        self.write(&json!({"sessionId": "ses", "seq": seq, "type": "session_updated", "payload": payload})).await;
    }

    pub(crate) async fn close(&mut self, code: u16) {
        let frame = CloseFrame { code: CloseCode::from(code), reason: "".into() };
        self.send(Message::Close(Some(frame))).await;
    }
}

/// Returns the example frame with this path.
pub(crate) fn example(path: &str) -> Value {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/v2");
    let text = std::fs::read_to_string(format!("{root}/{path}")).expect("there is such an example");
    serde_json::from_str(&text).expect("an example is JSON")
}
