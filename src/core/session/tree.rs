//! The session tree: entries that only ever get appended.
//!
//! In memory is only what the model can see: the path to the leaf, from the first entry that the newest compaction
//! keeps. What came before is in the store.
//!
//! Invariants, kept by the methods here and nothing else:
//! - the path is a chain: each node's parent is the one before it, except where older entries were forgotten;
//! - an entry, once appended, never changes.

use super::{SessionState, fingerprint::message_fingerprint};
use crate::core::context::{
    Context,
    causes::Area,
    counter::{Counter, Estimator, MessageTokens},
    patch::{Carried, StoredPatch},
    replay::Replay,
    serialize::prefix,
    summary,
};
use reseed_protocol::{
    Entry, EntryData, EntryId, Message, Part, Role,
    entry::{Compaction, Kept},
    patch::{PATCH_VERSION, PatchOp},
    reply::Pin,
};
use std::{
    collections::HashSet,
    sync::{Arc, OnceLock},
};

/// An entry with its count, made once.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The entry.
    pub entry: Entry,
    /// The message as it is sent, for entries that hold one: shared with every request.
    pub message: Option<Arc<Message>>,
    /// What the entry adds to a request, as estimated, not corrected.
    pub tokens: MessageTokens,
    /// Fingerprint of what the message says; 0 where there is none.
    pub hash: u64,
    /// Every compaction keeps it word for word.
    pub pinned: bool,
    /// A compaction that building the context passes over.
    pub undone: bool,
    /// A tool's answer that gave way to a short note.
    pub cleared: bool,
    /// What a patch makes of what stands before it, or a compaction of what it keeps; `None` also for a patch of a form
    /// that this version does not know.
    pub patch: Option<Arc<StoredPatch>>,
}

/// What stands in front of the beginning of a tool's answer that was cleared.
pub const CLEARED: &str = "[This old tool result was cut to save room; call the tool again if more of it is needed.]";

/// Characters of a cleared answer that stay: enough to tell what it was about.
const CLEARED_CHARS: usize = 160;

impl Node {
    /// The entry, counted.
    #[must_use]
    pub fn counted(entry: Entry, counter: &Counter) -> Self {
        let message = message_of(&entry).map(Arc::new);
        let tokens = counter.entry(&entry, message.as_deref());
        let hash = message.as_deref().map_or(0, message_fingerprint);
        let patch = patch_of(&entry, counter).map(Arc::new);
        // What another program wrote is told as it wrote it, also in its own arithmetic.
        let entry = if entry.imported.is_some() { entry } else { without_ballast(entry) };
        Self { entry, message, tokens, hash, pinned: false, undone: false, cleared: false, patch }
    }

    /// The entry with nothing counted, for who only reads what was said.
    #[must_use]
    pub(crate) fn uncounted(entry: Entry) -> Self {
        let message = message_of(&entry).map(Arc::new);
        let patch = patch_of(&entry, &Counter::chosen(Estimator::Pi, "")).map(Arc::new);
        let tokens = MessageTokens::default();
        Self { entry, message, tokens, hash: 0, pinned: false, undone: false, cleared: false, patch }
    }

    /// The entry's id.
    #[must_use]
    pub fn id(&self) -> &EntryId {
        &self.entry.entry_id
    }

    /// The compaction that this entry is, unless it was undone.
    #[must_use]
    pub fn compaction(&self) -> Option<&Compaction> {
        match &self.entry.data {
            EntryData::Compaction(compaction) if !self.undone => Some(compaction),
            _ => None,
        }
    }

    /// Whether this is a compaction before which patches had changed messages: what it does not keep does not come back
    /// alone, as its entry says it.
    #[must_use]
    pub fn settles_messages(&self) -> bool {
        self.compaction().is_some() && self.patch.as_ref().is_some_and(|patch| !patch.messages.is_empty())
    }

    /// The node as the session's pins and undone compactions make it.
    #[must_use]
    pub fn marked(mut self, state: &SessionState) -> Self {
        self.pinned = state.pins.iter().any(|pin| pin.entry_id == self.entry.entry_id);
        if matches!(self.entry.data, EntryData::Compaction(_)) && state.undone.contains(&self.entry.entry_id) {
            return self.passed_over();
        }
        self
    }

    /// A compaction as if it were not there.
    #[must_use]
    pub(crate) fn passed_over(self) -> Self {
        Self { undone: true, message: None, tokens: MessageTokens::default(), hash: 0, ..self }
    }

    /// The node with a short note in the place of its tool results; any other node as it is.
    #[must_use]
    fn without_results(&self, counter: &Counter) -> Option<Self> {
        let message = self.message.as_deref().filter(|message| message.role == Role::Tool && !self.cleared)?;
        let message = without_results(message);
        let tokens = counter.entry(&self.entry_with(&message), Some(&message));
        let hash = message_fingerprint(&message);
        Some(Self { message: Some(Arc::new(message)), tokens, hash, cleared: true, ..self.clone() })
    }

    fn entry_with(&self, message: &Message) -> Entry {
        Entry { data: EntryData::Message(message.clone()), ..self.entry.clone() }
    }
}

/// A message with a short note in the place of its tool results.
#[must_use]
pub(crate) fn without_results(message: &Message) -> Message {
    let mut message = message.clone();
    for part in &mut message.content {
        if let Part::ToolResult { output, .. } = part {
            let beginning = prefix(output.trim_start(), CLEARED_CHARS);
            *output = format!("{CLEARED}\n{beginning}…");
        }
    }
    message
}

/// The patch that an entry holds, in a form that this version knows.
fn patch_of(entry: &Entry, counter: &Counter) -> Option<StoredPatch> {
    match &entry.data {
        EntryData::ContextTransform(kept) => {
            let transform = kept.known().filter(|transform| transform.schema_version == PATCH_VERSION)?;
            Some(StoredPatch::of(transform.patch.clone(), counter))
        }
        EntryData::Compaction(compaction) if !compaction.carried_patch.is_empty() => {
            Some(StoredPatch::of(compaction.carried_patch.clone(), counter))
        }
        _ => None,
    }
}

/// The message as it is sent, for entries that hold one.
#[must_use]
pub fn message_of(entry: &Entry) -> Option<Message> {
    match &entry.data {
        EntryData::Message(message) => Some(message.clone()),
        EntryData::Compaction(compaction) if !compaction.summary.is_empty() => {
            Some(Message::user(summary::seed_text(&compaction.summary)))
        }
        EntryData::CustomMessage(custom) => Some(Message::new(Role::User, custom.content.clone())),
        EntryData::BranchSummary(branch) if !branch.summary.is_empty() => {
            Some(Message::user(summary::branch_text(&branch.summary)))
        }
        _ => None,
    }
}

/// An entry without what is never sent, or is kept beside it: it is in the store, and a session that keeps much data of
/// its clients' must not hold it all in memory.
fn without_ballast(mut entry: Entry) -> Entry {
    match &mut entry.data {
        EntryData::Custom(custom) => custom.data = None,
        EntryData::CustomMessage(custom) => custom.details = None,
        // Kept counted, beside the entry.
        EntryData::Compaction(compaction) => compaction.carried_patch = Vec::new(),
        EntryData::ContextTransform(kept) => {
            if let Kept::Known(transform) = &mut **kept {
                transform.patch = Vec::new();
                transform.display = None;
            }
        }
        EntryData::Ephemeral(kept) => {
            if let Kept::Known(change) = &mut **kept {
                // What it changed says why the request after it begins otherwise.
                change.patch = Area::bare(std::mem::take(&mut change.patch));
            }
        }
        _ => {}
    }
    entry
}

/// The path to the leaf, as far as the model can see it.
#[derive(Debug, Clone, Default)]
pub struct SessionTree {
    path: Vec<Arc<Node>>,
    /// What the model sees of it, once somebody asked. Follows from the path alone.
    replay: OnceLock<Replay>,
}

impl PartialEq for SessionTree {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl SessionTree {
    fn of(path: Vec<Arc<Node>>) -> Self {
        Self { path, replay: OnceLock::new() }
    }

    /// What the model sees. Made once, and added to as entries come.
    #[must_use]
    pub fn context(&self) -> Arc<Context> {
        self.replay().context()
    }

    /// The same before calls and results are paired.
    pub(crate) fn raw_context(&self) -> &Context {
        self.replay().raw()
    }

    /// What the patches on the path make of the system prompt, the tools and the options.
    #[must_use]
    pub fn carried(&self) -> &Carried {
        &self.raw_context().carried
    }

    fn replay(&self) -> &Replay {
        self.replay.get_or_init(|| Replay::of(&self.path))
    }

    /// The entry from which the session goes on; `None` before the first.
    #[must_use]
    pub fn leaf(&self) -> Option<&EntryId> {
        self.path.last().map(|node| node.id())
    }

    /// The path to the leaf, oldest first.
    #[must_use]
    pub fn path(&self) -> &[Arc<Node>] {
        &self.path
    }

    /// Hangs an entry from the leaf and makes it the leaf. An entry whose parent is further up the path begins a new
    /// branch there; the entries below it leave memory, not the store.
    pub fn append(&mut self, node: Arc<Node>) {
        let keep = match &node.entry.parent_id {
            None => 0,
            Some(parent) => {
                self.path.iter().rposition(|other| other.id() == parent).map_or(self.path.len(), |at| at + 1)
            }
        };
        let extends = keep == self.path.len() && self.replay.get_mut().is_some_and(|replay| replay.extend(&node));
        if !extends {
            self.replay.take();
        }
        self.path.truncate(keep);
        self.path.push(node);
    }

    /// The path to an entry of it, where that is the whole of what the model would see there: not before the newest
    /// compaction, whose older entries were forgotten.
    #[must_use]
    pub fn upto(&self, leaf: &EntryId) -> Option<Self> {
        let at = self.path.iter().rposition(|node| node.id() == leaf)?;
        let newest = self.path.iter().rposition(|node| node.compaction().is_some());
        (newest.is_none_or(|newest| newest <= at)).then(|| Self::of(self.path[..=at].to_vec()))
    }

    /// Counts every entry anew, for another model.
    pub fn recount(&mut self, counter: &Counter) {
        for node in &mut self.path {
            let tokens = match &node.message {
                Some(message) if node.cleared => counter.entry(&node.entry_with(message), Some(message)),
                message => counter.entry(&node.entry, message.as_deref()),
            };
            let patch = node.patch.as_ref().map(|patch| Arc::new(patch.recounted(counter)));
            *node = Arc::new(Node { tokens, patch, ..(**node).clone() });
        }
        self.replay.take();
    }

    /// Marks the path's nodes as the session's pins and undone compactions say.
    pub fn mark(&mut self, state: &SessionState) {
        for node in &mut self.path {
            let pinned = state.pins.iter().any(|pin| pin.entry_id == node.entry.entry_id);
            let undone = matches!(node.entry.data, EntryData::Compaction(_)) && state.undone.contains(node.id());
            if node.pinned != pinned || node.undone != undone {
                *node = Arc::new((**node).clone().marked(state));
                self.replay.take();
            }
        }
    }

    /// Puts a short note in the place of the tool results of these entries.
    pub fn clear(&mut self, entries: &[EntryId], counter: &Counter) {
        let entries: HashSet<&EntryId> = entries.iter().collect();
        for node in self.path.iter_mut().filter(|node| entries.contains(node.id())) {
            if let Some(cleared) = node.without_results(counter) {
                *node = Arc::new(cleared);
                self.replay.take();
            }
        }
    }

    /// Clears what the newest compaction on the path cleared.
    fn clear_as_compacted(&mut self, counter: &Counter) {
        let newest = self.path.iter().rev().find_map(|node| node.compaction());
        if let Some(cleared) =
            newest.map(|compaction| compaction.cleared_entry_ids.clone()).filter(|ids| !ids.is_empty())
        {
            self.clear(&cleared, counter);
        }
    }

    /// Goes back to an entry on the path, or before the first. An entry that is not in memory leaves the path as it is:
    /// whoever moves there reads it from the store first.
    pub fn move_leaf(&mut self, leaf: Option<&EntryId>) {
        let Some(leaf) = leaf else {
            *self = Self::default();
            return;
        };
        let at = self.path.iter().rposition(|node| node.id() == leaf);
        if let Some(at) = at.filter(|at| at + 1 < self.path.len()) {
            self.path.truncate(at + 1);
            self.replay.take();
        }
    }

    /// Forgets what no request can hold any more: the entries before the newest compaction that it does not keep.
    pub fn forget_before(&mut self, first_kept: Option<&EntryId>, kept: &[EntryId]) {
        let Some(compaction) = self.path.iter().rposition(|node| node.compaction().is_some()) else {
            return;
        };
        let first = first_kept
            .and_then(|first| self.path[..compaction].iter().position(|node| node.id() == first))
            .unwrap_or(compaction);
        let mut at = 0;
        self.path.retain(|node| {
            let keep = at >= first || kept.contains(node.id());
            at += 1;
            keep
        });
        self.replay.take();
    }
}

/// Finds, walking from the leaf to the root, how far back a session must be read so that the model sees all it should.
#[derive(Debug)]
pub struct PathReader<'a> {
    state: &'a SessionState,
    counter: &'a Counter,
    nodes: Vec<Arc<Node>>,
    boundary: Option<Boundary>,
}

#[derive(Debug)]
struct Boundary {
    first_kept: Option<EntryId>,
    /// Single entries that are on the path and were not met yet.
    missing: Vec<EntryId>,
    /// Pinned entries that were not met yet, and may be on another branch.
    sought: Vec<EntryId>,
    kept: Vec<EntryId>,
    /// Where the compaction stands among the nodes.
    at: usize,
}

impl<'a> PathReader<'a> {
    /// For the session whose pins and undone compactions are these.
    #[must_use]
    pub fn new(state: &'a SessionState, counter: &'a Counter) -> Self {
        Self { state, counter, nodes: Vec::new(), boundary: None }
    }

    /// Takes the next entry towards the root. `false`: nothing further back is needed.
    pub fn take(&mut self, entry: Entry) -> bool {
        let id = entry.entry_id.clone();
        let mut keep = true;
        match &mut self.boundary {
            None => {
                let undone = self.state.undone.contains(&id);
                if let EntryData::Compaction(compaction) = &entry.data
                    && !undone
                {
                    let met: HashSet<&EntryId> = self.nodes.iter().map(|node| node.id()).collect();
                    let mut kept = compaction.kept_entry_ids.clone();
                    // Pinned when this compaction had already taken them out of sight: they come back, where no patch
                    // had changed messages before.
                    let settles = compaction.carried_patch.iter().any(PatchOp::is_on_messages);
                    let pins = self.state.pins.iter().filter(|_| !settles);
                    let (later, others): (Vec<&Pin>, Vec<&Pin>) = pins.partition(|pin| pin.under.as_ref() == Some(&id));
                    kept.extend(later.into_iter().map(|pin| pin.entry_id.clone()));
                    let others = others.into_iter().map(|pin| &pin.entry_id);
                    let sought =
                        others.filter(|pinned| !met.contains(pinned) && !kept.contains(pinned)).cloned().collect();
                    let missing = kept.iter().filter(|kept| !met.contains(kept)).cloned().collect();
                    let first_kept = compaction.first_kept_entry_id.clone();
                    self.boundary = Some(Boundary { first_kept, missing, sought, kept, at: self.nodes.len() });
                }
            }
            Some(boundary) => {
                keep = boundary.first_kept.is_some() || boundary.missing.contains(&id) || boundary.sought.contains(&id);
                boundary.missing.retain(|missing| *missing != id);
                boundary.sought.retain(|sought| *sought != id);
                if boundary.first_kept.as_ref() == Some(&id) {
                    boundary.first_kept = None;
                }
            }
        }
        if keep {
            self.nodes.push(Arc::new(Node::counted(entry, self.counter).marked(self.state)));
        }
        self.wants_more()
    }

    /// Whether something further back is needed.
    #[must_use]
    pub fn wants_more(&self) -> bool {
        self.boundary.as_ref().is_none_or(|boundary| {
            boundary.first_kept.is_some() || !boundary.missing.is_empty() || !boundary.sought.is_empty()
        })
    }

    /// Once only single older entries are missing, which: whoever can read them by id need not walk on. They are taken
    /// as the others, newest first.
    #[must_use]
    pub fn missing(&self) -> Option<&[EntryId]> {
        let single = |boundary: &&Boundary| boundary.first_kept.is_none() && boundary.sought.is_empty();
        self.boundary.as_ref().filter(single).map(|boundary| &*boundary.missing)
    }

    /// Pinned entries that are looked for further back, and may be on another branch.
    #[must_use]
    pub fn sought(&self) -> &[EntryId] {
        self.boundary.as_ref().map_or(&[], |boundary| &*boundary.sought)
    }

    /// That pinned entry is on another branch: it is not looked for any more.
    pub fn give_up(&mut self, pinned: &EntryId) {
        if let Some(boundary) = &mut self.boundary {
            boundary.sought.retain(|sought| sought != pinned);
        }
    }

    /// Whether what came so far holds no compaction, so that a path that is known can follow ([`Self::finish_with`]).
    #[must_use]
    pub fn may_join(&self) -> bool {
        self.boundary.is_none()
    }

    /// The path that was read.
    #[must_use]
    pub fn finish(mut self) -> SessionTree {
        // A compaction of another program's may keep from an entry that is not on its path: then it keeps nothing.
        if let Some(Boundary { first_kept: Some(_), kept, at, .. }) = &self.boundary {
            let mut place = 0;
            self.nodes.retain(|node| {
                let keep = place <= *at || node.pinned || kept.contains(node.id());
                place += 1;
                keep
            });
        }
        self.nodes.reverse();
        let mut tree = SessionTree::of(self.nodes);
        tree.clear_as_compacted(self.counter);
        tree
    }

    /// The path that was read, hanging from the end of one that is known.
    #[must_use]
    pub fn finish_with(self, known: SessionTree) -> SessionTree {
        let mut path = known.path;
        path.extend(self.nodes.into_iter().rev());
        SessionTree::of(path)
    }
}
