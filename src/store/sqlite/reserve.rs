//! A file beside the database that only reserves disk space. When the disk is full, it is deleted so that sessions can
//! still be deleted. It is created again as soon as there is room.

use super::lock::beside;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::Path,
    time::{Duration, Instant},
};

/// The size of the reserve. Deleting writes a cleared page for each page that it frees, to the write-ahead log first.
/// So the reserve holds what the log may be ahead of the database (35 MiB, a group, and a portion of moved rows, some
/// MiB each), plus some steps of a deletion.
pub(super) const RESERVE_BYTES: u64 = 48 * 1024 * 1024;

/// The interval between two attempts to create the reserve again.
const RETRY: Duration = Duration::from_secs(1);

/// Allocates the reserve (`true`) or frees it (`false`).
pub(super) type Hold = Box<dyn FnMut(bool) -> io::Result<()> + Send>;

/// The reserve of a database.
pub(super) struct Reserve {
    hold: Hold,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Held,
    /// There was no room for it when the database was opened.
    Missing {
        tried: Instant,
    },
    /// It was freed to delete a session; only deletions may use the room.
    Spent {
        tried: Instant,
    },
}

impl Reserve {
    /// Takes the reserve of a database; the file may already exist.
    pub(super) fn beside(database: &Path) -> Self {
        let path = beside(database, ".reserve");
        Self::take(Box::new(move |hold| if hold { allocate(&path) } else { fs::remove_file(&path) }))
    }

    /// Takes a reserve. If there is no room for it, the store works as long as the disk has room.
    pub(super) fn take(mut hold: Hold) -> Self {
        let state = match hold(true) {
            Ok(()) => State::Held,
            Err(error) => {
                tracing::warn!(
                    %error,
                    "no room for the reserve of {} MiB beside the database: on a full disk no session could be deleted",
                    RESERVE_BYTES / (1024 * 1024)
                );
                State::Missing { tried: Instant::now() }
            }
        };
        Self { hold, state }
    }

    /// Returns true while only deletions may use the room that the reserve freed.
    pub(super) fn is_spent(&self) -> bool {
        matches!(self.state, State::Spent { .. })
    }

    /// Frees the reserve. Returns true if that made room.
    pub(super) fn spend(&mut self) -> bool {
        if self.state != State::Held {
            return false;
        }
        match (self.hold)(false) {
            Ok(()) => {
                tracing::warn!("the disk is full: the reserve is used to delete sessions; other writes are refused");
                self.state = State::Spent { tried: Instant::now() };
                true
            }
            Err(error) => {
                tracing::error!(%error, "the reserve beside the database cannot be freed");
                false
            }
        }
    }

    /// Creates the reserve again if it is gone and there is room, at most once per [`RETRY`].
    pub(super) fn restore(&mut self) {
        let (State::Missing { tried } | State::Spent { tried }) = &self.state else { return };
        if tried.elapsed() >= RETRY {
            self.restore_now();
        }
    }

    /// Creates the reserve again if it is gone and there is room. It is called once the deletions are done, before
    /// another write takes the room that they made.
    pub(super) fn restore_now(&mut self) {
        let (State::Missing { tried } | State::Spent { tried }) = &mut self.state else { return };
        *tried = Instant::now();
        if (self.hold)(true).is_ok() {
            tracing::info!("the reserve beside the database is held again");
            self.state = State::Held;
        }
    }
}

/// Creates a file that occupies [`RESERVE_BYTES`] on the disk, or leaves none.
fn allocate(path: &Path) -> io::Result<()> {
    if is_whole(path) {
        return Ok(());
    }
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let done = options.open(path).and_then(|file| fill(&file));
    if done.is_err() {
        // A part of it would only take room from the database.
        let _ = fs::remove_file(path);
    }
    done
}

/// Returns true if the file exists with all of its blocks; a copy may have holes.
fn is_whole(path: &Path) -> bool {
    let Ok(metadata) = fs::metadata(path) else { return false };
    #[cfg(unix)]
    let held = std::os::unix::fs::MetadataExt::blocks(&metadata) * 512;
    #[cfg(not(unix))]
    let held = metadata.len();
    metadata.is_file() && metadata.len() >= RESERVE_BYTES && held >= RESERVE_BYTES
}

fn fill(mut file: &File) -> io::Result<()> {
    // The system allocates the blocks at once. A file system that does not support this would need them written.
    #[cfg(target_os = "linux")]
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, RESERVE_BYTES) {
        Ok(()) => return Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP) => {}
        Err(error) => return Err(error.into()),
    }
    let part = vec![0; 1024 * 1024];
    for _ in 0..RESERVE_BYTES / part.len() as u64 {
        file.write_all(&part)?;
    }
    // A file system may notice only now that it has no room.
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::{RESERVE_BYTES, Reserve};
    use std::fs::{self, File};

    #[test]
    fn a_reserve_is_freed_once_and_a_sparse_file_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("reseed.db.reserve");
        File::create(&path).unwrap().set_len(RESERVE_BYTES).unwrap();
        assert!(!super::is_whole(&path));
        let mut reserve = Reserve::beside(&folder.path().join("reseed.db"));
        assert!(super::is_whole(&path) && !reserve.is_spent());
        assert!(reserve.spend() && !path.exists());
        assert!(reserve.is_spent() && !reserve.spend());
        // It does not try again immediately,
        reserve.restore();
        assert!(!path.exists());
        // except once the deletions are done.
        reserve.restore_now();
        assert!(!reserve.is_spent() && path.exists() && reserve.spend());
        assert!(!Reserve::beside(&folder.path().join("reseed.db")).is_spent());
        assert_eq!(fs::metadata(&path).unwrap().len(), RESERVE_BYTES);
    }
}
