//! What real servers answered during a run of `it`, for `tests/outcomes`: replies, errors and events by command.
//!
//! The notes are a file below cargo's target folder, one line each, every line once. A run of all tests of `it` empties
//! it first; a run of some of them adds to it.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::Write as _,
    path::PathBuf,
    sync::{Mutex, OnceLock},
};

/// The first line of notes from a run of all tests.
const WHOLE: &str = "every test of `it`";

/// The command in notes of frames that no known command caused.
pub(crate) const NONE: &str = "*";

/// Options of the test harness that take the next argument as their value.
const WITH_VALUE: [&str; 6] = ["--test-threads", "--color", "--format", "--logfile", "--shuffle-seed", "-Z"];

/// Options that choose tests, or run none.
const CHOOSING: [&str; 4] = ["--skip", "--exact", "--ignored", "--list"];

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("outcomes-of-it")
}

/// Returns true if a test binary with these arguments, its own name excluded, runs all of its tests.
pub(crate) fn is_whole(arguments: impl IntoIterator<Item = String>) -> bool {
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        if WITH_VALUE.contains(&argument.as_str()) {
            arguments.next();
        } else if !argument.starts_with('-') || CHOOSING.iter().any(|choosing| argument.starts_with(choosing)) {
            return false;
        }
    }
    true
}

/// The notes of this process, and the file that has them.
struct Notes {
    noted: BTreeSet<String>,
    file: File,
}

impl Notes {
    fn begin() -> Self {
        let whole = is_whole(std::env::args().skip(1));
        if whole {
            fs::write(path(), format!("{WHOLE}\n")).unwrap();
        }
        let file = File::options().create(true).append(true).open(path()).unwrap();
        Self { noted: BTreeSet::new(), file }
    }
}

/// Records that a server sent a frame of this `kind` because of `command`; `what` is its type or code.
pub(crate) fn note(command: &str, kind: Kind, what: &str) {
    static NOTES: OnceLock<Mutex<Notes>> = OnceLock::new();
    let line = line(command, kind, what);
    // A test that failed while it held the lock has left the notes intact.
    let notes = NOTES.get_or_init(|| Mutex::new(Notes::begin())).lock();
    let mut notes = notes.unwrap_or_else(std::sync::PoisonError::into_inner);
    if !notes.noted.contains(&line) {
        // This is one write, so that lines of two processes do not mix.
        notes.file.write_all(format!("{line}\n").as_bytes()).unwrap();
        notes.noted.insert(line);
    }
}

/// What a server sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A reply that is no error, by its type.
    Reply,
    /// An error, by its code.
    Error,
    /// An event, by its type.
    Event,
    /// An error in an event, by its code. The event takes the place of the command.
    Carried,
}

/// Returns the line of a note.
pub(crate) fn line(command: &str, kind: Kind, what: &str) -> String {
    let kind = match kind {
        Kind::Reply => "reply",
        Kind::Error => "error",
        Kind::Event => "event",
        Kind::Carried => "carries",
    };
    format!("{command} {kind} {what}")
}

/// Returns the lines of the notes. The error says what to run if there are none, or if they are not from a run of all
/// tests.
pub(crate) fn read() -> Result<BTreeSet<String>, String> {
    let text = fs::read_to_string(path()).unwrap_or_default();
    let mut lines = text.lines();
    match lines.next() {
        Some(WHOLE) => Ok(lines.map(str::to_owned).collect()),
        Some(_) => Err("only some tests of `it` have run: run `cargo test --test it` first, without a filter".into()),
        None => Err("what the tests of `it` reach is not known: run `cargo test --test it` first".into()),
    }
}
