//! The searched text of an entry. It covers messages, tool calls, tool results and summaries, but not reasoning, images
//! or data that clients store for themselves.

use reseed_protocol::{EntryId, Timestamp, tree::HitRole};
use serde::Deserialize;
use std::borrow::Cow;

/// The tools that search the history. Their results only repeat it, so they are not searched.
pub const HISTORY_TOOLS: [&str; 2] = ["history_search", "history_read"];

/// The searched part of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Document {
    pub(crate) entry: EntryId,
    pub(crate) parent: Option<EntryId>,
    pub(crate) timestamp: Timestamp,
    pub(crate) role: HitRole,
    pub(crate) text: String,
    /// The call that a tool's result answers.
    pub(crate) answers: Option<String>,
    /// True if the text is only a part of a tool's result.
    pub(crate) is_cut: bool,
    /// The ids and names of the tool calls in it.
    pub(crate) calls: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    payload: Payload<'a>,
}

#[derive(Deserialize)]
struct Payload<'a> {
    #[serde(borrow)]
    entry: Entry<'a>,
}

/// The fields of an entry that matter here. Much of an answer is its receipt, which is not parsed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    entry_id: EntryId,
    parent_id: Option<EntryId>,
    timestamp: Timestamp,
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(default, borrow)]
    role: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    content: Vec<Part<'a>>,
    #[serde(default, borrow)]
    summary: Option<Cow<'a, str>>,
    #[serde(default)]
    cut: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(default, borrow)]
    text: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    arguments: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    output: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    tool_call_id: Option<Cow<'a, str>>,
}

impl Document {
    /// Returns the searched text of the entry that a record appends; `None` if it appends none, or one without text.
    pub(crate) fn of(body: &str) -> Option<Self> {
        let entry = serde_json::from_str::<Body<'_>>(body).ok()?.payload.entry;
        let role = match (&*entry.kind, entry.role.as_deref()) {
            ("message", Some("user")) | ("custom_message", _) => HitRole::User,
            ("message", Some("assistant")) => HitRole::Assistant,
            ("message", Some("tool")) => HitRole::Tool,
            ("compaction" | "branch_summary", _) => HitRole::Summary,
            _ => return None,
        };
        let mut texts: Vec<&str> = Vec::new();
        let (mut calls, mut answers) = (Vec::new(), None);
        for part in &entry.content {
            match &*part.kind {
                "text" => texts.extend(part.text.as_deref()),
                "tool_call" => {
                    texts.extend(part.name.as_deref());
                    texts.extend(part.arguments.as_deref());
                    calls.extend(
                        part.tool_call_id.as_deref().map(str::to_owned).zip(part.name.as_deref().map(str::to_owned)),
                    );
                }
                "tool_result" => {
                    texts.extend(part.output.as_deref());
                    answers = part.tool_call_id.as_deref().map(str::to_owned);
                }
                _ => {}
            }
        }
        if role == HitRole::Summary {
            texts.extend(entry.summary.as_deref());
        }
        Some(Self {
            entry: entry.entry_id,
            parent: entry.parent_id,
            timestamp: entry.timestamp,
            role,
            text: texts.join("\n"),
            answers,
            is_cut: entry.cut.is_some(),
            calls,
        })
    }

    /// Returns the parent of the entry that a record appends.
    pub(crate) fn parent_of(body: &str) -> Option<EntryId> {
        #[derive(Deserialize)]
        struct Appended {
            payload: Linked,
        }
        #[derive(Deserialize)]
        struct Linked {
            entry: Link,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Link {
            parent_id: Option<EntryId>,
        }
        serde_json::from_str::<Appended>(body).ok()?.payload.entry.parent_id
    }

    /// Returns whether the call with this id is one of a history tool; `None` if it is not among its calls.
    pub(crate) fn makes(&self, call: &str) -> Option<bool> {
        let (_, name) = self.calls.iter().find(|(id, _)| id == call)?;
        Some(HISTORY_TOOLS.contains(&name.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::Document;
    use serde_json::json;

    #[test]
    fn the_text_of_an_entry_has_what_was_said_called_and_returned() {
        let entry = |data: serde_json::Value| {
            let mut entry = json!({ "entryId": "e2", "parentId": "e1", "timestamp": "2026-11-21T09:15:00.300Z" });
            entry.as_object_mut().unwrap().extend(data.as_object().unwrap().clone());
            Document::of(&json!({ "type": "entry_appended", "payload": { "entry": entry } }).to_string())
        };
        let said = |role: &str, content: serde_json::Value| {
            entry(json!({ "type": "message", "role": role, "content": content }))
        };
        let cases = [
            (
                said("user", json!([{ "type": "text", "text": "a" }, { "type": "image", "url": "data:x" }])),
                Some("user a"),
            ),
            (
                said(
                    "assistant",
                    json!([{ "type": "reasoning", "text": "secret" }, { "type": "text", "text": "say \"b\"" },
                        { "type": "tool_call", "toolCallId": "c1", "name": "grep", "arguments": "{\"x\":1}" }]),
                ),
                Some("assistant say \"b\"|grep|{\"x\":1}"),
            ),
            (
                said("tool", json!([{ "type": "tool_result", "toolCallId": "c1", "output": "found" }])),
                Some("tool found"),
            ),
            (entry(json!({ "type": "compaction", "summary": "sum", "tokensBefore": 1 })), Some("summary sum")),
            (entry(json!({ "type": "branch_summary", "fromId": null, "summary": "br" })), Some("summary br")),
            (
                entry(
                    json!({ "type": "custom_message", "customType": "t", "content": [{ "type": "text", "text": "c" }],
                    "display": true, "details": { "text": "not" } }),
                ),
                Some("user c"),
            ),
            (entry(json!({ "type": "custom", "customType": "t", "data": { "text": "not" } })), None),
            (entry(json!({ "type": "label", "targetId": "e1", "label": "not" })), None),
            (Document::of("no JSON"), None),
            (Document::of(r#"{"type":"turn_started","payload":{}}"#), None),
        ];
        for (document, want) in cases {
            let found = document.map(|document| {
                format!(
                    "{} {}",
                    serde_json::to_value(document.role).unwrap().as_str().unwrap(),
                    document.text.replace('\n', "|")
                )
            });
            assert_eq!(found.as_deref(), want);
        }
    }
}
