//! Leaving a server that stops, while others can take its clients.
//!
//! A connection is closed with 1012 as soon as nothing of its client's runs here: at once if its client asks for
//! something, otherwise at a moment of its own, so that not all clients reconnect at the same one. Until then it gets
//! what its sessions still say. A connection that another server relays is told in the same way which of its sessions
//! are gone.

use super::{Connection, End, Flow};
use reseed_protocol::{CloseCode, event::SubscriptionEnd};
use std::time::Duration;
use tokio::time::Instant;

/// The time over which connections leave. Each must open its sessions again elsewhere.
pub(in crate::server) const LEAVING_TIME: Duration = Duration::from_secs(2);

/// The time between two looks whether something still runs.
pub(in crate::server) const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The moments at which connections leave.
const MOMENTS: u32 = 64;

impl Connection {
    /// Begins to leave, in the moment of this connection.
    pub(super) fn leave_soon(&mut self) {
        let moment = u32::try_from(self.origin.0 % u64::from(MOMENTS)).unwrap_or(0);
        let now = Instant::now();
        self.leaves_at = Some(now + LEAVING_TIME / MOMENTS * moment);
        // A connection from another server that has just begun is about to open a session whose turn still runs here.
        self.via.iter_mut().for_each(|via| via.stay_until(now + LEAVING_TIME));
        // The next notice is the last.
        self.stopped = Box::pin(self.app.stop.clone().cancelled_owned());
    }

    /// Returns true if the connection may be closed.
    pub(super) fn may_leave(&self) -> bool {
        self.leaves_at.is_some()
            && self.via.as_ref().is_none_or(|via| !via.stays())
            && self.subscriptions.iter().all(|subscription| subscription.handle.is_gone())
    }

    /// Closes the connection if nothing runs here any more. One that another server relays is told of each session
    /// alone: the client goes on there.
    pub(super) async fn leave(&mut self) -> Flow {
        // Before what is left is sent: what a session says while that is written must not be left out.
        let may_leave = self.may_leave();
        if may_leave {
            self.pump().await?;
            return Err(self.left());
        }
        self.tell_gone().await?;
        self.flush().await?;
        self.leaves_at = Some(Instant::now() + LOOK_EVERY);
        Ok(())
    }

    /// Sends what is left, and then, if another server relays the connection, tells of the sessions that are gone.
    pub(super) async fn tell_gone(&mut self) -> Flow {
        let gone = self.subscriptions.iter().filter(|subscription| subscription.handle.is_gone());
        let gone: Vec<_> = gone.map(|subscription| subscription.handle.id.clone()).collect();
        self.pump().await?;
        if self.via.is_some() {
            for session in gone {
                // Sending what was left may have ended it already.
                if self.subscription(&session).is_some() {
                    self.closed(&session, SubscriptionEnd::Moved).await?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn left(&self) -> End {
        End::Close(CloseCode::Restarting, "the server is stopping; reconnect and resume")
    }
}
