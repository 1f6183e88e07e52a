//! A node of the session tree: an entry with its token count.

use crate::{
    context::{
        area::Area,
        counter::{Counter, MessageTokens},
        patch::StoredPatch,
        seed,
    },
    fingerprint::{chain, fingerprint, message_fingerprint},
    text::clip::prefix,
};
use reseed_protocol::{
    Entry, EntryData, EntryId, Message, Part, Payload, Role, compaction::Compaction, context::PATCH_VERSION, tree::Kept,
};
use std::sync::Arc;

/// An entry with its token count, computed once.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The entry.
    pub entry: Entry,
    /// The message that requests send, for entries that have one: the entry's own, or one made from its summary or
    /// content. All requests share it.
    pub message: Option<Arc<Message>>,
    /// Estimated tokens that the entry adds to a request, before calibration.
    pub tokens: MessageTokens,
    /// Fingerprint of the message's content; 0 without a message.
    pub hash: u64,
    /// True if every compaction keeps the entry verbatim.
    pub pinned: bool,
    /// True for an undone compaction, which building the context skips.
    pub undone: bool,
    /// True for a tool result that was replaced with a short note.
    pub cleared: bool,
    /// The patch that the entry applies to the messages before it, or that a compaction applies to the messages it
    /// keeps. It is also `None` for a patch in a form that this version does not know.
    pub patch: Option<Arc<StoredPatch>>,
}

/// The note that precedes the beginning of a cleared tool result.
pub const CLEARED: &str = "[This old tool result was cut to save room; call the tool again if more of it is needed.]";

/// Characters of a cleared result that stay: enough to tell what it was about.
const CLEARED_CHARS: usize = 160;

impl Node {
    /// Counts an entry.
    #[must_use]
    pub fn counted(mut entry: Entry, counter: &Counter) -> Self {
        // The store keeps the complete text of a result that was cut; no request sends it.
        entry.take_whole();
        let message = message_of(&entry);
        let tokens = counter.entry(&entry, message.as_deref());
        let hash = message.as_deref().map_or(0, message_fingerprint);
        let native = message.as_deref().and_then(Message::native);
        let hash = native.map_or(hash, |native| chain(hash, fingerprint(native.items.as_bytes())));
        let patch = patch_of(&entry, counter).map(Arc::new);
        // Entries of another program are shown as it wrote them, and measured by its rules too.
        let entry = if entry.imported.is_some() { entry } else { without_ballast(entry) };
        Self { entry, message, tokens, hash, pinned: false, undone: false, cleared: false, patch }
    }

    /// Wraps an entry without counting it, for callers that only read its content.
    #[must_use]
    pub(crate) fn uncounted(entry: Entry) -> Self {
        let message = message_of(&entry);
        let patch = patch_of(&entry, &Counter::by_characters()).map(Arc::new);
        let tokens = MessageTokens::default();
        Self { entry, message, tokens, hash: 0, pinned: false, undone: false, cleared: false, patch }
    }

    /// Returns the entry's id.
    #[must_use]
    pub fn id(&self) -> &EntryId {
        &self.entry.entry_id
    }

    /// Returns the compaction in this entry, unless it was undone.
    #[must_use]
    pub fn compaction(&self) -> Option<&Compaction> {
        match &self.entry.data {
            EntryData::Compaction(compaction) if !self.undone => Some(compaction),
            _ => None,
        }
    }

    /// Returns true for a compaction with message patches before it. Its entry states which messages it keeps, so
    /// pinning an entry later does not restore it.
    #[must_use]
    pub fn settles_messages(&self) -> bool {
        self.compaction().is_some() && self.patch.as_ref().is_some_and(|patch| !patch.messages.is_empty())
    }

    /// Returns the node of a compaction as if the compaction did not exist.
    #[must_use]
    pub(crate) fn passed_over(self) -> Self {
        Self { undone: true, message: None, tokens: MessageTokens::default(), hash: 0, ..self }
    }

    /// Returns the node with its tool results replaced by a short note; `None` for any other node.
    #[must_use]
    pub(crate) fn without_results(&self, counter: &Counter) -> Option<Self> {
        let message = self.message.as_deref().filter(|message| message.role == Role::Tool && !self.cleared)?;
        let message = Arc::new(without_results(message));
        let tokens = counter.entry(&self.entry_with(&message), Some(&message));
        let hash = message_fingerprint(&message);
        Some(Self { message: Some(message), tokens, hash, cleared: true, ..self.clone() })
    }

    pub(crate) fn entry_with(&self, message: &Arc<Message>) -> Entry {
        Entry { data: EntryData::message(message.clone()), ..self.entry.clone() }
    }
}

/// Returns a message with its tool results replaced by a short note.
#[must_use]
pub(crate) fn without_results(message: &Message) -> Message {
    let mut message = Message { cut: None, ..message.clone() };
    for part in &mut message.content {
        if let Part::ToolResult { output, .. } = part {
            let beginning = prefix(output.trim_start(), CLEARED_CHARS);
            *output = format!("{CLEARED}\n{beginning}…");
        }
    }
    message
}

/// Returns an entry's patch if this version knows its form.
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

/// Returns the message that requests send for an entry, if any.
#[must_use]
pub fn message_of(entry: &Entry) -> Option<Arc<Message>> {
    match &entry.data {
        EntryData::Message(message) => Some(message.clone()),
        EntryData::Compaction(compaction) if !compaction.summary.is_empty() => {
            let text = if compaction.history_tools { seed::searchable_seed_text } else { seed::seed_text };
            let payload = compaction.native.as_ref().map(|native| {
                let (server, compaction) = (native.server.clone(), Some(Box::new(native.clone())));
                Box::new(Payload { server, compaction, ..Payload::default() })
            });
            Some(Arc::new(Message { payload, ..Message::user(text(&compaction.summary)) }))
        }
        EntryData::CustomMessage(custom) => Some(Arc::new(Message::new(Role::User, custom.content.clone()))),
        EntryData::BranchSummary(branch) if !branch.summary.is_empty() => {
            Some(Arc::new(Message::user(seed::branch_text(&branch.summary))))
        }
        _ => None,
    }
}

/// Removes data that is never sent, or that is kept outside the entry. The store has it, and a session with much client
/// data must not hold all of it in memory.
fn without_ballast(mut entry: Entry) -> Entry {
    match &mut entry.data {
        EntryData::Custom(custom) => custom.data = None,
        EntryData::CustomMessage(custom) => custom.details = None,
        // The probabilities of an answer's tokens.
        EntryData::Message(message) if message.model.is_some() && message.details.is_some() => {
            Arc::make_mut(message).details = None;
        }
        // It is stored beside the entry, already counted.
        EntryData::Compaction(compaction) => compaction.carried_patch = Vec::new(),
        EntryData::ContextTransform(kept) => {
            if let Kept::Known(transform) = &mut **kept {
                transform.patch = Vec::new();
                transform.display = None;
            }
        }
        EntryData::Ephemeral(kept) => {
            if let Kept::Known(change) = &mut **kept {
                // The changed areas explain why the next request starts differently.
                change.patch = Area::bare(std::mem::take(&mut change.patch));
            }
        }
        _ => {}
    }
    entry
}
