//! A pool of connections for reads and for writes of a single statement.
//!
//! If a read fails because the connection or the server was lost, it is retried on another connection until the store's
//! patience ends. A restart of the database is only a pause.

use super::{
    connection::{self, Connector},
    fault::{Fault, Meaning},
};
use crate::Error;
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;
use tokio_postgres::{Row, types::ToSql};

/// The first and the longest pause before another attempt. They are short enough that a restarted database is used at
/// once.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Exponential backoff with jitter, so that not all callers retry at the same moment.
pub(super) struct Pauses {
    next: Duration,
    deadline: Instant,
}

impl Pauses {
    pub(super) fn until(deadline: Instant) -> Self {
        Self { next: PAUSE_MIN, deadline }
    }

    /// Waits before the next attempt. Returns false if the time is up.
    pub(super) async fn wait(&mut self) -> bool {
        let pause = self.next.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.next = (self.next * 2).min(PAUSE_MAX);
        if Instant::now() + pause >= self.deadline {
            return false;
        }
        tokio::time::sleep(pause).await;
        true
    }
}

/// The pool.
pub(super) struct Readers {
    pool: Pool,
    connector: Connector,
    patience: Duration,
}

/// A borrowed connection. If a statement on it was not answered, it is closed instead of returned, because the next
/// borrower would wait behind that statement.
pub(super) struct Db {
    lent: Option<Object>,
    is_busy: AtomicBool,
}

impl Db {
    /// Executes a statement and returns its rows.
    pub(super) async fn rows(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Fault> {
        let Some(client) = &self.lent else { return Err(Fault::Silence) };
        // If this future is dropped, the flag stays set.
        self.is_busy.store(true, Ordering::Relaxed);
        let result = connection::rows(client, sql, params).await;
        self.is_busy.store(matches!(result, Err(Fault::Silence)), Ordering::Relaxed);
        result
    }

    /// Executes a statement and returns its first row, if it has one.
    pub(super) async fn row(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Option<Row>, Fault> {
        Ok(self.rows(sql, params).await?.into_iter().next())
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        if self.is_busy.load(Ordering::Relaxed) {
            drop(self.lent.take().map(Object::take));
        }
    }
}

impl Readers {
    /// Returns a pool of at most `count` connections. None is made yet.
    pub(super) fn new(connector: Connector, count: u32, patience: Duration) -> Result<Self, Error> {
        let (config, timeout) = (connector.config(), connector.timeout());
        let manager =
            Manager::from_connect(config, connector.clone(), ManagerConfig { recycling_method: RecyclingMethod::Fast });
        let pool = Pool::builder(manager)
            .max_size(count as usize)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(patience))
            .create_timeout(Some(timeout))
            .recycle_timeout(Some(timeout))
            .build()
            .map_err(|error| Error::Unknown(format!("make a pool of connections: {error}")))?;
        Ok(Self { pool, connector, patience })
    }

    async fn lend(&self) -> Result<Db, Fault> {
        let status = self.pool.status();
        if status.available == 0 && status.size >= status.max_size {
            metrics::counter!(crate::READS_WAITED_TOTAL).increment(1);
        }
        if self.connector.has_failed_over() {
            self.pool.retain(|_, metrics| !self.connector.has_left(metrics.created));
        }
        match self.pool.get().await {
            Ok(lent) => Ok(Db { lent: Some(lent), is_busy: AtomicBool::new(false) }),
            Err(PoolError::Backend(error)) => Err(Fault::Database(error)),
            Err(PoolError::Closed) => Err(Fault::Refused(super::closed())),
            Err(PoolError::Timeout(_)) => {
                Err(Fault::NoConnection("no connection to the database was free or could be made in time".to_owned()))
            }
            Err(error) => Err(Fault::NoConnection(format!("no connection to the database: {error}"))),
        }
    }

    /// Executes a read, and retries it if the database goes away meanwhile.
    pub(super) async fn read<T, F, W>(&self, work: F) -> Result<T, Error>
    where
        F: Fn(Arc<Db>) -> W,
        W: Future<Output = Result<T, Fault>>,
    {
        let mut pauses = Pauses::until(Instant::now() + self.patience);
        loop {
            let fault = match self.lend().await {
                Ok(db) => match work(Arc::new(db)).await {
                    Ok(found) => return Ok(found),
                    Err(fault) => fault,
                },
                Err(fault) => fault,
            };
            if !fault.is_passing() || !pauses.wait().await {
                return Err(fault.into());
            }
        }
    }

    /// Executes a single statement that writes, and retries it if the database goes away meanwhile. `work` is told
    /// whether an earlier attempt may have been executed. A commit may have stopped waiting for its standby, and an
    /// earlier attempt's answer may have been lost. In both cases the result only counts after a further commit, which
    /// waits for all commits before it.
    pub(super) async fn write<T, F, W>(&self, work: F) -> Result<T, Error>
    where
        F: Fn(Arc<Db>, bool) -> W,
        W: Future<Output = Result<T, Fault>>,
    {
        let again = AtomicBool::new(false);
        self.read(|db| {
            let was_sent = again.load(Ordering::Relaxed);
            let (before, work) = (self.connector.unreplicated(), work(db.clone(), was_sent));
            let again = &again;
            async move {
                let done = work.await;
                again.fetch_or(is_unknown(&done), Ordering::Relaxed);
                let mut seen = self.connector.unreplicated();
                if done.is_ok() && (was_sent || seen != before) {
                    again.store(true, Ordering::Relaxed);
                    loop {
                        db.row("SELECT pg_logical_emit_message(true, 'reseed', '')::text", &[]).await?;
                        let now = self.connector.unreplicated();
                        if now == seen {
                            break;
                        }
                        seen = now;
                    }
                }
                done
            }
        })
        .await
    }

    pub(super) fn is_closed(&self) -> bool {
        self.pool.is_closed()
    }

    /// Refuses all further calls.
    pub(super) fn close(&self) {
        self.pool.close();
    }
}

fn is_unknown<T>(done: &Result<T, Fault>) -> bool {
    done.as_ref().is_err_and(|fault| fault.meaning() == Meaning::Unknown)
}
