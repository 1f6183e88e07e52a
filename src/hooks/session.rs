//! A Rust hook's access to the session for which it is called. It can read the session's state, add to its history, and
//! request a compaction.
//!
//! Invariant: nothing here waits for the hook's own answer, so a hook may await all of these while it runs. Text for
//! the model that is added during a turn is sent with its next request.

use crate::core::agent_loop::Snapshot;
use reseed_protocol::{
    Entry, EntryId, ErrorBody, ErrorCode, JobId,
    command::SessionCommand,
    compaction::StartCompaction,
    context::{Context, GetContext},
    reply::{Done, Reply},
    tree::{AppendCustom, AppendCustomMessage},
};
use std::{fmt, future::Future, pin::Pin, sync::Arc};

/// The future that [`Access`] methods return.
pub type AccessFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ErrorBody>> + Send + 'a>>;

/// A [`Session`]'s access to the actual session.
pub trait Access: Send + Sync {
    /// Executes a command and returns its reply.
    fn command(&self, command: SessionCommand) -> AccessFuture<'_, Reply>;

    /// Returns the session's current state.
    fn now(&self) -> AccessFuture<'_, Snapshot>;

    /// Returns what the next request would send.
    fn context(&self, get: GetContext) -> AccessFuture<'_, Context>;

    /// Returns an entry and its ancestors, newest first, at most `limit` entries in all.
    fn path(&self, from: EntryId, limit: u32) -> AccessFuture<'_, Vec<Entry>>;
}

/// The session for which a hook is called. It is cheap to clone, and valid while the session is in memory. Afterwards,
/// every method returns `session_not_found`.
#[derive(Clone)]
pub struct Session(Arc<dyn Access>);

impl Session {
    /// Wraps access to a session.
    #[must_use]
    pub fn new(access: Arc<dyn Access>) -> Self {
        Self(access)
    }

    /// Returns the session's state: model, strategy, settings, context size, running turn and queue.
    ///
    /// # Errors
    /// `session_not_found` if it has left memory.
    pub async fn now(&self) -> Result<Snapshot, ErrorBody> {
        self.0.now().await
    }

    /// Returns what the next request would send.
    ///
    /// # Errors
    /// The reason why it cannot be shown.
    pub async fn context(&self, get: GetContext) -> Result<Context, ErrorBody> {
        self.0.context(get).await
    }

    /// Returns an entry and its ancestors, newest first. `limit` is capped at 500. Entries that compactions have
    /// replaced are included.
    ///
    /// # Errors
    /// The store's errors.
    pub async fn path(&self, from: EntryId, limit: u32) -> Result<Vec<Entry>, ErrorBody> {
        self.0.path(from, limit.clamp(1, 500)).await
    }

    /// Stores data in the history that the model never sees.
    ///
    /// # Errors
    /// The data is invalid, or could not be written.
    pub async fn append_custom(&self, custom: AppendCustom) -> Result<EntryId, ErrorBody> {
        self.written(SessionCommand::AppendCustom(custom)).await
    }

    /// Adds a message for the model in the user's role, without requesting an answer. It is added at once if the
    /// session is idle, and otherwise with the next request. Its `details` are for programs.
    ///
    /// # Errors
    /// The message is invalid, or could not be written.
    pub async fn append_message(&self, message: AppendCustomMessage) -> Result<EntryId, ErrorBody> {
        self.written(SessionCommand::AppendCustomMessage(message)).await
    }

    /// Requests a compaction. Returns its job once it has started or waits for a point between two requests. An event
    /// reports its outcome.
    ///
    /// # Errors
    /// `nothing_to_compact`, `compaction_running`, or the reason why the request is invalid.
    pub async fn compact(&self, order: StartCompaction) -> Result<Option<JobId>, ErrorBody> {
        self.done(SessionCommand::StartCompaction(order)).await.map(|done| done.job_id)
    }

    async fn written(&self, command: SessionCommand) -> Result<EntryId, ErrorBody> {
        let done = self.done(command).await?;
        done.entry_id.ok_or_else(|| ErrorBody::new(ErrorCode::Internal, "the reply to an append has no entry id"))
    }

    async fn done(&self, command: SessionCommand) -> Result<Done, ErrorBody> {
        match self.0.command(command).await? {
            Reply::Ok(done) => Ok(done),
            Reply::Error(error) => Err(error),
            _ => Err(ErrorBody::new(ErrorCode::Internal, "unexpected reply to a hook's command")),
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Session")
    }
}
