//! The connections that read. In WAL mode a reader sees the last commit and waits for nothing, in particular not for
//! the writer's sync.

use super::Fault;
use crate::store::Error;
use reseed_protocol::SessionId;
use rusqlite::Connection;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;

/// The maximum number of concurrent reads. A read is short and CPU-bound, so a few suffice; further ones wait in order
/// of arrival.
pub(super) const READERS: usize = 4;

/// A pool of read connections.
pub(super) struct Readers {
    idle: Arc<Mutex<Vec<Connection>>>,
    /// One permit per connection; the holder of a permit finds a connection in `idle`.
    permits: Arc<Semaphore>,
}

/// A connection that returns to the pool when dropped, even by a panic.
struct Borrowed {
    db: Option<Connection>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).extend(self.db.take());
    }
}

impl Readers {
    pub(super) fn new(connections: Vec<Connection>) -> Self {
        let permits = Arc::new(Semaphore::new(connections.len()));
        Self { idle: Arc::new(Mutex::new(connections)), permits }
    }

    /// Runs `query` in one snapshot, on a thread that may block.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Error> {
        let closed = || Error::Unknown("the store is closed".into());
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| closed())?;
        let idle = self.idle.clone();
        let answer = tokio::task::spawn_blocking(move || {
            let db = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut borrowed = Borrowed { db, idle };
            let answer = match &mut borrowed.db {
                Some(db) => in_snapshot(db, query),
                None => Err(closed().into()),
            };
            // Return the connection first, then the permit that promises it.
            drop(borrowed);
            drop(permit);
            answer
        });
        match answer.await {
            Ok(answer) => answer.map_err(Error::from),
            Err(_) => Err(Error::Unknown("the read panicked".into())),
        }
    }

    /// Does what [`Self::run`] does for one session: damage found is reported as damage of that session.
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
        // Holding all permits means that no read is in progress. An error means that the pool was closed before.
        let _all = self.permits.acquire_many(READERS as u32).await;
        self.close_now();
    }

    /// Refuses further reads and closes the idle connections.
    pub(super) fn close_now(&self) {
        self.permits.close();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

fn in_snapshot<T>(db: &mut Connection, query: impl FnOnce(&Connection) -> Result<T, Fault>) -> Result<T, Fault> {
    let snapshot = db.transaction()?;
    let answer = query(&snapshot)?;
    snapshot.finish()?;
    Ok(answer)
}
