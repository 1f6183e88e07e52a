//! Runs a case: a server with two users, a connection in the case's state, and a witness.

use crate::support::scripted::{Gate, Reply, Scripted};
use crate::support::{client::Client, server::Server};
use reseed::core::model::{ModelRequest, Purpose};
use reseed_protocol::{
    ErrorBody, ErrorCode, Part,
    command::{Address, Command},
    v1,
};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// Bytes of the largest message; `rfc6455` tests longer ones.
const MESSAGE_BYTES_MAX: &str = "2097152";

const ANN: &str = "Bearer token-of-ann-0123456789";
const BOB: &str = "Bearer token-of-bob-0123456789";

/// The connection's state before the case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    /// Nothing.
    Silent,
    /// It requested the subprotocol of v2.
    Negotiated,
    /// `hello` was answered.
    Greeted,
    /// A new session is open.
    Open,
    /// A turn completed in it.
    Said,
    /// A turn is running.
    Running,
    /// The session is being compacted.
    Compacting,
    /// It observes a session owned by another connection.
    Observing,
    /// It used v1 and has no session.
    V1,
    /// It completed a turn over v1.
    V1Said,
}

/// A connection in its state.
struct Place {
    client: Client,
    session: Option<String>,
    turn: String,
    /// The id of the command that sent input.
    used: String,
    owner: Option<Client>,
}

/// Runs cases one after the other.
pub(super) struct Bench {
    server: Server,
    gate: Arc<Mutex<Gate>>,
    witness: Client,
    /// A session of the other user.
    foreign: String,
}

impl Bench {
    pub(super) async fn start() -> Self {
        let gate = Arc::new(Mutex::new(Gate::new()));
        let model = Scripted::answering(script(gate.clone()));
        let tokens = "ann:token-of-ann-0123456789,bob:token-of-bob-0123456789";
        let settings = [
            ("AUTH_TOKENS", tokens),
            ("MESSAGE_BYTES_MAX", MESSAGE_BYTES_MAX),
            ("CONTEXT_WINDOW", "20000"),
            ("QUEUE_ITEMS_MAX", "1"),
        ];
        let server = Server::start(model, &settings).await;
        let mut bob = connect(&server, BOB, &[]).await;
        greet(&mut bob).await;
        let foreign = open(&mut bob, json!({})).await;
        bob.turn("bob was here").await;
        let mut witness = connect(&server, ANN, &[]).await;
        greet(&mut witness).await;
        open(&mut witness, json!({})).await;
        Self { server, gate, witness, foreign }
    }

    /// Sends `text` from a connection in the state `at`. The reply must be exactly one error with this code that names
    /// this field (empty for none); nothing else may change; the same connection and another one must be able to
    /// complete a turn afterwards.
    pub(super) async fn check(&mut self, at: At, text: &str, code: &str, field: &str) {
        let mut place = self.enter(at).await;
        let text = match at {
            At::V1 | At::V1Said => text.to_owned(),
            _ => addressed(text),
        };
        let sent = self.filled(&text, &mut place);
        let shown: String = format!("{at:?}: {}", sent.chars().take(200).collect::<String>());
        let before = self.state(&place).await;
        place.client.send_raw(sent.clone()).await;
        let error = place.client.until(|frame| frame["type"] == "error").await;
        judge(&shown, &sent, &error, code, field);
        assert_eq!(self.state(&place).await, before, "{shown}: something was changed");
        self.go_on(at, &mut place).await;
        let errors = place.client.seen.iter().filter(|frame| frame["type"] == "error").count();
        assert_eq!(errors, 1, "{shown}: {:#?}", place.client.seen);
        let finished = self.witness.turn("is all well?").await;
        assert_eq!(finished["status"], "completed", "{shown}");
    }

    /// Like [`Self::check`], for a command with a fresh id.
    pub(super) async fn check_command(&mut self, at: At, kind: &str, payload: &str, code: &str, field: &str) {
        let text = format!(r#"{{"id":"$ID","type":"{kind}","payload":{payload}}}"#);
        self.check(at, &text, code, field).await;
    }

    /// Returns the sessions, and the entries of the connection's own.
    async fn state(&mut self, place: &Place) -> (Vec<Value>, Value) {
        let list = self.witness.ask("list_sessions", json!({ "limit": 200 })).await;
        let sessions = list["payload"]["items"].as_array().unwrap().iter().map(|item| item["sessionId"].clone());
        let entries = match &place.session {
            Some(session) => self.witness.ask("get_entries", json!({ "sessionId": session })).await["payload"].clone(),
            None => Value::Null,
        };
        (sessions.collect(), entries)
    }

    /// Replaces the case's placeholders by values that differ each time.
    fn filled(&self, text: &str, place: &mut Place) -> String {
        let id = place.client.id();
        text.replace("$ID", &id)
            .replace("$SESSION", place.session.as_deref().unwrap_or("none"))
            .replace("$FOREIGN", &self.foreign)
            .replace("$TURN", &place.turn)
            .replace("$USED", &place.used)
    }

    async fn enter(&mut self, at: At) -> Place {
        *self.gate.lock().unwrap() = Gate::new();
        let subprotocol: &[(&str, &str)] = match at {
            At::Negotiated => &[("sec-websocket-protocol", "reseed.v2")],
            _ => &[],
        };
        let client = connect(&self.server, ANN, subprotocol).await;
        let mut place = Place { client, session: None, turn: String::new(), used: String::new(), owner: None };
        let client = &mut place.client;
        match at {
            At::Silent | At::Negotiated => return place,
            At::V1 | At::V1Said => {
                if at == At::V1Said {
                    older_turn(client).await;
                }
                client.send_raw(r#"{"id":"1","type":"get_context_info"}"#).await;
                let info = client.until(|frame| frame["id"] == "1").await;
                assert_eq!(info["type"], "context_info");
                if at == At::V1Said {
                    place.session = info["payload"]["sessionId"].as_str().map(str::to_owned);
                }
                return place;
            }
            _ => greet(client).await,
        }
        match at {
            At::Greeted => {}
            At::Observing => {
                let mut owner = connect(&self.server, ANN, &[]).await;
                greet(&mut owner).await;
                let session = open(&mut owner, json!({})).await;
                owner.turn("you may watch").await;
                open(client, json!({ "sessionId": session, "role": "observer" })).await;
                place.session = Some(session);
                place.owner = Some(owner);
            }
            _ => place.session = Some(open(client, json!({})).await),
        }
        if matches!(at, At::Said | At::Compacting) {
            place.used = client.send("user_input", json!({ "input": "hello ".repeat(100) })).await;
            place.turn = client.event("turn_finished").await["payload"]["turnId"].as_str().unwrap().to_owned();
        }
        if at == At::Running {
            place.used = client.send("user_input", json!({ "input": "hold" })).await;
            place.turn = client.event("turn_started").await["payload"]["turnId"].as_str().unwrap().to_owned();
        }
        if at == At::Compacting {
            client.turn("and again").await;
            let reply = client.ask("start_compaction", json!({})).await;
            assert_eq!(reply["type"], "ok", "{reply}");
            client.event("compaction_started").await;
        }
        place
    }

    /// Completes a turn on the connection, whatever its state.
    async fn go_on(&mut self, at: At, place: &mut Place) {
        self.gate.lock().unwrap().open();
        let client = &mut place.client;
        match at {
            // The error made it a v1 connection.
            At::Silent | At::V1 | At::V1Said => return older_turn(client).await,
            At::Negotiated => greet(client).await,
            At::Running => drop(client.event("turn_finished").await),
            At::Compacting => {
                client
                    .until(|frame| frame["type"] == "context_compacted" || frame["type"] == "compaction_failed")
                    .await;
            }
            At::Observing => {
                let owner = place.owner.as_mut().unwrap();
                assert_eq!(owner.turn("still there?").await["status"], "completed");
                assert_eq!(client.event("turn_finished").await["payload"]["status"], "completed");
                return;
            }
            At::Greeted | At::Open | At::Said => {}
        }
        if matches!(at, At::Negotiated | At::Greeted) {
            open(client, json!({})).await;
        }
        assert_eq!(client.turn("still there?").await["status"], "completed");
    }
}

/// Puts the session of a command into its envelope: the one that its payload begins with, or else the open one.
fn addressed(text: &str) -> String {
    let kind = text.split_once(r#""type":""#).and_then(|(_, rest)| rest.split_once('"')).map_or("", |(kind, _)| kind);
    let address = Command::spec_of(kind).map_or(Address::None, |spec| spec.address);
    let at_type = format!(r#""type":"{kind}""#);
    let with = |text: &str, session: &str| text.replacen(&at_type, &format!(r#"{at_type},"sessionId":"{session}""#), 1);
    let begins = r#""payload":{"sessionId":""#;
    match text.split_once(begins) {
        Some((before, rest)) if address != Address::None => {
            let (session, rest) = rest.split_once('"').unwrap();
            with(&format!(r#"{before}"payload":{{{}"#, rest.trim_start_matches(',')), session)
        }
        None if address == Address::Required && !text.contains("sessionId") => with(text, "$SESSION"),
        _ => text.to_owned(),
    }
}

/// Checks that an error says what was wrong, in the form of its version.
fn judge(shown: &str, sent: &str, error: &Value, code: &str, field: &str) {
    let payload = error["payload"].clone();
    let v2 = !payload["code"].is_null();
    let (found, message, named) = if !v2 {
        let error: v1::Error = serde_json::from_value(payload).unwrap_or_else(|fault| panic!("{shown}: {fault}"));
        (error.details.code, error.message, error.details.field)
    } else {
        let error: ErrorBody = serde_json::from_value(payload).unwrap_or_else(|fault| panic!("{shown}: {fault}"));
        assert_eq!(error.retriable, error.code.is_retriable(), "{shown}");
        let named = error.details.as_ref().and_then(|details| details["field"].as_str().map(str::to_owned));
        (error.code, error.message, named)
    };
    assert_eq!((found.as_str(), named.unwrap_or_default().as_str()), (code, field), "{shown}: {message}");
    assert!(!message.is_empty() && message.len() < 1_000, "{shown}: {message}");
    // The reply names its command if the command has a readable id. v1's errors have none.
    let id = reseed_protocol::frame::peek_id(sent).filter(|_| v2);
    if found != ErrorCode::InvalidId {
        assert_eq!(error["re"], json!(id), "{shown}");
    }
}

pub(super) async fn connect(server: &Server, token: &str, headers: &[(&'static str, &str)]) -> Client {
    let headers: Vec<_> = headers.iter().copied().chain([("authorization", token)]).collect();
    Client::connect_with(&server.ws(), &headers).await
}

async fn greet(client: &mut Client) {
    let welcome = client.ask("hello", json!({ "protocolVersion": 2 })).await;
    assert_eq!(welcome["type"], "welcome", "{welcome}");
}

/// Opens a session and returns its id.
async fn open(client: &mut Client, payload: Value) -> String {
    let opened = client.ask("open_session", payload).await;
    assert_eq!(opened["type"], "session_opened", "{opened}");
    opened["payload"]["sessionId"].as_str().unwrap().to_owned()
}

/// Completes a turn over v1.
pub(super) async fn older_turn(client: &mut Client) {
    let item = json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "hello" }] });
    client.send("user_input", json!({ "input": [item] })).await;
    let said = client.event("response_item").await;
    assert_eq!(said["payload"]["content"][0]["text"], "Understood.");
    client.event("agent_finished").await;
}

/// Answers at once, unless the input says to hold or a summary is requested: those wait for the gate.
fn script(gate: Arc<Mutex<Gate>>) -> impl FnMut(&ModelRequest) -> Reply + Send {
    move |request| {
        let last = request.messages().last().and_then(|last| last.message.content.last().cloned());
        let holds = matches!(last, Some(Part::Text { text }) if text == "hold");
        let reply = Reply::text("Understood.");
        if holds || request.purpose == Purpose::Summary { reply.held_by(&gate.lock().unwrap()) } else { reply }
    }
}
