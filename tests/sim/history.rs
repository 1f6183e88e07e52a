//! What one run leaves behind, as plain data: the log, what clients sent and were given, what the model was asked.
//! The checkers in `checks` read this and nothing else.

use crate::{hooks::Asked as HooksAsked, view::View};
use reseed::{
    core::{
        agent_loop::Snapshot,
        model::{ModelRequest, Purpose},
    },
    store::{SessionStore, StoredRecord},
};
use reseed_protocol::{
    CloseCode, CommandId, SessionId,
    command::Command,
    event::{EphemeralEvent, Event},
    reply::Reply,
};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// A run, as it was seen from outside the server.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The session that clients talk to.
    pub(crate) session: Option<SessionId>,
    /// What the disk took, in order, by session.
    pub(crate) written: BTreeMap<SessionId, Vec<Written>>,
    /// The log as the store gives it in the end.
    pub(crate) log: Vec<StoredRecord>,
    /// The same log, read.
    pub(crate) events: Vec<Event>,
    /// The sessions that were made out of it, as they are listed in the end.
    pub(crate) forks: BTreeMap<SessionId, Vec<Event>>,
    /// The commands, in the order in which they were sent; a repeated one stands here twice.
    pub(crate) sent: Vec<Sent>,
    /// What clients were given, in order.
    pub(crate) given: Vec<Given>,
    /// What the model was asked, in order.
    pub(crate) asked: Vec<Asked>,
    /// Where clients stood in the end; the first is the undisturbed observer.
    pub(crate) views: Vec<View>,
    /// Why the session did not come to rest, if it did not.
    pub(crate) restless: Option<String>,
    /// What panicked.
    pub(crate) panics: Vec<String>,
    /// What became of the calls of hooks.
    pub(crate) hooks: HooksAsked,
    /// Faults of the disk that were met.
    pub(crate) faults: u64,
    /// Where the session stood in the end, and once more after the server was started anew.
    pub(crate) ends: Option<(Snapshot, Snapshot)>,
}

/// A record as the disk took it.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    pub(crate) body: Arc<str>,
    /// The term that the writer claimed.
    pub(crate) term: u64,
    /// The newest term that was given out by then.
    pub(crate) newest_term: u64,
    pub(crate) node: usize,
}

/// A command that was sent.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) connection: u64,
    pub(crate) id: CommandId,
    pub(crate) command: Command,
    /// How much all clients had been given by then.
    pub(crate) given: usize,
}

/// Something that a client was given.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    pub(crate) client: usize,
    pub(crate) connection: u64,
    /// How much was on the disk by then.
    pub(crate) durable: u64,
    pub(crate) what: What,
}

/// What it was.
#[derive(Debug, Clone)]
pub(crate) enum What {
    /// It joined. `from` is the last event that it need not be given any more.
    Opened { from: u64, replay: bool, state: Box<View> },
    /// A durable event.
    Durable { seq: u64, body: Arc<str> },
    /// An ephemeral event.
    Ephemeral(EphemeralEvent),
    /// A reply.
    Reply(CommandId, Box<Reply>),
    /// The server closed the connection.
    Closed(CloseCode),
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
    /// Whether another request of the same node for the same purpose was being answered: a summary may be made beside a
    /// turn, nothing else.
    pub(crate) overlaps: bool,
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

    /// The events of a log, those that are none left out.
    pub(crate) fn events(log: &[StoredRecord]) -> Vec<Event> {
        log.iter().filter_map(|record| serde_json::from_str(&record.body).ok()).collect()
    }

    /// What was written for the session that clients talk to.
    pub(crate) fn written(&self) -> &[Written] {
        self.session.as_ref().and_then(|session| self.written.get(session)).map_or(&[], Vec::as_slice)
    }
}

/// The lines of a run, shared by all who write them. Clones write to the same trace.
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
