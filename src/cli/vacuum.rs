//! `reseed vacuum`: rewrites the database file while no server uses it.

use super::say;
use crate::{
    config::{Database, Settings},
    store::sqlite::vacuum,
};
use anyhow::{Context as _, bail};

/// Rewrites the database and prints what that saved.
pub(super) async fn run(settings: &Settings) -> anyhow::Result<()> {
    let path = match settings.store.database() {
        Database::Sqlite(path) => path,
        Database::Postgres(_) => {
            bail!("`reseed vacuum` is for SQLite files; PostgreSQL cleans up by itself (autovacuum)")
        }
        Database::Memory => bail!("DATABASE_URL names a database in memory: there is no file to rewrite"),
    };
    let done = tokio::task::spawn_blocking(move || vacuum(&path)).await.context("rewrite the database")?;
    let done = done.context("the database is as it was")?;
    say(format!("{}: {} before, {} now", settings.store.database(), mib(done.before), mib(done.after)));
    Ok(())
}

/// Formats a size.
pub(super) fn mib(bytes: u64) -> String {
    const MIB: u64 = 1024 * 1024;
    format!("{}.{} MiB", bytes / MIB, bytes % MIB * 10 / MIB)
}
