//! One-line previews of entries for the tree view.

use crate::text::clip::prefix;
use reseed_protocol::{Entry, EntryData, Part, Role};
use std::borrow::Cow;

/// Maximum characters of a preview, ellipsis included.
pub const PREVIEW_CHARS_MAX: usize = 80;

/// Returns one line of at most [`PREVIEW_CHARS_MAX`] characters. White space collapses to one space. Control
/// characters, which could send commands to a terminal, are removed. Reads only as much text as it shows.
#[must_use]
pub fn preview(data: &EntryData) -> String {
    match data {
        EntryData::Message(message) => match line(message.content.iter().map(shown)) {
            // For an answer without text, the preview shows its reasoning.
            line_of_text if line_of_text.is_empty() => line(message.content.iter().filter_map(reasoning)),
            line_of_text => line_of_text,
        },
        EntryData::Compaction(compaction) => summary(&compaction.summary),
        EntryData::BranchSummary(branch) => summary(&branch.summary),
        EntryData::Custom(custom) => one_line(&custom.custom_type),
        EntryData::CustomMessage(custom) => line(custom.content.iter().map(shown)),
        EntryData::ModelChange(change) => one_line(&change.model),
        EntryData::ThinkingLevelChange(change) => one_line(&change.thinking_level),
        EntryData::Label(label) => one_line(label.label.as_deref().unwrap_or_default()),
        EntryData::SessionInfo(info) => one_line(&info.name),
        EntryData::Foreign(foreign) => one_line(&foreign.foreign_type),
        EntryData::ContextTransform(_) | EntryData::Ephemeral(_) => String::new(),
    }
}

/// Returns any text as one line, in the form of [`preview`].
#[must_use]
pub fn one_line(text: &str) -> String {
    line([text])
}

/// Returns the type name of an entry in the tree; a message's includes its role.
#[must_use]
pub fn kind(entry: &Entry) -> &'static str {
    match &entry.data {
        EntryData::Message(message) => match message.role {
            Role::User => "message:user",
            Role::Assistant => "message:assistant",
            Role::Tool => "message:tool",
        },
        _ => entry.type_name(),
    }
}

/// A line of a summary, without its markup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SummaryLine<'a> {
    /// A heading.
    Heading(&'a str),
    /// Any other text.
    Text(&'a str),
    /// A tag around the summary.
    Tag,
}

/// Parses a line of a summary.
#[must_use]
pub fn summary_line(line: &str) -> SummaryLine<'_> {
    let line = line.trim();
    let heading = line.trim_start_matches('#').trim();
    match line {
        "<summary>" | "</summary>" => SummaryLine::Tag,
        _ if heading.len() < line.len() && !heading.is_empty() => SummaryLine::Heading(heading),
        _ => SummaryLine::Text(line),
    }
}

/// Returns the text of a part of a message.
fn shown(part: &Part) -> Cow<'_, str> {
    match part {
        Part::Text { text } => Cow::Borrowed(text),
        Part::Image { .. } => Cow::Borrowed("[picture]"),
        Part::Reasoning { .. } => Cow::Borrowed(""),
        Part::ToolCall { name, arguments, .. } => {
            Cow::Owned(format!("{name}({})", prefix(arguments.trim(), PREVIEW_CHARS_MAX)))
        }
        Part::ToolResult { output, .. } => Cow::Borrowed(output),
    }
}

fn reasoning(part: &Part) -> Option<&String> {
    if let Part::Reasoning { text, .. } = part { Some(text) } else { None }
}

/// Returns a summary as one line: a heading as `Goal:`, and no tags around the text.
fn summary(summary: &str) -> String {
    line(summary.lines().map(|line| match summary_line(line) {
        SummaryLine::Heading(heading) => Cow::Owned(format!("{heading}:")),
        SummaryLine::Text(text) => Cow::Borrowed(text),
        SummaryLine::Tag => Cow::Borrowed(""),
    }))
}

/// Returns the words of these texts as one line, cut if it is too long.
fn line(texts: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let (mut line, mut chars) = (String::new(), 0);
    for text in texts {
        for word in text.as_ref().split_whitespace().filter(|word| !word.chars().all(steers)) {
            let space = (chars > 0).then_some(' ');
            for c in space.into_iter().chain(word.chars().filter(|c| !steers(*c))) {
                if chars == PREVIEW_CHARS_MAX {
                    line.pop();
                    return format!("{}…", line.trim_end());
                }
                line.push(c);
                chars += 1;
            }
        }
    }
    line
}

/// Returns true for a character that moves the cursor or changes the text direction. On a terminal or a page, it could
/// make one line look like another.
#[must_use]
pub fn steers(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use reseed_protocol::Timestamp;

    #[test]
    fn a_preview_is_one_short_line() {
        let long = "x".repeat(1_000_000);
        let cut = format!("{}…", "x".repeat(79));
        let word = format!("{} {}", "x".repeat(78), "yy");
        let word_cut = format!("{}…", "x".repeat(78));
        let table = [
            (r#"{"type":"message","role":"user","content":[{"type":"text","text":" a\n\tb  c "}]}"#, "a b c"),
            (
                r#"{"type":"message","role":"user","content":[{"type":"text","text":"look"},{"type":"image","url":"data:image/png;base64,AAAA"}]}"#,
                "look [picture]",
            ),
            (
                r#"{"type":"message","role":"assistant","content":[{"type":"reasoning","text":"Hm."},{"type":"tool_call","toolCallId":"c","name":"weather","arguments":"{\"at\": 1}"}]}"#,
                r#"weather({"at": 1})"#,
            ),
            (r#"{"type":"message","role":"assistant","content":[{"type":"reasoning","text":"Hm."}]}"#, "Hm."),
            (
                r#"{"type":"message","role":"tool","content":[{"type":"tool_result","toolCallId":"c","output":"18 °C"}]}"#,
                "18 °C",
            ),
            (r#"{"type":"message","role":"user","content":[{"type":"text","text":"a\u001b[31mb\u0000"}]}"#, "a[31mb"),
            (r#"{"type":"custom","customType":"note","data":{"secret":1}}"#, "note"),
            (r#"{"type":"label","targetId":"a"}"#, ""),
            (r#"{"type":"label","targetId":"a","label":"here"}"#, "here"),
            (r#"{"type":"compaction","summary":"Goal\nnone","tokensBefore":1}"#, "Goal none"),
            (
                r###"{"type":"compaction","summary":"<summary>\n## Goal\nA quiet #1 spot.\n\n## Next\n- go\n</summary>","tokensBefore":1}"###,
                "Goal: A quiet #1 spot. Next: - go",
            ),
            (&format!(r#"{{"type":"session_info","name":"{long}"}}"#), &cut),
            (&format!(r#"{{"type":"session_info","name":"{word}"}}"#), &word_cut),
            (&format!(r#"{{"type":"session_info","name":"{}"}}"#, &long[..80]), &long[..80]),
        ];
        for (json, expected) in table {
            let data = serde_json::from_str(json).unwrap();
            assert_eq!(preview(&data), expected, "{}", &json[..json.len().min(200)]);
            assert!(preview(&data).chars().count() <= PREVIEW_CHARS_MAX);
        }
    }

    #[test]
    fn a_message_is_named_with_its_role() {
        for (json, expected) in [
            (r#"{"type":"message","role":"tool","content":[]}"#, "message:tool"),
            (r#"{"type":"message","role":"user","content":[]}"#, "message:user"),
            (r#"{"type":"custom","customType":"note"}"#, "custom"),
        ] {
            let data = serde_json::from_str(json).unwrap();
            let id = "entry".parse().unwrap();
            let entry = Entry { entry_id: id, parent_id: None, timestamp: Timestamp(0), imported: None, data };
            assert_eq!(kind(&entry), expected);
        }
    }
}
