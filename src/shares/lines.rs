//! Limits the log lines that clients cause. A client that is refused continuously would otherwise fill the disk.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Maximum number of lines of one kind per interval.
const LINES_MAX: u32 = 30;

const INTERVAL: Duration = Duration::from_secs(60);

/// The lines of one kind.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<Written>);

#[derive(Debug, Default)]
struct Written {
    since: Option<Instant>,
    count: u32,
    left_out: u64,
}

impl Lines {
    /// Returns how many lines were left out before this one, or `None` if this one should be left out too.
    pub(crate) fn admit(&self) -> Option<u64> {
        self.admit_at(Instant::now())
    }

    fn admit_at(&self, now: Instant) -> Option<u64> {
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if written.since.is_none_or(|since| now.saturating_duration_since(since) >= INTERVAL) {
            (written.since, written.count) = (Some(now), 0);
        }
        if written.count >= LINES_MAX {
            written.left_out += 1;
            return None;
        }
        written.count += 1;
        Some(std::mem::take(&mut written.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_and_the_next_tells_how_many_are_missing() {
        let (lines, start) = (Lines::default(), Instant::now());
        let written = (0..100).filter(|_| lines.admit_at(start).is_some()).count();
        assert_eq!(written, LINES_MAX as usize);
        assert_eq!(lines.admit_at(start + INTERVAL), Some(70));
        assert_eq!(lines.admit_at(start + INTERVAL), Some(0));
    }
}
