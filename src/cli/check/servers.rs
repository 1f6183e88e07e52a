//! The part of `reseed check` about MCP servers: starts each, lists its tools with the tokens that they cost in every
//! request, and says which failed and why.

use crate::{
    cli::say,
    config::Settings,
    core::context::counter::Counter,
    service,
    tools::mcp::{Mcp, ServerState, ServerStatus},
};
use std::{collections::BTreeMap, time::Duration};

/// Maximum wait for all servers: a little more than the longest limit that a server may set for itself. Each server
/// ends at its own limit, which is a minute by default.
const WAIT_MAX: Duration = Duration::from_secs(3_660);

/// Maximum lines of a server's standard error that are shown.
const STDERR_LINES_MAX: usize = 8;

/// Starts the servers, prints them, and ends them.
pub(super) async fn check(settings: &Settings, counter: Counter) -> anyhow::Result<()> {
    if settings.mcp_path().is_none() {
        return Ok(());
    }
    let mcp = Mcp::none();
    mcp.take_up(service::mcp_file(settings)?);
    mcp.settled(WAIT_MAX).await;
    for line in lines(&mcp, counter) {
        say(line);
    }
    mcp.close().await;
    Ok(())
}

/// Returns the lines about these servers.
fn lines(mcp: &Mcp, counter: Counter) -> Vec<String> {
    let tokens: BTreeMap<String, u64> = mcp
        .tools()
        .iter()
        .map(|tool| {
            let definition = tool.offer().definition();
            let tokens = counter.tool(&definition);
            (definition.name, tokens)
        })
        .collect();
    let servers = mcp.status();
    let mut lines = vec![format!(
        "mcp         {} servers, {} tools, {} tokens in every request",
        servers.len(),
        tokens.len(),
        tokens.values().sum::<u64>()
    )];
    for server in &servers {
        lines.extend(server_lines(server, &tokens));
    }
    lines
}

fn server_lines(server: &ServerStatus, tokens: &BTreeMap<String, u64>) -> Vec<String> {
    let name = &server.name;
    let about: Vec<&str> = server.software.iter().chain(&server.protocol).map(String::as_str).collect();
    let about = if about.is_empty() { String::new() } else { format!(" ({})", about.join(", MCP ")) };
    let head = match (server.state, &server.error) {
        (ServerState::Disabled, _) => "disabled".to_owned(),
        (_, Some(error)) => format!("FAILED: the server {error}"),
        (ServerState::Ready, None) => {
            let sum: u64 = server.tools.iter().filter_map(|tool| tokens.get(tool)).sum();
            format!("{} tools, {sum} tokens, over {}{about}", server.tools.len(), server.transport)
        }
        (ServerState::Idle, None) => "idle".to_owned(),
        (ServerState::Stopping, None) => "stopping".to_owned(),
        (_, None) => "starting".to_owned(),
    };
    let mut lines = vec![format!("  {name}: {head}")];
    lines.extend(server.tools.iter().map(|tool| match tokens.get(tool) {
        Some(tokens) => format!("    {tool}  {tokens} tokens"),
        None => format!("    {tool}  NOT offered: there are too many tools"),
    }));
    lines.extend(server.left_out.iter().map(|why| format!("    left out: {why}")));
    if server.error.is_some() {
        let stderr: Vec<&str> = server.stderr.iter().flat_map(|text| text.lines()).collect();
        let shown = &stderr[stderr.len().saturating_sub(STDERR_LINES_MAX)..];
        lines.extend(shown.iter().map(|line| format!("    stderr: {line}")));
    }
    lines
}
