//! Connections: to which host, with or without TLS, and with which server settings.
//!
//! Roles and databases may have their own defaults (`synchronous_commit = off`, a `statement_timeout`, another
//! isolation level), so every connection sets what it depends on. Every wait for the server has a client-side timeout,
//! because a frozen server accepts connections and never answers.

use super::{
    fault::{Fault, may_pass},
    hosts,
    timeline::{self, Timelines},
    tls,
};
use crate::Postgres;
use deadpool_postgres::ClientWrapper;
use futures_util::future::{BoxFuture, join_all};
use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::time::timeout;
use tokio_postgres::{
    AsyncMessage, Client, Config, config::SslMode, config::TargetSessionAttrs, error::Severity, types::ToSql,
};
use tokio_postgres_rustls::MakeRustlsConnect;

/// The timeout for connecting to one address of a host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// The timeout for a usable connection to one host. It leaves time for a second address of its name.
const HOST_TIMEOUT: Duration = CONNECT_TIMEOUT.saturating_mul(2);

/// The server's time limits for one statement, and for waiting for a lock in it.
const STATEMENT_SECS: u64 = 10;
const LOCK_SECS: u64 = 3;

/// The client-side timeout for the answer to one statement. The server gives up earlier.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(STATEMENT_SECS + 2);

/// Planner settings for our statements, all of which look rows up by exact keys. Without these settings, a plan flips
/// to bitmap scans over dead rows when statistics change, and an append costs fifty times as much.
const PLANS: &str = "-c plan_cache_mode=force_generic_plan -c enable_bitmapscan=off -c enable_seqscan=off \
                     -c enable_mergejoin=off -c jit=off";

/// The purpose of a connection.
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
    /// The same configuration for each host alone.
    hosts: Vec<Config>,
    tls: MakeRustlsConnect,
    timeout: Duration,
    /// The statement that every connection executes first.
    begin: &'static str,
    /// Counts the commits, over all connections, that stopped waiting for their standby.
    unreplicated: Arc<AtomicU64>,
    /// Collects the timelines that connections find; `None` if they do not ask for them.
    timelines: Option<Arc<Timelines>>,
}

/// Settings that an older server may not know are set by a query, not by an option. So an older server can still be
/// reached, and the version check reports it.
const BEGIN: &str = "SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'";

/// Set only after the primary is found: among several hosts, the primary is the one that accepts writes.
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
    /// Creates a connector for a database. `synchronous_commit` applies to its connections; `None` keeps the server's
    /// setting.
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
        // A standby may lag behind, so reads do not use it either.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        let hosts = hosts::each(&config);
        let tls = tls::connector(config.get_ssl_mode() != SslMode::Disable, database.ca_file.as_deref())?;
        let begin = if used == Use::Read { BEGIN_READ_ONLY } else { BEGIN };
        let timeout = HOST_TIMEOUT.saturating_mul(u32::try_from(hosts.len()).unwrap_or(u32::MAX));
        Ok(Self { config, hosts, tls, timeout, begin, unreplicated: Arc::default(), timelines: None })
    }

    /// Makes its connections check whether they lead to another copy of the database.
    pub(super) fn watching(self, timelines: Arc<Timelines>) -> Self {
        Self { timelines: Some(timelines), ..self }
    }

    pub(super) async fn connect(&self) -> Result<Connection, Fault> {
        let began = Instant::now();
        match timeout(self.timeout, self.dial()).await {
            Ok(Ok((client, task))) => {
                let client = ClientWrapper::new(client, task);
                Ok(Connection { client, began, timelines: self.timelines.clone() })
            }
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(Fault::NoConnection("the database did not answer while connecting".to_owned())),
        }
    }

    /// Returns true if another copy of the database has taken over from the first one.
    pub(super) fn has_failed_over(&self) -> bool {
        self.timelines.as_ref().is_some_and(|timelines| timelines.failovers() > 0)
    }

    /// Returns true if a connection that began at this time leads to a copy of the database that has been replaced.
    pub(super) fn has_left(&self, began: Instant) -> bool {
        self.timelines.as_ref().is_some_and(|timelines| timelines.has_left(began))
    }

    /// Returns the longest time that connecting can take.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns how many commits stopped waiting for their standby, over all connections.
    pub(super) fn unreplicated(&self) -> u64 {
        self.unreplicated.load(Ordering::Acquire)
    }

    pub(super) fn config(&self) -> Config {
        self.config.clone()
    }

    pub(super) fn has_several_hosts(&self) -> bool {
        self.hosts.len() > 1
    }

    /// If there are several hosts, asks all of them for their timelines, so that connections only lead to the newest
    /// copy of the database that accepts writes now. This repeats until one host has answered. Hosts found later are
    /// compared with it.
    pub(super) async fn survey(&self) {
        let timelines = self.timelines.as_ref().filter(|timelines| self.has_several_hosts() && !timelines.is_known());
        let Some(timelines) = timelines else { return };
        let timeline_of = async |host| {
            let (client, task) = self.reach(host).await.ok()?;
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

    /// Connects to the first usable host. A frozen host does not keep the others from being tried.
    async fn dial(&self) -> Result<Dialled, tokio_postgres::Error> {
        let (mut refused, mut is_frozen) = (None, false);
        for host in &self.hosts {
            match timeout(HOST_TIMEOUT, self.enter(host)).await {
                Ok(Ok(dialled)) => return Ok(dialled),
                Ok(Err(error)) => {
                    // One error that may pass makes waiting worthwhile, even if another host refuses for good. And an
                    // error reported by a server is more specific than a failure to connect.
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
            // The caller's timeout expires now and reports this.
            _ => std::future::pending().await,
        }
    }

    /// Connects to a host, unless its timeline is older than one found before.
    async fn enter(&self, host: &Config) -> Result<Dialled, tokio_postgres::Error> {
        let dialled = self.reach(host).await?;
        if let Some(timelines) = &self.timelines {
            timelines.enter(&dialled.0).await?;
        }
        Ok(dialled)
    }

    async fn reach(&self, host: &Config) -> Result<Dialled, tokio_postgres::Error> {
        let (client, mut connection) = host.connect(self.tls.clone()).await?;
        let counts = self.unreplicated.clone();
        let task = tokio::spawn(async move {
            loop {
                match poll_fn(|context| connection.poll_message(context)).await {
                    Some(Ok(AsyncMessage::Notice(notice))) => {
                        // The server reports a commit that was cancelled while it waited for its standby as a success
                        // with a warning. Messages may be translated; the name of the function that warns is not.
                        if notice.parsed_severity() == Some(Severity::Warning)
                            && notice.routine() == Some("SyncRepWaitForLSN")
                        {
                            counts.fetch_add(1, Ordering::AcqRel);
                        }
                    }
                    Some(Ok(_)) => {}
                    // The next use of the connection returns the error.
                    Some(Err(_)) | None => break,
                }
            }
        });
        client.batch_execute(self.begin).await?;
        Ok((client, task))
    }
}

type Dialled = (Client, tokio::task::JoinHandle<()>);

impl deadpool_postgres::Connect for Connector {
    fn connect(
        &self,
        _: &Config,
    ) -> BoxFuture<'_, Result<(Client, tokio::task::JoinHandle<()>), tokio_postgres::Error>> {
        Box::pin(self.dial())
    }
}

fn source_of(error: &tokio_postgres::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// A connection with a single user, which writes. Dropping it closes it immediately.
pub(super) struct Connection {
    client: ClientWrapper,
    began: Instant,
    timelines: Option<Arc<Timelines>>,
}

impl Connection {
    /// Returns true if the connection is closed, or leads to a copy of the database that has been replaced.
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed() || self.timelines.as_ref().is_some_and(|timelines| timelines.has_left(self.began))
    }

    /// Executes statements without parameters.
    pub(super) async fn batch(&self, sql: &str) -> Result<(), Fault> {
        timed(self.client.batch_execute(sql)).await
    }

    /// Executes a statement and returns its rows. After an error, or if this future is dropped, the statement may still
    /// be running: the fate of a write must then be determined on another connection.
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
