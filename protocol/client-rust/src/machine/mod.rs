//! What a client does, without a socket and without a clock: it is told what happens and says what to do.
//!
//! What always holds:
//! - a command has its outcome once, in [`Update::Reply`], whatever becomes of the connection;
//! - events of a session are told between its [`Update::Opened`] and the end of that subscription, in order, each once;
//! - a gap is mended by opening the session again with `resume`, never by guessing;
//! - what waits for a connection is bounded, and nothing of it is sent before `welcome`.
//!
//! After each call, take what [`Machine::poll`] says until it says nothing more; call [`Machine::tick`] when
//! [`Machine::deadline`] has come.

mod connection;
mod sessions;

use self::connection::{CONNECT, Greeted};
use crate::{
    fold::Snapshot,
    incoming::{Body, Incoming},
    outbox::{Outbox, Place, Replied, frame},
    subscription::{Opening, Phase as Subscribed, Subscription},
    update::{NotTaken, Session, Stop, To, Unanswered, Update},
};
use reseed_protocol::{
    CommandId, SessionId,
    command::{Command, Empty, Software},
    event::EphemeralEvent,
    reply::Reply,
};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    time::Instant,
};

/// Who connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Stays the same for one program over its reconnects, and differs from all others. It begins the id of every
    /// command: 16 to 40 characters of an id.
    pub client_id: String,
    /// The program, for the server's operator.
    pub software: Option<Software>,
}

/// What proves it to the server.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Credentials {
    /// Nothing: the server asks for none.
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

/// What to do, in order.
#[derive(Debug, PartialEq)]
pub enum Output {
    /// Connect, and say so by [`Machine::connected`] or [`Machine::lost`].
    Dial,
    /// Send this frame.
    Send(String),
    /// Let go of the socket.
    HangUp,
    /// Tell the user.
    Tell(Update),
}

#[derive(Debug)]
enum Phase {
    /// Nobody has asked for a connection yet.
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

/// A client. See the head of this file.
#[derive(Debug)]
pub struct Machine {
    identity: Identity,
    phase: Phase,
    outbox: Outbox,
    sessions: BTreeMap<Session, Subscription>,
    by_id: HashMap<SessionId, Session>,
    out: VecDeque<Output>,
    random: fastrand::Rng,
    ids: u64,
    keys: u64,
    failures: u32,
    /// The credentials cannot be renewed, or were since a connection lasted.
    renewed: bool,
    renews: bool,
}

impl Machine {
    /// Creates a client that is not connected. `random` spreads its attempts to connect again.
    #[must_use]
    pub fn new(identity: Identity, random: fastrand::Rng) -> Self {
        Self {
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

    /// Stops when its credentials are refused: they stay the same, so that asking for them again would not help.
    #[must_use]
    pub fn with_fixed_credentials(self) -> Self {
        Self { renewed: true, renews: false, ..self }
    }

    /// Returns the next thing to do.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// Returns when to call [`Self::tick`], if nothing happens before.
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

    // What the user wants

    /// Connects, now: for the first time, or again after the client has stopped or while it waits.
    pub fn connect(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Stopped(_)) {
            self.forgive();
        }
        if matches!(self.phase, Phase::Idle | Phase::Stopped(_) | Phase::Waiting { .. }) {
            self.dial(now);
        }
    }

    /// Ends the connection. Turns that run go on without this client.
    pub fn close(&mut self) {
        self.stop(Stop::Closed);
    }

    /// Opens a session, now and on every later connection; `None` creates one, once, even if the connection is lost
    /// meanwhile. One that this client has open already stays as it is.
    pub fn open(&mut self, session: Option<SessionId>, opening: Opening) -> Session {
        if let Some(key) = session.as_ref().and_then(|id| self.find(id)) {
            if self.sessions[&key].phase != Subscribed::Ended {
                return key;
            }
            self.forget(key);
        }
        self.keys += 1;
        let key = Session(self.keys);
        let creates = session.is_none().then(|| self.new_id());
        if let Some(id) = &session {
            self.by_id.insert(id.clone(), key);
        }
        self.sessions.insert(key, Subscription::new(session, creates, opening));
        self.send_open(key);
        key
    }

    /// Ends the subscription to a session, where a turn continues. Commands about it have no reply any more.
    pub fn close_session(&mut self, session: Session) {
        let Some(subscription) = self.sessions.get_mut(&session) else { return };
        let closes = matches!(subscription.phase, Subscribed::Open | Subscribed::Opening(_));
        match (&subscription.phase, subscription.id.clone()) {
            (Subscribed::Opening(command), None) => {
                subscription.phase = Subscribed::Leaving(command.clone());
                self.fail_session(session, &Unanswered::SessionClosed);
                return;
            }
            (_, Some(id)) if closes => self.send_now(Some(&id), &Command::CloseSession(Empty {})),
            _ => {}
        }
        self.fail_session(session, &Unanswered::SessionClosed);
        self.forget(session);
    }

    /// Sends a command as soon as it may go out, and again after a lost connection if that is safe. Returns its id,
    /// which its [`Update::Reply`] has.
    ///
    /// # Errors
    /// Too much waits already.
    pub fn send(&mut self, to: impl Into<To>, command: &Command) -> Result<CommandId, NotTaken> {
        let to = to.into();
        let id = self.new_id();
        self.outbox.add(id.clone(), to.clone(), command)?;
        if let To::Session(session) = to {
            match self.sessions.get_mut(&session) {
                None => {
                    self.fail_session(session, &Unanswered::SessionClosed);
                    return Ok(id);
                }
                // What is offered now is offered on the next connection as well.
                Some(subscription) => match command {
                    Command::RegisterTools(offer) => subscription.opening.tools = Some(offer.tools.clone()),
                    Command::RegisterHooks(offer) => subscription.opening.hooks = Some(offer.hooks.clone()),
                    _ => {}
                },
            }
        }
        if let Phase::Stopped(stop) = &self.phase {
            let why = Unanswered::Stopped(stop.clone());
            self.fail_all(&why);
        }
        self.refuse_too_large();
        self.flush();
        Ok(id)
    }

    // What the user asks

    /// Returns the state of a session; `None` until it was opened for the first time, and once it was closed.
    #[must_use]
    pub fn snapshot(&self, session: Session) -> Option<&Snapshot> {
        self.sessions.get(&session)?.snapshot.as_ref()
    }

    /// Changes what is known of a session by something that is no event, such as a page of older entries.
    pub fn snapshot_mut(&mut self, session: Session) -> Option<&mut Snapshot> {
        self.sessions.get_mut(&session)?.snapshot.as_mut()
    }

    /// Returns a session's id; `None` until the server has given it one, and once it was closed.
    #[must_use]
    pub fn session_id(&self, session: Session) -> Option<&SessionId> {
        self.sessions.get(&session)?.id.as_ref()
    }

    /// Returns the session of this client that has this id.
    #[must_use]
    pub fn find(&self, id: &SessionId) -> Option<Session> {
        self.by_id.get(id).copied()
    }

    /// Returns true if the session is open on the present connection.
    #[must_use]
    pub fn is_open(&self, session: Session) -> bool {
        self.sessions.get(&session).is_some_and(Subscription::is_open)
    }

    /// Returns why the client has stopped, if it has.
    #[must_use]
    pub fn stop_reason(&self) -> Option<&Stop> {
        if let Phase::Stopped(stop) = &self.phase { Some(stop) } else { None }
    }

    /// Returns the number of commands without a reply.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.outbox.len()
    }

    // What happens

    /// A frame has come.
    pub fn frame(&mut self, now: Instant, text: &str) {
        if let Phase::Open(greeted) = &mut self.phase {
            greeted.read(now);
        }
        let Some(Incoming { session, body }) = Incoming::parse(text) else { return };
        match body {
            Body::Reply(id, reply) => self.replied(now, &id, reply),
            // The close that follows says the same.
            Body::Fault(_) => {}
            Body::Ephemeral(EphemeralEvent::SessionChanged(item)) => self.tell(Update::Listed(item)),
            Body::Event(seq, event) => self.event(now, session.as_ref(), |known| known.durable(seq, event)),
            Body::Ephemeral(EphemeralEvent::SessionClosed(closed)) => {
                self.session_closed(now, session.as_ref(), &closed)
            }
            Body::Ephemeral(event) => self.event(now, session.as_ref(), |known| known.ephemeral(event)),
        }
    }

    fn replied(&mut self, now: Instant, id: &CommandId, reply: Reply) {
        match &mut self.phase {
            Phase::Greeting { hello, .. } if hello == id => return self.greeted(now, reply),
            Phase::Open(greeted) if greeted.probe.as_ref().is_some_and(|(probe, _)| probe == id) => {
                let asked = greeted.probe.take().and_then(|(_, asked)| asked);
                return self.probed(now, asked, &reply);
            }
            _ => {}
        }
        let opens = |known: &Subscription| matches!(&known.phase, Subscribed::Opening(command) | Subscribed::Leaving(command) if command == id);
        if let Some(key) = self.sessions.iter().find(|(_, known)| opens(known)).map(|(key, _)| *key) {
            return self.open_replied(now, key, reply);
        }
        let refusal = if let Reply::Error(error) = &reply { Some(error) } else { None };
        let sessions = &self.sessions;
        let is_open = |session: Session| sessions.get(&session).is_some_and(Subscription::is_open);
        let replied = self.outbox.reply(now, id, refusal, is_open, &mut self.random);
        if matches!(replied, Replied::Stays | Replied::Unknown) {
            return;
        }
        let result = match reply {
            Reply::Error(error) => Err(Unanswered::Refused(error)),
            reply => Ok(reply),
        };
        self.tell(Update::Reply { id: id.clone(), result });
        if let Replied::Deleted(to) = replied {
            self.deleted(&to);
        }
    }

    fn flush(&mut self) {
        if !matches!(self.phase, Phase::Open(_)) {
            return;
        }
        let sessions = &self.sessions;
        let place = |session: Session| match sessions.get(&session).map(|known| (known.id.clone(), known.is_open())) {
            Some((Some(id), true)) => Place::Open(id),
            Some((Some(id), false)) => Place::Known(id),
            _ => Place::Unknown,
        };
        self.out.extend(self.outbox.take(place).into_iter().map(Output::Send));
    }

    fn refuse_too_large(&mut self) {
        let Phase::Open(greeted) = &self.phase else { return };
        for (id, why) in self.outbox.refuse_larger_than(greeted.bytes_max) {
            self.tell(Update::Reply { id, result: Err(why) });
        }
    }

    fn fail_all(&mut self, why: &Unanswered) {
        for id in self.outbox.fail(None) {
            self.tell(Update::Reply { id, result: Err(why.clone()) });
        }
    }

    /// Forgets the failures before.
    fn forgive(&mut self) {
        self.failures = 0;
        self.renewed = !self.renews;
    }

    fn tell(&mut self, update: Update) {
        self.out.push_back(Output::Tell(update));
    }

    fn new_id(&mut self) -> CommandId {
        self.ids += 1;
        let id = format!("{}-{}", self.identity.client_id, self.ids);
        id.parse().expect("the client's id and a number are an id")
    }
}
fn encoded(id: &CommandId, session: Option<&SessionId>, command: &Command) -> String {
    let body = serde_json::to_string(command).expect("wire types have text keys and finite numbers");
    frame(id, session, &body)
}
