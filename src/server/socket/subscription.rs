//! The sessions that a connection is subscribed to.

use super::Connection;
use crate::{
    runtime::{Attached, Cursor, Private, Reader, SessionHandle, feed::TEXT_MAY_WAIT},
    server::closing::Flow,
};
use reseed_protocol::{SessionId, session::SessionRole};
use std::collections::VecDeque;

/// A session that the connection is subscribed to.
pub(in crate::server) struct Subscription {
    pub(in crate::server) handle: SessionHandle,
    pub(in crate::server) role: SessionRole,
    pub(in crate::server) feed: Reader,
    pub(in crate::server) cursor: Cursor,
    pub(in crate::server) deltas: bool,
    /// The last durable event that was written. The cursor may be ahead of it.
    pub(super) written: u64,
    /// Events for this connection only that wait for a durable one.
    /// [`ConnectionShare`](crate::runtime::ConnectionShare) bounds their bytes.
    early: VecDeque<Box<Private>>,
}

impl Connection {
    /// Returns the subscription to this session.
    pub(in crate::server) fn subscription(&self, session: &SessionId) -> Option<&Subscription> {
        self.subscriptions.iter().find(|subscription| subscription.handle.id == *session)
    }

    /// Subscribes to a session, so that its feed is read.
    pub(in crate::server) fn subscribe(
        &mut self,
        handle: SessionHandle,
        role: SessionRole,
        deltas: bool,
        attached: Attached,
    ) {
        self.alarm.look_in(TEXT_MAY_WAIT);
        let Attached { feed, cursor, .. } = attached;
        let (written, early) = (cursor.seq, VecDeque::new());
        // Most connections have only one session open.
        self.subscriptions.reserve_exact(1);
        self.subscriptions.push(Subscription { handle, role, feed, cursor, deltas, written, early });
    }

    /// Takes an event that is only for this connection.
    pub(super) async fn private(&mut self, event: Box<Private>) -> Flow {
        let session = event.session.clone();
        // A connection that has left the session does not receive it.
        let here = self.subscriptions.iter_mut().find(|subscription| subscription.handle.id == session);
        let Some(subscription) = here else { return Ok(()) };
        subscription.early.push_back(event);
        self.send_private(&session).await
    }

    /// Sends the events for this connection only that no longer wait for a durable one.
    pub(super) async fn send_private(&mut self, session: &SessionId) -> Flow {
        loop {
            let here = self.subscriptions.iter_mut().find(|subscription| subscription.handle.id == *session);
            let Some(Subscription { written, early, .. }) = here else { return Ok(()) };
            let Some(event) = early.pop_front_if(|event| event.after <= *written) else { return Ok(()) };
            self.send(event.frame).await?;
        }
    }

    /// Ends the subscription to a session, if there is one. The connection continues.
    pub(in crate::server) async fn unsubscribe(&mut self, session: &SessionId) -> bool {
        let Some(at) = self.subscriptions.iter().position(|subscription| subscription.handle.id == *session) else {
            return false;
        };
        let Subscription { handle, feed, .. } = self.subscriptions.swap_remove(at);
        drop(feed);
        handle.leave(self.origin).await;
        true
    }

    /// Ends all subscriptions without waiting, because the connection is over.
    pub(super) fn let_go(&mut self) {
        for Subscription { handle, feed, .. } in self.subscriptions.drain(..) {
            drop(feed);
            handle.left(self.origin);
        }
        // The holders of its other sessions must learn that it is gone.
        self.relays = None;
        self.incoming.close();
    }
}
