//! Reads pi's session files line by line: versions 1 to 3, migrated to version 3 as pi migrates them.
//!
//! An unreadable line is reported with its number, never skipped silently; the caller decides what to do. Line numbers
//! start at 1, as in editors.

use super::json::{Json, Object};
use reseed_core::session::IdSource;
use reseed_protocol::frame::{DEPTH_MAX, is_too_deep};
use std::collections::HashSet;

/// The newest version that can be read, and the version that is written.
pub const VERSION: u64 = 3;

/// The first line of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// The version that the file was written in.
    pub version: u64,
    /// The session's id.
    pub id: String,
    /// The line in version 3 form.
    pub object: Object,
}

/// An entry's line.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Its line number in the file, from 1.
    pub number: usize,
    /// Its content in version 3 form.
    pub object: Object,
    /// The original text, if it contains an unpaired surrogate, which a Rust string cannot hold.
    pub raw: Option<String>,
}

/// The kind of a line.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// A blank line.
    Blank,
    /// The first line.
    Header(Header),
    /// An entry.
    Entry(Line),
}

/// The reason a line cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The file is not a pi session.
    #[error("line {line}: not a pi session: {why}")]
    NoSession {
        /// The line number.
        line: usize,
        /// Describes what is missing.
        why: String,
    },
    /// The line is not JSON, or not an object.
    #[error("line {line} is broken: {why}")]
    Broken {
        /// The line number.
        line: usize,
        /// The reason.
        why: String,
    },
}

/// Reads a file's lines in order.
#[derive(Debug)]
pub struct Reader {
    lines: usize,
    version: Option<u64>,
    ids: IdSource,
    /// Ids assigned to the entries of a version 1 file, in order.
    given: Vec<String>,
    taken: HashSet<String>,
}

impl Reader {
    /// Creates a reader for a new file. Entries of version 1 have no ids, so `ids` supplies them.
    #[must_use]
    pub fn new(ids: IdSource) -> Self {
        Self { lines: 0, version: None, ids, given: Vec::new(), taken: HashSet::new() }
    }

    /// Takes the next line, without its line ending.
    ///
    /// # Errors
    /// The line is broken, or the file is not a pi session.
    pub fn line(&mut self, text: &str) -> Result<Item, Fault> {
        self.lines += 1;
        let line = self.lines;
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
        if text.is_empty() {
            return Ok(Item::Blank);
        }
        let Parsed { object, raw } = parse_object(text).map_err(|why| Fault::Broken { line, why })?;
        match self.version {
            None => self.header(line, object).map(Item::Header),
            Some(version) => Ok(Item::Entry(Line { number: line, object: self.migrated(version, object), raw })),
        }
    }

    /// Returns true if a header was read.
    #[must_use]
    pub fn has_header(&self) -> bool {
        self.version.is_some()
    }

    fn header(&mut self, line: usize, mut object: Object) -> Result<Header, Fault> {
        let fault = |why: &str| Err(Fault::NoSession { line, why: why.to_owned() });
        if object.text("type") != Some("session") {
            return fault("the first line must be a header of type `session`");
        }
        let Some(id) = object.text("id").map(str::to_owned) else {
            return fault("the header has no `id`");
        };
        let version = match object.get("version") {
            None => 1,
            Some(version) => match version.as_u64() {
                Some(version) if (1..=VERSION).contains(&version) => version,
                _ => return fault(&format!("its version is {}, supported are 1 to {VERSION}", version.to_js_text())),
            },
        };
        object.set("version", VERSION);
        self.version = Some(version);
        Ok(Header { version, id, object })
    }

    /// Returns the entry in version 3 form.
    fn migrated(&mut self, version: u64, mut object: Object) -> Object {
        if version == 1 {
            self.give_id(&mut object);
        }
        if version < VERSION
            && object.text("type") == Some("message")
            && let Some(Json::Object(message)) = object.get_mut("message")
            && message.text("role") == Some("hookMessage")
        {
            message.set("role", "custom");
        }
        object
    }

    /// Assigns ids to the entries of version 1, which is a list: every entry follows the previous one, and a compaction
    /// names its first kept entry by index, with the header as 0. If the index is not that of an earlier entry, the
    /// compaction gets no boundary, as in pi.
    fn give_id(&mut self, object: &mut Object) {
        let id = loop {
            let id = format!("{:08x}", self.ids.next_bits() >> 32);
            if self.taken.insert(id.clone()) {
                break id;
            }
        };
        let parent = self.given.last().map_or(Json::Null, |parent| parent.as_str().into());
        object.set("id", id.as_str());
        object.set("parentId", parent);
        self.given.push(id);
        if object.text("type") == Some("compaction")
            && let Some(index) = object.get("firstKeptEntryIndex").map(Json::as_u64)
        {
            let earlier = &self.given[..self.given.len() - 1];
            let kept = index.and_then(|index| earlier.get(usize::try_from(index).ok()?.checked_sub(1)?));
            object.set_some("firstKeptEntryId", kept.map(String::as_str));
            object.remove("firstKeptEntryIndex");
        }
    }
}

/// Parses a line. JavaScript strings may contain an unpaired surrogate, and Rust's may not. It is read as U+FFFD, and
/// the original text is returned as well.
pub(super) fn parse_object(text: &str) -> Result<Parsed, String> {
    if is_too_deep(text.as_bytes()) {
        return Err(format!("it is nested more than {DEPTH_MAX} deep"));
    }
    let (value, raw) = match serde_json::from_str(text) {
        Ok(value) => (value, None),
        Err(error) => {
            let mended = mend_halves(text).ok_or_else(|| reason(&error))?;
            let value = serde_json::from_str(&mended).map_err(|error| reason(&error))?;
            (value, Some(text.to_owned()))
        }
    };
    let Json::Object(object) = value else { return Err("it is not a JSON object".to_owned()) };
    Ok(Parsed { object, raw })
}

/// A parsed line.
pub(super) struct Parsed {
    /// Its content.
    pub(super) object: Object,
    /// The original text, if it contains more than `object` can hold.
    pub(super) raw: Option<String>,
}

/// Returns the parse error without serde's line number, because the input is a single line.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or_default();
    format!("{what} at character {}", error.column())
}

/// Replaces every escaped unpaired surrogate with U+FFFD; `None` if there is none.
fn mend_halves(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let unit = |at: usize| -> Option<u16> {
        if bytes.get(at..at + 2)? != b"\\u" {
            return None;
        }
        u16::from_str_radix(text.get(at + 2..at + 6)?, 16).ok()
    };
    let mut mended = String::new();
    let (mut at, mut copied) = (0, 0);
    while at < bytes.len() {
        if bytes[at] != b'\\' {
            at += 1;
            continue;
        }
        match unit(at) {
            Some(0xd800..0xdc00) if matches!(unit(at + 6), Some(0xdc00..0xe000)) => at += 12,
            Some(0xd800..0xe000) => {
                mended.push_str(&text[copied..at]);
                mended.push_str("\\ufffd");
                at += 6;
                copied = at;
            }
            Some(_) => at += 6,
            None => at += 2,
        }
    }
    if copied == 0 {
        return None;
    }
    mended.push_str(text.get(copied..)?);
    Some(mended)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = r#"{"type":"session","version":3,"id":"s","timestamp":"2026-01-05T09:00:00.000Z","cwd":"/"}"#;

    fn reader() -> Reader {
        Reader::new(IdSource::seeded(1))
    }

    #[test]
    fn broken_lines_are_reported_with_their_number() {
        let mut reader = reader();
        assert!(matches!(reader.line(HEADER), Ok(Item::Header(_))));
        assert_eq!(reader.line("  \r"), Ok(Item::Blank));
        let deep = format!(r#"{{"a":{}0{}}}"#, "[".repeat(32), "]".repeat(32));
        for (text, told) in [
            ("{not json", "line 3 is broken: key must be a string at character 2"),
            (r#"{"type":"message","id":"cut-off"#, "line 4 is broken: EOF while parsing a string at character 31"),
            ("7", "line 5 is broken: it is not a JSON object"),
            (&deep, "line 6 is broken: it is nested more than 32 deep"),
        ] {
            assert_eq!(reader.line(text).unwrap_err().to_string(), told);
        }
    }

    #[test]
    fn files_that_are_no_session_are_refused() {
        for (text, told) in [
            (r#"{"type":"message"}"#, "line 1: not a pi session: the first line must be a header of type `session`"),
            (r#"{"type":"session"}"#, "line 1: not a pi session: the header has no `id`"),
            (
                r#"{"type":"session","id":"a","version":4}"#,
                "line 1: not a pi session: its version is 4, supported are 1 to 3",
            ),
            ("hello", "line 1 is broken: expected value at character 1"),
        ] {
            assert_eq!(reader().line(text).unwrap_err().to_string(), told);
        }
    }

    #[test]
    fn unpaired_surrogates_are_read_and_preserved() {
        let mut reader = reader();
        reader.line(HEADER).unwrap();
        let text = r#"{"a":"\ud83d\ude00 \ud83d \ude00 \\ud83d \u0041"}"#;
        let Ok(Item::Entry(line)) = reader.line(text) else { panic!() };
        assert_eq!(line.object.text("a"), Some("😀 \u{fffd} \u{fffd} \\ud83d A"));
        assert_eq!(line.raw.as_deref(), Some(text));
    }
}
