//! A witness: a bare connection that opens a session afresh, so that the server's state can be compared with what a
//! client has derived from its events.

#[path = "../../../protocol/client-rust/tests/view/mod.rs"]
mod view;

use crate::support::json::present;
use reseed_client::{Socket, fold::Snapshot};
use reseed_protocol::session::{SessionOpened, SessionState};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use view::{Compared, differences};

/// The time that a reply may take on a machine that is busy with other tests; reached only by a test that fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client that is compared.
pub(super) trait Watched {
    /// Returns its state of the session.
    fn snapshot(&self) -> &Snapshot;

    /// Waits until it has nothing to send and its session is idle, and then for everything that was on its way.
    async fn settle(&mut self);
}

/// A bare connection, and what it received about one session.
pub(super) struct Witness {
    url: String,
    socket: Option<Socket>,
    next: u64,
    /// The server's states, by the newest event in each, until the client has that event as well.
    said: BTreeMap<u64, Snapshot>,
}

impl Witness {
    /// Creates one that is not connected.
    pub(super) fn new(url: &str) -> Self {
        Self { url: url.to_owned(), socket: None, next: 0, said: BTreeMap::new() }
    }

    /// Uses another address of the server from now on.
    pub(super) fn moved(&mut self, url: &str) {
        if self.url != url {
            *self = Self { said: std::mem::take(&mut self.said), ..Self::new(url) };
        }
    }

    /// Queries the session's current state, and compares it as soon as the client has the same events. Does nothing
    /// without a server.
    pub(super) async fn look(&mut self, snapshot: &Snapshot, is_replaying: bool) {
        if let Some(opened) = self.opened(snapshot.session_id.as_str()).await {
            self.said.insert(opened.as_of_seq, Snapshot::opened(opened));
        }
        self.compare(snapshot, is_replaying);
    }

    /// Compares what durable events decide, if the server was queried at this event. While events are replayed, the
    /// client already knows which calls are pending after them.
    pub(super) fn compare(&mut self, snapshot: &Snapshot, is_replaying: bool) {
        let later = self.said.split_off(&snapshot.seq);
        self.said = later;
        if let Some(said) = self.said.remove(&snapshot.seq) {
            let ahead = if is_replaying { vec!["pending".to_owned()] } else { Vec::new() };
            self.check(snapshot, &said, false, &ahead);
        }
    }

    /// Compares everything with a client to which nothing happens any more. `unknown` are fields that no event has
    /// reported to it.
    pub(super) async fn settled(&mut self, client: &mut impl Watched, unknown: &[&str]) {
        // The witness itself comes and goes.
        let unknown: Vec<String> = unknown.iter().chain(&["heldSizes", "presence"]).map(ToString::to_string).collect();
        loop {
            client.settle().await;
            let session = client.snapshot().session_id.clone();
            let before = self.opened(session.as_str()).await.map(Snapshot::opened);
            client.settle().await;
            let after = self.opened(session.as_str()).await.map(Snapshot::opened);
            let (Some(before), Some(after)) = (before, after) else { panic!("the server is gone") };
            let compared = Compared { settled: true, people: true, unknown: &unknown };
            // Something has happened meanwhile: a compaction in the background, for instance.
            if after.state != SessionState::Idle || !differences(&before, &after, compared).is_empty() {
                continue;
            }
            return self.check(client.snapshot(), &after, true, &unknown);
        }
    }

    fn check(&self, snapshot: &Snapshot, said: &Snapshot, settled: bool, unknown: &[String]) {
        let differences = differences(snapshot, said, Compared { settled, people: settled, unknown });
        let at = format!("session {}, event {}", snapshot.session_id, snapshot.seq);
        assert!(differences.is_empty(), "{at}: what the client has made of the events\n{}", differences.join("\n"));
    }

    /// Returns a fresh `session_opened` with the whole path; `None` if there is no server.
    async fn opened(&mut self, session: &str) -> Option<SessionOpened> {
        // A server that was restarted has forgotten the previous connection.
        let was_connected = self.socket.is_some();
        match self.try_opened(session).await {
            None if was_connected => self.try_opened(session).await,
            opened => opened,
        }
    }

    async fn try_opened(&mut self, session: &str) -> Option<SessionOpened> {
        if self.socket.is_none() {
            self.socket = Some(Socket::open(&self.url.parse().unwrap()).await.ok()?);
            self.ask("hello", None, json!({ "protocolVersion": 2 })).await?;
        }
        let open = json!({ "role": "observer", "entries": 1000 });
        let opened = self.ask("open_session", Some(session), open).await?;
        self.ask("close_session", Some(session), json!({})).await?;
        Some(serde_json::from_value(opened).unwrap())
    }

    /// Returns the payload of a reply; `None` if the connection is lost.
    async fn ask(&mut self, kind: &str, session: Option<&str>, payload: Value) -> Option<Value> {
        self.next += 1;
        let id = format!("witness-{:016x}-{}", fastrand::u64(..), self.next);
        let mut frame = json!({ "id": id, "type": kind, "payload": payload });
        if let Some(session) = session {
            frame["sessionId"] = json!(session);
        }
        let reply = self.reply(&id, &frame).await;
        if reply.is_none() {
            self.socket = None;
        }
        let reply = reply?;
        assert_ne!(*present(&reply["type"]), "error", "{kind}: {reply}");
        Some(reply["payload"].clone())
    }

    async fn reply(&mut self, id: &str, frame: &Value) -> Option<Value> {
        let socket = self.socket.as_mut()?;
        socket.send(frame.to_string()).await.ok()?;
        loop {
            let received = tokio::time::timeout(PATIENCE, socket.receive()).await.expect("the server replies");
            let frame: Value = serde_json::from_str(&received.ok()?).unwrap();
            if frame["re"] == id {
                return Some(frame);
            }
        }
    }
}
