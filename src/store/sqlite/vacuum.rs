//! Rewrites a database file. The new file is as short as possible, can be shortened while in use, and has no bytes of
//! deleted text, not even those that an older program left. It has no search index: the server rebuilds it while in
//! use, so this also repairs a damaged index.
//!
//! The file is copied, synced and put in the place of the old one in one step. Any failure before that leaves the old
//! one unchanged.

use super::{
    Fault, OpenError, checkpoint, history,
    lock::beside,
    open::{self, Beside, Opened},
    removal::{self, Slice},
    writer::Write,
};
use std::{
    fs::{self, OpenOptions},
    io,
    path::{Path, PathBuf},
};

/// The reason a database was not rewritten.
#[derive(Debug, thiserror::Error)]
pub enum VacuumError {
    /// The database cannot be opened, or a server is using it.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Another program has it open.
    #[error("another program has the database `{}` open; close it and try again", .0.display())]
    InUse(PathBuf),
    /// The copy cannot be written or moved into place.
    #[error("write `{}`: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// SQLite failed to read the database or to write the copy.
    #[error("rewrite the database `{}`: {source}", path.display())]
    Sqlite {
        /// The database.
        path: PathBuf,
        /// The cause.
        source: rusqlite::Error,
    },
}

/// The length of a database file before and after it was rewritten, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vacuumed {
    /// Before, without its write-ahead log.
    pub before: u64,
    /// After.
    pub after: u64,
}

/// Rewrites the database at `path`, which no server may have open. It needs as much free disk space as the new file.
///
/// # Errors
/// [`VacuumError`]; the database is then unchanged.
pub fn vacuum(path: &Path) -> Result<Vacuumed, VacuumError> {
    // Opening would create the file.
    let missing = |source| OpenError::Io { path: path.to_owned(), source };
    fs::metadata(path).map_err(missing)?;
    let opened = open::open(path, Beside::Nothing, None)?;
    let path = opened.lock.as_ref().map_or(path, |lock| lock.path()).to_owned();
    let copy = beside(&path, ".vacuum");
    let done = rewrite(opened, &path, &copy);
    if done.is_err() {
        // An error means that there is no copy.
        let _ = fs::remove_file(&copy);
    }
    done
}

fn rewrite(opened: Opened, path: &Path, copy: &Path) -> Result<Vacuumed, VacuumError> {
    let Opened { writer: db, lock, .. } = opened;
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| VacuumError::Io { path, source }
    };
    let sqlite = |source| VacuumError::Sqlite { path: path.to_owned(), source };
    remove_hidden(&db).map_err(sqlite)?;
    history::discard(&db);
    // An earlier attempt may have left a copy.
    match fs::remove_file(copy) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(copy)(error)),
        _ => {}
    }
    open::make_private(copy).map_err(at(copy))?;
    let name = copy.to_str().ok_or_else(|| at(copy)(io::ErrorKind::InvalidFilename.into()))?;
    db.pragma_update(None, "auto_vacuum", "INCREMENTAL").map_err(sqlite)?;
    db.execute("VACUUM INTO ?1", [name]).map_err(sqlite)?;
    let file = OpenOptions::new().read(true).write(true).open(copy).map_err(at(copy))?;
    checkpoint::clear_all(&file).and_then(|()| file.sync_all()).map_err(at(copy))?;

    let before = fs::metadata(path).map_err(at(path))?.len();
    let is_free = checkpoint::empty(&db, lock.as_ref()).map_err(sqlite)?;
    db.close().map_err(|(_, error)| sqlite(error))?;
    // The last connection removes these files. A program that still has them open would mistake them for the new
    // file's.
    if !is_free || ["-wal", "-shm"].iter().any(|ending| beside(path, ending).exists()) {
        return Err(VacuumError::InUse(path.to_owned()));
    }
    fs::rename(copy, path).and_then(|()| open::sync_directory(path)).map_err(at(path))?;
    Ok(Vacuumed { before, after: file.metadata().map_err(at(path))?.len() })
}

/// Removes the rows of deleted sessions. Damaged ones remain: the copy shows whether they can be read.
fn remove_hidden(db: &rusqlite::Connection) -> rusqlite::Result<()> {
    let mut after = 0;
    while let Some(hidden) = removal::next(db, after)? {
        let number = hidden.number;
        let transaction = db.unchecked_transaction()?;
        match (Slice { first: hidden, sessions_max: 1 }).write(&transaction) {
            Ok(removed) => {
                transaction.commit()?;
                after = removed.last.unwrap_or(after);
            }
            Err(Fault::Sqlite(error)) => return Err(error),
            Err(_) => after = number,
        }
    }
    Ok(())
}
