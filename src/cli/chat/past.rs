//! The lines of earlier chats, which the arrow keys bring back: kept in a file that its owner alone may read.
//!
//! A line of the file is a typed line as a JSON string, so that pasted blocks stay whole. A file that cannot be read or
//! written is no error: the chat then remembers what was typed in it, and no more.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

/// Bytes of one line that is kept; what is longer was pasted.
const LINE_BYTES_MAX: usize = 16 * 1024;

/// The file with the lines of earlier chats.
#[derive(Debug)]
pub(super) struct Past(Option<PathBuf>);

impl Past {
    /// Finds the file: `reseed/chat_history` in `XDG_STATE_HOME`, which is `~/.local/state` if unset.
    pub(super) fn of_user() -> Self {
        let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")));
        Self(state.map(|state| state.join("reseed/chat_history")))
    }

    /// Returns the newest lines, the oldest of them first. A file that has become twice as long is cut to these.
    pub(super) fn newest(&self, lines_max: usize) -> Vec<String> {
        let Some(text) = self.0.as_ref().and_then(|path| fs::read_to_string(path).ok()) else { return Vec::new() };
        let all: Vec<&str> = text.lines().collect();
        let newest = &all[all.len().saturating_sub(lines_max)..];
        if all.len() >= 2 * lines_max {
            let _ = self.replace(newest);
        }
        newest.iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Adds a line that was typed.
    pub(super) fn add(&self, line: &str) {
        let Some(path) = self.0.as_ref().filter(|_| !line.trim().is_empty() && line.len() <= LINE_BYTES_MAX) else {
            return;
        };
        let _ = open(path, OpenOptions::new().append(true))
            .and_then(|mut file| file.write_all(format!("{}\n", serde_json::Value::from(line)).as_bytes()));
    }

    fn replace(&self, lines: &[&str]) -> io::Result<()> {
        let Some(path) = &self.0 else { return Ok(()) };
        let beside = path.with_extension("new");
        open(&beside, OpenOptions::new().write(true).truncate(true))?
            .write_all((lines.join("\n") + "\n").as_bytes())?;
        fs::rename(beside, path)
    }
}

/// Opens a file, or creates it and its folder, for this user alone.
fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    options.create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn lines_come_back_in_order_and_are_nobody_else_s() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/reseed/chat_history");
        let past = Past(Some(path.clone()));
        assert_eq!(past.newest(3), Vec::<String>::new());
        for line in ["one", "a block\nof \"lines\"", "  ", "three", &"x".repeat(LINE_BYTES_MAX + 1)] {
            past.add(line);
        }
        assert_eq!(past.newest(3), ["one", "a block\nof \"lines\"", "three"]);
        assert_eq!(past.newest(2), ["a block\nof \"lines\"", "three"]);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        past.add("four");
        assert_eq!(past.newest(2), ["three", "four"]);
        assert_eq!((fs::read_to_string(&path).unwrap().lines().count(), mode(&path)), (2, 0o600), "it is cut");
        fs::write(&path, "no JSON\n\"five\"\n").unwrap();
        assert_eq!(past.newest(9), ["five"]);
    }

    #[test]
    fn without_a_file_nothing_fails() {
        for past in [Past(None), Past(Some("/proc/none/chat_history".into()))] {
            past.add("one");
            assert_eq!(past.newest(9), Vec::<String>::new());
        }
    }
}
