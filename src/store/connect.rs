//! Opens the store that `DATABASE_URL` names.

use super::{
    CommitStats, SessionStore,
    memory::MemoryStore,
    sqlite::{OpenError, SqliteStore},
};
use crate::{Database, InvalidDatabase};
use std::sync::Arc;

/// The reason a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address names no store.
    #[error(transparent)]
    Address(#[from] InvalidDatabase),
    /// The SQLite database cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The PostgreSQL database cannot be opened.
    #[cfg(feature = "postgres")]
    #[error(transparent)]
    Postgres(#[from] super::postgres::OpenError),
    /// The program was built without the store that the address names.
    #[error("this program was built without PostgreSQL; build it with the feature `postgres`")]
    NotBuilt,
    /// Another process cannot see a store in memory.
    #[error("a database in memory cannot be read by another process")]
    InMemory,
}

/// Opens the store at an address in the form of `DATABASE_URL`: `sqlite://` and a path, relative to the current
/// directory or absolute; `postgres://` with a host and a database; or `memory:`, which loses everything when the
/// process ends.
///
/// # Errors
/// [`ConnectError`].
pub async fn connect(address: &str) -> Result<Arc<dyn SessionStore>, ConnectError> {
    open(&address.parse()?, |_| {}).await
}

/// Opens a store and reports each commit to `observer` before its appends are answered. The memory store reports none.
///
/// # Errors
/// [`ConnectError`].
pub async fn open(
    database: &Database,
    observer: impl Fn(CommitStats) + Send + 'static,
) -> Result<Arc<dyn SessionStore>, ConnectError> {
    Ok(match database {
        Database::Sqlite(path) => Arc::new(SqliteStore::open_observed(path, observer)?),
        #[cfg(feature = "postgres")]
        Database::Postgres(postgres) => Arc::new(super::postgres::PostgresStore::open(postgres, observer).await?),
        #[cfg(not(feature = "postgres"))]
        Database::Postgres(_) => return Err(ConnectError::NotBuilt),
        Database::Memory => Arc::new(MemoryStore::new()),
    })
}

/// Opens a store read-only, even while a server uses it.
///
/// # Errors
/// [`ConnectError`].
pub async fn open_read_only(database: &Database) -> Result<Arc<dyn SessionStore>, ConnectError> {
    match database {
        Database::Sqlite(path) => Ok(Arc::new(SqliteStore::open_read_only(path)?)),
        #[cfg(feature = "postgres")]
        Database::Postgres(postgres) => Ok(Arc::new(super::postgres::PostgresStore::open_read_only(postgres).await?)),
        #[cfg(not(feature = "postgres"))]
        Database::Postgres(_) => Err(ConnectError::NotBuilt),
        Database::Memory => Err(ConnectError::InMemory),
    }
}

/// Opens a store to manage the servers that share it. It changes no tables and writes only requests to servers.
///
/// # Errors
/// [`ConnectError`].
pub async fn open_for_nodes(database: &Database) -> Result<Arc<dyn SessionStore>, ConnectError> {
    match database {
        #[cfg(feature = "postgres")]
        Database::Postgres(postgres) => Ok(Arc::new(super::postgres::PostgresStore::open_for_nodes(postgres).await?)),
        // No other kind of store has several servers.
        other => open_read_only(other).await,
    }
}

/// Describes where a database is and, for a database server, its version. Then it describes how the database keeps what
/// it acknowledges, in lines with a label each. Changes nothing.
///
/// # Errors
/// [`ConnectError`]: the database cannot be used, or [`open`] would fail on it, as far as can be checked without
/// writing.
pub async fn describe(database: &Database) -> Result<Vec<(&'static str, String)>, ConnectError> {
    Ok(match database {
        #[cfg(feature = "postgres")]
        Database::Postgres(postgres) => {
            let (about, mut lines) = super::postgres::PostgresStore::describe(postgres).await?;
            lines.insert(0, ("database", format!("{database}; {about}")));
            lines
        }
        #[cfg(not(feature = "postgres"))]
        Database::Postgres(_) => return Err(ConnectError::NotBuilt),
        Database::Sqlite(path) => {
            SqliteStore::check(path)?;
            let durability = "every commit is synced before it is acknowledged: it survives a crash of the machine";
            let note = if path.exists() { "" } else { "; the server makes the file when it starts" };
            vec![("database", format!("{database}{note}")), ("durability", durability.to_owned())]
        }
        Database::Memory => {
            let durability = "nothing is kept when the process ends";
            vec![("database", database.to_string()), ("durability", durability.to_owned())]
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{connect, open_read_only};

    #[tokio::test]
    async fn an_address_gives_a_store_that_works() {
        let dir = tempfile::tempdir().unwrap();
        let sqlite = format!("sqlite://{}/made/on/start/reseed.db", dir.path().display());
        for address in ["memory:", &sqlite] {
            let store = connect(address).await.unwrap_or_else(|error| panic!("{address}: {error}"));
            assert_eq!(store.list(crate::ListQuery::default()).await.unwrap().items, []);
            let reader = open_read_only(&address.parse().unwrap()).await;
            assert_eq!(reader.is_ok(), address != "memory:", "{address}");
            store.close().await.unwrap();
        }
        assert!(dir.path().join("made/on/start/reseed.db").exists());
    }

    #[tokio::test]
    async fn an_address_that_names_no_store_is_refused() {
        let error = connect("mysql://db").await.err().unwrap().to_string();
        assert!(error.contains("allowed are `sqlite://`"), "{error}");
    }
}
