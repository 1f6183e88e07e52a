//! Leaving a server that is stopping, while other servers can take its clients.
//!
//! A connection is closed with 1012 once nothing runs here for its client. If the client sends something, this happens
//! at once. Otherwise each connection has its own moment, so that clients do not all reconnect together. Until then it
//! receives the remaining events of its sessions. A relayed connection reports in the same way which of its
//! sessions are gone.

use super::{Connection, Timer};
use crate::server::closing::{End, Flow};
use reseed_protocol::{CloseCode, frame::peek_type, session::SubscriptionEnd};
use std::time::Duration;
use tokio::time::Instant;

/// The period over which connections leave. Each client must open its sessions again elsewhere.
pub(in crate::server) const LEAVING_TIME: Duration = Duration::from_secs(2);

/// The interval between checks whether anything still runs.
pub(in crate::server) const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The number of distinct moments at which connections leave.
const MOMENTS: u32 = 64;

impl Connection {
    /// Starts leaving, at this connection's moment.
    pub(in crate::server) fn leave_soon(&mut self) {
        let moment = u32::try_from(self.origin.0 % u64::from(MOMENTS)).unwrap_or(0);
        self.is_leaving = true;
        self.timers.set(Timer::Leave, Some(Instant::now() + LEAVING_TIME / MOMENTS * moment));
        // The next signal is the last.
        self.stopped = Box::pin(self.app.stopping.stop.clone().cancelled_owned());
    }

    /// Returns true if the connection may be closed. The edge closes a relayed one, once it carries no session.
    pub(in crate::server) fn may_leave(&self) -> bool {
        self.is_leaving
            && self.via.is_none()
            && self.subscriptions.all.iter().all(|subscription| subscription.handle.is_gone())
    }

    /// Closes the connection if nothing runs here any more. A relayed connection only reports each session that
    /// is gone, because its client stays connected to the edge.
    pub(in crate::server) async fn leave(&mut self) -> Flow {
        // Checked before the remaining events are written, so that events published during the write are not lost.
        let may_leave = self.may_leave();
        if may_leave {
            self.pump().await?;
            return Err(self.left());
        }
        self.tell_gone().await?;
        self.flush().await?;
        self.timers.set(Timer::Leave, Some(Instant::now() + LOOK_EVERY));
        Ok(())
    }

    /// Reports the sessions that are gone to a relayed client that sends a command, even before its time to leave. They
    /// may already be open elsewhere. A client that closes a session needs no report.
    pub(in crate::server) async fn tell_gone_early(&mut self, text: &str) -> Flow {
        if self.is_leaving && self.via.is_some() && peek_type(text).as_deref() != Some("close_session") {
            return self.tell_gone().await;
        }
        Ok(())
    }

    /// Sends the remaining events. Then reports the sessions that are gone, if the connection is relayed.
    async fn tell_gone(&mut self) -> Flow {
        let gone = self.subscriptions.all.iter().filter(|subscription| subscription.handle.is_gone());
        let gone: Vec<_> = gone.map(|subscription| subscription.handle.id.clone()).collect();
        self.pump().await?;
        if self.via.is_some() {
            for session in gone {
                // Writing the remaining events may already have ended it.
                if self.subscriptions.of(&session).is_some() {
                    self.closed(&session, SubscriptionEnd::Moved).await?;
                }
            }
        }
        Ok(())
    }

    pub(in crate::server) fn left(&self) -> End {
        End::Close(CloseCode::Restarting, "the server is stopping; reconnect and resume")
    }
}
