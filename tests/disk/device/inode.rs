//! A file on the disk: its content, the changes since the last sync, and what a power loss leaves of them.

/// The size of an atomic write.
const SECTOR: usize = 512;

/// The fate of unsynced data on a power loss.
#[derive(Debug, Clone, Copy)]
enum Loss {
    All,
    Nothing,
    /// Writes are kept in their order up to one, which is torn.
    Tail,
    /// Each sector independently.
    Scattered,
}

/// A change to a file's content.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Write { offset: usize, data: Vec<u8> },
    Truncate(usize),
}

impl Change {
    fn sectors(&self, len: usize) -> std::ops::Range<usize> {
        match self {
            Self::Write { offset, data } => offset / SECTOR..(offset + data.len()).div_ceil(SECTOR),
            Self::Truncate(to) => to / SECTOR..len.div_ceil(SECTOR),
        }
    }

    /// Applies the part of it that lies within `range`, in a file that is long enough.
    pub(super) fn apply(&self, file: &mut [u8], range: std::ops::Range<usize>) {
        match self {
            Self::Write { offset, data } => {
                let (from, to) = (range.start.max(*offset), range.end.min(offset + data.len()));
                if from < to {
                    file[from..to].copy_from_slice(&data[from - offset..to - offset]);
                }
            }
            Self::Truncate(to) => {
                let from = range.start.max(*to);
                if from < range.end {
                    file[from..range.end].fill(0);
                }
            }
        }
    }

    pub(super) fn len_after(&self, len: usize) -> usize {
        match self {
            Self::Write { offset, data } => len.max(offset + data.len()),
            Self::Truncate(to) => *to,
        }
    }
}

/// A file: what is read, and what the disk has.
#[derive(Debug, Default, Clone)]
pub(super) struct Inode {
    /// The content on the disk.
    pub(super) durable: Vec<u8>,
    /// The content that is read.
    pub(super) current: Vec<u8>,
    /// The changes from the one to the other, except for what a failed sync lost.
    pub(super) pending: Vec<Change>,
}

impl Inode {
    /// Returns the content of the disk after a power loss.
    pub(super) fn survivor(&self, random: &mut fastrand::Rng) -> Vec<u8> {
        let loss = match random.u32(0..8) {
            0 => Loss::All,
            1 => Loss::Nothing,
            2..5 => Loss::Tail,
            _ => Loss::Scattered,
        };
        let count = self.pending.len();
        let longest = self.pending.iter().fold(self.durable.len(), |longest, change| longest.max(change.len_after(0)));
        let torn = random.usize(0..=count);
        let keeps = |random: &mut fastrand::Rng| match loss {
            Loss::All => 0,
            Loss::Nothing => count,
            Loss::Tail => torn + usize::from(torn < count && random.bool()),
            Loss::Scattered => random.usize(0..=count),
        };
        let kept: Vec<usize> = (0..longest.div_ceil(SECTOR)).map(|_| keeps(random)).collect();
        let mut file = self.durable.clone();
        file.resize(longest, 0);
        let mut len = self.durable.len();
        let len_kept = keeps(random);
        for (at, change) in self.pending.iter().enumerate() {
            // A truncation changes the size, and what lies beyond goes with it: a file that kept its size has no holes.
            let is_size = matches!(change, Change::Truncate(_));
            for sector in change.sectors(longest) {
                if at < if is_size { len_kept } else { kept[sector] } {
                    change.apply(&mut file, sector * SECTOR..((sector + 1) * SECTOR).min(longest));
                }
            }
            if at < len_kept {
                len = change.len_after(len);
            }
        }
        file.truncate(len);
        file
    }
}
