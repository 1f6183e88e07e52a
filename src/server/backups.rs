//! The backups of this server: one at a time, into BACKUP_DIR.

use crate::{
    clock::{Clock as _, SystemClock},
    config::Database,
    store::sqlite::{BackupError, BackupProgress, backup},
};
use reseed_protocol::{ErrorBody, ErrorCode, Timestamp};
use serde::Serialize;
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The backups of this server.
#[derive(Debug)]
pub(crate) struct Backups {
    database: Database,
    /// BACKUP_DIR.
    directory: Option<PathBuf>,
    newest: Mutex<Option<Newest>>,
}

/// The newest backup since the start.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Newest {
    state: &'static str,
    file: String,
    pages: u64,
    pages_done: u64,
    started_at: Timestamp,
    /// The time of the last step.
    progress_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

const RUNNING: &str = "running";

impl Backups {
    pub(crate) fn new(database: Database, directory: Option<PathBuf>) -> Self {
        Self { database, directory, newest: Mutex::default() }
    }

    /// Returns the newest backup since the start.
    pub(super) fn newest(&self) -> MutexGuard<'_, Option<Newest>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the database and the directory.
    ///
    /// # Errors
    /// The reason why this server makes no backups.
    pub(super) fn paths(&self) -> Result<(&Path, &Path), &'static str> {
        match (&self.database, &self.directory) {
            (Database::Sqlite(path), Some(directory)) => Ok((path, directory)),
            (Database::Sqlite(_), None) => Err("BACKUP_DIR is unset; set it to the directory for backups"),
            (Database::Postgres(_), _) => {
                Err("back up PostgreSQL with its own tools, such as pg_basebackup; this address is for SQLite")
            }
            (Database::Memory, _) => Err("the database is in memory; there is nothing to back up"),
        }
    }

    /// Records that a backup begins; returns its state and its file.
    ///
    /// # Errors
    /// `overloaded`: another one is running.
    pub(super) fn begin(&self, directory: &Path) -> Result<(Newest, PathBuf), ErrorBody> {
        let mut newest = self.newest();
        if let Some(other) = newest.as_ref().filter(|other| other.state == RUNNING) {
            let message = format!("a backup is running: `{}`", other.file);
            return Err(ErrorBody::new(ErrorCode::Overloaded, message));
        }
        let started_at = SystemClock.now();
        let file = directory.join(format!("reseed-{}.db", started_at.to_string().replace(':', "")));
        let (state, shown) = (RUNNING, file.display().to_string());
        let begun = Newest { state, file: shown, started_at, progress_at: started_at, ..Newest::default() };
        *newest = Some(begun.clone());
        Ok((begun, file))
    }

    /// Writes the backup that has begun, as long as `goes_on`.
    pub(super) fn write(&self, path: &Path, file: &Path, goes_on: impl Fn() -> bool) -> Result<u64, BackupError> {
        let directory = file.parent().unwrap_or(Path::new("."));
        let removed = remove_partial(directory);
        removed.map_err(|source| BackupError::Io { path: directory.to_owned(), source })?;
        backup(path, file, |BackupProgress { pages, pages_done }| {
            if let Some(newest) = &mut *self.newest() {
                (newest.pages, newest.pages_done, newest.progress_at) = (pages, pages_done, SystemClock.now());
            }
            goes_on()
        })
    }

    /// Records how the newest backup has ended.
    pub(super) fn end(&self, made: &Result<u64, BackupError>) {
        if let Some(newest) = &mut *self.newest() {
            newest.state = if made.is_ok() { "done" } else { "failed" };
            newest.ended_at = Some(SystemClock.now());
            newest.bytes = made.as_ref().ok().copied();
            newest.error = made.as_ref().err().map(ToString::to_string);
        }
    }
}

/// Removes what a killed server left. The directory is for the backups of one server; a partial file with another name
/// is of `reseed backup`, which may be writing it.
fn remove_partial(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        let started =
            name.strip_prefix("reseed-").and_then(|name| name.split_once(".db.partial")).map(|(time, _)| time);
        if started.is_some_and(|time| time.replace(|c: char| c.is_ascii_digit(), "0") == "0000-00-00T000000.000Z") {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_servers_own_partial_files_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let backups = Backups::new(Database::Memory, None);
        let (_, own) = backups.begin(folder.path()).unwrap();
        let own = own.file_name().unwrap().to_str().unwrap().to_owned();
        let kept = ["reseed-monday.db.partial".to_owned(), "monday.db.partial".to_owned(), own.clone()];
        let removed = [format!("{own}.partial"), format!("{own}.partial-wal"), format!("{own}.partial.vacuum")];
        for name in kept.iter().chain(&removed) {
            fs::write(folder.path().join(name), "").unwrap();
        }
        remove_partial(folder.path()).unwrap();
        for name in kept.iter().chain(&removed) {
            assert_eq!(folder.path().join(name).exists(), kept.contains(name), "{name}");
        }
    }
}
