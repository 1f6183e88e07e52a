//! The files of an open database, and whether they are still what they were.
//!
//! Who changes a database file other than by SQLite, such as a backup that is copied over it, gets around every lock.
//! So the file's length and time of change are compared with what they were after the last change of our own.

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

/// Returns what identifies a file, whatever its name. Outside Unix, files in use cannot be replaced.
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
    /// As it was after the last change of our own; `None` while it is being changed.
    left: Arc<Mutex<Option<Shape>>>,
}

/// The properties of a file that a change of it changes.
#[derive(Debug, PartialEq, Eq)]
struct Shape {
    bytes: u64,
    changed_at: Option<SystemTime>,
    /// Checksums of pages that were changed last. A file system that corrects the time of a change afterwards leaves
    /// them; an older copy of the file has others, and one of the same pages is the same file.
    pages: Vec<(u32, u32)>,
}

impl Shape {
    fn of(file: &File, pages: impl IntoIterator<Item = u32>) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let pages = scrub::checksums(file, pages)?;
        Ok(Self { bytes: metadata.len(), changed_at: metadata.modified().ok(), pages })
    }

    /// Returns true if nobody changed the file since.
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

/// The kind of damage that another program did to the files of an open database.
#[derive(Debug)]
pub(super) enum Lost {
    /// A file has another one in its place, or none.
    Replaced(String),
    /// The database's content was changed by somebody else.
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

    /// Returns true if this is the database.
    pub(super) fn is(&self, identity: Identity) -> bool {
        self.database.as_ref().is_some_and(|database| database.identity == identity)
    }

    /// Expects a change of our own.
    pub(super) fn begin_change(&self) {
        if let Some(database) = &self.database {
            *database.left() = None;
        }
    }

    /// Remembers the database as it is after a change of our own to these pages, if they are known.
    pub(super) fn end_change(&self, pages: &Pages) {
        if let Some(database) = &self.database {
            let shape = Shape::of(&database.file, scrub::some_of(pages));
            *database.left() = shape.ok();
        }
    }

    /// Returns why nothing may be written any more, if so: another process can take a lock file put in its place,
    /// nobody would find what is written to a database file that was moved or removed, and what is written to one that
    /// was overwritten damages what it now holds.
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

    /// Holds up everyone who looks at the database, as a disk that hangs does, until the result is dropped.
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
        // Held until the file was looked at, so that a change of our own does not come between.
        let left = self.left();
        left.as_ref().is_none_or(|left| left.is_of(&self.file).unwrap_or(false))
    }
}
