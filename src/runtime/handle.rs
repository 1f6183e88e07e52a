//! A session's handle: what the rest of the server may ask of an open session. Its channels stay private.

use super::feed::{Cursor, Reader, Seen};
use crate::core::agent_loop::{Mark, Origin, Snapshot};
use reseed_protocol::{
    CloseCode, CommandId, ErrorBody, ErrorCode, SessionId,
    command::{Command, GetContext, SessionRole, ToolOffer},
    hook::HookOffer,
    reply::{Context, Reply, RunningItem},
};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

/// Commands that may wait in one session's mailbox. Its clients wait for room: the actor empties it within a store
/// commit for each.
pub(super) const MAILBOX_MAX: usize = 64;

/// Replies and events that may wait for one connection. A connection stops reading commands at half as many unanswered
/// ones, and events leave that half to the replies.
pub const REPLIES_MAX: usize = 64;

/// What a session sends one connection besides its feed.
#[derive(Debug)]
pub enum Outgoing {
    /// The answer to a command of its own.
    Reply(CommandId, Box<Reply>),
    /// An ephemeral event that is for it alone.
    Event(Box<Private>),
    /// It is no longer the owner: close the socket so.
    Close(CloseCode),
}

/// An ephemeral event for one connection.
#[derive(Debug)]
pub struct Private {
    /// Of which session it tells: whoever has left that by now is not told.
    pub session: SessionId,
    /// Its whole frame.
    pub frame: String,
    /// The room that it takes of what may wait for the connection, given back when it is written or dropped.
    pub(super) _room: OwnedSemaphorePermit,
}

/// A connection's wish to join.
#[derive(Debug)]
pub struct Attach {
    /// The connection.
    pub origin: Origin,
    /// Owner or observer.
    pub role: SessionRole,
    /// Whether to take the session from its owner.
    pub takeover: bool,
    /// The client's own name for itself; the same one replaces itself.
    pub client_id: Option<String>,
    /// The tools it offers.
    pub tools: Option<Vec<ToolOffer>>,
    /// The hooks it offers.
    pub hooks: Option<Vec<HookOffer>>,
    /// Where replies and closings go.
    pub outgoing: mpsc::Sender<Outgoing>,
    /// Where it left off.
    pub resume: Option<LeftOff>,
}

/// Where a connection left off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOff {
    /// Names the log that it read.
    pub epoch: String,
    /// The last durable event it was given.
    pub seq: u64,
    /// What it has seen of running items.
    pub items: Vec<Seen>,
}

/// What a connection gets when it has joined.
#[derive(Debug)]
pub struct Attached {
    /// Where the session stands.
    pub snapshot: Snapshot,
    /// What is being streamed.
    pub items: Vec<RunningItem>,
    /// Names the log.
    pub epoch: String,
    /// From where it reads the feed.
    pub cursor: Cursor,
    /// Whether the cursor is where it left off, so that it needs no state.
    pub replay: bool,
    /// What it reads.
    pub feed: Reader,
}

pub(super) enum Message {
    Attach(Attach, oneshot::Sender<Result<Attached, ErrorBody>>),
    Command {
        origin: Origin,
        id: CommandId,
        command: Command,
        outgoing: mpsc::Sender<Outgoing>,
    },
    Snapshot(oneshot::Sender<Snapshot>),
    /// What the next request would send.
    NextRequest(GetContext, oneshot::Sender<Result<Context, ErrorBody>>),
    /// Write the mark of a command that was carried out elsewhere.
    Remember(Mark, oneshot::Sender<Result<(), ErrorBody>>),
    /// A connection has left: look whether anyone still needs this session.
    Left(Origin),
    /// Leave memory and close whoever is here.
    Close(CloseCode),
    Input(crate::core::agent_loop::Input),
}

/// An open session. Cheap to clone; a closed session answers every call with [`Gone`].
#[derive(Debug, Clone)]
pub struct SessionHandle {
    /// The session.
    pub id: SessionId,
    pub(super) mailbox: mpsc::Sender<Box<Message>>,
}

/// The session has left memory: open it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the session has left memory")]
pub struct Gone;

impl SessionHandle {
    /// Joins.
    ///
    /// # Errors
    /// [`Gone`], or inside it the reason for a refusal: `session_owned`, `invalid_tools`, `invalid_hooks`.
    pub async fn attach(&self, attach: Attach) -> Result<Result<Attached, ErrorBody>, Gone> {
        let (answer, answered) = oneshot::channel();
        self.send(Message::Attach(attach, answer)).await?;
        answered.await.map_err(|_| Gone)
    }

    /// Hands over a command; its one reply comes through `outgoing`.
    ///
    /// # Errors
    /// [`Gone`]: it was not taken.
    pub async fn command(
        &self,
        origin: Origin,
        id: CommandId,
        command: Command,
        outgoing: mpsc::Sender<Outgoing>,
    ) -> Result<(), Gone> {
        self.send(Message::Command { origin, id, command, outgoing }).await
    }

    /// Where the session stands.
    ///
    /// # Errors
    /// [`Gone`].
    pub async fn snapshot(&self) -> Result<Snapshot, Gone> {
        let (answer, answered) = oneshot::channel();
        self.send(Message::Snapshot(answer)).await?;
        answered.await.map_err(|_| Gone)
    }

    /// What the next request would send.
    ///
    /// # Errors
    /// [`Gone`], or inside it why it cannot be shown.
    pub async fn next_request(&self, get: GetContext) -> Result<Result<Context, ErrorBody>, Gone> {
        let (answer, answered) = oneshot::channel();
        self.send(Message::NextRequest(get, answer)).await?;
        answered.await.map_err(|_| Gone)
    }

    /// Writes the mark of a command that was carried out elsewhere. Durable when `Ok`.
    ///
    /// # Errors
    /// [`Gone`]: perhaps it was written; or inside it `idempotency_conflict`: another command has this id.
    pub(super) async fn remember(&self, mark: Mark) -> Result<Result<(), ErrorBody>, Gone> {
        let (answer, answered) = oneshot::channel();
        self.send(Message::Remember(mark, answer)).await?;
        answered.await.map_err(|_| Gone)
    }

    /// Says that a connection has left the session and lives on. It must have let go of the feed.
    pub async fn leave(&self, origin: Origin) {
        let _: Result<(), Gone> = self.send(Message::Left(origin)).await;
    }

    /// Says that a connection is gone. It must have let go of the feed.
    pub fn left(&self, origin: Origin) {
        let sent = self.mailbox.try_send(Box::new(Message::Left(origin)));
        // The actor must hear it, also behind a full mailbox: hooks of that connection are waited for.
        if let Err(mpsc::error::TrySendError::Full(message)) = sent
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let mailbox = self.mailbox.clone();
            runtime.spawn(async move { mailbox.send(message).await });
        }
    }

    pub(super) async fn send(&self, message: Message) -> Result<(), Gone> {
        self.mailbox.send(Box::new(message)).await.map_err(|_| Gone)
    }

    pub(super) fn is_gone(&self) -> bool {
        self.mailbox.is_closed()
    }
}

/// What is told of anything that a server which stops does not begin any more.
pub(super) fn stopping() -> ErrorBody {
    ErrorBody::new(ErrorCode::ShuttingDown, "the server is stopping; reconnect and resume")
}

pub(super) fn conflict(id: &CommandId) -> ErrorBody {
    let message = format!("the id `{id}` was used before with other content; use a new one");
    ErrorBody::new(ErrorCode::IdempotencyConflict, message).with_field("id")
}

pub(super) fn owned_error() -> ErrorBody {
    ErrorBody::new(
        ErrorCode::SessionOwned,
        "another connection owns this session; join as observer, or send takeover: true",
    )
}
