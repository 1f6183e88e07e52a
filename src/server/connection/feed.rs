//! Writes pending events from the feeds of a connection's sessions, and changes of the session list.

use super::{Connection, Timer, subscriptions::Subscription};
use crate::{
    runtime::{Attached, Frame, SessionHandle, encoded::FrameText, feed::TEXT_MAY_WAIT},
    server::closing::{End, Flow},
    store::{Error, Part},
};
use reseed_dialects::Translated;
use reseed_protocol::{
    CloseCode, SessionId,
    event::EphemeralEvent,
    frame::{encode_event, encode_stored},
    session::{SessionClosed, SessionRole, SubscriptionEnd},
};
use tokio::time::Instant;

/// Bytes of events taken from the feed or the store at once, or one event if that is larger. A stalled reader holds
/// this much besides its write buffer. Commands are handled between batches.
const BATCH_BYTES: usize = 16 * 1024;

/// Events read from the store at once for a reader that is behind.
const BEHIND_PAGE: u32 = 64;

impl Connection {
    /// Subscribes to a session, so that its feed is read.
    pub(in crate::server) fn subscribe(
        &mut self,
        handle: SessionHandle,
        role: SessionRole,
        deltas: bool,
        attached: Attached,
    ) {
        self.look_soon();
        self.subscriptions.add(handle, role, deltas, attached);
    }

    fn look_soon(&mut self) {
        self.timers.set(Timer::Look, Some(Instant::now() + TEXT_MAY_WAIT));
    }

    /// Ends all subscriptions without waiting, because the connection is over.
    pub(in crate::server) fn let_go(&mut self) {
        self.subscriptions.end_all(self.origin);
        // The holders of its other sessions must learn that it is gone.
        self.links = None;
    }

    /// Writes the pending events of all feeds. Takes a batch from each session in turn until there are no more.
    pub(in crate::server) async fn pump(&mut self) -> Flow {
        loop {
            let (mut at, mut had_more) = (0, false);
            while let Some(Subscription { handle, feed, cursor, deltas, .. }) = self.subscriptions.all.get_mut(at) {
                let session = handle.id.clone();
                let frames = feed.next(cursor, *deltas, BATCH_BYTES);
                had_more |= !frames.is_empty();
                // A reply enters the channel before its events are published, so pending replies are sent first.
                while let Some(outgoing) = self.subscriptions.next_outgoing() {
                    self.outgoing(outgoing).await?;
                }
                for frame in frames {
                    self.write_frame(&session, frame).await?;
                }
                self.send_private(&session).await?;
                // If the subscription has ended, another one has taken its position.
                at += usize::from(self.subscriptions.all.get(at).is_some_and(|next| next.handle.id == session));
            }
            if !had_more {
                return self.flush().await;
            }
        }
    }

    async fn write_frame(&mut self, session: &SessionId, frame: Frame) -> Flow {
        self.credentials.still_granted()?;
        match frame {
            Frame::Durable(seq, frame) => self.durable(session, seq, frame).await,
            Frame::Ephemeral(frame) if self.dialect.has_ephemeral_events() => self.send(frame).await,
            Frame::Ephemeral(_) => Ok(()),
            Frame::Streamed(frame) => {
                self.look_soon();
                self.send(frame).await
            }
            Frame::Behind { after, up_to } => Box::pin(self.catch_up(session, after, up_to)).await,
            // Boxed, like the store's pages: both are rare, and would make every idle connection larger.
            Frame::Closed(end) => Box::pin(self.closed(session, end)).await,
        }
    }

    /// Ends a subscription whose session was closed.
    pub(super) async fn closed(&mut self, session: &SessionId, end: SubscriptionEnd) -> Flow {
        self.subscriptions.end(session, self.origin).await;
        match (self.dialect.has_many_sessions(), end) {
            // The next connection may reach another server. The connection is kept if it has other sessions open.
            (_, SubscriptionEnd::Moved)
                if self.subscriptions.is_empty() && self.links.is_none() && self.via.is_none() =>
            {
                Err(End::Close(
                    CloseCode::Restarting,
                    "the session may be open on another server now; reconnect and resume",
                ))
            }
            (true, end) => {
                self.answer_for(session, end).await?;
                self.send(encode_event(Some(session), &end.event())).await
            }
            (_, SubscriptionEnd::Deleted) => Err(End::Close(CloseCode::NoSuchSession, "the session was deleted")),
            (_, SubscriptionEnd::Failed | SubscriptionEnd::Moved) => {
                Err(End::Close(CloseCode::Internal, "the session was closed; open it again"))
            }
        }
    }

    /// Reports changes of the session list.
    pub(in crate::server) async fn tell_list(&mut self) -> Flow {
        let Some(watcher) = &mut self.subscriptions.watching else { return Ok(()) };
        let items = watcher.take().map_err(|missed| End::Close(CloseCode::SlowReader, missed.message()))?;
        for item in items {
            self.credentials.still_granted()?;
            let event = EphemeralEvent::SessionChanged(item);
            self.send(encode_event(None, &event)).await?;
        }
        self.flush().await
    }

    /// Reads from the store what the feed no longer holds. The store may already contain events that are not published
    /// yet, because their replies must be sent first.
    async fn catch_up(&mut self, id: &SessionId, after: u64, up_to: u64) -> Flow {
        let limit = BEHIND_PAGE.min(u32::try_from(up_to.saturating_sub(after)).unwrap_or(BEHIND_PAGE));
        let Some(handle) = self.subscriptions.of(id).map(|subscription| subscription.handle.clone()) else {
            return Ok(());
        };
        let read = handle.missed(&**self.app.registry.store(), after, limit, BATCH_BYTES).await;
        // Logs have no gaps, so the feed has more.
        let read = read.and_then(|page| match page {
            Some(page) if page.first().is_some_and(|first| first.seq == after + 1) => Ok(Some(page)),
            None => Ok(None),
            Some(_) => {
                Err(Error::Damaged { session: id.clone(), part: Part::Record(after + 1), reason: "it is missing" })
            }
        });
        let page = match read {
            Ok(Some(page)) => page,
            Ok(None) => return self.closed(id, SubscriptionEnd::Moved).await,
            Err(error) => return self.unreadable(id, &error).await,
        };
        for record in page {
            let Some(Subscription { cursor, .. }) = self.subscriptions.of_mut(id) else { break };
            if record.seq != cursor.seq + 1 || record.seq > up_to {
                break;
            }
            cursor.seq = record.seq;
            self.credentials.still_granted()?;
            self.durable(id, record.seq, encode_stored(id, record.seq, &record.body).into()).await?;
        }
        Ok(())
    }

    /// Reports that the store cannot return the events that the client has missed. The client opens the session again
    /// to get what is available.
    async fn unreadable(&mut self, session: &SessionId, error: &Error) -> Flow {
        if let Error::NotFound(_) = error {
            return self.write_frame(session, Frame::Closed(SubscriptionEnd::Deleted)).await;
        }
        let body = self.app.registry.fault(error);
        if !self.dialect.has_many_sessions() {
            return Err(End::Close(CloseCode::Internal, "the store cannot be read; reconnect"));
        }
        self.subscriptions.end(session, self.origin).await;
        let (code, message, retriable) = (SubscriptionEnd::Failed, body.message.clone(), body.retriable);
        let closed = SessionClosed { code, message, retriable, error: Some(body) };
        self.send(encode_event(Some(session), &EphemeralEvent::SessionClosed(closed))).await
    }

    async fn durable(&mut self, session: &SessionId, seq: u64, frame: FrameText) -> Flow {
        if let Some(subscription) = self.subscriptions.of_mut(session) {
            subscription.written = seq;
        }
        match self.dialect.durable(self.origin.0, frame) {
            Translated::Same(frame) => self.send(frame).await,
            Translated::Frames(frames) => {
                for frame in frames {
                    self.send(frame).await?;
                }
                Ok(())
            }
        }
    }
}
