//! After a backup was restored: every session gets a new epoch.
//!
//! A client that was connected before may have seen more than the backup holds. As long as the log is shorter, a server
//! notices that; once it has grown past the client's place, with other records, nobody could. So a restored log is
//! another log, and gets another name.

use super::{ConnectError, Error, sqlite};
use crate::config::Database;

/// Counts what was renewed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Renewed {
    /// Sessions with a new epoch.
    pub(crate) renewed: u64,
    /// Sessions whose head is damaged, which cannot be opened anyway.
    pub(crate) damaged: u64,
}

/// The reason not every session has a new epoch.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RestoredError {
    /// The database cannot be opened, or a server uses it.
    #[error(transparent)]
    Open(#[from] ConnectError),
    /// Servers use the database.
    #[cfg(feature = "postgres")]
    #[error("the database is in use by {0}: stop the servers, then run this again")]
    InUse(String),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] Error),
}

/// Gives every session a new epoch. No server may use the database meanwhile; `announce` learns the names of servers
/// that are watched, and for how many seconds.
///
/// # Errors
/// [`RestoredError`]. Some sessions may have a new epoch; doing it again is harmless.
pub(crate) async fn restored(
    database: &Database,
    announce: &mut (dyn FnMut(String, u64) + Send),
) -> Result<Renewed, RestoredError> {
    // SQLite's lock says at once whether a server uses the file.
    #[cfg(not(feature = "postgres"))]
    let _ = announce;
    match database {
        Database::Sqlite(path) => sqlite::renew(path),
        #[cfg(feature = "postgres")]
        Database::Postgres(postgres) => super::postgres::renew(postgres, announce).await,
        #[cfg(not(feature = "postgres"))]
        Database::Postgres(_) => Err(ConnectError::NotBuilt.into()),
        Database::Memory => Err(ConnectError::InMemory.into()),
    }
}
