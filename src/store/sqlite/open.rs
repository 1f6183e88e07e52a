//! From a path to open connections: whose file it is, who else has it, which version it is.
//!
//! Until all of that is settled nothing is written, so a file that is refused stays as it was.

use super::{
    lock::{self, Lock, Refused},
    schema,
};
use rusqlite::{Connection, OpenFlags};
use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    time::Duration,
};

/// How long a statement waits for another process that looks into the file (an operator's `sqlite3`). The lock keeps
/// other servers out.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes of a SQLite header that are looked at: the magic at 0 and the `application_id` at 68.
const HEADER_BYTES: usize = 72;

/// Why a database cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or this one, has it open.
    #[error("the database `{}` is in use by {}; one server at a time may have it", path.display(), holder(*.pid))]
    InUse {
        /// The database.
        path: PathBuf,
        /// The process that has it, where that could be read.
        pid: Option<u32>,
    },
    /// The file is something else. It was not touched.
    #[error("`{}` is not a database of reseed; it was left as it is", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
    },
    /// The file was written by a newer program. It was not touched.
    #[error(
        "the database `{}` has version {version}, this program knows versions up to {known}: run the newer program \
         or restore an older copy",
        path.display()
    )]
    Newer {
        /// The database.
        path: PathBuf,
        /// Its version.
        version: i64,
        /// The newest version known.
        known: i64,
    },
    /// A file or directory cannot be made or read.
    #[error("open the database `{}`: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// SQLite refuses.
    #[error("open the database `{}`: {source}", path.display())]
    Sqlite {
        /// The database.
        path: PathBuf,
        /// Why.
        source: rusqlite::Error,
    },
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or("another process".to_owned(), |pid| format!("process {pid}"))
}

/// What a store works with.
pub(super) struct Opened {
    /// The one connection that writes.
    pub(super) writer: Connection,
    /// The connections that read.
    pub(super) readers: Vec<Connection>,
    pub(super) lock: Lock,
}

/// Opens the database at `path` with so many readers; makes it, and the directories above it, where there is none.
pub(super) fn open(path: &Path, readers: usize) -> Result<Opened, OpenError> {
    let io = |source| OpenError::Io { path: path.to_owned(), source };
    let path = &resolve(path).map_err(io)?;
    if !is_ours_or_new(path).map_err(io)? {
        return Err(OpenError::NotOurs { path: path.clone() });
    }
    let lock = Lock::take(&lock::path_of(path)).map_err(|refused| match refused {
        Refused::Held(pid) => OpenError::InUse { path: path.clone(), pid },
        Refused::Io(source) => OpenError::Io { path: lock::path_of(path), source },
    })?;
    make_private(path).map_err(io)?;

    let sqlite = |source| OpenError::Sqlite { path: path.clone(), source };
    let mut writer = Connection::open_with_flags(path, flags(OpenFlags::SQLITE_OPEN_READ_WRITE)).map_err(sqlite)?;
    let version = schema::version(&writer).map_err(sqlite)?;
    if version > schema::VERSION {
        return Err(OpenError::Newer { path: path.clone(), version, known: schema::VERSION });
    }
    prepare(&mut writer).map_err(sqlite)?;
    let readers = (0..readers).map(|_| open_reader(path)).collect::<Result<_, _>>().map_err(sqlite)?;
    Ok(Opened { writer, readers, lock })
}

/// The one true name of the file, so that two names of it (a link, a relative path) find the same lock.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(directory)?;
    match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidFilename))?;
            Ok(fs::canonicalize(directory)?.join(name))
        }
        found => found,
    }
}

/// Reads the header with plain file calls: SQLite would already write beside a foreign database when it opens one.
fn is_ours_or_new(path: &Path) -> io::Result<bool> {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    match File::open(path) {
        Ok(file) => file.take(HEADER_BYTES as u64).read_to_end(&mut header)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    let ours = header.starts_with(b"SQLite format 3\0") && header.ends_with(&schema::APPLICATION_ID.to_be_bytes());
    Ok(header.is_empty() || (header.len() == HEADER_BYTES && ours))
}

/// Makes the file, readable by its owner alone: it holds what people said. SQLite gives the files beside it the same mode.
fn make_private(path: &Path) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

/// No mutex inside SQLite: each connection is used by one thread at a time.
fn flags(mode: OpenFlags) -> OpenFlags {
    mode | OpenFlags::SQLITE_OPEN_NO_MUTEX
}

fn prepare(writer: &mut Connection) -> rusqlite::Result<()> {
    writer.busy_timeout(BUSY_TIMEOUT)?;
    // Pages of 8 KiB hold a handful of usual bodies without overflow; it works only before the first table is made.
    writer.pragma_update(None, "page_size", 8192)?;
    schema::migrate(writer)?;
    writer.pragma_update(None, "journal_mode", "WAL")?;
    // FULL syncs the WAL at each commit; NORMAL is hardly faster and loses the last commits when the power goes.
    writer.pragma_update(None, "synchronous", "FULL")?;
    // In pages, 32 MB: with the default of 1,000 a busy writer spends its time copying the WAL back.
    writer.pragma_update(None, "wal_autocheckpoint", 4000)?;
    // In KiB: a group touches a leaf of three indexes for each of its sessions.
    writer.pragma_update(None, "cache_size", -16 * 1024)?;
    // What is deleted is overwritten: a page that SQLite only marks as free would keep what people said.
    writer.pragma_update(None, "secure_delete", true)?;
    writer.set_prepared_statement_cache_capacity(32);
    Ok(())
}

fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let reader = Connection::open_with_flags(path, flags(OpenFlags::SQLITE_OPEN_READ_ONLY))?;
    reader.busy_timeout(BUSY_TIMEOUT)?;
    reader.set_prepared_statement_cache_capacity(32);
    Ok(reader)
}
