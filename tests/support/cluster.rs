//! Real servers that share a real PostgreSQL: each with its directory, and a proxy through which the others reach it.

use super::{
    binary::{Binary, logged},
    client::Client,
    gate::Gate,
    http::get,
    json::present,
    polling::until,
    postgres,
};
use serde_json::Value;
use std::path::Path;
use tokio::process::Command;

/// The secret that the servers share.
pub(crate) const TOKEN: &str = "a-secret-of-more-than-32-characters-for-nodes";

/// The shortest lease. Tests wait for its end.
pub(crate) const SHORT_LEASE: (&str, &str) = ("NODE_LEASE_SECS", "2");

/// A lease whose end nobody waits for.
pub(crate) const LONG_LEASE: (&str, &str) = ("NODE_LEASE_SECS", "60");

/// A server, its directory, and the way to it for the others.
pub(crate) struct Node {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) server: Binary,
    pub(crate) gate: Gate,
    settings: Vec<(String, String)>,
}

impl Node {
    /// Starts a server that others cannot reach.
    pub(crate) async fn alone(database: &str, name: &str, more: &[(&str, &str)]) -> Self {
        Self::with(Gate::new().await, database, &[&[("NODE_NAME", name)], more].concat()).await
    }

    /// Starts a server that others reach.
    pub(crate) async fn start(database: &str, name: &str, more: &[(&str, &str)]) -> Self {
        let gate = Gate::new().await;
        let address = format!("ws://{}", gate.address);
        Self::behind(gate, &address, database, name, more).await
    }

    /// Starts a server that others reach through this gate, at this address.
    pub(crate) async fn behind(gate: Gate, address: &str, database: &str, name: &str, more: &[(&str, &str)]) -> Self {
        let own = [("NODE_NAME", name), ("NODE_ADDRESS", address), ("NODE_TOKEN", TOKEN)];
        Self::with(gate, database, &[&own, more].concat()).await
    }

    /// Starts a server with these settings. Of two settings with the same name, the later one counts.
    async fn with(gate: Gate, database: &str, more: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let usual = [
            ("DATABASE_URL", database),
            ("UNSAFE_STORE", "true"),
            ("STORE_PATIENCE_SECS", "60"),
            ("OFFLINE_WORD_MILLIS", "0"),
            SHORT_LEASE,
        ];
        let settings: Vec<(&str, &str)> = usual.into_iter().chain(more.iter().copied()).collect();
        let server = Binary::start(folder.path(), &settings).await;
        gate.open(&server.address);
        let settings = settings.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Self { folder, server, gate, settings }
    }

    /// Kills the server and starts it again, in its directory and at its address for the others.
    pub(crate) async fn restart(&mut self) {
        self.restart_as(None).await;
    }

    /// Like [`Self::restart`], as another build of the server if one is given.
    pub(crate) async fn restart_as(&mut self, other: Option<&Path>) {
        let settings: Vec<(&str, &str)> = self.settings.iter().map(|(name, value)| (&**name, &**value)).collect();
        self.server.kill_now().await;
        self.server = match other {
            Some(program) => Binary::start_other(program, self.folder.path(), &settings).await,
            None => Binary::start(self.folder.path(), &settings).await,
        };
        self.gate.open(&self.server.address);
    }

    /// Returns the environment of a command about the database.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let settings = self.settings.iter().cloned();
        settings.filter(|(name, _)| ["DATABASE_URL", "UNSAFE_STORE"].contains(&name.as_str())).collect()
    }

    pub(crate) async fn client(&self) -> Client {
        Client::v2(&self.server.ws()).await
    }

    /// Returns a client with a new session, and the session.
    pub(crate) async fn session(&self) -> (Client, Value) {
        let (client, opened) = Client::v2_session(&self.server.ws()).await;
        (client, present(&opened["sessionId"]).clone())
    }

    pub(crate) async fn signal(&self, signal: &str) {
        let sent = Command::new("sh").args(["-c", "kill -$1 $0", &self.server.pid().to_string(), signal]).status();
        assert!(sent.await.unwrap().success());
    }

    pub(crate) fn log(&self) -> String {
        logged(self.folder.path())
    }

    /// Waits until the server says that it is ready.
    pub(crate) async fn ready(&self) {
        until("it is ready", async || {
            let ready = get(&self.server.address, "/readyz").await;
            if ready.status == 200 { Ok(()) } else { Err(ready.body) }
        })
        .await;
    }

    /// Returns the value of a metric without labels.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let metrics = get(&self.server.address, "/metrics").await.body;
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} is not in {metrics}")).parse().unwrap()
    }
}

/// Returns the address of an empty database on the server that the tests share.
pub(crate) async fn database() -> String {
    tokio::task::spawn_blocking(postgres::database).await.unwrap()
}
