//! How the server stops: which tasks serve clients, and how they learn of it.

use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The stages of a server that stops, and the tasks that it waits for. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stopping {
    /// An operator asks this server to stop.
    asked: CancellationToken,
    draining: CancellationToken,
    /// Asks every connection to close as soon as nothing runs here for its client. Other servers take over.
    pub(super) leave: CancellationToken,
    /// Ends the accept loop and asks every connection to close.
    pub(crate) stop: CancellationToken,
    /// All tasks that serve a client.
    pub(super) connections: TaskTracker,
}

impl Stopping {
    /// Announces that the server is about to stop: `/readyz` answers 503 from now on.
    pub(crate) fn drain(&self) {
        self.draining.cancel();
    }

    /// Asks this server to stop, as a signal would.
    pub(super) fn ask(&self) {
        self.asked.cancel();
    }

    /// Waits until an operator asks this server to stop.
    pub(crate) async fn asked(&self) {
        self.asked.cancelled().await;
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// Returns the number of client connections, including those relayed by other servers.
    pub(crate) fn connection_count(&self) -> usize {
        // One of the tracked tasks accepts connections.
        self.connections.len().saturating_sub(1)
    }
}
