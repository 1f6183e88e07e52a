//! Renews epochs after a backup was restored: every session gets a new one.
//!
//! A client that was connected before may have seen more than the backup holds. While the log is shorter than what the
//! client saw, a server notices. Once other records have grown it past the client's position, nothing would reveal the
//! difference. So a restored log counts as a new log and gets a new epoch.

use super::{ConnectError, Error, sqlite};
use crate::Database;

/// The number of sessions that were renewed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Renewed {
    /// Sessions with a new epoch that can be opened.
    pub renewed: u64,
    /// Sessions whose head is damaged, so that they cannot be opened, with a new epoch or without.
    pub damaged: u64,
}

/// The reason not every session got a new epoch.
#[derive(Debug, thiserror::Error)]
pub enum RestoredError {
    /// The database cannot be opened, or a server is using it.
    #[error(transparent)]
    Open(#[from] ConnectError),
    /// Servers are using the database.
    #[cfg(feature = "postgres")]
    #[error("the database is in use by {0}: stop the servers, then run this again")]
    InUse(String),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] Error),
}

/// Gives every session a new epoch. No server may use the database meanwhile. `announce` receives the names of the
/// servers being watched, and for how many seconds.
///
/// # Errors
/// [`RestoredError`]. Some sessions may already have a new epoch; running it again is harmless.
pub async fn restored(
    database: &Database,
    announce: &mut (dyn FnMut(String, u64) + Send),
) -> Result<Renewed, RestoredError> {
    // SQLite's lock shows at once whether a server uses the file.
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
