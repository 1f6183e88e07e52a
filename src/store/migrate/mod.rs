//! Migration: carries all sessions from one database to another, of the same kind or not.
//!
//! - Everything that a session holds is carried as it is stored: records with their `seq`, their bodies byte for byte
//!   in the version in which they were written, marks, the head with its state and its times. The search index is not:
//!   the target's server makes its own.
//! - Each session gets a new epoch. Both databases could be written to afterwards, if the source is taken up again, and
//!   two logs that differ must not have one name. Clients take a snapshot once.
//! - A session is published in the target when it is complete. What a killed migration leaves of one is among what is
//!   to be removed there, as the rows of deleted sessions are.
//! - The target is marked until all of it is verified; no server starts on it before.
//! - Nothing is trusted because it was copied: each session is read back, and its digest compared with the source's,
//!   also if an earlier run has copied it. A run that is started again thus ends with the same result, also after the
//!   last step, as long as neither side is used.
//! - Memory holds a page of one session.

mod error;
mod rows;
mod run;
mod side;
mod watch;

#[cfg(test)]
mod tests;

pub(crate) use error::MigrateError;
pub(crate) use rows::{Digest, Size};
pub(in crate::store) use rows::{Listed, Mark, Record, Session, User};
pub(crate) use run::{Migrated, Options, Progress};
pub(in crate::store) use side::{Begun, PAGE_BYTES, PAGE_ROWS, Source, Target};
#[cfg(feature = "postgres")]
pub(in crate::store) use watch::{Watched, watch};

use super::{
    ConnectError,
    sqlite::{OpenError, transfer::SqliteSide},
};
use crate::config::Database;

/// Carries all sessions from one database to another, or goes on with that. `progress` is called after each page.
///
/// # Errors
/// [`MigrateError`]. What was copied before stays in the target, and the same call goes on from there.
pub(crate) async fn migrate(
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
            // Opening would create it.
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
