//! The feed that subscribers read. A subscriber holds a cursor, not a queue, so it costs the same however slow it is.
//!
//! A subscriber reads three things, in this order:
//! - durable events by `seq`: the newest few from memory, and others from the store;
//! - ephemeral events; a slow reader misses the oldest;
//! - the text of the answer being streamed, as one piece from the reader's position to the end, so that deltas
//!   coalesce.
//!
//! Readers share serialised frames. A durable or ephemeral event is serialised once, when it is published. A piece of
//! the answer is serialised once for all readers at the same position. Only a reader that must read the store does so
//! alone.
//!
//! Invariant: nothing enters the feed as durable before the store has acknowledged it.

use super::{
    encoded::{Frame, FrameText},
    live::{AnswerPosition, ItemPosition, Live},
    tail::Tail,
};
use crate::core::model::Delta;
use reseed_protocol::{
    ConnectionId, EntryId, ErrorCode, Part, SessionId, TurnId,
    event::EphemeralEvent,
    frame::{encode_event, encode_stored},
    session::SubscriptionEnd,
    turn::{ItemAborted, RunningItem},
};
use std::{
    collections::VecDeque,
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::Notify, time::Instant};

/// Maximum number of ephemeral events kept. Most are for display only, and a slow reader may miss them. The host, and
/// the end of an answer without an entry, must not be missed. So the oldest of the other events is dropped first,
/// starting with presence.
const EPHEMERAL_EVENTS_MAX: usize = 32;

/// The minimum interval at which text wakes its readers. Text that arrives in between is sent together. Most models are
/// slower than 125 deltas a second, no screen shows more, and waking costs more than the text. After receiving text,
/// readers check again within [`TEXT_MAY_WAIT`], in case the last text came during the pause.
const DELTA_PAUSE: Duration = Duration::from_millis(8);
/// How long after text a reader checks for more without being woken. It is much longer than the pause, so text that
/// arrives later wakes the reader.
pub(crate) const TEXT_MAY_WAIT: Duration = Duration::from_millis(25);

/// A session's feed.
#[derive(Debug)]
pub struct Feed {
    session: SessionId,
    inner: Mutex<Inner>,
}

/// Wakes a connection when any of its feeds has more. It costs a feed eight bytes, and a connection one waiter, however
/// many sessions it subscribes to.
pub(crate) type Bell = Arc<Notify>;

#[derive(Debug, Default)]
struct Inner {
    /// One per subscriber.
    bells: Vec<Bell>,
    seq: u64,
    tail: Tail,
    ephemeral: VecDeque<Ephemeral>,
    ephemeral_count: u64,
    live: Option<Live>,
    live_count: u32,
    closed: Option<SubscriptionEnd>,
    /// True if a reader of text has seen everything and is waiting. Readers that still have something to fetch are not
    /// woken again.
    awaited: bool,
    /// When text last woke readers; `None` if nothing of the answer was shown yet.
    woken_at: Option<Instant>,
}

#[derive(Debug)]
struct Ephemeral {
    number: u64,
    after_seq: u64,
    frame: FrameText,
    /// True if it reports an aborted answer. A reader that saw a part of the answer must receive it.
    ends_item: bool,
    /// The subject whose newest state it reports. It replaces earlier events about the same subject.
    about: Option<About>,
}

/// Subjects for which a reader needs only the newest state.
#[derive(Debug, Clone, PartialEq, Eq)]
enum About {
    /// The size of the context.
    Size,
    /// The wait for the model server.
    Delay,
    /// The session's host.
    Host,
    /// A connection of the session.
    Connection(ConnectionId),
}

impl About {
    fn of(event: &EphemeralEvent) -> Option<Self> {
        match event {
            EphemeralEvent::ContextUpdated(_) => Some(Self::Size),
            EphemeralEvent::RequestDelayed(_) => Some(Self::Delay),
            EphemeralEvent::HostChanged(_) => Some(Self::Host),
            EphemeralEvent::PresenceChanged(changed) => {
                Some(Self::Connection(changed.connection.connection_id.clone()))
            }
            _ => None,
        }
    }
}

/// A subscriber's position.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The last durable event it received.
    pub seq: u64,
    ephemeral: u64,
    answer: AnswerPosition,
    /// Answers that it saw in part and that were aborted while it was away. They are reported before anything else.
    void: Vec<EntryId>,
}

/// A subscriber's registration with a feed. While one exists, the session counts as attached.
#[derive(Debug)]
pub struct Reader {
    feed: Arc<Feed>,
    bell: Bell,
}

impl Reader {
    /// Adds a subscriber. Its bell rings now, and whenever there is more to read.
    pub(super) fn new(feed: &Arc<Feed>, bell: Bell) -> Self {
        feed.lock().bells.push(bell.clone());
        bell.notify_one();
        Self { feed: feed.clone(), bell }
    }
}

impl Deref for Reader {
    type Target = Feed;
    fn deref(&self) -> &Feed {
        &self.feed
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut inner = self.feed.lock();
        if let Some(at) = inner.bells.iter().position(|bell| Arc::ptr_eq(bell, &self.bell)) {
            inner.bells.swap_remove(at);
        }
    }
}

impl Feed {
    /// Creates the feed of a session whose newest durable event is `seq`.
    #[must_use]
    pub fn new(session: SessionId, seq: u64) -> Arc<Self> {
        let inner = Inner { seq, ..Inner::default() };
        Arc::new(Self { session, inner: Mutex::new(inner) })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every change is complete before the lock is released, so a panic elsewhere leaves nothing inconsistent.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of subscribers.
    pub(super) fn readers(&self) -> usize {
        self.lock().bells.len()
    }

    /// Returns the seq of the newest durable event.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.lock().seq
    }

    /// Publishes durable events, by their stored bodies. `durable` is the last `seq` that the store has acknowledged.
    /// The entry of the streamed answer ends its stream.
    pub(super) fn publish(&self, durable: u64, bodies: &[Arc<str>], ends: Option<&EntryId>) {
        let mut inner = self.lock();
        let first_seq = inner.seq + 1;
        if let Some(live) = inner.live.as_mut().filter(|live| live.ended_at.is_none() && Some(&live.item) == ends) {
            live.end(first_seq);
        }
        for body in bodies {
            inner.seq += 1;
            let seq = inner.seq;
            inner.tail.push(seq, encode_stored(&self.session, seq, body).into());
        }
        debug_assert_eq!(inner.seq, durable, "events are announced once they are durable, all of them and in order");
        inner.ring();
    }

    /// Publishes an ephemeral event. One that aborts the streamed answer ends its stream.
    pub(super) fn emit(&self, event: &EphemeralEvent) {
        let mut inner = self.lock();
        inner.ephemeral_count += 1;
        let number = inner.ephemeral_count;
        let frame = encode_event(Some(&self.session), event).into();
        let after_seq = inner.seq;
        let ends_item = matches!(event, EphemeralEvent::ItemAborted(_));
        let about = About::of(event);
        if about.is_some() {
            // A reader that has not read the previous event needs only this one.
            inner.ephemeral.retain(|earlier| earlier.about != about);
        }
        inner.ephemeral.push_back(Ephemeral { number, after_seq, frame, ends_item, about });
        if inner.ephemeral.len() > EPHEMERAL_EVENTS_MAX {
            let is_presence = |event: &Ephemeral| matches!(event.about, Some(About::Connection(_)));
            let may_be_missed = |event: &Ephemeral| !event.ends_item && event.about != Some(About::Host);
            let oldest = inner.ephemeral.iter().position(is_presence);
            let oldest = oldest.or_else(|| inner.ephemeral.iter().position(may_be_missed)).unwrap_or(0);
            inner.ephemeral.remove(oldest);
        }
        if let EphemeralEvent::ItemAborted(aborted) = event
            && inner.live.as_ref().is_some_and(|live| live.item == aborted.item_id)
        {
            inner.live = None;
        }
        inner.ring();
    }

    /// Starts streaming an answer under this id.
    pub(super) fn begin_item(&self, item: &EntryId, turn: &TurnId) {
        let mut inner = self.lock();
        inner.live_count += 1;
        let number = inner.live_count;
        let (item, turn) = (item.clone(), turn.clone());
        inner.live = Some(Live::new(self.session.clone(), number, item, turn));
        inner.woken_at = None;
    }

    /// Returns the item that may still become an entry: the answer being streamed, or the one that was stopped.
    pub(super) fn unfinished_item(&self) -> Option<EntryId> {
        let inner = self.lock();
        inner.live.as_ref().filter(|live| live.ended_at.is_none()).map(|live| live.item.clone())
    }

    /// Adds a piece to the answer. Pieces of an answer that is no longer streamed are dropped.
    pub(super) fn delta(&self, item: &EntryId, delta: Delta<'_>) {
        let mut inner = self.lock();
        let Some(live) = inner.streamed(item) else { return };
        live.push(delta);
        if inner.awaited && inner.woken_at.is_none_or(|at| at.elapsed() >= DELTA_PAUSE) {
            inner.awaited = false;
            inner.woken_at = Some(Instant::now());
            inner.ring();
        }
    }

    /// Stops the stream and returns what was shown, as parts of an entry. The entry or `item_aborted` then ends the
    /// item.
    pub(super) fn stop(&self, item: &EntryId) -> Vec<Part> {
        let mut inner = self.lock();
        // An answer that broke off is stopped once more if the turn is cancelled before its failure is handled.
        let live = inner.live.as_mut().filter(|live| live.ended_at.is_none() && live.item == *item);
        let Some(live) = live else { return Vec::new() };
        live.stop();
        live.shown()
    }

    /// Ends the feed, and every subscription to it for this reason.
    pub(super) fn close(&self, end: SubscriptionEnd) {
        let mut inner = self.lock();
        inner.closed.get_or_insert(end);
        inner.ring();
    }

    /// Returns a cursor for a subscriber that receives the current state, and the running items.
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

    /// Returns a cursor for a subscriber that has seen everything up to `seq`, and these UTF-16 code units of each part
    /// of the streamed answer. `None` if that is impossible, so that the subscriber needs the whole state.
    #[must_use]
    pub fn rejoin(&self, seq: u64, items: &[ItemPosition]) -> Option<Cursor> {
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
            // A subscriber that returns after the end and had seen none of the answer receives only the entry.
            cursor.answer = live.read();
        }
        Some(cursor)
    }

    /// Returns true if this is the answer being streamed, or the last one.
    pub(super) fn holds(&self, item: &EntryId) -> bool {
        self.lock().live.as_ref().is_some_and(|live| live.item == *item)
    }

    /// Returns what this subscriber has not seen, up to about `bytes_max`, and moves its cursor. If `text` is true,
    /// this includes the text of the streamed answer. The result is empty if the subscriber has seen everything.
    #[must_use]
    pub fn next(&self, cursor: &mut Cursor, text: bool, bytes_max: usize) -> Vec<Frame> {
        let mut inner = self.lock();
        let mut frames = inner.next(&self.session, cursor, text, bytes_max);
        if frames.is_empty() {
            inner.awaited |= text;
            frames.extend(inner.closed.map(Frame::Closed));
        }
        frames
    }
}

impl Cursor {
    /// Reports these aborted answers to the reader before anything else.
    pub(super) fn report_aborted(&mut self, items: Vec<EntryId>) {
        self.void = items;
    }

    /// Returns true if the answer has ended and the subscriber, which has not reached its end, lacks some of its text.
    fn is_owed(&self, live: &Live) -> bool {
        live.ended_at.is_some_and(|ended| self.seq < ended) && live.has_more(&self.answer)
    }
}

impl Inner {
    /// Returns the answer being streamed, if it is this item.
    fn streamed(&mut self, item: &EntryId) -> Option<&mut Live> {
        self.live.as_mut().filter(|live| live.is_streaming() && live.item == *item)
    }

    /// Wakes every subscriber.
    fn ring(&self) {
        self.bells.iter().for_each(|bell| bell.notify_one());
    }

    fn next(&mut self, session: &SessionId, cursor: &mut Cursor, text: bool, bytes_max: usize) -> Vec<Frame> {
        let mut frames: Vec<Frame> = cursor.void.drain(..).map(|item| void_frame(session, item)).collect();
        let mut bytes = 0;
        let mut live = self.live.as_mut().filter(|_| text);
        if cursor.seq < self.seq {
            let first = self.tail.first_seq().unwrap_or(u64::MAX);
            if first > cursor.seq + 1 {
                match live.filter(|live| cursor.is_owed(live)) {
                    Some(live) => {
                        live.next(&mut cursor.answer, bytes_max, &mut frames);
                    }
                    None => {
                        frames.push(Frame::Behind { after: cursor.seq, up_to: self.seq });
                    }
                }
                return frames;
            }
        }
        let mut durable = self.tail.after(cursor.seq).peekable();
        let from = self.ephemeral.partition_point(|event| event.number <= cursor.ephemeral);
        let mut ephemeral = self.ephemeral.range(from..).peekable();
        while bytes < bytes_max {
            match (durable.peek(), ephemeral.peek()) {
                (Some((seq, frame)), other) if other.is_none_or(|event| event.after_seq >= *seq) => {
                    let ended = live.as_mut().filter(|live| live.ended_at == Some(*seq));
                    if let Some(live) = ended.filter(|live| cursor.is_owed(live)) {
                        bytes += live.next(&mut cursor.answer, bytes_max.saturating_sub(bytes), &mut frames);
                        if cursor.is_owed(live) {
                            break;
                        }
                    }
                    frames.push(Frame::Durable(*seq, (*frame).clone()));
                    bytes += frame.len();
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
        if let Some(live) = live.filter(|live| caught_up && live.is_streaming()) {
            live.next(&mut cursor.answer, bytes_max.saturating_sub(bytes), &mut frames);
        }
        frames
    }
}

fn void_frame(session: &SessionId, item_id: EntryId) -> Frame {
    let reason = ErrorCode::Interrupted.as_str().to_owned();
    let event = EphemeralEvent::ItemAborted(ItemAborted { item_id, reason });
    Frame::Ephemeral(encode_event(Some(session), &event).into())
}

#[cfg(test)]
mod tests;
