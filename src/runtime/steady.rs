//! The clock of a session's loop.

use crate::clock::Clock;
use reseed_protocol::Timestamp;

/// The time of day. It does not jump while anything with a time limit or a measured duration is running.
///
/// Limits and durations in the core are differences of these times. If the machine's clock is set meanwhile, the
/// session's clock continues as before, and adopts the new time once nothing is running.
#[derive(Debug, Clone, Copy)]
pub(super) struct SteadyTime {
    /// The difference in milliseconds between the time and [`Clock::elapsed`].
    offset_ms: i64,
}

impl SteadyTime {
    /// Returns the time for a session in which nothing is running.
    pub(super) fn new(clock: &dyn Clock) -> Self {
        let elapsed = Self { offset_ms: 0 }.now(clock);
        Self { offset_ms: clock.now().0.saturating_sub(elapsed.0) }
    }

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
