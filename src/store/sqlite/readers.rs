//! The connections that read. In WAL mode, a reader sees the last commit and never waits, not even for the writer's
//! sync.

use super::Fault;
use crate::Error;
use reseed_protocol::SessionId;
use rusqlite::Connection;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Semaphore;

/// The maximum number of concurrent reads. A read is short and CPU-bound, so a few suffice; further ones wait in order
/// of arrival.
pub(super) const READERS: usize = 4;

/// A pool of read connections.
pub(super) struct Readers {
    pool: Pool,
    /// One permit per connection; the holder of a permit finds a connection in the pool.
    permits: Arc<Semaphore>,
}

/// The idle connections.
#[derive(Clone)]
pub(super) struct Pool(Arc<Mutex<Idle>>);

struct Idle {
    connections: Vec<Connection>,
    /// How often all connections were told to free their cached pages.
    forgotten: u64,
}

/// A connection that returns to the pool when dropped, even by a panic.
struct Borrowed {
    db: Option<Connection>,
    pool: Pool,
    /// The value of [`Idle::forgotten`] when it was borrowed.
    forgotten: u64,
}

impl Pool {
    fn idle(&self) -> MutexGuard<'_, Idle> {
        // Every change is complete before the lock is released.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn borrow(&self) -> Borrowed {
        let mut idle = self.idle();
        Borrowed { db: idle.connections.pop(), forgotten: idle.forgotten, pool: self.clone() }
    }

    /// Frees the cached pages of all connections; those in use follow when they are returned.
    pub(super) fn forget(&self) {
        let mut idle = self.idle();
        idle.forgotten += 1;
        idle.connections.iter().for_each(release);
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let mut idle = self.pool.idle();
        if idle.forgotten != self.forgotten {
            self.db.iter().for_each(release);
        }
        idle.connections.extend(self.db.take());
    }
}

/// Frees a connection's cached pages.
fn release(db: &Connection) {
    if let Err(error) = db.release_memory() {
        tracing::warn!(%error, "a reader could not free its memory");
    }
}

impl Readers {
    pub(super) fn new(connections: Vec<Connection>) -> Self {
        let permits = Arc::new(Semaphore::new(connections.len()));
        Self { pool: Pool(Arc::new(Mutex::new(Idle { connections, forgotten: 0 }))), permits }
    }

    pub(super) fn pool(&self) -> Pool {
        self.pool.clone()
    }

    /// Runs `query` in one snapshot, on a thread that may block.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Error> {
        let closed = || Error::Unknown("the store is closed".into());
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| closed())?;
        let pool = self.pool.clone();
        let answer = tokio::task::spawn_blocking(move || {
            let mut borrowed = pool.borrow();
            let answer = match &mut borrowed.db {
                Some(db) => in_snapshot(db, query),
                None => Err(closed().into()),
            };
            // The connection is returned before the permit that promises it.
            drop(borrowed);
            drop(permit);
            answer
        });
        match answer.await {
            Ok(answer) => answer.map_err(Error::from),
            Err(_) => Err(Error::Unknown("the read panicked".into())),
        }
    }

    /// Runs a query for one session, as [`Self::run`] does, and attributes damage to that session.
    pub(super) async fn run_for<T: Send + 'static>(
        &self,
        session: &SessionId,
        query: impl FnOnce(&Connection, &SessionId) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Error> {
        let session = session.clone();
        self.run(move |db| query(db, &session).map_err(|fault| fault.reading(&session))).await
    }

    /// Waits for the reads in progress, refuses further ones and closes the connections.
    pub(super) async fn close(&self) {
        // Holding all permits means that no read is in progress. An error means that the pool was already closed.
        let _all = self.permits.acquire_many(READERS as u32).await;
        self.close_now();
    }

    /// Refuses further reads and closes the idle connections.
    pub(super) fn close_now(&self) {
        self.permits.close();
        self.pool.idle().connections.clear();
    }
}

fn in_snapshot<T>(db: &mut Connection, query: impl FnOnce(&Connection) -> Result<T, Fault>) -> Result<T, Fault> {
    let snapshot = db.transaction()?;
    let answer = query(&snapshot)?;
    snapshot.finish()?;
    Ok(answer)
}
