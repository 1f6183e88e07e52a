//! From a path to open connections: whose file it is, who else has it, which version it is.
//!
//! Until all of that is settled nothing is written, so a file that is refused stays as it was.

use super::{
    CommitStats,
    lock::{self, Lock, Refused},
    schema,
};
use rusqlite::{Connection, OpenFlags, ffi, types::ValueRef};
use std::{
    cmp::Ordering,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
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
    /// The file was written by an older program, and is only to be read. It was not touched.
    #[error(
        "the database `{}` has version {version}, this program reads version {known}: start the server on it once, \
         which brings it up",
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

/// How a database is opened.
pub struct Options {
    /// Told of each commit before its writes are answered, on the writer's thread: it must be quick.
    pub observer: Box<dyn Fn(CommitStats) + Send>,
    /// Pages of the write-ahead log at which it is copied back.
    pub checkpoint_pages: u32,
    /// Where the file is, if it is no file of the system: for tests of what a disk may do. The path is then a name there,
    /// no file of the system is touched, and no lock kept.
    pub vfs: Option<Vfs>,
}

/// A VFS that is registered with SQLite.
pub struct Vfs {
    /// Its name.
    pub name: String,
    /// What [`settle_log`] does to files of the system.
    pub settle_log: Box<dyn Fn() -> io::Result<()>>,
}

impl Default for Options {
    fn default() -> Self {
        // 32 MB: with SQLite's own 1,000 a busy writer spends its time copying the log back.
        Self { observer: Box::new(|_| {}), checkpoint_pages: 4000, vfs: None }
    }
}

/// What a store works with.
pub(super) struct Opened {
    /// The one connection that writes.
    pub(super) writer: Connection,
    /// The connections that read.
    pub(super) readers: Vec<Connection>,
    pub(super) lock: Option<Lock>,
}

/// Opens the database at `path` with so many readers; makes it, and the directories above it, where there is none.
pub(super) fn open(path: &Path, readers: usize, vfs: Option<&Vfs>) -> Result<Opened, OpenError> {
    let (path, lock) = match vfs {
        None => {
            let path = resolve(path).map_err(io_error(path))?;
            let mut lock = settle(&path)?;
            lock.watch(&path).map_err(io_error(&path))?;
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
    prepare(&mut writer).map_err(&sqlite)?;
    let readers = open_readers(&path, readers, vfs).map_err(&sqlite)?;
    Ok(Opened { writer, readers, lock })
}

/// Opens readers of the database at `path`, which may be open elsewhere. Nothing is made or changed, but for the files
/// beside it in which SQLite keeps who reads.
pub(super) fn open_read_only(path: &Path, readers: usize) -> Result<Vec<Connection>, OpenError> {
    let path = &fs::canonicalize(path).map_err(io_error(path))?;
    if header_of(path).map_err(io_error(path))? != Header::Ours {
        return Err(OpenError::NotOurs { path: path.clone() });
    }
    let sqlite = sqlite_error(path);
    let readers = open_readers(path, readers, None).map_err(&sqlite)?;
    let version = readers.first().map_or(Ok(schema::VERSION), schema::version).map_err(&sqlite)?;
    match version.cmp(&schema::VERSION) {
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

/// Takes the file's lock, and makes it where there is none; refuses one that is something else.
fn settle(path: &Path) -> Result<Lock, OpenError> {
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

/// The one true name of the file, so that two names of it (a link, a relative path) find the same lock.
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

/// Writes the write-ahead log, if there is one, over itself and syncs it.
///
/// A process that ended after a sync that failed may leave pages there that the system shows and the disk does not have,
/// and a further sync does not write them again. SQLite takes them for written: it copies them into the database, and the
/// next commits build on them; when the power goes then, both are torn.
fn settle_log(path: &Path) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    let mut log = match fs::OpenOptions::new().read(true).write(true).open(name) {
        Ok(log) => log,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut part = vec![0; 1024 * 1024];
    let mut at = 0;
    loop {
        log.seek(SeekFrom::Start(at))?;
        let count = log.read(&mut part)?;
        if count == 0 {
            return log.sync_all();
        }
        log.seek(SeekFrom::Start(at))?;
        log.write_all(&part[..count])?;
        at += count as u64;
    }
}

/// Makes a directory and those above it, each durably: a file is lost with a directory that is.
fn make_directories(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    if let Some(above) = directory.parent().filter(|above| !above.as_os_str().is_empty()) {
        make_directories(above)?;
    }
    fs::create_dir_all(directory)?;
    sync_directory(directory)
}

/// Makes it durable that `path` is in its directory.
fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Elsewhere a directory cannot be opened, and is not to be synced.
    if cfg!(unix) { File::open(directory)?.sync_all() } else { Ok(()) }
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Header {
    /// Not there, or empty.
    New,
    Ours,
    Foreign,
}

/// Reads the header with plain file calls: SQLite would already write beside a foreign database when it opens one.
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

/// Makes the file, readable by its owner alone: it holds what people said. SQLite gives the files beside it the same mode.
fn make_private(path: &Path) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

/// No mutex inside SQLite: each connection is used by one thread at a time.
fn connect(path: &Path, mode: OpenFlags, vfs: Option<&str>) -> rusqlite::Result<Connection> {
    let flags = mode | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = match vfs {
        None => Connection::open_with_flags(path, flags)?,
        Some(vfs) => Connection::open_with_flags_and_vfs(path, flags, vfs)?,
    };
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(connection)
}

fn open_readers(path: &Path, readers: usize, vfs: Option<&str>) -> rusqlite::Result<Vec<Connection>> {
    (0..readers).map(|_| connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY, vfs)).collect()
}

fn prepare(writer: &mut Connection) -> rusqlite::Result<()> {
    // So that what is read now is durable before anything builds on it, see `settle_log`: the log begins anew after this.
    // (Someone who looks into the file may be in the way; then it is left for later.)
    to_the_end(writer, "PRAGMA wal_checkpoint(TRUNCATE)")?;
    // Pages of 8 KiB hold a handful of usual bodies without overflow; it works only before the first table is made.
    writer.pragma_update(None, "page_size", 8192)?;
    schema::migrate(writer)?;
    // It answers with the mode that it wants, before that is done; only its end says whether it was.
    to_the_end(writer, "PRAGMA journal_mode = WAL")?;
    let mode = to_the_end(writer, "PRAGMA journal_mode")?;
    if mode != "wal" {
        let message = format!("the database stays in journal mode `{mode}`, it must be in `wal`");
        return Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR), Some(message)));
    }
    // FULL syncs the WAL at each commit; NORMAL is hardly faster and loses the last commits when the power goes.
    writer.pragma_update(None, "synchronous", "FULL")?;
    // In KiB: a group touches a leaf of each index for each of its sessions.
    writer.pragma_update(None, "cache_size", -16 * 1024)?;
    // What is deleted is overwritten: a page that SQLite only marks as free would keep what people said.
    writer.pragma_update(None, "secure_delete", true)
}

/// Runs a pragma to its end and returns the first column of its last row as text. The conveniences of rusqlite stop at the
/// first row, and what fails after that, a commit for instance, is then told to nobody.
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
