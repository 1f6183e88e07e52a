//! `history_read`: reads an entry in full, page by page, with those around it.

use super::{ECHO_CHARS_MAX, QUOTED, bool_of, failed, number_of, offer, quote};
use crate::{
    store::{EntryQuery, Error, SessionStore, StoredRecord, whole_mark},
    tools::{Call, CallFuture, Output, Tool},
};
use reseed_protocol::{Entry, EntryData, EntryId, Part, Role, content::utf16_len, event::Event, tools::ToolOffer};
use serde_json::json;
use std::{fmt::Write as _, sync::Arc};

/// Maximum entries shown before and after.
const AROUND_MAX: u64 = 10;

/// The length of a page of an entry in UTF-16 code units, like all text positions. It has about 3,000 tokens.
const PAGE: u64 = 10_000;

/// The maximum length shown of each entry before and after.
const AROUND_LENGTH: u64 = 1_000;

/// Maximum entries walked back from the call to find the requested entry.
const WALK_MAX: u32 = 1_000_000;

pub(super) struct Read(pub(super) Arc<dyn SessionStore>);

impl Tool for Read {
    fn offer(&self) -> ToolOffer {
        offer(
            "history_read",
            "Reads one entry of this conversation's history in full, whatever was summarized or cut since, with the \
             entries before and after it if you like. Long entries come in pages: go on with the offset that the page \
             names.",
            json!({
                "type": "object",
                "properties": {
                    "entryId": {
                        "type": "string",
                        "description": "The id of the entry, as history_search or the note about a cut result names it."
                    },
                    "around": {
                        "type": "integer",
                        "minimum": 0,
                        "maximum": AROUND_MAX,
                        "description": "The number of entries to show before and after it, each shortened; 0 if absent."
                    },
                    "offset": {
                        "type": "integer",
                        "minimum": 0,
                        "description": "The position in its text from which to read; 0 if absent."
                    },
                    "branches": {
                        "type": "boolean",
                        "description": "True to read an entry of another branch of the conversation."
                    }
                },
                "required": ["entryId"],
                "additionalProperties": false
            }),
        )
    }

    fn call(&self, call: Call) -> CallFuture<'_> {
        Box::pin(async move { self.read(&call).await.unwrap_or_else(|error| failed(&error)) })
    }
}

impl Read {
    async fn read(&self, call: &Call) -> Result<Output, Error> {
        let named = call.arguments["entryId"].as_str().unwrap_or_default();
        let around = u32::try_from(number_of(call, "around", 0, AROUND_MAX)).unwrap_or(0);
        let unknown = || {
            let shown: String = named.chars().take(ECHO_CHARS_MAX).collect();
            let shown = shown.replace(char::is_control, " ");
            Output::error(format!("there is no entry `{shown}` in this conversation; history_search names entries"))
        };
        let Ok(id) = named.parse::<EntryId>() else { return Ok(unknown()) };
        let before = EntryQuery::Path { from: id.clone(), limit: around + 1 };
        let mut before = match self.0.entries(&call.session, before).await {
            Ok(records) => entries(&records),
            Err(Error::Damaged { .. }) => return Ok(Output::error("this entry, or one before it, is damaged")),
            Err(error) => return Err(error),
        };
        if before.is_empty() {
            return Ok(unknown());
        }
        let mut entry = before.remove(0);
        before.reverse();
        let after = match &call.leaf {
            Some(leaf) if *leaf == id => Vec::new(),
            Some(leaf) => {
                let query = EntryQuery::PathAfter {
                    after: id.clone(),
                    to: leaf.clone(),
                    steps: WALK_MAX,
                    limit: around.max(1),
                };
                let records = self.0.entries(&call.session, query).await?;
                if records.is_empty() && !bool_of(call, "branches") {
                    return Ok(unknown());
                }
                entries(&records)
            }
            None if bool_of(call, "branches") => Vec::new(),
            None => return Ok(unknown()),
        };
        self.restore(call, &mut entry).await?;
        let mut text = format!("{QUOTED}\n");
        for entry in before {
            show_part(&mut text, &entry);
        }
        let Some(whole) = text_of(&entry) else {
            return Ok(Output::error(format!("entry `{id}` has no text")));
        };
        let offset = number_of(call, "offset", 0, u64::MAX);
        let length = utf16_len(&whole);
        if offset > 0 && offset >= length {
            return Ok(Output::error(format!(
                "the offset {offset} is behind the end: entry `{id}` has {length} characters"
            )));
        }
        let (page, end) = page(&whole, offset, PAGE);
        head(&mut text, &entry);
        quote(&mut text, page);
        if offset > 0 || end < length {
            let _ = write!(text, "(characters {offset} to {end} of {length}");
            let _ = if end < length { writeln!(text, "; go on with offset {end})") } else { writeln!(text, ")") };
        }
        for entry in after.iter().take(around as usize) {
            show_part(&mut text, entry);
        }
        Ok(Output::text(text))
    }

    /// Restores the whole result of an entry that contains only a part of it.
    async fn restore(&self, call: &Call, entry: &mut Entry) -> Result<(), Error> {
        let id = whole_mark(&entry.entry_id);
        let EntryData::Message(message) = &mut entry.data else { return Ok(()) };
        if message.cut.is_none() {
            return Ok(());
        }
        if let Some(mark) = self.0.command(&call.session, &id).await? {
            for part in &mut Arc::make_mut(message).content {
                if let Part::ToolResult { output, .. } = part {
                    *output = mark.reply.to_string();
                }
            }
        }
        Ok(())
    }
}

fn entries(records: &[StoredRecord]) -> Vec<Entry> {
    let entry = |record: &StoredRecord| match serde_json::from_str(&record.body) {
        Ok(Event::EntryAppended(appended)) => Some(appended.entry),
        _ => None,
    };
    records.iter().filter_map(entry).collect()
}

fn head(text: &mut String, entry: &Entry) {
    let author = match &entry.data {
        EntryData::Message(message) => match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        },
        EntryData::CustomMessage(_) => "user",
        _ => "summary",
    };
    // Writing to a text cannot fail.
    let _ = writeln!(text, "\n[entry {} | {} | {author}]", entry.entry_id, entry.timestamp);
}

/// Adds the beginning of an entry, if it has a text.
fn show_part(text: &mut String, entry: &Entry) {
    let Some(whole) = text_of(entry) else { return };
    let (page, end) = page(&whole, 0, AROUND_LENGTH);
    head(text, entry);
    quote(text, page);
    let length = utf16_len(&whole);
    if end < length {
        let _ = writeln!(text, "({length} characters; read this entry to see all)");
    }
}

/// Returns the text of an entry without reasoning; `None` if the model never sees the entry.
fn text_of(entry: &Entry) -> Option<String> {
    let parts = match &entry.data {
        EntryData::Message(message) => &message.content,
        EntryData::CustomMessage(message) => &message.content,
        EntryData::Compaction(compaction) => return Some(compaction.summary.clone()),
        EntryData::BranchSummary(branch) => return Some(branch.summary.clone()),
        _ => return None,
    };
    let texts = parts.iter().filter_map(|part| match part {
        Part::Text { text } => Some(text.clone()),
        Part::Image { .. } => Some("(an image)".to_owned()),
        Part::Reasoning { .. } => None,
        Part::ToolCall { name, arguments, .. } => Some(format!("(calls {name}) {arguments}")),
        Part::ToolResult { output, is_error, .. } => {
            Some(if *is_error { format!("(failed) {output}") } else { output.clone() })
        }
    });
    Some(texts.collect::<Vec<_>>().join("\n"))
}

/// Returns at most `length` code units of a text from an offset on, and the position where they end. Positions are
/// UTF-16 code units. A character is never split.
pub(super) fn page(text: &str, offset: u64, length: u64) -> (&str, u64) {
    let (mut at, mut start, mut end) = (0, None, (text.len(), 0));
    for (byte, c) in text.char_indices() {
        if at >= offset && start.is_none() {
            start = Some((byte, at));
        }
        if start.is_some_and(|(_, start)| at + c.len_utf16() as u64 > start + length) {
            end = (byte, at);
            break;
        }
        at += c.len_utf16() as u64;
        end = (text.len(), at);
    }
    let start = start.map_or(text.len(), |(byte, _)| byte);
    (&text[start..end.0.max(start)], end.1)
}
