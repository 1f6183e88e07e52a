//! The sessions that a connection is subscribed to.

use super::Connection;
use crate::runtime::{Attached, Cursor, Reader, SessionHandle, feed::TEXT_MAY_WAIT};
use reseed_protocol::{SessionId, command::SessionRole};

/// A session that the connection is subscribed to.
pub(in crate::server) struct Subscription {
    pub(in crate::server) handle: SessionHandle,
    pub(in crate::server) role: SessionRole,
    pub(in crate::server) feed: Reader,
    pub(in crate::server) cursor: Cursor,
    pub(in crate::server) deltas: bool,
}

impl Connection {
    /// Returns the subscription to this session.
    pub(in crate::server) fn subscription(&self, session: &SessionId) -> Option<&Subscription> {
        self.subscriptions.iter().find(|subscription| subscription.handle.id == *session)
    }

    /// Subscribes to a session: from now on its feed is read.
    pub(in crate::server) fn subscribe(
        &mut self,
        handle: SessionHandle,
        role: SessionRole,
        deltas: bool,
        attached: Attached,
    ) {
        self.alarm.look_in(TEXT_MAY_WAIT);
        let Attached { feed, cursor, .. } = attached;
        self.subscriptions.push(Subscription { handle, role, feed, cursor, deltas });
    }

    /// Ends the subscription to a session, if there is one; the connection continues.
    pub(in crate::server) async fn unsubscribe(&mut self, session: &SessionId) -> bool {
        let Some(at) = self.subscriptions.iter().position(|subscription| subscription.handle.id == *session) else {
            return false;
        };
        let Subscription { handle, feed, .. } = self.subscriptions.swap_remove(at);
        drop(feed);
        handle.leave(self.origin).await;
        true
    }

    /// Ends all subscriptions without waiting: the connection is over.
    pub(super) fn let_go(&mut self) {
        for Subscription { handle, feed, .. } in self.subscriptions.drain(..) {
            drop(feed);
            handle.left(self.origin);
        }
        self.incoming.close();
    }
}
