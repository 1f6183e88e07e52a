//! Tests of a client against a scripted server, with frames as text and a clock that the test moves.

mod commands;
mod connection;
mod hosting;
mod random;
mod sessions;

use super::{Credentials, Identity, Machine, Output};
use crate::{
    ending::Lost,
    subscription::Opening,
    update::{Session, SessionEnd, SessionEvent, Stop, To, Unanswered, Update},
};
use reseed_protocol::{
    CommandId,
    command::{Command, Empty},
    session::{ListSessions, RenameSession},
};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// Maximum number of ticks in one wait. A client that is due continuously never rests.
const TICKS_MAX: usize = 10_000;

/// A client and its surroundings.
struct World {
    machine: Machine,
    now: Instant,
    /// True from the socket's creation until it is dropped.
    socket: bool,
    /// True once the server has welcomed the client on this socket.
    welcomed: bool,
    dials: usize,
    renewals: usize,
    sent: Vec<Value>,
    told: Vec<Update>,
    /// The id of the newest command of each name.
    newest: HashMap<String, Value>,
    /// The commands of the test by their ids.
    names: HashMap<CommandId, &'static str>,
}

impl World {
    /// Returns a client that has not been asked to connect.
    fn new() -> Self {
        let identity = Identity { client_id: "tab-4f2a9c".to_owned(), software: None };
        Self {
            machine: Machine::new(identity, fastrand::Rng::with_seed(7)),
            now: Instant::now(),
            socket: false,
            welcomed: false,
            dials: 0,
            renewals: 0,
            sent: Vec::new(),
            told: Vec::new(),
            newest: HashMap::new(),
            names: HashMap::new(),
        }
    }

    /// Returns a client that is connected and welcomed.
    fn open() -> Self {
        let mut world = Self::new();
        world.machine.connect(world.now);
        world.welcome();
        world.forget();
        world
    }

    /// Returns a client with an open session, which is at event 1.
    fn with_session() -> (Self, Session) {
        let mut world = Self::open();
        let session = world.machine.open(Some(id("ses")), Opening::default());
        world.opened(json!({"sessionId": "ses"}));
        world.forget();
        (world, session)
    }

    /// Executes the client's outputs.
    fn drain(&mut self) {
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Dial => self.dials += 1,
                Output::Renew => self.renewals += 1,
                Output::HangUp => (self.socket, self.welcomed) = (false, false),
                Output::Tell(update) => self.told.push(update),
                Output::Send(frame) => {
                    let frame: Value = serde_json::from_str(&frame).expect("a frame is JSON");
                    assert!(self.socket, "{frame} goes nowhere");
                    assert!(self.welcomed || frame["type"] == "hello", "{frame} goes out before welcome");
                    let name = frame["type"].as_str().expect("a type is text").to_owned();
                    self.newest.insert(name, frame["id"].clone());
                    self.sent.push(frame);
                }
            }
        }
    }

    /// Forgets all frames and updates so far.
    fn forget(&mut self) {
        self.forget_frames();
        self.told.clear();
    }

    fn forget_frames(&mut self) {
        self.drain();
        self.sent.clear();
    }

    fn forget_news(&mut self) {
        self.drain();
        self.told.clear();
    }

    // Events

    /// Creates the socket, so that `hello` is sent.
    fn connected(&mut self) {
        self.drain();
        self.socket = true;
        self.machine.connected(Credentials::None);
        self.drain();
    }

    /// Welcomes the client.
    fn welcome(&mut self) {
        self.welcome_with(&json!({}));
    }

    /// Welcomes the client, with other values for these fields.
    fn welcome_with(&mut self, fields: &Value) {
        self.connected();
        self.welcomed = true;
        let mut welcome = example("replies/welcome.json");
        for (field, value) in fields.as_object().expect("fields are an object") {
            match value {
                Value::Object(inner) => inner.iter().for_each(|(name, value)| {
                    welcome["payload"][field][name] = value.clone();
                }),
                value => welcome["payload"][field] = value.clone(),
            }
        }
        self.answer("hello", welcome);
    }

    /// Delivers a frame.
    fn frame(&mut self, frame: &Value) {
        self.machine.frame(self.now, &frame.to_string());
        self.drain();
    }

    /// Sends this reply to the newest command of this name.
    fn answer(&mut self, name: &str, mut reply: Value) {
        self.drain();
        reply["re"] = self.newest.get(name).unwrap_or_else(|| panic!("no {name} was sent")).clone();
        self.frame(&reply);
    }

    /// Reports success for the newest command of this name.
    fn done(&mut self, name: &str) {
        self.answer(name, json!({"type": "ok", "payload": {}}));
    }

    /// Refuses the newest command of this name.
    fn refuse(&mut self, name: &str, code: &str, retriable: bool) {
        let error = json!({"code": code, "message": code, "retriable": retriable});
        self.answer(name, json!({"type": "error", "payload": error}));
    }

    /// Answers the newest `open_session` with an open session, with other values for these fields.
    fn opened(&mut self, fields: Value) {
        let mut opened = example("replies/session_opened.json");
        for (field, value) in fields.as_object().expect("fields are an object") {
            opened["payload"][field] = value.clone();
        }
        opened["sessionId"] = opened["payload"]["sessionId"].clone();
        self.answer("open_session", opened);
    }

    /// Delivers a durable event of the session `ses`.
    fn event(&mut self, seq: u64) {
        let payload = json!({"name": format!("at {seq}")});
        self.frame(&json!({"sessionId": "ses", "seq": seq, "type": "session_updated", "payload": payload}));
    }

    fn closed_by_server(&mut self, code: &str, retriable: bool) {
        let payload = json!({"code": code, "message": "why", "retriable": retriable});
        self.frame(&json!({"sessionId": "ses", "type": "session_closed", "payload": payload}));
    }

    /// Breaks the connection.
    fn cut(&mut self) {
        self.lost(Lost::Broken("cut".to_owned()));
    }

    fn lost(&mut self, lost: Lost) {
        self.machine.lost(self.now, lost);
        self.drain();
    }

    /// Lets time pass. The client is called at each deadline that it has set.
    fn pass(&mut self, wait: Duration) {
        let end = self.now + wait;
        self.drain();
        for _ in 0..TICKS_MAX {
            match self.machine.deadline().filter(|deadline| *deadline <= end) {
                None => {
                    self.now = end;
                    return;
                }
                Some(deadline) => {
                    self.now = deadline.max(self.now);
                    self.machine.tick(self.now);
                    self.drain();
                }
            }
        }
        panic!("the client has no rest");
    }

    /// Lets time pass unnoticed by the client, as while the machine is suspended.
    fn sleep(&mut self, wait: Duration) {
        self.now += wait;
        self.machine.tick(self.now);
        self.drain();
    }

    /// Breaks the connection, and lets the next attempt succeed.
    fn reconnect_after_cut(&mut self) {
        self.cut();
        self.reconnect();
    }

    /// Waits for the next attempt, which succeeds.
    fn reconnect(&mut self) {
        let before = self.dials;
        for _ in 0..TICKS_MAX {
            if self.dials > before {
                return self.welcome();
            }
            self.now = self.machine.deadline().expect("it has not stopped").max(self.now);
            self.machine.tick(self.now);
            self.drain();
        }
        panic!("the client does not connect");
    }

    // Actions of the user

    fn send(&mut self, to: impl Into<To>, command: &Command) -> CommandId {
        let id = self.machine.send(to, command).expect("there is room");
        self.names.insert(id.clone(), command.name());
        id
    }

    // Observations

    /// Returns a short description of the frames sent since the last time: `name session resume@seq observer`.
    fn frames(&mut self) -> Vec<String> {
        self.drain();
        let words = |frame: Value| {
            let mut words = frame["type"].as_str().expect("a type is text").to_owned();
            if let Some(session) = frame["sessionId"].as_str() {
                words += &format!(" {session}");
            }
            if let Some(seq) = frame["payload"]["resume"]["seq"].as_u64() {
                words += &format!(" resume@{seq}");
            }
            if let Some(role) = frame["payload"]["role"].as_str() {
                words += &format!(" {role}");
            }
            words
        };
        self.sent.drain(..).map(words).collect()
    }

    /// Returns a short description of the updates since the last time.
    fn news(&mut self) -> Vec<String> {
        self.drain();
        let told = std::mem::take(&mut self.told);
        told.into_iter().map(|update| self.words(update)).collect()
    }

    fn words(&self, update: Update) -> String {
        match update {
            Update::Connected(_) => "connected".to_owned(),
            Update::Disconnected { lost, retry_after, .. } if retry_after.is_zero() => format!("renews: {lost}"),
            Update::Disconnected { lost, .. } => format!("disconnected: {lost}"),
            Update::Stopped(stop) => format!("stopped: {stop}"),
            Update::Opened { session: Session(key), opened } => format!("opened {key} at {}", opened.as_of_seq),
            Update::Retrying { session: Session(key), error, .. } => {
                format!("retrying {key}: {}", error.map_or("no error".to_owned(), |error| error.code.to_string()))
            }
            Update::Event { session: Session(key), event } => match event {
                SessionEvent::Durable(seq, _) => format!("event {key} {seq}"),
                SessionEvent::Ephemeral(event) => format!("event {key} {}", event.name()),
            },
            Update::Reply { id, result } => {
                let name = self.names.get(&id).copied().unwrap_or("?");
                match result {
                    Ok(reply) => format!("{name}: {}", reply.name()),
                    Err(Unanswered::Refused(error)) => format!("{name}: refused {}", error.code),
                    Err(Unanswered::Lost) => format!("{name}: lost"),
                    Err(Unanswered::TooLarge { .. }) => format!("{name}: too large"),
                    Err(Unanswered::SessionClosed) => format!("{name}: session closed"),
                    Err(Unanswered::Stopped(_)) => format!("{name}: stopped"),
                }
            }
            Update::Ended { session: Session(key), why } => match why {
                SessionEnd::Refused(error) => format!("ended {key}: refused {}", error.code),
                SessionEnd::Deleted => format!("ended {key}: deleted"),
                SessionEnd::OpenAlready => format!("ended {key}: open already"),
                SessionEnd::TooLarge { .. } => format!("ended {key}: too large"),
                SessionEnd::Unreadable => format!("ended {key}: unreadable"),
            },
            Update::Listed(item) => format!("listed {}", item.session_id),
        }
    }

    fn stop_reason(&self) -> Option<&Stop> {
        self.machine.stop_reason()
    }
}

/// Returns an id of any kind.
fn id<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().expect("the tests name things by valid ids")
}

/// Returns the example frame with this path.
fn example(path: &str) -> Value {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/v2");
    let text = std::fs::read_to_string(format!("{root}/{path}")).expect("there is such an example");
    serde_json::from_str(&text).expect("an example is JSON")
}

/// Returns a command that writes and needs its session.
fn input() -> Command {
    command("user_input", json!({"input": "When does the ferry leave?"}))
}

/// Returns a command that writes and needs no subscription.
fn rename() -> Command {
    Command::RenameSession(RenameSession { name: "harbour".to_owned() })
}

/// Returns a command that only reads.
fn list() -> Command {
    Command::ListSessions(ListSessions { cursor: None, limit: None, search: None, watch: None })
}

/// Returns a command that is never sent twice.
fn once() -> Command {
    Command::TakeOverHost(Empty {})
}

/// Parses a command in its wire format.
fn command(name: &str, payload: Value) -> Command {
    serde_json::from_value(json!({"type": name, "payload": payload})).expect("it is a command of this version")
}

/// Returns a command that offers one tool.
fn offer(tool: &str) -> Command {
    command("register_tools", json!({"tools": [{"name": tool, "description": "", "parameters": {"type": "object"}}]}))
}
