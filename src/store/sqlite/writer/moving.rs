//! When new rows are moved from their stage to their places (see `staging.rs`): a portion for every few hundred rows
//! that are written, so that a stage is empty before the other one is full, and all that is left when the store closes.

use super::{
    super::staging::{Move, Staged, Turn},
    Thread,
    job::Size,
};
use crate::store::Error;
use std::time::{Duration, Instant};

/// Rows written, and bytes of their text, after which a portion is moved: each costs a commit of its own.
const WRITTEN_ROWS: u64 = 256;
const WRITTEN_BYTES: u64 = 256 * 1024;

/// Rows of a portion, which ends with all rows of a session. Twice what was written since the last one, so that a stage
/// is empty long before the other one is full.
const PORTION_ROWS: u64 = 2 * WRITTEN_ROWS;

/// Rows moved for each row written, if a group wrote more than usual.
const MOVED_PER_WRITTEN: u64 = 2;

/// The time after which a step that failed is tried again. Until then rows stay where they are found as well, only
/// slower to write.
const RETRY: Duration = Duration::from_secs(60);

/// The time for which closing the store moves what is left; the next start finds the rest.
const END_WITHIN: Duration = Duration::from_secs(2);

/// Knows what is to be moved, and when.
pub(super) struct Moving {
    staged: Staged,
    /// Counts what was written since the last portion.
    written: Size,
    /// The time from which a step may run.
    at: Instant,
}

impl Moving {
    pub(super) fn new(staged: Staged) -> Self {
        Self { staged, written: Size::default(), at: Instant::now() }
    }

    /// Counts the rows that were written to the stage.
    pub(super) fn add(&mut self, Size { records, bytes }: Size) {
        self.staged.add(records, bytes);
        self.written.records += records;
        self.written.bytes += bytes;
    }
}

impl Thread {
    /// Moves a portion, or makes the stages change places, if it is time for that.
    pub(super) fn move_when_due(&mut self) {
        if !self.may_move() {
            return;
        }
        let Size { records, bytes } = self.moving.written;
        if self.moving.staged.is_moving && (records >= WRITTEN_ROWS || bytes >= WRITTEN_BYTES) {
            self.moving.written = Size::default();
            // A group has 1,024 appends at most, and most of them one record; what was written while moving was put off
            // does not count.
            let rows = (records * MOVED_PER_WRITTEN).clamp(PORTION_ROWS, 4 * PORTION_ROWS);
            let moved = self.move_rows(rows);
            self.put_off_if_failed(moved);
            self.checkpoint_when_due();
        }
        if self.moving.staged.is_full() {
            let turned = self.turn();
            self.put_off_if_failed(turned);
        }
    }

    /// Moves all rows to their places, if that does not take long and nothing fails.
    pub(super) fn move_at_the_end(&mut self) {
        let until = Instant::now() + END_WITHIN;
        while !self.moving.staged.is_empty() && self.may_move() && Instant::now() < until {
            let done = if self.moving.staged.is_moving { self.move_rows(PORTION_ROWS) } else { self.turn() };
            if let Err(error) = done {
                tracing::warn!(%error, "some rows stay where they were written; the next start goes on");
                break;
            }
        }
    }

    /// Returns true unless a step has just failed, or nothing is written any more.
    fn may_move(&self) -> bool {
        self.moving.at <= Instant::now() && self.health.failure().is_none() && !self.reserve.is_spent()
    }

    fn put_off_if_failed(&mut self, step: Result<(), Error>) {
        let Err(error) = step else { return };
        self.moving.at = Instant::now() + RETRY;
        // One by one, the sessions before the one at fault are moved, and that one can be named.
        for _ in 0..PORTION_ROWS {
            if !self.moving.staged.is_moving || self.move_rows(1).is_err() {
                break;
            }
        }
        let session = self.moving.staged.written.other().next_session(&self.db);
        tracing::error!(
            %error,
            session,
            "new rows could not be moved to their places: nothing is lost, but writing becomes slower. It is tried \
             again; if a page is damaged, delete this session, or restore a backup"
        );
    }

    /// Moves about this many rows.
    fn move_rows(&mut self, rows: u64) -> Result<(), Error> {
        let is_empty = self.write_own(Move { stage: self.moving.staged.written.other(), rows })?;
        self.moving.staged.is_moving = !is_empty;
        Ok(())
    }

    /// Makes the empty stage the one that takes new rows, so that those of the other can be moved.
    fn turn(&mut self) -> Result<(), Error> {
        self.write_own(Turn(self.moving.staged.written.other()))?;
        self.moving.staged.turned();
        self.moving.written = Size::default();
        Ok(())
    }
}
