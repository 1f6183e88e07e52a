//! A write of any output type, as it waits in the writer's queue.

use super::super::Fault;
use crate::Error;
use reseed_protocol::SessionId;
use rusqlite::Connection;
use tokio::sync::oneshot;

/// The size of what a write puts into the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::sqlite) struct Size {
    pub(in crate::sqlite) records: u64,
    pub(in crate::sqlite) bytes: u64,
}

/// One write, executed inside a transaction that others share.
pub(in crate::sqlite) trait Write: Send + 'static {
    type Output: Send + 'static;

    /// True if the write deletes something that is erased from the files afterwards, such as a session.
    const DELETES: bool = false;

    /// Executes the write, or refuses it without having changed anything.
    fn write(&self, db: &Connection) -> Result<Self::Output, Fault>;

    fn size(&self) -> Size {
        Size::default()
    }

    /// Returns the session to which the write adds entries, if any.
    fn adds_to(&self) -> Option<&SessionId> {
        None
    }
}

/// The reason a group cannot be committed as it is.
pub(super) enum Spoiled {
    /// Only this write failed, and its answer is known; the others can be executed again.
    Alone,
    /// The database failed.
    Sqlite(rusqlite::Error),
}

/// A queued write of any output type.
pub(super) trait Job: Send {
    /// Executes the write and keeps its result. May be called again after a rollback.
    fn run(&mut self, db: &Connection) -> Result<(), Spoiled>;

    /// Returns the size of what was written; `None` if the write was refused.
    fn written(&self) -> Option<Size>;

    fn size(&self) -> Size;

    /// Returns [`Write::adds_to`].
    fn adds_to(&self) -> Option<&SessionId>;

    /// Returns [`Write::DELETES`].
    fn deletes(&self) -> bool;

    /// Sends the caller the result, or the failure of the transaction.
    fn answer(self: Box<Self>, failure: Option<&Error>);
}

/// The channel on which the result of a write arrives.
pub(super) type Answer<T> = oneshot::Receiver<Result<T, Error>>;

/// A write with the channel for its result.
pub(super) struct Call<W: Write> {
    write: W,
    result: Option<Result<W::Output, Error>>,
    answer: oneshot::Sender<Result<W::Output, Error>>,
}

impl<W: Write> Call<W> {
    /// Returns the write as a job, and the channel on which its result arrives.
    pub(super) fn boxed(write: W) -> (Box<dyn Job>, Answer<W::Output>) {
        let (answer, result) = oneshot::channel();
        (Box::new(Self { write, result: None, answer }), result)
    }
}

impl<W: Write> Job for Call<W> {
    fn run(&mut self, db: &Connection) -> Result<(), Spoiled> {
        let (result, spoiled) = match self.write.write(db) {
            Ok(output) => (Ok(output), Ok(())),
            Err(Fault::Refused(error)) => (Err(error), Ok(())),
            Err(Fault::Undone(error)) => (Err(error), Err(Spoiled::Alone)),
            Err(Fault::Sqlite(error)) => return Err(Spoiled::Sqlite(error)),
        };
        self.result = Some(result);
        spoiled
    }

    fn written(&self) -> Option<Size> {
        matches!(self.result, Some(Ok(_))).then(|| self.write.size())
    }

    fn size(&self) -> Size {
        self.write.size()
    }

    fn adds_to(&self) -> Option<&SessionId> {
        self.write.adds_to()
    }

    fn deletes(&self) -> bool {
        W::DELETES
    }

    fn answer(self: Box<Self>, failure: Option<&Error>) {
        let result = match failure {
            Some(error) => Err(error.clone()),
            None => self.result.unwrap_or_else(|| Err(Error::Unknown("the write was not executed".into()))),
        };
        // The caller may be gone; the write is still valid.
        let _ = self.answer.send(result);
    }
}
