//! Reasons for which a migration fails.

use crate::{ConnectError, Error};
use reseed_protocol::SessionId;
use std::fmt;

/// The most names that an error lists; the rest are only counted.
const NAMED_MAX: usize = 20;

/// The reason a migration failed. If any session was copied, the target cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// Both addresses are the same.
    #[error("`{0}` is both the source and the target")]
    Same(String),
    /// A database cannot be opened, or a server is using it.
    #[error("open the {side}: {error}")]
    Open {
        /// `source` or `target`.
        side: &'static str,
        /// The cause.
        error: ConnectError,
    },
    /// Servers are using a database.
    #[error("the {side} is in use by {servers}: stop the servers, then run this again")]
    InUse {
        /// `source` or `target`.
        side: &'static str,
        /// The servers' names.
        servers: String,
    },
    /// The target holds sessions.
    #[error("the target already holds sessions ({sessions}): use an empty database")]
    NotEmpty {
        /// The number of sessions in the target.
        sessions: u64,
    },
    /// Some sessions of the source are damaged.
    #[error(
        "{} of the source's sessions are damaged ({}): restore them from a backup, or leave them out with \
         --skip-damaged; then run this again into an empty database",
        .0.count,
        .0
    )]
    Damaged(Damaged),
    /// A session reads back from the target differently from how it was written.
    #[error(
        "session `{0}` does not read back from the target as it is in the source: the target's disk may be failing"
    )]
    Differs(SessionId),
    /// The source or the target was written to during the migration.
    #[error(
        "{what}: something else has written to it during the migration; stop what uses it, then run this again into \
         an empty database"
    )]
    Changed {
        /// Describes what has changed.
        what: String,
    },
    /// A database failed.
    #[error("{doing}: {error}")]
    Store {
        /// Names the step that failed.
        doing: &'static str,
        /// The cause.
        error: Error,
    },
}

/// Sessions that were not copied because they are damaged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Damaged {
    /// Their number.
    pub count: u64,
    /// The reasons for the first of them.
    pub reasons: Vec<String>,
}

impl Damaged {
    pub(super) fn add(&mut self, reason: String) {
        self.count += 1;
        if self.reasons.len() < NAMED_MAX {
            self.reasons.push(reason);
        }
    }
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reasons.join("; "))?;
        let more = self.count.saturating_sub(self.reasons.len() as u64);
        if more > 0 { write!(f, "; and {more} more") } else { Ok(()) }
    }
}
