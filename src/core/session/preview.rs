//! One-line previews of entries for the tree view.

use reseed_protocol::{Entry, EntryData, Message, Part, Role};

/// Maximum characters of a preview, ellipsis included.
pub const PREVIEW_CHARS_MAX: usize = 80;

/// Returns one line of at most [`PREVIEW_CHARS_MAX`] characters. White space collapses to one space. Control
/// characters, which could send commands to a terminal, are removed. Reads only as much text as it shows.
#[must_use]
pub fn preview(data: &EntryData) -> String {
    let mut line = PreviewLine::default();
    match data {
        EntryData::Message(message) => line.message(message),
        EntryData::Compaction(compaction) => line.summary(&compaction.summary),
        EntryData::BranchSummary(branch) => line.summary(&branch.summary),
        EntryData::Custom(custom) => line.text(&custom.custom_type),
        EntryData::CustomMessage(custom) => line.parts(&custom.content),
        EntryData::ModelChange(change) => line.text(&change.model),
        EntryData::ThinkingLevelChange(change) => line.text(&change.thinking_level),
        EntryData::Label(label) => line.text(label.label.as_deref().unwrap_or_default()),
        EntryData::SessionInfo(info) => line.text(&info.name),
        EntryData::Foreign(foreign) => line.text(&foreign.foreign_type),
        EntryData::ContextTransform(_) | EntryData::Ephemeral(_) => {}
    }
    line.shown
}

/// Returns any text as one line, in the form of [`preview`].
#[must_use]
pub fn one_line(text: &str) -> String {
    let mut line = PreviewLine::default();
    line.text(text);
    line.shown
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

/// A preview in progress.
#[derive(Default)]
struct PreviewLine {
    shown: String,
    chars: usize,
    /// True if there was white space since the last character.
    space: bool,
    cut: bool,
}

impl PreviewLine {
    fn message(&mut self, message: &Message) {
        self.parts(&message.content);
        if self.shown.is_empty() {
            // For an answer without text, the preview shows its reasoning.
            for part in &message.content {
                if let Part::Reasoning { text, .. } = part {
                    self.text(text);
                }
            }
        }
    }

    fn parts(&mut self, parts: &[Part]) {
        for part in parts {
            match part {
                Part::Text { text } => self.text(text),
                Part::Image { .. } => self.text("[picture]"),
                Part::Reasoning { .. } => {}
                Part::ToolCall { name, arguments, .. } => {
                    self.text(name);
                    self.space = false;
                    self.text("(");
                    self.space = false;
                    self.text(arguments);
                    self.space = false;
                    self.text(")");
                }
                Part::ToolResult { output, .. } => self.text(output),
            }
        }
    }

    /// Appends a summary: a heading as `Goal:`, and no tags around the text.
    fn summary(&mut self, summary: &str) {
        for line in summary.lines() {
            match summary_line(line) {
                SummaryLine::Heading(heading) => {
                    self.text(heading);
                    self.space = false;
                    self.text(":");
                }
                SummaryLine::Text(text) => self.text(text),
                SummaryLine::Tag => {}
            }
        }
    }

    /// Appends text, separated by a space from what came before.
    fn text(&mut self, text: &str) {
        for c in text.chars() {
            if self.cut {
                return;
            }
            if c.is_whitespace() {
                self.space = true;
            } else if !steers(c) {
                if std::mem::take(&mut self.space) && self.chars > 0 {
                    self.push(' ');
                }
                self.push(c);
            }
        }
        self.space = true;
    }

    fn push(&mut self, c: char) {
        if self.cut {
            return;
        }
        if self.chars < PREVIEW_CHARS_MAX {
            self.shown.push(c);
            self.chars += 1;
            return;
        }
        self.cut = true;
        self.shown.pop();
        let kept = self.shown.trim_end().len();
        self.shown.truncate(kept);
        self.shown.push('…');
    }
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
