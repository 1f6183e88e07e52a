//! Tests of the whole client against a small server that plays a script.

use super::*;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async,
    tungstenite::{
        Message,
        handshake::server::{Request, Response},
        protocol::CloseFrame,
    },
};

/// The next action of the scripted server.
enum Act {
    /// Waits for a command of this type; the frames that follow may name its id as `ID`.
    Expect(&'static str),
    Send(Value),
    /// Closes with this code.
    Close(u16),
    /// Drops the connection without closing it.
    Drop,
}
use Act::{Close, Drop, Expect, Send};

/// Every command that the server saw.
#[derive(Default)]
struct Seen {
    commands: Vec<Value>,
}

/// Plays a script to each connection in turn.
async fn server(scripts: Vec<Vec<Act>>) -> (String, JoinHandle<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        let mut seen = Seen::default();
        for script in scripts {
            let (stream, _) = listener.accept().await.unwrap();
            play(stream, script, &mut seen).await;
        }
        seen
    });
    (url, task)
}

async fn play(stream: TcpStream, script: Vec<Act>, seen: &mut Seen) {
    let upgrade = |request: &Request, mut response: Response| {
        assert_eq!(request.uri().path(), "/ws");
        assert_eq!(request.headers()["sec-websocket-protocol"], "reseed.v2");
        response.headers_mut().insert("sec-websocket-protocol", "reseed.v2".parse().unwrap());
        Ok(response)
    };
    let mut socket: WebSocketStream<TcpStream> = accept_hdr_async(stream, upgrade).await.unwrap();
    let mut id = Value::Null;
    for act in script {
        match act {
            Expect(kind) => {
                let text = socket.next().await.expect("the client went away").unwrap().into_text().unwrap();
                let command: Value = serde_json::from_str(&text).unwrap();
                assert_eq!(command["type"], kind);
                id = command["id"].clone();
                seen.commands.push(command);
            }
            Send(mut frame) => {
                if frame["re"] == "ID" {
                    frame["re"] = id.clone();
                }
                let frame = whole(&frame.to_string()).replace("\"COMMAND\"", &id.to_string());
                socket.send(Message::text(frame)).await.unwrap();
            }
            Close(code) => {
                let frame = CloseFrame { code: code.into(), reason: "".into() };
                socket.close(Some(frame)).await.unwrap();
            }
            Drop => return,
        }
    }
    while let Some(Ok(message)) = socket.next().await {
        // On leaving, the client closes the session.
        let is_more =
            message.to_text().is_ok_and(|text| message.is_text() && !text.contains(r#""type":"close_session""#));
        assert!(!is_more, "the client sent more than the script expects: {message}");
    }
}

fn event(seq: u64, kind: &str, payload: Value) -> Act {
    Send(json!({ "sessionId": "ses", "seq": seq, "type": kind, "payload": payload }))
}

fn ephemeral(kind: &str, payload: Value) -> Act {
    Send(json!({ "sessionId": "ses", "type": kind, "payload": payload }))
}

fn reply(kind: &str, payload: Value) -> Act {
    Send(json!({ "re": "ID", "type": kind, "payload": payload }))
}

fn opened(more: Value) -> Act {
    let mut payload = json!({
        "sessionId": "ses", "epoch": "ep", "asOfSeq": 0, "model": "offline", "strategy": "threshold", "queue": [],
    });
    payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    reply("session_opened", payload)
}

fn message(entry: &str, role: &str, text: &str) -> Value {
    json!({ "entryId": entry, "parentId": null, "timestamp": "2026-11-21T09:00:00.000Z", "type": "message",
            "role": role, "content": [{ "type": "text", "text": text }] })
}

/// Returns the turn `turn` up to its answer. Its durable events follow `seq`.
fn question(seq: u64, turn: &str) -> Vec<Act> {
    vec![
        Expect("user_input"),
        reply("accepted", json!({ "turnId": turn, "queued": false, "asOfSeq": seq })),
        event(
            seq + 1,
            "entry_appended",
            json!({ "entry": message(&format!("u{turn}"), "user", "?"), "commandId": "COMMAND" }),
        ),
        event(seq + 2, "turn_started", json!({ "turnId": turn, "commandIds": ["COMMAND"], "generation": 1 })),
        ephemeral("item_started", json!({ "itemId": format!("a{turn}"), "turnId": turn, "kind": "message" })),
    ]
}

fn answer(seq: u64, turn: &str, text: &str) -> Vec<Act> {
    vec![
        event(
            seq + 3,
            "entry_appended",
            json!({ "entry": message(&format!("a{turn}"), "assistant", text), "turnId": turn }),
        ),
        event(seq + 4, "turn_finished", json!({ "turnId": turn, "status": "completed", "finishReason": "stop" })),
    ]
}

fn delta(turn: &str, offset: u64, text: &str) -> Act {
    ephemeral("item_delta", json!({ "itemId": format!("a{turn}"), "part": 0, "offset": offset, "text": text }))
}

impl Output for &mut Vec<u8> {}

/// Chats through pipes with these lines. Returns the result and what was printed.
async fn chat(url: &str, token: Option<&str>, lines: &str) -> (anyhow::Result<()>, String) {
    let options = ChatOptions { url: None, prompt: None, token: token.map(str::to_owned), session: None };
    let chat = Chat { screen: Screen { color: false }, watched: false };
    let mut output = Vec::new();
    let lines = lines_of(std::io::Cursor::new(lines.to_owned().into_bytes()));
    let chatting = async { chat.run(chat.connect(url, &options).await?, lines, &mut output).await };
    let ended = tokio::time::timeout(Duration::from_secs(20), chatting).await;
    (ended.expect("the chat ends"), String::from_utf8(output).unwrap())
}

/// The last line of each turn.
const USAGE: &str = "context: 1.0 %, 81 / 8,000 tokens\n";

const HEAD: &str = "session ses, model offline, strategy threshold\n";

fn greeting(opening: Value) -> Vec<Act> {
    let server = json!({ "name": "reseed", "version": "1", "instance": "i", "provider": "offline" });
    let limits = json!({ "messageBytesMax": 100_000, "depthMax": 1, "queueItemsMax": 1, "toolsMax": 1 });
    let welcome = json!({ "protocolVersion": 2, "server": server, "features": [], "scopes": [],
                          "connectionId": "c", "heartbeatMs": 30000, "limits": limits });
    vec![Expect("hello"), reply("welcome", welcome), Expect("open_session"), opened(opening)]
}

#[tokio::test]
async fn a_pipe_asks_one_question_after_the_other_and_ends_after_the_last_answer() {
    let script = [
        greeting(json!({})),
        question(0, "t1"),
        vec![delta("t1", 0, "one "), delta("t1", 4, "day")],
        answer(0, "t1", "one day"),
        // The second question may come only now. If the client sends it earlier, the script fails.
        question(4, "t2"),
        answer(4, "t2", "two days"),
    ];
    let (url, server) = server(vec![script.into_iter().flatten().collect()]).await;
    let (ended, shown) = chat(&url, Some("secret"), "first\n\nsecond").await;
    ended.unwrap();
    assert_eq!(shown, format!("{HEAD}one day\n{USAGE}two days\n{USAGE}"));
    let seen = server.await.unwrap();
    assert_eq!(seen.commands[0]["payload"]["token"], "secret");
    assert_eq!(seen.commands[2]["payload"]["input"], "first");
}

#[tokio::test]
async fn a_lost_connection_is_made_again_and_nothing_is_shown_twice_or_left_out() {
    let first = [greeting(json!({})), question(0, "t1"), vec![delta("t1", 0, "one "), Drop]];
    let second = [
        greeting(json!({ "resumed": "replay", "asOfSeq": 2, "turn": { "turnId": "t1", "items": [] } })),
        vec![delta("t1", 4, "day"), delta("t1", 4, "day")],
        answer(0, "t1", "one day"),
    ];
    let (url, server) =
        server(vec![first.into_iter().flatten().collect(), second.into_iter().flatten().collect()]).await;
    let (ended, shown) = chat(&url, None, "first").await;
    ended.unwrap();
    let told = shown.strip_prefix(&format!("{HEAD}one \n")).unwrap_or_else(|| panic!("{shown}"));
    assert!(told.ends_with(&format!("; reconnecting\nday\n{USAGE}")), "{shown}");
    let resume = server.await.unwrap().commands[4]["payload"]["resume"].clone();
    assert_eq!(resume, json!({ "epoch": "ep", "seq": 2, "items": [{ "itemId": "at1", "part": 0, "offset": 4 }] }));
}

#[tokio::test]
async fn a_command_without_a_reply_is_sent_again_unchanged() {
    let first = vec![greeting(json!({})), vec![Expect("user_input"), Close(1012)]];
    let second = [greeting(json!({ "resumed": "replay" })), question(0, "t1"), answer(0, "t1", "one day")];
    let (url, server) =
        server(vec![first.into_iter().flatten().collect(), second.into_iter().flatten().collect()]).await;
    let (ended, shown) = chat(&url, None, "first").await;
    ended.unwrap();
    assert!(shown.ends_with(&format!("reconnecting\none day\n{USAGE}")), "{shown}");
    let commands = server.await.unwrap().commands;
    assert_eq!(commands[2], commands[5]);
}

#[tokio::test]
async fn a_close_code_that_says_so_ends_the_chat() {
    let (url, server) = server(vec![vec![Expect("hello"), Close(4401)]]).await;
    let (ended, _) = chat(&url, Some("wrong"), "first").await;
    assert_eq!(
        ended.unwrap_err().to_string(),
        "the credentials are missing, wrong or expired (closed with 4401); name a token of the server's with --token"
    );
    server.await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_not_there_ends_the_chat_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    drop(listener);
    let (ended, shown) = chat(&url, None, "first").await;
    assert!(ended.unwrap_err().to_string().starts_with(&format!("{url}/ws: ")), "the error names the address");
    assert_eq!(shown, "");
}

#[test]
fn lines_end_where_they_end_and_a_line_without_end_is_refused() {
    let mut input = std::io::Cursor::new(b"one\r\n\ntwo".to_vec());
    let lines: Vec<_> = std::iter::from_fn(|| read_line(&mut input).unwrap()).collect();
    assert_eq!(lines, ["one", "", "two"]);
    assert!(read_line(&mut std::io::BufReader::new(std::io::repeat(b'x'))).is_err());
}

/// Returns the frame of a script with all required fields. Fields that it leaves out come from the protocol's examples.
/// Text that is not JSON stays as it is.
pub(super) fn whole(frame: &str) -> String {
    let Ok(mut frame) = serde_json::from_str::<Value>(frame) else { return frame.to_owned() };
    let example = match frame["type"].as_str().unwrap_or_default() {
        "welcome" => "replies/welcome.json",
        "session_opened" => "replies/session_opened.json",
        "turn_finished" => "events/turn_finished.json",
        _ => return frame.to_string(),
    };
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("protocol/examples/v2");
    let example: Value = serde_json::from_str(&std::fs::read_to_string(root.join(example)).unwrap()).unwrap();
    let mut payload = example["payload"].clone();
    payload.as_object_mut().unwrap().extend(frame["payload"].as_object().unwrap().clone());
    frame["payload"] = payload;
    frame.to_string()
}
