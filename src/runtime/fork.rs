//! Forks: makes a new session from the path to an entry.
//!
//! The path is copied in many small appends, so that other sessions can write in between and memory holds one piece at
//! a time. Until the last append, the new session is [`UNFINISHED`] and invisible. Before that append, once the whole
//! path is durable, the command's mark is written to the source's log. This mark is the commit point. After a crash
//! before it, the next start deletes the copy, which nobody knows. After a crash behind it, the copy is finished by the
//! next start ([`settle`]), or by the same command if it is sent again.

mod copy;
mod source;

use self::{copy::Copy, source::ForkSource};
use super::{
    errors::store_error,
    load::{state, stored_calibration},
    outbox::Outbox,
    registry::{Kept, Registry},
    watch::list_item,
};
use crate::{
    core::{
        agent_loop::{Mark, Origin},
        session::lookup::landing,
    },
    shares::Share,
    store::{Append, CommandMark, Error, Head, Lease, ListQuery, SessionStore, UNFINISHED},
};
use reseed_protocol::{
    CommandId, ErrorBody, ErrorCode, Part, SessionId,
    reply::Reply,
    session::SessionState as Doing,
    tree::{ForkPosition, ForkSession, Forked, NavigatePosition},
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Maximum entries of one append, which occupies the store's writer for some milliseconds.
const PIECE_ENTRIES_MAX: u32 = 256;

/// The id of the mark that a copy carries. No client can use it.
const ORIGIN_MARK: &str = "s_fork";

/// An origin that no connection has. Connection numbers start at 1.
const NOBODY: Origin = Origin(0);

/// Sessions settled per page.
const SETTLE_PAGE: u32 = 100;

/// A client's fork command.
pub struct ForkOrder {
    /// The session to fork.
    pub source: SessionId,
    /// Its owner.
    pub owner: String,
    /// The command's id.
    pub id: CommandId,
    /// A hash of the command's content.
    pub fingerprint: u64,
    /// The entry to fork at.
    pub fork: ForkSession,
    /// The connection that receives the reply.
    pub outgoing: Outbox,
}

/// Where a copy comes from, as stored in the copy's own mark.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CopyOf {
    source: SessionId,
    command_id: String,
}

impl Registry {
    /// Starts a fork. The reply is sent through the order's channel. The fork ends early if the connection is gone,
    /// because a client that returns sends the command again.
    ///
    /// # Errors
    /// `limit_reached`: too many forks of this user are in progress.
    pub fn fork(self: &Arc<Self>, order: ForkOrder) -> Result<(), ErrorBody> {
        let permit = self.shares().take(Share::Forks, &order.owner, 1)?;
        let registry = self.clone();
        self.track(async move {
            let _permit = permit;
            let reply = match Box::pin(registry.make_fork(&order)).await {
                Ok(reply) => reply,
                Err(error) => Reply::Error(error),
            };
            // A client whose connection is gone sends the command again.
            order.outgoing.reply(order.source, order.id, reply);
        });
        Ok(())
    }

    async fn make_fork(&self, order: &ForkOrder) -> Result<Reply, ErrorBody> {
        // Forks of one session wait for each other, so that a repeated command is executed once.
        let _turn = self.shares().forking().take(order.source.as_str()).await;
        check_awaited(&order.outgoing)?;
        let head = self.head(&order.source, &order.owner).await?;
        if let Some(reply) = self.forked_before(order).await? {
            return Ok(reply);
        }
        self.check_running()?;
        let source = ForkSource { registry: self, id: &order.source, last_seq: head.last_seq };
        let found = source.entry(&order.fork.entry_id).await?;
        let position = match order.fork.position {
            ForkPosition::At => NavigatePosition::At,
            ForkPosition::Before => NavigatePosition::Before,
        };
        let (end, input) = landing(&found, position);
        let kept = match order.fork.store {
            Some(false) => Kept::InMemory,
            _ => self.kept(&order.source),
        };
        self.check_may_keep(&order.owner, kept).await?;
        let state = state(&**self.store(), &head).await.map_err(|error| store_error(&error))?;
        let path = source.survey(end, &state.undone).await?;

        let id = self.random_id()?;
        let (_, created) = self.as_member(|| self.store_of_new(kept).create(&id, &order.owner, UNFINISHED)).await;
        let lease = created.map_err(|error| store_error(&error))?;
        let mut may_count = false;
        let made = async {
            let copy_of = CopyOf { source: order.source.clone(), command_id: order.id.as_str().to_owned() };
            let mut copy = Copy::begin(self, &source, lease, copy_of, &state, stored_calibration(&head)).await?;
            copy.path(&path, &order.outgoing).await?;
            copy.labels(&path).await?;
            copy.end(&path, &state, &head.head).await?;
            may_count = true;
            self.mark_source(order, &copy.lease, input).await.map(|reply| (copy, reply))
        };
        match made.await {
            Ok((copy, reply)) => {
                let finished = self.finish(&order.owner, &copy.lease, copy.next_seq, copy.head).await;
                finished.map(|()| reply).map_err(|error| store_error(&error))
            }
            Err(error) => {
                self.clear_away(order, &id, may_count).await;
                Err(error)
            }
        }
    }

    /// Returns the first reply to this command if it was executed before. Its session exists, unless it was deleted
    /// since.
    async fn forked_before(&self, order: &ForkOrder) -> Result<Option<Reply>, ErrorBody> {
        let mark = self.store().command(&order.source, order.id.as_str()).await;
        let Some(mark) = mark.map_err(|error| store_error(&error))? else { return Ok(None) };
        if mark.fingerprint != order.fingerprint {
            return Err(ErrorBody::id_reused(&order.id));
        }
        let mut reply: Reply = serde_json::from_str(&mark.reply)
            .map_err(|error| ErrorBody::new(ErrorCode::Internal, format!("cannot read the stored reply: {error}")))?;
        if let Reply::Forked(forked) = &mut reply {
            forked.duplicate = Some(true);
            match self.finish_unfinished(&forked.session_id).await {
                Ok(()) | Err(Error::NotFound(_)) => {}
                Err(error) => return Err(store_error(&error)),
            }
        }
        Ok(Some(reply))
    }

    /// Writes the command's mark to the source's log, which makes the fork valid.
    async fn mark_source(&self, order: &ForkOrder, copy: &Lease, input: Option<Vec<Part>>) -> Result<Reply, ErrorBody> {
        let reply = Reply::Forked(Forked { session_id: copy.session.clone(), input, duplicate: None });
        // If the session leaves memory between lookup and request, it is opened once more.
        for _ in 0..2 {
            let mark = Mark {
                // The actor does not send the reply, because the fork is not complete yet.
                origin: NOBODY,
                id: order.id.clone(),
                fingerprint: order.fingerprint,
                reply: reply.clone(),
            };
            let source = self.open(&order.source, &order.owner).await?;
            // This server may have been paused while another one settled the copy and is deleting it. From here on, a
            // server that opens the copy opens the source next. Then the mark fails, or is found.
            if !is_ours(&**self.store(), copy).await.map_err(|error| store_error(&error))? {
                let message = "another server has taken the copy over; send the command again";
                return Err(ErrorBody::new(ErrorCode::StoreFailed, message));
            }
            match source.remember(mark).await {
                Ok(Ok(())) => return Ok(reply),
                Ok(Err(error)) => return Err(error),
                Err(_gone) => {}
            }
        }
        Err(ErrorBody::new(ErrorCode::StoreFailed, "the session could not be written; send the command again"))
    }

    /// Cleans up after a failed fork: deletes its copy, unless the mark was written. `may_count` is true if the mark
    /// was sent. If the outcome is still unknown, the next start decides.
    async fn clear_away(&self, order: &ForkOrder, id: &SessionId, may_count: bool) {
        let settled = async {
            // A mark whose answer was lost may still be written, unless the source is fenced.
            if may_count {
                self.fence(&order.source).await?;
            }
            match self.store().command(&order.source, order.id.as_str()).await {
                Ok(Some(mark)) if names(&mark, id) => self.finish_unfinished(id).await,
                Ok(_) | Err(Error::NotFound(_)) => self.store().delete(id).await,
                Err(error) => Err(error),
            }
        };
        let settled = match settled.await {
            // It would not be there after the next start anyway.
            Err(_) if self.kept(id) == Kept::InMemory => self.store().delete(id).await,
            settled => settled,
        };
        if let Err(error) = settled {
            tracing::warn!(session = %id, %error, "the copy of a failed fork remains until the next start");
        }
    }

    async fn finish_unfinished(&self, id: &SessionId) -> Result<(), Error> {
        if self.store().head(id).await?.head.updated_at != UNFINISHED {
            return Ok(());
        }
        let (_, lease, head) = self.take(id).await?;
        self.finish(&head.owner, &lease, lease.next_seq, head.head).await
    }

    /// Makes the last append, which completes the session and puts it into the list.
    async fn finish(&self, owner: &str, lease: &Lease, next_seq: u64, head: Head) -> Result<(), Error> {
        let now = self.now();
        let head = Head { created_at: now, updated_at: now, ..head };
        let append = Append { records: Vec::new(), marks: Vec::new(), usage: Vec::new(), head: head.clone() };
        self.store().append(lease, next_seq, append).await?;
        // The next client may open it on any node.
        self.store().release(lease).await?;
        if self.kept(&lease.session) == Kept::Stored {
            self.watches().changed(owner, || list_item(&lease.session, &head, Doing::Idle));
        }
        Ok(())
    }
}

/// Returns true if nobody has opened or deleted the copy since it was made.
async fn is_ours(store: &dyn SessionStore, copy: &Lease) -> Result<bool, Error> {
    match store.head(&copy.session).await {
        Ok(now) => Ok((now.term, &now.epoch) == (copy.term, &copy.epoch)),
        // The client never saw this id, so the error is not for it.
        Err(Error::NotFound(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Fails if nobody waits for the fork any more, because the connection is gone.
fn check_awaited(outgoing: &Outbox) -> Result<(), ErrorBody> {
    if outgoing.is_closed() {
        return Err(ErrorBody::new(ErrorCode::StoreFailed, "the connection is gone; send the command again"));
    }
    Ok(())
}

/// Settles sessions that a crash left unfinished. Finishes a fork whose command was or may have been acknowledged, and
/// deletes everything else. Sessions that another living node is creating are left alone. Runs when a server starts,
/// before it accepts commands, and later for nodes that are gone. This node's own forks are not affected, because it
/// holds them.
///
/// # Errors
/// The store's errors.
pub async fn settle(registry: &Registry) -> Result<(), Error> {
    let store = registry.store();
    let me = registry.keeper().map(|keeper| keeper.me());
    let mut cursor = None;
    loop {
        let query = ListQuery { unfinished: true, limit: SETTLE_PAGE, cursor, ..ListQuery::default() };
        let page = store.list(query).await?;
        for head in page.items {
            let is_own = me.is_some() && head.holder == me;
            if is_own || registry.elsewhere(&head).await?.is_some() {
                continue;
            }
            match settle_one(registry, &head.session).await {
                // Another node was faster.
                Err(Error::Held { .. } | Error::NotFound(_)) => {}
                settled => settled?,
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(());
        }
    }
}

async fn settle_one(registry: &Registry, id: &SessionId) -> Result<(), Error> {
    // Taking the lease stops an earlier writer.
    let (_, lease, head) = registry.take(id).await?;
    if head.head.updated_at != UNFINISHED {
        return registry.store().release(&lease).await;
    }
    if counts(registry, id).await? {
        registry.store().release(&lease).await?;
        registry.finish_unfinished(id).await?;
        tracing::info!(session = %id, "finished a fork interrupted by a crash");
    } else {
        registry.store().delete(id).await?;
        tracing::info!(session = %id, "deleted an unfinished session left by a crash");
    }
    Ok(())
}

/// Settles the unfinished sessions of other nodes whenever one of them leaves or is silent, until the server stops.
pub fn keep_settling(registry: &Arc<Registry>) {
    let Some(keeper) = registry.keeper() else { return };
    let (mut standing, stopping, registry_of) = (keeper.standing(), registry.stopping(), registry.clone());
    let mut others = standing.borrow_and_update().others;
    registry.track(async move {
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                changed = standing.wait_for(|now| now.others != others) => match changed {
                    Ok(now) => others = now.others,
                    Err(_) => return,
                },
            }
            if let Err(error) = settle(&registry_of).await {
                tracing::warn!(%error, "settle unfinished sessions of other servers");
            }
        }
    });
}

/// Returns true if the source of a copy has the mark that names the copy.
async fn counts(registry: &Registry, id: &SessionId) -> Result<bool, Error> {
    let Some(own) = registry.store().command(id, ORIGIN_MARK).await? else { return Ok(false) };
    let Ok(copy_of) = serde_json::from_str::<CopyOf>(&own.reply) else { return Ok(false) };
    if registry.keeper().is_some() {
        // The node that made it may be paused rather than dead, and about to write the mark.
        registry.fence(&copy_of.source).await?;
    }
    let mark = registry.store().command(&copy_of.source, &copy_of.command_id).await?;
    Ok(mark.is_some_and(|mark| names(&mark, id)))
}

fn names(mark: &CommandMark, id: &SessionId) -> bool {
    matches!(serde_json::from_str(&mark.reply), Ok(Reply::Forked(forked)) if forked.session_id == *id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::ManualClock, config::LimitSettings, core::agent_loop::Deployment, hooks::Hooks,
        provider::offline::Offline, runtime::RegistryOptions, store::memory::MemoryStore, tools::Toolset,
    };
    use reseed_protocol::Timestamp;
    use std::time::Duration;

    #[tokio::test]
    async fn a_copy_in_memory_goes_with_its_fork_even_if_the_database_does_not_say_whether_it_counts() {
        let database = Arc::new(MemoryStore::new());
        let registry = Registry::new(RegistryOptions {
            store: database.clone(),
            provider: Arc::new(Offline::new(Default::default())),
            clock: Arc::new(ManualClock::new(Timestamp(0))),
            hooks: Hooks::default(),
            tools: Toolset::default(),
            deployment: Deployment::default(),
            limits: LimitSettings::default(),
            has_several_users: false,
            detached_turn: Duration::ZERO,
            host_away: Duration::ZERO,
            cluster: None,
        });
        let copy: SessionId = "copy".parse().unwrap();
        registry.store_of_new(Kept::InMemory).create(&copy, "ann", UNFINISHED).await.unwrap();
        database.close().await.unwrap();
        let order = ForkOrder {
            source: "source".parse().unwrap(),
            owner: "ann".to_owned(),
            id: "command-0000000001".parse().unwrap(),
            fingerprint: 1,
            fork: ForkSession { entry_id: "entry".parse().unwrap(), position: ForkPosition::At, store: Some(false) },
            outgoing: Outbox::new(1).0,
        };
        registry.clear_away(&order, &copy, true).await;
        assert_eq!(registry.kept(&copy), Kept::Stored, "it is not in memory");
    }

    #[tokio::test]
    async fn a_copy_that_another_server_has_opened_or_deleted_is_not_ours() {
        let store = MemoryStore::new();
        let [opened, deleted] = ["opened", "deleted"].map(|id| id.parse::<SessionId>().unwrap());
        for id in [&opened, &deleted] {
            let lease = store.create(id, "ann", UNFINISHED).await.unwrap();
            assert_eq!(is_ours(&store, &lease).await, Ok(true));
            if *id == opened {
                store.open(id).await.unwrap();
            } else {
                store.delete(id).await.unwrap();
            }
            assert_eq!(is_ours(&store, &lease).await, Ok(false), "{id}");
        }
    }
}
