//! Escapes quoted text so that it cannot end its quotation or imitate another speaker.
//!
//! A backslash is inserted after the first character of anything that could have a special meaning: `<\|im_end|>`,
//! `<\/summary>`, `[\User]:`. It is visible, and `unescape` removes it; text that already had backslashes there gets
//! one more. Near misses are escaped as well: other case, inner spaces, full-width and look-alike letters. Invisible
//! characters must be removed first ([`clean`](super::clean::clean)).
//!
//! Legitimate text that looks alike is escaped too (`<summary>` in HTML, `<|` in F#): a backslash does less harm than a
//! gap in the protection.

use super::fold::{any_byte, fold};
use std::borrow::Cow;

/// Characters that may precede a forged head on its line: the markers of a quotation or a list.
const LINE_MARKS: [char; 9] = [' ', '\t', '>', '-', '*', '_', '#', '|', '`'];
/// Maximum markers before a forged head; a line with more is a drawing.
const LINE_MARKS_MAX: usize = 32;

/// Tags that end a turn, a quotation or a record, or start another.
const TAGS: [&str; 24] = [
    "s",
    "bos",
    "eos",
    "pad",
    "unk",
    "sop",
    "start_of_turn",
    "end_of_turn",
    "think",
    "thinking",
    "tool_call",
    "tool_calls",
    "tool_response",
    "tool_result",
    "tool_results",
    "function_call",
    "function_calls",
    "summary",
    "conversation",
    "previous-summary",
    "system",
    "developer",
    "assistant",
    "human",
];
/// Tags that this program itself appends to a summary; they are escaped only inside a quotation.
const FILE_TAGS: [&str; 2] = ["read-files", "modified-files"];
/// Words in square brackets with a special meaning to a model.
const BRACKETS: [&str; 6] = ["inst", "system_prompt", "tool_calls", "tool_results", "available_tools", "img_break"];
/// Speakers in square brackets at the start of a line, without spaces and joining marks.
const SPEAKERS: [&str; 19] = [
    "user",
    "assistant",
    "toolcall",
    "toolcalls",
    "toolresult",
    "toolresults",
    "toolerror",
    "tool",
    "system",
    "developer",
    "human",
    "model",
    "ai",
    "function",
    "assistantthinking",
    "assistanttoolcalls",
    "usermessage",
    "systemmessage",
    "summary",
];

/// The context of a text, which determines what it must not imitate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextKind {
    /// Quoted as data in a summary request.
    Quoted,
    /// A summary in the context, followed by its file lists.
    Record,
}

/// Inserts a backslash into everything that could have a special meaning here.
pub(crate) fn escape(text: &str, kind: TextKind) -> Cow<'_, str> {
    edit(text, kind, Edit::Add)
}

/// Removes the backslashes that [`escape`] inserted.
pub(crate) fn unescape(text: &str, kind: TextKind) -> Cow<'_, str> {
    edit(text, kind, Edit::Remove)
}

/// Inserts a backslash into every mention of the delimiter, in any spelling.
pub(crate) fn escape_mark<'a>(text: &'a str, delimiter: &str) -> Cow<'a, str> {
    edit_mark(text, delimiter, Edit::Add)
}

/// Removes the backslashes that [`escape_mark`] inserted.
pub(crate) fn unescape_mark<'a>(text: &'a str, delimiter: &str) -> Cow<'a, str> {
    edit_mark(text, delimiter, Edit::Remove)
}

/// Removes all backslashes in such positions, for a text in which a model copied escaped text.
pub(crate) fn bare(text: &str, kind: TextKind) -> Cow<'_, str> {
    edit(text, kind, Edit::RemoveAll)
}

/// The edit of the backslashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Edit {
    Add,
    Remove,
    RemoveAll,
}

fn edit(text: &str, kind: TextKind, edit: Edit) -> Cow<'_, str> {
    let mut edited = Edited::new(text, edit);
    let mut line_start = 0;
    // Most texts contain nothing that could start a tag or a bracket in any spelling.
    let has_brackets = any_byte(text, |byte| !byte.is_ascii() || matches!(byte, b'<' | b'['));
    if !has_brackets {
        return edited.finish();
    }
    loop {
        let line_end = text[line_start..].find('\n').map_or(text.len(), |at| line_start + at);
        let line = &text[line_start..line_end];
        edit_brackets(&mut edited, line, line_start, kind);
        if line_end == text.len() {
            return edited.finish();
        }
        line_start = line_end + 1;
    }
}

fn edit_brackets(edited: &mut Edited<'_>, line: &str, line_start: usize, kind: TextKind) {
    if !any_byte(line, |byte| !byte.is_ascii() || matches!(byte, b'<' | b'[')) {
        return;
    }
    let marks = line.char_indices().take(LINE_MARKS_MAX).find(|(_, c)| !LINE_MARKS.contains(&fold(*c)));
    let marks = marks.map_or(line.len(), |(at, _)| at);
    let mut before = None;
    let mut chars = line.char_indices();
    while let Some((at, c)) = chars.next() {
        let folded = fold(c);
        if matches!(folded, '<' | '[') {
            let rest = chars.as_str().trim_start_matches('\\');
            let found = match folded {
                '<' => is_tag(rest, before, kind),
                _ => is_bracket(rest) || (at == marks && is_speaker(rest)),
            };
            if found {
                edited.at(line_start + at);
            }
        }
        before = Some(c);
    }
}

fn is_tag(rest: &str, before: Option<char>, kind: TextKind) -> bool {
    let mut rest = Folded(rest);
    if rest.take('|') {
        return true;
    }
    if rest.take('<') {
        rest.take('/');
        return rest.word() == "sys" && rest.take('>');
    }
    rest.spaces();
    let closes = rest.take('/');
    rest.spaces();
    // `List<Human>` is a type, `<Human>` and `is<human>` are tags.
    let is_type = !closes
        && rest.0.starts_with(|c: char| c.is_ascii_uppercase())
        && before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let name = rest.word();
    match name.as_str() {
        "" => false,
        // A single letter could start too many other things.
        "s" => {
            rest.spaces();
            !is_type && rest.take('>')
        }
        name if FILE_TAGS.contains(&name) => kind != TextKind::Record,
        "summary" => true,
        name => TAGS.contains(&name) && !is_type,
    }
}

fn is_bracket(rest: &str) -> bool {
    let mut rest = Folded(rest);
    rest.spaces();
    rest.take('/');
    rest.spaces();
    let name = rest.word();
    rest.spaces();
    BRACKETS.contains(&name.as_str()) && rest.take(']')
}

fn is_speaker(rest: &str) -> bool {
    // The limit is longer than the longest speaker with some spaces.
    let mut name = String::new();
    for c in rest.chars().take(40).map(fold) {
        match c {
            ']' => return SPEAKERS.contains(&name.as_str()),
            ' ' | '\t' | '_' | '-' => {}
            c => name.push(c),
        }
    }
    false
}

/// A text read in folded characters.
struct Folded<'a>(&'a str);

impl Folded<'_> {
    fn take(&mut self, expected: char) -> bool {
        match self.0.chars().next() {
            Some(c) if fold(c) == expected => {
                self.0 = &self.0[c.len_utf8()..];
                true
            }
            _ => false,
        }
    }

    fn spaces(&mut self) {
        while self.take(' ') || self.take('\t') {}
    }

    /// Reads letters, digits and joining marks; no tag has more than 24 of them.
    fn word(&mut self) -> String {
        let mut word = String::new();
        for c in self.0.chars().take(24) {
            let folded = fold(c);
            if !folded.is_alphanumeric() && !matches!(folded, '_' | '-') {
                break;
            }
            word.push(folded);
            self.0 = &self.0[c.len_utf8()..];
        }
        word
    }
}

fn edit_mark<'a>(text: &'a str, delimiter: &str, edit: Edit) -> Cow<'a, str> {
    let mut edited = Edited::new(text, edit);
    let mut wanted = delimiter.chars().map(fold);
    let Some(first) = wanted.next() else { return edited.finish() };
    for (at, c) in text.char_indices().filter(|(_, c)| fold(*c) == first) {
        let mut spelt = text[at + c.len_utf8()..].trim_start_matches('\\').chars().map(fold);
        if wanted.clone().all(|wanted| spelt.next() == Some(wanted)) {
            edited.at(at);
        }
    }
    edited.finish()
}

/// A text into which backslashes are inserted, or from which they are removed, after given characters.
struct Edited<'a> {
    text: &'a str,
    edit: Edit,
    done: usize,
    edited: String,
    last: Option<usize>,
}

impl<'a> Edited<'a> {
    fn new(text: &'a str, edit: Edit) -> Self {
        Self { text, edit, done: 0, edited: String::new(), last: None }
    }

    /// Edits after the character at this position; each position counts once.
    fn at(&mut self, at: usize) {
        if self.last == Some(at) {
            return;
        }
        self.last = Some(at);
        let behind = at + self.text[at..].chars().next().map_or(0, char::len_utf8);
        let slashes = self.text[behind..].bytes().take_while(|byte| *byte == b'\\').count();
        let gone = match self.edit {
            Edit::Add => 0,
            Edit::Remove => slashes.min(1),
            Edit::RemoveAll => slashes,
        };
        if self.edit == Edit::Add || gone > 0 {
            self.edited.push_str(&self.text[self.done..behind]);
            self.done = behind + gone;
        }
        if self.edit == Edit::Add {
            self.edited.push('\\');
        }
    }

    fn finish(mut self) -> Cow<'a, str> {
        if self.done == 0 {
            return Cow::Borrowed(self.text);
        }
        self.edited.push_str(&self.text[self.done..]);
        Cow::Owned(self.edited)
    }
}

#[cfg(test)]
mod tests;
