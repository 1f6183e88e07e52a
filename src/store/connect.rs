//! Opens the store that `DATABASE_URL` names.

use super::{
    SessionStore,
    memory::MemoryStore,
    sqlite::{CommitStats, OpenError, SqliteStore},
};
use std::{path::Path, sync::Arc};

/// The reason a `DATABASE_URL` could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The scheme is not supported. Only the scheme is repeated: the rest may hold a password.
    #[error(
        "the database URL begins with `{scheme}`; allowed are `sqlite://` with a path (`sqlite://data/reseed.db`, \
         `sqlite:///var/lib/reseed.db`) and `memory:`"
    )]
    Unsupported {
        /// The text before the first colon, at most 32 characters.
        scheme: String,
    },
    /// A SQLite URL without a path, or with unsupported options after a `?`.
    #[error("the database URL `sqlite://{rest}` must be `sqlite://` and a path to a file, without `?`")]
    Path {
        /// The text after `sqlite://`.
        rest: String,
    },
    /// The database cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// Opens the store that `database_url` names: `sqlite://` and a path, relative to the working directory or absolute
/// (taken literally, without percent-decoding), or `memory:`, which loses everything when the process ends.
///
/// # Errors
/// [`ConnectError`].
pub fn connect(database_url: &str) -> Result<Arc<dyn SessionStore>, ConnectError> {
    connect_observed(database_url, |_| {})
}

/// Like [`connect`], and reports each commit to `observer` on the store's own thread. The memory store reports none.
///
/// # Errors
/// [`ConnectError`].
pub fn connect_observed(
    database_url: &str,
    observer: impl Fn(CommitStats) + Send + 'static,
) -> Result<Arc<dyn SessionStore>, ConnectError> {
    if database_url == "memory:" {
        return Ok(Arc::new(MemoryStore::new()));
    }
    let Some(rest) = database_url.strip_prefix("sqlite://") else {
        let scheme = database_url.split(':').next().unwrap_or_default().chars().take(32).collect();
        return Err(ConnectError::Unsupported { scheme });
    };
    if rest.contains('?') || Path::new(rest).file_name().is_none() || rest.ends_with('/') {
        return Err(ConnectError::Path { rest: rest.to_owned() });
    }
    Ok(Arc::new(SqliteStore::open_observed(Path::new(rest), observer)?))
}

#[cfg(test)]
mod tests {
    use super::connect;

    #[tokio::test]
    async fn a_url_gives_a_store_that_works() {
        let dir = tempfile::tempdir().unwrap();
        let sqlite = format!("sqlite://{}/made/on/start/reseed.db", dir.path().display());
        for url in ["memory:", &sqlite] {
            let store = connect(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(store.list(crate::store::ListQuery::default()).await.unwrap().items, []);
            store.close().await.unwrap();
        }
        assert!(dir.path().join("made/on/start/reseed.db").exists());
    }

    #[test]
    fn any_other_url_is_refused_with_what_is_allowed_and_without_its_password() {
        let cases = [
            ("", "begins with ``; allowed are `sqlite://`"),
            ("postgres://reseed:hunter2@db/reseed", "begins with `postgres`; allowed are `sqlite://`"),
            ("sqlite:x.db", "begins with `sqlite`; allowed are `sqlite://`"),
            ("memory", "begins with `memory`; allowed are `sqlite://`"),
            ("sqlite://", "a path to a file"),
            ("sqlite://data/", "a path to a file"),
            ("sqlite://data/..", "a path to a file"),
            ("sqlite://x.db?mode=ro", "without `?`"),
        ];
        for (url, want) in cases {
            let error = connect(url).err().unwrap_or_else(|| panic!("{url} was opened")).to_string();
            assert!(error.contains(want), "{url}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
