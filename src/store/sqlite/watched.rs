//! Watches the files of an open database: whether they are still those that were opened, and how much room their disk
//! has.

use super::lock::beside;
use std::{
    fs::{self, File, Metadata},
    path::{Path, PathBuf},
    sync::Arc,
};

#[cfg(unix)]
use std::os::unix::fs::MetadataExt as _;

/// The device and inode number of a file.
pub(super) type Identity = (u64, u64);

/// Returns the identity of a file, whatever its name. Outside Unix, files in use cannot be replaced.
#[cfg(unix)]
pub(super) fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
pub(super) fn identity(_: &Metadata) -> Identity {
    (0, 0)
}

/// The files that a lock covers. Holding this value does not hold the lock.
#[derive(Debug, Clone)]
pub(super) struct Watched {
    lock: (PathBuf, Identity),
    /// The database, once it exists.
    database: Option<Database>,
    /// Held by a test to block every check, like a disk that hangs.
    #[cfg(test)]
    gate: Arc<std::sync::Mutex<()>>,
}

#[derive(Debug, Clone)]
struct Database {
    path: PathBuf,
    identity: Identity,
    file: Arc<File>,
}

impl Watched {
    pub(super) fn new(lock: PathBuf, identity: Identity) -> Self {
        Self {
            lock: (lock, identity),
            database: None,
            #[cfg(test)]
            gate: Arc::default(),
        }
    }

    pub(super) fn add(&mut self, path: PathBuf, identity: Identity, file: File) {
        self.database = Some(Database { path, identity, file: Arc::new(file) });
    }

    pub(super) fn file(&self) -> Option<&File> {
        self.database.as_ref().map(|database| &*database.file)
    }

    /// Returns the database's file, once it exists, and the path of its write-ahead log.
    pub(super) fn database(&self) -> Option<(&File, PathBuf)> {
        Some((self.file()?, beside(self.path(), "-wal")))
    }

    /// Returns the path of the database; before it exists, that of the lock file.
    pub(super) fn path(&self) -> &Path {
        self.database.as_ref().map_or(&self.lock.0, |database| &database.path)
    }

    /// Returns true if the database has this identity.
    pub(super) fn is(&self, identity: Identity) -> bool {
        self.database.as_ref().is_some_and(|database| database.identity == identity)
    }

    /// Returns the reason why nothing more may be written, if there is one. Another process can lock a lock file that
    /// was replaced. Writes to a database file that was moved or removed would be lost.
    pub(super) fn lost(&self) -> Option<String> {
        #[cfg(test)]
        let _gate = self.gate.lock();
        let is_there = |path: &Path, wanted: Identity| fs::metadata(path).is_ok_and(|there| identity(&there) == wanted);
        if !is_there(&self.lock.0, self.lock.1) {
            return Some(format!("the lock file `{}` was removed or replaced", self.lock.0.display()));
        }
        let database = self.database.as_ref()?;
        let is_lost = !is_there(&database.path, database.identity);
        is_lost.then(|| format!("the database file `{}` was moved or replaced", database.path.display()))
    }

    #[cfg(test)]
    pub(super) fn stall(&self) -> impl Sized + '_ {
        self.gate.lock().unwrap()
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
