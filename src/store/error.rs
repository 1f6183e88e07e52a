//! The errors of a store.

use super::cluster::NodeId;
use reseed_protocol::{EntryId, SessionId};
use std::fmt;

/// The damaged part of a session's stored data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The record with this `seq`.
    Record(u64),
    /// Its head: owner, term, length and the fields shown in lists.
    Head,
    /// The mark of a command.
    Mark,
    /// The database pages that hold it, as the database itself reports.
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

/// The reason a store operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no such session.
    #[error("there is no session `{0}`")]
    NotFound(SessionId),
    /// A session with this id already exists.
    #[error("session `{0}` already exists")]
    Exists(SessionId),
    /// Another writer has opened the session since, or the log ends elsewhere than the writer assumed. Nothing was
    /// written; the writer must drop its state and open the session again.
    #[error(
        "session `{session}` is at term {term} and seq {last_seq}; the append came with term {append_term} \
         for seq {first_seq}"
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
    /// Another node has the session open. Nothing was changed.
    #[error("session `{session}` is open on node {node}")]
    Held {
        /// The session.
        session: SessionId,
        /// The node that holds it.
        node: NodeId,
    },
    /// The store does not have this node, which has joined: the node was removed, or the store failed over to a copy
    /// that lacks it. Nothing was changed. The node opens and creates nothing until it has joined again.
    #[error("the database does not have this server, node {0}, which is about to join again")]
    NotMember(NodeId),
    /// The command's mark already exists. Nothing was written.
    #[error("command `{command_id}` is already in the log of session `{session}`")]
    DuplicateCommand {
        /// The session.
        session: SessionId,
        /// The command.
        command_id: String,
    },
    /// An entry with this id already exists. Nothing was written.
    #[error("session `{session}` already has an entry `{entry}`")]
    DuplicateEntry {
        /// The session.
        session: SessionId,
        /// The entry.
        entry: EntryId,
    },
    /// A part of the session does not read back as it was written: the disk or the file is damaged. Other sessions and
    /// the rest of this one's log remain readable. A session with a damaged head takes no appends.
    #[error("{part} of session `{session}` is damaged: {reason}")]
    Damaged {
        /// The session.
        session: SessionId,
        /// The damaged part.
        part: Part,
        /// The reason it is invalid.
        reason: &'static str,
    },
    /// The cursor did not come from this store: the client's fault, not the store's.
    #[error("`{0}` is not a list cursor")]
    Cursor(String),
    /// The store was opened read-only.
    #[error("the database is open read-only")]
    ReadOnly,
    /// It is unknown whether the append was written: open the session again and read. Full disks and I/O errors are
    /// reported as this.
    #[error("the store failed: {0}")]
    Unknown(String),
}
