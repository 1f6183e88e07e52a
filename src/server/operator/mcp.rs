//! The MCP servers: their states, and what their tools cost in every request. Nothing of their entries in `MCP_FILE` is
//! shown (no arguments, variables, headers or addresses), and no standard error.

use super::{NoParameters, Parameters};
use crate::{
    server::{app::App, auth::Operator},
    tools::mcp::{Mcp, ServerStatus},
};
use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use reseed_protocol::{ErrorBody, ErrorCode, reply::ToolServer};
use serde::Serialize;
use std::{collections::BTreeMap, sync::Arc};

/// All servers.
#[derive(Debug, Serialize)]
struct Servers {
    /// Sorted by name.
    items: Vec<Server>,
    /// The estimated tokens of all their tools in a request of a session that switches none off.
    tokens: u64,
}

/// A server: what its users may know, and more.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Server {
    #[serde(flatten)]
    shown: ToolServer,
    #[serde(skip_serializing_if = "str::is_empty")]
    transport: &'static str,
    /// The revision of MCP that was agreed on.
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<String>,
    /// The server's name and version, in its own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    software: Option<String>,
    /// Why it is not up, with secrets masked: a predicate whose subject is the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    tools: Vec<ServerTool>,
    /// The sum of its tools.
    tokens: u64,
}

#[derive(Debug, Serialize)]
struct ServerTool {
    name: String,
    /// Absent if it is not offered, since there are too many.
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<u64>,
}

/// Returns every MCP server with its state, its tools and their tokens.
pub(in crate::server) async fn mcp(_: Operator, _: Parameters<NoParameters>, State(app): State<Arc<App>>) -> Response {
    // Definitions are counted, which takes milliseconds for hundreds of them.
    match tokio::task::spawn_blocking(move || servers(&app)).await {
        Ok(servers) => Json(servers).into_response(),
        Err(error) => {
            tracing::error!(%error, "count the tools of MCP servers");
            let error = ErrorBody::new(ErrorCode::Internal, "the tools could not be counted; see the log");
            super::problem(StatusCode::INTERNAL_SERVER_ERROR, error)
        }
    }
}

fn servers(app: &App) -> Servers {
    let Some(mcp) = &app.mcp else { return Servers { items: Vec::new(), tokens: 0 } };
    let known = tokens(app, mcp);
    let items: Vec<Server> = mcp.status().into_iter().map(|status| server(status, &known)).collect();
    let tokens = items.iter().map(|server| server.tokens).sum();
    Servers { items, tokens }
}

/// Returns the tokens of each tool by name.
fn tokens(app: &App, mcp: &Mcp) -> BTreeMap<String, u64> {
    let deployment = app.registry.deployment();
    let counter = deployment.counter(&deployment.model);
    let definitions = mcp.tools().into_iter().map(|tool| tool.offer().definition());
    definitions.map(|definition| (definition.name.clone(), counter.tool(&definition))).collect()
}

fn server(status: ServerStatus, known: &BTreeMap<String, u64>) -> Server {
    let shown = status.shown();
    let ServerStatus { transport, protocol, software, error, tools, .. } = status;
    let tools = tools.into_iter().map(|name| ServerTool { tokens: known.get(&name).copied(), name });
    let tools: Vec<ServerTool> = tools.collect();
    let tokens = tools.iter().filter_map(|tool| tool.tokens).sum();
    Server { shown, transport, protocol, software, error, tools, tokens }
}
