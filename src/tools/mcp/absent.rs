//! What stands in for MCP in a build without the feature `mcp`: a file of servers is refused.

#[path = "status.rs"]
mod status;

pub use status::{ServerState, ServerStatus};

use super::Tool;
use crate::config::Variables;
use std::{convert::Infallible, path::Path, sync::Arc, time::Duration};
use tokio::sync::watch;

/// The reason why a file of MCP servers cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("MCP_FILE is set, but this program was built without the feature `mcp`; unset it, or build with the feature")]
pub struct InvalidMcp;

/// The MCP servers of a file: there are none.
#[derive(Debug)]
pub struct Mcp(Infallible);

impl Mcp {
    /// Refuses the file.
    ///
    /// # Errors
    /// Always.
    pub fn open(_: &Path, _: &Path, _: &Variables) -> Result<Self, InvalidMcp> {
        Err(InvalidMcp)
    }

    /// Waits for the servers.
    pub async fn settled(&self, _: Duration) {
        match self.0 {}
    }

    /// Returns the tools of all servers.
    #[must_use]
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        match self.0 {}
    }

    /// Returns a receiver that changes whenever [`Self::tools`] does.
    #[must_use]
    pub fn changed(&self) -> watch::Receiver<u64> {
        match self.0 {}
    }

    /// Returns the state of every server.
    #[must_use]
    pub fn status(&self) -> Vec<ServerStatus> {
        match self.0 {}
    }

    /// Ends every server.
    pub async fn close(&self) {
        match self.0 {}
    }
}
