//! Opens the connections to a database file, after checking that it is ours, that no other process has it open, and its
//! version.
//!
//! Nothing is written until all of that is settled, so a refused file stays as it was.

use super::{
    CommitStats, checkpoint,
    lock::{self, Lock, Refused},
    readers::READERS,
    removal, schema, transfer,
};
use rusqlite::{Connection, OpenFlags, ffi, types::ValueRef};
use std::{
    cmp::Ordering,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    time::Duration,
};

/// The time for which a statement waits for another process that reads the file (an operator's `sqlite3`). The lock
/// keeps other servers out.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The bytes of the SQLite header that are read: the magic at 0 and the `application_id` at 68.
const HEADER_BYTES: usize = 72;

/// The reason a database could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or this one, has it open.
    #[error("the database `{}` is in use by {}; only one server at a time can open it", path.display(), holder(*.pid))]
    InUse {
        /// The database.
        path: PathBuf,
        /// The process that has it open, if known.
        pid: Option<u32>,
    },
    /// The file is not a reseed database. It was not touched.
    #[error("`{}` is not a reseed database; it was not changed", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
    },
    /// The file was written by a newer program. It was not touched.
    #[error(
        "the database `{}` has version {version}, this program supports versions up to {known}: run a newer reseed \
         or restore an older backup",
        path.display()
    )]
    Newer {
        /// The database.
        path: PathBuf,
        /// Its version.
        version: i64,
        /// The newest supported version.
        known: i64,
    },
    /// The file was written by an older program, so it cannot be opened read-only. It was not touched.
    #[error(
        "the database `{}` has version {version}, this program reads version {known}: start the server with it once to \
         upgrade it",
        path.display()
    )]
    Older {
        /// The database.
        path: PathBuf,
        /// Its version.
        version: i64,
        /// The version that can be read.
        known: i64,
    },
    /// A migration into the file is not complete: it holds only some of the sessions.
    #[error(
        "a migration into the database `{}` is not complete, so it cannot be used: delete it, and run `reseed migrate` \
         again into an empty one",
        path.display()
    )]
    Migrating {
        /// The database.
        path: PathBuf,
    },
    /// A file or directory cannot be created or read.
    #[error("open the database `{}`: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file of an older program could not be upgraded. It is as it was.
    #[error(
        "upgrade the database `{}` from version {version}: {source}. The file is as it was: free disk space if that is \
         full. If the file is damaged, start the program that wrote it, delete the sessions that its log names, or \
         restore a backup",
        path.display()
    )]
    Upgrade {
        /// The database.
        path: PathBuf,
        /// Its version.
        version: i64,
        /// The cause.
        source: rusqlite::Error,
    },
    /// SQLite failed to open it.
    #[error("open the database `{}`: {source}", path.display())]
    Sqlite {
        /// The database.
        path: PathBuf,
        /// The cause.
        source: rusqlite::Error,
    },
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or("another process".to_owned(), |pid| format!("process {pid}"))
}

/// Options for opening a database.
pub struct Options {
    /// Called after each commit, before its writes are answered, on the writer's thread: it must be quick.
    pub observer: Box<dyn Fn(CommitStats) + Send>,
    /// The size of the write-ahead log, in pages, at which it is copied back. It grows beyond that only while a reader
    /// of an old snapshot is in the way.
    pub checkpoint_pages: u32,
    /// The time before the first retry of a failed step of a deletion.
    pub retry: Duration,
    /// True if entries are added to the search index. Without it, searches read the entries and find the same.
    pub index: bool,
    /// The VFS that holds the file, for tests of disk faults; `None` is the operating system's. The path is then a name
    /// in that VFS; no file of the operating system is touched and no lock is taken.
    pub vfs: Option<Vfs>,
}

/// A VFS registered with SQLite.
pub struct Vfs {
    /// Its name.
    pub name: String,
    /// Does what `settle_log` does for files of the operating system.
    pub settle_log: Box<dyn Fn() -> io::Result<()>>,
}

impl Default for Options {
    fn default() -> Self {
        // This is 6 MB. Appends wait for a checkpoint, and the wait grows with the log: with 24 MB, 99 of 100 appends
        // of 200 busy sessions took half as long again. With 1.4 MB, there were half as many.
        let (observer, retry) = (Box::new(|_: CommitStats| {}), Duration::from_millis(10));
        Self { observer, checkpoint_pages: 1500, retry, index: true, vfs: None }
    }
}

/// The connections to open in addition to the writer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beside {
    Nothing,
    /// Opens readers.
    Served,
}

/// The connections of an open database.
pub(super) struct Opened {
    /// The only connection that writes records.
    pub(super) writer: Connection,
    /// The connections that read.
    pub(super) readers: Vec<Connection>,
    pub(super) lock: Option<Lock>,
    pub(super) found: Found,
}

/// The state found in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    /// True if rows of deleted sessions are still to be removed.
    pub(super) has_deletions: bool,
    /// True if a migration into the file is not complete.
    pub(super) is_marked: bool,
}

/// Opens the database at `path`; creates it, and the directories above it, if they do not exist.
pub(super) fn open(path: &Path, beside: Beside, vfs: Option<&Vfs>) -> Result<Opened, OpenError> {
    let (path, lock) = match vfs {
        None => {
            let path = resolve(path).map_err(io_error(path))?;
            let mut lock = settle(&path)?;
            lock.hold(&path).map_err(|refused| match refused {
                Refused::Held(pid) => OpenError::InUse { path: path.clone(), pid },
                Refused::Io(source) => OpenError::Io { path: path.clone(), source },
            })?;
            settle_log(&path).map_err(io_error(&path))?;
            (path, Some(lock))
        }
        Some(vfs) => {
            (vfs.settle_log)().map_err(io_error(path))?;
            (path.to_owned(), None)
        }
    };
    let vfs = vfs.map(|vfs| vfs.name.as_str());
    let sqlite = sqlite_error(&path);
    let mode = match vfs {
        None => OpenFlags::SQLITE_OPEN_READ_WRITE,
        Some(_) => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
    };
    let mut writer = connect(&path, mode, vfs).map_err(&sqlite)?;
    let version = schema::version(&writer).map_err(&sqlite)?;
    if version > schema::VERSION {
        return Err(OpenError::Newer { path: path.clone(), version, known: schema::VERSION });
    }
    if let Some(lock) = &lock {
        // Older programs reserved disk space with this file, which an upgrade may need. An error means that there is
        // none.
        let _ = fs::remove_file(lock::beside(lock.path(), ".reserve"));
    }
    let found = prepare(&mut writer, lock.as_ref()).map_err(|source| match version {
        0 | schema::VERSION => sqlite(source),
        _ => OpenError::Upgrade { path: path.clone(), version, source },
    })?;
    let readers = match beside {
        Beside::Served => open_readers(&path, READERS, vfs).map_err(&sqlite)?,
        Beside::Nothing => Vec::new(),
    };
    Ok(Opened { writer, readers, lock, found })
}

/// Opens readers of the database at `path`, which may be open elsewhere. Creates and changes nothing, except the files
/// in which SQLite records its readers.
pub(super) fn open_read_only(path: &Path, readers: usize) -> Result<Vec<Connection>, OpenError> {
    let path = &fs::canonicalize(path).map_err(io_error(path))?;
    // Reading the header of a file that this process has open would release SQLite's locks on it.
    if !lock::is_open_here(path) && header_of(path).map_err(io_error(path))? != Header::Ours {
        return Err(OpenError::NotOurs { path: path.clone() });
    }
    let sqlite = sqlite_error(path);
    let readers = open_readers(path, readers, None).map_err(&sqlite)?;
    let version = readers.first().map_or(Ok(schema::VERSION), schema::version).map_err(&sqlite)?;
    let is_marked = || readers.first().map_or(Ok(false), transfer::is_marked).map_err(&sqlite);
    match version.cmp(&schema::VERSION) {
        Ordering::Less | Ordering::Equal if is_marked()? => Err(OpenError::Migrating { path: path.clone() }),
        Ordering::Less => Err(OpenError::Older { path: path.clone(), version, known: schema::VERSION }),
        Ordering::Equal => Ok(readers),
        Ordering::Greater => Err(OpenError::Newer { path: path.clone(), version, known: schema::VERSION }),
    }
}

fn io_error(path: &Path) -> impl Fn(io::Error) -> OpenError {
    move |source| OpenError::Io { path: path.to_owned(), source }
}

fn sqlite_error(path: &Path) -> impl Fn(rusqlite::Error) -> OpenError {
    move |source| OpenError::Sqlite { path: path.to_owned(), source }
}

/// Takes the file's lock and creates the file if it does not exist; refuses a file that is not ours.
fn settle(path: &Path) -> Result<Lock, OpenError> {
    if lock::is_open_here(path) {
        return Err(OpenError::InUse { path: path.to_owned(), pid: Some(std::process::id()) });
    }
    let header = header_of(path).map_err(io_error(path))?;
    if header == Header::Foreign {
        return Err(OpenError::NotOurs { path: path.to_owned() });
    }
    let lock = Lock::take(&lock::path_of(path)).map_err(|refused| match refused {
        Refused::Held(pid) => OpenError::InUse { path: path.to_owned(), pid },
        Refused::Io(source) => OpenError::Io { path: lock::path_of(path), source },
    })?;
    if header == Header::New {
        make_private(path).and_then(|()| sync_directory(path)).map_err(io_error(path))?;
    }
    Ok(lock)
}

/// Returns the canonical path of the file, so that two names for it (a link, a relative path) find the same lock.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    make_directories(directory)?;
    match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidFilename))?;
            Ok(fs::canonicalize(directory)?.join(name))
        }
        found => found,
    }
}

/// Rewrites the write-ahead log in place and syncs it together with its directory entry. If there is no log, syncs that
/// fact.
///
/// A process that ended after a failed sync may leave pages that the system shows but the disk does not have, and
/// another sync does not write them again. SQLite treats them as written: it copies them into the database, and later
/// commits build on them. A power loss would then corrupt both.
///
/// Moreover, SQLite deletes the log when it closes, without syncing the deletion. A power loss could then bring back a
/// log with unacknowledged writes, although this opening found none.
fn settle_log(path: &Path) -> io::Result<()> {
    let mut log = match fs::OpenOptions::new().read(true).write(true).open(lock::beside(path, "-wal")) {
        Ok(log) => log,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return sync_directory(path),
        Err(error) => return Err(error),
    };
    let mut part = vec![0; 1024 * 1024];
    let mut at = 0;
    loop {
        log.seek(SeekFrom::Start(at))?;
        let count = log.read(&mut part)?;
        if count == 0 {
            log.sync_all()?;
            return sync_directory(path);
        }
        log.seek(SeekFrom::Start(at))?;
        log.write_all(&part[..count])?;
        at += count as u64;
    }
}

/// Creates a directory and its parents, accessible only to its owner, and makes each durable: a file is lost with its
/// directory.
fn make_directories(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    if let Some(above) = directory.parent().filter(|above| !above.as_os_str().is_empty()) {
        make_directories(above)?;
    }
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)?;
    sync_directory(directory)
}

/// Makes the directory entry of `path` durable.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Other systems cannot open a directory, and it need not be synced there.
    if cfg!(unix) { File::open(directory)?.sync_all() } else { Ok(()) }
}

/// The kind of a file, from its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Header {
    /// Missing or empty.
    New,
    Ours,
    Foreign,
}

/// Reads the header with plain file calls, because SQLite would create files beside a foreign database just by opening
/// it.
fn header_of(path: &Path) -> io::Result<Header> {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    match File::open(path) {
        Ok(file) => file.take(HEADER_BYTES as u64).read_to_end(&mut header)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Header::New),
        Err(error) => return Err(error),
    };
    let ours = header.starts_with(b"SQLite format 3\0") && header.ends_with(&schema::APPLICATION_ID.to_be_bytes());
    Ok(match header.len() {
        0 => Header::New,
        HEADER_BYTES if ours => Header::Ours,
        _ => Header::Foreign,
    })
}

/// Makes the file readable only by its owner, and creates it if it does not exist, because it holds users' messages.
/// SQLite gives its companion files the same mode. The mode of another user's file cannot be changed; the operator gets
/// a log line about that.
pub(super) fn make_private(path: &Path) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = file.metadata()?.permissions().mode() & 0o777;
        if mode & 0o077 != 0
            && let Err(error) = file.set_permissions(fs::Permissions::from_mode(0o600))
        {
            tracing::warn!(%error, mode = format!("{mode:o}"), "other users of this machine can open the database's file");
        }
    }
    drop(file);
    Ok(())
}

/// Connects without SQLite's own mutex, because only one thread at a time uses each connection.
fn connect(path: &Path, mode: OpenFlags, vfs: Option<&str>) -> rusqlite::Result<Connection> {
    let flags = mode | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = match vfs {
        None => Connection::open_with_flags(path, flags)?,
        Some(vfs) => Connection::open_with_flags_and_vfs(path, flags, vfs)?,
    };
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

fn open_readers(path: &Path, readers: usize, vfs: Option<&str>) -> rusqlite::Result<Vec<Connection>> {
    (0..readers).map(|_| connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY, vfs)).collect()
}

/// FULL syncs the WAL at each commit; NORMAL loses the last commits in a power loss.
pub(super) const SYNCED: &str = "FULL";

/// The size of a page of a new file. Files of older versions keep theirs, 8 KiB.
pub(super) const FILE_PAGE_BYTES: i64 = 4096;

/// Brings the file and the connection into their working state. Returns what was found.
fn prepare(writer: &mut Connection, lock: Option<&Lock>) -> rusqlite::Result<Found> {
    // Makes everything read now durable before anything builds on it (see `settle_log`). After this the log starts
    // empty. (A reader of the file may prevent it; then it happens later.)
    if checkpoint::copy_back(writer, lock)? {
        to_the_end(writer, "PRAGMA wal_checkpoint(TRUNCATE)")?;
    }
    // Sessions that append at once change a page of each index for each of them, so small pages halve what a group
    // writes. The size can only be set before the first table is created.
    writer.pragma_update(None, "page_size", FILE_PAGE_BYTES)?;
    // Statement journals hold users' messages too, and stay in memory. Both are set before a migration drops tables.
    writer.pragma_update(None, "temp_store", "MEMORY")?;
    // This overwrites deleted data: a page that SQLite only marks as free would keep users' messages.
    writer.pragma_update(None, "secure_delete", true)?;
    // SQLite's automatic copying of the log hides a sync that fails, so what a migration wrote is copied here.
    writer.pragma_update(None, "wal_autocheckpoint", 0)?;
    schema::migrate(writer)?;
    checkpoint::copy_back(writer, lock)?;
    // This happens before the switch to WAL: reading after it would create a log beside a new file.
    let found = Found { has_deletions: removal::next(writer, 0)?.is_some(), is_marked: transfer::is_marked(writer)? };
    // The pragma returns the requested mode before the switch is done; only running it to the end shows whether it
    // succeeded.
    to_the_end(writer, "PRAGMA journal_mode = WAL")?;
    let mode = to_the_end(writer, "PRAGMA journal_mode")?;
    if mode != "wal" {
        let message = format!("the database remains in journal mode `{mode}`; it must be `wal`");
        return Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR), Some(message)));
    }
    writer.pragma_update(None, "synchronous", SYNCED)?;
    // The unit is KiB. A group changes one leaf of each index for each of its sessions.
    writer.pragma_update(None, "cache_size", -16 * 1024)?;
    Ok(found)
}

/// Runs a pragma to its end and returns the first column of its last row as text. The convenience functions of rusqlite
/// stop at the first row and would miss a later failure, such as that of a commit.
pub(super) fn to_the_end(connection: &Connection, pragma: &str) -> rusqlite::Result<String> {
    let mut statement = connection.prepare(pragma)?;
    let mut rows = statement.query([])?;
    let mut answer = String::new();
    while let Some(row) = rows.next()? {
        answer = match row.get_ref(0)? {
            ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
            ValueRef::Integer(number) => number.to_string(),
            _ => String::new(),
        };
    }
    Ok(answer)
}
