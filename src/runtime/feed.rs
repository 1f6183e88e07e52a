//! What subscribers read. A subscriber holds a cursor, not a queue: however slow it is, it costs the same.
//!
//! Three things are read, in this order: durable events, by `seq`, from the newest few in memory or else from the
//! store; ephemeral events, of which a slow reader misses the oldest; and the text of the answer that is being
//! streamed, as one piece from where the reader is to where the answer is, so that deltas coalesce by themselves.
//!
//! Invariant: nothing enters here as durable before the store has acknowledged it.

use super::live::{Live, Reading};
use crate::core::model::Delta;
use reseed_protocol::{
    CloseCode, EntryId, ErrorCode, Part, TurnId,
    event::{EphemeralEvent, ItemAborted},
    frame::encode,
    reply::RunningItem,
};
use std::{
    collections::VecDeque,
    ops::Deref,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{sync::watch, time::Instant};

/// Durable events kept in memory for readers that keep up; others read the store.
const TAIL_EVENTS_MAX: usize = 32;
/// Bytes of them: an idle session holds little.
const TAIL_BYTES_MAX: usize = 16 * 1024;
/// Ephemeral events kept: a reader that misses more has missed decoration.
const EPHEMERAL_EVENTS_MAX: usize = 32;

/// Id of the frames that tell one reader which answers came to nothing while it was away; those of events for all count
/// from 1.
const VOID_ID: &str = "s_e0";

/// How long after text has woken its readers more text wakes them at the earliest: what comes meanwhile goes out together.
/// Models are mostly slower (125 deltas a second), no screen shows more, and waking costs more than the text. Readers
/// look by themselves a while after text that they were given ([`TEXT_MAY_WAIT`]), for what came in the pause and after
/// which nothing came.
const DELTA_PAUSE: Duration = Duration::from_millis(8);
/// How long after text that it was given a reader looks for more without being woken. Longer than the pause by far, so
/// that whatever comes later than this wakes it.
pub const TEXT_MAY_WAIT: Duration = Duration::from_millis(25);

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
    /// A reader of text has seen everything and waits. Those that still have something to fetch are not woken for more.
    awaited: bool,
    /// When text last woke readers; none for an answer of which nothing was shown.
    woken_at: Option<Instant>,
}

#[derive(Debug)]
struct Ephemeral {
    number: u64,
    after_seq: u64,
    frame: Arc<str>,
}

/// Where a subscriber is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The last durable event it was given.
    pub seq: u64,
    ephemeral: u64,
    answer: Reading,
    /// Answers of which it has seen some and which came to nothing while it was away: it is told so before all else.
    void: Vec<EntryId>,
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
    Behind {
        /// The last one that it was given.
        after: u64,
        /// The last one that was published: the store may have more by now, whose replies have not gone out yet.
        up_to: u64,
    },
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
        inner.live = Some(Live::new(number, item, turn));
        inner.woken_at = None;
    }

    /// More of the answer. Words of an answer that is no longer streamed are dropped.
    pub(super) fn delta(&self, item: &EntryId, delta: Delta<'_>) {
        let mut inner = self.lock();
        let Some(live) = inner.streamed(item) else { return };
        live.push(delta);
        if inner.awaited && inner.woken_at.is_none_or(|at| at.elapsed() >= DELTA_PAUSE) {
            inner.awaited = false;
            inner.woken_at = Some(Instant::now());
            drop(inner);
            self.changed.send_replace(());
        }
    }

    /// Ends the streaming and says what was shown.
    pub(super) fn take_shown(&self, item: &EntryId) -> Vec<Part> {
        let mut inner = self.lock();
        let parts = inner.streamed(item).map(|live| live.parts());
        if parts.is_some() {
            inner.live = None;
        }
        parts.unwrap_or_default()
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
        let mut cursor = Cursor { seq: inner.seq, ephemeral: inner.ephemeral_count, ..Cursor::default() };
        let streaming = inner.live.as_ref().filter(|live| live.is_streaming());
        let items: Vec<RunningItem> = streaming.and_then(Live::running).into_iter().collect();
        if let Some(live) = streaming.filter(|_| !items.is_empty()) {
            cursor.answer = live.read();
        }
        (cursor, items)
    }

    /// A cursor for a subscriber that has seen everything up to `seq` and, of the streamed answer, so many UTF-16 code
    /// units of each part. `None` when it cannot have: then it needs the whole state.
    #[must_use]
    pub fn rejoin(&self, seq: u64, items: &[Seen]) -> Option<Cursor> {
        let inner = self.lock();
        if seq > inner.seq {
            return None;
        }
        let mut cursor = Cursor { seq, ephemeral: inner.ephemeral_count, ..Cursor::default() };
        let unfinished = |live: &&Live| live.ended_at.is_none_or(|ended| seq < ended);
        let Some(live) = inner.live.as_ref().filter(unfinished) else { return Some(cursor) };
        let mut seen = items.iter().filter(|seen| seen.item == live.item).peekable();
        if seen.peek().is_some() {
            cursor.answer = live.seen(seen)?;
        } else if !live.is_streaming() {
            // Whoever comes back after the end and had seen nothing of it is given the entry alone.
            cursor.answer = live.read();
        }
        Some(cursor)
    }

    /// Whether this is the answer that is being streamed, or the one that was last.
    pub(super) fn holds(&self, item: &EntryId) -> bool {
        self.lock().live.as_ref().is_some_and(|live| live.item == *item)
    }

    /// What this subscriber has not seen, up to about `bytes_max`, with the text of the streamed answer or without;
    /// moves its cursor. Empty: it has seen everything.
    #[must_use]
    pub fn next(&self, cursor: &mut Cursor, text: bool, bytes_max: usize) -> Vec<Frame> {
        let mut inner = self.lock();
        let mut frames = inner.next(cursor, text, bytes_max);
        if frames.is_empty() {
            inner.awaited |= text;
            frames.extend(inner.closed.map(Frame::Closed));
        }
        frames
    }
}

impl Cursor {
    /// Has its reader told first that these answers came to nothing.
    pub(super) fn tell_void(&mut self, items: Vec<EntryId>) {
        self.void = items;
    }

    /// Whether the answer has ended, and the subscriber has not come to its end and lacks some of it.
    fn is_owed(&self, live: &Live) -> bool {
        live.ended_at.is_some_and(|ended| self.seq < ended) && live.has_more(&self.answer)
    }
}

impl Inner {
    /// The answer that is being streamed, if it is this one.
    fn streamed(&mut self, item: &EntryId) -> Option<&mut Live> {
        self.live.as_mut().filter(|live| live.is_streaming() && live.item == *item)
    }

    fn next(&self, cursor: &mut Cursor, text: bool, bytes_max: usize) -> Vec<Frame> {
        let mut frames: Vec<Frame> = cursor.void.drain(..).map(void_frame).collect();
        let mut bytes = 0;
        if cursor.seq < self.seq {
            let first = self.tail.front().map_or(u64::MAX, |(seq, _)| *seq);
            if first > cursor.seq + 1 {
                match self.live.as_ref().filter(|live| text && cursor.is_owed(live)) {
                    Some(live) => {
                        live.next(&mut cursor.answer, bytes_max, &mut frames);
                    }
                    None => frames.push(Frame::Behind { after: cursor.seq, up_to: self.seq }),
                }
                return frames;
            }
        }
        let from = self.tail.partition_point(|(seq, _)| *seq <= cursor.seq);
        let mut durable = self.tail.range(from..).peekable();
        let from = self.ephemeral.partition_point(|event| event.number <= cursor.ephemeral);
        let mut ephemeral = self.ephemeral.range(from..).peekable();
        while bytes < bytes_max {
            match (durable.peek(), ephemeral.peek()) {
                (Some((seq, body)), other) if other.is_none_or(|event| event.after_seq >= *seq) => {
                    let ended = self.live.as_ref().filter(|live| live.ended_at == Some(*seq));
                    if let Some(live) = ended.filter(|live| text && cursor.is_owed(live)) {
                        bytes += live.next(&mut cursor.answer, bytes_max.saturating_sub(bytes), &mut frames);
                        if cursor.is_owed(live) {
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
        let streaming = self.live.as_ref().filter(|live| text && caught_up && live.is_streaming());
        if let Some(live) = streaming.filter(|live| live.has_more(&cursor.answer)) {
            live.next(&mut cursor.answer, bytes_max.saturating_sub(bytes), &mut frames);
        }
        frames
    }
}

fn void_frame(item_id: EntryId) -> Frame {
    let reason = ErrorCode::Interrupted.as_str().to_owned();
    Frame::Ephemeral(encode(VOID_ID, &EphemeralEvent::ItemAborted(ItemAborted { item_id, reason })).into())
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
        for (entry, then) in [("entry", &["2 entry", "3 end"][..]), (&long, &["Behind { after: 1, up_to: 3 }"])] {
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
                    if matches!(frames.last(), None | Some(Frame::Behind { .. })) {
                        break;
                    }
                }
                assert_eq!(got, [answer, then].concat());
            }
            assert!(feed.join().1.is_empty(), "nothing is being streamed");
        }
    }

    #[test]
    fn text_wakes_who_waits_and_not_again_at_once() {
        let feed = Feed::new(0);
        let (item, turn) = ids();
        let (mut cursor, _) = feed.join();
        let mut changed = feed.watch();
        let mut woken = || {
            let woken = changed.has_changed().unwrap();
            changed.mark_unchanged();
            woken
        };
        let word = || feed.delta(&item, Delta::Text { part: 0, text: "x" });
        assert!(read(&feed, &mut cursor).is_empty());
        feed.begin_item(&item, &turn);
        word();
        assert!(woken(), "it waited");
        word();
        assert!(!woken(), "it has not come yet");
        assert_eq!(read(&feed, &mut cursor), ["item_started", "0@0 xx"]);
        assert!(read(&feed, &mut cursor).is_empty());
        word();
        assert!(!woken(), "it was woken a moment ago, and will look by itself");
        feed.publish(&["a".into()], None);
        assert!(woken(), "durable events wake at once");
        assert_eq!(read(&feed, &mut cursor), ["1 a", "0@2 x"]);
        assert!(read(&feed, &mut cursor).is_empty());
        feed.begin_item(&item, &turn);
        word();
        assert!(woken(), "so do the first words of an answer");
        feed.lock().woken_at = Instant::now().checked_sub(DELTA_PAUSE);
        read(&feed, &mut cursor);
        assert!(read(&feed, &mut cursor).is_empty());
        word();
        assert!(woken(), "and words after a pause");
    }

    #[test]
    fn who_comes_back_is_told_first_which_answers_came_to_nothing() {
        let feed = Feed::new(0);
        feed.publish(&["a".into()], None);
        let mut cursor = feed.rejoin(0, &[]).unwrap();
        cursor.tell_void(vec![ids().0]);
        assert_eq!(read(&feed, &mut cursor), ["item_aborted", "1 a"]);
        assert!(read(&feed, &mut cursor).is_empty());
    }

    #[test]
    fn a_reader_that_is_far_behind_is_sent_to_the_store() {
        let feed = Feed::new(0);
        let (mut cursor, _) = feed.join();
        for _ in 0..TAIL_EVENTS_MAX + 1 {
            feed.publish(&["x".into()], None);
        }
        assert_eq!(feed.next(&mut cursor, true, 1024), [Frame::Behind { after: 0, up_to: TAIL_EVENTS_MAX as u64 + 1 }]);
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
}
