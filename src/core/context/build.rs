//! Builds the model's context from a session's history. There is no other way from one to the other.
//!
//! The newest compaction on the path comes first with its summary, then the older entries that it keeps one by one,
//! then the entries from its first kept one, then what followed. Inside a context every tool call has its result.

use crate::core::{
    context::{
        counter::MessageTokens,
        pairing::paired,
        patch::Carried,
        replay::{first_kept, raw_context},
    },
    session::Node,
};
use reseed_protocol::{
    EntryData, EntryId, Message, Part,
    context::{ContextMessage, EnvelopeMessages},
};
use std::{collections::HashSet, sync::Arc};

/// What the model sees of a session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Context {
    /// The stable prefix, in order, which a provider can cache.
    pub messages: Vec<Counted>,
    /// Messages for one request only; always sent last.
    pub uncached: Vec<Counted>,
    /// The changes that patches make to the system prompt, the tools and the options.
    pub carried: Carried,
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
    /// The entry whose message a patch moved here. `entry_id` is then `None`: compactions treat the message as one
    /// without an entry, since its position says nothing about its entry's position on the path.
    pub moved_from: Option<EntryId>,
}

/// What decides whether a message stays when others are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GoesWith {
    /// Itself: it has an entry, or is the summary.
    Itself,
    /// The next message: a patch added this one before it.
    Next,
    /// The previous message: this one is a call's result without an entry of its own.
    Before,
}

impl Counted {
    /// Returns the entry that it shows, in place or moved.
    #[must_use]
    pub fn shown_id(&self) -> Option<&EntryId> {
        self.entry_id.as_ref().or(self.moved_from.as_ref())
    }

    /// Returns the message as moved out of its entry's position by a patch.
    #[must_use]
    pub(crate) fn moved(self) -> Self {
        let moved_from = self.entry_id.or(self.moved_from);
        Self { entry_id: None, moved_from, patched: true, ..self }
    }

    /// Returns what decides whether it stays when others are removed.
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
    /// The summary of what was compacted.
    Summary,
    /// Kept one by one by the compaction, from before its tail. Provider usage reported for it is stale, as is that of
    /// everything up to the compaction.
    Beside,
    /// In the tail that the compaction keeps.
    Kept,
    /// Added since the compaction.
    Recent,
}

impl Context {
    /// Returns the bytes of the messages' content. `opaque` includes what only programs read: images and opaque
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
        self.messages.iter().chain(&self.uncached).flat_map(|counted| &counted.message.content).map(part).sum()
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
    let sent =
        |counted: &Counted| ContextMessage { entry_id: counted.shown_id().cloned(), message: counted.message.clone() };
    messages.iter().map(sent).collect()
}

/// Builds what the model sees from the path to the leaf, oldest first.
#[must_use]
pub fn build_context(path: &[Arc<Node>]) -> Context {
    paired(raw_context(path))
}

/// Returns the entries of the path that its newest compaction keeps, the compaction itself first.
#[must_use]
pub fn remaining(path: &[Arc<Node>]) -> Vec<(Kind, &Arc<Node>)> {
    let compaction =
        path.iter().enumerate().rev().find_map(|(at, node)| node.compaction().map(|compaction| (at, node, compaction)));
    let Some((at, node, compaction)) = compaction else {
        return path.iter().filter(|node| !node.undone).map(|node| (Kind::Recent, node)).collect();
    };
    let before = &path[..at];
    let first_kept = first_kept(before, compaction);
    let kept: HashSet<&EntryId> = compaction.kept_entry_ids.iter().collect();
    let beside = before[..first_kept].iter().filter(|node| node.pinned || kept.contains(node.id()));
    let beside = beside.map(|node| (Kind::Beside, node));
    let tail = before[first_kept..].iter().map(|node| (Kind::Kept, node));
    // Older compactions among them are merged into the newest.
    let kept = beside.chain(tail).filter(|(_, node)| !matches!(node.entry.data, EntryData::Compaction(_)));
    std::iter::once((Kind::Summary, node))
        .chain(kept)
        .chain(path[at + 1..].iter().filter(|node| !node.undone).map(|node| (Kind::Recent, node)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::context::{
        counter::Counter,
        testing::{path, printed},
    };

    #[test]
    fn the_newest_compaction_decides_what_is_seen() {
        let table: &[(&[&str], &[&str])] = &[
            (&["a:user one", "b:assistant two"], &["a user one", "b assistant two"]),
            (
                &["a:user one", "b:assistant two", "c:user three", "d:compaction S first=c", "e:assistant four"],
                &["d summary S", "c user three", "e assistant four"],
            ),
            (
                &["a:user one", "b:assistant two", "c:user three", "d:compaction S first=c keep=a", "e:user four"],
                &["d summary S", "a user one", "c user three", "e user four"],
            ),
            (
                &["a:user one", "b:compaction S first=a", "c:user two", "d:compaction T first=c", "e:user three"],
                &["d summary T", "c user two", "e user three"],
            ),
            (&["a:user one", "b:compaction S first=zz", "c:user two"], &["b summary S", "c user two"]),
            (
                &["a:user one", "b:call x"],
                &["a user one", "b call x", "- result x No result: the call was not finished."],
            ),
            (&["a:result x ok", "b:user one"], &["b user one"]),
            (
                &["a:call x y", "b:result y 2", "c:user late", "d:result x 1"],
                &["a call x y", "d result x 1", "b result y 2", "c user late"],
            ),
        ];
        for (entries, expected) in table {
            let context = build_context(&path(entries, &Counter::for_model("test")));
            assert_eq!(printed(&context), *expected, "{entries:?}");
        }
    }
}
