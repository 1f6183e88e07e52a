//! The disk as SQLite's operating system: a VFS that is registered once and finds a disk by the first part of a path.
#![expect(unsafe_code, reason = "SQLite calls an operating system through C functions")]

use super::{
    device::{Disk, Failure},
    locks::Level,
};
use reseed::store::sqlite::Vfs;
use rusqlite::ffi;
use std::{
    collections::BTreeMap,
    ffi::{CStr, c_char, c_int, c_void},
    io, ptr,
    sync::{Arc, Mutex, Once, PoisonError, atomic},
};

/// The VFS's name in SQLite.
const NAME: &str = "reseed-disk";
const C_NAME: &CStr = c"reseed-disk";

/// The longest path.
const PATH_BYTES_MAX: c_int = 200;

static DISKS: Mutex<BTreeMap<String, Arc<Disk>>> = Mutex::new(BTreeMap::new());

/// A disk mounted under a name, until dropped.
pub(crate) struct Mounted(String, Arc<Disk>);

impl Mounted {
    /// Mounts the files of `disk` at `/name/…`.
    pub(crate) fn new(name: String, disk: Arc<Disk>) -> Self {
        register();
        let before = DISKS.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), disk.clone());
        assert!(before.is_none(), "a disk `{name}` is mounted already");
        Self(name, disk)
    }

    /// Returns the path of the database on it.
    pub(crate) fn database(&self) -> std::path::PathBuf {
        format!("/{}/reseed.db", self.0).into()
    }
}

impl Mounted {
    /// Returns the VFS with which the store opens it.
    pub(crate) fn vfs(&self) -> Vfs {
        let (disk, log) = (self.1.clone(), format!("/{}/reseed.db-wal", self.0));
        let settle_log = move || disk.rewrite(&log).map_err(|_| io::Error::other("the disk fails"));
        Vfs { name: NAME.to_owned(), settle_log: Box::new(settle_log) }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        DISKS.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

/// Returns the disk of a path, and the path.
fn find(path: *const c_char) -> Option<(Arc<Disk>, String)> {
    if path.is_null() {
        return None;
    }
    // SAFETY: SQLite's names end with a zero byte and live as long as the call.
    let path = unsafe { CStr::from_ptr(path) }.to_str().ok()?;
    let disk = path.strip_prefix('/')?.split('/').next()?;
    let disk = DISKS.lock().unwrap_or_else(PoisonError::into_inner).get(disk)?.clone();
    Some((disk, path.to_owned()))
}

/// An open file.
struct Open {
    disk: Arc<Disk>,
    name: String,
    inode: u64,
    level: Level,
    /// The file uses shared memory.
    maps: bool,
    delete_on_close: bool,
    /// Its first sync includes the directory: so does the system's VFS for logs and journals that it may create.
    syncs_directory: bool,
}

/// SQLite's handle; `base` first, since SQLite sees only that.
#[repr(C)]
struct Handle {
    base: ffi::sqlite3_file,
    open: *mut Open,
}

/// Returns the file behind a handle.
///
/// # Safety
/// `file` was opened by [`open`] and not closed; SQLite uses one from one thread at a time.
unsafe fn opened<'a>(file: *mut ffi::sqlite3_file) -> &'a mut Open {
    unsafe { &mut *(*file.cast::<Handle>()).open }
}

fn code(result: Result<(), Failure>, io: c_int) -> c_int {
    match result {
        Ok(()) => ffi::SQLITE_OK,
        Err(Failure::Io) => io,
        Err(Failure::Full) => ffi::SQLITE_FULL,
    }
}

fn size(number: impl TryInto<usize>) -> usize {
    number.try_into().unwrap_or(0)
}

unsafe extern "C" fn open(
    _vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite gives `szOsFile` bytes; a null `pMethods` tells it that there is nothing to close.
    unsafe { (*file).pMethods = ptr::null() };
    let Some((disk, path)) = find(name) else { return ffi::SQLITE_CANTOPEN };
    let mut state = disk.state();
    let inode = match state.open(&path, flags & ffi::SQLITE_OPEN_CREATE != 0) {
        Ok(Some(inode)) => inode,
        Ok(None) => return ffi::SQLITE_CANTOPEN,
        Err(_) => return ffi::SQLITE_IOERR,
    };
    state.locks.opened(inode);
    drop(state);
    let delete_on_close = flags & ffi::SQLITE_OPEN_DELETEONCLOSE != 0;
    let is_beside = path.ends_with("-wal") || path.ends_with("-journal");
    let syncs_directory = is_beside && flags & ffi::SQLITE_OPEN_CREATE != 0;
    let open = Open { disk, name: path, inode, level: Level::None, maps: false, delete_on_close, syncs_directory };
    // SAFETY: as above; the box is taken back by `close`.
    unsafe {
        (*file.cast::<Handle>()).open = Box::into_raw(Box::new(open));
        (*file).pMethods = &raw const METHODS;
        if !out_flags.is_null() {
            *out_flags = flags;
        }
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: made by `open`, closed once.
    let open = unsafe { Box::from_raw((*file.cast::<Handle>()).open) };
    let mut state = open.disk.state();
    state.locks.closed(open.inode, open.level);
    if open.delete_on_close {
        // SQLite does not ask for the result of the deletion.
        let _ = state.delete(&open.name, false);
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(file: *mut ffi::sqlite3_file, into: *mut c_void, count: c_int, at: i64) -> c_int {
    // SAFETY: `into` has room for `count` bytes.
    let (open, into) = unsafe { (opened(file), std::slice::from_raw_parts_mut(into.cast::<u8>(), size(count))) };
    match open.disk.state().read(open.inode, size(at), into) {
        Ok(read) if read == into.len() => ffi::SQLITE_OK,
        Ok(read) => {
            into[read..].fill(0);
            ffi::SQLITE_IOERR_SHORT_READ
        }
        Err(_) => ffi::SQLITE_IOERR_READ,
    }
}

unsafe extern "C" fn write(file: *mut ffi::sqlite3_file, from: *const c_void, count: c_int, at: i64) -> c_int {
    // SAFETY: `from` has `count` bytes.
    let (open, from) = unsafe { (opened(file), std::slice::from_raw_parts(from.cast::<u8>(), size(count))) };
    let done = open.disk.state().write(open.inode, size(at), from);
    code(done, ffi::SQLITE_IOERR_WRITE)
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, len: i64) -> c_int {
    // SAFETY: see `opened`; so below.
    let open = unsafe { opened(file) };
    let done = open.disk.state().truncate(open.inode, size(len));
    code(done, ffi::SQLITE_IOERR_TRUNCATE)
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    let open = unsafe { opened(file) };
    let done = open.disk.state().sync(open.inode, &open.name, open.syncs_directory);
    open.syncs_directory &= done.is_err();
    code(done, ffi::SQLITE_IOERR_FSYNC)
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, out: *mut i64) -> c_int {
    let open = unsafe { opened(file) };
    // SAFETY: `out` is SQLite's.
    unsafe { *out = i64::try_from(open.disk.state().len(open.inode)).unwrap_or(i64::MAX) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    let open = unsafe { opened(file) };
    let wanted = Level::from(level);
    if open.level < wanted {
        open.level = open.disk.state().locks.lock(open.inode, open.level, wanted);
    }
    if open.level >= wanted { ffi::SQLITE_OK } else { ffi::SQLITE_BUSY }
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    let open = unsafe { opened(file) };
    let wanted = Level::from(level);
    if open.level > wanted {
        open.disk.state().locks.unlock(open.inode, open.level, wanted);
        open.level = wanted;
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved(file: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    let open = unsafe { opened(file) };
    // SAFETY: `out` is SQLite's.
    unsafe { *out = open.disk.state().locks.is_reserved(open.inode).into() };
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(_file: *mut ffi::sqlite3_file, _op: c_int, _argument: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

/// Matches the system's own VFS.
unsafe extern "C" fn sector_size(_file: *mut ffi::sqlite3_file) -> c_int {
    4096
}

/// Matches the system's own VFS: a write does not touch neighbouring bytes.
unsafe extern "C" fn characteristics(_file: *mut ffi::sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    _bytes: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    let open = unsafe { opened(file) };
    let first = !std::mem::replace(&mut open.maps, true);
    let found = open.disk.state().locks.region(open.inode, size(region), extend != 0, first);
    // SAFETY: `out` is SQLite's. What it points to stays until this file has left the memory.
    unsafe { *out = found.map_or(ptr::null_mut(), |region| region.cast_mut().cast()) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn shm_lock(file: *mut ffi::sqlite3_file, first: c_int, count: c_int, flags: c_int) -> c_int {
    let open = unsafe { opened(file) };
    let exclusive = flags & ffi::SQLITE_SHM_EXCLUSIVE != 0;
    let slots = size(first)..size(first) + size(count);
    if flags & ffi::SQLITE_SHM_UNLOCK != 0 {
        open.disk.state().locks.unlock_slots(open.inode, slots, exclusive);
        return ffi::SQLITE_OK;
    }
    // The first slot, taken alone, is the writer's.
    if exclusive && slots == (0..1) {
        open.disk.pass_gate();
    }
    let had = open.disk.state().locks.lock_slots(open.inode, slots, exclusive);
    if had { ffi::SQLITE_OK } else { ffi::SQLITE_BUSY }
}

unsafe extern "C" fn shm_barrier(_file: *mut ffi::sqlite3_file) {
    atomic::fence(atomic::Ordering::SeqCst);
}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, _delete: c_int) -> c_int {
    let open = unsafe { opened(file) };
    if std::mem::take(&mut open.maps) {
        open.disk.state().locks.leave_memory(open.inode);
    }
    ffi::SQLITE_OK
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

unsafe extern "C" fn delete(_vfs: *mut ffi::sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    let Some((disk, path)) = find(name) else { return ffi::SQLITE_IOERR_DELETE };
    match disk.state().delete(&path, sync != 0) {
        Ok(true) => ffi::SQLITE_OK,
        Ok(false) => ffi::SQLITE_IOERR_DELETE_NOENT,
        Err(_) => ffi::SQLITE_IOERR_DELETE,
    }
}

unsafe extern "C" fn access(_vfs: *mut ffi::sqlite3_vfs, name: *const c_char, _flags: c_int, out: *mut c_int) -> c_int {
    let exists = find(name).is_some_and(|(disk, path)| disk.state().exists(&path));
    // SAFETY: `out` is SQLite's.
    unsafe { *out = exists.into() };
    ffi::SQLITE_OK
}

unsafe extern "C" fn full_path(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    room: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: the name ends with a zero byte, and `out` has `room` bytes.
    unsafe {
        let bytes = CStr::from_ptr(name).to_bytes_with_nul();
        if bytes.len() > size(room) {
            return ffi::SQLITE_CANTOPEN;
        }
        ptr::copy_nonoverlapping(bytes.as_ptr(), out.cast(), bytes.len());
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn randomness(_vfs: *mut ffi::sqlite3_vfs, count: c_int, out: *mut c_char) -> c_int {
    // SAFETY: `out` has `count` bytes.
    unsafe { std::slice::from_raw_parts_mut(out.cast::<u8>(), size(count)) }.fill(7);
    count
}

/// Nothing that is waited for here needs time.
unsafe extern "C" fn sleep(_vfs: *mut ffi::sqlite3_vfs, microseconds: c_int) -> c_int {
    std::thread::yield_now();
    microseconds
}

unsafe extern "C" fn current_time(_vfs: *mut ffi::sqlite3_vfs, out: *mut f64) -> c_int {
    // SAFETY: `out` is SQLite's. A day in 2026.
    unsafe { *out = 2_461_000.5 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn last_error(_vfs: *mut ffi::sqlite3_vfs, _room: c_int, _out: *mut c_char) -> c_int {
    ffi::SQLITE_OK
}

fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let vfs = ffi::sqlite3_vfs {
            iVersion: 1,
            szOsFile: size_of::<Handle>() as c_int,
            mxPathname: PATH_BYTES_MAX,
            pNext: ptr::null_mut(),
            zName: C_NAME.as_ptr(),
            pAppData: ptr::null_mut(),
            xOpen: Some(open),
            xDelete: Some(delete),
            xAccess: Some(access),
            xFullPathname: Some(full_path),
            xDlOpen: None,
            xDlError: None,
            xDlSym: None,
            xDlClose: None,
            xRandomness: Some(randomness),
            xSleep: Some(sleep),
            xCurrentTime: Some(current_time),
            xGetLastError: Some(last_error),
            xCurrentTimeInt64: None,
            xSetSystemCall: None,
            xGetSystemCall: None,
            xNextSystemCall: None,
        };
        // SAFETY: registered once and never freed, as SQLite asks; not made the default.
        let registered = unsafe { ffi::sqlite3_vfs_register(Box::into_raw(Box::new(vfs)), 0) };
        assert_eq!(registered, ffi::SQLITE_OK);
    });
}
