//! Tools of MCP servers: the servers of `MCP_FILE` are started, listed and called. `README.md` beside this file is for
//! operators, and explains the design.
//!
//! Invariants:
//! - A server that fails causes a failed call, never a failed turn.
//! - The list of tools depends on the file and on the servers' lists, never on the order in which the servers come up.
//! - A reload does not affect a server whose entry in the file is unchanged.
//! - No secret is logged or shown. rmcp's own log lines are suppressed, because they repeat messages.

mod client;
mod connection;
mod fault;
mod file;
mod http;
mod lenient;
mod line;
mod listing;
mod names;
mod outcome;
mod process;
mod server;
mod sessions;
mod status;
#[cfg(test)]
mod tests;
mod variables;

pub use status::{ServerState, ServerStatus};

use super::Tool;
use crate::{config::Variables, store::SessionStore};
use file::Listed;
use reseed_protocol::SessionId;
use server::Server;
use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::watch, task::JoinSet, time::timeout};

/// Maximum bytes of a server's message. This is rmcp's own limit, for both transports.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Maximum tools of all servers. The definitions are sent with every request, and held by every session.
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

/// A file of MCP servers that was read and validated.
#[derive(Debug, Default)]
pub struct McpFile(Listed);

impl McpFile {
    /// Reads the file. Relative paths start at `folder`. `variables` contains what `${VAR}` names.
    ///
    /// # Errors
    /// The file cannot be read, or one of its servers is invalid.
    pub fn read(file: &Path, folder: &Path, variables: &Variables) -> Result<Self, InvalidMcp> {
        file::read(file, folder, &|name| variables.get(name).cloned()).map(Self)
    }

    /// Returns the name of a server that runs `reseed-shell` without its sandbox, if there is one.
    #[must_use]
    pub fn unconfined(&self) -> Option<&str> {
        let is_unconfined = |spec: &&file::Spec| match &spec.link {
            file::Link::Stdio(program) => {
                program.command.file_name().is_some_and(|name| name == "reseed-shell")
                    && program.args.iter().any(|arg| arg == "--no-sandbox")
            }
            _ => false,
        };
        self.0.servers.iter().find(is_unconfined).map(|spec| spec.name.as_str())
    }
}

/// The MCP servers of a file.
pub struct Mcp {
    kept: Mutex<Kept>,
    store: Option<Arc<dyn SessionStore>>,
    changed: Arc<watch::Sender<u64>>,
}

/// The running servers, and their tasks.
#[derive(Default)]
struct Kept {
    /// Each with the sender that ends it, sorted by name.
    servers: Vec<(Arc<Server>, watch::Sender<bool>)>,
    disabled: Vec<String>,
    /// One task per server, until the server has ended.
    keepers: JoinSet<()>,
    /// The warnings about the file.
    warnings: Vec<String>,
    is_closed: bool,
}

impl Mcp {
    /// Reads the file and starts its servers in the background. Relative paths start at `folder`. `variables` contains
    /// what `${VAR}` names. Must be called within a runtime.
    ///
    /// # Errors
    /// The file cannot be read, or one of its servers is invalid. A server that does not come up is not an error: see
    /// [`Self::status`].
    pub fn open(file: &Path, folder: &Path, variables: &Variables) -> Result<Self, InvalidMcp> {
        Ok(Self::of(McpFile::read(file, folder, variables)?.0))
    }

    /// Returns the state without a file, which has no servers until [`Self::take_up`] is called.
    #[must_use]
    pub fn none() -> Self {
        Self { kept: Mutex::default(), store: None, changed: Arc::new(watch::Sender::new(0)) }
    }

    /// Lets servers that come up learn which of their sessions are no longer in this store.
    #[must_use]
    pub fn with_store(self, store: Arc<dyn SessionStore>) -> Self {
        Self { store: Some(store), ..self }
    }

    fn of(listed: Listed) -> Self {
        let mcp = Self::none();
        mcp.take_up(McpFile(listed));
        mcp
    }

    /// Applies the servers of this file: starts new ones, ends removed ones, and restarts those whose entry has
    /// changed. All others continue, with their calls. Returns at once. A started server's tools join when it is up,
    /// and ending a server takes about ten seconds at most. A restarted server is offered with its earlier tools until
    /// it is up. Must be called within a runtime.
    pub fn take_up(&self, file: McpFile) {
        let Listed { servers, disabled, warnings } = file.0;
        let mut kept = self.kept();
        if kept.is_closed {
            return;
        }
        for warning in warnings.iter().filter(|warning| !kept.warnings.contains(warning)) {
            tracing::warn!("MCP_FILE: {warning}");
        }
        // Removes the finished tasks of ended servers.
        while kept.keepers.try_join_next().is_some() {}
        let old = std::mem::take(&mut kept.servers).into_iter();
        let mut old: BTreeMap<String, _> = old.map(|(server, end)| (server.spec.name.clone(), (server, end))).collect();
        for spec in servers {
            let before = old.remove(&spec.name);
            if let Some((server, end)) = before.as_ref().filter(|(server, _)| server.spec == spec) {
                kept.servers.push((server.clone(), end.clone()));
                continue;
            }
            let end = watch::Sender::new(false);
            let server = Arc::new(Server::new(spec, self.store.clone(), self.changed.clone()));
            let closing = end.subscribe();
            match before {
                None => drop(kept.keepers.spawn(server.clone().keep(closing))),
                Some((before, end_before)) => {
                    tracing::info!(server = %before.spec.name, "the MCP server is restarted: its entry has changed");
                    server.inherit(&before);
                    end_before.send_replace(true);
                    drop(kept.keepers.spawn(server.clone().keep_after(before, closing)));
                }
            }
            kept.servers.push((server, end));
        }
        for (name, (_, end)) in old {
            tracing::info!(server = %name, "the MCP server is stopped: it is not in the file any more");
            end.send_replace(true);
        }
        (kept.disabled, kept.warnings) = (disabled, warnings);
        drop(kept);
        self.changed.send_modify(|changes| *changes += 1);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn servers(&self) -> Vec<Arc<Server>> {
        self.kept().servers.iter().map(|(server, _)| server.clone()).collect()
    }

    /// Waits until every server has come up or failed once, up to this limit. Tools of later servers join when they are
    /// up.
    pub async fn settled(&self, limit: Duration) {
        let _ = timeout(limit, async {
            for server in self.servers() {
                server.tried().await;
            }
        })
        .await;
    }

    /// Returns the tools of all servers, sorted by server and name.
    #[must_use]
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.servers().iter().flat_map(|server| server.tools()).take(TOOLS_MAX).collect()
    }

    /// Tells every server that keeps something for each session that this one was deleted, whether or not one of its
    /// tools is offered.
    pub(crate) async fn forget(&self, session: &SessionId) {
        for server in self.servers() {
            server.forget(session).await;
        }
    }

    /// Returns a receiver that changes whenever [`Self::tools`] does.
    #[must_use]
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Returns the state of every server of the file, sorted by name.
    #[must_use]
    pub fn status(&self) -> Vec<ServerStatus> {
        let disabled = self.kept().disabled.clone();
        let disabled = disabled.into_iter().map(|name| ServerStatus {
            name,
            prefix: None,
            transport: "",
            state: ServerState::Disabled,
            protocol: None,
            software: None,
            tools: Vec::new(),
            left_out: Vec::new(),
            error: None,
            failure: None,
            starts: 0,
            stderr: None,
        });
        let mut status: Vec<ServerStatus> =
            self.servers().iter().map(|server| server.status()).chain(disabled).collect();
        status.sort_by(|a, b| a.name.cmp(&b.name));
        status
    }

    /// Ends every server: closes its input, then sends SIGTERM, then SIGKILL. Takes about ten seconds at most. Running
    /// calls fail.
    pub async fn close(&self) {
        let mut keepers = {
            let mut kept = self.kept();
            kept.is_closed = true;
            for (_, end) in &kept.servers {
                end.send_replace(true);
            }
            std::mem::take(&mut kept.keepers)
        };
        while keepers.join_next().await.is_some() {}
    }
}

impl std::fmt::Debug for Mcp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mcp").field("servers", &self.servers().len()).finish_non_exhaustive()
    }
}
