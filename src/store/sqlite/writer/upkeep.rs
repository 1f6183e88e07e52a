//! What a deleted session leaves to be done: its rows are removed in slices, the file is shortened, and the text is
//! erased from the write-ahead log. One step at a time, between which groups of writes are committed.

use super::{
    super::{
        checkpoint,
        removal::{self, Hidden, Removed, Shrink, Slice, Unstage},
    },
    Thread,
    job::{Call, Write},
    unknown,
};
use crate::store::Error;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The longest time between two attempts at the same step.
const RETRY_MAX: Duration = Duration::from_secs(5);

/// The time within which deleted text should be gone.
const ERASED_WITHIN: Duration = Duration::from_secs(60);

/// Sessions whose rows are removed before the file is shortened and the log erased: sessions that are deleted all the
/// time must not put that off.
const PASS_SESSIONS: u32 = 256;

/// How long closing the store goes on with what is left; the next start does the rest.
const END_WITHIN: Duration = Duration::from_secs(5);

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Idle,
    /// Removes rows of the first deleted session with a number above this one: those up to it are removed, or cannot
    /// be. Ends after so many more sessions.
    Remove {
        after: i64,
        sessions_left: u32,
    },
    Shrink,
    Erase,
}

/// The remaining work, and when its next step is due.
pub(super) struct Upkeep {
    step: Step,
    /// The time of the next step; in the past if it is due.
    at: Instant,
    /// The time after which a failed step is first tried again, and after which it is next time.
    retry: Duration,
    wait: Duration,
    /// The time of the first deletion that is not erased, until a warning said so.
    unerased: Option<Instant>,
    /// The time of the first deletion during this pass, which may not have seen it: another one follows.
    again: Option<Instant>,
    /// True while a step writes: that deletes too, and is no new deletion.
    in_step: bool,
    /// True while there are steps to be done at once.
    busy: watch::Sender<bool>,
}

/// The first step of a pass.
const FIRST: Step = Step::Remove { after: 0, sessions_left: PASS_SESSIONS };

impl Upkeep {
    pub(super) fn new(has_deletions: bool, retry: Duration) -> Self {
        let (at, busy) = (Instant::now(), watch::Sender::new(false));
        let mut upkeep =
            Self { step: Step::Idle, at, retry, wait: retry, unerased: None, again: None, in_step: false, busy };
        if has_deletions {
            upkeep.begin();
        }
        upkeep
    }

    /// Has the rows of a session removed that was deleted now: at once, or after the pass that is under way. A pass
    /// that waits for a failed step begins anew.
    pub(super) fn begin(&mut self) {
        if self.in_step {
            return;
        }
        let now = Instant::now();
        if self.is_idle() || self.at > now {
            self.unerased.get_or_insert(now);
            self.go(FIRST);
        } else {
            self.again.get_or_insert(now);
        }
    }

    /// Returns what follows a pass that has erased what was deleted before it.
    fn after_pass(&mut self) -> Step {
        self.unerased = self.again.take();
        if self.unerased.is_some() { FIRST } else { Step::Idle }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.step == Step::Idle
    }

    /// Returns the time of the next step, if there is one.
    pub(super) fn due_at(&self) -> Option<Instant> {
        (!self.is_idle()).then_some(self.at)
    }

    /// Returns whether there are steps to be done at once.
    pub(super) fn watch(&self) -> watch::Receiver<bool> {
        self.busy.subscribe()
    }

    fn go(&mut self, step: Step) {
        (self.step, self.at, self.wait) = (step, Instant::now(), self.retry);
        self.busy.send_replace(step != Step::Idle);
    }

    #[cfg(test)]
    pub(super) fn reached_erasing(&mut self) {
        self.go(Step::Erase);
    }

    #[cfg(test)]
    pub(super) fn is_erasing(&self) -> bool {
        self.step == Step::Erase
    }

    #[cfg(test)]
    pub(super) fn finish_pass(&mut self) {
        let next = self.after_pass();
        self.go(next);
    }

    /// Tries the step again later.
    fn put_off(&mut self) {
        self.at = Instant::now() + self.wait;
        self.wait = self.wait.saturating_mul(2).min(RETRY_MAX.max(self.retry));
        self.busy.send_replace(false);
    }

    /// Says so if deleted text is still there after the time within which it should be gone, once.
    fn warn_if_late(&mut self, reason: &str) {
        if self.unerased.is_some_and(|since| since.elapsed() > ERASED_WITHIN) {
            self.unerased = None;
            tracing::warn!(
                reason,
                "text of deleted sessions is still in the files after {} s; it is tried again until it is gone",
                ERASED_WITHIN.as_secs()
            );
        }
    }
}

impl Thread {
    /// Does one step, if one is due.
    pub(super) fn upkeep_when_due(&mut self) {
        if self.upkeep.due_at().is_none_or(|at| at > Instant::now()) {
            return;
        }
        self.check_files();
        if self.health.failure().is_some() {
            // The next start goes on.
            self.upkeep.go(Step::Idle);
            return;
        }
        let next = match self.upkeep.step {
            Step::Idle => return,
            Step::Remove { after, sessions_left } => self.remove(after, sessions_left),
            Step::Shrink => Ok(self.shrink()),
            Step::Erase => self.erase(),
        };
        match next {
            Ok(step) => {
                self.upkeep.go(step);
                self.upkeep.warn_if_late("there is more to delete than the disk writes in that time");
            }
            Err(error) => {
                self.upkeep.put_off();
                self.upkeep.warn_if_late(&error.to_string());
            }
        }
        if self.reserve.is_spent() {
            // The log of a few steps must not outgrow the room that is left.
            drop(self.checkpoint());
            if self.upkeep.is_idle() { self.reserve.restore_now() } else { self.reserve.restore() }
        } else {
            self.checkpoint_when_due();
        }
    }

    /// Does what is left, if that does not take long and nothing fails.
    pub(super) fn upkeep_at_the_end(&mut self) {
        let until = Instant::now() + END_WITHIN;
        while self.upkeep.due_at().is_some_and(|at| at <= Instant::now()) && Instant::now() < until {
            self.upkeep_when_due();
        }
    }

    fn remove(&mut self, after: i64, sessions_left: u32) -> Result<Step, Error> {
        if sessions_left == 0 {
            self.upkeep.again.get_or_insert_with(Instant::now);
            return Ok(Step::Shrink);
        }
        let Some(first) = self.hidden_after(after)? else { return Ok(Step::Shrink) };
        let number = first.number;
        let mut removed = self.remove_slice(first, sessions_left);
        // Alone, if another of them was damaged: only the damaged one stays.
        if matches!(removed, Err(Error::Damaged { .. }))
            && let Some(first) = self.hidden_after(after)?
        {
            removed = self.remove_slice(first, 1);
        }
        match removed {
            Ok(removed) => {
                removed.unindexed.iter().for_each(|session| self.indexing.add(session));
                let sessions_left = sessions_left.saturating_sub(removed.sessions);
                Ok(Step::Remove { after: removed.last.unwrap_or(after), sessions_left })
            }
            Err(error @ Error::Damaged { .. }) => {
                tracing::error!(
                    %error,
                    "text of a deleted session stays in the database, whose pages are damaged: restore a backup, or \
                     export the other sessions"
                );
                if let Err(error) = self.write_own(Unstage(number)) {
                    tracing::error!(%error, "new rows of the deleted session stay too");
                }
                // Not counted: every pass meets it again.
                Ok(Step::Remove { after: number, sessions_left })
            }
            Err(error) => Err(error),
        }
    }

    fn hidden_after(&self, number: i64) -> Result<Option<Hidden>, Error> {
        removal::next(&self.db, number).map_err(|error| unknown("find deleted sessions", &error))
    }

    fn remove_slice(&mut self, first: Hidden, sessions_max: u32) -> Result<Removed, Error> {
        self.write_own(Slice { first, sessions_max })
    }

    /// Shortens the file if that works; if not, the next deletion tries it again.
    fn shrink(&mut self) -> Step {
        match self.write_own(Shrink) {
            Ok(true) => Step::Shrink,
            Ok(false) => Step::Erase,
            Err(error) => {
                tracing::warn!(%error, "the database file could not be shortened");
                Step::Erase
            }
        }
    }

    fn erase(&mut self) -> Result<Step, Error> {
        self.settle_copying();
        // A round that failed may have left pages of which only the log is sure.
        if let Some(error) = self.health.failure() {
            return Err(error);
        }
        match checkpoint::empty(&self.db, self.lock.as_ref()) {
            Ok(true) => {
                self.readers.forget();
                Ok(self.upkeep.after_pass())
            }
            Ok(false) => Err(Error::Unknown("another process reads an older state of the database".into())),
            Err(error) if super::is_fatal(&error) => Err(self.end(unknown("empty the write-ahead log", &error))),
            Err(error) => Err(unknown("empty the write-ahead log", &error)),
        }
    }

    #[cfg(test)]
    pub(super) fn erase_now(&mut self) -> Result<(), Error> {
        self.erase().map(drop)
    }

    /// Executes a write of the thread itself, as a group of its own.
    pub(super) fn write_own<W: Write>(&mut self, write: W) -> Result<W::Output, Error> {
        let (job, mut result) = Call::boxed(write);
        self.upkeep.in_step = true;
        self.write_group(vec![job]);
        self.upkeep.in_step = false;
        result.try_recv().unwrap_or_else(|_| Err(Error::Unknown("the write was not executed".into())))
    }
}
