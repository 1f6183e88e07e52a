//! `reseed nodes`: lists the servers that share the database.

use super::{say, say_json, sessions::open};
use crate::{config::Settings, server::node_item};
use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::{Value, json};

/// The options of `reseed nodes`.
#[derive(Debug, Args)]
pub(super) struct NodesOptions {
    /// Print JSON: `{ "items": [ … ] }`.
    #[arg(long)]
    json: bool,
}

/// Prints the servers.
pub(super) async fn run(settings: &Settings, options: NodesOptions) -> anyhow::Result<()> {
    let store = open(settings).await?;
    let Some(cluster) = store.cluster() else {
        bail!("{} is for one server; several share a PostgreSQL database", settings.store.database())
    };
    let mut rows = cluster.nodes().await.context("list the servers")?;
    rows.sort_by_key(|row| row.id);
    let items: Vec<Value> = rows.iter().map(node_item).collect();
    if options.json {
        return say_json(&json!({ "items": items }));
    }
    if items.is_empty() {
        say("no server uses the database");
        return Ok(());
    }
    say(format!(
        "{:>6}  {:<16}  {:<9}  {:>8}  {:>11}  {:>9}  {:<9}  ADDRESS",
        "NODE", "NAME", "STATE", "SESSIONS", "CONNECTIONS", "LAST BEAT", "VERSION"
    ));
    for row in &rows {
        let item = node_item(row);
        say(format!(
            "{:>6}  {:<16}  {:<9}  {:>8}  {:>11}  {:>7.1} s  {:<9}  {}",
            row.id,
            row.node.name,
            item["state"].as_str().unwrap_or_default(),
            row.pulse.sessions,
            row.pulse.connections,
            row.age.as_secs_f64(),
            row.node.version,
            row.node.address.as_deref().unwrap_or("-"),
        ));
    }
    Ok(())
}
