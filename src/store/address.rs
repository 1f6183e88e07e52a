//! The address of a store, as in `DATABASE_URL`. This is the only place that parses it.

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

/// Prefixes and suffixes of a text that is meant as a path, in lower case.
const PATH_BEGINS: [&str; 6] = ["sqlite", "file:", "/", "./", "../", "~/"];
const PATH_ENDS: [&str; 3] = [".db", ".sqlite", ".sqlite3"];

/// Parts of a text that is meant as the address of a server or contains a password, in lower case.
const SERVER_WORDS: [&str; 5] = ["postgres", "psql", "pass", "pwd", "secret"];

/// Returns true if an error may repeat a refused address, because it is clearly meant as a file path. Nothing is shown
/// of any other, because any part of a mistyped address may be its password.
pub fn may_be_shown(address: &str) -> bool {
    let text = address.to_ascii_lowercase();
    if text.is_empty() || text == "memory" || text == MEMORY {
        return true;
    }
    let is_meant = PATH_BEGINS.iter().any(|begin| text.starts_with(begin))
        || PATH_ENDS.iter().any(|end| text.trim_end_matches('/').ends_with(end));
    let schemes = ["sqlite3:", "sqlite:", "file:"];
    let path = schemes.iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(&text);
    // The address of a server contains `:`, `@`, `?`, `=` or `%`, and the path of a file hardly ever does.
    let is_plain = |c: char| c.is_alphanumeric() || "/._-~ ".contains(c);
    is_meant
        && path.replace(":memory:", "").chars().all(is_plain)
        && !SERVER_WORDS.iter().any(|word| text.contains(word))
}

/// Returns a refused address for an error message, or a note that it is not shown.
fn shown(address: &str) -> String {
    if may_be_shown(address) { format!("`{address}`") } else { "(not shown: it may hold a password)".to_owned() }
}

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

/// The reason why an address names no store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDatabase {
    /// The scheme is not supported.
    #[error(
        "the database URL {shown} is of no supported form; allowed are `sqlite://` with a path \
         (`sqlite://data/reseed.db`, `sqlite:///var/lib/reseed.db`) and `postgres://` with a host and a database \
         (`postgres://user:password@db/reseed`)"
    )]
    Scheme {
        /// The address in backquotes if it is clearly a path, or a note that it is not shown.
        shown: String,
    },
    /// A SQLite address is not the path of a file.
    #[error("the database URL {shown} must be `sqlite://` and a path to a file: {reason}")]
    Path {
        /// The address in backquotes if it is clearly a path, or a note that it is not shown.
        shown: String,
        /// The reason for the refusal.
        reason: &'static str,
    },
    /// A PostgreSQL address cannot be used. Nothing of it is repeated.
    #[error("the database URL must be like `postgres://user:password@host:5432/database`: {reason}")]
    Postgres {
        /// The reason for the refusal.
        reason: &'static str,
    },
}

impl Database {
    /// Returns the same store. A relative path is resolved against this directory.
    #[must_use]
    pub fn below(&self, directory: &Path) -> Self {
        match self {
            Self::Sqlite(path) => Self::Sqlite(directory.join(path).components().collect()),
            Self::Postgres(postgres) => {
                let ca_file = postgres.ca_file.as_ref().map(|file| directory.join(file));
                Self::Postgres(Box::new(Postgres { ca_file, ..(**postgres).clone() }))
            }
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
            let postgres = Postgres::parse(text).map_err(|reason| InvalidDatabase::Postgres { reason })?;
            return Ok(Self::Postgres(Box::new(postgres)));
        }
        let Some(path) = text.strip_prefix(SQLITE) else {
            return Err(InvalidDatabase::Scheme { shown: shown(text) });
        };
        let reason = match path {
            _ if path.ends_with(['/', '.']) || path.is_empty() => "it does not name a file",
            _ if path.contains('?') => "options after `?` are not supported",
            _ if path.contains(":memory:") => "a memory database does not survive a restart",
            _ => return Ok(Self::Sqlite(PathBuf::from(path))),
        };
        Err(InvalidDatabase::Path { shown: shown(text), reason })
    }
}

impl fmt::Display for Database {
    /// Writes the location of the database for people.
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
    fn any_other_address_is_refused_with_what_is_allowed() {
        let cases = [
            ("", "`` is of no supported form; allowed are `sqlite://`"),
            ("mysql://reseed:hunter2@db/reseed", "it may hold a password) is of no supported form; allowed are"),
            ("postgres://reseed:hunter2@db", "it names no database"),
            ("sqlite:x.db", "`sqlite:x.db` is of no supported form"),
            ("sqlite//data/x.db", "`sqlite//data/x.db` is of no supported form"),
            ("SQLite:///var/lib/my data.db", "`SQLite:///var/lib/my data.db` is of no supported form"),
            ("file:data/x.db", "`file:data/x.db` is of no supported form"),
            ("data/reseed.db", "`data/reseed.db` is of no supported form"),
            ("/var/lib/reseed", "`/var/lib/reseed` is of no supported form"),
            ("memory", "`memory` is of no supported form"),
            ("sqlite://", "`sqlite://` must be `sqlite://` and a path to a file: it does not name a file"),
            ("sqlite://data/", "`sqlite://data/` must be"),
            ("sqlite://data/..", "it does not name a file"),
            ("sqlite://:memory:", "`sqlite://:memory:` must be"),
            ("sqlite://reseed:hunter2@db/", "it may hold a password) must be"),
            ("sqlite://x.db?mode=ro", "options after `?` are not supported"),
        ];
        for (text, expected) in cases {
            let error: InvalidDatabase = text.parse::<Database>().unwrap_err();
            let message = error.to_string();
            assert!(message.contains(expected), "{text}: {message}");
            assert!(!message.contains("hunter2") && !message.contains("`memory:`"), "{message}");
        }
    }

    #[test]
    fn nothing_is_shown_of_what_may_hold_a_password() {
        for text in [
            "host=127.0.0.1 user=reseed password=hunter22 dbname=reseed",
            "jdbc:postgresql://h/db?user=x&password=hunter22",
            "reseed:hunter22@127.0.0.1/reseed",
            "postgres:reseed:hunter22@127.0.0.1/reseed",
            "postgres//reseed:hunter22@127.0.0.1/reseed",
            "postgres:/reseed:hunter22@127.0.0.1/reseed",
            "postgres://reseed:hun?ter22@127.0.0.1/reseed",
            "postgres://reseed:hun/ter22@127.0.0.1/reseed",
            "Postgres://reseed:hunter22@127.0.0.1/reseed",
            "mysql://reseed:hunter22@127.0.0.1/reseed",
            "sqlite://reseed:hun?ter22@127.0.0.1/reseed",
            "sqlite:reseed:hunter22",
            "/run/postgresql hunter22",
            "user hunter22 password hunter22.db",
            "PGPASSWORD=hunter22\nsqlite://data/reseed.db",
            "hunter22",
        ] {
            assert!(!super::may_be_shown(text), "{text}");
            let error = text.parse::<Database>().unwrap_err();
            let message = format!("{error} {error:?}");
            for part in ["hunter22", "hun", "ter22", "127.0.0.1"] {
                assert!(!message.contains(part), "{text}: {message}");
            }
        }
    }
}
