//! Schedules moving new rows from their stage to the main tables (see `staging.rs`). One portion moves for every few
//! hundred written rows, so that a stage is empty before the other one is full. When the store closes, the rest moves.

use super::{
    super::staging::{Move, Staged, Turn},
    Thread,
    job::Size,
};
use crate::Error;
use std::time::{Duration, Instant};

/// The number of written rows, and bytes of their text, after which a portion moves. Each portion costs a commit of its
/// own.
const WRITTEN_ROWS: u64 = 256;
const WRITTEN_BYTES: u64 = 256 * 1024;

/// The number of rows in a portion, which always includes all rows of its last session. It is twice what was written
/// since the last portion, so that a stage is empty long before the other one is full.
const PORTION_ROWS: u64 = 2 * WRITTEN_ROWS;

/// The number of rows moved per written row, if a group wrote more than usual.
const MOVED_PER_WRITTEN: u64 = 2;

/// The time before a failed step is retried. Until then, rows stay in their stage, where reads find them; only writing
/// is slower.
const RETRY: Duration = Duration::from_secs(60);

/// The time that closing the store spends on moving the rest; the next start handles what remains.
const END_WITHIN: Duration = Duration::from_secs(2);

/// The work to move, and when.
pub(super) struct Moving {
    staged: Staged,
    /// The amount written since the last portion.
    written: Size,
    /// The earliest time of the next step.
    at: Instant,
}

impl Moving {
    pub(super) fn new(staged: Staged) -> Self {
        Self { staged, written: Size::default(), at: Instant::now() }
    }

    /// Counts the rows written to the stage.
    pub(super) fn add(&mut self, Size { records, bytes }: Size) {
        self.staged.add(records, bytes);
        self.written.records += records;
        self.written.bytes += bytes;
    }
}

impl Thread {
    /// Moves a portion, or makes the stages swap roles, if that is due.
    pub(super) fn move_when_due(&mut self) {
        if !self.may_move() {
            return;
        }
        let Size { records, bytes } = self.moving.written;
        if self.moving.staged.is_moving && (records >= WRITTEN_ROWS || bytes >= WRITTEN_BYTES) {
            self.moving.written = Size::default();
            // A group has at most 1,024 appends, most of them with one record. Rows written while moving was put off do
            // not count.
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

    /// Moves all rows to the main tables, unless that takes too long or a step fails.
    pub(super) fn move_at_the_end(&mut self) {
        let until = Instant::now() + END_WITHIN;
        while !self.moving.staged.is_empty() && self.may_move() && Instant::now() < until {
            let done = if self.moving.staged.is_moving { self.move_rows(PORTION_ROWS) } else { self.turn() };
            if let Err(error) = done {
                tracing::warn!(%error, "some rows stay in their stage; the next start moves them");
                break;
            }
        }
    }

    /// Returns true unless a step has just failed, or nothing may be written.
    fn may_move(&self) -> bool {
        self.moving.at <= Instant::now() && self.health.failure().is_none() && !self.reserve.is_spent()
    }

    fn put_off_if_failed(&mut self, step: Result<(), Error>) {
        let Err(error) = step else { return };
        self.moving.at = Instant::now() + RETRY;
        // Moving sessions one by one gets those before the faulty one out of the way, so that the faulty one can be
        // named.
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
