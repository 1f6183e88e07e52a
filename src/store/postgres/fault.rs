//! The meaning of a database error for a read or a write.
//!
//! No text here includes an error's detail, which may hold a whole row, or its `Debug` form. Some servers translate
//! messages, so decisions depend only on SQLSTATE codes and constraint names.

use crate::{Error, Part};
use reseed_protocol::SessionId;
use rustls::CertificateError;
use std::{error::Error as _, io};
use tokio_postgres::error::SqlState;

/// The reason a read or a write was not executed.
#[derive(Debug)]
pub(super) enum Fault {
    /// Our own rules refused it; nothing was changed.
    Refused(Error),
    /// The database failed.
    Database(tokio_postgres::Error),
    /// No answer arrived in time. A write may have been executed, or may still be.
    Silence,
    /// No connection could be made or borrowed in time.
    NoConnection(String),
}

/// The state after a failed statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Nothing was written, and the same statement may succeed a moment later.
    Again,
    /// The connection is lost, or the server went away before it accepted the statement: nothing was written.
    Away,
    /// It is unknown whether the statement was executed.
    Unknown,
    /// The database refused the statement and will refuse it again; nothing was written.
    Refused,
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error)
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Refused(error) => error,
            other => Self::Unknown(other.describe()),
        }
    }
}

impl Fault {
    /// Returns the state after a failed write.
    pub(super) fn meaning(&self) -> Meaning {
        match self {
            Self::Refused(_) => Meaning::Refused,
            Self::Silence => Meaning::Unknown,
            Self::NoConnection(_) => Meaning::Away,
            Self::Database(error) => error.code().map_or(Meaning::Unknown, meaning),
        }
    }

    /// Returns true if the same read may succeed on another connection or a moment later.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            // A read that took too long would take as long again.
            Self::Database(error) if error.code() == Some(&SqlState::QUERY_CANCELED) => false,
            Self::Database(error) => may_pass(error),
            Self::Refused(_) => false,
            Self::Silence | Self::NoConnection(_) => true,
        }
    }

    /// Attributes damage that the database found during a read or write to the session concerned.
    pub(super) fn of(self, session: &SessionId) -> Self {
        match self {
            Self::Database(error) if is_damage(&error) => Self::Refused(damaged_pages(session)),
            other => other,
        }
    }

    /// Returns true if the statement timed out, while it waited for a lock or otherwise.
    pub(super) fn is_blocked(&self) -> bool {
        let codes = [&SqlState::LOCK_NOT_AVAILABLE, &SqlState::QUERY_CANCELED];
        matches!(self, Self::Database(error) if error.code().is_some_and(|code| codes.contains(&code)))
    }

    /// Returns the constraint that a write violated.
    pub(super) fn constraint(&self) -> Option<&str> {
        match self {
            Self::Database(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {
                error.as_db_error().and_then(|error| error.constraint())
            }
            _ => None,
        }
    }

    /// Describes the error for people and logs, without any text that a user wrote.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Refused(error) => error.to_string(),
            Self::Silence => "the database did not answer in time".to_owned(),
            Self::NoConnection(why) => why.clone(),
            Self::Database(error) => describe(error),
        }
    }
}

/// Returns true if connecting, or the same statement, may succeed a moment later.
pub(super) fn may_pass(error: &tokio_postgres::Error) -> bool {
    error.code().map_or_else(|| is_of_the_line(error), |code| meaning(code) != Meaning::Refused)
}

/// Describes a database error by its code and message, without its detail.
pub(super) fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(certificate) = refused_certificate(error) {
        let unknown = matches!(certificate, rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer));
        let hint = if unknown { "; `sslrootcert` in DATABASE_URL names the authority that has signed it" } else { "" };
        return format!("the database's certificate is refused: {certificate}{hint}");
    }
    let Some(found) = error.as_db_error() else {
        let source = error.source().map_or_else(String::new, |source| format!(": {source}"));
        return format!("the connection to the database failed: {error}{source}");
    };
    // A connection pooler between us and the server causes these errors.
    let pooled = [&SqlState::INVALID_SQL_STATEMENT_NAME, &SqlState::DUPLICATE_PSTATEMENT].contains(&found.code());
    let hint = if pooled { "; connect directly, not through a connection pooler" } else { "" };
    format!("the database says {}: {}{hint}", found.code().code(), found.message())
}

pub(super) fn damaged_pages(session: &SessionId) -> Error {
    Error::Damaged { session: session.clone(), part: Part::Pages, reason: "the database cannot read it" }
}

/// Returns true if PostgreSQL could not make sense of the data, or if the data does not have the expected type.
fn is_damage(error: &tokio_postgres::Error) -> bool {
    match error.code() {
        Some(code) => [&SqlState::DATA_CORRUPTED, &SqlState::INDEX_CORRUPTED].contains(&code),
        None => false,
    }
}

/// Returns true if an error without a code comes from the connection, not from decoding an answer. A refused
/// certificate does not count, because it will be refused again.
fn is_of_the_line(error: &tokio_postgres::Error) -> bool {
    let is_of_io = error.source().is_some_and(|source| source.is::<io::Error>());
    error.is_closed() || is_of_io && refused_certificate(error).is_none()
}

/// Returns the reason why the server's certificate was refused, if it was.
fn refused_certificate(error: &tokio_postgres::Error) -> Option<&rustls::Error> {
    let source = error.source()?.downcast_ref::<io::Error>()?;
    let found = source.get_ref()?.downcast_ref::<rustls::Error>()?;
    matches!(found, rustls::Error::InvalidCertificate(_)).then_some(found)
}

fn meaning(code: &SqlState) -> Meaning {
    let code = code.code();
    match code {
        // serialization_failure, deadlock_detected, lock_not_available, query_canceled (`statement_timeout`).
        "40001" | "40P01" | "55P03" | "57014" => Meaning::Again,
        // read_only_sql_transaction (a standby), cannot_connect_now (starting up, shutting down).
        "25006" | "57P03" => Meaning::Away,
        // admin_shutdown, crash_shutdown, database_dropped, idle_session_timeout.
        "57P01" | "57P02" | "57P04" | "57P05" => Meaning::Unknown,
        // Out of disk, memory or connections.
        _ if code.starts_with("53") => Meaning::Again,
        _ if code.starts_with("08") => Meaning::Unknown,
        _ => Meaning::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::{Meaning, meaning};
    use tokio_postgres::error::SqlState;

    #[test]
    fn an_error_code_determines_what_was_written() {
        for (code, want) in [
            ("40001", Meaning::Again),
            ("53100", Meaning::Again),
            ("25006", Meaning::Away),
            ("57P01", Meaning::Unknown),
            ("08006", Meaning::Unknown),
            ("23505", Meaning::Refused),
            ("22021", Meaning::Refused),
            ("42P01", Meaning::Refused),
        ] {
            assert_eq!(meaning(&SqlState::from_code(code)), want, "{code}");
        }
    }
}
