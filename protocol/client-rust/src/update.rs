//! The updates that a client delivers to its program.

use crate::ending::Lost;
use reseed_protocol::{
    CommandId, ErrorBody, SessionId,
    event::{EphemeralEvent, Event},
    reply::Reply,
    session::{SessionItem, SessionOpened, Welcome},
};
use std::time::Duration;

/// A handle to a session of this client. It exists before the server has given the session an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session(pub(crate) u64);

/// The target of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum To {
    /// No session.
    Server,
    /// A session of this client. The command waits until the session is open, if it needs that.
    Session(Session),
    /// Any session, by its id. This is for commands that need no subscription.
    Id(SessionId),
}

impl From<Session> for To {
    fn from(session: Session) -> Self {
        Self::Session(session)
    }
}

impl From<SessionId> for To {
    fn from(session: SessionId) -> Self {
        Self::Id(session)
    }
}

/// An update: something that happened on the connection or in a session.
#[derive(Debug, Clone, PartialEq)]
pub enum Update {
    /// The client connected, for the first time or again.
    Connected(Box<Welcome>),
    /// The connection is lost. The next attempt is made after this wait. Sessions continue where they were.
    Disconnected {
        /// The reason.
        lost: Lost,
        /// True if there was a connection; false if the server was not reached.
        reached: bool,
        /// The wait.
        retry_after: Duration,
    },
    /// The connection ended for good. Nothing follows.
    Stopped(Stop),
    /// A session is open, for the first time or again. Its snapshot is up to date, unless missed events follow
    /// (`resumed` is `replay`).
    Opened {
        /// The session.
        session: Session,
        /// The server's reply.
        opened: Box<SessionOpened>,
    },
    /// The server temporarily refused to open a session, or ended its subscription. The next attempt is made after this
    /// wait. Sent for each attempt.
    Retrying {
        /// The session.
        session: Session,
        /// The server's error, if it sent one.
        error: Option<ErrorBody>,
        /// The wait.
        retry_after: Duration,
    },
    /// An event of a session, which its snapshot now contains.
    Event {
        /// The session.
        session: Session,
        /// The event.
        event: SessionEvent,
    },
    /// A command got its reply, or will get none. Sent exactly once for each command.
    Reply {
        /// The command.
        id: CommandId,
        /// The reply, or the reason why there is none.
        result: Result<Reply, Unanswered>,
    },
    /// The subscription to a session ended, and opening it again will not help. Its last snapshot stays until the
    /// session is closed.
    Ended {
        /// The session.
        session: Session,
        /// The reason.
        why: SessionEnd,
    },
    /// A session in the list has changed (`list_sessions` with `watch`).
    Listed(SessionItem),
}

impl Update {
    /// Returns the name of the update's kind.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Connected(_) => "Connected",
            Self::Disconnected { .. } => "Disconnected",
            Self::Stopped(_) => "Stopped",
            Self::Opened { .. } => "Opened",
            Self::Retrying { .. } => "Retrying",
            Self::Event { .. } => "Event",
            Self::Reply { .. } => "Reply",
            Self::Ended { .. } => "Ended",
            Self::Listed(_) => "Listed",
        }
    }

    /// Returns true for an event that a later one repeats or replaces, such as a delta.
    pub(crate) fn is_transient(&self) -> bool {
        use EphemeralEvent::{
            CallProgressed, CompactionProgress, ContextUpdated, ItemDelta, ItemFinished, ItemStarted, PresenceChanged,
            RequestDelayed,
        };
        let Self::Event { event: SessionEvent::Ephemeral(event), .. } = self else { return false };
        matches!(
            event,
            ItemStarted(_)
                | ItemDelta(_)
                | ItemFinished(_)
                | CallProgressed(_)
                | CompactionProgress(_)
                | ContextUpdated(_)
                | PresenceChanged(_)
                | RequestDelayed(_)
        )
    }

    /// Returns true for an event whose effect is in the snapshot. Events for the host are not, so they must not be
    /// lost.
    pub(crate) fn is_in_snapshot(&self) -> bool {
        self.is_transient() || matches!(self, Self::Event { event: SessionEvent::Durable(..), .. })
    }
}

/// An event of a session.
#[derive(Debug, Clone, PartialEq)]
pub enum SessionEvent {
    /// A durable event with its `seq`.
    Durable(u64, Event),
    /// An ephemeral event.
    Ephemeral(EphemeralEvent),
}

/// The reason why a connection ended for good.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Stop {
    /// This client was closed.
    #[error("the client was closed")]
    Closed,
    /// The server refused the credentials, including renewed ones.
    #[error("{0}")]
    Credentials(String),
    /// The server refused `hello`.
    #[error("{}", .0.message)]
    Refused(ErrorBody),
    /// The connection ended in a way that a new one would not fix.
    #[error("{0}")]
    Lost(Lost),
}

/// The reason why a session ended.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SessionEnd {
    /// The server refused to open it.
    #[error("{}", .0.message)]
    Refused(ErrorBody),
    /// It was deleted.
    #[error("the session was deleted")]
    Deleted,
    /// Another handle of this client has the same session, which continues.
    #[error("the session is open under another handle of this client; `Client::find` returns it")]
    OpenAlready,
    /// The command that opens it is larger than the server accepts, mostly because of its tools.
    #[error("opening the session takes {bytes} bytes, the server accepts {bytes_max}; offer less")]
    TooLarge {
        /// The size in bytes.
        bytes: usize,
        /// The server's limit.
        bytes_max: u64,
    },
    /// This version cannot read the server's description of it.
    #[error("this version of the client cannot read what the server says of the session")]
    Unreadable,
}

/// The reason why a command has no reply, or was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Unanswered {
    /// The server refused it, and nothing was changed. There is one exception: a writing command with `store_failed` or
    /// `shutting_down` may have been stored. The client has sent it again several times and got no other answer.
    #[error("{}", .0.message)]
    Refused(ErrorBody),
    /// The connection was lost before the reply, and the command is not one that can be sent again safely.
    #[error("the connection was lost before the reply")]
    Lost,
    /// It is larger than the server accepts.
    #[error("{name} has {bytes} bytes, the server accepts {bytes_max}; send less")]
    TooLarge {
        /// The command.
        name: &'static str,
        /// Its size in bytes.
        bytes: usize,
        /// The server's limit.
        bytes_max: u64,
    },
    /// Its session was closed, or ended.
    #[error("the session was closed before the reply")]
    SessionClosed,
    /// The client stopped.
    #[error("{0}")]
    Stopped(Stop),
}

/// The reason why a command was not accepted for sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// The client sends this command by itself.
    #[error("the client sends `{0}` by itself; use its own methods: `open`, `close_session`")]
    Own(&'static str),
    /// Too many updates wait, because the program does not take them with `next`.
    #[error("{0} updates wait to be taken; take them with `next`")]
    Unpolled(usize),
    /// Too many commands wait for their reply.
    #[error("{0} commands wait for a reply already; wait for some of them")]
    Commands(usize),
    /// The waiting commands have too many bytes.
    #[error("{0} bytes wait for a reply already; wait for some of them")]
    Bytes(usize),
}
