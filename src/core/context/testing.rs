//! For tests: paths written as short lines, contexts printed as short lines.

use super::{
    build::{Context, Kind},
    counter::Counter,
    summary,
};
use crate::core::session::Node;
use reseed_protocol::{
    Entry, EntryData, Message, Part, Role, Timestamp,
    entry::{Compaction, CustomMessage},
};
use std::sync::Arc;

/// Reads lines of `id:kind words`, each the child of the one before: `user`, `assistant`, `call ID…`, `result ID text`, `note`,
/// `compaction SUMMARY first=ID keep=ID clear=ID`.
pub(crate) fn path(lines: &[&str], counter: &Counter) -> Vec<Arc<Node>> {
    let mut parent = None;
    lines
        .iter()
        .map(|line| {
            let (id, rest) = line.split_once(':').unwrap();
            let (kind, rest) = rest.split_once(' ').unwrap();
            let data = match kind {
                "user" => EntryData::Message(Message::user(rest)),
                "assistant" => {
                    EntryData::Message(Message::new(Role::Assistant, vec![Part::Text { text: rest.into() }]))
                }
                "call" => EntryData::Message(Message::new(
                    Role::Assistant,
                    rest.split(' ')
                        .map(|call| Part::ToolCall {
                            call_id: call.parse().unwrap(),
                            name: "t".into(),
                            arguments: "{}".into(),
                        })
                        .collect(),
                )),
                "result" => {
                    let (call, output) = rest.split_once(' ').unwrap();
                    let result =
                        Part::ToolResult { call_id: call.parse().unwrap(), output: output.into(), is_error: false };
                    EntryData::Message(Message::new(Role::Tool, vec![result]))
                }
                "note" => EntryData::CustomMessage(CustomMessage {
                    custom_type: "note".into(),
                    content: vec![Part::Text { text: rest.into() }],
                    display: true,
                    details: None,
                }),
                "compaction" => {
                    let word =
                        |key: &str| rest.split(' ').find_map(|w| w.strip_prefix(key)).map(|id| id.parse().unwrap());
                    EntryData::Compaction(Compaction {
                        summary: rest.split(' ').next().unwrap().to_owned(),
                        first_kept_entry_id: word("first="),
                        kept_entry_ids: word("keep=").into_iter().collect(),
                        cleared_entry_ids: word("clear=").into_iter().collect(),
                        ..Compaction::default()
                    })
                }
                other => panic!("unknown kind {other}"),
            };
            let id: reseed_protocol::EntryId = id.parse().unwrap();
            let entry = Entry {
                entry_id: id.clone(),
                parent_id: parent.replace(id),
                timestamp: Timestamp(0),
                imported: None,
                data,
            };
            Arc::new(Node::counted(entry, counter))
        })
        .collect()
}

/// One line a message.
pub(crate) fn printed(context: &Context) -> Vec<String> {
    context
        .messages
        .iter()
        .map(|counted| {
            let id = counted.entry_id.as_ref().map_or("-", |id| id.as_str());
            let text = counted.message.text();
            if counted.kind == Kind::Summary {
                return format!("{id} summary {}", summary::unseed(&text).as_deref().unwrap_or("?").trim());
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
