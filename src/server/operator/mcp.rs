//! The MCP servers: their states, and the tokens that their tools add to every request. Their standard error is not
//! shown, nor are the arguments, variables, headers and addresses in `MCP_FILE`.

use crate::{
    server::{
        answers::{NoParameters, Parameters, problem},
        app::App,
        auth::Operator,
    },
    tools::mcp::{Mcp, ServerStatus},
};
use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use reseed_protocol::{ErrorBody, ErrorCode, tools::ToolServer};
use serde::Serialize;
use std::{collections::BTreeMap, sync::Arc};

#[derive(Debug, Serialize)]
struct Servers {
    /// Sorted by name.
    items: Vec<Server>,
    /// The estimated tokens of all tools in a request, if the session switches none off.
    tokens: u64,
}

/// An MCP server: what its users see, and details for operators.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Server {
    #[serde(flatten)]
    shown: ToolServer,
    #[serde(skip_serializing_if = "str::is_empty")]
    transport: &'static str,
    /// The negotiated MCP revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<String>,
    /// The server's name and version, as it reports them.
    #[serde(skip_serializing_if = "Option::is_none")]
    software: Option<String>,
    /// Why it is not up, with secrets masked. This is a predicate whose subject is the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    tools: Vec<ServerTool>,
    /// The sum over its tools.
    tokens: u64,
}

#[derive(Debug, Serialize)]
struct ServerTool {
    name: String,
    /// Absent if the tool is not offered because there are too many.
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<u64>,
}

/// Returns every MCP server with its state, its tools and their tokens.
pub(in crate::server) async fn mcp(_: Operator, _: Parameters<NoParameters>, State(app): State<Arc<App>>) -> Response {
    // Counting the definitions takes milliseconds if there are hundreds.
    match tokio::task::spawn_blocking(move || servers(&app)).await {
        Ok(servers) => Json(servers).into_response(),
        Err(error) => {
            tracing::error!(%error, "count the tools of MCP servers");
            let error = ErrorBody::new(ErrorCode::Internal, "the tools could not be counted; see the log");
            problem(StatusCode::INTERNAL_SERVER_ERROR, error)
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
    let deployment = app.registry.parts().deployment();
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
