//! The servers of a cluster, and clients that find another one when theirs is gone.

use crate::{
    client::{Client, Reading, Speaks},
    process::{Bench, Process, free_address},
};
use anyhow::Context as _;
use serde_json::{Value, json};
use std::{
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

const TOKEN: &str = "a-secret-of-more-than-32-characters-for-nodes";

/// The longest pause before a client tries again.
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// The longest that a client looks for a server.
const PATIENCE: Duration = Duration::from_secs(60);

/// Servers at fixed addresses, each running or not.
pub(super) struct Servers<'a> {
    bench: &'a Bench,
    database: String,
    addresses: Vec<SocketAddr>,
    running: Mutex<Vec<Option<Process>>>,
}

impl<'a> Servers<'a> {
    /// Starts this many.
    pub(super) async fn start(bench: &'a Bench, database: String, count: usize) -> anyhow::Result<Self> {
        let addresses = (0..count).map(|_| free_address()).collect::<Result<Vec<_>, _>>()?;
        let servers = Self { bench, database, addresses, running: Mutex::default() };
        servers.running().resize_with(count, || None);
        for at in 0..count {
            servers.start_again(at).await?;
        }
        Ok(servers)
    }

    fn running(&self) -> MutexGuard<'_, Vec<Option<Process>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn address(&self, at: usize) -> SocketAddr {
        self.addresses[at]
    }

    pub(super) fn count(&self) -> usize {
        self.addresses.len()
    }

    /// Starts one where it was.
    pub(super) async fn start_again(&self, at: usize) -> anyhow::Result<()> {
        let (address, base_url) = (self.addresses[at], self.bench.upstream.base_url());
        let (name, node) = (format!("node-{at}"), format!("ws://{address}"));
        let settings = [
            ("DATABASE_URL", self.database.as_str()),
            ("OPENAI_BASE_URL", &base_url),
            ("CONTEXT_WINDOW", "1000000"),
            ("NODE_NAME", &name),
            ("NODE_ADDRESS", &node),
            ("NODE_TOKEN", TOKEN),
        ];
        let started = self.bench.reseed_at(address, &settings).await?;
        self.running()[at] = Some(started);
        Ok(())
    }

    /// Takes one out: clients find it gone once it has ended.
    pub(super) fn take(&self, at: usize) -> anyhow::Result<Process> {
        self.running()[at].take().context("the server is not running")
    }

    /// Looks at one.
    pub(super) fn with<T>(&self, at: usize, look: impl FnOnce(&Process) -> anyhow::Result<T>) -> anyhow::Result<T> {
        look(self.running()[at].as_ref().context("the server is not running")?)
    }
}

/// A client with a session, which reconnects to any server.
pub(super) struct Visitor<'a> {
    servers: &'a Servers<'a>,
    session: String,
    client: Client,
    /// The times from the loss of a connection until the session was open again.
    pub(super) away: Vec<Duration>,
    /// Turns that had been accepted and did not complete.
    pub(super) lost: usize,
}

impl<'a> Visitor<'a> {
    /// Creates a session at this server.
    pub(super) async fn new(servers: &'a Servers<'a>, at: usize) -> anyhow::Result<Self> {
        let mut client = Client::connect_to(servers.address(at), Speaks::V2, Reading::default()).await?;
        client.hello().await?;
        client.open(None).await?;
        let session = client.session_id()?.to_owned();
        Ok(Self { servers, session, client, away: Vec::new(), lost: 0 })
    }

    /// Has a turn, on another server if this one goes away in the middle of it.
    pub(super) async fn turn(&mut self, answer: &str) -> anyhow::Result<()> {
        loop {
            match self.client.turn("And then?").await {
                Ok(turn) => {
                    anyhow::ensure!(turn.text == answer, "the answer was {:?}", turn.text);
                    return Ok(());
                }
                // It may have been refused, cut off, or have failed: the session says.
                Err(_) => {
                    let opened = self.back().await?;
                    match opened["lastTurn"]["status"].as_str() {
                        Some("interrupted" | "failed") => self.lost += 1,
                        // The rest of one that still runs is not of interest.
                        _ if !opened["turn"].is_null() => self.client.watch(Instant::now()).await.map(drop)?,
                        _ => {}
                    }
                }
            }
        }
    }

    /// Waits until the server closes the connection.
    pub(super) async fn cut(&mut self) {
        // Whatever it says before.
        while self.client.watch(Instant::now()).await.is_ok() {}
    }

    /// Opens the session at whichever server takes it; returns what it said.
    pub(super) async fn back(&mut self) -> anyhow::Result<Value> {
        let began = Instant::now();
        loop {
            let at = fastrand::usize(..self.servers.count());
            let pause = match self.open_at(at).await {
                Ok(Ok(opened)) => {
                    self.away.push(began.elapsed());
                    return Ok(opened);
                }
                Ok(Err(refused)) => Duration::from_millis(refused["retryAfterMs"].as_u64().unwrap_or(50)),
                Err(_) => Duration::from_millis(20),
            };
            anyhow::ensure!(began.elapsed() < PATIENCE, "no server took the session within {PATIENCE:?}");
            tokio::time::sleep(pause.min(PAUSE_MAX)).await;
        }
    }

    async fn open_at(&mut self, at: usize) -> anyhow::Result<Result<Value, Value>> {
        let mut client = Client::connect_to(self.servers.address(at), Speaks::V2, Reading::default()).await?;
        client.hello().await?;
        let opened = client.ask_for("open_session", json!({ "sessionId": self.session }), "session_opened").await?;
        self.client = client;
        Ok(opened)
    }
}
