//! Patches prepared for replay: their messages are counted once, when the patch is read.

use super::read::bare;
use crate::context::seed;
use crate::{
    context::{
        counter::{Counter, MessageTokens},
        messages::{Counted, Kind},
    },
    fingerprint::message_fingerprint,
};
use reseed_protocol::{
    EntryId, Message, Role,
    context::{MessageEdit, PatchMessage, PatchOp},
};
use std::sync::Arc;

/// A message that a patch carries, counted.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CountedMessage {
    pub(super) message: Arc<Message>,
    tokens: MessageTokens,
    hash: u64,
}

/// A message of an op: an entry, new content, or both.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MessageItem {
    /// The entry; `None` for a message without one.
    pub(crate) entry_id: Option<EntryId>,
    /// The new content; `None` keeps the entry's, or in an edit removes it.
    pub(crate) said: Option<CountedMessage>,
}

/// An op on messages.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum MessageOp {
    /// Replaces all messages with these.
    Replace(Vec<MessageItem>),
    /// Changes or removes these.
    Edit(Vec<MessageItem>),
    /// Appends these, for one request only.
    Append(Vec<CountedMessage>),
    /// Replaces older messages with a summary.
    Compact {
        /// The summary; `None` if nothing was summarised.
        summary: Option<CountedMessage>,
        /// The first entry that is kept; `None` if none is.
        first_kept: Option<EntryId>,
        /// Older entries that are kept.
        kept: Vec<EntryId>,
    },
}

impl CountedMessage {
    pub(super) fn new(message: Message, counter: &Counter) -> Self {
        Self { tokens: counter.message(&message), hash: message_fingerprint(&message), message: Arc::new(message) }
    }

    /// Returns the message as one without an entry.
    pub(super) fn inserted(&self) -> Counted {
        Counted {
            entry_id: None,
            message: self.message.clone(),
            tokens: self.tokens,
            hash: self.hash,
            kind: Kind::Recent,
            pinned: false,
            cleared: false,
            is_input: false,
            is_result: self.message.role == Role::Tool,
            patched: true,
            moved_from: None,
        }
    }

    /// Returns this message as a replacement for an entry's. Its model, the way the answer ended, and the provider's
    /// data for its calls stay: provider data is only sent back to its own model. Its usage does not stay, because it
    /// belongs to another text.
    pub(super) fn instead_of(&self, counted: &Counted) -> Counted {
        let Message { model, stop_reason, incomplete, payload, .. } = &*counted.message;
        let message = if model.is_none() && stop_reason.is_none() && !incomplete {
            self.message.clone()
        } else {
            let said = (*self.message).clone();
            let payload = payload.clone().map(|payload| Box::new(payload.of_changed()));
            let (model, stop_reason, incomplete) = (model.clone(), *stop_reason, *incomplete);
            Arc::new(Message { model, stop_reason, incomplete, payload, ..said })
        };
        Counted {
            message,
            tokens: self.tokens,
            hash: self.hash,
            cleared: false,
            is_result: self.message.role == Role::Tool,
            patched: true,
            ..counted.clone()
        }
    }

    fn recounted(&self, counter: &Counter) -> Self {
        Self { tokens: counter.message(&self.message), ..self.clone() }
    }
}

impl MessageItem {
    fn of(entry_id: Option<EntryId>, message: Option<Message>, counter: &Counter) -> Self {
        Self { entry_id, said: message.map(|message| CountedMessage::new(message, counter)) }
    }

    fn recounted(&self, counter: &Counter) -> Self {
        Self { entry_id: self.entry_id.clone(), said: self.said.as_ref().map(|said| said.recounted(counter)) }
    }
}

impl MessageOp {
    /// Prepares an op; `None` if it is not about messages.
    pub(super) fn of(op: &PatchOp, counter: &Counter) -> Option<Self> {
        Some(match bare(op.clone()) {
            PatchOp::MessagesCachedReplace { messages, .. } => {
                let item = |PatchMessage { entry_id, message }| MessageItem::of(entry_id, message, counter);
                Self::Replace(messages.into_iter().map(item).collect())
            }
            PatchOp::MessagesCachedEdit { edits, .. } => {
                let item = |MessageEdit { entry_id, message }| MessageItem::of(Some(entry_id), message, counter);
                Self::Edit(edits.into_iter().map(item).collect())
            }
            PatchOp::MessagesUncachedAppend { messages } => {
                Self::Append(messages.into_iter().map(|message| CountedMessage::new(message, counter)).collect())
            }
            PatchOp::CompactionApply { summary, first_kept_entry_id, kept_entry_ids, .. } => Self::Compact {
                summary: (!summary.is_empty())
                    .then(|| CountedMessage::new(Message::user(seed::seed_text(&summary)), counter)),
                first_kept: first_kept_entry_id,
                kept: kept_entry_ids,
            },
            PatchOp::SystemPartSet { .. }
            | PatchOp::SystemPartRemove { .. }
            | PatchOp::SystemPartsReplace { .. }
            | PatchOp::ToolsReplace { .. }
            | PatchOp::ToolsRemove { .. }
            | PatchOp::OptionsSet { .. } => return None,
        })
    }

    fn recounted(&self, counter: &Counter) -> Self {
        let items = |items: &[MessageItem]| items.iter().map(|item| item.recounted(counter)).collect();
        match self {
            Self::Replace(messages) => Self::Replace(items(messages)),
            Self::Edit(edits) => Self::Edit(items(edits)),
            Self::Append(messages) => Self::Append(messages.iter().map(|said| said.recounted(counter)).collect()),
            Self::Compact { summary, first_kept, kept } => Self::Compact {
                summary: summary.as_ref().map(|said| said.recounted(counter)),
                first_kept: first_kept.clone(),
                kept: kept.clone(),
            },
        }
    }
}

/// The patch of an entry, prepared for replay.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StoredPatch {
    /// The ops on system prompt, tools and options.
    pub(crate) others: Vec<PatchOp>,
    /// The ops on messages.
    pub(crate) messages: Vec<MessageOp>,
    /// The newest of these ops' reasons for invalidating the provider's cache.
    pub(crate) messages_reason: Option<String>,
}

impl StoredPatch {
    /// Prepares and counts these ops.
    #[must_use]
    pub fn of(ops: Vec<PatchOp>, counter: &Counter) -> Self {
        let mut patch = Self::default();
        for op in ops {
            match MessageOp::of(&op, counter) {
                // The first kind applies to one request and is never stored; a compaction is an entry of its own.
                Some(MessageOp::Append(_) | MessageOp::Compact { .. }) => {}
                Some(counted) => {
                    patch.messages_reason = op.invalidate_cache_reason().map(str::to_owned);
                    patch.messages.push(counted);
                }
                None => patch.others.push(op),
            }
        }
        patch
    }

    /// Recounts the messages for another model.
    #[must_use]
    pub fn recounted(&self, counter: &Counter) -> Self {
        let messages = self.messages.iter().map(|op| op.recounted(counter)).collect();
        Self { others: self.others.clone(), messages, messages_reason: self.messages_reason.clone() }
    }
}
