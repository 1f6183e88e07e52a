//! The source of time. The core receives the time with each input; the code that passes it reads a [`Clock`].

use reseed_protocol::Timestamp;
#[cfg(test)]
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the time of day. It may step back: compute differences with [`Timestamp::millis_since`].
pub trait Clock: Send + Sync {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
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
}

/// A clock that moves only when told to, for tests.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct ManualClock {
    millis: AtomicI64,
}

#[cfg(test)]
impl ManualClock {
    /// Returns a clock set to `start`.
    pub(crate) fn new(start: Timestamp) -> Self {
        Self { millis: AtomicI64::new(start.0) }
    }

    /// Advances the clock.
    pub(crate) fn advance_millis(&self, millis: u64) {
        self.set(self.now().plus_millis(millis));
    }

    /// Sets the clock, possibly backwards.
    pub(crate) fn set(&self, time: Timestamp) {
        self.millis.store(time.0, Ordering::SeqCst);
    }
}

#[cfg(test)]
impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.millis.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::{Clock, ManualClock, SystemClock};
    use reseed_protocol::Timestamp;

    #[test]
    fn a_manual_clock_moves_only_when_moved_and_a_system_clock_is_past_2026() {
        let clock = ManualClock::new(Timestamp(1_000));
        clock.advance_millis(500);
        assert_eq!(clock.now(), Timestamp(1_500));
        clock.set(Timestamp(700));
        assert_eq!(clock.now(), Timestamp(700));
        assert!(SystemClock.now() > Timestamp(1_767_225_600_000));
    }
}
