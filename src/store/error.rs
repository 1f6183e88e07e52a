//! The errors of a store.

use reseed_protocol::{EntryId, SessionId};
use std::fmt;

/// A part of what is kept of a session, for saying where damage is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The record with this `seq`.
    Record(u64),
    /// Its head: owner, term, length and what lists show.
    Head,
    /// The mark of a command.
    Mark,
    /// The pages of the database that hold it, as the database itself says.
    Pages,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(seq) => write!(f, "record {seq}"),
            Self::Head => f.write_str("the head"),
            Self::Mark => f.write_str("a command's mark"),
            Self::Pages => f.write_str("a page"),
        }
    }
}

/// Why the store could not do it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no such session.
    #[error("there is no session `{0}`")]
    NotFound(SessionId),
    /// There is one of this name already.
    #[error("session `{0}` exists already")]
    Exists(SessionId),
    /// Another writer has opened the session since, or the log is not where the writer thinks: nothing was written;
    /// the writer must drop what it knows and open again.
    #[error(
        "session `{session}` is at term {term} and seq {last_seq}; the append came with term {append_term} for seq {first_seq}"
    )]
    Fenced {
        /// The session.
        session: SessionId,
        /// The session's term.
        term: u64,
        /// The newest seq.
        last_seq: u64,
        /// The append's term.
        append_term: u64,
        /// The append's first seq.
        first_seq: u64,
    },
    /// The command's mark is there already: nothing was written.
    #[error("command `{command_id}` is in the log of session `{session}` already")]
    DuplicateCommand {
        /// The session.
        session: SessionId,
        /// The command.
        command_id: String,
    },
    /// An entry of this id is there already: nothing was written.
    #[error("session `{session}` has an entry `{entry}` already")]
    DuplicateEntry {
        /// The session.
        session: SessionId,
        /// The entry.
        entry: EntryId,
    },
    /// A part of the session does not read back as it was written: its disk or file has gone bad. Other sessions, and the
    /// rest of this one's log, are still readable; nothing is appended to a session whose head is damaged.
    #[error("{part} of session `{session}` is damaged: {reason}")]
    Damaged {
        /// The session.
        session: SessionId,
        /// What of it.
        part: Part,
        /// What does not fit.
        reason: &'static str,
    },
    /// The cursor of a list did not come from this store: the client's fault, not the store's.
    #[error("`{0}` is not a cursor of a list")]
    Cursor(String),
    /// The store was opened to be looked into.
    #[error("the database is open for reading only")]
    ReadOnly,
    /// It is not known whether the append was written: open again and read. Disk full and I/O errors are this.
    #[error("the store failed: {0}")]
    Unknown(String),
}
