//! Watches the files of an open database for changes by other programs.
//!
//! A program that changes a database file without SQLite, for example by copying a backup over it, gets around every
//! lock. So the file's length and modification time are compared with their values after our own last change.

use super::{
    lock::beside,
    scrub::{self, Pages},
};
use std::{
    fs::{self, File, Metadata},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
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
}

#[derive(Debug, Clone)]
struct Database {
    path: PathBuf,
    identity: Identity,
    file: Arc<File>,
    /// The file's properties after our own last change; `None` while it is being changed.
    left: Arc<Mutex<Option<Shape>>>,
}

/// The properties of a file by which changes are detected.
#[derive(Debug, PartialEq, Eq)]
struct Shape {
    bytes: u64,
    changed_at: Option<SystemTime>,
    /// Checksums of the pages that were changed last. Some file systems correct a modification time afterwards, which
    /// leaves these checksums unchanged. An older copy of the file has other checksums; if they agree, it is the same
    /// file.
    pages: Vec<(u32, u32)>,
}

impl Shape {
    fn of(file: &File, pages: impl IntoIterator<Item = u32>) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let pages = scrub::checksums(file, pages)?;
        Ok(Self { bytes: metadata.len(), changed_at: metadata.modified().ok(), pages })
    }

    /// Returns true if the file has not changed since.
    fn is_of(&self, file: &File) -> io::Result<bool> {
        let metadata = file.metadata()?;
        if metadata.len() != self.bytes {
            return Ok(false);
        }
        if metadata.modified().ok() == self.changed_at {
            return Ok(true);
        }
        let now = Self::of(file, self.pages.iter().map(|(page, _)| *page))?;
        Ok(!self.pages.is_empty() && now.pages == self.pages)
    }
}

/// The damage that another program did to the files of an open database.
#[derive(Debug)]
pub(super) enum Lost {
    /// A file was replaced or removed.
    Replaced(String),
    /// Another program changed the database's content.
    Changed(String),
}

impl Lost {
    pub(super) fn reason(self) -> String {
        match self {
            Self::Replaced(reason) | Self::Changed(reason) => reason,
        }
    }
}

impl Watched {
    pub(super) fn new(lock: PathBuf, identity: Identity) -> Self {
        Self { lock: (lock, identity), database: None }
    }

    pub(super) fn add(&mut self, path: PathBuf, identity: Identity, file: File) {
        self.database = Some(Database { path, identity, file: Arc::new(file), left: Arc::default() });
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

    /// Announces a change of our own.
    pub(super) fn begin_change(&self) {
        if let Some(database) = &self.database {
            *database.left() = None;
        }
    }

    /// Records the state of the database after a change of our own to these pages, if they are known.
    pub(super) fn end_change(&self, pages: &Pages) {
        if let Some(database) = &self.database {
            let shape = Shape::of(&database.file, scrub::some_of(pages));
            *database.left() = shape.ok();
        }
    }

    /// Returns the reason why nothing more may be written, if there is one. Another process can lock a lock file that
    /// was replaced. Writes to a database file that was moved or removed would be lost. Writes to one that was
    /// overwritten would damage its new content.
    pub(super) fn lost(&self) -> Option<Lost> {
        let is_there = |path: &Path, wanted: Identity| fs::metadata(path).is_ok_and(|there| identity(&there) == wanted);
        if !is_there(&self.lock.0, self.lock.1) {
            let reason = format!("the lock file `{}` was removed or replaced", self.lock.0.display());
            return Some(Lost::Replaced(reason));
        }
        let database = self.database.as_ref()?;
        let path = database.path.display();
        if !is_there(&database.path, database.identity) {
            return Some(Lost::Replaced(format!("the database file `{path}` was moved or replaced")));
        }
        (!database.is_as_left()).then(|| {
            Lost::Changed(format!(
                "the database file `{path}` was changed by another program; stop the server, and if it was a backup, \
                 remove `{path}-wal` and `{path}-shm` before copying it again"
            ))
        })
    }

    /// Blocks every check of the database until the result is dropped, like a disk that hangs.
    #[cfg(test)]
    pub(super) fn stall(&self) -> Option<impl Sized + '_> {
        self.database.as_ref().map(Database::left)
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

impl Database {
    fn left(&self) -> MutexGuard<'_, Option<Shape>> {
        // Every change is complete before the lock is released.
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_as_left(&self) -> bool {
        // The lock is held until the file has been checked, so that no change of our own comes in between.
        let left = self.left();
        left.as_ref().is_none_or(|left| left.is_of(&self.file).unwrap_or(false))
    }
}
