//! Connections: where to, over TLS or not, and with which settings of the server's.
//!
//! Roles and databases may carry defaults of their own (`synchronous_commit = off`, a `statement_timeout`, another
//! isolation), so every connection sets what matters to it. Every wait for the server has a limit of ours: one that is
//! frozen accepts connections and says nothing.

use super::{
    fault::{Fault, may_pass},
    hosts,
    timeline::{self, Timelines},
    tls,
};
use crate::config::Postgres;
use deadpool_postgres::ClientWrapper;
use futures_util::future::{BoxFuture, join_all};
use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::time::timeout;
use tokio_postgres::{
    AsyncMessage, Client, Config, config::SslMode, config::TargetSessionAttrs, error::Severity, types::ToSql,
};
use tokio_postgres_rustls::MakeRustlsConnect;

/// The longest time to connect to one address of a host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// The longest time to connect to one host until its connection can be used: a second address of its name is tried.
const HOST_TIMEOUT: Duration = CONNECT_TIMEOUT.saturating_mul(2);

/// The longest time that the server spends on one statement, and on waiting for a lock in it.
const STATEMENT_SECS: u64 = 10;
const LOCK_SECS: u64 = 3;

/// The longest time that we wait for the answer to one statement: the server gives up before.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(STATEMENT_SECS + 2);

/// How the server plans our statements. Each is a lookup by exact keys; without these settings a plan flips to bitmap
/// scans over dead rows when statistics change, and an append costs fifty times as much.
const PLANS: &str = "-c plan_cache_mode=force_generic_plan -c enable_bitmapscan=off -c enable_seqscan=off \
                     -c enable_mergejoin=off -c jit=off";

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Reading and writing.
    Write,
    /// Reading only: the server refuses every write.
    Read,
}

/// Makes connections.
#[derive(Clone)]
pub(super) struct Connector {
    config: Config,
    /// The same for each host alone.
    hosts: Vec<Config>,
    tls: MakeRustlsConnect,
    timeout: Duration,
    /// What every connection executes first.
    begin: &'static str,
    /// Counts the commits of all of its connections that stopped waiting for their standby.
    unreplicated: Arc<AtomicU64>,
    /// Collects what its connections find out about the server; `None`: they do not ask.
    timelines: Option<Arc<Timelines>>,
}

/// What a server may not know is set by a query instead of an option, so that an older one gets as far as the check of
/// its version.
const BEGIN: &str = "SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'";

/// Set once the primary is found: among several hosts, it is the one that takes writes.
const BEGIN_READ_ONLY: &str = "\
     SELECT set_config(name, CASE name WHEN 'idle_session_timeout' THEN '0' ELSE 'on' END, false) FROM pg_settings \
     WHERE name IN ('idle_session_timeout', 'default_transaction_read_only')";

/// The reason the address or the certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The address is not one that the driver understands.
    #[error("the address of the database cannot be used: {0}")]
    Address(String),
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] tls::Error),
}

impl Connector {
    /// Returns what connects to a database. `synchronous_commit` is that of its connections; `None`: the server's.
    pub(super) fn new(database: &Postgres, used: Use, synchronous_commit: Option<&str>) -> Result<Self, SetupError> {
        let address = database.url.expose();
        let verifies = ["sslmode=verify-full", "sslmode=require"].iter().any(|mode| address.contains(mode));
        let mut config: Config = address
            .replace("sslmode=verify-full", "sslmode=require")
            .parse()
            .map_err(|error: tokio_postgres::Error| SetupError::Address(source_of(&error)))?;
        if verifies {
            config.ssl_mode(SslMode::Require);
        }
        let given = config.get_options().map_or_else(String::new, |options| format!("{options} "));
        let commit = synchronous_commit.map_or_else(String::new, |mode| format!(" -c synchronous_commit={mode}"));
        config.options(format!(
            "{given}{PLANS} -c search_path=\"{schema}\" -c default_transaction_isolation=read\\ committed \
             -c default_transaction_read_only=off -c default_transaction_deferrable=off \
             -c statement_timeout={STATEMENT_SECS}s -c lock_timeout={LOCK_SECS}s \
             -c idle_in_transaction_session_timeout=5s -c client_min_messages=warning -c tcp_keepalives_idle=5 \
             -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3{commit}",
            schema = database.schema,
        ));
        config.connect_timeout(CONNECT_TIMEOUT);
        config.keepalives_idle(Duration::from_secs(5));
        config.tcp_user_timeout(Duration::from_secs(10));
        if config.get_application_name().is_none() {
            config.application_name("reseed");
        }
        // A standby may be behind, so it is not read either.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        let hosts = hosts::each(&config);
        let tls = tls::connector(config.get_ssl_mode() != SslMode::Disable, database.ca_file.as_deref())?;
        let begin = if used == Use::Read { BEGIN_READ_ONLY } else { BEGIN };
        let timeout = HOST_TIMEOUT.saturating_mul(u32::try_from(hosts.len()).unwrap_or(u32::MAX));
        Ok(Self { config, hosts, tls, timeout, begin, unreplicated: Arc::default(), timelines: None })
    }

    /// Lets its connections look whether they lead to another copy of the database.
    pub(super) fn watching(self, timelines: Arc<Timelines>) -> Self {
        Self { timelines: Some(timelines), ..self }
    }

    /// Connects.
    pub(super) async fn connect(&self) -> Result<Connection, Fault> {
        let began = Instant::now();
        match timeout(self.timeout, self.dial()).await {
            Ok(Ok((client, task, warned))) => {
                let client = ClientWrapper::new(client, task);
                Ok(Connection { client, warned, began, timelines: self.timelines.clone() })
            }
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(Fault::NoConnection("the database did not answer while connecting".to_owned())),
        }
    }

    /// Returns true if another copy of the database has taken the place of the first one.
    pub(super) fn has_failed_over(&self) -> bool {
        self.timelines.as_ref().is_some_and(|timelines| timelines.failovers() > 0)
    }

    /// Returns true if a connection that began then leads to a copy of the database that was replaced.
    pub(super) fn has_left(&self, began: Instant) -> bool {
        self.timelines.as_ref().is_some_and(|timelines| timelines.has_left(began))
    }

    /// Returns the longest time that connecting takes.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns how many commits have stopped waiting for their standby, over all connections.
    pub(super) fn unreplicated(&self) -> u64 {
        self.unreplicated.load(Ordering::Acquire)
    }

    pub(super) fn config(&self) -> Config {
        self.config.clone()
    }

    /// Returns true if there are several hosts.
    pub(super) fn has_several_hosts(&self) -> bool {
        self.hosts.len() > 1
    }

    /// Asks every host, if there are several, and has connections go only to the newest copy of the database that takes
    /// writes now. Does so until one has answered; those found later are compared with it.
    pub(super) async fn survey(&self) {
        let timelines = self.timelines.as_ref().filter(|timelines| self.has_several_hosts() && !timelines.is_known());
        let Some(timelines) = timelines else { return };
        let timeline_of = async |host| {
            let (client, task, _) = self.reach(host).await.ok()?;
            let found = timeline::of(&client).await.ok();
            drop(client);
            task.abort();
            found
        };
        let asked = self.hosts.iter().map(|host| timeout(HOST_TIMEOUT, timeline_of(host)));
        let found = join_all(asked).await;
        if let Some(newest) = found.into_iter().filter_map(|answer| answer.ok().flatten()).max() {
            timelines.begin(newest);
        }
    }

    /// Connects to the first host that can be used. If one is frozen, the others are still tried.
    async fn dial(&self) -> Result<Dialled, tokio_postgres::Error> {
        let (mut refused, mut is_frozen) = (None, false);
        for host in &self.hosts {
            match timeout(HOST_TIMEOUT, self.enter(host)).await {
                Ok(Ok(dialled)) => return Ok(dialled),
                Ok(Err(error)) => {
                    // Waiting for one host is worth it, whatever another one says for good; and what a server says
                    // tells more than that there is none.
                    let worth = |error: &tokio_postgres::Error| (may_pass(error), error.code().is_some());
                    if refused.as_ref().is_none_or(|before| worth(before) <= worth(&error)) {
                        refused = Some(error);
                    }
                }
                Err(_) => is_frozen = true,
            }
        }
        match refused {
            Some(error) if may_pass(&error) || !is_frozen => Err(error),
            // The caller's limit is over as well, and says so.
            _ => std::future::pending().await,
        }
    }

    /// Connects to a host, unless it is behind one that was found before.
    async fn enter(&self, host: &Config) -> Result<Dialled, tokio_postgres::Error> {
        let dialled = self.reach(host).await?;
        if let Some(timelines) = &self.timelines {
            timelines.enter(&dialled.0).await?;
        }
        Ok(dialled)
    }

    /// Connects to a host.
    async fn reach(&self, host: &Config) -> Result<Dialled, tokio_postgres::Error> {
        let (client, mut connection) = host.connect(self.tls.clone()).await?;
        let warned = Arc::new(AtomicBool::new(false));
        let (warns, counts) = (warned.clone(), self.unreplicated.clone());
        let task = tokio::spawn(async move {
            loop {
                match poll_fn(|context| connection.poll_message(context)).await {
                    Some(Ok(AsyncMessage::Notice(notice))) => {
                        // A commit that was cancelled while it waited for its standby is reported as a success, with a
                        // warning. Messages are translated; the name of the function that warns is not.
                        if notice.parsed_severity() == Some(Severity::Warning)
                            && notice.routine() == Some("SyncRepWaitForLSN")
                        {
                            warns.store(true, Ordering::Release);
                            counts.fetch_add(1, Ordering::AcqRel);
                        }
                    }
                    Some(Ok(_)) => {}
                    // Whoever uses the connection gets the error.
                    Some(Err(_)) | None => break,
                }
            }
        });
        client.batch_execute(self.begin).await?;
        Ok((client, task, warned))
    }
}

type Dialled = (Client, tokio::task::JoinHandle<()>, Arc<AtomicBool>);

impl deadpool_postgres::Connect for Connector {
    fn connect(
        &self,
        _: &Config,
    ) -> BoxFuture<'_, Result<(Client, tokio::task::JoinHandle<()>), tokio_postgres::Error>> {
        Box::pin(async move { self.dial().await.map(|(client, task, _)| (client, task)) })
    }
}

fn source_of(error: &tokio_postgres::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// A connection of one user, which writes. Dropping it closes it at once.
pub(super) struct Connection {
    client: ClientWrapper,
    warned: Arc<AtomicBool>,
    began: Instant,
    timelines: Option<Arc<Timelines>>,
}

impl Connection {
    /// Returns true if a commit has stopped waiting for its standby since the last call.
    pub(super) fn take_warned(&self) -> bool {
        self.warned.swap(false, Ordering::AcqRel)
    }

    /// Returns true if it can or must not be used any more: it leads to a copy of the database that was replaced.
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed() || self.timelines.as_ref().is_some_and(|timelines| timelines.has_left(self.began))
    }

    /// Executes statements without parameters.
    pub(super) async fn batch(&self, sql: &str) -> Result<(), Fault> {
        timed(self.client.batch_execute(sql)).await
    }

    /// Executes a statement and returns its rows. After an error, or if this future is dropped, the statement may still
    /// be running: a write must then be resolved on another connection.
    pub(super) async fn rows(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<tokio_postgres::Row>, Fault> {
        rows(&self.client, sql, params).await
    }
}

/// Executes a prepared statement and returns its rows.
pub(super) async fn rows(
    client: &ClientWrapper,
    sql: &str,
    params: &[&(dyn ToSql + Sync)],
) -> Result<Vec<tokio_postgres::Row>, Fault> {
    timed(async {
        let statement = client.prepare_cached(sql).await?;
        client.query(&statement, params).await
    })
    .await
}

async fn timed<T>(work: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, Fault> {
    match timeout(ANSWER_TIMEOUT, work).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(Fault::Silence),
    }
}
