//! The source of time. The core receives the time with each input; the code that passes it reads a [`Clock`].

use reseed_protocol::Timestamp;
#[cfg(test)]
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::{
    sync::LazyLock,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// The time of day, for dates, and the time that has passed, for durations: a change of the machine's clock must not
/// shorten or prolong what lasts an hour.
pub trait Clock: Send + Sync {
    /// Returns the time of day. It may step in either direction.
    fn now(&self) -> Timestamp;

    /// Returns the time since some moment. It never steps.
    fn elapsed(&self) -> Duration;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        // A clock set before 1970 reads as 1970 rather than stopping the server.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn elapsed(&self) -> Duration {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        START.elapsed()
    }
}

/// A clock that moves only when told to, for tests.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct ManualClock {
    millis: AtomicI64,
    elapsed_millis: AtomicU64,
}

#[cfg(test)]
impl ManualClock {
    /// Returns a clock set to `start`.
    pub(crate) fn new(start: Timestamp) -> Self {
        Self { millis: AtomicI64::new(start.0), ..Self::default() }
    }

    /// Lets time pass.
    pub(crate) fn advance_millis(&self, millis: u64) {
        self.elapsed_millis.fetch_add(millis, Ordering::SeqCst);
        self.set(self.now().plus_millis(millis));
    }

    /// Sets the time of day, possibly backwards.
    pub(crate) fn set(&self, time: Timestamp) {
        self.millis.store(time.0, Ordering::SeqCst);
    }
}

#[cfg(test)]
impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.millis.load(Ordering::SeqCst))
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.elapsed_millis.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::{Clock, ManualClock, SystemClock};
    use reseed_protocol::Timestamp;
    use std::time::Duration;

    #[test]
    fn a_manual_clock_moves_only_when_moved_and_a_system_clock_is_past_2026() {
        let clock = ManualClock::new(Timestamp(1_000));
        clock.advance_millis(500);
        assert_eq!(clock.now(), Timestamp(1_500));
        clock.set(Timestamp(700));
        assert_eq!((clock.now(), clock.elapsed()), (Timestamp(700), Duration::from_millis(500)));
        assert!(SystemClock.now() > Timestamp(1_767_225_600_000));
    }
}
