//! One process per file: a lock file beside the database is locked while the store is open. On Linux the database
//! itself is locked too, so that neither another name of the file (a hard link) nor the removal of the lock file gets
//! around the lock.
//!
//! The operating system releases the locks when the process ends, however it ends; the remaining file means nothing by
//! itself. On other systems, a lock on the database would conflict with SQLite's own locks.
//!
//! Closing any handle of a file releases the locks that SQLite has on it in this process. So the handle of the database
//! is closed after SQLite's, and no file that this process has open is opened a second time.

use std::{
    collections::BTreeSet,
    fs::{self, File, Metadata, OpenOptions, TryLockError},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The longest process id that is read from a lock file, in bytes; a decimal `u32` has at most 10.
const PID_BYTES_MAX: u64 = 10;

/// The file identities of the databases that this process has open.
static OPEN: Mutex<BTreeSet<Identity>> = Mutex::new(BTreeSet::new());

/// The device and inode number of a file.
type Identity = (u64, u64);

/// Returns the identity of a file, whatever its name. Outside Unix, files in use cannot be replaced.
#[cfg(unix)]
fn identity(metadata: &Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt as _;
    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> Identity {
    (0, 0)
}

/// An open file.
#[derive(Debug)]
struct Held {
    path: PathBuf,
    file: Arc<File>,
    identity: Identity,
}

impl Held {
    fn new(path: &Path, file: File) -> io::Result<Self> {
        let identity = identity(&file.metadata()?);
        Ok(Self { path: path.to_owned(), file: Arc::new(file), identity })
    }

    /// Returns true if the path still leads to the file.
    fn is_there(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|there| identity(&there) == self.identity)
    }
}

/// The lock; dropping it lets the next process in.
#[derive(Debug)]
pub(super) struct Lock {
    /// Locked until this value is dropped.
    lock: Held,
    /// The database, once it exists; on Linux it is locked too.
    database: Option<Held>,
}

/// The reason the lock was not acquired.
#[derive(Debug)]
pub(super) enum Refused {
    /// Another process holds it; the value is the process id in the file, if readable.
    Held(Option<u32>),
    Io(io::Error),
}

/// Returns the path of a database's lock file.
pub(super) fn path_of(database: &Path) -> PathBuf {
    beside(database, ".lock")
}

/// Returns the path of a file beside a database: the database's path plus this suffix.
pub(super) fn beside(database: &Path, ending: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn opened() -> MutexGuard<'static, BTreeSet<Identity>> {
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
        // The file is not truncated on opening, because it holds the owner's process id.
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
        Ok(Self { lock: Held::new(path, file).map_err(Refused::Io)?, database: None })
    }

    /// Locks the database itself. From now on, [`Self::lost`] checks it too.
    pub(super) fn hold(&mut self, database: &Path) -> Result<(), Refused> {
        let file = OpenOptions::new().read(true).write(true).open(database).map_err(Refused::Io)?;
        #[cfg(target_os = "linux")]
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Refused::Held(None)),
            Err(TryLockError::Error(error)) => return Err(Refused::Io(error)),
        }
        let held = Held::new(database, file).map_err(Refused::Io)?;
        opened().insert(held.identity);
        self.database = Some(held);
        Ok(())
    }

    /// Returns the reason why nothing more may be written, if there is one. Another process can lock a lock file that
    /// was replaced. Writes to a database file that was moved or removed would be lost.
    pub(super) fn lost(&self) -> Option<String> {
        if !self.lock.is_there() {
            return Some(format!("the lock file `{}` was removed or replaced", self.lock.path.display()));
        }
        let lost = self.database.as_ref().filter(|database| !database.is_there())?;
        Some(format!("the database file `{}` was moved or replaced", lost.path.display()))
    }

    /// Returns the path of the database once that is locked too; before, the path of the lock file.
    pub(super) fn path(&self) -> &Path {
        &self.database.as_ref().unwrap_or(&self.lock).path
    }

    /// Returns the database's file, once that is locked too, and the path of its write-ahead log.
    pub(super) fn database(&self) -> Option<(&Arc<File>, PathBuf)> {
        let Held { path, file, .. } = self.database.as_ref()?;
        Some((file, beside(path, "-wal")))
    }
}

impl Drop for Lock {
    /// Unlocks the files. Closing them would not be enough: a child process has copies of the open files until it runs
    /// its own program, and those copies keep the locks.
    fn drop(&mut self) {
        // If this fails, the lock remains until the last copy is closed.
        let _ = self.lock.file.unlock();
        if let Some(database) = &self.database {
            let _ = database.file.unlock();
            opened().remove(&database.identity);
        }
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
        // A child process that is being started has such a copy.
        let copy = lock.lock.file.try_clone().unwrap();
        assert!(matches!(Lock::take(&path), Err(Refused::Held(Some(_)))));
        drop(lock);
        assert!(Lock::take(&path).is_ok());
        drop(copy);
    }
}
