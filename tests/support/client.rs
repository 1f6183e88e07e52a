//! A client that exchanges frames: it sends JSON and waits for a given frame. If that does not arrive in time, the test
//! fails and shows what arrived instead.

use super::notes::{self, Kind};
use reseed_client::{Address as Url, Lost, Message, Socket};
use reseed_protocol::{
    ErrorCode,
    command::{
        Address, Command,
        outcomes::{OF_A_FRAME, OF_ANY},
    },
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

/// The time limit for a frame on a machine that is busy with other tests; only a failing test reaches it.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Client {
    socket: Socket,
    /// Frames that arrived while another one was awaited.
    waiting: VecDeque<Value>,
    /// Every frame received, for the message of a failure.
    pub(crate) seen: Vec<Value>,
    next: u64,
    name: String,
    /// The commands that were sent under each id.
    sent: BTreeMap<String, Vec<String>>,
    /// True after `hello`: frames name their session, and replies their command in `re`.
    is_v2: bool,
    /// The session that was opened last: commands are about it, unless their payload names another.
    pub(crate) session: Option<String>,
}

impl Client {
    /// Connects without sending anything.
    pub(crate) async fn connect(url: &str) -> Self {
        Self::connect_with(url, &[]).await
    }

    /// Connects with headers.
    pub(crate) async fn connect_with(url: &str, headers: &[(&str, &str)]) -> Self {
        let connected = Socket::open_with(&Url::exactly(url).unwrap(), headers).await;
        let socket = connected.unwrap_or_else(|lost| panic!("connect to {url}: {lost}"));
        let name = format!("{:08x}", fastrand::u32(..));
        let (waiting, sent) = (VecDeque::new(), BTreeMap::new());
        Self { socket, waiting, seen: Vec::new(), next: 0, name, sent, is_v2: false, session: None }
    }

    /// Connects and sends hello.
    pub(crate) async fn v2(url: &str) -> Self {
        let mut client = Self::connect(url).await;
        let welcome = client.ask("hello", json!({ "protocolVersion": 2 })).await;
        assert_eq!(welcome["type"], "welcome", "{welcome}");
        client
    }

    /// Connects, sends hello and opens a new session; also returns `session_opened`'s payload.
    pub(crate) async fn v2_session(url: &str) -> (Self, Value) {
        let mut client = Self::v2(url).await;
        let opened = client.ask("open_session", json!({})).await;
        assert_eq!(opened["type"], "session_opened", "{opened}");
        (client, opened["payload"].clone())
    }

    /// Returns a new command id.
    pub(crate) fn id(&mut self) -> String {
        self.next += 1;
        format!("{}-test-{:06}", self.name, self.next)
    }

    /// Sends text unchanged.
    pub(crate) async fn send_raw(&mut self, text: impl Into<String>) {
        let text = text.into();
        self.remember(&text);
        self.send_message(Message::text(text)).await;
    }

    /// Remembers which command a frame sends under its id.
    fn remember(&mut self, text: &str) {
        let Ok(frame) = serde_json::from_str::<Value>(text) else { return };
        if let (Some(id), Some(kind)) = (frame["id"].as_str(), frame["type"].as_str()) {
            self.sent.entry(id.to_owned()).or_default().push(kind.to_owned());
        }
    }

    /// Sends any WebSocket message.
    pub(crate) async fn send_message(&mut self, message: Message) {
        let sent = self.socket.send_message(message).await;
        sent.unwrap_or_else(|lost| panic!("send: {lost}; seen {:#?}", self.seen));
    }

    /// Sends a command under a new id, which it returns.
    pub(crate) async fn send(&mut self, kind: &str, payload: Value) -> String {
        let id = self.id();
        self.send_as(&id, kind, payload).await;
        id
    }

    /// Sends a command under this id. A `sessionId` in its payload is the session that it is about.
    pub(crate) async fn send_as(&mut self, id: &str, kind: &str, payload: Value) {
        let frame = self.frame(id, kind, payload);
        self.send_raw(frame.to_string()).await;
    }

    /// Returns the frame of a command, as [`Self::send_as`] sends it.
    pub(crate) fn frame(&mut self, id: &str, kind: &str, mut payload: Value) -> Value {
        self.is_v2 |= kind == "hello";
        let address = Command::spec_of(kind).map_or(Address::None, |spec| spec.address);
        if !self.is_v2 || address == Address::None {
            return json!({ "id": id, "type": kind, "payload": payload });
        }
        let named = payload.as_object_mut().and_then(|payload| payload.remove("sessionId"));
        // A client without a session names one that does not exist.
        let last = || json!(self.session.as_deref().unwrap_or("nowhere"));
        let about_last = address == Address::Required || kind == "ping" && payload.get("seq").is_some();
        match named.or_else(|| about_last.then(last)) {
            Some(session) => json!({ "id": id, "sessionId": session, "type": kind, "payload": payload }),
            None => json!({ "id": id, "type": kind, "payload": payload }),
        }
    }

    /// Sends a command and waits for its reply; earlier events are kept.
    pub(crate) async fn ask(&mut self, kind: &str, payload: Value) -> Value {
        let id = self.send(kind, payload).await;
        let key = if self.is_v2 { "re" } else { "id" };
        self.until(|frame| frame[key] == id.as_str()).await
    }

    /// Sends input on v2 and waits for the turn's end; returns `turn_finished`'s payload.
    pub(crate) async fn turn(&mut self, text: &str) -> Value {
        let accepted = self.ask("user_input", json!({ "input": text })).await;
        assert_eq!(accepted["type"], "accepted", "{accepted}");
        self.event("turn_finished").await["payload"].clone()
    }

    /// Returns the newest `seq` that it has seen; 0 if none.
    #[allow(dead_code, reason = "not every binary of tests needs it")]
    pub(crate) fn newest_seq(&self) -> u64 {
        self.seen.iter().filter_map(|frame| frame["seq"].as_u64()).max().unwrap_or(0)
    }

    /// Waits for an event of this type; other events before it are kept.
    pub(crate) async fn event(&mut self, kind: &str) -> Value {
        self.until(|frame| frame["type"] == kind).await
    }

    /// Drops the frames that arrived without being awaited. Returns those of this type.
    pub(crate) fn forget(&mut self, kind: &str) -> Vec<Value> {
        self.waiting.drain(..).filter(|frame| frame["type"] == kind).collect()
    }

    /// Waits for the next frame of any type; `None` if the socket is closed.
    pub(crate) async fn next_frame(&mut self) -> Option<Value> {
        if let Some(frame) = self.waiting.pop_front() {
            return Some(frame);
        }
        self.receive().await.ok()
    }

    /// Waits for a frame that `wanted` accepts; earlier ones are kept.
    pub(crate) async fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.waiting.iter().position(&wanted) {
            return self.waiting.remove(at).unwrap();
        }
        loop {
            match self.receive().await {
                Ok(frame) if wanted(&frame) => return frame,
                Ok(frame) => self.waiting.push_back(frame),
                Err(lost) => panic!("lost before the frame came: {lost:?}; seen {:#?}", self.seen),
            }
        }
    }

    /// Waits until the server closes; returns the code, or 1006 without one.
    pub(crate) async fn closed(&mut self) -> u16 {
        self.closed_because().await.0
    }

    /// Waits until the server closes; returns the code, or 1006 without one, and the reason.
    pub(crate) async fn closed_because(&mut self) -> (u16, String) {
        loop {
            if let Err(lost) = self.receive().await {
                return (lost.code(), lost.to_string());
            }
        }
    }

    /// Disconnects without a close frame.
    pub(crate) fn hang_up(self) {
        drop(self);
    }

    async fn receive(&mut self) -> Result<Value, Lost> {
        // One limit applies to all of it, because the server's pings arrive more often than that.
        let received = tokio::time::timeout(PATIENCE, self.socket.receive()).await;
        let received = received.unwrap_or_else(|_| panic!("nothing came for {PATIENCE:?}; seen {:#?}", self.seen));
        let text = received?;
        let frame: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        if frame["type"] == "session_opened" {
            self.session = frame["payload"]["sessionId"].as_str().map(str::to_owned);
        }
        self.seen.push(frame.clone());
        self.check_reply(&frame);
        // Only v2 has `re`, also before `hello`.
        if self.is_v2 || frame.get("re").is_some() {
            self.note(&frame);
        }
        Ok(frame)
    }

    /// Checks that a reply is one that the table of commands allows.
    fn check_reply(&self, frame: &Value) {
        let sent = frame["re"].as_str().and_then(|id| self.sent.get(id));
        let Some(kinds) = sent.filter(|kinds| kinds.iter().all(|kind| Command::spec_of(kind).is_some())) else {
            return;
        };
        let allows = |kind: &str| match frame["type"].as_str() {
            Some("error") => {
                let code: Result<ErrorCode, _> = serde_json::from_value(frame["payload"]["code"].clone());
                let row = Command::spec_of(kind);
                let (Ok(code), Some(row)) = (code, row) else { return false };
                row.own_errors().contains(&code) || OF_ANY.contains(&code) || OF_A_FRAME.contains(&code)
            }
            reply => reply == Command::spec_of(kind).map(|spec| spec.reply),
        };
        assert!(kinds.iter().any(|kind| allows(kind)), "the table of commands does not allow {kinds:?} to get {frame}");
    }

    /// Notes which command the frame is a reply to, or an event of.
    fn note(&self, frame: &Value) {
        let (payload, kind) = (&frame["payload"], frame["type"].as_str().unwrap_or_default());
        // An id that several commands were sent under does not show which of them the frame is about.
        let command = |id: &Value| {
            let sent = self.sent.get(id.as_str()?)?;
            sent.iter().all(|command| *command == sent[0]).then_some(sent[0].as_str())
        };
        if kind == "error" {
            let code = payload["code"].as_str().unwrap_or_default();
            notes::note(command(&frame["re"]).unwrap_or(notes::NONE), Kind::Error, code);
        } else if frame.get("re").is_some() {
            notes::note(command(&frame["re"]).unwrap_or(notes::NONE), Kind::Reply, kind);
        } else {
            notes::note(notes::NONE, Kind::Event, kind);
            for code in [&payload["error"]["code"], &payload["reason"]].into_iter().filter_map(Value::as_str) {
                notes::note(kind, Kind::Carried, code);
            }
            let many = payload["commandIds"].as_array().into_iter().flatten();
            let one = [&payload["commandId"], &payload["item"]["commandId"], &payload["cancelledBy"]];
            for command in many.chain(one).filter_map(command) {
                notes::note(command, Kind::Event, kind);
            }
        }
    }
}
