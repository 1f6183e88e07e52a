//! From history to the model: the only road.
//!
//! The newest compaction on the path puts its summary first, then the older entries it keeps word for word, then the
//! entries from its first kept one, then what followed. Inside a context every tool call has its result.

use crate::core::{
    context::{counter::MessageTokens, patch::Carried},
    session::{Node, fingerprint::message_fingerprint},
};
use reseed_protocol::{CallId, EntryData, EntryId, Message, Part, Role, context::ContextMessage};
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
}

/// A message with what it costs and where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Counted {
    /// The entry; absent for a result that was put in for a call without one.
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
        self.messages.iter().flat_map(|counted| &counted.message.content).map(part).sum()
    }

    /// The messages as a request sends them.
    #[must_use]
    pub fn to_messages(&self) -> Vec<ContextMessage> {
        self.messages
            .iter()
            .map(|counted| ContextMessage { entry_id: counted.entry_id.clone(), message: counted.message.clone() })
            .collect()
    }
}

/// Builds what the model sees from the path to the leaf, oldest first.
#[must_use]
pub fn build_context(path: &[Arc<Node>]) -> Context {
    Context { messages: paired(visible(path)), ..Context::default() }
}

/// What of a path is seen, in order, also results whose calls are not: a part of a path may begin with one.
pub(crate) fn visible(path: &[Arc<Node>]) -> Vec<Counted> {
    let counted = |(kind, node): (Kind, &Arc<Node>)| {
        let message = node.message.clone()?;
        let is_input = node.entry.message().is_some_and(|message| message.role == Role::User);
        Some(Counted {
            entry_id: Some(node.id().clone()),
            is_result: message.role == Role::Tool,
            message,
            tokens: node.tokens,
            hash: node.hash,
            kind,
            pinned: node.pinned,
            cleared: node.cleared,
            is_input,
        })
    };
    remaining(path).into_iter().filter(|(_, node)| !failed_elsewhere(node)).filter_map(counted).collect()
}

/// Whether this is an answer from an imported file that failed or was cut off. Such an answer is on the path and is
/// shown; the program that it comes from did not give it to a model again, and neither is it here.
fn failed_elsewhere(node: &Node) -> bool {
    let message = node.message.as_deref().filter(|_| node.entry.imported.is_some());
    message.is_some_and(|message| message.role == Role::Assistant && message.incomplete)
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
    let first_kept = compaction
        .first_kept_entry_id
        .as_ref()
        .and_then(|first| before.iter().position(|node| node.id() == first))
        .unwrap_or(at);
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

/// What stands in for the result of a call that has none.
pub const NO_RESULT: &str = "No result: the call was not finished.";

/// Puts every tool result right after its call, adds one where a call has none, and leaves out results without a call.
/// In a session that only this server wrote there is nothing to mend: the common road copies nothing.
fn paired(messages: Vec<Counted>) -> Vec<Counted> {
    if well_paired(&messages) {
        return messages;
    }
    let mut results: Vec<Option<Counted>> = Vec::new();
    let mut others = Vec::with_capacity(messages.len());
    for counted in messages {
        if counted.message.role == Role::Tool {
            results.push(Some(counted));
        } else {
            others.push(counted);
        }
    }
    let mut mended = Vec::with_capacity(others.len() + results.len());
    for counted in others {
        let calls: Vec<CallId> = counted.message.tool_calls().map(|(id, _, _)| id.clone()).collect();
        mended.push(counted);
        for call in calls {
            let found =
                results.iter_mut().find(|slot| slot.as_ref().is_some_and(|result| answers(&result.message, &call)));
            mended.push(found.and_then(Option::take).unwrap_or_else(|| without_result(call)));
        }
    }
    mended
}

/// What stands in for the result of this call.
fn without_result(call: CallId) -> Counted {
    let message = missing_result(call);
    Counted {
        entry_id: None,
        hash: message_fingerprint(&message),
        message: Arc::new(message),
        tokens: MessageTokens { text: 16, ..MessageTokens::default() },
        kind: Kind::Recent,
        pinned: false,
        cleared: false,
        is_input: false,
        is_result: true,
    }
}

fn missing_result(call_id: CallId) -> Message {
    Message::new(Role::Tool, vec![Part::ToolResult { call_id, output: NO_RESULT.to_owned(), is_error: true }])
}

fn answers(message: &Message, call: &CallId) -> bool {
    message.content.iter().any(|part| matches!(part, Part::ToolResult { call_id, .. } if call_id == call))
}

fn well_paired(messages: &[Counted]) -> bool {
    let mut open: HashSet<&CallId> = HashSet::new();
    for counted in messages {
        let message = &counted.message;
        if message.role != Role::Tool && !open.is_empty() {
            return false;
        }
        for part in &message.content {
            match part {
                Part::ToolCall { call_id, .. } => {
                    open.insert(call_id);
                }
                Part::ToolResult { call_id, .. } if !open.remove(call_id) => return false,
                _ => {}
            }
        }
    }
    open.is_empty()
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
