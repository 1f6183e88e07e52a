//! A disk in memory that may do to unsynced data whatever a real one may do.
//!
//! Files are written into a cache, as in an operating system. On a power loss, each sector of a file holds any of the
//! versions that it had since the last sync: writes are dropped, reordered and torn. The same holds for sizes, and for
//! names in the directory. After a failed sync the cache shows data that the disk does not have, and a later sync does
//! not repair that.

mod inode;

use inode::{Change, Inode};
use std::{
    collections::BTreeMap,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// A fault, at a writing operation counted from the start of a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The write fails; a part of it may be done.
    Write,
    /// The next sync fails, and what it should have made durable is lost in part.
    Sync,
    /// No file can grow, for this many operations.
    Full(u64),
    /// The next read fails.
    Read,
}

/// Syncs that report success and do nothing: proof that the tests would notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lie {
    None,
    /// For every file.
    Everywhere,
    /// For the write-ahead log.
    Log,
    /// For the database itself.
    Database,
}

#[derive(Debug, Default)]
struct Directory(BTreeMap<String, u64>);

/// The state behind the lock.
pub(crate) struct State {
    random: fastrand::Rng,
    inodes: BTreeMap<u64, Inode>,
    next_inode: u64,
    directory: Directory,
    durable_directory: Directory,
    /// The number of writing operations in this life.
    operations: u64,
    crash_at: Option<u64>,
    faults: BTreeMap<u64, Fault>,
    failing_sync: bool,
    /// The next sync of this file fails.
    failing_sync_of: Option<&'static str>,
    failing_read: bool,
    full_until: u64,
    lie: Lie,
    /// The power, or the process, is gone: every further request fails.
    dead: bool,
    /// Something failed in this life; a sync failed in this life.
    faulted: bool,
    sync_failed: bool,
    /// FNV-1a of everything written, for comparing two runs.
    trace: u64,
    pub(crate) locks: super::locks::Locks,
    gate: Gate,
}

/// The gate at which a test makes the writer wait before it begins a transaction, so that what arrives meanwhile is in
/// the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gate {
    Open,
    Closed,
    Waiting,
}

/// The result of an operation.
pub(crate) type Outcome<T> = Result<T, Failure>;

/// The reason an operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    Io,
    Full,
}

/// The disk.
pub(crate) struct Disk {
    state: Mutex<State>,
    changed: Condvar,
}

impl Disk {
    pub(crate) fn new(seed: u64, lie: Lie) -> Arc<Self> {
        let state = State {
            random: fastrand::Rng::with_seed(seed),
            inodes: BTreeMap::new(),
            next_inode: 1,
            directory: Directory::default(),
            durable_directory: Directory::default(),
            operations: 0,
            crash_at: None,
            faults: BTreeMap::new(),
            failing_sync: false,
            failing_sync_of: None,
            failing_read: false,
            full_until: 0,
            lie,
            dead: false,
            faulted: false,
            sync_failed: false,
            trace: 0xcbf2_9ce4_8422_2325,
            locks: super::locks::Locks::default(),
            gate: Gate::Open,
        };
        Arc::new(Self { state: Mutex::new(state), changed: Condvar::new() })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a life: the power is lost at the `crash_at`-th writing operation, faults happen at others.
    pub(crate) fn begin(&self, crash_at: Option<u64>, faults: impl IntoIterator<Item = (u64, Fault)>) {
        let mut state = self.state();
        assert!(state.locks.is_free(), "something is still open");
        state.operations = 0;
        state.crash_at = crash_at;
        state.faults = faults.into_iter().collect();
        (state.failing_sync, state.failing_read, state.full_until) = (false, false, 0);
        (state.dead, state.faulted, state.sync_failed, state.gate) = (false, false, false, Gate::Open);
    }

    /// Makes the next writing operation fail; a read fault affects the next read.
    pub(crate) fn fail_next(&self, fault: Fault) {
        let mut state = self.state();
        if fault == Fault::Read {
            state.failing_read = true;
        } else {
            let next = state.operations + 1;
            state.faults.insert(next, fault);
        }
    }

    /// Lets files grow again.
    pub(crate) fn make_room(&self) {
        self.state().full_until = 0;
    }

    /// Makes the next sync of a file with this ending fail.
    pub(crate) fn fail_next_sync_of(&self, file: &'static str) {
        self.state().failing_sync_of = Some(file);
    }

    /// Returns true if a failure of the store has a cause.
    pub(crate) fn has_failed(&self) -> bool {
        let state = self.state();
        state.dead || state.faulted
    }

    /// Returns true if a sync failed in this life.
    pub(crate) fn has_failed_to_sync(&self) -> bool {
        self.state().sync_failed
    }

    /// Makes every further operation fail: for the disk, the process is dead.
    pub(crate) fn stop(&self) {
        self.state().dead = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.state().dead
    }

    /// Simulates a power loss: unsynced data is lost in part. Nothing may be open.
    pub(crate) fn lose_power(&self) {
        let mut guard = self.state();
        let state = &mut *guard;
        assert!(state.locks.is_free(), "something is still open");
        let mut names = BTreeMap::new();
        let both = state.directory.0.keys().chain(state.durable_directory.0.keys()).cloned();
        for name in both.collect::<std::collections::BTreeSet<_>>() {
            let new = state.random.bool();
            let directory = if new { &state.directory } else { &state.durable_directory };
            if let Some(inode) = directory.0.get(&name) {
                names.insert(name, *inode);
            }
        }
        state.inodes.retain(|inode, _| names.values().any(|named| named == inode));
        for inode in state.inodes.values_mut() {
            inode.durable = inode.survivor(&mut state.random);
            inode.current.clone_from(&inode.durable);
            inode.pending.clear();
        }
        state.durable_directory = Directory(names.clone());
        state.directory = Directory(names);
    }

    /// Writes a file's visible content over itself and syncs it and all names, so that the disk has what is read.
    pub(crate) fn rewrite(&self, name: &str) -> Outcome<()> {
        let mut state = self.state();
        let Some(inode) = state.open(name, false)? else {
            State::failed_if(state.operate(b"sync directory", [0, 0])?)?;
            if state.lie != Lie::Everywhere {
                state.sync_directory();
            }
            return Ok(());
        };
        let content = state.inodes.get(&inode).map(|inode| inode.current.clone()).unwrap_or_default();
        for (at, part) in content.chunks(64 * 1024).enumerate() {
            state.write(inode, at * 64 * 1024, part)?;
        }
        state.sync(inode, name, true)
    }

    /// Returns a checksum of everything written so far.
    pub(crate) fn trace(&self) -> u64 {
        self.state().trace
    }

    /// Returns the number of writing operations in this life.
    pub(crate) fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Makes the next transaction wait until [`Self::open_gate`].
    pub(crate) fn close_gate(&self) {
        self.state().gate = Gate::Closed;
    }

    /// Waits briefly for the writer to stand at the gate; returns `true` if it does, or never will.
    pub(crate) fn is_at_gate(&self) -> bool {
        let state = self.state();
        let waited = self
            .changed
            .wait_timeout_while(state, Duration::from_micros(200), |state| state.gate == Gate::Closed && !state.dead);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.gate == Gate::Waiting || state.dead
    }

    pub(crate) fn open_gate(&self) {
        self.state().gate = Gate::Open;
        self.changed.notify_all();
    }

    /// The start of a transaction.
    pub(crate) fn pass_gate(&self) {
        let mut state = self.state();
        if state.gate == Gate::Closed {
            state.gate = Gate::Waiting;
            self.changed.notify_all();
        }
        drop(
            self.changed
                .wait_while(state, |state| state.gate != Gate::Open && !state.dead)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }
}

impl State {
    /// Counts a writing operation; returns an error if it is not to be executed, and `true` if it is the last one, and
    /// torn.
    fn operate(&mut self, what: &[u8], numbers: [usize; 2]) -> Outcome<bool> {
        if self.dead {
            return Err(Failure::Io);
        }
        self.operations += 1;
        let numbers = numbers.map(usize::to_le_bytes).concat();
        // A disk is mounted under another name each time.
        let what = what.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        for byte in what.iter().chain(&numbers) {
            self.trace = (self.trace ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        let fault = self.faults.remove(&self.operations);
        self.faulted |= fault.is_some();
        match fault {
            Some(Fault::Write) => return Err(Failure::Io),
            Some(Fault::Sync) => self.failing_sync = true,
            Some(Fault::Read) => self.failing_read = true,
            Some(Fault::Full(operations)) => self.full_until = self.operations + operations,
            None => {}
        }
        let last = self.crash_at == Some(self.operations);
        self.dead |= last;
        Ok(last)
    }

    fn failed_if(last: bool) -> Outcome<()> {
        if last { Err(Failure::Io) } else { Ok(()) }
    }

    /// Opens the file of this name; creates it if `create` is set.
    pub(crate) fn open(&mut self, name: &str, create: bool) -> Outcome<Option<u64>> {
        if self.dead {
            return Err(Failure::Io);
        }
        if let Some(inode) = self.directory.0.get(name) {
            return Ok(Some(*inode));
        }
        if !create {
            return Ok(None);
        }
        Self::failed_if(self.operate(name.as_bytes(), [0, 0])?)?;
        let inode = self.open_nameless();
        self.directory.0.insert(name.to_owned(), inode);
        Ok(Some(inode))
    }

    /// Creates a file that has no name yet.
    fn open_nameless(&mut self) -> u64 {
        let inode = self.next_inode;
        self.next_inode += 1;
        self.inodes.insert(inode, Inode::default());
        inode
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        !self.dead && self.directory.0.contains_key(name)
    }

    pub(crate) fn delete(&mut self, name: &str, sync: bool) -> Outcome<bool> {
        let last = self.operate(name.as_bytes(), [1, 0])?;
        let was_there = self.directory.0.remove(name).is_some();
        if sync && !last && self.lie != Lie::Everywhere {
            self.sync_directory();
        }
        Self::failed_if(last)?;
        Ok(was_there)
    }

    fn sync_directory(&mut self) {
        self.durable_directory = Directory(self.directory.0.clone());
    }

    /// Reads; bytes beyond the end are left untouched. Returns the number of bytes.
    pub(crate) fn read(&mut self, inode: u64, offset: usize, into: &mut [u8]) -> Outcome<usize> {
        if self.dead || std::mem::take(&mut self.failing_read) {
            self.faulted = true;
            return Err(Failure::Io);
        }
        let file = &self.inodes.get(&inode).ok_or(Failure::Io)?.current;
        let there = file.get(offset..).unwrap_or_default();
        let count = there.len().min(into.len());
        into[..count].copy_from_slice(&there[..count]);
        Ok(count)
    }

    pub(crate) fn write(&mut self, inode: u64, offset: usize, data: &[u8]) -> Outcome<()> {
        let len = self.len(inode);
        let tried = self.operate(b"write", [offset, data.len()]);
        let full = self.operations <= self.full_until && offset + data.len() > len;
        let failure = match tried {
            Err(failure) if self.dead => return Err(failure),
            Err(failure) => Some(failure),
            Ok(true) => Some(Failure::Io),
            Ok(false) => full.then_some(Failure::Full),
        };
        // A failing write is done in part.
        let done = if failure.is_some() { self.random.usize(0..=data.len()) } else { data.len() };
        let done = if full { done.min(len.saturating_sub(offset)) } else { done };
        if done > 0 {
            self.change(inode, Change::Write { offset, data: data[..done].to_vec() })?;
        }
        failure.map_or(Ok(()), Err)
    }

    pub(crate) fn truncate(&mut self, inode: u64, len: usize) -> Outcome<()> {
        let last = self.operate(b"truncate", [len, 0])?;
        self.change(inode, Change::Truncate(len))?;
        Self::failed_if(last)
    }

    fn change(&mut self, inode: u64, change: Change) -> Outcome<()> {
        let inode = self.inodes.get_mut(&inode).ok_or(Failure::Io)?;
        let len = change.len_after(inode.current.len());
        inode.current.resize(len.max(inode.current.len()), 0);
        let all = 0..inode.current.len();
        change.apply(&mut inode.current, all);
        inode.current.truncate(len);
        inode.pending.push(change);
        Ok(())
    }

    /// Makes a file durable, and all names if `directory` is set.
    pub(crate) fn sync(&mut self, inode: u64, name: &str, directory: bool) -> Outcome<()> {
        Self::failed_if(self.operate(b"sync", [0, 0])?)?;
        let is_log = name.ends_with("-wal");
        let is_beside = is_log || name.ends_with("-journal");
        let named = self.failing_sync_of.is_some_and(|file| name.ends_with(file));
        if named {
            self.failing_sync_of = None;
        }
        let fails = std::mem::take(&mut self.failing_sync) || named;
        let lies = match self.lie {
            Lie::None => false,
            Lie::Everywhere => true,
            Lie::Log => is_log,
            Lie::Database => !is_beside,
        };
        let found = self.inodes.get_mut(&inode).ok_or(Failure::Io)?;
        if fails {
            found.durable = found.survivor(&mut self.random);
            found.pending.clear();
            self.sync_failed = true;
            return Err(Failure::Io);
        }
        if lies {
            return Ok(());
        }
        if !found.pending.is_empty() {
            // Not simply the visible content: what an earlier failed sync has lost stays lost.
            let longest =
                found.pending.iter().fold(found.durable.len(), |longest, change| longest.max(change.len_after(0)));
            let mut len = found.durable.len();
            found.durable.resize(longest, 0);
            for change in found.pending.drain(..) {
                len = change.len_after(len);
                change.apply(&mut found.durable, 0..longest);
            }
            found.durable.truncate(len);
        }
        if directory {
            self.sync_directory();
        }
        Ok(())
    }

    pub(crate) fn len(&self, inode: u64) -> usize {
        self.inodes.get(&inode).map_or(0, |inode| inode.current.len())
    }
}
