//! Limits the log lines of one kind. Continuous retries, or a client that is refused continuously, would otherwise hide
//! everything else in the log, and fill the disk.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The time after which one more line may be written.
const SPACE: Duration = Duration::from_secs(2);

/// The lines of one kind: some at once, and then one per two seconds.
#[derive(Debug)]
pub struct Spaced {
    /// The number of lines that may follow each other at once.
    burst: u32,
    written: Mutex<Written>,
}

#[derive(Debug, Default)]
struct Written {
    /// The time at which all lines written so far count as apart.
    apart_at: Option<Instant>,
    left_out: u64,
}

impl Default for Spaced {
    /// Limits lines to one at a time. The first line of an outage is always logged, however many lines an earlier
    /// outage caused.
    fn default() -> Self {
        Self::bursts(1)
    }
}

impl Spaced {
    /// Limits lines to this many at once.
    #[must_use]
    pub fn bursts(burst: u32) -> Self {
        Self { burst, written: Mutex::default() }
    }

    /// Returns how many lines were left out before this one, or `None` if this one should be left out too.
    #[must_use]
    pub fn admit(&self) -> Option<u64> {
        self.admit_at(Instant::now())
    }

    fn admit_at(&self, now: Instant) -> Option<u64> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let from = written.apart_at.map_or(now, |at| at.max(now));
        if from > now + SPACE * self.burst.saturating_sub(1) {
            written.left_out += 1;
            return None;
        }
        written.apart_at = Some(from + SPACE);
        Some(std::mem::take(&mut written.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_an_outage_are_apart_and_the_first_of_the_next_one_is_there() {
        let (lines, start) = (Spaced::default(), Instant::now());
        let admit = |millis| lines.admit_at(start + Duration::from_millis(millis));
        let written: Vec<u64> = (0..200).filter_map(|n| admit(n * 100)).collect();
        assert_eq!(written, [[0].as_slice(), &[19; 9]].concat(), "the first at once");
        assert_eq!(admit(21_900), Some(19), "the next outage begins");
        assert_eq!((admit(22_000), admit(60_000)), (None, Some(1)));
    }

    #[test]
    fn a_burst_is_written_and_the_next_line_tells_how_many_are_missing() {
        let (lines, start) = (Spaced::bursts(30), Instant::now());
        let written = (0..100).filter(|_| lines.admit_at(start).is_some()).count();
        assert_eq!(written, 30);
        assert_eq!(lines.admit_at(start + SPACE), Some(70));
        assert_eq!(lines.admit_at(start + 31 * SPACE), Some(0));
    }
}
