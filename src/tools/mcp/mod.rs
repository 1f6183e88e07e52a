//! Tools of MCP servers: the servers of `MCP_FILE` are started, listed and called. `README.md` beside this file is for
//! operators, and says why it is built this way.
//!
//! Invariants:
//! - a server that fails is a failed call, never a failed turn;
//! - the list of tools depends on the file and on the servers' lists, never on the order in which they come up;
//! - nothing of a secret is logged or shown, and nothing of rmcp's own log lines, which repeat messages.

mod client;
mod connection;
mod fault;
mod file;
mod http;
mod line;
mod listing;
mod names;
mod outcome;
mod process;
mod server;
mod status;
#[cfg(test)]
mod tests;
mod variables;

pub use status::{ServerState, ServerStatus};

use super::Tool;
use crate::config::Variables;
use file::Listed;
use server::Server;
use std::{path::Path, sync::Arc, time::Duration};
use tokio::{
    sync::{Mutex, watch},
    task::JoinSet,
    time::timeout,
};

/// Most bytes of a message of a server: rmcp's own bound, over both transports.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Most tools of all servers: the definitions are sent with every request, and held by every session.
const TOOLS_MAX: usize = 512;

/// The reason why a file of MCP servers cannot be used. It repeats no value of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct InvalidMcp {
    /// The file.
    pub place: String,
    /// The server, the field and what is wrong.
    pub message: String,
}

/// The MCP servers of a file.
pub struct Mcp {
    servers: Vec<Arc<Server>>,
    disabled: Vec<String>,
    changed: Arc<watch::Sender<u64>>,
    closing: watch::Sender<bool>,
    keepers: Mutex<JoinSet<()>>,
}

impl Mcp {
    /// Reads the file and starts its servers in the background. `folder` is where relative paths start; `variables`
    /// has what `${VAR}` names. Must be called within a runtime.
    ///
    /// # Errors
    /// The file cannot be read, or a server of it is wrong. A server that does not come up is no error: see
    /// [`Self::status`].
    pub fn open(file: &Path, folder: &Path, variables: &Variables) -> Result<Self, InvalidMcp> {
        Ok(Self::of(file::read(file, folder, &|name| variables.get(name).cloned())?))
    }

    fn of(listed: Listed) -> Self {
        for warning in &listed.warnings {
            tracing::warn!("MCP_FILE: {warning}");
        }
        let changed = Arc::new(watch::Sender::new(0));
        let closing = watch::Sender::new(false);
        let server = |spec| Arc::new(Server::new(spec, changed.clone()));
        let servers: Vec<Arc<Server>> = listed.servers.into_iter().map(server).collect();
        let mut keepers = JoinSet::new();
        for server in &servers {
            keepers.spawn(server.clone().keep(closing.subscribe()));
        }
        Self { servers, disabled: listed.disabled, changed, closing, keepers: Mutex::new(keepers) }
    }

    /// Waits until every server has come up or failed once, at most for so long. What comes up later joins the tools.
    pub async fn settled(&self, limit: Duration) {
        let _ = timeout(limit, async {
            for server in &self.servers {
                server.tried().await;
            }
        })
        .await;
    }

    /// Returns the tools of all servers, sorted by server and name.
    #[must_use]
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.servers.iter().flat_map(|server| server.tools()).take(TOOLS_MAX).collect()
    }

    /// Returns a receiver that changes whenever [`Self::tools`] does.
    #[must_use]
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Returns the state of every server of the file, sorted by name.
    #[must_use]
    pub fn status(&self) -> Vec<ServerStatus> {
        let disabled = self.disabled.iter().map(|name| ServerStatus {
            name: name.clone(),
            transport: "",
            state: ServerState::Disabled,
            protocol: None,
            software: None,
            tools: Vec::new(),
            left_out: Vec::new(),
            error: None,
            starts: 0,
            stderr: None,
        });
        let mut status: Vec<ServerStatus> = self.servers.iter().map(|server| server.status()).chain(disabled).collect();
        status.sort_by(|a, b| a.name.cmp(&b.name));
        status
    }

    /// Ends every server: closes its input, then SIGTERM, then SIGKILL. Takes at most about ten seconds; running calls
    /// fail.
    pub async fn close(&self) {
        self.closing.send_replace(true);
        let mut keepers = self.keepers.lock().await;
        while keepers.join_next().await.is_some() {}
    }
}

impl std::fmt::Debug for Mcp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mcp").field("servers", &self.servers.len()).finish_non_exhaustive()
    }
}
