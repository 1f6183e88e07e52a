//! `reseed nodes`: lists the servers that share the database, and asks one to stop.

use super::{say, say_json, sessions::open};
use crate::{
    config::Settings,
    server::{node_chosen, node_item, node_state},
    store::{self, Cluster, NodeRow},
};
use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::{Value, json};
use std::time::Duration;

/// The interval between checks of a server that drains.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The options of `reseed nodes`.
#[derive(Debug, Args)]
pub(super) struct NodesOptions {
    /// Print JSON: `{ "items": [ … ] }`.
    #[arg(long)]
    json: bool,
    /// Ask this server, by its number or its name, to stop as a SIGTERM would, and wait until it has: running turns
    /// finish, its sessions continue on the others. Whether it starts again is up to its supervisor. Of several servers
    /// with a name, those that are silent, such as killed ones, are passed over.
    #[arg(long, value_name = "NODE", conflicts_with = "json")]
    drain: Option<String>,
}

/// Prints the servers, or drains one.
pub(super) async fn run(settings: &Settings, options: NodesOptions) -> anyhow::Result<()> {
    let store = match &options.drain {
        Some(_) => {
            let database = settings.store.database();
            store::open_for_nodes(&database).await.with_context(|| format!("open the database {database}"))?
        }
        None => open(settings).await?,
    };
    let Some(cluster) = store.cluster() else {
        bail!("{} is for one server; several share a PostgreSQL database", settings.store.database())
    };
    let rows = listed(cluster).await?;
    if let Some(name) = options.drain {
        return drain(cluster, &rows, &name).await;
    }
    let items: Vec<Value> = rows.iter().map(node_item).collect();
    if options.json {
        return say_json(&json!({ "items": items }));
    }
    if items.is_empty() {
        say("no server uses the database");
        return Ok(());
    }
    say(format!(
        "{:>10}  {:<16}  {:<9}  {:>8}  {:>11}  {:>9}  {:<9}  ADDRESS",
        "NODE", "NAME", "STATE", "SESSIONS", "CONNECTIONS", "LAST BEAT", "VERSION"
    ));
    for row in &rows {
        say(format!(
            "{:>10}  {:<16}  {:<9}  {:>8}  {:>11}  {:>7.1} s  {:<9}  {}",
            row.id,
            row.node.name,
            node_state(row),
            row.pulse.sessions,
            row.pulse.connections,
            row.age.as_secs_f64(),
            row.node.version,
            row.node.address.as_deref().unwrap_or("-"),
        ));
    }
    Ok(())
}

async fn listed(cluster: &dyn Cluster) -> anyhow::Result<Vec<NodeRow>> {
    cluster.nodes().await.context("list the servers")
}

/// Asks a server to stop and follows it until its row is gone.
async fn drain(cluster: &dyn Cluster, rows: &[NodeRow], name: &str) -> anyhow::Result<()> {
    let row = node_chosen(rows, name).map_err(anyhow::Error::msg)?;
    let called = format!("{} (node {})", row.node.name, row.id);
    if node_state(row) == "silent" {
        bail!("{called} is silent: it cannot be asked, and others take its sessions over when clients ask for them");
    }
    let is_server =
        |other: &&NodeRow| other.id != row.id && other.node.address.is_some() && node_state(other) == "living";
    if !rows.iter().any(|other| is_server(&other)) {
        say("no other server is there for its clients: they wait until one starts");
    }
    if !cluster.ask_to_drain(row.id).await.context("ask the server to drain")? {
        bail!("{called} has just left");
    }
    let mut told = None;
    loop {
        let rows = listed(cluster).await?;
        let Some(now) = rows.iter().find(|now| now.id == row.id) else {
            say(format!("{called} has stopped"));
            return Ok(());
        };
        match node_state(now) {
            "silent" => bail!("{called} is silent: it has not said that it is done; its sessions are free by now"),
            "draining" => {}
            _ => bail!("{called} does not drain: its version, {}, cannot be asked to", now.node.version),
        }
        let left = (now.pulse.sessions, now.pulse.connections);
        if told.replace(left) != Some(left) {
            say(format!("{called} drains: {} sessions and {} connections are left", left.0, left.1));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
