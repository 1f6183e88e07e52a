//! Backups: a copy of one moment, while a server writes.
//!
//! The copy is made of a reader's snapshot, in short steps with pauses, so that writers keep the disk. Without the
//! snapshot, SQLite would begin again after each commit. While it lasts, the write-ahead log grows by what is written.
//! The copy is then rewritten as by `reseed vacuum`, which removes what is left of deleted sessions, and checked.

use super::{
    OpenError, VacuumError,
    lock::{self, beside},
    open, vacuum,
};
use rusqlite::{
    Connection,
    backup::{Backup, StepResult},
};
use std::{
    fs::{self, OpenOptions},
    io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

/// The pages of a step: 1 MiB. It is synced at once, so that a commit never waits for more than this to be written.
const STEP_PAGES: i32 = 256;

/// The shortest and the longest pause after a step. Between them, it is as long as the step.
const PAUSE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(200));

/// The progress of a backup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackupProgress {
    /// Pages of the database.
    pub pages: u64,
    /// Pages that were copied. When all were, the copy is rewritten and checked.
    pub pages_done: u64,
}

/// The reason there is no backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The database cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The file exists. It was not changed.
    #[error("`{}` exists; a backup is written into a new file", .0.display())]
    Exists(PathBuf),
    /// A file cannot be written or moved.
    #[error("write `{}`: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// SQLite failed to read the database or to write the copy.
    #[error("copy the database: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The copy cannot be rewritten.
    #[error("rewrite the copy: {0}")]
    Vacuum(#[from] VacuumError),
    /// SQLite's check of the copy failed.
    #[error("the copy is damaged, and perhaps the database: {0}")]
    Damaged(String),
    /// It was stopped.
    #[error("it was stopped")]
    Stopped,
}

/// Writes a backup of the database at `path` into a new file. `progress` is called after each step, and stops it by
/// returning false. Returns the length of the file in bytes.
///
/// # Errors
/// [`BackupError`]; there is no file then.
pub fn backup(path: &Path, file: &Path, progress: impl FnMut(BackupProgress) -> bool) -> Result<u64, BackupError> {
    let is_free = || if file.exists() { Err(BackupError::Exists(file.to_owned())) } else { Ok(()) };
    is_free()?;
    let partial = beside(file, ".partial");
    let io = |source| BackupError::Io { path: partial.clone(), source };
    let made = copy(path, &partial, progress).and_then(|()| check(&partial)).and_then(|()| {
        is_free()?;
        fs::rename(&partial, file).and_then(|()| open::sync_directory(file)).map_err(io)
    });
    // An error means that there is none.
    for ending in ["", "-journal", "-wal", "-shm", ".vacuum", ".lock"] {
        let _ = fs::remove_file(beside(&partial, ending));
    }
    made?;
    Ok(fs::metadata(file).map_err(io)?.len())
}

fn copy(path: &Path, partial: &Path, mut progress: impl FnMut(BackupProgress) -> bool) -> Result<(), BackupError> {
    let io = |source| BackupError::Io { path: partial.to_owned(), source };
    let readers = open::open_read_only(path, 1)?;
    let Some(source) = readers.first() else { return Err(BackupError::Stopped) };
    // An earlier attempt may have left a copy.
    match fs::remove_file(partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
        _ => open::make_private(partial).map_err(io)?,
    }
    let mut target = Connection::open(partial)?;
    target.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")?;
    // Only this function uses the file, so another handle of it may be closed.
    let written = OpenOptions::new().write(true).open(partial).map_err(io)?;
    source.execute_batch("BEGIN; SELECT 1 FROM sqlite_schema LIMIT 1")?;
    let copying = Backup::new(source, &mut target)?;
    loop {
        let started = Instant::now();
        let step = copying.step(STEP_PAGES)?;
        written.sync_data().map_err(io)?;
        let now = copying.progress();
        let (all, left) = (u64::try_from(now.pagecount).unwrap_or(0), u64::try_from(now.remaining).unwrap_or(0));
        if !progress(BackupProgress { pages: all, pages_done: all.saturating_sub(left) }) {
            return Err(BackupError::Stopped);
        }
        if step == StepResult::Done {
            break;
        }
        thread::sleep(started.elapsed().clamp(PAUSE.0, PAUSE.1));
    }
    drop(copying);
    target.close().map_err(|(_, error)| error)?;
    drop((readers, written));
    vacuum(partial)?;
    // The lock of the copy.
    fs::remove_file(lock::path_of(partial)).map_err(io)
}

/// Opens the copy as a server would, and lets SQLite check all of it.
fn check(partial: &Path) -> Result<(), BackupError> {
    let readers = open::open_read_only(partial, 1)?;
    for copy in &readers {
        let found: String = copy.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
        if found != "ok" {
            return Err(BackupError::Damaged(found));
        }
    }
    Ok(())
}
