//! The Rust client, one frame at a time: a test connects it, cuts it off, and inspects each frame that it receives. The
//! strict reader of [`super::fold`] reads the same frames, and a witness queries the server itself.

use super::{
    fold::Fold,
    witness::{Watched, Witness},
};
use reseed_client::{
    Credentials, Identity, Lost, Opening, Session, SessionEvent, Socket, Unanswered, Update,
    fold::Snapshot,
    machine::{Machine, Output},
};
use reseed_protocol::{SessionId, command::Command};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};
use tokio::net::TcpStream;

/// The time that a frame may take on a machine that is busy with other tests; reached only by a test that fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client of one session.
pub(super) struct Folder {
    pub(super) fold: Fold,
    machine: Machine,
    /// The session, once the test has connected it.
    session: Option<Session>,
    socket: Option<Socket>,
    /// The event up to which the last `session_opened` described the present state.
    as_of_seq: u64,
    /// The machine's clock, which stands still unless the machine waits for something.
    now: Instant,
    /// True if the clock is the real one, so that waits take their real time.
    is_timed: bool,
    /// The fields of `open_session`; `sessionId` names a session to join.
    pub(super) opening: Value,
    /// The replies to commands, by their ids.
    pub(super) replies: BTreeMap<String, Value>,
    /// The number of frames received over the present connection, without those about presence.
    pub(super) frames: usize,
    /// True if the server is queried for its state after every durable event.
    pub(super) is_witnessed: bool,
    /// `None` while everything is compared.
    witness: Option<Witness>,
}

impl Folder {
    /// Creates a client without a session.
    pub(super) fn new(name: &str, opening: Value) -> Self {
        let identity = Identity { client_id: format!("client-{name}"), software: None };
        Self {
            fold: Fold::default(),
            machine: Machine::new(identity, fastrand::Rng::new()),
            session: None,
            socket: None,
            as_of_seq: 0,
            now: Instant::now(),
            is_timed: false,
            opening,
            replies: BTreeMap::new(),
            frames: 0,
            is_witnessed: true,
            witness: Some(Witness::new("")),
        }
    }

    /// Lets the test choose when the server is queried.
    pub(super) fn unwitnessed(self) -> Self {
        Self { is_witnessed: false, ..self }
    }

    /// Lets the machine's clock run, for servers that say when to try again.
    pub(super) fn timed(self) -> Self {
        Self { is_timed: true, ..self }
    }

    /// Drops the connection without a close frame.
    pub(super) fn cut(&mut self) {
        self.socket = None;
        self.machine.lost(self.now, Lost::Broken("cut".to_owned()));
        self.obey();
    }

    pub(super) fn is_connected(&self) -> bool {
        self.socket.is_some()
    }

    /// Returns the number of commands without a reply.
    pub(super) fn unanswered(&self) -> usize {
        self.machine.unanswered()
    }

    /// Connects; returns true if a server was there.
    pub(super) async fn connect(&mut self, url: &str) -> bool {
        self.join(url, Socket::open(&url.parse().unwrap()).await).await
    }

    /// Connects over a connection that was made already.
    pub(super) async fn connect_over(&mut self, stream: TcpStream, url: &str) {
        let socket = Socket::over(stream, &url.parse().unwrap()).await;
        assert!(self.join(url, socket).await);
    }

    async fn join(&mut self, url: &str, socket: Result<Socket, Lost>) -> bool {
        self.frames = 0;
        if self.is_timed {
            self.now = Instant::now();
        }
        if let Some(witness) = &mut self.witness {
            witness.moved(url);
        }
        self.session();
        self.machine.connect(self.now);
        assert_eq!(self.machine.poll(), Some(Output::Dial), "the machine is ready to connect");
        match socket {
            Ok(socket) => {
                self.socket = Some(socket);
                self.machine.connected(Credentials::None);
            }
            Err(lost) => {
                // For the report of a test that fails.
                eprintln!("{url} refused the connection: {lost:?}");
                self.machine.lost(self.now, lost);
            }
        }
        self.obey();
        self.flush().await;
        self.is_connected()
    }

    /// Returns the session, which is opened with the first connection.
    fn session(&mut self) -> Session {
        if let Some(session) = self.session {
            return session;
        }
        let text = |field: &str| self.opening[field].as_str().map(str::to_owned);
        let joins: Option<SessionId> = text("sessionId").map(|id| id.parse().unwrap());
        let read = |field: &str| self.opening.get(field).cloned().unwrap_or_default();
        let opening = Opening {
            role: serde_json::from_value(read("role")).unwrap(),
            // A path that is compared is whole.
            entries: Some(1000),
            deltas: None,
            store: None,
            tools: serde_json::from_value(read("tools")).unwrap(),
            hooks: None,
        };
        *self.session.insert(self.machine.open(joins, opening))
    }

    /// Gives a command to the client, which sends it once the session is open, and again after a lost connection until
    /// it has its reply. Returns its id.
    pub(super) async fn command(&mut self, kind: &str, payload: Value) -> String {
        let command: Command = serde_json::from_value(json!({ "type": kind, "payload": payload })).unwrap();
        let session = self.session();
        let id = self.machine.send(session, &command).unwrap();
        self.obey();
        self.flush().await;
        id.to_string()
    }

    /// Takes the next frame and returns it, or the close code if the connection is lost. Frames about presence, such as
    /// the witness causes, are taken and skipped.
    pub(super) async fn step(&mut self) -> Result<Value, u16> {
        loop {
            let Some(socket) = &mut self.socket else { return Err(1006) };
            let due = self.machine.deadline().filter(|_| self.is_timed);
            let received = tokio::time::timeout(PATIENCE, socket.receive());
            let received = match due {
                Some(due) => match tokio::time::timeout_at(due.into(), received).await {
                    Ok(received) => received,
                    Err(_) => {
                        self.now = Instant::now();
                        self.machine.tick(self.now);
                        self.obey();
                        self.flush().await;
                        continue;
                    }
                },
                None => received.await,
            };
            match received.unwrap_or_else(|_| panic!("nothing came for {PATIENCE:?}")) {
                Ok(text) => {
                    let frame = self.take(&text).await;
                    if frame["type"] != "presence_changed" {
                        self.frames += 1;
                        return Ok(frame);
                    }
                }
                Err(lost) => {
                    let code = lost.code();
                    self.socket = None;
                    self.machine.lost(self.now, lost);
                    self.obey();
                    return Err(code);
                }
            }
        }
    }

    async fn take(&mut self, text: &str) -> Value {
        if self.is_timed {
            self.now = Instant::now();
        }
        let frame: Value = serde_json::from_str(text).unwrap();
        match (frame["type"].as_str().unwrap(), frame.get("re")) {
            ("session_opened", _) => {
                self.fold.opened(&frame["payload"]);
                self.as_of_seq = frame["payload"]["asOfSeq"].as_u64().unwrap();
            }
            (_, Some(_)) | ("error" | "session_closed", None) => {}
            (_, None) => self.fold.take(&frame),
        }
        self.machine.frame(self.now, text);
        if frame["type"] == "session_closed" && !self.is_timed {
            // The client opens the session again when its time has come.
            self.now = self.machine.deadline().unwrap();
            self.machine.tick(self.now);
        }
        for update in self.obey() {
            match update {
                Update::Reply { id, .. } => {
                    assert_eq!(frame["re"].as_str(), Some(id.as_str()));
                    assert_eq!(self.replies.insert(id.to_string(), frame.clone()), None, "answered twice: {frame}");
                }
                Update::Event { event: SessionEvent::Durable(seq, _), .. } => {
                    assert_eq!(frame["seq"].as_u64(), Some(seq), "each event is told once, in order");
                }
                _ => {}
            }
        }
        self.flush().await;
        self.check(frame["seq"].is_u64()).await;
        frame
    }

    async fn flush(&mut self) {
        if let Some(socket) = &mut self.socket {
            // A broken connection shows when it is read.
            let _ = socket.flush().await;
        }
    }

    /// Executes what the machine requests; returns its updates.
    fn obey(&mut self) -> Vec<Update> {
        let mut told = Vec::new();
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Send(frame) => self.socket.as_mut().expect("it is connected").queue(frame),
                Output::HangUp => self.socket = None,
                Output::Dial | Output::Renew => panic!("the machine connects by itself"),
                Output::Tell(update) => {
                    match &update {
                        // A `ping` is not worth sending again.
                        Update::Reply { result: Ok(_) | Err(Unanswered::Refused(_) | Unanswered::Lost), .. } => {}
                        Update::Reply { .. } | Update::Ended { .. } | Update::Stopped(_) => panic!("{update:?}"),
                        _ => {}
                    }
                    told.push(update);
                }
            }
        }
        told
    }

    /// Checks the snapshot: by the strict reader always, by the witness after durable events.
    async fn check(&mut self, is_durable: bool) {
        let Some(snapshot) = self.session.and_then(|session| self.machine.snapshot(session)) else { return };
        let is_replaying = self.fold.seq < self.as_of_seq;
        self.fold.check(snapshot, is_replaying);
        let Some(witness) = &mut self.witness else { return };
        if is_durable && self.is_witnessed {
            witness.look(snapshot, is_replaying).await;
        } else {
            witness.compare(snapshot, is_replaying);
        }
    }

    /// Queries the server for its state, which is compared as soon as this client has the same events.
    pub(super) async fn look(&mut self) {
        let Some(snapshot) = self.session.and_then(|session| self.machine.snapshot(session)) else { return };
        let is_replaying = self.fold.seq < self.as_of_seq;
        self.witness.as_mut().expect("nothing else is compared").look(snapshot, is_replaying).await;
    }

    /// Waits until nothing is on its way, and compares everything with the server's state. `unknown` are fields that no
    /// event has reported to this client.
    pub(super) async fn settled(&mut self, unknown: &[&str]) {
        let mut witness = self.witness.take().expect("nothing else is compared");
        witness.settled(self, unknown).await;
        self.witness = Some(witness);
    }

    /// Forgets that it has seen the events after this one. They are of a kind that may be applied again.
    pub(super) fn rewind(&mut self, seq: u64) {
        self.fold.seq = seq;
        self.fold.log.split_off(&(seq + 1));
        let session = self.session();
        self.machine.snapshot_mut(session).unwrap().seq = seq;
    }

    /// Takes frames up to this event.
    pub(super) async fn reach(&mut self, seq: u64) {
        while self.fold.seq < seq {
            let frame = self.step().await;
            assert!(frame.as_ref().is_ok_and(|frame| frame["type"] != "error"), "{frame:?}");
        }
    }

    /// Takes frames until the session is open.
    pub(super) async fn opened(&mut self) {
        while self.step().await.unwrap()["type"] != "session_opened" {}
    }
}

impl Watched for Folder {
    fn snapshot(&self) -> &Snapshot {
        self.session.and_then(|session| self.machine.snapshot(session)).expect("the session was opened")
    }

    async fn settle(&mut self) {
        while self.unanswered() > 0 || !self.fold.is_idle() {
            self.step().await.unwrap();
        }
        // A reply comes before its events, and the next reply comes after them.
        for _ in 0..2 {
            let id = self.command("get_context_info", json!({})).await;
            while !self.replies.contains_key(&id) {
                self.step().await.unwrap();
            }
        }
    }
}
