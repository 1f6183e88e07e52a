//! Frames that violate RFC 6455, byte by byte over a plain socket: they get the required close code, and nobody else
//! notices.

use crate::support::scripted::{Reply, Scripted};
use crate::support::{client::Client, http, json::present, server::Server};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

const TEXT: u8 = 0x81;
const TEXT_BEGINS: u8 = 0x01;
const CONTINUES: u8 = 0x00;
const ENDS: u8 = 0x80;
const BINARY_BEGINS: u8 = 0x02;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;

const MASKED: u8 = 0x80;
const MASK: [u8; 4] = [0x5a, 0x17, 0xc3, 0x2e];

/// Bytes of the largest message that this server accepts.
const MESSAGE_BYTES_MAX: usize = 4096;

/// Returns a masked frame, as clients send it.
fn frame(head: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = masked_header(head, payload.len() as u64);
    bytes.extend(payload.iter().enumerate().map(|(at, byte)| byte ^ MASK[at % 4]));
    bytes
}

/// Returns the head of a masked frame that announces this many bytes.
fn masked_header(head: u8, length: u64) -> Vec<u8> {
    let mut bytes = vec![head];
    match length {
        0..=125 => bytes.push(MASKED | length as u8),
        126..=0xffff => {
            bytes.push(MASKED | 126);
            bytes.extend((length as u16).to_be_bytes());
        }
        _ => {
            bytes.push(MASKED | 127);
            bytes.extend(length.to_be_bytes());
        }
    }
    bytes.extend(MASK);
    bytes
}

/// The fault, the bytes, the close code.
fn cases() -> Vec<(&'static str, Vec<u8>, u16)> {
    let all = |frames: &[Vec<u8>]| frames.concat();
    let half = "{\"id\":\"1\",\"type\":\"ping\",\"payload\":{\"x\":\"gr\u{fc}n\"}}".as_bytes();
    let cut = half.iter().position(|byte| *byte == 0xc3).unwrap() + 1;
    let unmasked = [vec![TEXT, 2], b"{}".to_vec()].concat();
    vec![
        ("the first reserved bit", frame(TEXT | 0x40, b"{}"), 1002),
        ("the second reserved bit", frame(TEXT | 0x20, b"{}"), 1002),
        ("the third reserved bit", frame(TEXT | 0x10, b"{}"), 1002),
        ("an unknown opcode for data", frame(0x83, b"{}"), 1002),
        ("an unknown opcode for control", frame(0x8b, b""), 1002),
        ("a frame without a mask", unmasked, 1002),
        ("a continuation of nothing", frame(ENDS, b"{}"), 1002),
        ("a message within a message", all(&[frame(TEXT_BEGINS, b"{"), frame(TEXT, b"{}")]), 1002),
        ("a binary message within a message", all(&[frame(TEXT_BEGINS, b"{"), frame(BINARY_BEGINS, b"{}")]), 1002),
        ("a fragmented ping", frame(PING & 0x7f, b"a"), 1002),
        ("a fragmented close", frame(CLOSE & 0x7f, &1000u16.to_be_bytes()), 1002),
        ("a ping of 126 bytes", frame(PING, &[b'a'; 126]), 1002),
        ("a pong of 2,000 bytes", frame(PONG, &[b'a'; 2_000]), 1002),
        ("a close frame of one byte", frame(CLOSE, &[3]), 1002),
        ("a close code that is reserved", frame(CLOSE, &1005u16.to_be_bytes()), 1002),
        ("a close code that is none", frame(CLOSE, &999u16.to_be_bytes()), 1002),
        ("a text that is not UTF-8", frame(TEXT, &[b'{', 0xff, b'}']), 1007),
        ("half a character at the end", frame(TEXT, &half[..cut]), 1007),
        ("a broken character over two fragments", all(&[frame(TEXT_BEGINS, &half[..cut]), frame(ENDS, b"xyz")]), 1007),
        ("a surrogate in UTF-8", frame(TEXT, &[0xed, 0xa0, 0x80]), 1007),
        ("a message that is too large", frame(TEXT, &[b' '; MESSAGE_BYTES_MAX + 1]), 1009),
        ("a frame that says it is 8 MiB", masked_header(TEXT, 8 * 1024 * 1024), 1009),
        ("a frame that says it is 2^63 bytes", masked_header(TEXT, 1 << 63), 1009),
        ("a large message of which all was sent", frame(TEXT, &vec![b' '; 4 * 1024 * 1024]), 1009),
        (
            "fragments that are too large together",
            all(&[frame(TEXT_BEGINS, &[b' '; 3000]), frame(CONTINUES, &[b' '; 1000]), frame(ENDS, &[b' '; 1000])]),
            1009,
        ),
    ]
}

/// Returns a socket after its handshake.
async fn upgraded(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let request = format!(
        "GET /ws HTTP/1.1\r\nhost: {}\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        server.address()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    stream
}

/// Reads the next frame from the server: its opcode and payload. Servers do not mask.
async fn received(stream: &mut TcpStream) -> std::io::Result<(u8, Vec<u8>)> {
    let opcode = stream.read_u8().await? & 0x0f;
    let length = match stream.read_u8().await? {
        126 => u64::from(stream.read_u16().await?),
        127 => stream.read_u64().await?,
        short => u64::from(short),
    };
    let mut payload = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut payload).await?;
    Ok((opcode, payload))
}

/// Sends hello and opens a session; returns its id.
async fn open(stream: &mut TcpStream) -> String {
    for (kind, payload) in [("hello", json!({ "protocolVersion": 2 })), ("open_session", json!({}))] {
        let text = json!({ "id": format!("{kind}-of-this-test"), "type": kind, "payload": payload }).to_string();
        stream.write_all(&frame(TEXT, text.as_bytes())).await.unwrap();
    }
    loop {
        let (_, payload) = received(stream).await.unwrap();
        let frame: serde_json::Value = serde_json::from_slice(&payload).unwrap();
        if frame["type"] == "session_opened" {
            return frame["payload"]["sessionId"].as_str().unwrap().to_owned();
        }
    }
}

#[tokio::test]
async fn a_fault_of_the_protocol_is_closed_with_its_code() {
    let limit = MESSAGE_BYTES_MAX.to_string();
    let model = Scripted::answering(|_| Reply::text("yes"));
    let server = Server::start(model, &[("MESSAGE_BYTES_MAX", &limit)]).await;
    let (mut witness, _) = Client::v2_session(&server.ws()).await;
    for (what, bytes, code) in cases() {
        let mut stream = upgraded(&server).await;
        let session = open(&mut stream).await;
        let asked = json!({ "sessionId": session });
        let before = witness.ask("get_entries", asked.clone()).await["payload"].clone();
        // Everything is sent before anything is read: the code must still be readable, without a reset before it.
        stream.write_all(&bytes).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap_or_else(|error| panic!("{what}: {error} after {answer:?}"));
        assert_eq!(answer.first(), Some(&CLOSE), "{what}: {answer:?}");
        assert_eq!(u16::from_be_bytes([answer[2], answer[3]]), code, "{what}");
        assert_eq!(witness.ask("get_entries", asked.clone()).await["payload"], *present(&before), "{what}");
        assert_eq!(witness.turn("still well?").await["status"], "completed", "{what}");
        let mut heir = Client::v2(&server.ws()).await;
        assert_eq!(heir.ask("open_session", asked).await["type"], "session_opened", "{what}");
        assert_eq!(heir.turn("and this session?").await["status"], "completed", "{what}");
    }
}

#[tokio::test]
async fn what_the_protocol_allows_is_taken() {
    let server = Server::start(Scripted::answering(|_| Reply::text("yes")), &[]).await;
    let mut stream = upgraded(&server).await;
    open(&mut stream).await;
    let text = "{\"id\":\"p\",\"type\":\"ping\"}".as_bytes();
    // A fragmented text with a ping inside, an empty fragment, and an unsolicited pong.
    let frames = [
        frame(TEXT_BEGINS, &text[..5]),
        frame(PING, b"hi"),
        frame(CONTINUES, b""),
        frame(PONG, b""),
        frame(ENDS, &text[5..]),
    ];
    stream.write_all(&frames.concat()).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let (opcode, payload) = received(&mut stream).await.unwrap();
        match opcode {
            0x0a => assert_eq!(payload, b"hi"),
            _ if payload.starts_with(b"{\"re\":\"p\"") => {}
            _ => continue,
        }
        seen.push(opcode);
    }
    stream.write_all(&frame(CLOSE, &1000u16.to_be_bytes())).await.unwrap();
    let closed = loop {
        let (opcode, payload) = received(&mut stream).await.unwrap();
        if opcode == 0x08 {
            break payload;
        }
    };
    assert_eq!(closed, 1000u16.to_be_bytes());
}

#[tokio::test]
async fn pings_are_no_hello_and_a_silent_v1_client_owes_none() {
    let short = ("HELLO_TIMEOUT_SECS", "1");
    let start =
        async |settings: &[(&str, &str)]| Server::start(Scripted::answering(|_| Reply::text("yes")), settings).await;
    let guarded = start(&[short, ("AUTH_TOKENS", "ann:token-of-ann-0123456789")]).await;
    let open = start(&[short]).await;
    let mut silent = Client::connect(&open.ws()).await;
    let mut pinging = upgraded(&guarded).await;
    // The time limit of `hello` keeps running, whatever is sent instead.
    let closed = loop {
        let _ = pinging.write_all(&frame(PING, b"a")).await;
        match received(&mut pinging).await.unwrap() {
            (0x0a, _) => {}
            (opcode, payload) => break (opcode, payload),
        }
    };
    assert_eq!((closed.0, u16::from_be_bytes([closed.1[0], closed.1[1]])), (0x08, 4408));
    // Silent for even longer, and still admitted.
    silent.send("user_input", json!({ "input": [{ "role": "user", "content": "hi" }] })).await;
    silent.event("agent_finished").await;
}

#[tokio::test]
async fn an_opening_handshake_that_breaks_the_protocol_is_refused_wherever_it_is_made() {
    const UPGRADE: (&str, &str) = ("Upgrade", "websocket");
    const CONNECTION: (&str, &str) = ("Connection", "keep-alive, Upgrade");
    const KEY: (&str, &str) = ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
    const VERSION: (&str, &str) = ("Sec-WebSocket-Version", "13");
    type Headers<'a> = &'a [(&'a str, &'a str)];
    let server = Server::start(Scripted::answering(|_| Reply::text("yes")), &[]).await;
    let address = server.address();
    // The headers, the status, and what the response names.
    let table: [(Headers, u16, &str); 14] = [
        (&[CONNECTION, UPGRADE, VERSION, KEY], 101, ""),
        (&[CONNECTION, ("Upgrade", "WebSocket"), VERSION, KEY], 101, ""),
        (&[CONNECTION, UPGRADE, VERSION], 400, "no Sec-WebSocket-Key"),
        (&[CONNECTION, UPGRADE, VERSION, ("Sec-WebSocket-Key", "")], 400, "no Sec-WebSocket-Key"),
        (&[CONNECTION, UPGRADE, VERSION, ("Sec-WebSocket-Key", "abc")], 400, "16 bytes in base64"),
        (&[CONNECTION, UPGRADE, VERSION, ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZS4u")], 400, "16 bytes in base64"),
        (&[CONNECTION, UPGRADE, VERSION, ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25j*Q==")], 400, "16 bytes in base64"),
        (&[CONNECTION, UPGRADE, VERSION, KEY, KEY], 400, "must be present once"),
        (&[CONNECTION, UPGRADE, VERSION, KEY, ("Sec-WebSocket-Key", "")], 400, "must be present once"),
        (&[CONNECTION, UPGRADE, KEY], 400, "no Sec-WebSocket-Version"),
        (&[CONNECTION, UPGRADE, ("Sec-WebSocket-Version", "8"), KEY], 426, "Sec-WebSocket-Version is `8`"),
        (&[CONNECTION, UPGRADE, ("Sec-WebSocket-Version", "14")], 426, "Sec-WebSocket-Version is `14`"),
        (&[CONNECTION, UPGRADE, ("Sec-WebSocket-Version", "x")], 426, "this server supports 13"),
        (&[UPGRADE, VERSION, KEY], 400, "onnection"),
    ];
    for path in ["/", "/ws"] {
        for (headers, status, named) in table {
            let answered = http::ask(&address, "GET", path, headers).await;
            assert_eq!(answered.status, status, "{path} {headers:?}: {}", answered.body);
            assert!(answered.body.contains(named), "{path} {headers:?}: {}", answered.body);
            let version = answered.head.lines().find_map(|line| line.strip_prefix("sec-websocket-version: "));
            assert_eq!(version, (status == 426).then_some("13"), "{path} {headers:?}");
        }
    }
    // A request without an upgrade gets the page at `/`, and an error at `/ws`.
    for headers in [&[][..], &[("Connection", "keep-alive")], &[("Connection", "Upgrade"), ("Upgrade", "h2c")]] {
        let page = http::ask(&address, "GET", "/", headers).await;
        assert_eq!(page.status, 200, "{headers:?}");
        assert!(page.body.contains("<html"), "{headers:?}: {}", page.body);
        let told = http::ask(&address, "GET", "/ws", headers).await;
        assert_eq!((told.status, told.body.contains("only WebSocket upgrades")), (400, true), "{headers:?}");
    }
}
