//! The context of a session as data: the messages that the model sees, each with its token count and its origin.

use crate::context::{arguments::sent_message, counter::MessageTokens, patch::carried::CarriedOps};
use reseed_protocol::{
    EntryId, Message, Part,
    context::{ContextMessage, EnvelopeMessages},
};
use std::sync::Arc;

/// The messages of a session that the model sees.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Context {
    /// The stable prefix, in order, which a provider can cache.
    pub messages: Vec<Counted>,
    /// Messages for one request only; always sent last.
    pub uncached: Vec<Counted>,
    /// The changes that patches make to the system prompt, the tools and the options.
    pub carried: CarriedOps,
    /// Number of stored patches in a form that this version does not know.
    pub unknown_patches: u64,
}

/// A message with its token count and origin.
#[derive(Debug, Clone, PartialEq)]
pub struct Counted {
    /// Its entry; `None` for a message that a patch added, and for the placeholder result of a call without one.
    pub entry_id: Option<EntryId>,
    /// The message.
    pub message: Arc<Message>,
    /// Its estimate, before calibration.
    pub tokens: MessageTokens,
    /// Fingerprint of its content.
    pub hash: u64,
    /// Its role in the context.
    pub kind: Kind,
    /// True if every compaction keeps it.
    pub pinned: bool,
    /// True for a tool result that was replaced with a short note.
    pub cleared: bool,
    /// True if a user wrote it; false for summaries, tool results and client notes in the user role.
    pub is_input: bool,
    /// True for a tool result: it follows its call, or other results of the same answer.
    pub is_result: bool,
    /// True if a patch added it or changed its content.
    pub patched: bool,
    /// The entry whose message a patch moved here. `entry_id` is then `None`: compactions treat this message as one
    /// without an entry, since its position says nothing about its entry's position on the path.
    pub moved_from: Option<EntryId>,
}

/// The kind of a message, which decides whether it stays when others are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GoesWith {
    /// It stands for itself: it has an entry, or is the summary.
    Itself,
    /// The next message: a patch added this one before it.
    Next,
    /// The previous message: this one is a call's result without an entry of its own.
    Before,
}

impl Counted {
    /// Returns the tokens of the message in a request to this model. Only the provider knows the size of its own form
    /// of a summary.
    #[must_use]
    pub fn tokens_for(&self, model: &str) -> MessageTokens {
        let native = self.message.native().filter(|native| native.model == model);
        match native.and_then(|native| native.tokens) {
            Some(reasoning) => MessageTokens { reasoning, ..MessageTokens::default() },
            None => self.tokens,
        }
    }

    /// Returns the entry that the message shows, at its own position or moved.
    #[must_use]
    pub fn shown_id(&self) -> Option<&EntryId> {
        self.entry_id.as_ref().or(self.moved_from.as_ref())
    }

    /// Returns the message as one that a patch moved away from its entry's position.
    #[must_use]
    pub(crate) fn moved(self) -> Self {
        let moved_from = self.entry_id.or(self.moved_from);
        Self { entry_id: None, moved_from, patched: true, ..self }
    }

    /// Returns the message that determines whether this one stays when others are removed.
    #[must_use]
    pub fn goes_with(&self) -> GoesWith {
        match &self.entry_id {
            None if self.kind == Kind::Summary => GoesWith::Itself,
            None if self.is_result => GoesWith::Before,
            None => GoesWith::Next,
            Some(_) => GoesWith::Itself,
        }
    }
}

/// The role of a message in a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The summary of a compaction.
    Summary,
    /// Kept individually by the compaction, from before its tail. Provider usage reported for it is stale, as is that
    /// of everything up to the compaction.
    Beside,
    /// In the tail that the compaction keeps.
    Kept,
    /// Added since the compaction.
    Recent,
}

impl Context {
    /// Returns the bytes of the messages' content. `opaque` includes content that only programs read: images and opaque
    /// reasoning.
    #[must_use]
    pub fn bytes(&self, opaque: bool) -> usize {
        let part = |part: &Part| match part {
            Part::Text { text } => text.len(),
            Part::Image { url, .. } if opaque || !url.starts_with("data:") => url.len(),
            Part::Image { .. } => 0,
            Part::Reasoning { text, payload } => {
                text.len() + payload.as_ref().filter(|_| opaque).map_or(0, |payload| payload.to_string().len())
            }
            Part::ToolCall { name, arguments, .. } => name.len() + arguments.len(),
            Part::ToolResult { output, .. } => output.len(),
        };
        let message = |counted: &Counted| {
            let message = &counted.message;
            let own = message.payload.as_ref().filter(|_| opaque).and_then(|payload| payload.fields.as_ref());
            let native = message.native().filter(|_| opaque).map_or(0, |native| native.items.len());
            own.map_or(0, String::len) + native + message.content.iter().map(part).sum::<usize>()
        };
        self.messages.iter().chain(&self.uncached).map(message).sum()
    }

    /// Returns the messages as a request sends them.
    #[must_use]
    pub fn to_messages(&self) -> EnvelopeMessages {
        EnvelopeMessages { cached: sent(&self.messages), uncached: sent(&self.uncached) }
    }

    /// Returns notes, for people, about stored patches that could not be applied.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let unknown = match self.unknown_patches {
            0 => None,
            1 => Some("a stored patch in a form that this version does not know was skipped".to_owned()),
            some => Some(format!("{some} stored patches in a form that this version does not know were skipped")),
        };
        unknown.into_iter().collect()
    }
}

fn sent(messages: &[Counted]) -> Vec<ContextMessage> {
    let sent = |counted: &Counted| ContextMessage {
        entry_id: counted.shown_id().cloned(),
        message: sent_message(&counted.message),
    };
    messages.iter().map(sent).collect()
}
