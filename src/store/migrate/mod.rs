//! Migration: copies all sessions from one database to another, of the same kind or a different one.
//!
//! - A session is copied as it is stored: records with their `seq` and version, bodies byte for byte, marks, and the
//!   head with its state and times. The search index is not copied; the target's server builds its own.
//! - Each session gets a new epoch. Both databases can be written to afterwards if the source is used again, and two
//!   different logs must not share a name. Clients take one new snapshot.
//! - A session is published in the target only when it is complete. If a migration is killed, its unpublished rows are
//!   marked for removal, like those of deleted sessions.
//! - The target is marked until all of it is verified. No server starts on a marked target.
//! - Every copied session is read back, and its digest is compared with the source's, even if an earlier run copied it.
//!   So running a migration again has the same result, even after the last step, as long as neither side is used.
//! - Only one page of one session is held in memory.

mod error;
mod rows;
mod run;
mod side;
mod watch;

#[cfg(test)]
mod tests;

pub use error::MigrateError;
pub use rows::{Digest, Size};
pub(crate) use rows::{Listed, Mark, Record, Session, User};
pub use run::{Migrated, Options, Progress};
pub(crate) use side::{Begun, PAGE_BYTES, PAGE_ROWS, Source, Target};
#[cfg(feature = "postgres")]
pub(crate) use watch::{Watched, watch};

use super::{
    ConnectError,
    sqlite::{OpenError, transfer::SqliteSide},
};
use crate::Database;

/// Copies all sessions from one database to another, or resumes an earlier run. `progress` is called after each page.
///
/// # Errors
/// [`MigrateError`]. Copied sessions stay in the target, and the same call resumes there.
pub async fn migrate(
    from: &Database,
    to: &Database,
    options: Options,
    progress: &mut (dyn FnMut(&Progress) + Send),
) -> Result<Migrated, MigrateError> {
    if from == to {
        return Err(MigrateError::Same(from.to_string()));
    }
    let mut source = open_source(from).await.map_err(|error| MigrateError::Open { side: "source", error })?;
    let mut target = open_target(to).await.map_err(|error| MigrateError::Open { side: "target", error })?;
    run::run((&mut *source, &mut *target), from, options, progress).await
}

async fn open_source(database: &Database) -> Result<Box<dyn Source>, ConnectError> {
    Ok(match database {
        Database::Sqlite(path) => {
            // Opening would create the file.
            std::fs::metadata(path).map_err(|source| OpenError::Io { path: path.clone(), source })?;
            Box::new(SqliteSide::open_source(path)?)
        }
        #[cfg(feature = "postgres")]
        Database::Postgres(postgres) => Box::new(super::postgres::transfer::PostgresSide::open_source(postgres).await?),
        #[cfg(not(feature = "postgres"))]
        Database::Postgres(_) => return Err(ConnectError::NotBuilt),
        Database::Memory => return Err(ConnectError::InMemory),
    })
}

async fn open_target(database: &Database) -> Result<Box<dyn Target>, ConnectError> {
    Ok(match database {
        Database::Sqlite(path) => Box::new(SqliteSide::open(path)?),
        #[cfg(feature = "postgres")]
        Database::Postgres(postgres) => Box::new(super::postgres::transfer::PostgresSide::open_target(postgres).await?),
        #[cfg(not(feature = "postgres"))]
        Database::Postgres(_) => return Err(ConnectError::NotBuilt),
        Database::Memory => return Err(ConnectError::InMemory),
    })
}
