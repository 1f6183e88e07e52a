//! What a client tells its user.

use crate::ending::Lost;
use reseed_protocol::{
    CommandId, ErrorBody, SessionId,
    event::{EphemeralEvent, Event},
    reply::{Reply, SessionItem, SessionOpened, Welcome},
};
use std::time::Duration;

/// A session of this client, also before the server has given it an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session(pub(crate) u64);

/// What a command is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum To {
    /// No session.
    Server,
    /// A session of this client. The command waits until it is open, if it needs that.
    Session(Session),
    /// Any session, by its id, for commands that need no subscription.
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

/// Something has happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Update {
    /// A connection is there, the first one or another.
    Connected(Box<Welcome>),
    /// The connection is lost; the next attempt is made after this wait. Sessions continue where they were.
    Disconnected {
        /// Why.
        lost: Lost,
        /// True if there was a connection. Otherwise nobody was reached.
        reached: bool,
        /// The wait.
        retry_after: Duration,
    },
    /// The connection ended for good. Nothing follows.
    Stopped(Stop),
    /// A session is open, for the first time or again: its snapshot is up to date, unless events that were missed
    /// follow (`resumed` is `replay`).
    Opened {
        /// The session.
        session: Session,
        /// What the server said.
        opened: Box<SessionOpened>,
    },
    /// The server refused to open a session for now, or ended its subscription: the next attempt is made after this
    /// wait. It is told each time.
    Retrying {
        /// The session.
        session: Session,
        /// The server's error, if it named one.
        error: Option<ErrorBody>,
        /// The wait.
        retry_after: Duration,
    },
    /// An event of a session, which its snapshot has now.
    Event {
        /// The session.
        session: Session,
        /// The event.
        event: SessionEvent,
    },
    /// A command has its reply, or will have none. Each command is told of once.
    Reply {
        /// The command.
        id: CommandId,
        /// Its reply, or why there is none.
        result: Result<Reply, Unanswered>,
    },
    /// The subscription to a session ended, and opening it again will not help. Its last snapshot stays until it is
    /// closed.
    Ended {
        /// The session.
        session: Session,
        /// Why.
        why: SessionEnd,
    },
    /// A session in the list has changed (`list_sessions` with `watch`).
    Listed(SessionItem),
}

impl Update {
    /// Returns the name of its kind.
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

    /// Returns true for a piece of what will be told whole, or a state that another one follows.
    pub(crate) fn is_transient(&self) -> bool {
        use EphemeralEvent::{
            CallProgressed, CompactionProgress, ContextUpdated, ItemDelta, ItemFinished, ItemStarted, PresenceChanged,
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
        )
    }

    /// Returns true for an event that a session's snapshot has. Those for the host are in none: nobody tells them
    /// again.
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

/// Why a connection ended for good.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Stop {
    /// This client was closed.
    #[error("the client was closed")]
    Closed,
    /// The server refused the credentials, and renewed ones too.
    #[error("{0}")]
    Credentials(String),
    /// The server refused `hello`.
    #[error("{}", .0.message)]
    Refused(ErrorBody),
    /// The connection ended so that another one would not be better.
    #[error("{0}")]
    Lost(Lost),
}

/// Why a session ended.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SessionEnd {
    /// The server refused to open it.
    #[error("{}", .0.message)]
    Refused(ErrorBody),
    /// It was deleted.
    #[error("the session was deleted")]
    Deleted,
    /// It is the same session as another one of this client, which goes on.
    #[error("the session is open under another handle of this client; `Client::find` returns it")]
    OpenAlready,
    /// What it is opened with, its tools above all, has more bytes than the server accepts.
    #[error("opening the session takes {bytes} bytes, the server accepts {bytes_max}; offer less")]
    TooLarge {
        /// The bytes.
        bytes: usize,
        /// The server's limit.
        bytes_max: u64,
    },
    /// This version cannot read what the server said of it.
    #[error("this version of the client cannot read what the server says of the session")]
    Unreadable,
}

/// Why a command has no reply, or was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Unanswered {
    /// The server refused it; nothing was changed.
    #[error("{}", .0.message)]
    Refused(ErrorBody),
    /// The connection was lost before the reply, and the command is not one that can be sent again safely.
    #[error("the connection was lost before the reply")]
    Lost,
    /// It has more bytes than the server accepts.
    #[error("{name} has {bytes} bytes, the server accepts {bytes_max}; send less")]
    TooLarge {
        /// The command.
        name: &'static str,
        /// Its bytes.
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

/// Why a command was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// The client gives this command by itself.
    #[error("the client sends `{0}` by itself; use its own methods: `open`, `close_session`")]
    Own(&'static str),
    /// Nobody looks at what became of earlier commands.
    #[error("{0} updates wait to be taken; take them with `next`")]
    Unpolled(usize),
    /// Too many wait for their reply.
    #[error("{0} commands wait for a reply already; wait for some of them")]
    Commands(usize),
    /// What waits has too many bytes.
    #[error("{0} bytes wait for a reply already; wait for some of them")]
    Bytes(usize),
}
