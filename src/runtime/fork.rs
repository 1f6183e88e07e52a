//! Makes a session of its own out of the path to an entry.
//!
//! The path is copied by many appends, none of them large, so that other sessions write in between and memory holds one
//! piece at a time. Until the last one the new session is [`UNFINISHED`] and nobody sees it. In between, when all of the
//! path is durable, the command's mark is written to the log of the source. So the mark decides: a crash before it leaves
//! a copy that nobody knows and that is deleted at the next start; after it, the copy is finished then
//! ([`settle`]), or by the same command sent again.

use super::{
    handle::{Outgoing, conflict},
    labels::newest_labels,
    load::{entry, state, stored_state},
    registry::Registry,
    shared::store_error,
    watch::list_item,
};
use crate::{
    core::{
        agent_loop::{Mark, Origin},
        session::{
            SessionState,
            fork::{PathCopy, fork_name, mentions},
            place::landing,
        },
    },
    store::{Append, CommandMark, EntryColumns, EntryQuery, Error, Head, Lease, ListQuery, NewRecord, UNFINISHED},
};
use reseed_protocol::{
    CommandId, Entry, EntryData, EntryId, ErrorBody, ErrorCode, Part, SessionId,
    command::{ForkPosition, ForkSession, NavigatePosition},
    event::{EntryAppended, Event, SessionUpdated},
    reply::{Forked, Reply, SessionState as Doing},
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, sync::Arc};
use tokio::sync::mpsc;

/// Forks at work at once: each holds a piece of its path in memory. Further ones wait. Those of one session always wait
/// for each other, so that a command that is sent twice is done once.
pub(super) const FORKS_MAX: usize = 16;

/// Entries of one append at most: some milliseconds of the store's writer.
const PIECE_ENTRIES_MAX: u32 = 256;
/// Bytes that a piece should have at most. One large entry, or a few between small ones, may be more.
const PIECE_BYTES: usize = 512 * 1024;

/// Bytes of entries that are read at once to count the next request: more than the text of most windows.
const COUNTED_BYTES_MAX: usize = 8 * 1024 * 1024;

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
            copy.path(&path).await?;
            copy.labels(&path).await?;
            copy.end(&state.name, &head.head).await?;
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

/// The session that is forked.
struct Source<'a> {
    registry: &'a Registry,
    id: &'a SessionId,
    last_seq: u64,
}

/// Where the pieces of a path are, so that it can be read from the root on without being held.
#[derive(Debug, Default)]
struct Path {
    /// The newest entry of each piece and how many it has, the piece at the root last.
    pieces: Vec<(EntryId, u32)>,
    /// The place in the log of each entry, in order: 8 bytes for an entry of any size.
    seqs: Vec<u64>,
}

impl Source<'_> {
    async fn read(&self, query: EntryQuery) -> Result<Vec<(u64, Entry, usize)>, ErrorBody> {
        let records = self.registry.store().entries(self.id, query).await.map_err(|error| store_error(&error))?;
        let mut entries = Vec::with_capacity(records.len());
        for record in records {
            if let Some(entry) = entry(self.id, &record).map_err(|error| store_error(&error))? {
                entries.push((record.seq, entry, record.body.len()));
            }
        }
        Ok(entries)
    }

    async fn entry(&self, id: &EntryId) -> Result<Entry, ErrorBody> {
        let found = self.read(EntryQuery::Path { from: id.clone(), limit: 1 }).await?.pop();
        found.map(|(_, entry, _)| entry).ok_or_else(|| {
            let message = format!("there is no entry `{id}` in this session");
            ErrorBody::new(ErrorCode::EntryNotFound, message).with_field("entryId")
        })
    }

    /// Walks from an entry to its root.
    async fn survey(&self, end: Option<EntryId>) -> Result<Path, ErrorBody> {
        let (mut path, mut next, mut limit) = (Path::default(), end, 16);
        while let Some(from) = next.take() {
            self.registry.check_running()?;
            let piece = self.read(EntryQuery::Path { from: from.clone(), limit }).await?;
            let count = u32::try_from(piece.len()).unwrap_or(limit);
            if count == limit {
                next = piece.last().and_then(|(_, entry, _)| entry.parent_id.clone());
            }
            if count > 0 {
                path.pieces.push((from, count));
            }
            path.seqs.extend(piece.iter().map(|(seq, _, _)| *seq));
            if path.seqs.len() as u64 > self.last_seq {
                let message = "the path to this entry goes in a circle and has no root; fork elsewhere";
                return Err(ErrorBody::new(ErrorCode::SessionDamaged, message).with_field("entryId"));
            }
            // The size of the next piece follows from that of this one: few large entries, or many small ones.
            let bytes: usize = piece.iter().map(|(_, _, bytes)| bytes).sum();
            limit = if bytes > PIECE_BYTES { (limit / 4).max(1) } else { (limit * 2).min(PIECE_ENTRIES_MAX) };
        }
        path.seqs.sort_unstable();
        Ok(path)
    }

    /// Which of these entries are on the path.
    async fn on_path(&self, path: &Path, ids: Vec<EntryId>) -> Result<BTreeSet<EntryId>, ErrorBody> {
        let mut there = BTreeSet::new();
        for id in ids {
            let seq = self.registry.store().entry_seq(self.id, &id).await.map_err(|error| store_error(&error))?;
            if seq.is_some_and(|seq| path.seqs.binary_search(&seq).is_ok()) {
                there.insert(id);
            }
        }
        Ok(there)
    }
}

/// The new session while it is being written.
struct Copy<'a> {
    source: &'a Source<'a>,
    registry: &'a Registry,
    lease: Lease,
    next_seq: u64,
    state: SessionState,
    head: Head,
    chain: PathCopy,
    /// Bytes of the entries since the newest compaction: about what a session of this path has in memory when it is open.
    active_bytes: usize,
}

impl<'a> Copy<'a> {
    /// Writes what every session begins with, as the source has it.
    async fn begin(
        registry: &'a Registry,
        source: &'a Source<'a>,
        lease: Lease,
        copy_of: CopyOf,
        of: &SessionState,
    ) -> Result<Self, ErrorBody> {
        let head = Head { created_at: UNFINISHED, updated_at: UNFINISHED, ..Head::default() };
        let (next_seq, state, chain) = (lease.next_seq, SessionState::default(), PathCopy::default());
        let mut this = Self { source, registry, lease, next_seq, state, head, chain, active_bytes: 0 };
        let founding = SessionUpdated {
            model: Some(of.model.clone()),
            strategy: Some(of.strategy.clone()),
            settings: Some(of.settings.clone()),
            generation: Some(1),
            ..nothing_updated()
        };
        let reply = json(&copy_of);
        let mark = CommandMark { command_id: ORIGIN_MARK.to_owned(), fingerprint: 0, reply };
        this.append(vec![Event::SessionUpdated(Box::new(founding))], vec![mark]).await?;
        Ok(this)
    }

    async fn path(&mut self, path: &Path) -> Result<(), ErrorBody> {
        for (from, limit) in path.pieces.iter().rev() {
            self.registry.check_running()?;
            let piece = self.source.read(EntryQuery::Path { from: from.clone(), limit: *limit }).await?;
            let mut events = Vec::with_capacity(piece.len());
            for (_, entry, bytes) in piece.into_iter().rev() {
                if matches!(entry.data, EntryData::Compaction(_)) {
                    self.active_bytes = 0;
                }
                self.active_bytes += bytes;
                let there = self.source.on_path(path, mentions(&entry)).await?;
                events.extend(self.chain.take(entry, &there).map(appended));
            }
            self.append(events, Vec::new()).await?;
        }
        Ok(())
    }

    /// Names that entries of the copy were given on other branches. The newest name of an entry counts, so those that are
    /// on the path and were given anew elsewhere come after it.
    async fn labels(&mut self, path: &Path) -> Result<(), ErrorBody> {
        let newest = newest_labels(&**self.registry.store(), self.source.id, |_| true).await;
        let newest = newest.map_err(|error| store_error(&error))?;
        let mut events = Vec::new();
        for (target, label) in newest {
            let there = self.source.on_path(path, vec![target.clone(), label.entry_id.clone()]).await?;
            if there.contains(&target) && !there.contains(&label.entry_id) {
                events.extend(self.chain.take_label(label).map(appended));
            }
            if events.len() >= PIECE_ENTRIES_MAX as usize {
                self.append(std::mem::take(&mut events), Vec::new()).await?;
            }
        }
        self.append(events, Vec::new()).await
    }

    /// Writes what comes last: the name, and what lists show. Where counting would hold much in memory, lists show the count
    /// of the source until the first turn.
    async fn end(&mut self, name: &str, source: &Head) -> Result<(), ErrorBody> {
        let name = fork_name(name);
        if name != self.state.name {
            let named = SessionUpdated { name: Some(name), ..nothing_updated() };
            self.append(vec![Event::SessionUpdated(Box::new(named))], Vec::new()).await?;
        }
        if self.active_bytes > COUNTED_BYTES_MAX {
            self.head.token_count = source.token_count;
            self.head.window_tokens = source.window_tokens;
            return Ok(());
        }
        let head = self.registry.store().head(&self.lease.session).await.map_err(|error| store_error(&error))?;
        let info = self.registry.snapshot_of(&head).await?.context_info;
        self.head.token_count = info.token_count;
        self.head.window_tokens = info.max_tokens;
        Ok(())
    }

    async fn append(&mut self, events: Vec<Event>, marks: Vec<CommandMark>) -> Result<(), ErrorBody> {
        if events.is_empty() {
            return Ok(());
        }
        events.iter().for_each(|event| self.state.apply(event));
        self.head.name.clone_from(&self.state.name);
        self.head.entries = self.state.entries;
        self.head.state = stored_state(&self.state);
        let records: Vec<NewRecord> = events.iter().map(record).collect();
        let (first_seq, count) = (self.next_seq, records.len() as u64);
        let append = Append { records, marks, head: self.head.clone() };
        let written = self.registry.store().append(&self.lease, first_seq, append).await;
        written.map_err(|error| store_error(&error))?;
        self.next_seq += count;
        Ok(())
    }
}

/// The turn and the command that wrote an entry belong to the log of the source.
fn appended(entry: Entry) -> Event {
    Event::EntryAppended(Box::new(EntryAppended { entry, turn_id: None, command_id: None }))
}

fn record(event: &Event) -> NewRecord {
    let entry = match event {
        Event::EntryAppended(appended) => Some(EntryColumns {
            entry_id: appended.entry.entry_id.clone(),
            parent_id: appended.entry.parent_id.clone(),
            kind: appended.entry.type_name().to_owned(),
        }),
        _ => None,
    };
    NewRecord { body: json(event), entry }
}

fn nothing_updated() -> SessionUpdated {
    SessionUpdated {
        name: None,
        model: None,
        strategy: None,
        settings: None,
        leaf_id: None,
        generation: None,
        command_id: None,
    }
}

fn json<T: Serialize>(value: &T) -> Arc<str> {
    serde_json::to_string(value).expect("wire types have text keys and finite numbers").into()
}
