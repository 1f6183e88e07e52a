//! The answer being streamed: its text so far, and what a reader has not seen of it.
//!
//! Invariant: a reader's positions are on character boundaries, and their bytes and UTF-16 units mean the same
//! position.

use super::feed::{Frame, Seen};
use crate::core::model::Delta;
use reseed_protocol::{
    EntryId, Part, SessionId, TurnId,
    content::utf16_len,
    event::{EphemeralEvent, ItemStarted},
    frame::encode_event,
    reply::RunningItem,
};
use std::fmt::Write as _;

/// Most text of one delta, so that a reader that was away does not get one huge frame, and a stalled one does not hold
/// it: escaped, it may have six times as many bytes.
const DELTA_BYTES_MAX: usize = 8 * 1024;

/// The answer being streamed.
#[derive(Debug)]
pub(super) struct Live {
    session: SessionId,
    number: u64,
    pub(super) item: EntryId,
    turn: TurnId,
    parts: Vec<LivePart>,
    /// The durable event that ended it. The answer is kept until the next one: readers that were present get all of its
    /// text before that event.
    pub(super) ended_at: Option<u64>,
}

#[derive(Debug)]
struct LivePart {
    reasoning: bool,
    text: String,
    utf16: u64,
}

/// A reader's position in an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Reading {
    /// The number of the answer; 0 for none.
    number: u64,
    parts: Vec<PartPosition>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct PartPosition {
    bytes: usize,
    utf16: u64,
}

impl LivePart {
    fn part(&self) -> Part {
        let text = self.text.clone();
        if self.reasoning { Part::Reasoning { text, payload: None } } else { Part::Text { text } }
    }
}

impl Live {
    /// Creates an answer without text; `number`, from 1, distinguishes it from other answers of its feed.
    pub(super) fn new(session: SessionId, number: u64, item: EntryId, turn: TurnId) -> Self {
        Self { session, number, item, turn, parts: Vec::new(), ended_at: None }
    }

    pub(super) fn is_streaming(&self) -> bool {
        self.ended_at.is_none()
    }

    /// Adds text.
    pub(super) fn push(&mut self, delta: Delta<'_>) {
        let (part, reasoning, text) = match delta {
            Delta::Text { part, text } => (part, false, text),
            Delta::Reasoning { part, text } => (part, true, text),
        };
        // Parts that are not shown (tool calls) leave empty slots, so that part numbers match the entry's.
        while self.parts.len() <= part {
            self.parts.push(LivePart { reasoning, text: String::new(), utf16: 0 });
        }
        let place = &mut self.parts[part];
        place.reasoning = reasoning;
        place.text.push_str(text);
        place.utf16 += utf16_len(text);
    }

    /// Returns true if readers are given something of it: the first word has come.
    pub(super) fn has_begun(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Returns what was shown.
    pub(super) fn parts(&self) -> Vec<Part> {
        self.parts.iter().map(LivePart::part).collect()
    }

    /// Returns its state for a new reader; `None` before its first text.
    pub(super) fn running(&self) -> Option<RunningItem> {
        self.has_begun().then(|| RunningItem { item_id: self.item.clone(), parts: self.parts() })
    }

    /// Returns the position of a reader that has all of it.
    pub(super) fn read(&self) -> Reading {
        let place = |part: &LivePart| PartPosition { bytes: part.text.len(), utf16: part.utf16 };
        Reading { number: self.number, parts: self.parts.iter().map(place).collect() }
    }

    /// Returns the position of a reader that has seen this much of it; `None` if that is impossible.
    pub(super) fn seen<'a>(&self, items: impl Iterator<Item = &'a Seen>) -> Option<Reading> {
        let mut reading = Reading { number: self.number, parts: Vec::new() };
        for Seen { part, offset, .. } in items {
            let at = usize::try_from(*part).ok()?;
            let bytes = byte_place(&self.parts.get(at)?.text, *offset)?;
            if reading.parts.len() <= at {
                reading.parts.resize(at + 1, PartPosition::default());
            }
            reading.parts[at] = PartPosition { bytes, utf16: *offset };
        }
        Some(reading)
    }

    /// Returns true if there is text that a reader has not been given.
    pub(super) fn has_more(&self, reading: &Reading) -> bool {
        let seen = if reading.number == self.number { reading.parts.as_slice() } else { &[] };
        let read = |(part, place): (&LivePart, &PartPosition)| part.text.len() == place.bytes;
        self.parts.len() != seen.len() || !self.parts.iter().zip(seen).all(read)
    }

    /// Adds what a reader has not been given, in frames of about `bytes_left` bytes of text; returns the number of
    /// bytes.
    pub(super) fn next(&self, reading: &mut Reading, mut bytes_left: usize, frames: &mut Vec<Frame>) -> usize {
        let bytes_max = bytes_left;
        if !self.has_begun() {
            return 0;
        }
        if reading.number != self.number {
            *reading = Reading { number: self.number, parts: Vec::new() };
            let started = EphemeralEvent::ItemStarted(ItemStarted {
                item_id: self.item.clone(),
                turn_id: self.turn.clone(),
                kind: "message".to_owned(),
            });
            frames.push(Frame::Ephemeral(encode_event(Some(&self.session), &started).into()));
        }
        reading.parts.resize(self.parts.len(), PartPosition::default());
        for (index, (part, place)) in self.parts.iter().zip(&mut reading.parts).enumerate() {
            while place.bytes < part.text.len() && bytes_left > 0 {
                let rest = &part.text[place.bytes..];
                let piece = &rest[..rest.floor_char_boundary(DELTA_BYTES_MAX.min(bytes_left).max(4))];
                frames.push(Frame::Delta(self.delta_frame(index, part.reasoning, place.utf16, piece)));
                place.bytes += piece.len();
                place.utf16 += utf16_len(piece);
                bytes_left = bytes_left.saturating_sub(piece.len());
            }
        }
        bytes_max - bytes_left
    }

    /// Serialises a delta by hand: there is one for each token of every answer, for every reader.
    fn delta_frame(&self, part: usize, reasoning: bool, offset: u64, text: &str) -> String {
        let mut frame = String::with_capacity(text.len() + 136);
        let (session, item) = (&self.session, &self.item);
        let _ = write!(
            frame,
            "{{\"sessionId\":\"{session}\",\"type\":\"item_delta\",\"payload\":{{\"itemId\":\"{item}\",\"part\":{part},\"offset\":{offset},"
        );
        if reasoning {
            frame.push_str("\"kind\":\"reasoning\",");
        }
        frame.push_str("\"text\":");
        frame.push_str(&serde_json::to_string(text).expect("a text is JSON"));
        frame.push_str("}}");
        frame
    }
}

/// Returns the byte position after `utf16` code units of a text; `None` within a character or beyond the end.
fn byte_place(text: &str, utf16: u64) -> Option<usize> {
    let mut units = 0;
    for (at, c) in text.char_indices() {
        if units >= utf16 {
            return (units == utf16).then_some(at);
        }
        units += c.len_utf16() as u64;
    }
    (units == utf16).then_some(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_frame_is_small_and_true() {
        let live = |item: &str| {
            let (session, turn) = ("abcdefghijklmnop".parse().unwrap(), "turn".parse().unwrap());
            Live::new(session, 1, item.parse().unwrap(), turn)
        };
        let frame = live("item").delta_frame(1, true, 7, "say \"hi\"\n");
        let parsed: EphemeralEvent = serde_json::from_str(&frame).unwrap();
        let EphemeralEvent::ItemDelta(delta) = parsed else { panic!("{parsed:?}") };
        assert_eq!((delta.part, delta.offset, delta.text.as_str()), (1, 7, "say \"hi\"\n"));
        let length = live("abcdefghijkl").delta_frame(0, false, 100_000, "").len();
        assert!(length <= 148, "{length} bytes, and 4 of the WebSocket header");
    }
}
