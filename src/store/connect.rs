//! Opens the store that `DATABASE_URL` names.

use super::{
    SessionStore,
    memory::MemoryStore,
    sqlite::{CommitStats, OpenError, SqliteStore},
};
use crate::config::{Database, InvalidDatabase};
use std::sync::Arc;

/// The reason a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address names no store.
    #[error(transparent)]
    Address(#[from] InvalidDatabase),
    /// The database cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A store in memory is seen by its own process only.
    #[error("a database in memory cannot be read by another process")]
    InMemory,
}

/// Opens the store that an address like that of `DATABASE_URL` names: `sqlite://` and a path, relative to the current
/// directory or absolute, or `memory:`, which loses everything when the process ends.
///
/// # Errors
/// [`ConnectError`].
pub fn connect(address: &str) -> Result<Arc<dyn SessionStore>, ConnectError> {
    open(&address.parse()?, |_| {})
}

/// Opens a store and reports each commit to `observer` on the store's own thread. The memory store reports none.
///
/// # Errors
/// [`ConnectError`].
pub(crate) fn open(
    database: &Database,
    observer: impl Fn(CommitStats) + Send + 'static,
) -> Result<Arc<dyn SessionStore>, ConnectError> {
    Ok(match database {
        Database::Sqlite(path) => Arc::new(SqliteStore::open_observed(path, observer)?),
        Database::Memory => Arc::new(MemoryStore::new()),
    })
}

/// Opens a store to read it only, even while a server uses it.
///
/// # Errors
/// [`ConnectError`].
pub(crate) fn open_read_only(database: &Database) -> Result<Arc<dyn SessionStore>, ConnectError> {
    match database {
        Database::Sqlite(path) => Ok(Arc::new(SqliteStore::open_read_only(path)?)),
        Database::Memory => Err(ConnectError::InMemory),
    }
}

#[cfg(test)]
mod tests {
    use super::{connect, open_read_only};

    #[tokio::test]
    async fn an_address_gives_a_store_that_works() {
        let dir = tempfile::tempdir().unwrap();
        let sqlite = format!("sqlite://{}/made/on/start/reseed.db", dir.path().display());
        for address in ["memory:", &sqlite] {
            let store = connect(address).unwrap_or_else(|error| panic!("{address}: {error}"));
            assert_eq!(store.list(crate::store::ListQuery::default()).await.unwrap().items, []);
            let reader = open_read_only(&address.parse().unwrap());
            assert_eq!(reader.is_ok(), address != "memory:", "{address}");
            store.close().await.unwrap();
        }
        assert!(dir.path().join("made/on/start/reseed.db").exists());
    }

    #[test]
    fn an_address_that_names_no_store_is_refused() {
        let error = connect("postgres://db").err().unwrap().to_string();
        assert!(error.contains("allowed are `sqlite://`"), "{error}");
    }
}
