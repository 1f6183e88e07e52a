//! The connections that read. In WAL mode a reader sees the last commit and waits for nobody, least of all for the
//! writer's sync.

use super::Fault;
use crate::store::Error;
use reseed_protocol::SessionId;
use rusqlite::Connection;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;

/// How many reads run at once. A read is short and takes a processor for all of its time, so a few suffice; further
/// ones wait in the order in which they came.
pub(super) const READERS: usize = 4;

/// The pool.
pub(super) struct Readers {
    idle: Arc<Mutex<Vec<Connection>>>,
    /// One permit for each connection; whoever has one finds a connection in `idle`.
    permits: Arc<Semaphore>,
}

/// A connection that goes back into the pool when dropped, also by a panic.
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

    /// Runs `question` in one snapshot, on a thread that may block.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Error> {
        let closed = || Error::Unknown("it is closed".into());
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| closed())?;
        let idle = self.idle.clone();
        let answer = tokio::task::spawn_blocking(move || {
            let db = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut borrowed = Borrowed { db, idle };
            let answer = match &mut borrowed.db {
                Some(db) => in_snapshot(db, question),
                None => Err(closed().into()),
            };
            // The connection first, then the permit that promises it.
            drop(borrowed);
            drop(permit);
            answer
        });
        match answer.await {
            Ok(answer) => answer.map_err(Error::from),
            Err(_) => Err(Error::Unknown("the read did not end".into())),
        }
    }

    /// Like [`Self::ask`] about one session: damage that is found is told as damage of it.
    pub(super) async fn ask_of<T: Send + 'static>(
        &self,
        session: &SessionId,
        question: impl FnOnce(&Connection, &SessionId) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Error> {
        let session = session.clone();
        self.ask(move |db| question(db, &session).map_err(|fault| fault.reading(&session))).await
    }

    /// Waits for the reads under way, refuses further ones and closes the connections.
    pub(super) async fn close(&self) {
        // All permits at once means that no read is under way. The error says that it was closed before.
        let _all = self.permits.acquire_many(READERS as u32).await;
        self.close_now();
    }

    /// Refuses further reads and closes the connections that are idle.
    pub(super) fn close_now(&self) {
        self.permits.close();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

fn in_snapshot<T>(db: &mut Connection, question: impl FnOnce(&Connection) -> Result<T, Fault>) -> Result<T, Fault> {
    let snapshot = db.transaction()?;
    let answer = question(&snapshot)?;
    snapshot.finish()?;
    Ok(answer)
}
