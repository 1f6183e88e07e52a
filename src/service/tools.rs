//! The tools of a server: the program's own, those that search the history, and those of MCP servers.

use super::parts;
use crate::{
    config::Settings,
    core::agent_loop::check_server_tools,
    runtime::Registry,
    store::SessionStore,
    tools::{
        Tool, Toolset, history,
        mcp::{Mcp, McpFile},
    },
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// How long the start waits for MCP servers, so that the first sessions have their tools. Later servers join.
const MCP_START: Duration = Duration::from_secs(5);

/// How many tools are dropped in one step if the tools of all MCP servers are too large together.
const LEFT_OUT_STEP: usize = 8;

/// The tools of a server, and the processes and servers behind them.
pub(super) struct ServerTools {
    /// The tools of the program that embeds the server.
    own: Vec<Arc<dyn Tool>>,
    history: Vec<Arc<dyn Tool>>,
    /// `None` with `TOOLS=off`.
    mcp: Option<Arc<Mcp>>,
}

impl ServerTools {
    /// Sets up the tools that the settings name, in addition to the program's own. With `TOOLS=off` there are none.
    ///
    /// # Errors
    /// See [`McpFile::read`].
    pub(super) async fn open(
        settings: &Settings,
        own: Vec<Arc<dyn Tool>>,
        store: &Arc<dyn SessionStore>,
    ) -> anyhow::Result<Arc<Self>> {
        if !settings.tools.tools.is_on() {
            return Ok(Arc::new(Self { own: Vec::new(), history: Vec::new(), mcp: None }));
        }
        let mcp = Mcp::none().with_store(store.clone());
        mcp.take_up(parts::mcp_file(settings)?);
        mcp.settled(MCP_START).await;
        Ok(Arc::new(Self { own, history: history::tools(store.clone()), mcp: Some(Arc::new(mcp)) }))
    }

    /// Returns the current tools. Tools of MCP servers that cannot be offered are dropped.
    ///
    /// # Errors
    /// A tool of the program's cannot be offered.
    pub(super) fn toolset(&self) -> anyhow::Result<Toolset> {
        let names: BTreeSet<String> = self.own.iter().chain(&self.history).map(|tool| tool.offer().name).collect();
        let mut of_mcp: Vec<Arc<dyn Tool>> = Vec::new();
        for tool in self.mcp.iter().flat_map(|mcp| mcp.tools()) {
            let offer = tool.offer();
            let refused = match names.contains(&offer.name) {
                true => Some("another tool of the server has its name".to_owned()),
                false => check_server_tools(vec![offer.clone()]).err().map(|error| error.message),
            };
            match refused {
                Some(why) => tracing::warn!(tool = offer.name, "left out: {why}"),
                None => of_mcp.push(tool),
            }
        }
        loop {
            let all = self.own.iter().chain(&of_mcp).cloned().collect();
            match Toolset::new(all, self.history.clone()) {
                Ok(tools) => return Ok(tools.with_mcp(self.mcp.clone())),
                Err(error) if of_mcp.is_empty() => return Err(anyhow::anyhow!(error.message)),
                Err(error) => {
                    // Each tool is valid by itself, but all together are too large.
                    let kept = of_mcp.len().saturating_sub(LEFT_OUT_STEP);
                    let left_out = of_mcp.split_off(kept).len();
                    tracing::warn!(left_out, "tools of MCP servers are left out: {}", error.message);
                }
            }
        }
    }

    /// Updates the tools that sessions are offered whenever those of MCP servers change, until the server stops.
    pub(super) fn keep_offering(self: &Arc<Self>, registry: &Arc<Registry>) {
        let Some(mut changed) = self.mcp.as_ref().map(|mcp| mcp.changed()) else { return };
        // The initial tools lack those of an MCP server that came up during the start.
        changed.mark_changed();
        let (this, registry) = (self.clone(), registry.clone());
        let stopped = registry.stopping();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = stopped.cancelled() => return,
                    // The sender lives as long as `this`.
                    _ = changed.changed() => {}
                }
                let tools = this.clone();
                // This compiles schemas.
                let toolset = tokio::task::spawn_blocking(move || tools.toolset()).await;
                match toolset {
                    Ok(Ok(toolset)) => registry.parts().replace_tools(toolset),
                    Ok(Err(error)) => tracing::error!(%error, "offer the tools of MCP servers"),
                    Err(error) => tracing::error!(%error, "offer the tools of MCP servers"),
                }
            }
        });
    }

    /// Returns the MCP servers, whose states are public; `None` if the server has no tools.
    pub(super) fn mcp(&self) -> Option<Arc<Mcp>> {
        self.mcp.clone()
    }

    /// Reads the file of MCP servers that the settings name, for [`Self::take_up`]. `None` if the server has no tools.
    ///
    /// # Errors
    /// As [`McpFile::read`].
    pub(super) fn mcp_file(&self, settings: &Settings) -> anyhow::Result<Option<McpFile>> {
        self.mcp.as_ref().map(|_| parts::mcp_file(settings)).transpose()
    }

    /// Applies the servers of this file. Sessions offer the new tools from their next turn or compaction on.
    pub(super) fn take_up(&self, file: Option<McpFile>) {
        if let (Some(mcp), Some(file)) = (&self.mcp, file) {
            mcp.take_up(file);
        }
    }

    /// Ends the processes and servers behind the tools.
    pub(super) async fn close(&self) {
        if let Some(mcp) = &self.mcp {
            mcp.close().await;
        }
    }
}
