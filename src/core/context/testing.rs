//! Test support: writes paths as short lines, and prints contexts as short lines.

use super::{
    counter::Counter,
    messages::{Context, Kind},
    node::Node,
};
use crate::context::seed;
use reseed_protocol::{
    Entry, EntryData, EntryId, Message, Part, Role, Timestamp,
    compaction::Compaction,
    context::{ContextTransform, MessageEdit, PATCH_VERSION, PatchMessage, PatchOp},
    tree::{CustomMessage, Kept},
};
use std::sync::Arc;

/// Parses lines of `id:kind words`, each the child of the one before: `user`, `assistant`, `call ID…`, `result ID
/// text`, `note`, `compaction SUMMARY first=ID keep=ID clear=ID`; and patches, whose texts are one word each: `edit
/// ID=TEXT ID…` (without a text the message is removed), `replace ID ID=TEXT *TEXT…` (a star for a message without an
/// entry), `part NAME=TEXT`.
pub(crate) fn entries(lines: &[&str]) -> Vec<Entry> {
    let mut parent = None;
    let entry = |line: &&str| {
        let (id, rest) = line.split_once(':').unwrap();
        let (kind, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let id: EntryId = id.parse().unwrap();
        let data = patch(kind, rest, lines).map_or_else(|| said(kind, rest), transform);
        Entry { entry_id: id.clone(), parent_id: parent.replace(id), timestamp: Timestamp(0), imported: None, data }
    };
    lines.iter().map(entry).collect()
}

/// Parses lines like [`entries`] and counts them.
pub(crate) fn path(lines: &[&str], counter: &Counter) -> Vec<Arc<Node>> {
    entries(lines).into_iter().map(|entry| Arc::new(Node::counted(entry, counter))).collect()
}

/// Wraps an op in a transform.
pub(crate) fn transform(op: PatchOp) -> EntryData {
    let (transformer_name, patch) = ("test".to_owned(), vec![op]);
    let transform = ContextTransform { schema_version: PATCH_VERSION, transformer_name, patch, display: None };
    EntryData::ContextTransform(Box::new(Kept::Known(transform)))
}

/// Parses a patch line; `None` for another line.
pub(crate) fn patch(kind: &str, rest: &str, lines: &[&str]) -> Option<PatchOp> {
    let words = || rest.split(' ').filter(|word| !word.is_empty());
    let named = |word: &str| {
        let (id, text) = word.split_once('=').map_or((word, None), |(id, text)| (id, Some(text)));
        (id.parse::<EntryId>().unwrap(), text.map(|text| instead_of(id, text, lines)))
    };
    let invalidate_cache_reason = "a test".to_owned();
    Some(match kind {
        "edit" => {
            let edits = words().map(named).map(|(entry_id, message)| MessageEdit { entry_id, message });
            PatchOp::MessagesCachedEdit { edits: edits.collect(), invalidate_cache_reason }
        }
        "replace" => {
            let item = |word: &str| match word.strip_prefix('*') {
                Some(text) => PatchMessage { entry_id: None, message: Some(Message::user(text)) },
                None => {
                    let (entry_id, message) = named(word);
                    PatchMessage { entry_id: Some(entry_id), message }
                }
            };
            PatchOp::MessagesCachedReplace { messages: words().map(item).collect(), invalidate_cache_reason }
        }
        "part" => {
            let (part_name, text) = rest.split_once('=').unwrap();
            let (part_name, text) = (part_name.to_owned(), text.to_owned());
            PatchOp::SystemPartSet { part_name, text, invalidate_cache_reason }
        }
        _ => return None,
    })
}

/// Creates a message with the role and calls of the entry with this id, and this text.
fn instead_of(id: &str, text: &str, lines: &[&str]) -> Message {
    let line = lines.iter().find_map(|line| line.strip_prefix(id)?.strip_prefix(':')).unwrap_or("user x");
    match said(line.split(' ').next().unwrap(), line.split_once(' ').unwrap().1) {
        EntryData::Message(message) => {
            let mut message = Arc::unwrap_or_clone(message);
            for part in &mut message.content {
                match part {
                    Part::Text { text: there } => text.clone_into(there),
                    Part::ToolCall { arguments, .. } => text.clone_into(arguments),
                    Part::ToolResult { output, .. } => text.clone_into(output),
                    _ => {}
                }
            }
            message
        }
        _ => Message::user(text),
    }
}

fn said(kind: &str, rest: &str) -> EntryData {
    match kind {
        "user" => EntryData::message(Message::user(rest)),
        "assistant" => EntryData::message(Message::new(Role::Assistant, vec![Part::Text { text: rest.into() }])),
        "call" => {
            let call = |call: &str| {
                let (name, arguments) = ("t".to_owned(), "{}".to_owned());
                Part::ToolCall { call_id: call.parse().unwrap(), name, arguments }
            };
            EntryData::message(Message::new(Role::Assistant, rest.split(' ').map(call).collect()))
        }
        "result" => {
            let (call, output) = rest.split_once(' ').unwrap();
            let result = Part::ToolResult { call_id: call.parse().unwrap(), output: output.into(), is_error: false };
            EntryData::message(Message::new(Role::Tool, vec![result]))
        }
        "note" => EntryData::CustomMessage(CustomMessage {
            custom_type: "note".into(),
            content: vec![Part::Text { text: rest.into() }],
            display: true,
            details: None,
        }),
        "compaction" => {
            let word = |key: &str| rest.split(' ').find_map(|w| w.strip_prefix(key)).map(|id| id.parse().unwrap());
            EntryData::Compaction(Compaction {
                summary: rest.split(' ').next().unwrap().to_owned(),
                first_kept_entry_id: word("first="),
                kept_entry_ids: word("keep=").into_iter().collect(),
                cleared_entry_ids: word("clear=").into_iter().collect(),
                ..Compaction::default()
            })
        }
        other => panic!("unknown kind {other}"),
    }
}

/// Prints a context, one line per message.
pub(crate) fn printed(context: &Context) -> Vec<String> {
    context
        .messages
        .iter()
        .map(|counted| {
            let id = counted.entry_id.as_ref().map_or("-", |id| id.as_str());
            let text = counted.message.text();
            if counted.kind == Kind::Summary {
                return format!("{id} summary {}", seed::unseed(&text).as_deref().unwrap_or("?").trim());
            }
            let said: Vec<String> = counted
                .message
                .content
                .iter()
                .map(|part| match part {
                    Part::Text { text } => text.clone(),
                    Part::ToolCall { call_id, .. } => call_id.to_string(),
                    Part::ToolResult { call_id, output, .. } => format!("{call_id} {output}"),
                    other => format!("{other:?}"),
                })
                .collect();
            let role = match counted.message.role {
                Role::User => "user",
                Role::Assistant if counted.message.tool_calls().next().is_some() => "call",
                Role::Assistant => "assistant",
                Role::Tool => "result",
            };
            format!("{id} {role} {}", said.join(" "))
        })
        .collect()
}
