//! Makes a session of its own out of the path to an entry.
//!
//! The path is copied by many appends, none of them large, so that other sessions write in between and memory holds one
//! piece at a time. Until the last one the new session is [`UNFINISHED`] and nobody sees it. In between, when all of the
//! path is durable, the command's mark is written to the log of the source. So the mark decides: a crash before it leaves
//! a copy that nobody knows and that is deleted at the next start; after it, the copy is finished then
//! ([`settle`]), or by the same command sent again.

mod copy;
mod source;

use self::{copy::Copy, source::Source};
use super::{
    handle::{Outgoing, conflict},
    load::state,
    registry::Registry,
    shared::store_error,
    watch::list_item,
};
use crate::{
    core::{
        agent_loop::{Mark, Origin},
        session::place::landing,
    },
    store::{Append, CommandMark, Error, Head, Lease, ListQuery, UNFINISHED},
};
use reseed_protocol::{
    CommandId, ErrorBody, ErrorCode, Part, SessionId,
    command::{ForkPosition, ForkSession, NavigatePosition},
    reply::{Forked, Reply, SessionState as Doing},
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Forks at work at once: each holds a piece of its path in memory. Further ones wait. Those of one session always wait
/// for each other, so that a command that is sent twice is done once.
pub(super) const FORKS_MAX: usize = 16;

/// Entries of one append at most: some milliseconds of the store's writer.
const PIECE_ENTRIES_MAX: u32 = 256;

/// The mark that a copy carries, under an id that no client can use.
const ORIGIN_MARK: &str = "s_fork";

/// No connection: their numbers begin at 1.
const NOBODY: Origin = Origin(0);

/// Sessions that are settled at once.
const SETTLE_PAGE: u32 = 100;

/// A client's wish.
pub struct Order {
    /// The session to fork.
    pub source: SessionId,
    /// Whose it is.
    pub owner: String,
    /// The command's id.
    pub id: CommandId,
    /// A hash of its content.
    pub fingerprint: u64,
    /// Where to fork.
    pub fork: ForkSession,
    /// Where the reply goes.
    pub outgoing: mpsc::Sender<Outgoing>,
}

/// Of what a copy is one, as its own mark says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CopyOf {
    source: SessionId,
    command_id: String,
}

impl Registry {
    /// Begins to fork; the reply comes through the order's channel. It is made to its end, whoever leaves.
    pub fn fork(self: &Arc<Self>, order: Order) {
        let registry = self.clone();
        self.track(async move {
            let reply = match Box::pin(registry.make_fork(&order)).await {
                Ok(reply) => reply,
                Err(error) => Reply::Error(error),
            };
            // A connection that is gone sends the command again.
            let _ = order.outgoing.try_send(Outgoing::Reply(order.id, Box::new(reply)));
        });
    }

    async fn make_fork(&self, order: &Order) -> Result<Reply, ErrorBody> {
        let _alone = self.fork_place(&order.source).lock().await;
        let head = self.head(&order.source, &order.owner).await?;
        if let Some(reply) = self.forked_before(order).await? {
            return Ok(reply);
        }
        self.check_running()?;
        let source = Source { registry: self, id: &order.source, last_seq: head.last_seq };
        let found = source.entry(&order.fork.entry_id).await?;
        let position = match order.fork.position {
            ForkPosition::At => NavigatePosition::At,
            ForkPosition::Before => NavigatePosition::Before,
        };
        let (end, input) = landing(&found, position);
        let path = source.survey(end).await?;
        let state = state(&**self.store(), &head).await.map_err(|error| store_error(&error))?;

        let id = self.random_id()?;
        let lease = self.store().create(&id, &order.owner, UNFINISHED).await.map_err(|error| store_error(&error))?;
        let made = async {
            let copy_of = CopyOf { source: order.source.clone(), command_id: order.id.as_str().to_owned() };
            let mut copy = Copy::begin(self, &source, lease, copy_of, &state).await?;
            copy.path(&path, &state.undone).await?;
            copy.labels(&path).await?;
            copy.end(&path, &state, &head.head).await?;
            self.mark_source(order, &id, input).await.map(|reply| (copy, reply))
        };
        match made.await {
            Ok((copy, reply)) => {
                let finished = self.finish(&order.owner, &copy.lease, copy.next_seq, copy.head).await;
                finished.map(|()| reply).map_err(|error| store_error(&error))
            }
            Err(error) => {
                self.clear_away(order, &id).await;
                Err(error)
            }
        }
    }

    /// The first answer to this command, if it was taken before. Its session is there, unless it was deleted since.
    async fn forked_before(&self, order: &Order) -> Result<Option<Reply>, ErrorBody> {
        let mark = self.store().command(&order.source, order.id.as_str()).await;
        let Some(mark) = mark.map_err(|error| store_error(&error))? else { return Ok(None) };
        if mark.fingerprint != order.fingerprint {
            return Err(conflict(&order.id));
        }
        let mut reply: Reply = serde_json::from_str(&mark.reply).map_err(|error| {
            ErrorBody::new(ErrorCode::Internal, format!("the stored reply cannot be read: {error}"))
        })?;
        if let Reply::Forked(forked) = &mut reply {
            forked.duplicate = Some(true);
            match self.finish_unfinished(&forked.session_id).await {
                Ok(()) | Err(Error::NotFound(_)) => {}
                Err(error) => return Err(store_error(&error)),
            }
        }
        Ok(Some(reply))
    }

    /// Writes the command's mark to the log of the source: from now on the fork counts.
    async fn mark_source(&self, order: &Order, id: &SessionId, input: Option<Vec<Part>>) -> Result<Reply, ErrorBody> {
        let reply = Reply::Forked(Forked { session_id: id.clone(), input, duplicate: None });
        // A session that leaves memory between being found and being asked is opened once more.
        for _ in 0..2 {
            let mark = Mark {
                // The reply goes out when the fork is whole: not from there.
                origin: NOBODY,
                id: order.id.clone(),
                fingerprint: order.fingerprint,
                reply: reply.clone(),
            };
            match self.open(&order.source, &order.owner).await?.remember(mark).await {
                Ok(Ok(())) => return Ok(reply),
                Ok(Err(error)) => return Err(error),
                Err(_gone) => {}
            }
        }
        Err(ErrorBody::new(ErrorCode::StoreFailed, "the session could not be written to; send the command again"))
    }

    /// After a fork that failed: its copy is deleted, unless the mark was written all the same. What cannot be decided now
    /// is decided at the next start.
    async fn clear_away(&self, order: &Order, id: &SessionId) {
        let settled = match self.store().command(&order.source, order.id.as_str()).await {
            Ok(Some(mark)) if names(&mark, id) => self.finish_unfinished(id).await,
            Ok(_) | Err(Error::NotFound(_)) => self.store().delete(id).await,
            Err(error) => Err(error),
        };
        if let Err(error) = settled {
            tracing::warn!(session = %id, %error, "a copy that came to nothing is left until the next start");
        }
    }

    async fn finish_unfinished(&self, id: &SessionId) -> Result<(), Error> {
        if self.store().head(id).await?.head.updated_at != UNFINISHED {
            return Ok(());
        }
        let (lease, head) = self.store().open(id).await?;
        self.finish(&head.owner, &lease, lease.next_seq, head.head).await
    }

    /// The last append: the session is whole, and in the list.
    async fn finish(&self, owner: &str, lease: &Lease, next_seq: u64, head: Head) -> Result<(), Error> {
        let now = self.now();
        let head = Head { created_at: now, updated_at: now, ..head };
        let append = Append { records: Vec::new(), marks: Vec::new(), head: head.clone() };
        self.store().append(lease, next_seq, append).await?;
        self.watches().changed(owner, || list_item(&lease.session, &head, Doing::Idle));
        Ok(())
    }
}

/// Decides about sessions that a crash left unfinished: a fork whose command was acknowledged or may have been is finished,
/// everything else deleted. For the start of a server, before it takes commands.
///
/// # Errors
/// The store's.
pub async fn settle(registry: &Registry) -> Result<(), Error> {
    let store = registry.store();
    loop {
        let page = store.list(ListQuery { unfinished: true, limit: SETTLE_PAGE, ..ListQuery::default() }).await?;
        if page.items.is_empty() {
            return Ok(());
        }
        for head in page.items {
            let id = &head.session;
            if counts(registry, id).await? {
                registry.finish_unfinished(id).await?;
                tracing::info!(session = %id, "a fork that a crash left unfinished is whole");
            } else {
                store.delete(id).await?;
                tracing::info!(session = %id, "a session that a crash left unfinished is deleted");
            }
        }
    }
}

/// Whether the source of a copy has the mark that names it.
async fn counts(registry: &Registry, id: &SessionId) -> Result<bool, Error> {
    let Some(own) = registry.store().command(id, ORIGIN_MARK).await? else { return Ok(false) };
    let Ok(copy_of) = serde_json::from_str::<CopyOf>(&own.reply) else { return Ok(false) };
    let mark = registry.store().command(&copy_of.source, &copy_of.command_id).await?;
    Ok(mark.is_some_and(|mark| names(&mark, id)))
}

fn names(mark: &CommandMark, id: &SessionId) -> bool {
    matches!(serde_json::from_str(&mark.reply), Ok(Reply::Forked(forked)) if forked.session_id == *id)
}
