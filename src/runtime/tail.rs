//! The newest durable events of a session, kept in memory for readers that keep up. Slower ones read the store.

use super::encoded::FrameText;
use std::collections::VecDeque;

/// Maximum number of events kept.
pub(super) const EVENTS_MAX: usize = 32;
/// Maximum bytes of their frames, unless the newest alone has more. An idle session should hold little.
pub(super) const BYTES_MAX: usize = 16 * 1024;
/// Maximum bytes of their frames while a reader has not taken the oldest of them. A long answer is followed at once by
/// the end of its turn. Without this, every reader of the session would read it from the store and serialise it again.
const UNREAD_BYTES_MAX: usize = 256 * 1024;

/// The newest events, oldest first.
#[derive(Debug, Default)]
pub(super) struct Tail {
    events: VecDeque<Kept>,
    bytes: usize,
}

#[derive(Debug)]
struct Kept {
    seq: u64,
    frame: FrameText,
    /// Readers that have not taken it. A reader that left or went to the store may be subtracted twice.
    unread: usize,
}

impl Tail {
    /// Adds the next event, which this many readers want. Call [`Self::trim`] next.
    pub(super) fn push(&mut self, seq: u64, frame: FrameText, readers: usize) {
        self.bytes += frame.len();
        self.events.push_back(Kept { seq, frame, unread: readers });
    }

    /// Returns the oldest event's seq.
    pub(super) fn first_seq(&self) -> Option<u64> {
        self.events.front().map(|kept| kept.seq)
    }

    /// Iterates over the events after this one.
    pub(super) fn after(&self, seq: u64) -> impl Iterator<Item = (u64, &FrameText)> {
        let from = self.events.partition_point(|kept| kept.seq <= seq);
        self.events.range(from..).map(|kept| (kept.seq, &kept.frame))
    }

    /// Records that one reader no longer needs the events after `after`, up to `up_to`. Drops events that nobody needs.
    pub(super) fn taken(&mut self, after: u64, up_to: u64) {
        let from = self.events.partition_point(|kept| kept.seq <= after);
        for kept in self.events.range_mut(from..).take_while(|kept| kept.seq <= up_to) {
            kept.unread = kept.unread.saturating_sub(1);
        }
        self.trim();
    }

    /// Drops the oldest events beyond the limits.
    pub(super) fn trim(&mut self) {
        while let Some(oldest) = self.events.front().filter(|_| self.events.len() > 1) {
            let bytes_max = if oldest.unread > 0 { UNREAD_BYTES_MAX } else { BYTES_MAX };
            if self.events.len() <= EVENTS_MAX && self.bytes <= bytes_max {
                return;
            }
            if let Some(Kept { frame, .. }) = self.events.pop_front() {
                self.bytes -= frame.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(sizes: &[usize], readers: usize) -> Tail {
        let mut tail = Tail::default();
        for (seq, size) in (1..).zip(sizes) {
            tail.push(seq, "x".repeat(*size).into(), readers);
            tail.trim();
        }
        tail
    }

    #[test]
    fn what_readers_have_not_taken_is_kept_within_bounds() {
        let many = [10; EVENTS_MAX + 1];
        // The sizes of events, their readers, and the oldest event that is kept.
        let table: [(&[usize], usize, u64); 6] = [
            (&[BYTES_MAX, 10], 0, 2),
            (&[BYTES_MAX, 10], 2, 1),
            (&[UNREAD_BYTES_MAX], 0, 1),
            (&[UNREAD_BYTES_MAX, 10], 2, 2),
            (&many, 0, 2),
            (&many, 2, 2),
        ];
        for (sizes, readers, first) in table {
            assert_eq!(tail(sizes, readers).first_seq(), Some(first), "{} events, {readers} readers", sizes.len());
        }
    }

    #[test]
    fn an_event_is_dropped_once_its_last_reader_has_taken_it() {
        let mut tail = tail(&[BYTES_MAX, 10], 2);
        tail.taken(0, 2);
        assert_eq!(tail.first_seq(), Some(1));
        tail.taken(0, 1);
        assert_eq!(tail.first_seq(), Some(2));
        assert_eq!(tail.bytes, 10);
    }
}
