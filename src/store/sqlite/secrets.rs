//! Secrets of the server.

use super::{Fault, writer::Write};
use crate::Secret;
use rusqlite::{Connection, OptionalExtension as _, Row};

/// Returns the secret with this name, if there is one.
pub(super) fn find(db: &Connection, name: &str) -> Result<Option<Secret>, Fault> {
    let mut select = db.prepare_cached("SELECT value FROM secret WHERE name = ?1")?;
    let value = select.query_row([name], |row| row.get::<_, Vec<u8>>(0)).optional()?;
    Ok(value.map(|value| Secret::stored(name, &value)).transpose()?)
}

/// Returns all secrets with their names.
pub(super) fn all(db: &Connection) -> Result<Vec<(String, Secret)>, Fault> {
    let mut select = db.prepare_cached("SELECT name, value FROM secret")?;
    let rows = select.query_map([], |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?)))?;
    rows.map(|row| {
        let (name, value) = row?;
        let secret = Secret::stored(&name, &value)?;
        Ok((name, secret))
    })
    .collect()
}

/// Stores a secret, unless there is one with this name. Returns the stored one.
pub(super) struct Keep {
    pub(super) name: String,
    pub(super) offered: Secret,
}

impl Write for Keep {
    type Output = Secret;

    fn write(&self, db: &Connection) -> Result<Secret, Fault> {
        if let Some(found) = find(db, &self.name)? {
            return Ok(found);
        }
        let mut insert = db.prepare_cached("INSERT INTO secret (name, value) VALUES (?1, ?2)")?;
        insert.execute((&self.name, &self.offered.0))?;
        Ok(self.offered)
    }
}

/// Stores a secret in place of the one with this name.
pub(super) struct Replace {
    pub(super) name: String,
    pub(super) secret: Secret,
}

impl Write for Replace {
    type Output = ();

    fn write(&self, db: &Connection) -> Result<(), Fault> {
        db.prepare_cached("INSERT OR REPLACE INTO secret (name, value) VALUES (?1, ?2)")?
            .execute((&self.name, &self.secret.0))?;
        Ok(())
    }
}
