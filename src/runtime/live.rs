//! The answer being streamed: its text so far, and what a reader has not seen of it.
//!
//! Invariant: a reader's positions are on character boundaries. Their bytes and UTF-16 units refer to the same
//! position.

use super::encoded::{Frame, FrameCache, FrameKey, FrameText};
use crate::core::model::Delta;
use reseed_protocol::{
    EntryId, Part, SessionId, TurnId,
    content::utf16_len,
    event::EphemeralEvent,
    frame::encode_event,
    turn::{ItemFinished, ItemKind, ItemStarted, RunningItem, RunningPart},
};
use std::{fmt::Write as _, ops::Range};

/// Maximum text of one delta. A reader that was away does not receive one huge frame, and a stalled reader does not
/// hold one. Escaped text may take six times as many bytes.
const DELTA_BYTES_MAX: usize = 8 * 1024;

/// The answer being streamed.
#[derive(Debug)]
pub(super) struct Live {
    session: SessionId,
    number: u32,
    pub(super) item: EntryId,
    turn: TurnId,
    parts: Vec<LivePart>,
    /// True if a cancellation stopped it. No more text comes, and its calls are not made.
    stopped: bool,
    /// The durable event that ended it. The answer is kept until the next one, so that attached readers get all of its
    /// text before that event.
    pub(super) ended_at: Option<u64>,
    encoded: FrameCache,
}

#[derive(Debug)]
struct LivePart {
    kind: PartKind,
    text: String,
    utf16: u64,
}

#[derive(Debug)]
enum PartKind {
    Text,
    Reasoning,
    Call { name: String, finished: bool },
}

/// A subscriber's position in a running item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemPosition {
    /// The item.
    pub item: EntryId,
    /// Its part.
    pub part: u32,
    /// UTF-16 code units of that part.
    pub offset: u64,
}

/// A reader's position in an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct AnswerPosition {
    /// The number of the answer; 0 for none.
    number: u32,
    /// True once the reader has received all of the answer, and its end.
    finished: bool,
    /// Empty once `finished` is true.
    parts: Vec<PartPosition>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct PartPosition {
    bytes: usize,
    utf16: u64,
    /// The reader knows that this part is a tool call.
    started: bool,
    /// The reader knows that this tool call is complete.
    finished: bool,
}

#[cfg(test)]
impl AnswerPosition {
    /// Returns the number of parts that it has room for.
    pub(super) fn parts_capacity(&self) -> usize {
        self.parts.capacity()
    }
}

impl LivePart {
    fn running(&self) -> RunningPart {
        let text = self.text.clone();
        match &self.kind {
            PartKind::Text => RunningPart::Text { text },
            PartKind::Reasoning => RunningPart::Reasoning { text },
            PartKind::Call { name, finished } => {
                RunningPart::ToolCall { name: name.clone(), arguments: text, finished: *finished }
            }
        }
    }

    /// Returns the part for an entry. A call that was not made is replaced by an empty text, which keeps its position.
    fn shown(&self) -> Part {
        match &self.kind {
            PartKind::Text => Part::Text { text: self.text.clone() },
            PartKind::Reasoning => Part::Reasoning { text: self.text.clone(), payload: None },
            PartKind::Call { .. } => Part::Text { text: String::new() },
        }
    }

    /// Returns true if a reader at this position has all of it.
    fn is_read(&self, place: PartPosition) -> bool {
        let knows_call = match self.kind {
            PartKind::Call { finished, .. } => place.started && place.finished == finished,
            PartKind::Text | PartKind::Reasoning => true,
        };
        knows_call && place.bytes == self.text.len()
    }

    /// Returns the position of a reader that has all of it.
    fn end(&self) -> PartPosition {
        let (started, finished) = match self.kind {
            PartKind::Call { finished, .. } => (true, finished),
            PartKind::Text | PartKind::Reasoning => (false, false),
        };
        PartPosition { bytes: self.text.len(), utf16: self.utf16, started, finished }
    }
}

impl Live {
    /// Creates an answer without text. Its `number`, from 1, distinguishes it from other answers of its feed.
    pub(super) fn new(session: SessionId, number: u32, item: EntryId, turn: TurnId) -> Self {
        let (parts, encoded) = (Vec::new(), FrameCache::default());
        Self { session, number, item, turn, parts, stopped: false, ended_at: None, encoded }
    }

    pub(super) fn is_streaming(&self) -> bool {
        self.ended_at.is_none() && !self.stopped
    }

    /// Adds a piece.
    pub(super) fn push(&mut self, delta: Delta<'_>) {
        let (at, text) = (delta.part(), delta.text());
        // Parts that are not shown (sealed reasoning) leave empty slots, so that part numbers match the entry's.
        while self.parts.len() <= at {
            self.parts.push(LivePart { kind: PartKind::Text, text: String::new(), utf16: 0 });
        }
        let part = &mut self.parts[at];
        match (delta, &mut part.kind) {
            (Delta::Text { .. }, kind) => *kind = PartKind::Text,
            (Delta::Reasoning { .. }, kind) => *kind = PartKind::Reasoning,
            (Delta::Call { name, .. }, kind) => *kind = PartKind::Call { name: name.to_owned(), finished: false },
            (Delta::CallEnd { .. }, PartKind::Call { finished, .. }) => *finished = true,
            (Delta::Arguments { .. }, PartKind::Call { .. }) => {}
            // Without its beginning, a call has no name to show.
            (Delta::Arguments { .. } | Delta::CallEnd { .. }, _) => return,
        }
        part.text.push_str(text);
        part.utf16 += utf16_len(text);
    }

    /// Stops the answer. If it gets an entry, the entry holds what was shown.
    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }

    /// Ends the answer with the durable event that contains its entry.
    pub(super) fn end(&mut self, seq: u64) {
        self.ended_at = Some(seq);
        // Text that readers still lack is serialised again. In return, an idle session holds less.
        self.encoded.clear();
        if !self.stopped {
            for part in &mut self.parts {
                if let PartKind::Call { finished, .. } = &mut part.kind {
                    *finished = true;
                }
            }
        }
    }

    /// Returns true if readers receive anything yet, because the first piece has arrived.
    pub(super) fn has_begun(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Returns what was shown, as parts of an entry.
    pub(super) fn shown(&self) -> Vec<Part> {
        self.parts.iter().map(LivePart::shown).collect()
    }

    /// Returns its state for a new reader; `None` before its first text.
    pub(super) fn running(&self) -> Option<RunningItem> {
        let parts = || self.parts.iter().map(LivePart::running).collect();
        self.has_begun().then(|| RunningItem { item_id: self.item.clone(), parts: parts() })
    }

    /// Returns the position of a reader that has all of it.
    pub(super) fn read(&self) -> AnswerPosition {
        if self.ended_at.is_some() {
            return AnswerPosition { number: self.number, finished: true, parts: Vec::new() };
        }
        AnswerPosition { number: self.number, finished: false, parts: self.parts.iter().map(LivePart::end).collect() }
    }

    /// Returns the position of a reader that has seen these parts of it; `None` if that is impossible.
    pub(super) fn seen<'a>(&self, items: impl Iterator<Item = &'a ItemPosition>) -> Option<AnswerPosition> {
        let mut reading = AnswerPosition { number: self.number, ..AnswerPosition::default() };
        for ItemPosition { part, offset, .. } in items {
            let at = usize::try_from(*part).ok()?;
            let bytes = byte_place(&self.parts.get(at)?.text, *offset)?;
            if reading.parts.len() <= at {
                reading.parts.resize(at + 1, PartPosition::default());
            }
            // At offset 0 the reader may only know of the item. Repeating what it already knows does no harm.
            let started = *offset > 0;
            reading.parts[at] = PartPosition { bytes, utf16: *offset, started, finished: false };
        }
        Some(reading)
    }

    /// Returns true if a reader has not received all of it.
    pub(super) fn has_more(&self, reading: &AnswerPosition) -> bool {
        if !self.has_begun() {
            return false;
        }
        if reading.number != self.number {
            return true;
        }
        let read = |(part, place): (&LivePart, &PartPosition)| part.is_read(*place);
        let has_all = self.parts.len() == reading.parts.len() && self.parts.iter().zip(&reading.parts).all(read);
        !reading.finished && (self.ended_at.is_some() || !has_all)
    }

    /// Adds what a reader has not received, in frames of about `bytes_left` bytes of text. Returns the number of bytes.
    pub(super) fn next(
        &mut self,
        reading: &mut AnswerPosition,
        mut bytes_left: usize,
        frames: &mut Vec<Frame>,
    ) -> usize {
        let bytes_max = bytes_left;
        if !self.has_more(reading) {
            return 0;
        }
        if reading.number != self.number {
            *reading = AnswerPosition { number: self.number, ..AnswerPosition::default() };
            self.tell(FrameKey::Started, frames);
        }
        reading.parts.resize(self.parts.len(), PartPosition::default());
        for (index, place) in reading.parts.iter_mut().enumerate() {
            if matches!(self.parts[index].kind, PartKind::Call { .. }) && !place.started {
                self.tell(FrameKey::CallStarted(index), frames);
                place.started = true;
            }
            while place.bytes < self.parts[index].text.len() && bytes_left > 0 {
                let rest = &self.parts[index].text[place.bytes..];
                let length = rest.floor_char_boundary(DELTA_BYTES_MAX.min(bytes_left).max(4));
                let (from, to) = (place.bytes, place.bytes + length);
                let utf16 = utf16_len(&rest[..length]);
                let frame = self.encode(FrameKey::Text { part: index, from, to }, place.utf16);
                frames.push(Frame::Streamed(frame));
                place.bytes = to;
                place.utf16 += utf16;
                bytes_left = bytes_left.saturating_sub(length);
            }
            if place.bytes < self.parts[index].text.len() {
                return bytes_max - bytes_left;
            }
            if matches!(self.parts[index].kind, PartKind::Call { finished: true, .. }) && !place.finished {
                self.tell(FrameKey::CallFinished(index), frames);
                place.finished = true;
            }
        }
        if self.ended_at.is_some() {
            self.tell(FrameKey::Finished, frames);
            *reading = self.read();
        }
        bytes_max - bytes_left
    }

    fn tell(&mut self, key: FrameKey, frames: &mut Vec<Frame>) {
        frames.push(Frame::Streamed(self.encode(key, 0)));
    }

    /// Returns the frame that reports this. Its text begins at `offset`, in UTF-16 code units.
    fn encode(&mut self, key: FrameKey, offset: u64) -> FrameText {
        let Self { session, item, turn, parts, encoded, .. } = self;
        let started = |kind, part, name| {
            let (item_id, turn_id) = (item.clone(), turn.clone());
            EphemeralEvent::ItemStarted(ItemStarted { item_id, turn_id, kind, part, name })
        };
        let finished = |part| EphemeralEvent::ItemFinished(ItemFinished { item_id: item.clone(), part });
        let number = |part: usize| Some(u32::try_from(part).unwrap_or(u32::MAX));
        encoded.frame(key, || {
            let event = match key {
                FrameKey::Text { part, from, to } => {
                    return delta_frame(session, item, part, &parts[part], offset, from..to);
                }
                FrameKey::Started => started(ItemKind::Message, None, None),
                FrameKey::CallStarted(part) => {
                    let name = match &parts[part].kind {
                        PartKind::Call { name, .. } => Some(name.clone()),
                        PartKind::Text | PartKind::Reasoning => None,
                    };
                    started(ItemKind::ToolCall, number(part), name)
                }
                FrameKey::CallFinished(part) => finished(number(part)),
                FrameKey::Finished => finished(None),
            };
            encode_event(Some(session), &event)
        })
    }
}

/// Serialises a delta by hand, because there is one for each token of every answer.
fn delta_frame(
    session: &SessionId,
    item: &EntryId,
    number: usize,
    part: &LivePart,
    offset: u64,
    bytes: Range<usize>,
) -> String {
    let text = &part.text[bytes];
    let mut frame = String::with_capacity(text.len() + 136);
    let _ = write!(
        frame,
        "{{\"sessionId\":\"{session}\",\"type\":\"item_delta\",\"payload\":{{\"itemId\":\"{item}\",\"part\":{number},\"offset\":{offset},"
    );
    frame.push_str(match part.kind {
        PartKind::Text => "",
        PartKind::Reasoning => "\"kind\":\"reasoning\",",
        PartKind::Call { .. } => "\"kind\":\"arguments\",",
    });
    frame.push_str("\"text\":");
    frame.push_str(&serde_json::to_string(text).expect("a text is JSON"));
    frame.push_str("}}");
    frame
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
    use reseed_protocol::turn::DeltaKind;

    #[test]
    fn a_delta_frame_is_small_and_true() {
        let frame = |item: &str, kind: PartKind, offset: u64, text: &str| {
            let part = LivePart { kind, text: text.to_owned(), utf16: 0 };
            let session = "abcdefghijklmnop".parse().unwrap();
            delta_frame(&session, &item.parse().unwrap(), 1, &part, offset, 0..text.len())
        };
        for (kind, expected) in [
            (PartKind::Text, None),
            (PartKind::Reasoning, Some(DeltaKind::Reasoning)),
            (PartKind::Call { name: "look".into(), finished: false }, Some(DeltaKind::Arguments)),
        ] {
            let frame = frame("item", kind, 7, "say \"hi\"\n");
            let parsed: EphemeralEvent = serde_json::from_str(&frame).unwrap();
            let EphemeralEvent::ItemDelta(delta) = parsed else { panic!("{parsed:?}") };
            assert_eq!((delta.part, delta.offset, delta.text.as_str(), delta.kind), (1, 7, "say \"hi\"\n", expected));
        }
        let length = frame("abcdefghijkl", PartKind::Text, 100_000, "").len();
        assert!(length <= 148, "{length} bytes, and 4 of the WebSocket header");
    }
}
