//! The files that a session has touched according to its tool calls, carried from compaction to compaction.
//!
//! [`FileTools`] defines which tools read and write, and which argument is the path. Failed calls count, and paths are
//! not changed. The lists follow the summary in tags, once: [`strip_files`] removes them before the summary is merged
//! again.

use reseed_protocol::{Message, compaction::CompactionDetails};
use std::collections::BTreeSet;

/// Maximum files in each list: as many as a person would still look through. The alphabetically first are kept, so that
/// the same calls always give the same list.
const FILES_MAX: usize = 1_000;

const READ_OPEN: &str = "<read-files>";
const READ_CLOSE: &str = "</read-files>";
const MODIFIED_OPEN: &str = "<modified-files>";
const MODIFIED_CLOSE: &str = "</modified-files>";

/// The tools whose calls name a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileTools {
    /// Tools that read a file: the tool's name and the path argument's name.
    pub reads: Vec<(String, String)>,
    /// Tools that create or change a file.
    pub writes: Vec<(String, String)>,
}

impl Default for FileTools {
    /// Returns `read`, `write` and `edit`, each with the argument `path`.
    fn default() -> Self {
        let tool = |name: &str| (name.to_owned(), "path".to_owned());
        Self { reads: vec![tool("read")], writes: vec![tool("write"), tool("edit")] }
    }
}

/// Returns the files of an earlier compaction and of these messages. A modified file is not listed as read.
#[must_use]
pub fn file_operations<'a>(
    messages: impl IntoIterator<Item = &'a Message>,
    previous: Option<&CompactionDetails>,
    tools: &FileTools,
) -> CompactionDetails {
    let mut read = BTreeSet::new();
    let mut modified = BTreeSet::new();
    if let Some(previous) = previous {
        read.extend(previous.read_files.iter().cloned());
        modified.extend(previous.modified_files.iter().cloned());
    }
    for message in messages {
        for (_, name, arguments) in message.tool_calls() {
            read.extend(paths(&tools.reads, name, arguments));
            modified.extend(paths(&tools.writes, name, arguments));
        }
    }
    CompactionDetails { read_files: sorted(read.difference(&modified)), modified_files: sorted(modified.iter()) }
}

/// Returns the file lists as they follow a summary, in at most about `chars_max` characters: files that do not
/// fit are counted instead of named. Empty if there are none.
#[must_use]
pub fn file_lists(details: &CompactionDetails, chars_max: usize) -> String {
    let mut chars_left = chars_max;
    // Modified files matter more and get their room first; in the text, the read files come first.
    let modified = list(MODIFIED_OPEN, MODIFIED_CLOSE, &details.modified_files, &mut chars_left);
    let read = list(READ_OPEN, READ_CLOSE, &details.read_files, &mut chars_left);
    format!("{read}{modified}")
}

/// Formats a list in its tags, as far as there is room.
fn list(open: &str, close: &str, files: &[String], chars_left: &mut usize) -> String {
    // This is the room for the tags and the count of omitted files; without it, the whole list is omitted.
    let frame_chars = open.len() + close.len() + 40;
    if files.is_empty() || *chars_left < frame_chars {
        return String::new();
    }
    *chars_left -= frame_chars;
    let mut text = format!("\n\n{open}");
    let mut shown = 0;
    for file in files {
        let chars = file.chars().count() + 1;
        if chars > *chars_left {
            break;
        }
        *chars_left -= chars;
        shown += 1;
        text.push('\n');
        text.push_str(file);
    }
    if shown < files.len() {
        text.push_str(&format!("\n(and {} more)", files.len() - shown));
    }
    text.push_str(&format!("\n{close}"));
    text
}

/// Removes the file lists after a summary.
#[must_use]
pub fn strip_files(summary: &str) -> &str {
    let mut text = summary.trim();
    // At most two lists were appended; only a model that repeats itself adds more.
    loop {
        let lists = [(READ_OPEN, READ_CLOSE), (MODIFIED_OPEN, MODIFIED_CLOSE)];
        let shorter = lists.into_iter().find_map(|(open, close)| {
            let inner = text.strip_suffix(close)?;
            Some(inner[..inner.rfind(open)?].trim_end())
        });
        match shorter {
            Some(shorter) => text = shorter,
            None => return text,
        }
    }
}

/// Returns the paths that a call of this tool names.
fn paths(tools: &[(String, String)], name: &str, arguments: &str) -> Vec<String> {
    let mut named = tools.iter().filter(|(tool, _)| tool == name).map(|(_, argument)| argument).peekable();
    if named.peek().is_none() {
        return Vec::new();
    }
    let Ok(arguments) = serde_json::from_str::<serde_json::Value>(arguments) else { return Vec::new() };
    let path = |argument: &String| arguments.get(argument)?.as_str().filter(|path| is_path(path)).map(str::to_owned);
    named.filter_map(path).collect()
}

/// Returns true for a valid path. The list has one path per line, so a path with a line break would look like two, or
/// like the closing tag.
fn is_path(path: &str) -> bool {
    !path.is_empty() && !path.contains(['\n', '\r'])
}

/// Sorts by UTF-16 code units, like JavaScript readers of the same lists.
fn sorted<'a>(files: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut files: Vec<String> = files.cloned().collect();
    files.sort_by(|a, b| a.encode_utf16().cmp(b.encode_utf16()));
    files.truncate(FILES_MAX);
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_files(summary: &str, details: &CompactionDetails, chars_max: usize) -> String {
        format!("{}{}", strip_files(summary), file_lists(details, chars_max))
    }

    use reseed_protocol::{Part, Role};

    fn calls(calls: &[(&str, &str)]) -> Message {
        let call = |(name, arguments): &(&str, &str)| Part::ToolCall {
            call_id: "c".parse().unwrap(),
            name: (*name).into(),
            arguments: (*arguments).into(),
        };
        Message::new(Role::Assistant, calls.iter().map(call).collect())
    }

    fn details(read: &[&str], modified: &[&str]) -> CompactionDetails {
        let list = |files: &[&str]| files.iter().map(|file| (*file).to_owned()).collect();
        CompactionDetails { read_files: list(read), modified_files: list(modified) }
    }

    #[track_caller]
    fn check(message: Message, previous: Option<CompactionDetails>, expected: CompactionDetails) {
        assert_eq!(file_operations([&message], previous.as_ref(), &FileTools::default()), expected);
    }

    #[test]
    fn files_are_gathered_by_tool() {
        check(
            calls(&[
                ("read", r#"{"path":"b"}"#),
                ("read", r#"{"path":"a"}"#),
                ("edit", r#"{"path":"a"}"#),
                ("write", r#"{"path":"c"}"#),
                ("bash", r#"{"path":"no"}"#),
                ("read", r#"{"path":7}"#),
                ("read", r#"{"path":""}"#),
                ("read", "not json"),
            ]),
            None,
            details(&["b"], &["a", "c"]),
        );
    }

    #[test]
    fn other_tools_can_be_named() {
        let named =
            |tools: &[(&str, &str)]| tools.iter().map(|(tool, path)| ((*tool).into(), (*path).into())).collect();
        let tools = FileTools {
            reads: named(&[("view", "file"), ("copy", "from")]),
            writes: named(&[("copy", "to"), ("copy", "log")]),
        };
        let message = calls(&[
            ("view", r#"{"file":"a","path":"no"}"#),
            ("copy", r#"{"from":"b","to":"c","log":"d"}"#),
            ("read", r#"{"path":"no"}"#),
        ]);
        assert_eq!(file_operations([&message], None, &tools), details(&["a", "b"], &["c", "d"]));
    }

    #[test]
    fn an_earlier_compactions_files_stay_and_move() {
        check(calls(&[("write", r#"{"path":"x"}"#)]), Some(details(&["x", "y"], &["z"])), details(&["y"], &["x", "z"]));
    }

    #[test]
    fn lists_are_appended_once() {
        let files = details(&["a"], &["b", "c"]);
        let once = with_files("text", &files, 1_000);
        assert_eq!(once, "text\n\n<read-files>\na\n</read-files>\n\n<modified-files>\nb\nc\n</modified-files>");
        // This is the form of older summaries.
        assert_eq!(
            strip_files("text\n\n<modified-files>\nb\n</modified-files>\n\n<read-files>\na\n</read-files>"),
            "text"
        );
        assert_eq!(with_files(&once, &files, 1_000), once);
        assert_eq!(strip_files(&once), "text");
        assert_eq!(with_files("text", &CompactionDetails::default(), 1_000), "text");
    }

    #[test]
    fn files_that_do_not_fit_are_counted() {
        let many: Vec<String> = (0..100).map(|n| format!("src/file_{n:03}.rs")).collect();
        let text = with_files("t", &CompactionDetails { read_files: many, modified_files: vec![] }, 200);
        assert!(text.chars().count() <= 203, "{text}");
        assert!(text.contains("src/file_000.rs\n") && text.contains(" more)"), "{text}");
        assert_eq!(with_files("t", &details(&["a"], &[]), 10), "t");
    }
}
