//! The files that a pi session touches, taken from calls of its tools `read`, `write` and `edit`.

use super::json::{Json, Object};
use std::collections::BTreeSet;

/// Files grouped by operation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    /// Read.
    pub read: BTreeSet<String>,
    /// Written.
    pub written: BTreeSet<String>,
    /// Edited.
    pub edited: BTreeSet<String>,
}

impl Files {
    /// Adds the files recorded by an earlier summary, unless an extension made that summary.
    pub fn add_noted(&mut self, line: &Object) {
        if line.get("fromHook").and_then(Json::as_bool) == Some(true) {
            return;
        }
        let list = |name: &str| {
            let files = line.get("details").and_then(|details| details.get(name)?.as_list()).unwrap_or_default();
            files.iter().filter_map(Json::as_text).map(str::to_owned).collect::<Vec<_>>()
        };
        self.read.extend(list("readFiles"));
        self.edited.extend(list("modifiedFiles"));
    }

    /// Adds the files named by a message's tool calls.
    pub fn add_calls(&mut self, message: &Object) {
        if message.text("role") != Some("assistant") {
            return;
        }
        for block in message.get("content").and_then(Json::as_list).unwrap_or_default() {
            if block.text("type") != Some("toolCall") {
                continue;
            }
            let Some(path) =
                block.get("arguments").and_then(|given| given.text("path")).filter(|path| !path.is_empty())
            else {
                continue;
            };
            match block.text("name") {
                Some("read") => self.read.insert(path.to_owned()),
                Some("write") => self.written.insert(path.to_owned()),
                Some("edit") => self.edited.insert(path.to_owned()),
                _ => false,
            };
        }
    }

    /// Returns the files written or edited, sorted as JavaScript sorts.
    #[must_use]
    pub fn modified(&self) -> Vec<String> {
        sorted(self.edited.union(&self.written))
    }

    /// Returns the files read but not modified, sorted as JavaScript sorts.
    #[must_use]
    pub fn only_read(&self) -> Vec<String> {
        sorted(self.read.iter().filter(|file| !self.edited.contains(*file) && !self.written.contains(*file)))
    }

    /// Returns the file lists in the form in which they are appended to a summary; empty if there are no files.
    #[must_use]
    pub fn appended(&self) -> String {
        let list = |tag: &str, files: &[String]| {
            if files.is_empty() { String::new() } else { format!("\n\n<{tag}>\n{}\n</{tag}>", files.join("\n")) }
        };
        list("read-files", &self.only_read()) + &list("modified-files", &self.modified())
    }
}

/// Sorts by UTF-16 code units.
pub fn sorted<'a>(files: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut files: Vec<String> = files.cloned().collect();
    files.sort_by(|a, b| a.encode_utf16().cmp(b.encode_utf16()));
    files
}
