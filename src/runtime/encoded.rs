//! What readers receive, and the newest frames of the answer being streamed. Readers at the same position share one
//! serialisation.

use reseed_protocol::session::SubscriptionEnd;
use std::collections::VecDeque;

/// The complete text of a frame. Clones share the bytes, down to the socket's write buffer.
pub(crate) type FrameText = axum::extract::ws::Utf8Bytes;

/// A unit that a subscriber receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// The seq of a durable event, and its complete frame.
    Durable(u64, FrameText),
    /// The complete frame of an ephemeral event.
    Ephemeral(FrameText),
    /// The complete frame of an event of the answer being streamed.
    Streamed(FrameText),
    /// Durable events after this seq are no longer in memory. Read them from the store, then continue.
    Behind {
        /// The last event that the subscriber received.
        after: u64,
        /// The last published event. The store may already have more, whose replies have not been sent yet.
        up_to: u64,
    },
    /// The session was closed, so the subscription ends.
    Closed(SubscriptionEnd),
}

/// Maximum number of frames kept. Readers that keep up are at one or two positions, and slower ones soon are too.
const FRAMES_MAX: usize = 16;
/// Maximum bytes of these frames, unless the newest alone has more. Together with the answer's text, a session with a
/// stalled answer holds this much.
const BYTES_MAX: usize = 32 * 1024;

/// What a frame reports about an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameKey {
    /// The answer starts.
    Started,
    /// A tool call starts in this part.
    CallStarted(usize),
    /// Text of a part, from one byte to another.
    Text { part: usize, from: usize, to: usize },
    /// The tool call in this part is complete.
    CallFinished(usize),
    /// The answer is complete.
    Finished,
}

/// The newest frames, oldest first.
#[derive(Debug, Default)]
pub(super) struct FrameCache {
    frames: VecDeque<(FrameKey, FrameText)>,
    bytes: usize,
}

impl FrameCache {
    /// Returns the frame that reports this. It is serialised unless it is among the newest frames.
    pub(super) fn frame(&mut self, key: FrameKey, encode: impl FnOnce() -> String) -> FrameText {
        if let Some((_, frame)) = self.frames.iter().rev().find(|(known, _)| *known == key) {
            return frame.clone();
        }
        let frame = FrameText::from(encode());
        self.bytes += frame.len();
        self.frames.push_back((key, frame.clone()));
        while self.frames.len() > FRAMES_MAX || (self.bytes > BYTES_MAX && self.frames.len() > 1) {
            if let Some((_, oldest)) = self.frames.pop_front() {
                self.bytes -= oldest.len();
            }
        }
        frame
    }

    /// Forgets all frames.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many of these ranges are serialised again on the second pass.
    fn again(ranges: usize, bytes: usize) -> usize {
        let (mut encoded, mut written) = (FrameCache::default(), 0);
        for round in 0..2 {
            for from in (0..ranges).rev() {
                encoded.frame(FrameKey::Text { part: 0, from, to: ranges }, || {
                    written += round;
                    "x".repeat(bytes)
                });
            }
        }
        assert!(encoded.bytes <= BYTES_MAX.max(bytes) && encoded.frames.len() <= FRAMES_MAX);
        assert_eq!(encoded.bytes, encoded.frames.iter().map(|(_, frame)| frame.len()).sum::<usize>());
        written
    }

    #[test]
    fn the_newest_frames_are_kept_up_to_a_number_and_a_size() {
        for (ranges, bytes, expected) in [
            (1, 10, 0),
            (FRAMES_MAX, 10, 0),
            (FRAMES_MAX + 1, 10, FRAMES_MAX + 1),
            (2, BYTES_MAX / 2, 0),
            (2, BYTES_MAX, 2),
            (1, 2 * BYTES_MAX, 0),
        ] {
            assert_eq!(again(ranges, bytes), expected, "{ranges} ranges of {bytes} bytes");
        }
    }
}
