//! Replaces MCP in a build without the feature `mcp`, which refuses a file of servers.

#[path = "status.rs"]
mod status;

pub use status::{ServerState, ServerStatus};

use super::Tool;
use crate::{config::Variables, store::SessionStore};
use reseed_protocol::SessionId;
use std::{path::Path, sync::Arc, time::Duration};
use tokio::sync::watch;

/// The reason why a file of MCP servers cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("MCP_FILE is set, but this program was built without the feature `mcp`; unset it, or build with the feature")]
pub struct InvalidMcp;

/// A file of MCP servers. [`McpFile::default`] is empty, and there is no other.
#[derive(Debug, Default)]
pub struct McpFile(());

impl McpFile {
    /// Refuses the file.
    ///
    /// # Errors
    /// Always.
    pub fn read(_: &Path, _: &Path, _: &Variables) -> Result<Self, InvalidMcp> {
        Err(InvalidMcp)
    }

    /// Returns `None`, because there are no servers.
    #[must_use]
    pub fn unconfined(&self) -> Option<&str> {
        None
    }
}

/// The MCP servers, of which there are none.
#[derive(Debug)]
pub struct Mcp(watch::Sender<u64>);

impl Mcp {
    /// Refuses the file.
    ///
    /// # Errors
    /// Always.
    pub fn open(_: &Path, _: &Path, _: &Variables) -> Result<Self, InvalidMcp> {
        Err(InvalidMcp)
    }

    /// Returns the state without a file, which has no servers.
    #[must_use]
    pub fn none() -> Self {
        Self(watch::Sender::new(0))
    }

    /// Ignores the store.
    #[must_use]
    pub fn with_store(self, _: Arc<dyn SessionStore>) -> Self {
        self
    }

    /// Applies a file without servers.
    pub fn take_up(&self, file: McpFile) {
        drop(file);
    }

    /// Waits for the servers.
    pub async fn settled(&self, _: Duration) {}

    /// Returns the tools of all servers.
    #[must_use]
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        Vec::new()
    }

    /// Tells every server that a session was deleted.
    pub(crate) async fn forget(&self, _: &SessionId) {}

    /// Returns a receiver that changes whenever [`Self::tools`] does.
    #[must_use]
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }

    /// Returns the state of every server.
    #[must_use]
    pub fn status(&self) -> Vec<ServerStatus> {
        Vec::new()
    }

    /// Ends every server.
    pub async fn close(&self) {}
}
