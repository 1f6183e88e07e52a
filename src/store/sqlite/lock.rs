//! One process per file: a lock beside the database, held as long as the store is open.
//!
//! The operating system drops the lock when the process ends, however it ends; the file stays and says nothing by itself.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

/// Longest process id read from a lock file, in bytes; a decimal `u32` has at most 10.
const PID_BYTES_MAX: u64 = 10;

/// The lock; dropping it lets the next process in.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

/// Why the lock was not had.
#[derive(Debug)]
pub(super) enum Refused {
    /// Another holds it: the process id that it wrote down, if it can be read.
    Held(Option<u32>),
    Io(io::Error),
}

/// Where the lock of a database lies.
pub(super) fn path_of(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

impl Lock {
    /// Takes the lock at `path`, or says who has it. Does not wait.
    pub(super) fn take(path: &Path) -> Result<Self, Refused> {
        // Not truncated on opening: the id of the process that holds it stands inside.
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = open.map_err(Refused::Io)?;
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
        Ok(Self { _file: file })
    }
}
