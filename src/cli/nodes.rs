//! `reseed nodes`: lists the servers that share the database, and asks one to stop.

use super::{say, say_json, sessions::open};
use crate::{
    config::Settings,
    server::node_item,
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
            state(row),
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

fn state(row: &NodeRow) -> String {
    node_item(row)["state"].as_str().unwrap_or_default().to_owned()
}

/// Asks a server to stop and follows it until its row is gone.
async fn drain(cluster: &dyn Cluster, rows: &[NodeRow], name: &str) -> anyhow::Result<()> {
    let row = chosen(rows, name)?;
    let called = format!("{} (node {})", row.node.name, row.id);
    if state(row) == "silent" {
        bail!("{called} is silent: it cannot be asked, and others take its sessions over when clients ask for them");
    }
    let is_server = |other: &&NodeRow| other.id != row.id && other.node.address.is_some() && state(other) == "living";
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
        match state(now).as_str() {
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

/// Finds a server by its number or its name. A name means the server that is not silent, because the rows of killed
/// ones stay for an hour.
fn chosen<'a>(rows: &'a [NodeRow], name: &str) -> anyhow::Result<&'a NodeRow> {
    if let Some(row) = rows.iter().find(|row| row.id.to_string() == name) {
        return Ok(row);
    }
    let called: Vec<&NodeRow> = rows.iter().filter(|row| row.node.name == name).collect();
    let there: Vec<&NodeRow> = called.iter().copied().filter(|row| state(row) != "silent").collect();
    match (&there[..], &called[..]) {
        (&[row], _) => Ok(row),
        ([], []) => bail!("no server is called `{name}`; `reseed nodes` lists them"),
        ([], _) => bail!(
            "every server called `{name}` is silent: none can be asked, and others take their sessions over when \
             clients ask for them"
        ),
        _ => {
            let number = |row: &&NodeRow| format!("{} (last beat {:.1} s ago)", row.id, row.age.as_secs_f64());
            let numbers: Vec<String> = there.iter().map(number).collect();
            bail!(
                "several servers are called `{name}`, and one that was killed counts as silent only after twice its \
                 lease; give a number: {}",
                numbers.join(", ")
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::chosen;
    use crate::store::{NewNode, NodeId, NodeRow, Pulse};
    use std::time::Duration;

    /// Returns a server with a lease of 5 s, whose last beat was `age` seconds ago.
    fn server(id: i64, name: &str, age: u64) -> NodeRow {
        let lease = Duration::from_secs(5);
        let node = NewNode { name: name.to_owned(), address: None, version: "1".to_owned(), lease };
        NodeRow { id: NodeId(id), node, beat: 1, pulse: Pulse::default(), age: Duration::from_secs(age) }
    }

    #[test]
    fn a_name_means_the_server_that_is_not_silent() {
        let mut draining = server(9, "d", 0);
        draining.pulse.draining = true;
        let rows = [
            server(1, "a", 3_000),
            server(2, "a", 60),
            server(3, "a", 1),
            server(4, "b", 1),
            server(5, "b", 9),
            server(6, "b", 600),
            server(7, "c", 600),
            server(8, "c", 60),
            draining,
        ];
        for (name, expected) in [
            ("a", Ok(3)),
            ("2", Ok(2)),
            ("d", Ok(9)),
            ("b", Err("give a number: 4 (last beat 1.0 s ago), 5 (last beat 9.0 s ago)")),
            ("c", Err("every server called `c` is silent")),
            ("x", Err("no server is called `x`")),
        ] {
            match (chosen(&rows, name), expected) {
                (Ok(row), Ok(id)) => assert_eq!(row.id, NodeId(id), "{name}"),
                (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{name}: {error}"),
                (found, _) => panic!("{name}: {found:?}"),
            }
        }
    }
}
