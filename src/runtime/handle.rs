//! A session's handle: the operations that other parts of the server may use on an open session. Its channels are
//! private.

use super::{
    cluster::Since,
    feed::{Bell, Cursor, Feed, Reader},
    live::ItemPosition,
    outbox::{Outbox, REPLIES_MAX},
};
use crate::core::{
    agent_loop::{Input, Mark, Origin, Snapshot, Tools},
    hook::HookSpec,
};
use crate::store::{Error as StoreError, LeasedSession, SessionStore, StoredRecord};
use crate::trace::{self, SpanContext};
use reseed_protocol::{
    CommandId, ConnectionId, ErrorBody, SessionId,
    command::{HostingCommand, SessionCommand},
    context::{Context, GetContext},
    session::{Host, Participant, SessionRole, Software, SubscriptionEnd},
    turn::RunningItem,
};
use std::sync::Arc;
use tokio::{
    runtime,
    sync::{
        Semaphore,
        mpsc::{self, error::TrySendError},
        oneshot,
    },
};

/// Maximum number of commands that wait in one session's mailbox. Clients wait for room, because the actor takes one
/// store commit per command.
pub(super) const MAILBOX_MAX: usize = 64;

/// Maximum number of sessions to which one connection may subscribe. Nobody has that many windows open. A connection
/// checks each of them whenever one has more.
pub(crate) const SUBSCRIPTIONS_MAX: usize = 64;

/// Maximum number of messages that wait for a connection: for each session, the replies to the commands read before one
/// is answered, and the events.
pub(crate) const OUTGOING_MAX: usize = SUBSCRIPTIONS_MAX * REPLIES_MAX / 2 + REPLIES_MAX / 2;

/// Maximum bytes of events that wait for one connection, or one event if that is larger. Each call of a `context` hook
/// carries the whole next request, so a client that does not read would otherwise hold one copy per hook.
pub(super) const EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A connection's request to join.
#[derive(Debug)]
pub struct Attach {
    /// The connection.
    pub origin: Origin,
    /// The requested role.
    pub role: SessionRole,
    /// The tools that it offers, parsed by [`check_offers`](crate::core::agent_loop::check_offers).
    pub tools: Option<Tools>,
    /// The hooks that it offers, parsed by [`check_hooks`](crate::core::hook::check_hooks).
    pub hooks: Option<Arc<[HookSpec]>>,
    /// The channel for replies, and for events for this connection only.
    pub outgoing: Outbox,
    /// The state that it shares with its other sessions.
    pub shared: ConnectionShare,
    /// Its position when it left.
    pub resume: Option<LeftOff>,
}

/// The state of a connection that all of its sessions share.
#[derive(Debug, Clone)]
pub struct ConnectionShare {
    /// Its identity.
    pub identity: Arc<Identity>,
    /// Wakes the connection when any of them has more to read.
    pub bell: Bell,
    /// Room for events that are only for this connection, in bytes.
    pub event_room: Arc<Semaphore>,
    /// True for an operator's connection: it may send every command, although it only observes. It never hosts, and
    /// starts no queued input.
    pub operates: bool,
}

impl ConnectionShare {
    /// Creates the state that a connection's sessions share.
    #[must_use]
    pub fn new(identity: Identity) -> Self {
        let event_room = Arc::new(Semaphore::new(EVENT_BYTES_MAX));
        Self { identity: Arc::new(identity), bell: Bell::default(), event_room, operates: false }
    }
}

/// The identity of a connection, as others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The server's name for the connection.
    pub connection_id: ConnectionId,
    /// The client's own name. A newer connection with the same name hosts what the older one hosted.
    pub client_id: Option<String>,
    /// The client program.
    pub software: Option<Software>,
}

/// A connection's position when it left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOff {
    /// Identifies the log that it read.
    pub epoch: String,
    /// The last durable event that it received.
    pub seq: u64,
    /// Its positions in running items.
    pub items: Vec<ItemPosition>,
}

/// The result of joining, for a connection.
#[derive(Debug)]
pub struct Attached {
    /// The state of the session.
    pub snapshot: Snapshot,
    /// The items being streamed.
    pub items: Vec<RunningItem>,
    /// Identifies the log.
    pub epoch: String,
    /// Its position in the feed.
    pub cursor: Cursor,
    /// True if it continues at its earlier position, so that it does not need the state.
    pub replay: bool,
    /// The connection that hosts the session's tools and hooks.
    pub host: Option<Host>,
    /// The connections that are subscribed to the session.
    pub presence: Vec<Participant>,
    /// The feed.
    pub feed: Reader,
}

pub(super) enum Message {
    Attach(Attach, oneshot::Sender<Result<Attached, ErrorBody>>),
    Command {
        origin: Origin,
        id: CommandId,
        command: SessionCommand,
        outgoing: Outbox,
        /// The context of a trace that it belongs to.
        context: Option<Box<SpanContext>>,
    },
    Hosting {
        origin: Origin,
        id: CommandId,
        command: HostingCommand,
        outgoing: Outbox,
    },
    Snapshot(oneshot::Sender<Snapshot>),
    /// Requests what the next request would send.
    NextRequest(GetContext, oneshot::Sender<Result<Context, ErrorBody>>),
    /// Writes the mark of a command that was executed elsewhere.
    Remember(Mark, oneshot::Sender<Result<(), ErrorBody>>),
    /// A connection has left. The actor checks whether anyone still needs the session.
    Left {
        origin: Origin,
        /// True if the connection continues and has only closed the session.
        has_closed: bool,
    },
    /// Leave memory and end all subscriptions.
    Close(SubscriptionEnd),
    Input(Input),
}

/// The sending side of a session's mailbox. It keeps the actor running.
#[derive(Debug, Clone)]
pub(super) struct Mailbox(mpsc::Sender<Box<Message>>);

/// The sending side of a mailbox for work that the session started. It does not keep the actor running.
#[derive(Debug, Clone)]
pub(super) struct WeakMailbox(mpsc::WeakSender<Box<Message>>);

impl Mailbox {
    pub(super) fn new() -> (Self, mpsc::Receiver<Box<Message>>) {
        let (sender, receiver) = mpsc::channel(MAILBOX_MAX);
        (Self(sender), receiver)
    }

    pub(super) fn downgrade(&self) -> WeakMailbox {
        WeakMailbox(self.0.downgrade())
    }

    pub(super) async fn send(&self, message: Message) -> Result<(), Gone> {
        self.0.send(Box::new(message)).await.map_err(|_| Gone)
    }

    /// Sends a message that carries the channel for its answer, and waits for the answer.
    pub(super) async fn ask<T>(&self, message: impl FnOnce(oneshot::Sender<T>) -> Message) -> Result<T, Gone> {
        let (answer, answered) = oneshot::channel();
        self.send(message(answer)).await?;
        answered.await.map_err(|_| Gone)
    }

    /// Sends a message without waiting. If the mailbox is full, the message is sent once there is room.
    pub(super) fn post(&self, message: Message) {
        if let Err(TrySendError::Full(message)) = self.0.try_send(Box::new(message))
            && let Ok(runtime) = runtime::Handle::try_current()
        {
            let mailbox = self.0.clone();
            runtime.spawn(async move { mailbox.send(message).await });
        }
    }
}

impl WeakMailbox {
    pub(super) fn upgrade(&self) -> Result<Mailbox, Gone> {
        self.0.upgrade().map(Mailbox).ok_or(Gone)
    }

    /// Passes an input to the agent loop, unless the session has left memory.
    pub(super) async fn tell(&self, input: Input) {
        if let Ok(mailbox) = self.upgrade() {
            let _ = mailbox.send(Message::Input(input)).await;
        }
    }

    /// Passes an input to the agent loop without waiting, unless the session has left memory.
    pub(super) fn post(&self, input: Input) {
        if let Ok(mailbox) = self.upgrade() {
            mailbox.post(Message::Input(input));
        }
    }

    /// Passes an input to the agent loop if the mailbox has room for it.
    pub(super) fn try_tell(&self, input: Input) {
        if let Ok(mailbox) = self.upgrade() {
            let _ = mailbox.0.try_send(Box::new(Message::Input(input)));
        }
    }
}

/// An open session. Cheap to clone. A session that has left memory answers every call with `Gone`.
#[derive(Debug, Clone)]
pub struct SessionHandle {
    /// The session.
    pub id: SessionId,
    /// The term of its lease.
    pub(super) term: u64,
    /// The epoch of its log.
    pub(super) epoch: Arc<str>,
    /// The node's standing before it opened the session; `None` outside a cluster.
    pub(super) since: Option<Since>,
    pub(super) feed: Arc<Feed>,
    pub(super) mailbox: Mailbox,
}

/// The session has left memory. Open it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the session has left memory")]
pub struct Gone;

impl SessionHandle {
    /// Joins the session.
    ///
    /// # Errors
    /// [`Gone`], or inside it the reason for a refusal: `session_damaged`.
    pub async fn attach(&self, attach: Attach) -> Result<Result<Attached, ErrorBody>, Gone> {
        self.mailbox.ask(|answer| Message::Attach(attach, answer)).await
    }

    /// Sends a command, with the task's trace context; its one reply is sent through `outgoing`.
    ///
    /// # Errors
    /// [`Gone`]: the command was not accepted.
    pub async fn command(
        &self,
        origin: Origin,
        id: CommandId,
        command: SessionCommand,
        outgoing: Outbox,
    ) -> Result<(), Gone> {
        let context = trace::current().map(Box::new);
        self.mailbox.send(Message::Command { origin, id, command, outgoing, context }).await
    }

    /// Sends a command about hosting; its one reply is sent through `outgoing`.
    ///
    /// # Errors
    /// [`Gone`]: the command was not accepted.
    pub async fn hosting(
        &self,
        origin: Origin,
        id: CommandId,
        command: HostingCommand,
        outgoing: Outbox,
    ) -> Result<(), Gone> {
        self.mailbox.send(Message::Hosting { origin, id, command, outgoing }).await
    }

    /// Returns the state of the session.
    ///
    /// # Errors
    /// [`Gone`].
    pub async fn snapshot(&self) -> Result<Snapshot, Gone> {
        self.mailbox.ask(Message::Snapshot).await
    }

    /// Reads what a subscriber has missed and the feed no longer holds; `None` if the log has been replaced. A database
    /// that lost the end of a log continues it with other records under another epoch.
    ///
    /// # Errors
    /// As [`SessionStore::read_page`].
    pub async fn missed(
        &self,
        store: &dyn SessionStore,
        after_seq: u64,
        limit: u32,
        bytes_max: usize,
    ) -> Result<Option<Vec<StoredRecord>>, StoreError> {
        let page = store.read_page(&self.id, after_seq, limit, bytes_max).await?;
        // The epoch is checked after the page is read, so that the page belongs to it.
        let is_same = store.cluster().is_none() || store.head(&self.id).await?.epoch == *self.epoch;
        Ok(is_same.then_some(page))
    }

    /// Returns what the next request would send.
    ///
    /// # Errors
    /// [`Gone`], or inside it why it cannot be shown.
    pub async fn next_request(&self, get: GetContext) -> Result<Result<Context, ErrorBody>, Gone> {
        self.mailbox.ask(|answer| Message::NextRequest(get, answer)).await
    }

    /// Writes the mark of a command that was executed elsewhere. It is durable when this returns `Ok`.
    ///
    /// # Errors
    /// [`Gone`]: the mark may have been written. The inner error is `idempotency_conflict`: another command has this
    /// id.
    pub(super) async fn remember(&self, mark: Mark) -> Result<Result<(), ErrorBody>, Gone> {
        self.mailbox.ask(|answer| Message::Remember(mark, answer)).await
    }

    /// Reports that a connection has left the session but continues. It must have released the feed.
    pub async fn leave(&self, origin: Origin) {
        let _: Result<(), Gone> = self.mailbox.send(Message::Left { origin, has_closed: true }).await;
    }

    /// Reports that a connection is gone. It must have released the feed.
    pub fn left(&self, origin: Origin) {
        // The actor must receive this even if its mailbox is full, because it may be waiting for hooks of that
        // connection.
        self.mailbox.post(Message::Left { origin, has_closed: false });
    }

    /// Returns the session's lease and how far its log reaches.
    pub(super) fn leased(&self) -> LeasedSession {
        LeasedSession {
            session: self.id.clone(),
            epoch: self.epoch.to_string(),
            term: self.term,
            last_seq: self.feed.seq(),
        }
    }

    /// Closes the session for this reason, and waits until its actor has ended.
    pub(super) async fn close(&self, reason: SubscriptionEnd) {
        if self.mailbox.send(Message::Close(reason)).await.is_ok() {
            self.mailbox.0.closed().await;
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.mailbox.0.is_closed()
    }
}
