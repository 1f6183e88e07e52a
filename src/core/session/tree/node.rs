//! A node of the session tree: an entry with its count.

use crate::core::{
    context::{
        causes::Area,
        counter::{Counter, Estimator, MessageTokens},
        patch::StoredPatch,
        serialize::prefix,
        summary,
    },
    session::{SessionState, fingerprint::message_fingerprint},
};
use reseed_protocol::{
    Entry, EntryData, EntryId, Message, Part, Role,
    entry::{Compaction, Kept},
    patch::PATCH_VERSION,
};
use std::sync::Arc;

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
    pub(super) fn without_results(&self, counter: &Counter) -> Option<Self> {
        let message = self.message.as_deref().filter(|message| message.role == Role::Tool && !self.cleared)?;
        let message = without_results(message);
        let tokens = counter.entry(&self.entry_with(&message), Some(&message));
        let hash = message_fingerprint(&message);
        Some(Self { message: Some(Arc::new(message)), tokens, hash, cleared: true, ..self.clone() })
    }

    pub(super) fn entry_with(&self, message: &Message) -> Entry {
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
