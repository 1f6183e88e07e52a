//! One process per file: a lock file beside the database, held while the store is open, and on Linux a lock on the
//! database itself, which another name of the file (a hard link) and the removal of the lock file do not get around.
//!
//! The operating system drops the locks when the process ends, however it ends; the remaining file means nothing by
//! itself. On other systems a lock on the database would be in the way of SQLite's own locks.
//!
//! Closing any handle of a file drops the locks that SQLite has on it in this process. So the handle of the database is
//! closed after SQLite's, and no file that this process has open is opened again.

use std::{
    collections::BTreeSet,
    fs::{self, File, Metadata, OpenOptions, TryLockError},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

#[cfg(unix)]
use std::os::unix::fs::MetadataExt as _;

/// Longest process id read from a lock file, in bytes; a decimal `u32` has at most 10.
const PID_BYTES_MAX: u64 = 10;

/// The databases that this process has open, by what identifies a file.
static OPEN: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());

/// The lock; dropping it admits the next process.
#[derive(Debug)]
pub(super) struct Lock {
    /// Locked until this value is dropped.
    file: File,
    /// The database, once it exists; locked too on Linux.
    database: Option<File>,
    watched: Watched,
}

/// The files that a lock covers, each with its device and inode number. Holding this value does not hold the lock.
#[derive(Debug, Clone)]
pub(super) struct Watched {
    lock: (PathBuf, (u64, u64)),
    /// The database, once it exists.
    database: Option<(PathBuf, (u64, u64))>,
}

/// The reason the lock was not acquired.
#[derive(Debug)]
pub(super) enum Refused {
    /// Another process holds it: the process id that it wrote into the file, if readable.
    Held(Option<u32>),
    Io(io::Error),
}

/// Returns the path of a database's lock file.
pub(super) fn path_of(database: &Path) -> PathBuf {
    beside(database, ".lock")
}

/// Returns the path of a file beside a database: its name and this ending.
pub(super) fn beside(database: &Path, ending: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Returns what identifies a file, whatever its name. Outside Unix, files in use cannot be replaced.
#[cfg(unix)]
fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> (u64, u64) {
    (0, 0)
}

fn opened() -> std::sync::MutexGuard<'static, BTreeSet<(u64, u64)>> {
    // Every change is complete before the lock is released.
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns true if this process has the database open, under whatever name.
pub(super) fn is_open_here(database: &Path) -> bool {
    cfg!(unix) && fs::metadata(database).is_ok_and(|there| opened().contains(&identity(&there)))
}

impl Lock {
    /// Takes the lock at `path`, or returns who holds it. Does not wait.
    pub(super) fn take(path: &Path) -> Result<Self, Refused> {
        // Not truncated on opening: the file holds the owner's process id.
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path).map_err(Refused::Io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let read = file.take(PID_BYTES_MAX).read_to_string(&mut text);
                return Err(Refused::Held(read.ok().and_then(|_| text.parse().ok())));
            }
            Err(TryLockError::Error(error)) => return Err(Refused::Io(error)),
        }
        let write = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
        write.map_err(Refused::Io)?;
        let held = identity(&file.metadata().map_err(Refused::Io)?);
        Ok(Self { file, database: None, watched: Watched { lock: (path.to_owned(), held), database: None } })
    }

    /// Locks the database itself: [`Watched::lost`] checks it too from now on.
    pub(super) fn hold(&mut self, database: &Path) -> Result<(), Refused> {
        let file = OpenOptions::new().read(true).write(true).open(database).map_err(Refused::Io)?;
        let metadata = file.metadata().map_err(Refused::Io)?;
        #[cfg(target_os = "linux")]
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Refused::Held(None)),
            Err(TryLockError::Error(error)) => return Err(Refused::Io(error)),
        }
        opened().insert(identity(&metadata));
        self.watched.database = Some((database.to_owned(), identity(&metadata)));
        self.database = Some(file);
        Ok(())
    }

    pub(super) fn watched(&self) -> &Watched {
        &self.watched
    }

    /// Returns the path of the database, once it is locked too; before, that of the lock file.
    pub(super) fn path(&self) -> &Path {
        self.watched.database.as_ref().map_or(&self.watched.lock.0, |(path, _)| path)
    }

    /// Returns the database's file, once it is locked too, and the path of its write-ahead log.
    pub(super) fn database(&self) -> Option<(&File, PathBuf)> {
        let (path, _) = self.watched.database.as_ref()?;
        Some((self.database.as_ref()?, beside(path, "-wal")))
    }
}

impl Drop for Lock {
    /// Unlocks the files. Closing them would not be enough: a process that is being started has a copy of the open
    /// files until it runs its own program, and with those copies the locks.
    fn drop(&mut self) {
        // An error leaves the lock until the last copy is closed.
        let _ = self.file.unlock();
        if let Some(database) = self.database.take() {
            let _ = database.unlock();
            if let Some((_, identity)) = &self.watched.database {
                opened().remove(identity);
            }
        }
    }
}

impl Watched {
    /// Returns why the lock no longer protects the database, if so: another process can take a lock file put in its
    /// place, and nobody would find what is written to a database file that was moved or removed.
    pub(super) fn lost(&self) -> Option<String> {
        let is_there =
            |(path, wanted): &(PathBuf, (u64, u64))| fs::metadata(path).is_ok_and(|there| identity(&there) == *wanted);
        if !is_there(&self.lock) {
            return Some(format!("the lock file `{}` was removed or replaced", self.lock.0.display()));
        }
        let database = self.database.as_ref().filter(|database| !is_there(database))?;
        Some(format!("the database file `{}` was moved or replaced", database.0.display()))
    }

    /// Returns the free bytes on the disk of these files, if the system reports them.
    #[cfg(unix)]
    pub(super) fn free_bytes(&self) -> Option<u64> {
        let disk = rustix::fs::statvfs(&self.lock.0).ok()?;
        Some(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    #[cfg(not(unix))]
    pub(super) fn free_bytes(&self) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_with_its_value_even_if_a_copy_of_the_open_file_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("reseed.db.lock");
        let lock = Lock::take(&path).unwrap();
        // As a process has it that is being started.
        let copy = lock.file.try_clone().unwrap();
        assert!(matches!(Lock::take(&path), Err(Refused::Held(Some(_)))));
        drop(lock);
        assert!(Lock::take(&path).is_ok());
        drop(copy);
    }
}
