//! The messages of a chat for a page that is loaded: what the stream of each has produced, read from the session.

use super::{
    Outcome,
    chat::{Chat, is_users, noted, page_id},
    chunks::{Chunk, Counted, Metadata},
    messages::shown_parts,
    writer::Writer,
};
use crate::exchange::usage_of;
use reseed_protocol::{Entry, EntryId};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{collections::BTreeSet, sync::Arc};

/// Messages that are returned if the page does not say, and at most.
const MESSAGES: usize = 50;
const MESSAGES_MAX: usize = 200;

/// Entries beyond which no older messages are returned, even if the page asks for more.
const ENTRIES_MAX: usize = 2_000;

/// The messages that a page asks for.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Wanted {
    /// Those before this message; absent for the newest.
    before: Option<String>,
    limit: Option<usize>,
}

/// A message of the user, and what answers it.
#[derive(Debug, Default)]
struct Exchange {
    input: Option<Arc<Entry>>,
    answer: Vec<Arc<Entry>>,
}

/// Returns messages of the chat, oldest first. A message of the user and its answer are not separated.
///
/// # Errors
/// Why they cannot be read. There may be no message to begin before.
pub(super) async fn read(chat: &mut Chat, wanted: &Wanted) -> Result<Option<Vec<Value>>, Outcome> {
    let count = wanted.limit.unwrap_or(MESSAGES).clamp(1, MESSAGES_MAX).div_ceil(2);
    let end = match &wanted.before {
        None => None,
        Some(id) => {
            let input = match chat.anchor(id).await? {
                Some(input) => chat.exchange.read_back(|entry| entry.entry_id == input).await?,
                None => chat.said(id).await?,
            };
            let Some(input) = input else { return Ok(None) };
            Some(input.entry_id.clone())
        }
    };
    let exchanges = loop {
        let path = chat.snapshot().path.iter().take_while(|entry| Some(&entry.entry_id) != end.as_ref());
        let path: Vec<_> = path.cloned().collect();
        let is_long = path.len() >= ENTRIES_MAX;
        let mut exchanges = exchanges(path);
        // The first may be incomplete: a compaction before a message of the user belongs to its answer.
        if exchanges.len() > count || is_long && exchanges.len() > 1 {
            break exchanges.split_off(1);
        }
        if !chat.exchange.read_older().await? {
            break exchanges;
        }
    };
    let from = exchanges.len().saturating_sub(count);
    let messages = exchanges[from..].iter().enumerate().flat_map(|(at, exchange)| {
        let is_last = end.is_none() && from + at + 1 == exchanges.len();
        let question = exchange.input.as_ref().map(|input| question(input));
        question.into_iter().chain(answer(chat, exchange, is_last))
    });
    Ok(Some(messages.collect()))
}

/// Divides a path at the messages of the user. What follows the last message before one belongs to its answer.
fn exchanges(path: Vec<Arc<Entry>>) -> Vec<Exchange> {
    let mut exchanges: Vec<Exchange> = Vec::new();
    let mut between = Vec::new();
    for entry in path {
        if is_users(&entry) {
            exchanges.push(Exchange { input: Some(entry), answer: std::mem::take(&mut between) });
            continue;
        }
        let is_message = entry.message().is_some();
        between.push(entry);
        if is_message {
            if exchanges.is_empty() {
                exchanges.push(Exchange::default());
            }
            exchanges.last_mut().expect("there is one").answer.append(&mut between);
        }
    }
    if let Some(last) = exchanges.last_mut() {
        last.answer.append(&mut between);
    }
    exchanges
}

fn question(entry: &Entry) -> Value {
    let message = entry.message().expect("the user's entry is a message");
    json!({ "id": page_id(entry), "role": "user", "parts": shown_parts(message) })
}

/// Returns the answer; `None` if there is none yet.
fn answer(chat: &Chat, exchange: &Exchange, is_last: bool) -> Option<Value> {
    let Exchange { input, answer } = exchange;
    let said: Vec<&Entry> = answer.iter().map(Arc::as_ref).filter(|entry| entry.message().is_some()).collect();
    let first = input.as_deref().or(said.first().copied())?;
    let (id, tools) = message_of(&first.entry_id, answer.iter().map(Arc::as_ref).chain(input.as_deref()).rev());
    let mut writer = Writer::new(tools, BTreeSet::new());
    answer.iter().for_each(|entry| writer.entry(entry));
    let snapshot = chat.snapshot();
    let is_running = is_last && snapshot.turn.is_some();
    if is_running {
        snapshot.approvals.iter().for_each(|approval| writer.approval(approval));
    }
    let mut parts = Vec::new();
    writer.take().into_iter().for_each(|chunk| add(&mut parts, chunk));
    if said.is_empty() {
        return None;
    }
    let model = said.iter().rev().find_map(|entry| entry.message()?.model.clone());
    // Input of the page itself, such as the output of a tool, begins another turn.
    let turn = said.iter().rposition(|entry| noted(entry, "answer").is_some()).unwrap_or(0);
    let usage = usage_of(said[turn..].iter().copied()).filter(|_| !is_running);
    let metadata = Metadata {
        session_id: snapshot.session_id.to_string(),
        model: model.unwrap_or_else(|| snapshot.model.clone()),
        usage: usage.as_ref().map(Counted::from),
    };
    Some(json!({ "id": id, "role": "assistant", "parts": parts, "metadata": metadata }))
}

/// Returns the id of the message that answers an input, and the tools of its page, as they are noted on the entries
/// from the newest to the input.
pub(super) fn message_of<'a>(
    input: &EntryId,
    newest: impl Iterator<Item = &'a Entry> + Clone,
) -> (String, BTreeSet<String>) {
    let note = |key| newest.clone().find_map(|entry| noted(entry, key));
    let id = note("answer").and_then(Value::as_str).map_or_else(|| answer_id(input), str::to_owned);
    let tools = note("tools").and_then(Value::as_array).into_iter().flatten();
    (id, tools.filter_map(Value::as_str).map(str::to_owned).collect())
}

/// Returns the id of the message that answers an input for the first time.
pub(super) fn answer_id(input: &EntryId) -> String {
    format!("msg_{input}")
}

/// Adds a chunk to the parts of a message, as the AI SDK does.
fn add(parts: &mut Vec<Value>, chunk: Chunk) {
    let mut call = |id: &str, changes: Value| {
        let of_call = parts.iter_mut().rev().find(|part| part["toolCallId"] == id);
        if let (Some(Value::Object(part)), Value::Object(changes)) = (of_call, changes) {
            part.extend(changes);
        }
    };
    match chunk {
        Chunk::ToolInputAvailable { tool_call_id, input, .. } => {
            call(&tool_call_id, json!({ "state": "input-available", "input": input }));
        }
        Chunk::ToolInputError { tool_call_id, input, error_text, .. } => {
            call(&tool_call_id, json!({ "state": "output-error", "input": input, "errorText": error_text }));
        }
        Chunk::ToolApprovalRequest { approval_id, tool_call_id, reason } => {
            let approval = json!({ "id": approval_id, "requestReason": reason });
            call(&tool_call_id, json!({ "state": "approval-requested", "approval": approval }));
        }
        Chunk::ToolOutputAvailable { tool_call_id, output } => {
            call(&tool_call_id, json!({ "state": "output-available", "output": output }));
        }
        Chunk::ToolOutputError { tool_call_id, error_text } => {
            call(&tool_call_id, json!({ "state": "output-error", "errorText": error_text }));
        }
        Chunk::StartStep => parts.push(json!({ "type": "step-start" })),
        Chunk::TextStart { .. } => parts.push(json!({ "type": "text", "text": "" })),
        Chunk::ReasoningStart { id } => parts.push(json!({ "type": "reasoning", "id": id, "text": "" })),
        Chunk::TextDelta { delta, .. } | Chunk::ReasoningDelta { delta, .. } => {
            // The writer begins a part when the one before it is complete.
            if let Some(Value::String(text)) = parts.last_mut().map(|part| &mut part["text"]) {
                text.push_str(&delta);
            }
        }
        Chunk::TextEnd { .. } | Chunk::ReasoningEnd { .. } => {
            if let Some(part) = parts.last_mut() {
                part["state"] = json!("done");
            }
        }
        Chunk::ToolInputStart { tool_call_id, tool_name, runs } => {
            let mut part = json!(runs);
            let kind = match part.as_object_mut().and_then(|part| part.remove("dynamic")) {
                Some(_) => {
                    part["toolName"] = json!(tool_name);
                    "dynamic-tool".to_owned()
                }
                None => format!("tool-{tool_name}"),
            };
            part["type"] = json!(kind);
            part["toolCallId"] = json!(tool_call_id);
            part["state"] = json!("input-streaming");
            parts.push(part);
        }
        Chunk::Compaction { id, .. } => {
            let known = parts.iter().position(|part| part["id"] == id);
            let part = json!(chunk);
            match known {
                Some(known) => parts[known] = part,
                None => parts.push(part),
            }
        }
        Chunk::File { .. } => parts.push(json!(chunk)),
        // The rest is no part of a message, or does not come from stored entries.
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reseed_protocol::content::Role;

    #[test]
    fn a_path_is_divided_at_the_messages_of_the_user() {
        let entry = |id: &str, role: Option<Role>| {
            let mut entry = json!({ "entryId": id, "parentId": null, "timestamp": "2026-11-21T09:15:00Z" });
            match role {
                Some(role) => {
                    entry["type"] = json!("message");
                    entry["role"] = json!(role);
                    entry["content"] = json!([]);
                }
                None => {
                    entry["type"] = json!("custom");
                    entry["customType"] = json!("x");
                }
            }
            Arc::new(serde_json::from_value::<Entry>(entry).unwrap())
        };
        let (user, assistant) = (Some(Role::User), Some(Role::Assistant));
        let path = [
            ("g", None),
            ("a0", assistant),
            ("c0", None),
            ("u1", user),
            ("a1", assistant),
            ("c1", None),
            ("t1", Some(Role::Tool)),
            ("c2", None),
            ("u2", user),
            ("c3", None),
        ];
        let divided = exchanges(path.into_iter().map(|(id, role)| entry(id, role)).collect());
        let short = divided.iter().map(|exchange| {
            let ids = exchange.input.iter().chain(&exchange.answer).map(|entry| entry.entry_id.to_string());
            ids.collect::<Vec<_>>().join(" ")
        });
        assert_eq!(short.collect::<Vec<_>>(), ["g a0", "u1 c0 a1 c1 t1", "u2 c2 c3"]);
    }
}
