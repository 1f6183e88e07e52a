//! Joining a session: opening it, attaching to it, and reading the path to its leaf.

use super::{PAGE, Server, Wish};
use crate::view::View;
use reseed::{
    core::{
        agent_loop::{Origin, Snapshot, check_offers},
        hook::check_hooks,
    },
    internals::{Attach, Attached, ConnectionShare, Identity, LeftOff, Outbox, Outgoing, SessionHandle},
    store::{EntryQuery, SessionStore},
};
use reseed_protocol::{Entry, ErrorBody, ErrorCode, SessionId, event::Event};
use std::sync::{Arc, Mutex, atomic::AtomicBool};
use tokio::sync::mpsc;

/// A connection that is joining. Joining runs to completion even if the client has left, as in the server.
pub(super) struct Joining {
    pub(super) number: u64,
    pub(super) wish: Wish,
    pub(super) server: Server,
    pub(super) incoming: mpsc::Receiver<Outgoing>,
    pub(super) outgoing: Outbox,
    pub(super) place: Arc<Place>,
}

#[derive(Default)]
pub(super) struct Place {
    pub(super) given_up: AtomicBool,
    pub(super) joined: Mutex<Option<Result<Joined, Refused>>>,
}

/// A refusal.
pub(super) struct Refused {
    pub(super) error: ErrorBody,
    /// The node that has the session.
    pub(super) elsewhere: Option<usize>,
}

impl From<ErrorBody> for Refused {
    fn from(error: ErrorBody) -> Self {
        Self { error, elsewhere: None }
    }
}

pub(super) struct Joined {
    pub(super) handle: SessionHandle,
    pub(super) attached: Attached,
    /// The path to the leaf, if the client receives the whole state.
    pub(super) path: Vec<Entry>,
}

pub(super) async fn join(
    server: &Server,
    session: &SessionId,
    origin: Origin,
    wish: &Wish,
    client_id: Option<String>,
    resume: Option<LeftOff>,
    outgoing: Outbox,
) -> Result<Joined, Refused> {
    // A session that leaves memory between lookup and joining is opened once more.
    for _ in 0..2 {
        if let Some(refused) = elsewhere(server, session).await? {
            return Err(refused);
        }
        let handle = server.registry.open(session, "").await?;
        let connection_id = format!("connection-{}", origin.0).parse().expect("an id");
        let identity = Identity { connection_id, client_id: client_id.clone(), software: None };
        let attach = Attach {
            origin,
            role: wish.role,
            tools: wish.tools.clone().map(check_offers).transpose()?,
            hooks: wish.hooks.clone().map(check_hooks).transpose()?.map(Arc::from),
            outgoing: outgoing.clone(),
            shared: ConnectionShare::new(identity),
            resume: resume.clone(),
        };
        let Ok(attached) = handle.attach(attach).await else { continue };
        let attached = attached?;
        let path = if attached.replay { Ok(Vec::new()) } else { path(server, session, &attached.snapshot).await };
        match path {
            Ok(path) => return Ok(Joined { handle, attached, path }),
            Err(error) => {
                drop(attached);
                handle.leave(origin).await;
                return Err(error.into());
            }
        }
    }
    Err(ErrorBody::new(ErrorCode::StoreFailed, "the session could not be opened").into())
}

/// Returns a refusal that names another node, if that has the session. A server would bring the client there, over a
/// socket.
async fn elsewhere(server: &Server, session: &SessionId) -> Result<Option<Refused>, ErrorBody> {
    if server.road.link.is_none() {
        return Ok(None);
    }
    Ok(server.registry.locate(session, "").await?.map(|row| {
        let error = ErrorBody::new(ErrorCode::Overloaded, "another node has the session");
        Refused { error, elsewhere: row.node.name.parse().ok() }
    }))
}

async fn path(server: &Server, session: &SessionId, snapshot: &Snapshot) -> Result<Vec<Entry>, ErrorBody> {
    let mut path: Vec<Entry> = Vec::new();
    let mut next = snapshot.leaf.clone();
    while let Some(from) = next.take() {
        let query = EntryQuery::Path { from, limit: PAGE };
        let page = server.road.entries(session, query).await;
        for record in page.map_err(|error| reseed::internals::store_error(&error))? {
            let event: Result<Event, _> = serde_json::from_str(&record.body);
            if let Ok(Event::EntryAppended(appended)) = event {
                next = appended.entry.parent_id.clone();
                path.push(appended.entry);
            }
        }
    }
    Ok(path)
}

/// Leaves a connection that nobody waits for.
pub(super) fn give_up(origin: Origin, joined: Result<Joined, Refused>) {
    if let Ok(Joined { handle, attached, .. }) = joined {
        drop(attached);
        handle.left(origin);
    }
}

pub(super) fn view(epoch: String, snapshot: &Snapshot, path: Vec<Entry>) -> View {
    let snapshot = snapshot.clone();
    View {
        epoch,
        seq: snapshot.seq,
        leaf: snapshot.leaf,
        name: snapshot.name,
        model: snapshot.model,
        strategy: snapshot.strategy,
        settings: Some(snapshot.settings),
        generation: snapshot.generation,
        turn: snapshot.turn,
        last_turn: snapshot.last_turn,
        unanswered: snapshot.unanswered_turns,
        failed: snapshot.failed_compactions,
        queue: snapshot.queue,
        pending: snapshot.pending,
        approvals: snapshot.approvals,
        standing: snapshot.standing_approvals,
        pins: snapshot.pins,
        undone: snapshot.undone,
        entries: path.into_iter().map(|entry| (entry.entry_id.clone(), entry)).collect(),
        streamed: None,
    }
}
