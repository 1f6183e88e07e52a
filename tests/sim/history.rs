//! The history of a run, as plain data: the log, what clients sent and received, what the model was sent. The checks in
//! `checks` read only this.

use crate::{hooks::Asked as HooksAsked, view::View};
use reseed::{
    core::{
        agent_loop::Snapshot,
        model::{ModelRequest, Purpose},
    },
    store::{SessionStore, StoredRecord},
};
use reseed_protocol::{
    CallId, CommandId, SessionId,
    command::Command,
    event::{EphemeralEvent, Event},
    reply::Reply,
    session::SubscriptionEnd,
    tools::RunTool,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// A run, as observed from outside the server.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The session that clients use.
    pub(crate) session: Option<SessionId>,
    /// The appends that the disk accepted, in order, by session.
    pub(crate) written: BTreeMap<SessionId, Vec<Written>>,
    /// The final log, as the store returns it.
    pub(crate) log: Vec<StoredRecord>,
    /// The same log, parsed.
    pub(crate) events: Vec<Event>,
    /// The forks of the session, as finally listed.
    pub(crate) forks: BTreeMap<SessionId, Vec<Event>>,
    /// The commands, in the order in which they were sent; a repeated one appears twice.
    pub(crate) sent: Vec<Sent>,
    /// The frames that clients received, in order.
    pub(crate) given: Vec<Given>,
    /// The requests to the model, in order.
    pub(crate) asked: Vec<Asked>,
    /// The final views of clients; the first is the undisturbed observer.
    pub(crate) views: Vec<View>,
    /// The reason the session did not become idle, if it did not.
    pub(crate) restless: Option<String>,
    /// The panics.
    pub(crate) panics: Vec<String>,
    /// The outcomes of hook calls.
    pub(crate) hooks: HooksAsked,
    /// The calls that the server's tools were started for, in order.
    pub(crate) tools: Vec<CallId>,
    /// The number of disk faults.
    pub(crate) faults: u64,
    /// The openings of sessions, in order.
    pub(crate) grants: Vec<Grant>,
    /// The standby's takeover, if there was one.
    pub(crate) failover: Option<Failover>,
    /// The final state of the session, and its state after a restart of the server.
    pub(crate) ends: Option<(Snapshot, Snapshot)>,
}

/// A record as accepted by the disk.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    pub(crate) body: Arc<str>,
    /// The term that the writer claimed.
    pub(crate) term: u64,
    /// The newest term issued by then.
    pub(crate) newest_term: u64,
    pub(crate) node: usize,
    /// The epoch of the writer's lease.
    pub(crate) epoch: String,
}

/// The takeover of a standby that was behind.
#[derive(Debug, Clone)]
pub(crate) struct Failover {
    /// The number of frames that all clients had received by then.
    pub(crate) given: usize,
    /// All that was written by then.
    pub(crate) before: BTreeMap<SessionId, Vec<Written>>,
    /// The end of it, which the standby lacks.
    pub(crate) lost: BTreeMap<SessionId, Vec<Written>>,
    /// The commands that the lost appends had marked as done.
    pub(crate) marks: BTreeSet<String>,
}

/// An opening of a session that was carried out.
#[derive(Debug, Clone)]
pub(crate) struct Grant {
    pub(crate) session: SessionId,
    pub(crate) epoch: String,
    pub(crate) term: u64,
    pub(crate) node: usize,
    /// Another node of the cluster from which the session was taken although that node trusted its lease, and true if
    /// it stood still meanwhile.
    pub(crate) from_trusting: Option<(usize, bool)>,
}

/// A command that was sent.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) connection: u64,
    pub(crate) id: CommandId,
    pub(crate) command: Command,
    /// The number of frames that all clients had received by then.
    pub(crate) given: usize,
}

/// Something that a client received.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    pub(crate) client: usize,
    pub(crate) connection: u64,
    /// The position on the disk by then.
    pub(crate) durable: u64,
    pub(crate) what: What,
}

/// A frame that a client received.
#[derive(Debug, Clone)]
pub(crate) enum What {
    /// It joined. `from` is the last event that it does not need any more.
    Opened { from: u64, replay: bool, state: Box<View> },
    /// A durable event.
    Durable { seq: u64, body: Arc<str> },
    /// An ephemeral event.
    Ephemeral(EphemeralEvent),
    /// A reply.
    Reply(CommandId, Box<Reply>),
    /// The server ended the subscription.
    Closed(SubscriptionEnd),
    /// It was asked to run this tool call, as the host.
    Run(RunTool),
    /// The connection broke.
    Cut,
}

/// A request to the model.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) node: usize,
    /// The newest record that its node had written by then.
    pub(crate) as_of: u64,
    pub(crate) request: ModelRequest,
    /// True if another request of the same node for the same purpose was in progress: only a summary may run beside a
    /// turn.
    pub(crate) overlaps: bool,
    /// True if another node of the cluster had the session, and this one could know.
    pub(crate) stale: bool,
}

impl Asked {
    pub(crate) fn is_turn(&self) -> bool {
        self.request.purpose == Purpose::Turn
    }
}

impl History {
    /// Reads a log from the store.
    pub(crate) async fn read(store: &dyn SessionStore, session: &SessionId) -> Vec<StoredRecord> {
        let mut log: Vec<StoredRecord> = Vec::new();
        loop {
            let page = store.read(session, log.len() as u64, 500).await.unwrap_or_default();
            if page.is_empty() {
                return log;
            }
            log.extend(page);
        }
    }

    /// Returns the events of a log, leaving out records that are not events.
    pub(crate) fn events(log: &[StoredRecord]) -> Vec<Event> {
        log.iter().filter_map(|record| serde_json::from_str(&record.body).ok()).collect()
    }

    /// Returns what was written for the clients' session.
    pub(crate) fn written(&self) -> &[Written] {
        self.session.as_ref().and_then(|session| self.written.get(session)).map_or(&[], Vec::as_slice)
    }
}

/// The trace of a run. Clones write to the same trace.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trace(Arc<Mutex<Vec<String>>>);

impl Trace {
    pub(crate) fn line(&self, line: impl fmt::Display) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_string());
    }

    pub(crate) fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).join("\n")
    }
}
