//! SQLite's file locks and the shared memory of its write-ahead log, for connections of one process.

use std::{collections::BTreeMap, sync::atomic::AtomicU64};

/// Words of a region of shared memory: 32 KiB.
const REGION_WORDS: usize = 4096;

/// Lock slots in shared memory.
const SLOTS: usize = 8;

/// The level of a connection's lock on a file, in SQLite's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Level {
    #[default]
    None,
    Shared,
    Reserved,
    Pending,
    Exclusive,
}

impl From<i32> for Level {
    fn from(level: i32) -> Self {
        match level {
            0 => Self::None,
            1 => Self::Shared,
            2 => Self::Reserved,
            3 => Self::Pending,
            _ => Self::Exclusive,
        }
    }
}

#[derive(Debug, Default)]
struct OfFile {
    opened: u32,
    shared: u32,
    reserved: bool,
    pending: bool,
    exclusive: bool,
}

#[derive(Default)]
struct Memory {
    users: u32,
    regions: Vec<Box<[AtomicU64]>>,
    shared: [u32; SLOTS],
    exclusive: [bool; SLOTS],
}

/// All locks of a disk.
#[derive(Default)]
pub(crate) struct Locks {
    files: BTreeMap<u64, OfFile>,
    memories: BTreeMap<u64, Memory>,
}

impl Locks {
    /// Returns true if nothing is open.
    pub(crate) fn is_free(&self) -> bool {
        self.files.values().all(|file| file.opened == 0)
    }

    pub(crate) fn opened(&mut self, inode: u64) {
        self.files.entry(inode).or_default().opened += 1;
    }

    pub(crate) fn closed(&mut self, inode: u64, level: Level) {
        self.unlock(inode, level, Level::None);
        self.files.entry(inode).or_default().opened -= 1;
    }

    /// Raises a level; returns the level reached, which is not `to` if another connection is in the way.
    pub(crate) fn lock(&mut self, inode: u64, from: Level, to: Level) -> Level {
        let file = self.files.entry(inode).or_default();
        let mut level = from;
        if level == Level::None && to >= Level::Shared {
            if file.pending || file.exclusive {
                return level;
            }
            file.shared += 1;
            level = Level::Shared;
        }
        if level == Level::Shared && to >= Level::Reserved {
            if file.reserved {
                return level;
            }
            file.reserved = true;
            level = Level::Reserved;
        }
        if level >= Level::Reserved && to == Level::Exclusive {
            file.pending = true;
            level = Level::Pending;
            if file.shared > 1 {
                return level;
            }
            file.exclusive = true;
            level = Level::Exclusive;
        }
        level
    }

    pub(crate) fn unlock(&mut self, inode: u64, from: Level, to: Level) {
        let file = self.files.entry(inode).or_default();
        if from >= Level::Reserved && to < Level::Reserved {
            (file.reserved, file.pending, file.exclusive) = (false, false, false);
        }
        if from >= Level::Shared && to == Level::None {
            file.shared -= 1;
        }
    }

    pub(crate) fn is_reserved(&self, inode: u64) -> bool {
        self.files.get(&inode).is_some_and(|file| file.reserved)
    }

    /// Returns a region of the memory shared by all connections to the file; `None` if it does not exist and is not to
    /// be created. Its address is stable until the last user has left.
    pub(crate) fn region(&mut self, inode: u64, at: usize, make: bool, first: bool) -> Option<*const AtomicU64> {
        let memory = self.memories.entry(inode).or_default();
        memory.users += u32::from(first);
        while memory.regions.len() <= at {
            if !make {
                return None;
            }
            memory.regions.push((0..REGION_WORDS).map(|_| AtomicU64::new(0)).collect());
        }
        Some(memory.regions[at].as_ptr())
    }

    pub(crate) fn leave_memory(&mut self, inode: u64) {
        if let Some(memory) = self.memories.get_mut(&inode) {
            memory.users -= 1;
            if memory.users == 0 {
                self.memories.remove(&inode);
            }
        }
    }

    /// Takes lock slots in the shared memory; returns `false` if another connection has one of them.
    pub(crate) fn lock_slots(&mut self, inode: u64, slots: std::ops::Range<usize>, exclusive: bool) -> bool {
        let memory = self.memories.entry(inode).or_default();
        let is_free = |slot: usize| !(memory.exclusive[slot] || exclusive && memory.shared[slot] > 0);
        if !slots.clone().all(is_free) {
            return false;
        }
        for slot in slots {
            if exclusive {
                memory.exclusive[slot] = true;
            } else {
                memory.shared[slot] += 1;
            }
        }
        true
    }

    pub(crate) fn unlock_slots(&mut self, inode: u64, slots: std::ops::Range<usize>, exclusive: bool) {
        let Some(memory) = self.memories.get_mut(&inode) else { return };
        for slot in slots {
            if exclusive {
                memory.exclusive[slot] = false;
            } else {
                memory.shared[slot] -= 1;
            }
        }
    }
}
