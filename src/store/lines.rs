//! Limits the log lines that an outage causes. Continuous retries would otherwise hide everything else in the log.

use std::time::{Duration, Instant};

/// The minimum time between two lines of one kind.
const SPACE: Duration = Duration::from_secs(2);

/// The lines of one kind, with a minimum time between them. The first line of an outage is always logged, however many
/// lines an earlier outage caused.
#[derive(Debug, Default)]
pub struct Spaced {
    last: Option<Instant>,
    left_out: u64,
}

impl Spaced {
    /// Returns how many lines were left out before this one, or `None` if this one should be left out too.
    #[must_use]
    pub fn admit(&mut self) -> Option<u64> {
        self.admit_at(Instant::now())
    }

    fn admit_at(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < SPACE) {
            self.left_out += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_an_outage_are_apart_and_the_first_of_the_next_one_is_there() {
        let (mut lines, start) = (Spaced::default(), Instant::now());
        let mut admit = |millis| lines.admit_at(start + Duration::from_millis(millis));
        let written: Vec<u64> = (0..200).filter_map(|n| admit(n * 100)).collect();
        assert_eq!(written, [[0].as_slice(), &[19; 9]].concat(), "the first at once");
        assert_eq!(admit(21_900), Some(19), "the next outage begins");
        assert_eq!((admit(22_000), admit(60_000)), (None, Some(1)));
    }
}
