//! Secrets that the servers share.

use super::{fault::Fault, readers::Readers};
use crate::{Error, Secret};
use tokio_postgres::Row;

/// Returns the secret with this name, if there is one.
pub(super) async fn find(readers: &Readers, name: &str) -> Result<Option<Secret>, Error> {
    let sql = "SELECT name, value FROM secret WHERE name = $1";
    let row = readers.read(|db| async move { db.row(sql, &[&name]).await }).await?;
    Ok(row.as_ref().map(read).transpose()?.map(|(_, secret)| secret))
}

/// Returns all secrets with their names.
pub(super) async fn all(readers: &Readers) -> Result<Vec<(String, Secret)>, Error> {
    let rows = readers.read(|db| async move { db.rows("SELECT name, value FROM secret", &[]).await }).await?;
    rows.iter().map(|row| Ok(read(row)?)).collect()
}

fn read(row: &Row) -> Result<(String, Secret), Fault> {
    let name: String = row.try_get(0)?;
    let secret = Secret::stored(&name, row.try_get(1)?)?;
    Ok((name, secret))
}

/// Stores a secret, unless there is one with this name. Returns the stored one. If several servers do this at the same
/// time, each waits for the first one's commit.
pub(super) async fn keep(readers: &Readers, name: &str, offered: Secret) -> Result<Secret, Error> {
    put(readers, "INSERT INTO secret (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING", name, offered)
        .await?;
    let missing = || Error::Unknown(format!("the database did not store the secret `{name}`"));
    find(readers, name).await?.ok_or_else(missing)
}

/// Stores a secret in place of the one with this name.
pub(super) async fn replace(readers: &Readers, name: &str, secret: Secret) -> Result<(), Error> {
    let sql = "INSERT INTO secret (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = $2, \
               created_at = clock_timestamp()";
    put(readers, sql, name, secret).await
}

async fn put(readers: &Readers, sql: &str, name: &str, secret: Secret) -> Result<(), Error> {
    let value = &secret.0[..];
    readers.write(|db, _| async move { db.rows(sql, &[&name, &value]).await.map(drop) }).await
}
