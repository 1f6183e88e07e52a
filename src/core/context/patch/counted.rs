//! Patches made ready: their messages are counted once, when they are read, so that replaying them counts nothing.

use super::read::bare;
use crate::core::{
    context::{
        build::{Counted, Kind},
        counter::{Counter, MessageTokens},
        summary,
    },
    session::fingerprint::message_fingerprint,
};
use reseed_protocol::{
    EntryId, Message, Role,
    patch::{MessageEdit, PatchMessage, PatchOp},
};
use std::sync::Arc;

/// A message that a patch carries.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Said {
    pub(super) message: Arc<Message>,
    tokens: MessageTokens,
    hash: u64,
}

/// What an op says of one entry, or beside them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Item {
    /// The entry; absent for a message that no entry holds.
    pub(crate) entry_id: Option<EntryId>,
    /// What stands there; absent for what the entry says, in an edit for nothing.
    pub(crate) said: Option<Said>,
}

/// An op on messages.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum MessageOp {
    /// These in the place of all.
    Replace(Vec<Item>),
    /// These changed or taken out.
    Edit(Vec<Item>),
    /// These behind all others, for one request.
    Append(Vec<Said>),
    /// A summary in the place of what is older.
    Compact {
        /// The summary; absent where nothing was summarised.
        summary: Option<Said>,
        /// The first entry that is kept; absent when none is.
        first_kept: Option<EntryId>,
        /// Older entries that are kept.
        kept: Vec<EntryId>,
    },
}

impl Said {
    pub(super) fn new(message: Message, counter: &Counter) -> Self {
        Self { tokens: counter.message(&message), hash: message_fingerprint(&message), message: Arc::new(message) }
    }

    /// The message by itself.
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

    /// The message in the place of what an entry says. Who answered, and how the answer ended, stays: a sealed thought is
    /// sent back to its own model only. What the answer cost does not: it was another.
    pub(super) fn instead_of(&self, counted: &Counted) -> Counted {
        let Message { model, stop_reason, incomplete, .. } = &*counted.message;
        let message = if model.is_none() && stop_reason.is_none() && !incomplete {
            self.message.clone()
        } else {
            let said = (*self.message).clone();
            Arc::new(Message { model: model.clone(), stop_reason: *stop_reason, incomplete: *incomplete, ..said })
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

impl Item {
    fn of(entry_id: Option<EntryId>, message: Option<Message>, counter: &Counter) -> Self {
        Self { entry_id, said: message.map(|message| Said::new(message, counter)) }
    }

    fn recounted(&self, counter: &Counter) -> Self {
        Self { entry_id: self.entry_id.clone(), said: self.said.as_ref().map(|said| said.recounted(counter)) }
    }
}

impl MessageOp {
    /// The op, where it is on messages.
    pub(super) fn of(op: &PatchOp, counter: &Counter) -> Option<Self> {
        Some(match bare(op.clone()) {
            PatchOp::MessagesCachedReplace { messages, .. } => {
                let item = |PatchMessage { entry_id, message }| Item::of(entry_id, message, counter);
                Self::Replace(messages.into_iter().map(item).collect())
            }
            PatchOp::MessagesCachedEdit { edits, .. } => {
                let item = |MessageEdit { entry_id, message }| Item::of(Some(entry_id), message, counter);
                Self::Edit(edits.into_iter().map(item).collect())
            }
            PatchOp::MessagesUncachedAppend { messages } => {
                Self::Append(messages.into_iter().map(|message| Said::new(message, counter)).collect())
            }
            PatchOp::CompactionApply { summary, first_kept_entry_id, kept_entry_ids, .. } => Self::Compact {
                summary: (!summary.is_empty()).then(|| Said::new(Message::user(summary::seed_text(&summary)), counter)),
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
        let items = |items: &[Item]| items.iter().map(|item| item.recounted(counter)).collect();
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

/// A patch that an entry holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StoredPatch {
    /// The ops on the system prompt, the tools and the options.
    pub(crate) others: Vec<PatchOp>,
    /// Those on messages.
    pub(crate) messages: Vec<MessageOp>,
    /// Why the newest of these gives up the provider's cache.
    pub(crate) messages_reason: Option<String>,
}

impl StoredPatch {
    /// These ops, counted.
    #[must_use]
    pub fn of(ops: Vec<PatchOp>, counter: &Counter) -> Self {
        let mut patch = Self::default();
        for op in ops {
            match MessageOp::of(&op, counter) {
                // One request's own, which is never stored; and a compaction is an entry of its own.
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

    /// The same, counted for another model.
    #[must_use]
    pub fn recounted(&self, counter: &Counter) -> Self {
        let messages = self.messages.iter().map(|op| op.recounted(counter)).collect();
        Self { others: self.others.clone(), messages, messages_reason: self.messages_reason.clone() }
    }
}
