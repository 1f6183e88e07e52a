//! The time that a session's loop is told.

use crate::clock::Clock;
use reseed_protocol::Timestamp;

/// The time of day, which does not step while something runs that has a time limit or whose duration is measured.
///
/// Limits and durations in the core are differences of such times. If somebody sets the machine's clock meanwhile, the
/// session's own continues as before, and follows once nothing is running.
#[derive(Debug, Clone, Copy)]
pub(super) struct SteadyTime {
    /// Milliseconds from [`Clock::elapsed`] to the time.
    offset_ms: i64,
}

impl SteadyTime {
    /// Returns the time of a session in which nothing is running.
    pub(super) fn new(clock: &dyn Clock) -> Self {
        let elapsed = Self { offset_ms: 0 }.now(clock);
        Self { offset_ms: clock.now().0.saturating_sub(elapsed.0) }
    }

    /// Returns the time.
    pub(super) fn now(self, clock: &dyn Clock) -> Timestamp {
        let elapsed = i64::try_from(clock.elapsed().as_millis()).unwrap_or(i64::MAX);
        Timestamp(self.offset_ms.saturating_add(elapsed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn a_clock_that_is_set_ends_and_prolongs_nothing() {
        let clock = ManualClock::new(Timestamp(1_000_000));
        clock.advance_millis(70);
        let time = SteadyTime::new(&clock);
        assert_eq!(time.now(&clock), Timestamp(1_000_070));
        for step in [3_600_000, -3_600_000] {
            clock.set(Timestamp(1_000_000 + step));
            assert_eq!(time.now(&clock), Timestamp(1_000_070), "{step}");
        }
        clock.advance_millis(30);
        assert_eq!(time.now(&clock), Timestamp(1_000_100));
        assert_eq!(SteadyTime::new(&clock).now(&clock), clock.now(), "once nothing is running");
    }
}
