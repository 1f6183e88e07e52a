//! What a hook in Rust may do with the session that it is asked about: read where it stands, add to its history, ask for a
//! compaction.
//!
//! Invariant: nothing here waits for the hook's own answer, so a hook may await each of these while it is asked. What is
//! told to the model during a turn goes along with its next request.

use crate::core::agent_loop::Snapshot;
use reseed_protocol::{
    Entry, EntryId, ErrorBody, ErrorCode, JobId,
    command::{AppendCustom, AppendCustomMessage, Command, GetContext, ManualCompact},
    reply::{Context, Done, Reply},
};
use std::{fmt, future::Future, pin::Pin, sync::Arc};

/// What [`Access`] returns.
pub type AccessFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ErrorBody>> + Send + 'a>>;

/// How a [`Session`] reaches the one that it stands for.
pub trait Access: Send + Sync {
    /// Has a command carried out, and returns its reply.
    fn command(&self, command: Command) -> AccessFuture<'_, Reply>;

    /// Where the session stands.
    fn now(&self) -> AccessFuture<'_, Snapshot>;

    /// What the next request would send.
    fn context(&self, get: GetContext) -> AccessFuture<'_, Context>;

    /// An entry and so many of those above it, newest first.
    fn path(&self, from: EntryId, limit: u32) -> AccessFuture<'_, Vec<Entry>>;
}

/// The session that a hook is asked about. Cheap to clone, and good for as long as the session is in memory: afterwards
/// everything is answered `session_not_found`.
#[derive(Clone)]
pub struct Session(Arc<dyn Access>);

impl Session {
    /// A session that is reached so.
    #[must_use]
    pub fn new(access: Arc<dyn Access>) -> Self {
        Self(access)
    }

    /// Where the session stands: its model, strategy and settings, its context's size, its running turn, what waits.
    ///
    /// # Errors
    /// `session_not_found`: it has left memory.
    pub async fn now(&self) -> Result<Snapshot, ErrorBody> {
        self.0.now().await
    }

    /// What the next request would send.
    ///
    /// # Errors
    /// Why it cannot be shown.
    pub async fn context(&self, get: GetContext) -> Result<Context, ErrorBody> {
        self.0.context(get).await
    }

    /// An entry and those above it, newest first: at most `limit`, which is at most 500. What compactions have taken out
    /// of the model's sight is there too.
    ///
    /// # Errors
    /// The store's.
    pub async fn path(&self, from: EntryId, limit: u32) -> Result<Vec<Entry>, ErrorBody> {
        self.0.path(from, limit.clamp(1, 500)).await
    }

    /// Keeps data in the history that the model never sees.
    ///
    /// # Errors
    /// What is not allowed about it, or that it could not be written.
    pub async fn append_custom(&self, custom: AppendCustom) -> Result<EntryId, ErrorBody> {
        self.written(Command::AppendCustom(custom)).await
    }

    /// Tells the model something in the user's place, without asking for an answer: at once where the session is idle,
    /// else with the next request. Its `details` are for programs.
    ///
    /// # Errors
    /// What is not allowed about it, or that it could not be written.
    pub async fn append_message(&self, message: AppendCustomMessage) -> Result<EntryId, ErrorBody> {
        self.written(Command::AppendCustomMessage(message)).await
    }

    /// Asks for a compaction, and returns its job once it is begun or waits for a place between two requests. What comes of
    /// it is an event.
    ///
    /// # Errors
    /// `nothing_to_compact`, `compaction_running`, and what is not allowed about the order.
    pub async fn compact(&self, order: ManualCompact) -> Result<Option<JobId>, ErrorBody> {
        self.done(Command::ManualCompact(order)).await.map(|done| done.job_id)
    }

    async fn written(&self, command: Command) -> Result<EntryId, ErrorBody> {
        let done = self.done(command).await?;
        done.entry_id.ok_or_else(|| ErrorBody::new(ErrorCode::Internal, "an entry was written without an id"))
    }

    async fn done(&self, command: Command) -> Result<Done, ErrorBody> {
        match self.0.command(command).await? {
            Reply::Ok(done) => Ok(done),
            Reply::Error(error) => Err(error),
            _ => Err(ErrorBody::new(ErrorCode::Internal, "a command of a hook was answered with another reply")),
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Session")
    }
}
