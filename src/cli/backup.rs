//! `reseed backup`: writes a backup of the database, also while a server uses it.

use super::{say, vacuum::mib};
use crate::{
    config::{Database, Settings},
    store::sqlite::{BackupProgress, backup},
};
use anyhow::{Context as _, bail};
use clap::Args;
use std::{
    io::{IsTerminal as _, Write as _, stderr},
    path::PathBuf,
};

/// The options of `reseed backup`.
#[derive(Debug, Args)]
pub(super) struct BackupOptions {
    /// The file to write. It must not exist.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Writes the backup, with its progress on a terminal.
pub(super) async fn run(settings: &Settings, options: BackupOptions) -> anyhow::Result<()> {
    let path = match settings.store.database() {
        Database::Sqlite(path) => path,
        Database::Postgres(_) => {
            bail!("`reseed backup` is for SQLite files; back up PostgreSQL with its own tools, such as pg_basebackup")
        }
        Database::Memory => bail!("DATABASE_URL names a database in memory: there is nothing to back up"),
    };
    let file = options.file.clone();
    let done = tokio::task::spawn_blocking(move || backup(&path, &file, show)).await.context("write the backup")?;
    if stderr().is_terminal() {
        let _ = writeln!(stderr());
    }
    let bytes = done.with_context(|| format!("back up {}", settings.store.database()))?;
    say(format!("{}: {}, checked; after restoring it, run `reseed restored`", options.file.display(), mib(bytes)));
    Ok(())
}

fn show(progress: BackupProgress) -> bool {
    if stderr().is_terminal() {
        let BackupProgress { pages, pages_done } = progress;
        let percent = pages_done * 100 / pages.max(1);
        let then = if pages_done == pages { "; rewriting and checking the copy" } else { "" };
        // A terminal that has gone away is not an error.
        let _ = write!(stderr(), "\rcopied {pages_done} of {pages} pages ({percent} %){then}");
    }
    true
}
