//! The store that `DATABASE_URL` names. This is the only place that parses the address.

use super::postgres_url::{Postgres, PostgresUrl};
use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

/// The prefix of a SQLite database's address.
const SQLITE: &str = "sqlite://";

/// The address of a store in memory.
const MEMORY: &str = "memory:";

/// The store that an address names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Database {
    /// A SQLite database, by the path of its file, taken literally, without percent-decoding.
    Sqlite(PathBuf),
    /// A PostgreSQL database.
    Postgres(Box<Postgres>),
    /// A store in memory, which loses everything when the process ends.
    Memory,
}

/// The reason an address names no store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDatabase {
    /// The scheme is not supported. Only the scheme is repeated: the rest may hold a password.
    #[error(
        "the database URL begins with `{scheme}`; allowed are `sqlite://` with a path (`sqlite://data/reseed.db`, \
         `sqlite:///var/lib/reseed.db`), `postgres://` with a host and a database \
         (`postgres://user:password@db/reseed`) and `memory:`"
    )]
    Scheme {
        /// The text before the first colon, at most 32 characters.
        scheme: String,
    },
    /// A SQLite address that is not a path to a file.
    #[error("the database URL `sqlite://{rest}` must be `sqlite://` and a path to a file: {reason}")]
    Path {
        /// The text after `sqlite://`, without what looks like a user name and password.
        rest: String,
        /// The reason for the refusal.
        reason: &'static str,
    },
    /// A PostgreSQL address that cannot be used. Nothing of it is repeated.
    #[error("the database URL must be like `postgres://user:password@host:5432/database`: {reason}")]
    Postgres {
        /// The reason for the refusal.
        reason: &'static str,
    },
}

impl Database {
    /// Returns the same store, with a relative path taken from this directory.
    #[must_use]
    pub(crate) fn below(&self, directory: &Path) -> Self {
        match self {
            Self::Sqlite(path) => Self::Sqlite(directory.join(path).components().collect()),
            Self::Postgres(postgres) => Self::Postgres(postgres.clone()),
            Self::Memory => Self::Memory,
        }
    }
}

impl FromStr for Database {
    type Err = InvalidDatabase;

    fn from_str(text: &str) -> Result<Self, InvalidDatabase> {
        if text == MEMORY {
            return Ok(Self::Memory);
        }
        if PostgresUrl::is_meant(text) {
            let url = PostgresUrl::parse(text).map_err(|reason| InvalidDatabase::Postgres { reason })?;
            return Ok(Self::Postgres(Box::new(Postgres::at(url))));
        }
        let Some(path) = text.strip_prefix(SQLITE) else {
            let scheme = text.split(':').next().unwrap_or_default().chars().take(32).collect();
            return Err(InvalidDatabase::Scheme { scheme });
        };
        let reason = match path {
            _ if path.ends_with(['/', '.']) || path.is_empty() => "it does not name a file",
            _ if path.contains('?') => "options after `?` are not supported",
            _ if path.contains(":memory:") => "a memory database does not survive a restart",
            _ => return Ok(Self::Sqlite(PathBuf::from(path))),
        };
        let rest = path.rsplit_once('@').map_or_else(|| path.to_owned(), |(_, host)| format!("…@{host}"));
        Err(InvalidDatabase::Path { rest, reason })
    }
}

impl fmt::Display for Database {
    /// Writes where the database is, for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => path.display().fmt(f),
            Self::Postgres(postgres) => postgres.url.fmt(f),
            Self::Memory => f.write_str("in memory"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Database, InvalidDatabase};
    use std::path::Path;

    #[test]
    fn an_address_names_a_store() {
        for (text, expected, below) in [
            ("memory:", Database::Memory, "in memory"),
            ("sqlite://./data/a.db", Database::Sqlite("./data/a.db".into()), "/srv/data/a.db"),
            ("sqlite:///var/a%20b.db", Database::Sqlite("/var/a%20b.db".into()), "/var/a%20b.db"),
        ] {
            let database: Database = text.parse().unwrap();
            assert_eq!(database, expected, "{text}");
            assert_eq!(database.below(Path::new("/srv")).to_string(), below, "{text}");
        }
    }

    #[test]
    fn any_other_address_is_refused_with_what_is_allowed_and_without_its_password() {
        let cases = [
            ("", "begins with ``; allowed are `sqlite://`"),
            ("mysql://reseed:hunter2@db/reseed", "begins with `mysql`; allowed are `sqlite://`"),
            ("postgres://reseed:hunter2@db", "it names no database"),
            ("sqlite:x.db", "begins with `sqlite`; allowed are `sqlite://`"),
            ("memory", "begins with `memory`; allowed are `sqlite://`"),
            ("sqlite://", "it does not name a file"),
            ("sqlite://data/", "it does not name a file"),
            ("sqlite://data/..", "it does not name a file"),
            ("sqlite://:memory:", "a memory database does not survive a restart"),
            ("sqlite://reseed:hunter2@db/", "`sqlite://…@db/`"),
            ("sqlite://x.db?mode=ro", "options after `?` are not supported"),
        ];
        for (text, expected) in cases {
            let error: InvalidDatabase = text.parse::<Database>().unwrap_err();
            let message = error.to_string();
            assert!(message.contains(expected), "{text}: {message}");
            assert!(!message.contains("hunter2"), "{message}");
        }
    }
}
