//! The newest durable events of a session, kept in memory for readers that keep up. Slower ones read the store.

use super::encoded::FrameText;
use std::collections::VecDeque;

/// Maximum number of events kept.
pub(super) const EVENTS_MAX: usize = 32;
/// Maximum bytes of their frames, unless the newest alone has more. An idle session should hold little.
pub(super) const BYTES_MAX: usize = 16 * 1024;
/// The newest events, oldest first.
#[derive(Debug, Default)]
pub(super) struct Tail {
    events: VecDeque<(u64, FrameText)>,
    bytes: usize,
}

impl Tail {
    /// Adds the next event, and drops the oldest ones beyond the limits.
    pub(super) fn push(&mut self, seq: u64, frame: FrameText) {
        self.bytes += frame.len();
        self.events.push_back((seq, frame));
        while self.events.len() > EVENTS_MAX || self.bytes > BYTES_MAX && self.events.len() > 1 {
            if let Some((_, oldest)) = self.events.pop_front() {
                self.bytes -= oldest.len();
            }
        }
    }

    /// Returns the oldest event's seq.
    pub(super) fn first_seq(&self) -> Option<u64> {
        self.events.front().map(|(seq, _)| *seq)
    }

    /// Iterates over the events after this one.
    pub(super) fn after(&self, seq: u64) -> impl Iterator<Item = (u64, &FrameText)> {
        let from = self.events.partition_point(|(kept, _)| *kept <= seq);
        self.events.range(from..).map(|(seq, frame)| (*seq, frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_events_are_kept_up_to_a_number_and_a_size() {
        let many = [10; EVENTS_MAX + 1];
        // The sizes of events, and the oldest event that is kept.
        let table: [(&[usize], u64); 4] =
            [(&[BYTES_MAX - 10, 10], 1), (&[BYTES_MAX, 10], 2), (&[2 * BYTES_MAX], 1), (&many, 2)];
        for (sizes, first) in table {
            let mut tail = Tail::default();
            for (seq, size) in (1..).zip(sizes) {
                tail.push(seq, "x".repeat(*size).into());
            }
            assert_eq!(tail.first_seq(), Some(first), "{} events", sizes.len());
            assert_eq!(tail.bytes, tail.events.iter().map(|(_, frame)| frame.len()).sum::<usize>());
        }
    }
}
