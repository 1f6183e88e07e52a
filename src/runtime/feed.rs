//! What subscribers read. A subscriber holds a cursor, not a queue: however slow it is, it costs the same.
//!
//! Three things are read, in this order: durable events, by `seq`, from the newest few in memory or else from the
//! store; ephemeral events, of which a slow reader misses the oldest; and the text of the answer that is being
//! streamed, as one piece from where the reader is to where the answer is, so that deltas coalesce by themselves.
//!
//! Invariant: nothing enters here as durable before the store has acknowledged it.

use crate::core::model::Delta;
use reseed_protocol::{
    CloseCode, EntryId, Part, TurnId,
    event::{EphemeralEvent, ItemStarted},
    frame::encode,
    reply::RunningItem,
};
use std::{
    collections::VecDeque,
    fmt::Write as _,
    ops::Deref,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::sync::watch;

/// Durable events kept in memory for readers that keep up; others read the store.
const TAIL_EVENTS_MAX: usize = 32;
/// Bytes of them: an idle session holds little.
const TAIL_BYTES_MAX: usize = 16 * 1024;
/// Ephemeral events kept: a reader that misses more has missed decoration.
const EPHEMERAL_EVENTS_MAX: usize = 32;
/// Most text of one delta, so that a reader that was away does not get one huge frame.
const DELTA_BYTES_MAX: usize = 16 * 1024;
/// Id of delta frames: there may be thousands, and none is ever answered.
const DELTA_ID: &str = "s_d";

/// A session's feed.
#[derive(Debug)]
pub struct Feed {
    inner: Mutex<Inner>,
    changed: watch::Sender<()>,
    readers: AtomicUsize,
}

#[derive(Debug, Default)]
struct Inner {
    seq: u64,
    tail: VecDeque<(u64, Arc<str>)>,
    tail_bytes: usize,
    ephemeral: VecDeque<Ephemeral>,
    ephemeral_count: u64,
    live: Option<Live>,
    live_count: u64,
    closed: Option<CloseCode>,
}

#[derive(Debug)]
struct Ephemeral {
    number: u64,
    after_seq: u64,
    frame: Arc<str>,
}

/// The answer that is being streamed.
#[derive(Debug)]
struct Live {
    number: u64,
    item: EntryId,
    turn: TurnId,
    parts: Vec<LivePart>,
    /// The durable event with which it ended. It stays until the next answer: readers that were there are given all of
    /// it before that event.
    ended_at: Option<u64>,
}

#[derive(Debug)]
struct LivePart {
    reasoning: bool,
    text: String,
    utf16: u64,
}

/// Where a subscriber is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The last durable event it was given.
    pub seq: u64,
    ephemeral: u64,
    live: u64,
    parts: Vec<Place>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Place {
    bytes: usize,
    utf16: u64,
}

/// How much of a running item a subscriber has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The item.
    pub item: EntryId,
    /// Its part.
    pub part: u32,
    /// UTF-16 code units of that part.
    pub offset: u64,
}

/// A subscriber's hold on a feed: as long as there is one, someone is attached to the session.
#[derive(Debug)]
pub struct Reader(Arc<Feed>);

impl Reader {
    /// One more subscriber.
    pub(super) fn new(feed: &Arc<Feed>) -> Self {
        feed.readers.fetch_add(1, Ordering::Relaxed);
        Self(feed.clone())
    }
}

impl Deref for Reader {
    type Target = Feed;
    fn deref(&self) -> &Feed {
        &self.0
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a subscriber is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A durable event: its seq and its stored body.
    Durable(u64, Arc<str>),
    /// A whole frame of an ephemeral event.
    Ephemeral(Arc<str>),
    /// A whole frame of text of the streamed answer.
    Delta(String),
    /// Durable events after this seq are no longer in memory: read them from the store, then come back.
    Behind(u64),
    /// The session was closed: close the socket so.
    Closed(CloseCode),
}

impl Feed {
    /// The feed of a session whose newest durable event is `seq`.
    #[must_use]
    pub fn new(seq: u64) -> Arc<Self> {
        let inner = Inner { seq, ..Inner::default() };
        Arc::new(Self { inner: Mutex::new(inner), changed: watch::Sender::new(()), readers: AtomicUsize::new(0) })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every change is made whole before the lock is let go, so a panic elsewhere leaves nothing half done.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many subscribers hold it.
    pub(super) fn readers(&self) -> usize {
        self.readers.load(Ordering::Relaxed)
    }

    /// Wakes when there is more to read.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The newest durable event.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.lock().seq
    }

    /// Publishes durable events that the store has acknowledged. The entry of the streamed answer ends its streaming.
    pub(super) fn publish(&self, bodies: &[Arc<str>], ends: Option<&EntryId>) {
        let mut inner = self.lock();
        let first_seq = inner.seq + 1;
        if let Some(live) = inner.live.as_mut().filter(|live| live.is_streaming() && Some(&live.item) == ends) {
            live.ended_at = Some(first_seq);
        }
        for body in bodies {
            inner.seq += 1;
            let seq = inner.seq;
            inner.tail_bytes += body.len();
            inner.tail.push_back((seq, body.clone()));
        }
        while inner.tail.len() > TAIL_EVENTS_MAX || (inner.tail_bytes > TAIL_BYTES_MAX && inner.tail.len() > 1) {
            if let Some((_, body)) = inner.tail.pop_front() {
                inner.tail_bytes -= body.len();
            }
        }
        drop(inner);
        self.changed.send_replace(());
    }

    /// Publishes an ephemeral event. One that aborts the streamed answer ends its streaming.
    pub(super) fn emit(&self, event: &EphemeralEvent) {
        let mut inner = self.lock();
        inner.ephemeral_count += 1;
        let number = inner.ephemeral_count;
        let frame = encode(&format!("s_e{number}"), event).into();
        let after_seq = inner.seq;
        inner.ephemeral.push_back(Ephemeral { number, after_seq, frame });
        if inner.ephemeral.len() > EPHEMERAL_EVENTS_MAX {
            inner.ephemeral.pop_front();
        }
        if let EphemeralEvent::ItemAborted(aborted) = event
            && inner.live.as_ref().is_some_and(|live| live.item == aborted.item_id)
        {
            inner.live = None;
        }
        drop(inner);
        self.changed.send_replace(());
    }

    /// An answer will be streamed under this id.
    pub(super) fn begin_item(&self, item: &EntryId, turn: &TurnId) {
        let mut inner = self.lock();
        inner.live_count += 1;
        let number = inner.live_count;
        let (item, turn) = (item.clone(), turn.clone());
        inner.live = Some(Live { number, item, turn, parts: Vec::new(), ended_at: None });
    }

    /// More of the answer. Words of an answer that is no longer streamed are dropped.
    pub(super) fn delta(&self, item: &EntryId, delta: Delta<'_>) {
        let (part, reasoning, text) = match delta {
            Delta::Text { part, text } => (part, false, text),
            Delta::Reasoning { part, text } => (part, true, text),
        };
        let mut inner = self.lock();
        let Some(live) = inner.streamed(item) else { return };
        // Parts that are not shown (tool calls) leave empty places, so that part numbers match the entry's.
        while live.parts.len() <= part {
            live.parts.push(LivePart { reasoning, text: String::new(), utf16: 0 });
        }
        let place = &mut live.parts[part];
        place.reasoning = reasoning;
        place.text.push_str(text);
        place.utf16 += reseed_protocol::content::utf16_len(text);
        drop(inner);
        self.changed.send_replace(());
    }

    /// Ends the streaming and says what was shown.
    pub(super) fn take_shown(&self, item: &EntryId) -> Vec<Part> {
        let mut inner = self.lock();
        if inner.streamed(item).is_none() {
            return Vec::new();
        }
        inner.live.take().map(|live| live.parts.into_iter().map(LivePart::into_part).collect()).unwrap_or_default()
    }

    /// Ends the feed: every subscriber closes its socket with this code.
    pub(super) fn close(&self, code: CloseCode) {
        self.lock().closed.get_or_insert(code);
        self.changed.send_replace(());
    }

    /// A cursor for a subscriber that is given the state as of now, and what is being streamed.
    #[must_use]
    pub fn join(&self) -> (Cursor, Vec<RunningItem>) {
        let inner = self.lock();
        let mut cursor = Cursor { seq: inner.seq, ephemeral: inner.ephemeral_count, live: 0, parts: Vec::new() };
        let streaming = inner.live.as_ref().filter(|live| live.is_streaming() && !live.parts.is_empty());
        let Some(live) = streaming else { return (cursor, Vec::new()) };
        cursor.live = live.number;
        cursor.parts = live.places();
        let parts = live.parts.iter().map(|part| part.clone_part()).collect();
        (cursor, vec![RunningItem { item_id: live.item.clone(), parts }])
    }

    /// A cursor for a subscriber that has seen everything up to `seq` and, of the streamed answer, so many UTF-16 code
    /// units of each part. `None` when it cannot have: then it needs the whole state.
    #[must_use]
    pub fn rejoin(&self, seq: u64, items: &[Seen]) -> Option<Cursor> {
        let inner = self.lock();
        if seq > inner.seq {
            return None;
        }
        let mut cursor = Cursor { seq, ephemeral: inner.ephemeral_count, live: 0, parts: Vec::new() };
        let unseen = |live: &&Live| live.ended_at.is_none_or(|ended| seq < ended);
        let Some(live) = inner.live.as_ref().filter(unseen) else { return Some(cursor) };
        for Seen { part, offset, .. } in items.iter().filter(|seen| seen.item == live.item) {
            let at = usize::try_from(*part).ok()?;
            let text = &live.parts.get(at)?.text;
            let bytes = byte_place(text, *offset)?;
            if cursor.parts.len() <= at {
                cursor.parts.resize(at + 1, Place::default());
            }
            cursor.parts[at] = Place { bytes, utf16: *offset };
            cursor.live = live.number;
        }
        // Whoever comes back after the end and had seen nothing of it is given the entry alone.
        if !live.is_streaming() && cursor.live != live.number {
            (cursor.live, cursor.parts) = (live.number, live.places());
        }
        Some(cursor)
    }

    /// What this subscriber has not seen, up to about `bytes_max`; moves its cursor. Empty: it has seen everything.
    #[must_use]
    pub fn next(&self, cursor: &mut Cursor, deltas: bool, bytes_max: usize) -> Vec<Frame> {
        let inner = self.lock();
        let mut frames = Vec::new();
        let mut bytes = 0;
        if cursor.seq < inner.seq {
            let first = inner.tail.front().map_or(u64::MAX, |(seq, _)| *seq);
            if first > cursor.seq + 1 {
                let unread = inner.live.as_ref().filter(|live| deltas && live.is_owed(cursor));
                match unread {
                    Some(live) => drop(live.next(cursor, bytes_max, &mut frames)),
                    None => frames.push(Frame::Behind(cursor.seq)),
                }
                return frames;
            }
        }
        let from = inner.tail.partition_point(|(seq, _)| *seq <= cursor.seq);
        let mut durable = inner.tail.range(from..).peekable();
        let from = inner.ephemeral.partition_point(|event| event.number <= cursor.ephemeral);
        let mut ephemeral = inner.ephemeral.range(from..).peekable();
        while bytes < bytes_max {
            match (durable.peek(), ephemeral.peek()) {
                (Some((seq, body)), other) if other.is_none_or(|event| event.after_seq >= *seq) => {
                    let ended = inner.live.as_ref().filter(|live| live.ended_at == Some(*seq));
                    if let Some(live) = ended.filter(|live| deltas && live.is_owed(cursor)) {
                        bytes += live.next(cursor, bytes_max.saturating_sub(bytes), &mut frames);
                        if live.is_owed(cursor) {
                            return frames;
                        }
                    }
                    frames.push(Frame::Durable(*seq, body.clone()));
                    bytes += body.len();
                    cursor.seq = *seq;
                    durable.next();
                }
                (_, Some(event)) => {
                    frames.push(Frame::Ephemeral(event.frame.clone()));
                    bytes += event.frame.len();
                    cursor.ephemeral = event.number;
                    ephemeral.next();
                }
                (Some(_), None) | (None, None) => break,
            }
        }
        let caught_up = durable.peek().is_none() && ephemeral.peek().is_none();
        if caught_up
            && deltas
            && let Some(live) = inner.live.as_ref().filter(|live| live.is_streaming())
        {
            live.next(cursor, bytes_max.saturating_sub(bytes), &mut frames);
        }
        if frames.is_empty()
            && let Some(code) = inner.closed
        {
            frames.push(Frame::Closed(code));
        }
        frames
    }
}

impl LivePart {
    fn clone_part(&self) -> Part {
        let text = self.text.clone();
        if self.reasoning { Part::Reasoning { text, payload: None } } else { Part::Text { text } }
    }

    fn into_part(self) -> Part {
        if self.reasoning { Part::Reasoning { text: self.text, payload: None } } else { Part::Text { text: self.text } }
    }
}

impl Inner {
    /// The answer that is being streamed, if it is this one.
    fn streamed(&mut self, item: &EntryId) -> Option<&mut Live> {
        self.live.as_mut().filter(|live| live.is_streaming() && live.item == *item)
    }
}

impl Live {
    fn is_streaming(&self) -> bool {
        self.ended_at.is_none()
    }

    /// Whether the answer has ended, and a reader that has not seen its end lacks some of it.
    fn is_owed(&self, cursor: &Cursor) -> bool {
        let seen = if cursor.live == self.number { cursor.parts.as_slice() } else { &[] };
        self.ended_at.is_some_and(|ended| cursor.seq < ended)
            && !(self.parts.len() == seen.len()
                && self.parts.iter().zip(seen).all(|(part, place)| part.text.len() == place.bytes))
    }

    /// Where a reader is that has been given all of it.
    fn places(&self) -> Vec<Place> {
        self.parts.iter().map(|part| Place { bytes: part.text.len(), utf16: part.utf16 }).collect()
    }

    /// Adds what a reader has not been given, in frames of about `bytes_left` bytes of text; returns how many.
    fn next(&self, cursor: &mut Cursor, mut bytes_left: usize, frames: &mut Vec<Frame>) -> usize {
        let bytes_max = bytes_left;
        if self.parts.is_empty() {
            return 0;
        }
        if cursor.live != self.number {
            cursor.live = self.number;
            cursor.parts.clear();
            let started = EphemeralEvent::ItemStarted(ItemStarted {
                item_id: self.item.clone(),
                turn_id: self.turn.clone(),
                kind: "message".to_owned(),
            });
            frames.push(Frame::Ephemeral(encode(DELTA_ID, &started).into()));
        }
        cursor.parts.resize(self.parts.len(), Place::default());
        for (index, (part, place)) in self.parts.iter().zip(&mut cursor.parts).enumerate() {
            while place.bytes < part.text.len() && bytes_left > 0 {
                let rest = &part.text[place.bytes..];
                let piece = &rest[..rest.floor_char_boundary(DELTA_BYTES_MAX.min(bytes_left).max(4))];
                frames.push(Frame::Delta(delta_frame(&self.item, index, part.reasoning, place.utf16, piece)));
                place.bytes += piece.len();
                place.utf16 += reseed_protocol::content::utf16_len(piece);
                bytes_left = bytes_left.saturating_sub(piece.len());
            }
        }
        bytes_max - bytes_left
    }
}

/// Written by hand: one for each token of every answer, for every reader.
fn delta_frame(item: &EntryId, part: usize, reasoning: bool, offset: u64, text: &str) -> String {
    let mut frame = String::with_capacity(text.len() + 112);
    let _ = write!(
        frame,
        "{{\"id\":\"{DELTA_ID}\",\"type\":\"item_delta\",\"payload\":{{\"itemId\":\"{item}\",\"part\":{part},\"offset\":{offset},"
    );
    if reasoning {
        frame.push_str("\"kind\":\"reasoning\",");
    }
    frame.push_str("\"text\":");
    frame.push_str(&serde_json::to_string(text).expect("a text is JSON"));
    frame.push_str("}}");
    frame
}

/// The byte at which `utf16` code units of a text have passed; `None` within a character or beyond the end.
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

    fn text(frame: &Frame) -> String {
        match frame {
            Frame::Durable(seq, body) => format!("{seq} {body}"),
            Frame::Ephemeral(frame) => {
                let value: serde_json::Value = serde_json::from_str(frame).unwrap();
                value["type"].as_str().unwrap().to_owned()
            }
            Frame::Delta(frame) => {
                let value: serde_json::Value = serde_json::from_str(frame).unwrap();
                let payload = &value["payload"];
                format!("{}@{} {}", payload["part"], payload["offset"], payload["text"].as_str().unwrap())
            }
            other => format!("{other:?}"),
        }
    }

    fn read(feed: &Feed, cursor: &mut Cursor) -> Vec<String> {
        feed.next(cursor, true, 64 * 1024).iter().map(text).collect()
    }

    fn ids() -> (EntryId, TurnId) {
        ("item".parse().unwrap(), "turn".parse().unwrap())
    }

    #[test]
    fn each_reader_gets_everything_once_at_its_own_pace() {
        let feed = Feed::new(0);
        let (item, turn) = ids();
        let (mut fast, _) = feed.join();
        let (mut slow, _) = feed.join();
        feed.publish(&["a".into()], None);
        assert_eq!(read(&feed, &mut fast), ["1 a"]);
        feed.begin_item(&item, &turn);
        for piece in ["Grü", "ße 🌍", "!"] {
            feed.delta(&item, Delta::Text { part: 0, text: piece });
            read(&feed, &mut fast);
        }
        assert_eq!(read(&feed, &mut slow), ["1 a", "item_started", "0@0 Grüße 🌍!"]);
        feed.delta(&item, Delta::Text { part: 0, text: "x" });
        assert_eq!(read(&feed, &mut slow), ["0@9 x"]);
        assert_eq!(read(&feed, &mut fast), ["0@9 x"]);
        feed.publish(&["b".into()], Some(&item));
        feed.delta(&item, Delta::Text { part: 0, text: "late" });
        assert_eq!(read(&feed, &mut slow), ["2 b"]);
        assert!(read(&feed, &mut slow).is_empty());
    }

    #[test]
    fn the_rest_of_an_answer_comes_before_its_entry_however_late_its_reader_is() {
        let long = "x".repeat(TAIL_BYTES_MAX + 1);
        for (entry, then) in [("entry", &["2 entry", "3 end"][..]), (&long, &["Behind(1)"])] {
            let feed = Feed::new(0);
            let (item, turn) = ids();
            feed.publish(&["begin".into()], None);
            let (mut began, _) = feed.join();
            let (late, _) = feed.join();
            feed.begin_item(&item, &turn);
            feed.delta(&item, Delta::Text { part: 0, text: "one" });
            assert_eq!(read(&feed, &mut began), ["item_started", "0@0 one"]);
            feed.delta(&item, Delta::Text { part: 0, text: " two" });
            feed.publish(&[entry.into(), "end".into()], Some(&item));
            let back = feed.rejoin(1, &[Seen { item: item.clone(), part: 0, offset: 3 }]).unwrap();
            let away = feed.rejoin(1, &[]).unwrap();
            let rest: &[&str] = &["0@3  two"];
            let table = [(began, rest), (late, &["item_started", "0@0 one ", "0@4 two"]), (back, rest), (away, &[])];
            for (mut cursor, answer) in table {
                let mut got = Vec::new();
                loop {
                    let frames = feed.next(&mut cursor, true, 4);
                    got.extend(frames.iter().map(text));
                    if matches!(frames.last(), None | Some(Frame::Behind(_))) {
                        break;
                    }
                }
                assert_eq!(got, [answer, then].concat());
            }
            assert!(feed.join().1.is_empty(), "nothing is being streamed");
        }
    }

    #[test]
    fn a_reader_that_is_far_behind_is_sent_to_the_store() {
        let feed = Feed::new(0);
        let (mut cursor, _) = feed.join();
        for _ in 0..TAIL_EVENTS_MAX + 1 {
            feed.publish(&["x".into()], None);
        }
        assert_eq!(feed.next(&mut cursor, true, 1024), [Frame::Behind(0)]);
    }

    #[test]
    fn a_reader_rejoins_within_an_answer_or_not_at_all() {
        let feed = Feed::new(3);
        let (item, turn) = ids();
        feed.begin_item(&item, &turn);
        feed.delta(&item, Delta::Text { part: 0, text: "a🌍b" });
        let table: &[(u64, u64, Option<&[&str]>)] =
            &[(3, 0, Some(&["0@0 a🌍b"])), (3, 3, Some(&["0@3 b"])), (3, 2, None), (3, 9, None), (4, 0, None)];
        for (seq, offset, expected) in table {
            let cursor = feed.rejoin(*seq, &[Seen { item: item.clone(), part: 0, offset: *offset }]);
            let got = cursor.map(|mut cursor| read(&feed, &mut cursor));
            assert_eq!(got, expected.map(|e| e.iter().map(ToString::to_string).collect()), "{seq} {offset}");
        }
    }

    #[test]
    fn a_delta_frame_is_small_and_true() {
        let (item, _) = ids();
        let frame = delta_frame(&item, 1, true, 7, "say \"hi\"\n");
        let parsed: EphemeralEvent = serde_json::from_str(&frame).unwrap();
        let EphemeralEvent::ItemDelta(delta) = parsed else { panic!("{parsed:?}") };
        assert_eq!((delta.part, delta.offset, delta.text.as_str()), (1, 7, "say \"hi\"\n"));
        let twelve: EntryId = "abcdefghijkl".parse().unwrap();
        assert!(delta_frame(&twelve, 0, false, 100_000, "").len() <= 126, "130 bytes with the WebSocket header");
    }
}
