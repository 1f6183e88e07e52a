//! The work that a deleted session leaves: its rows are removed in slices, the file is shortened, and the text is
//! erased from the write-ahead log. It runs one step at a time, and groups of writes are committed in between.

use super::{
    super::{
        checkpoint,
        removal::{self, Hidden, Removed, Shrink, Slice},
    },
    Thread,
    job::{Call, Write},
    unknown,
};
use crate::Error;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The longest time between two attempts at the same step.
const RETRY_MAX: Duration = Duration::from_secs(5);

/// The time within which deleted text should be erased.
const ERASED_WITHIN: Duration = Duration::from_secs(60);

/// The number of sessions whose rows are removed before the file is shortened and the log erased. Otherwise constant
/// deletions could put that off forever.
const PASS_SESSIONS: u32 = 256;

/// The time that closing the store spends on the remaining work; the next start does the rest.
const END_WITHIN: Duration = Duration::from_secs(5);

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Idle,
    /// Removes rows of the first deleted session numbered above `after`. Rows of earlier ones are removed, or cannot
    /// be. The step ends after `sessions_left` more sessions.
    Remove {
        after: i64,
        sessions_left: u32,
    },
    Shrink,
    Erase,
}

/// The remaining work, and the time of its next step.
pub(super) struct Upkeep {
    step: Step,
    /// The time of the next step; in the past if it is due.
    at: Instant,
    /// The delay before the first retry of a failed step, and the delay before the next one.
    retry: Duration,
    wait: Duration,
    /// The time of the first deletion that is not erased, until a warning about it was logged.
    unerased: Option<Instant>,
    /// The time of the first deletion during this pass. The pass may have missed it, so another one follows.
    again: Option<Instant>,
    /// True while a step writes: such a write also deletes, but it is no new deletion.
    in_step: bool,
    /// True while there are steps to execute immediately.
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

    /// Schedules the removal of a session that was deleted just now: at once, or after the current pass. A pass that
    /// waits to retry a failed step starts again.
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

    /// Returns the step after a pass, which has erased everything deleted before it.
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

    /// Watches whether there are steps to execute immediately.
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

    /// Schedules a retry of the step.
    fn put_off(&mut self) {
        self.at = Instant::now() + self.wait;
        self.wait = self.wait.saturating_mul(2).min(RETRY_MAX.max(self.retry));
        self.busy.send_replace(false);
    }

    /// Logs a warning, once, if deleted text is still there after the time within which it should be erased.
    fn warn_if_late(&mut self, reason: &str) {
        if self.unerased.is_some_and(|since| since.elapsed() > ERASED_WITHIN) {
            self.unerased = None;
            tracing::warn!(
                reason,
                "text of deleted sessions is still in the files after {} s; erasing it is retried until it is gone",
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
            // The next start continues.
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
        self.checkpoint_when_due();
    }

    /// Does the remaining work, unless that takes too long or a step fails.
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
        // If the damage is in another session of the slice, the first one is removed alone, so that only the damaged
        // one stays.
        if matches!(removed, Err(Error::Damaged { .. }))
            && let Some(first) = self.hidden_after(after)?
        {
            removed = self.remove_slice(first, 1);
        }
        match removed {
            Ok(removed) => {
                let sessions_left = sessions_left.saturating_sub(removed.sessions);
                Ok(Step::Remove { after: removed.last.unwrap_or(after), sessions_left })
            }
            Err(error @ Error::Damaged { .. }) => {
                tracing::error!(
                    %error,
                    "text of a deleted session stays in the database, whose pages are damaged: restore a backup, or \
                     export the other sessions"
                );
                // It is not counted, because every pass meets it again.
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

    /// Shortens the file. If that fails, the next deletion tries again.
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

    /// Executes a write of the thread itself, in a group of its own.
    pub(super) fn write_own<W: Write>(&mut self, write: W) -> Result<W::Output, Error> {
        let (job, mut result) = Call::boxed(write);
        self.upkeep.in_step = true;
        self.write_group(vec![job]);
        self.upkeep.in_step = false;
        result.try_recv().unwrap_or_else(|_| Err(Error::Unknown("the write was not executed".into())))
    }
}
