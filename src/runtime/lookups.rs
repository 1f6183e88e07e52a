//! Prefetches from the store what a command needs elsewhere in the tree. This happens before the agent loop receives
//! the command, so that the loop remains a function of its input. The actor does one thing at a time, so nothing
//! changes meanwhile.

use super::{
    ended_calls,
    errors::store_error,
    load::{WayBack, entry, path, path_to},
};
use crate::{
    core::{
        agent_loop::{pins_without, undo_target},
        context::build::remaining,
        session::{Destination, Lookup, SessionState, SessionTree, lookup::landing, unit::UnitReader},
    },
    store::{EntryQuery, SessionStore, StoredRecord},
};
use reseed_protocol::{
    ApprovalId, CallId, Entry, EntryId, ErrorBody, ErrorCode, Part, SessionId,
    command::SessionCommand,
    compaction::Pin,
    tools::CallProgress,
    tree::{Navigate, NavigatePosition},
};
use std::collections::VecDeque;

/// Bytes of a path that are read for a summary of an abandoned branch, or for a rebuilt one. This is several times what
/// any model can read, and little memory.
const LEFT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The session that a command belongs to: its store and its state.
pub(super) struct Lookups<'a> {
    pub(super) store: &'a dyn SessionStore,
    pub(super) session: &'a SessionId,
    pub(super) state: &'a SessionState,
    pub(super) tree: &'a SessionTree,
    /// The sender's client, if it has identified itself.
    pub(super) sender: Option<&'a str>,
    /// True if a hook is called before a move; it receives the abandoned branch even if no summary is requested.
    pub(super) hook_is_asked: bool,
}

/// The branch that a move leaves.
#[derive(Debug, Default)]
struct LeftBranch {
    /// Newest first.
    entries: Vec<Entry>,
    /// True if there are more entries.
    is_cut: bool,
    /// The deepest entry on both paths; `None` if there is none or it was not reached.
    common: Option<EntryId>,
}

impl Lookups<'_> {
    /// Reads what a command needs; `None` if it needs nothing. A busy session refuses moves, so nothing is read for
    /// them. Pins and rebuilt summaries are read even then.
    ///
    /// # Errors
    /// `entry_not_found` if the command names an entry that this session does not have; `nothing_to_undo`; the store's
    /// errors.
    pub(super) async fn for_command(
        &self,
        command: &SessionCommand,
        is_busy: bool,
    ) -> Result<Option<Box<Lookup>>, ErrorBody> {
        match command {
            SessionCommand::SetLabel(set) => self.seq(&set.entry_id).await.map(|_| None),
            SessionCommand::PinEntry(pin) => self.pinned(&pin.entry_id).await,
            SessionCommand::StartCompaction(compact)
                if compact.rebuild == Some(true) && compact.preview_id.is_none() =>
            {
                self.raw().await
            }
            SessionCommand::PreviewCompaction(preview) if preview.rebuild == Some(true) => self.raw().await,
            SessionCommand::ToolResult(result) => self.ended(&result.call_id).await,
            SessionCommand::CallProgress(CallProgress { tool_call_id: Some(call), .. }) => self.ended(call).await,
            SessionCommand::ApprovalResponse(response) => self.approval(&response.approval_id).await.map(Some),
            _ if is_busy => Ok(None),
            SessionCommand::UndoCompaction(undo) => {
                let undone = undo_target(self.tree.path(), undo.entry_id.as_ref())?.clone();
                let mut then = self.state.clone();
                then.undone.push(undone.clone());
                let lookup = self.seen(&then).await?;
                // What it pinned may also have been replaced by an older compaction.
                let seen = match lookup.as_deref() {
                    Some(Lookup::Path(tree)) => tree.path(),
                    _ => &[],
                };
                let pins = pins_without(&undone, &then.pins, seen);
                if pins == then.pins {
                    return Ok(lookup);
                }
                then.pins = pins;
                self.seen(&then).await
            }
            SessionCommand::Navigate(navigate) => {
                let destination = self.of_move(navigate).await?;
                Ok(Some(Box::new(Lookup::Destination(destination))))
            }
            SessionCommand::UserInput(input) => match &input.parent_id {
                // It is the session's current leaf.
                Some(parent) if *parent == self.state.leaf => Ok(None),
                Some(parent) => {
                    if let Some(parent) = parent {
                        self.entry(parent, "parentId").await?;
                    }
                    let destination = self.leaving_for(parent.clone(), None, input.summarize == Some(true)).await?;
                    Ok(Some(Box::new(Lookup::Destination(destination))))
                }
                None => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// Returns how a tool call ended, unless it is pending or unknown.
    async fn ended(&self, call: &CallId) -> Result<Option<Box<Lookup>>, ErrorBody> {
        if self.state.pending.iter().any(|pending| pending.call_id == *call) {
            return Ok(None);
        }
        let ended = ended_calls::read(self.store, self.session, call).await.map_err(|error| store_error(&error))?;
        Ok(ended.map(|ended| Box::new(Lookup::EndedCall(ended))))
    }

    /// Returns what is known of the sender of an answer to an approval. Also returns how the approval ended, unless it
    /// is pending.
    async fn approval(&self, approval: &ApprovalId) -> Result<Box<Lookup>, ErrorBody> {
        let is_open = self.state.approvals.iter().any(|open| open.approval_id == *approval);
        let ended = match approval.as_str().parse::<CallId>() {
            Ok(id) if !is_open => {
                ended_calls::read(self.store, self.session, &id).await.map_err(|error| store_error(&error))?
            }
            _ => None,
        };
        Ok(Box::new(Lookup::Approval { by: self.sender.map(str::to_owned), ended }))
    }

    /// Returns the `seq` of the entry that a command names.
    async fn seq(&self, id: &EntryId) -> Result<u64, ErrorBody> {
        let seq = self.store.entry_seq(self.session, id).await.map_err(|error| store_error(&error))?;
        seq.ok_or_else(|| not_found(id, "entryId"))
    }

    /// Returns the path to the leaf as the model would see it with these pins and undone compactions. It is read
    /// completely, because the copy in memory lacks what a compaction replaced.
    async fn seen(&self, then: &SessionState) -> Result<Option<Box<Lookup>>, ErrorBody> {
        let tree = path(self.store, self.session, then).await.map_err(|error| store_error(&error))?;
        Ok(Some(Box::new(Lookup::Path(tree))))
    }

    /// Returns the path as the model would see it once this entry is pinned, if the entry is on the path and was
    /// replaced by a compaction. `None` if the entry is visible or on another branch.
    ///
    /// # Errors
    /// `invalid_field`: what the model saw of it may differ from the entry.
    async fn pinned(&self, id: &EntryId) -> Result<Option<Box<Lookup>>, ErrorBody> {
        if remaining(self.tree.path()).iter().any(|(_, node)| node.id() == id) {
            return Ok(None);
        }
        let seq = self.seq(id).await?;
        let mut reader = UnitReader::new(id.clone());
        let mut back = WayBack::from(self.state.leaf.clone());
        'pages: loop {
            let page = back.next_page(self.store, self.session).await.map_err(|error| store_error(&error))?;
            let Some(oldest) = page.last().map(|(seq, _)| *seq) else { break };
            for (_, entry) in &page {
                if !reader.take(entry) {
                    break 'pages;
                }
            }
            // An entry is newer than its ancestors, so this one would have been met.
            if oldest <= seq && !reader.has_met() {
                break;
            }
        }
        let Some(unit) = reader.finish() else { return Ok(None) };
        let newest = self.tree.path().iter().rev().find(|node| node.compaction().is_some());
        if newest.is_some_and(|newest| newest.settles_messages()) {
            let message = "patches had changed messages when a compaction replaced this entry, so it cannot be \
                           restored alone in its original form; undo_compaction restores all of them, with the patches \
                           applied";
            return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("entryId"));
        }
        let under = newest.map(|node| node.id().clone());
        let mut then = self.state.clone();
        then.pins.extend(unit.into_iter().map(|entry_id| Pin { entry_id, with: None, under: under.clone() }));
        self.seen(&then).await
    }

    /// Returns everything on the path, for a rebuilt summary; `None` if the model sees all of it.
    async fn raw(&self) -> Result<Option<Box<Lookup>>, ErrorBody> {
        if !self.tree.path().iter().any(|node| node.compaction().is_some()) {
            return Ok(None);
        }
        let left = self.left(None, false).await?;
        Ok(Some(Box::new(Lookup::Entries { entries: left.entries, is_cut: left.is_cut })))
    }

    async fn of_move(&self, navigate: &Navigate) -> Result<Destination, ErrorBody> {
        let (leaf, input) = match (&navigate.entry_id, navigate.position.unwrap_or(NavigatePosition::At)) {
            (None, _) => (None, None),
            (Some(below), NavigatePosition::Tip) => {
                let records = self.read(EntryQuery::NewestLeaf { below: below.clone() }).await?;
                let tip = self.first(&records)?.ok_or_else(|| not_found(below, "entryId"))?;
                (Some(tip.entry_id), None)
            }
            (Some(id), position) => landing(&self.entry(id, "entryId").await?, position),
        };
        self.leaving_for(leaf, input, navigate.summarize == Some(true)).await
    }

    /// Returns the target of a move. Includes the abandoned branch if a summary is requested or a hook is called.
    async fn leaving_for(
        &self,
        leaf: Option<EntryId>,
        input: Option<Vec<Part>>,
        summarize: bool,
    ) -> Result<Destination, ErrorBody> {
        let left = match summarize || self.hook_is_asked {
            true => self.left(leaf.clone(), self.hook_is_asked).await?,
            false => LeftBranch::default(),
        };
        let tree = self.path(&leaf).await?;
        Ok(Destination { tree, leaf, input, left: left.entries, common: left.common })
    }

    /// Returns the path to an entry. The part in memory is neither read nor counted again.
    async fn path(&self, leaf: &Option<EntryId>) -> Result<SessionTree, ErrorBody> {
        let path = path_to(self.store, self.session, leaf.clone(), self.state, self.tree).await;
        path.map_err(|error| store_error(&error))
    }

    async fn entry(&self, id: &EntryId, field: &str) -> Result<Entry, ErrorBody> {
        let records = self.read(EntryQuery::Path { from: id.clone(), limit: 1 }).await?;
        self.first(&records)?.ok_or_else(|| not_found(id, field))
    }

    async fn read(&self, query: EntryQuery) -> Result<Vec<StoredRecord>, ErrorBody> {
        self.store.entries(self.session, query).await.map_err(|error| store_error(&error))
    }

    fn first(&self, records: &[StoredRecord]) -> Result<Option<Entry>, ErrorBody> {
        match records.first() {
            Some(record) => entry(self.session, record).map_err(|error| store_error(&error)),
            None => Ok(None),
        }
    }

    /// Returns the entries from the session's leaf back to the common ancestor with `target`, excluding the ancestor,
    /// newest first. Both paths are walked back in log order, the newer end first. An entry is always newer than its
    /// parent, so the two meet at their common ancestor and nothing beyond it is read. If there is more than is kept at
    /// once, the rest is walked only if the caller needs the common ancestor.
    async fn left(&self, target: Option<EntryId>, to_their_meeting: bool) -> Result<LeftBranch, ErrorBody> {
        let mut ours = Way::new(self.state.leaf.clone());
        let mut theirs = Way::new(target);
        let mut left = LeftBranch::default();
        let mut bytes = 0;
        loop {
            let Some(at) = ours.newest(self).await? else { break };
            match theirs.newest(self).await? {
                Some(other) if other == at => {
                    left.common = ours.step().map(|entry| entry.entry_id);
                    break;
                }
                Some(other) if other > at => {
                    theirs.step();
                    continue;
                }
                _ => {}
            }
            let Some(entry) = ours.step() else { break };
            if left.is_cut {
                continue;
            }
            bytes += serde_json::to_vec(&entry).map_or(0, |json| json.len());
            left.entries.push(entry);
            left.is_cut = bytes > LEFT_BYTES_MAX;
            if left.is_cut && !to_their_meeting {
                break;
            }
        }
        Ok(left)
    }
}

/// A walk back whose newest entry can be inspected before it is taken.
struct Way {
    back: WayBack,
    page: VecDeque<(u64, Entry)>,
}

impl Way {
    fn new(leaf: Option<EntryId>) -> Self {
        Self { back: WayBack::from(leaf), page: VecDeque::new() }
    }

    /// Returns the `seq` of the next entry; `None` at the root.
    async fn newest(&mut self, lookups: &Lookups<'_>) -> Result<Option<u64>, ErrorBody> {
        if self.page.is_empty() {
            let page = self.back.next_page(lookups.store, lookups.session).await;
            self.page = page.map_err(|error| store_error(&error))?.into();
        }
        Ok(self.page.front().map(|(seq, _)| *seq))
    }

    fn step(&mut self) -> Option<Entry> {
        self.page.pop_front().map(|(_, entry)| entry)
    }
}

fn not_found(id: &EntryId, field: &str) -> ErrorBody {
    let message = format!("there is no entry `{id}` in this session");
    ErrorBody::new(ErrorCode::EntryNotFound, message).with_field(field)
}
