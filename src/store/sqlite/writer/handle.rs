//! The handle of the writer thread: its queue, and its known state.

use super::{
    super::health::{Health, Probe},
    Parts, QUEUE_MAX, Thread,
    job::{Call, Job, Write},
};
use crate::Error;
use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
};
use tokio::sync::{mpsc, watch};

/// The handle of the writer thread.
pub(in crate::sqlite) struct Writer {
    /// `None` once closed.
    running: Mutex<Option<Running>>,
    health: Arc<Health>,
    /// True while deletions leave work to do.
    upkeep: watch::Receiver<bool>,
    /// True while there are entries to index.
    indexing: watch::Receiver<bool>,
}

struct Running {
    queue: mpsc::Sender<Box<dyn Job>>,
    thread: JoinHandle<()>,
}

impl Writer {
    /// Starts the thread. It holds the lock until the connection is closed.
    pub(in crate::sqlite) fn start(parts: Parts) -> io::Result<Self> {
        let (queue, jobs) = mpsc::channel(QUEUE_MAX);
        let writing = Thread::new(parts)?;
        let (health, upkeep) = (writing.health.clone(), writing.upkeep.watch());
        let indexing = writing.indexing.watch();
        // It has a runtime of its own, so that a store can be opened outside of any.
        let timer = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let thread = thread::Builder::new().name("store-writer".into()).spawn(move || writing.run(jobs, &timer))?;
        Ok(Self { running: Mutex::new(Some(Running { queue, thread })), health, upkeep, indexing })
    }

    /// Executes a write, which is durable when this returns `Ok`. Dropping the future does not undo a queued write.
    pub(in crate::sqlite) async fn call<W: Write>(&self, write: W) -> Result<W::Output, Error> {
        let queue = self.running().as_ref().map(|running| running.queue.clone());
        let queue = queue.ok_or_else(closed)?;
        let (job, result) = Call::boxed(write);
        queue.send(job).await.map_err(|_| closed())?;
        drop(queue);
        result.await.unwrap_or_else(|_| Err(Error::Unknown("the writer has ended".into())))
    }

    /// Returns the reason why nothing more is written, if there is one.
    pub(in crate::sqlite) fn failure(&self) -> Option<Error> {
        self.health.failure()
    }

    /// Checks whether a write would succeed now, by a probe write if none was executed recently.
    pub(in crate::sqlite) async fn check(&self) -> Result<(), Error> {
        if let Some(error) = self.failure() {
            return Err(error);
        }
        if self.running().is_none() {
            return Err(closed());
        }
        let Some(bytes) = self.health.probe_due() else { return self.health.probed() };
        let outcome = self.call(Probe { bytes }).await;
        self.health.was_probed(outcome.clone());
        outcome
    }

    /// Waits until deletions leave no work, except steps that failed and are retried later.
    pub(in crate::sqlite) async fn settled(&self) {
        // An error means that the thread has ended.
        let _ = self.upkeep.clone().wait_for(|is_busy| !is_busy).await;
    }

    /// Waits until every entry is indexed, or none can be.
    pub(in crate::sqlite) async fn indexed(&self) {
        // An error means that the thread has ended.
        let _ = self.indexing.clone().wait_for(|is_busy| !is_busy).await;
    }

    /// Ends the thread after it has executed everything accepted. Blocks until then.
    pub(in crate::sqlite) fn close(&self) -> Result<(), Error> {
        let Some(running) = self.running().take() else { return Ok(()) };
        drop(running.queue);
        running.thread.join().map_err(|_| Error::Unknown("the writer has panicked".into()))
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn closed() -> Error {
    Error::Unknown("the store is closed".into())
}
