//! From history to the model: the only road.
//!
//! The newest compaction on the path puts its summary first, then the older entries it keeps word for word, then the
//! entries from its first kept one, then what followed. Inside a context every tool call has its result.

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
    /// The stable prefix, which a provider can cache, in order.
    pub messages: Vec<Counted>,
    /// What belongs to one request only; always sent last.
    pub uncached: Vec<Counted>,
    /// What patches make of the system prompt, the tools and the options.
    pub carried: Carried,
    /// Stored patches of a form that this version does not know.
    pub unknown_patches: u64,
}

/// A message with what it costs and where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Counted {
    /// The entry; absent for what a patch put there, and for a result that was put in for a call without one.
    pub entry_id: Option<EntryId>,
    /// The message.
    pub message: Arc<Message>,
    /// Its estimate, not corrected.
    pub tokens: MessageTokens,
    /// Fingerprint of what it says.
    pub hash: u64,
    /// What it is.
    pub kind: Kind,
    /// Every compaction keeps it.
    pub pinned: bool,
    /// A tool's answer that gave way to a short note.
    pub cleared: bool,
    /// A user said it: not a summary, a tool or a note of a client's in the user's place.
    pub is_input: bool,
    /// It answers calls: it follows them, or other answers to them.
    pub is_result: bool,
    /// A patch put it there, or changed what it says.
    pub patched: bool,
    /// The entry whose message a patch moved here. `entry_id` is then absent: compactions treat the message as one that
    /// no entry holds, since its place says nothing of its entry's place on the path.
    pub moved_from: Option<EntryId>,
}

/// What decides whether a message stays when others go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GoesWith {
    /// It has an entry, or is the summary.
    Itself,
    /// What follows: a patch put it there.
    Next,
    /// What stands before: it is the result of a call, and no entry of its own.
    Before,
}

impl Counted {
    /// The entry that it shows, in its place or moved.
    #[must_use]
    pub fn shown_id(&self) -> Option<&EntryId> {
        self.entry_id.as_ref().or(self.moved_from.as_ref())
    }

    /// The same, moved out of its entry's place by a patch.
    #[must_use]
    pub(crate) fn moved(self) -> Self {
        let moved_from = self.entry_id.or(self.moved_from);
        Self { entry_id: None, moved_from, patched: true, ..self }
    }

    /// What decides whether it stays when others go.
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

/// What a message of a context is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The summary that stands for what was compacted.
    Summary,
    /// Kept by the compaction one by one, from before its tail: the provider's report of it is stale, as that of what
    /// follows up to the compaction.
    Beside,
    /// Kept by the compaction with all that follows it.
    Kept,
    /// Said since.
    Recent,
}

impl Context {
    /// Bytes of what the messages say, with or without what only programs read: pictures and opaque reasoning.
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

    /// The messages as a request sends them.
    #[must_use]
    pub fn to_messages(&self) -> EnvelopeMessages {
        EnvelopeMessages { cached: sent(&self.messages), uncached: sent(&self.uncached) }
    }

    /// What stored patches asked for and could not be had, for people.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let unknown = match self.unknown_patches {
            0 => None,
            1 => Some("a stored patch of a form that this version does not know was passed over".to_owned()),
            some => Some(format!("{some} stored patches of a form that this version does not know were passed over")),
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

/// The entries of the path that its newest compaction leaves, the compaction itself first.
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
