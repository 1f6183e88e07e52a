//! The rows that are copied from one database to another, and the digest by which both sides are compared.

use crate::{NodeId, SessionHead, checksum::int};
use ring::digest::{Context, SHA256};
use std::{fmt, time::Duration};

/// A session as it appears in a list, without its contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    /// The number that its store assigned.
    pub(crate) number: i64,
    /// Its id as stored; damage may have made it invalid.
    pub(crate) id: String,
    pub(crate) term: i64,
    /// `None` if it has no head.
    pub(crate) last_seq: Option<i64>,
    pub(crate) updated_at: Option<i64>,
}

impl Listed {
    /// Returns true if the session was not written to between the two listings, which may be from two databases. Every
    /// writer opens the session first, which raises its term.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let shape = |listed: &Self| (listed.term, listed.last_seq, listed.updated_at);
        self.id == other.id && shape(self) == shape(other)
    }
}

/// A session's row, its checksum verified.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Session {
    pub(crate) head: SessionHead,
    /// The command that created it.
    pub(crate) created_by: Option<String>,
    /// The entry appended last, if known.
    pub(crate) last_entry: Option<String>,
}

/// A record as stored: in the format of the version in which it was written, its checksum verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) seq: i64,
    pub(crate) version: i16,
    pub(crate) checksum: u32,
    pub(crate) entry: Option<String>,
    pub(crate) parent: Option<String>,
    pub(crate) kind: Option<String>,
    /// True if its parent is the previous entry in the log.
    pub(crate) follows: bool,
    pub(crate) body: String,
}

/// A command's mark, its checksum verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) command: String,
    pub(crate) fingerprint: i64,
    pub(crate) reply: String,
    pub(crate) checksum: u32,
}

/// A server that is listed in a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) id: NodeId,
    pub(crate) name: String,
    pub(crate) lease: Duration,
    pub(crate) beat: i64,
}

/// The size of a database or a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// Sessions.
    pub sessions: u64,
    /// Their records.
    pub records: u64,
    /// Their commands' marks.
    pub marks: u64,
}

/// The SHA-256 digest of a session, or of a whole database. The latter combines the digests of all sessions by
/// exclusive or, so that the order of the list does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Adds the digest of a session to that of the database.
    pub(super) fn add(&mut self, session: &Self) {
        self.0.iter_mut().zip(session.0).for_each(|(all, byte)| *all ^= byte);
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Computes a digest of everything in a session, the same for every database. It leaves out what differs between
/// databases: the session's number, its holder and its epoch.
pub(super) struct Hasher(Context);

impl Hasher {
    pub(super) fn of(session: &Session) -> Self {
        let mut hasher = Self(Context::new(&SHA256));
        let SessionHead { session: id, owner, last_seq, term, head, .. } = &session.head;
        hasher.text(id.as_str()).text(owner).text(&head.name).number(int(*last_seq)).number(int(*term));
        hasher.option(session.created_by.as_deref()).option(session.last_entry.as_deref());
        hasher.number(head.created_at.0).number(head.updated_at.0);
        hasher.number(int(head.entries)).number(int(head.token_count)).number(int(head.window_tokens));
        hasher.number(head.cost_nano_usd.map_or(-1, int)).number(int(head.unpriced_requests));
        hasher.number(head.running.into()).option(head.state.as_deref());
        hasher
    }

    pub(super) fn record(&mut self, record: &Record) {
        self.number(record.seq).number(record.version.into()).number(record.checksum.into());
        self.option(record.entry.as_deref()).option(record.parent.as_deref()).option(record.kind.as_deref());
        self.number(record.follows.into()).text(&record.body);
    }

    pub(super) fn mark(&mut self, mark: &Mark) {
        self.text(&mark.command).number(mark.fingerprint).text(&mark.reply).number(mark.checksum.into());
    }

    pub(super) fn end(self) -> Digest {
        let mut digest = Digest::default();
        digest.0.copy_from_slice(self.0.finish().as_ref());
        digest
    }

    fn number(&mut self, number: i64) -> &mut Self {
        self.0.update(&number.to_le_bytes());
        self
    }

    /// Adds a text preceded by its length, so that two adjacent texts cannot be confused with two others.
    fn text(&mut self, text: &str) -> &mut Self {
        self.0.update(&(text.len() as u64).to_le_bytes());
        self.0.update(text.as_bytes());
        self
    }

    fn option(&mut self, text: Option<&str>) -> &mut Self {
        self.number(text.is_some().into()).text(text.unwrap_or_default())
    }
}
