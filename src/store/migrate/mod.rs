//! Migration: copies all sessions from one database to another, of the same kind or a different one.
//!
//! - A session is copied as its store returns it: records with their `seq`, bodies byte for byte, marks, and the head
//!   with its state, times and term. Records of older versions are copied in the current form. The search index is not
//!   copied; the target's server builds its own.
//! - Secrets of the servers and the account of requests to models are copied too.
//! - Each session gets a new epoch. Both databases can be written to afterwards if the source is used again, and two
//!   different logs must not share a name. Clients take one new snapshot.
//! - Everything is read back from the target and compared.
//! - The target must be empty, and is marked until everything is copied and durable. Nothing opens a marked target, not
//!   even another migration: one that was interrupted starts over, into an empty database.
//! - Only one page of one session is held in memory.

mod bulk;
mod error;
mod run;
mod watch;

#[cfg(test)]
mod tests;

pub use bulk::Size;
pub(crate) use bulk::{Bulk, Listed, PAGE_BYTES, PAGE_ROWS, Page};
pub use error::MigrateError;
pub use run::{Migrated, Options, Progress};
#[cfg(feature = "postgres")]
pub(crate) use watch::{Watched, watch};

#[cfg(feature = "postgres")]
use super::postgres::{PostgresStore, transfer::Completion};
use super::{
    ConnectError,
    sqlite::{self, OpenError, SqliteStore},
};
use crate::Database;
use std::path::PathBuf;

/// Copies all sessions from one database to another, which must be empty. `progress` is called after each page.
///
/// # Errors
/// [`MigrateError`]. If any session was copied, the target cannot be used.
pub async fn migrate(
    from: &Database,
    to: &Database,
    options: Options,
    progress: &mut (dyn FnMut(&Progress) + Send),
) -> Result<Migrated, MigrateError> {
    if from == to {
        return Err(MigrateError::Same(from.to_string()));
    }
    let source = open_source(from).await.map_err(|error| MigrateError::Open { side: "source", error })?;
    let (target, end) = open_target(to).await.map_err(|error| MigrateError::Open { side: "target", error })?;
    let copied = run::run(&*source, &*target, options, progress).await;
    let closed = target.close().await;
    let copied = copied?;
    closed.map_err(|error| MigrateError::Store { doing: "write to the target", error })?;
    complete(end).await?;
    Ok(copied)
}

async fn open_source(database: &Database) -> Result<Box<dyn Bulk>, ConnectError> {
    Ok(match database {
        Database::Sqlite(path) => {
            // Opening would create the file.
            std::fs::metadata(path).map_err(|source| OpenError::Io { path: path.clone(), source })?;
            Box::new(SqliteStore::open_bulk(path)?)
        }
        #[cfg(feature = "postgres")]
        Database::Postgres(postgres) => Box::new(PostgresStore::open_source(postgres).await?),
        #[cfg(not(feature = "postgres"))]
        Database::Postgres(_) => return Err(ConnectError::NotBuilt),
        Database::Memory => return Err(ConnectError::InMemory),
    })
}

/// What completes a target.
enum End {
    Sqlite(PathBuf),
    #[cfg(feature = "postgres")]
    Postgres(Box<Completion>),
}

async fn open_target(database: &Database) -> Result<(Box<dyn Bulk>, End), ConnectError> {
    Ok(match database {
        Database::Sqlite(path) => (Box::new(SqliteStore::open_bulk(path)?), End::Sqlite(path.clone())),
        #[cfg(feature = "postgres")]
        Database::Postgres(postgres) => {
            let (store, completion) = PostgresStore::open_target(postgres).await?;
            (Box::new(store), End::Postgres(Box::new(completion)))
        }
        #[cfg(not(feature = "postgres"))]
        Database::Postgres(_) => return Err(ConnectError::NotBuilt),
        Database::Memory => return Err(ConnectError::InMemory),
    })
}

/// Makes a target durable whose store is closed, and removes its mark.
async fn complete(end: End) -> Result<(), MigrateError> {
    match end {
        End::Sqlite(path) => {
            sqlite::transfer::unmark(&path).map_err(|error| MigrateError::Open { side: "target", error: error.into() })
        }
        #[cfg(feature = "postgres")]
        End::Postgres(completion) => {
            completion.complete().await.map_err(|error| MigrateError::Store { doing: "complete the target", error })
        }
    }
}
