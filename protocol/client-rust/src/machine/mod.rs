//! The client as a state machine without I/O. It takes events with their time, and returns what to do.
//!
//! Invariants:
//! - Each command has one outcome, in [`Update::Reply`], whatever happens to the connection.
//! - Command ids are unique to this client, even if its identity was used before.
//! - Events of a session are delivered in order and once, between its [`Update::Opened`] and the end of that
//!   subscription.
//! - A gap is closed by opening the session again with `resume`, never by guessing.
//! - What waits for a connection is bounded, and nothing is sent before `welcome`.
//!
//! After each call, drain [`Machine::poll`]. Call [`Machine::tick`] when [`Machine::deadline`] is reached.

mod commands;
mod connection;
mod sessions;
#[cfg(test)]
mod tests;

use self::connection::{CONNECT, Greeted};
use crate::{
    fold::Snapshot,
    incoming::{Body, Incoming},
    outbox::Outbox,
    subscription::{Opening, Phase as Subscribed, Subscription},
    update::{Session, Stop, Update},
};
use reseed_protocol::{
    CommandId, SessionId,
    command::{Command, Empty},
    event::EphemeralEvent,
    ids::check_id,
    session::Software,
};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    time::Instant,
};

/// Maximum number of outputs that wait to be polled before further commands are refused. This bounds a program that
/// sends commands and never polls.
const UNPOLLED_MAX: usize = 4 * 1024;

/// The identity of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Identifies one program across its reconnects, and differs from all others: 1 to 64 characters. A newer
    /// connection with the same id takes over the role of host.
    pub client_id: String,
    /// The program's name and version, for the server's operator.
    pub software: Option<Software>,
}

/// The credentials for one connection.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Credentials {
    /// No credentials, because the server requires none.
    #[default]
    None,
    /// A token of `AUTH_TOKENS`.
    Token(String),
    /// A one-time ticket.
    Ticket(String),
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Token(_) => "Token(…)",
            Self::Ticket(_) => "Ticket(…)",
        })
    }
}

/// An output: an action for the driver.
#[derive(PartialEq)]
pub enum Output {
    /// Connect, then call [`Machine::connected`] or [`Machine::lost`].
    Dial,
    /// Ask for new credentials, then call [`Machine::renew`]. If there are none, do nothing.
    Renew,
    /// Send this frame.
    Send(String),
    /// Close the socket, once it has sent everything before this.
    HangUp,
    /// Pass this update to the program.
    Tell(Update),
}

impl std::fmt::Debug for Output {
    /// Omits frames and the content of updates, which may contain tokens or message text.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Dial => f.write_str("Dial"),
            Self::Renew => f.write_str("Renew"),
            Self::Send(frame) => write!(f, "Send({} bytes)", frame.len()),
            Self::HangUp => f.write_str("HangUp"),
            Self::Tell(update) => write!(f, "Tell({})", update.name()),
        }
    }
}

#[derive(Debug)]
enum Phase {
    /// No connection has been requested yet.
    Idle,
    Dialing {
        since: Instant,
    },
    Greeting {
        since: Instant,
        hello: CommandId,
    },
    Open(Box<Greeted>),
    Waiting {
        until: Instant,
    },
    Stopped(Stop),
}

/// A client. See the top of this file.
pub struct Machine {
    identity: Identity,
    phase: Phase,
    outbox: Outbox,
    sessions: BTreeMap<Session, Subscription>,
    by_id: HashMap<SessionId, Session>,
    out: VecDeque<Output>,
    random: fastrand::Rng,
    /// The prefix of command ids. It differs from the client's id, because a program may reuse that in its next run,
    /// and the server would take the first commands of that run for repeated ones.
    command_prefix: String,
    ids: u64,
    keys: u64,
    failures: u32,
    /// True if the credentials cannot be renewed, or were renewed since a connection lasted.
    renewed: bool,
    renews: bool,
}

impl Machine {
    /// Creates a client that is not connected. `random` spreads its reconnect attempts.
    #[must_use]
    pub fn new(identity: Identity, mut random: fastrand::Rng) -> Self {
        Self {
            command_prefix: format!("{:016x}", random.u64(..)),
            identity,
            phase: Phase::Idle,
            outbox: Outbox::default(),
            sessions: BTreeMap::new(),
            by_id: HashMap::new(),
            out: VecDeque::new(),
            random,
            ids: 0,
            keys: 0,
            failures: 0,
            renewed: false,
            renews: true,
        }
    }

    /// Sets the prefix of command ids, which is otherwise generated. No other client and no other run of this program
    /// may use it.
    ///
    /// # Panics
    /// The prefix does not consist of 16 to 40 letters, digits and `._:-`, which the id of a writing command requires.
    #[must_use]
    pub fn with_command_prefix(self, prefix: impl Into<String>) -> Self {
        let command_prefix = prefix.into();
        let begins_ids = (16..=40).contains(&command_prefix.len()) && check_id(&command_prefix).is_ok();
        assert!(
            begins_ids,
            "the ids of commands begin with 16 to 40 letters, digits and `._:-`, not `{command_prefix}`"
        );
        Self { command_prefix, ..self }
    }

    /// Stops when its credentials are refused. They never change, so asking for them again would not help.
    #[must_use]
    pub fn with_fixed_credentials(self) -> Self {
        Self { renewed: true, renews: false, ..self }
    }

    /// Returns the next output.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// Returns when to call [`Self::tick`] if nothing happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let connection = match &self.phase {
            Phase::Idle | Phase::Stopped(_) => return None,
            Phase::Dialing { since } | Phase::Greeting { since, .. } => *since + CONNECT,
            Phase::Waiting { until } => *until,
            Phase::Open(greeted) => greeted.deadline(),
        };
        let retries = self.sessions.values().filter_map(|session| match session.phase {
            Subscribed::Retrying(at) if matches!(self.phase, Phase::Open(_)) => Some(at),
            _ => None,
        });
        retries.chain(self.outbox.deadline()).chain([connection]).min()
    }

    // Requests by the user

    /// Connects now: for the first time, after the client has stopped, or while it waits for its next attempt.
    pub fn connect(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Stopped(_)) {
            self.forgive();
        }
        if matches!(self.phase, Phase::Idle | Phase::Stopped(_) | Phase::Waiting { .. }) {
            self.dial(now);
        }
    }

    /// Ends the connection. Before that, ends each subscription, so that the server need not wait for this client.
    /// Running turns continue.
    pub fn close(&mut self) {
        if matches!(self.phase, Phase::Stopped(_)) {
            return;
        }
        let open = |known: &&Subscription| matches!(known.phase, Subscribed::Open | Subscribed::Opening(_));
        let ids: Vec<_> = self.sessions.values().filter(open).filter_map(|known| known.id.clone()).collect();
        for id in ids {
            self.send_now(Some(&id), &Command::CloseSession(Empty {}));
        }
        self.hang_up();
        self.stopped(Stop::Closed);
    }

    /// Opens a session, now and on every later connection. `None` creates a session, only once even if the connection
    /// is lost meanwhile. A session that this client already has open stays unchanged.
    pub fn open(&mut self, session: Option<SessionId>, opening: Opening) -> Session {
        if let Some(key) = session.as_ref().and_then(|id| self.find(id)) {
            if self.sessions[&key].phase != Subscribed::Ended {
                return key;
            }
            self.forget(key);
        }
        let creates = session.is_none().then(|| self.new_id());
        self.subscribe(session, creates, opening)
    }

    /// Opens the session that this command has created for this user, now and on every later connection. If there is
    /// none, creates it. The command's id, of 16 to 64 characters, is thus a durable name of the session.
    pub fn open_once(&mut self, command: CommandId, opening: Opening) -> Session {
        self.subscribe(None, Some(command), opening)
    }

    fn subscribe(&mut self, session: Option<SessionId>, creates: Option<CommandId>, opening: Opening) -> Session {
        self.keys += 1;
        let key = Session(self.keys);
        if let Some(id) = &session {
            self.by_id.insert(id.clone(), key);
        }
        self.sessions.insert(key, Subscription::new(session, creates, opening));
        self.send_open(key);
        key
    }

    /// Ends the subscription to a session. A running turn continues. Commands that need the subscription get no reply.
    pub fn close_session(&mut self, session: Session) {
        let Some(known) = self.sessions.get_mut(&session) else { return };
        match (&known.phase, known.id.clone()) {
            // The pending reply names the session that must be closed.
            (Subscribed::Leaving(_), _) => {}
            (Subscribed::Opening(command), None) => {
                known.phase = Subscribed::Leaving(command.clone());
                self.fail_session(session);
            }
            (Subscribed::Open | Subscribed::Opening(_), Some(id)) => {
                self.send_now(Some(&id), &Command::CloseSession(Empty {}));
                self.forget(session);
            }
            _ => self.forget(session),
        }
    }

    // Queries by the user

    /// Returns the state of a session; `None` before it was first opened, and after it was closed.
    #[must_use]
    pub fn snapshot(&self, session: Session) -> Option<&Snapshot> {
        self.sessions.get(&session)?.snapshot.as_ref()
    }

    /// Returns the state of a session for changes that are not events, such as a page of older entries.
    pub fn snapshot_mut(&mut self, session: Session) -> Option<&mut Snapshot> {
        self.sessions.get_mut(&session)?.snapshot.as_mut()
    }

    /// Returns a session's id; `None` until the server has given it one, and after it was closed.
    #[must_use]
    pub fn session_id(&self, session: Session) -> Option<&SessionId> {
        self.sessions.get(&session)?.id.as_ref()
    }

    /// Returns this client's session with this id.
    #[must_use]
    pub fn find(&self, id: &SessionId) -> Option<Session> {
        self.by_id.get(id).copied()
    }

    /// Returns true if the session is open on the current connection.
    #[must_use]
    pub fn is_open(&self, session: Session) -> bool {
        self.sessions.get(&session).is_some_and(Subscription::is_open)
    }

    /// Returns the reason why the client has stopped, if it has.
    #[must_use]
    pub fn stop_reason(&self) -> Option<&Stop> {
        if let Phase::Stopped(stop) = &self.phase { Some(stop) } else { None }
    }

    /// Returns the number of commands without a reply.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.outbox.len()
    }

    // Events

    /// Handles a frame of the server.
    pub fn frame(&mut self, now: Instant, text: &str) {
        match &mut self.phase {
            Phase::Open(greeted) => greeted.read(now),
            Phase::Greeting { .. } => {}
            // The frame came over a connection that was given up.
            _ => return,
        }
        let Some(Incoming { session, body }) = Incoming::parse(text) else { return };
        match body {
            Body::Reply(id, reply) => self.replied(now, &id, session.as_ref(), reply),
            // The close that follows has the same reason.
            Body::Fault(_) => {}
            Body::Ephemeral(EphemeralEvent::SessionChanged(item)) => self.tell(Update::Listed(item)),
            Body::Ephemeral(EphemeralEvent::TokenExpiring(_)) => self.expiring(),
            Body::Event(seq, event) => self.event(now, session.as_ref(), |known| known.durable(seq, event)),
            Body::Ephemeral(EphemeralEvent::SessionClosed(closed)) => {
                self.session_closed(now, session.as_ref(), &closed)
            }
            Body::Ephemeral(event) => self.event(now, session.as_ref(), |known| known.ephemeral(event)),
        }
    }

    /// Resets the count of failures.
    fn forgive(&mut self) {
        self.failures = 0;
        self.renewed = !self.renews;
    }

    fn tell(&mut self, update: Update) {
        self.out.push_back(Output::Tell(update));
    }

    fn new_id(&mut self) -> CommandId {
        self.ids += 1;
        let id = format!("{}-{}", self.command_prefix, self.ids);
        id.parse().expect("the beginning of an id and a number are an id")
    }
}

impl std::fmt::Debug for Machine {
    /// Omits message text.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine").field("phase", &self.phase).finish_non_exhaustive()
    }
}
