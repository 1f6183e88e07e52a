//! The client: a [`Machine`] with a socket and a clock.

use crate::{
    Address,
    ending::Lost,
    fold::Snapshot,
    machine::{Credentials, Identity, Machine, Output},
    socket::{Received, Socket},
    subscription::Opening,
    update::{NotTaken, Session, SessionEnd, Stop, To, Unanswered, Update},
};
use reseed_protocol::{
    CommandId, SessionId,
    command::{Command, Software},
    reply::Reply,
};
use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::time::{Instant, Sleep};

/// Updates that are kept while a reply is awaited. Beyond these the oldest ephemeral events go, which the snapshots
/// have anyway.
const KEPT_MAX: usize = 16 * 1024;

type Dialing = Pin<Box<dyn Future<Output = Result<(Socket, Credentials), Lost>> + Send>>;
type Asking = Pin<Box<dyn Future<Output = Result<Credentials, Lost>> + Send>>;

/// Gives credentials, each time that the client connects. It fails with [`Lost::Refused`] if asking again will not help,
/// and with [`Lost::Broken`] otherwise.
pub type AskCredentials = Arc<dyn Fn() -> Asking + Send + Sync>;

/// The options of a client.
#[derive(Clone, Default)]
pub struct Options {
    /// Stays the same for one program over its reconnects, and differs from all others: 16 to 40 letters, digits and
    /// `._:-`. Absent: made up.
    pub client_id: Option<String>,
    /// The name and version of your program, for the server's operator.
    pub software: Option<Software>,
    /// Gives a token or a ticket, before each connection. Absent: none.
    pub credentials: Option<AskCredentials>,
}

impl Options {
    /// Returns options with a token that stays the same.
    #[must_use]
    pub fn with_token(mut self, token: impl Into<String>) -> Self {
        let token = token.into();
        self.credentials = Some(Arc::new(move || {
            let credentials = Credentials::Token(token.clone());
            Box::pin(std::future::ready(Ok(credentials)))
        }));
        self
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("client_id", &self.client_id)
            .field("software", &self.software)
            .finish_non_exhaustive()
    }
}

/// A client. It does nothing by itself: [`Client::next`] drives it, and may be dropped while it waits.
pub struct Client {
    address: Address,
    credentials: Option<AskCredentials>,
    machine: Machine,
    socket: Option<Socket>,
    dialing: Option<Dialing>,
    /// Updates that were passed while a reply was awaited.
    kept: VecDeque<Update>,
    sleep: Pin<Box<Sleep>>,
}

/// Why something that was asked for did not happen.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// The command was not taken.
    #[error(transparent)]
    NotTaken(#[from] NotTaken),
    /// The command has no reply, or was refused.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    /// The session ended.
    #[error(transparent)]
    SessionEnd(#[from] SessionEnd),
    /// The client stopped.
    #[error(transparent)]
    Stopped(#[from] Stop),
}

impl Client {
    /// Creates a client, which begins to connect with the first [`Client::next`].
    ///
    /// # Panics
    /// The options' client id is none, or there is no tokio runtime.
    #[must_use]
    pub fn new(address: Address, options: Options) -> Self {
        let mut random = fastrand::Rng::new();
        let made_up = || format!("client-{:016x}", random.u64(..));
        let client_id = options.client_id.unwrap_or_else(made_up);
        let is_id = (16..=40).contains(&client_id.len()) && reseed_protocol::ids::check_id(&client_id).is_ok();
        assert!(is_id, "a client id has 16 to 40 letters, digits and `._:-`, this is `{client_id}`");
        let mut machine = Machine::new(Identity { client_id, software: options.software }, random);
        machine.connect(now());
        Self {
            address,
            credentials: options.credentials,
            machine,
            socket: None,
            dialing: None,
            kept: VecDeque::new(),
            sleep: Box::pin(tokio::time::sleep_until(Instant::now())),
        }
    }

    /// Opens a session, now and on every later connection; `None` creates one, once, even if the connection is lost
    /// meanwhile. Commands to it may follow at once.
    pub fn open(&mut self, session: Option<SessionId>, opening: Opening) -> Session {
        self.machine.open(session, opening)
    }

    /// Opens a session, or creates one, and waits until its snapshot is there.
    ///
    /// # Errors
    /// The session was refused, or the client stopped.
    pub async fn open_now(&mut self, session: Option<SessionId>, opening: Opening) -> Result<Session, Error> {
        let session = self.open(session, opening);
        while self.snapshot(session).is_none() {
            match self.receive().await {
                Update::Ended { session: ended, why } if ended == session => return Err(why.into()),
                Update::Stopped(stop) => return Err(self.stopped(stop)),
                update => self.keep(update),
            }
        }
        Ok(session)
    }

    /// Ends the subscription to a session, where a turn continues.
    pub fn close_session(&mut self, session: Session) {
        self.machine.close_session(session);
    }

    /// Sends a command as soon as it may go out, and again after a lost connection if that is safe. Its
    /// [`Update::Reply`] has the id.
    ///
    /// # Errors
    /// Too much waits already.
    pub fn send(&mut self, to: impl Into<To>, command: &Command) -> Result<CommandId, NotTaken> {
        self.machine.send(to, command)
    }

    /// Sends a command and waits for its reply. What else happens meanwhile is kept for [`Client::next`].
    ///
    /// # Errors
    /// The command was refused, or cannot be answered any more.
    pub async fn request(&mut self, to: impl Into<To>, command: &Command) -> Result<Reply, Error> {
        let sent = self.send(to, command)?;
        loop {
            match self.receive().await {
                Update::Reply { id, result } if id == sent => return Ok(result?),
                Update::Stopped(stop) => return Err(self.stopped(stop)),
                update => self.keep(update),
            }
        }
    }

    /// Returns what happens next; [`Update::Stopped`] for ever once the client has stopped.
    pub async fn next(&mut self) -> Update {
        match self.kept.pop_front() {
            Some(update) => update,
            None => self.receive().await,
        }
    }

    /// Returns the state of a session; `None` until it was opened for the first time, and once it was closed.
    #[must_use]
    pub fn snapshot(&self, session: Session) -> Option<&Snapshot> {
        self.machine.snapshot(session)
    }

    /// Returns the machine inside, with all that it knows.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Returns the machine inside. What it is asked for is done by the next [`Client::next`].
    pub fn machine_mut(&mut self) -> &mut Machine {
        &mut self.machine
    }

    /// Connects at once, if it waits for the next attempt or has stopped.
    pub fn connect(&mut self) {
        self.machine.connect(now());
    }

    /// Cuts the connection, as a network does; the client connects again.
    pub fn cut(&mut self) {
        self.socket = None;
        self.dialing = None;
        self.machine.lost(now(), Lost::Broken("the connection was cut".to_owned()));
    }

    /// Says goodbye. Turns that run go on without this client.
    pub async fn close(mut self) {
        self.machine.close();
        if let Some(socket) = self.socket.take() {
            socket.close().await;
        }
    }

    async fn receive(&mut self) -> Update {
        poll_fn(|cx| self.poll_update(cx)).await
    }

    /// Drives the client until something is to be told.
    fn poll_update(&mut self, cx: &mut Context<'_>) -> Poll<Update> {
        loop {
            while let Some(output) = self.machine.poll() {
                match output {
                    Output::Tell(update) => return Poll::Ready(update),
                    Output::Dial => self.dialing = Some(self.dial()),
                    Output::Send(frame) => {
                        if let Some(socket) = &mut self.socket {
                            socket.queue(frame);
                        }
                    }
                    Output::HangUp => (self.socket, self.dialing) = (None, None),
                }
            }
            if let Some(stop) = self.machine.stop_reason() {
                return Poll::Ready(Update::Stopped(stop.clone()));
            }
            if !self.poll_world(cx) {
                return Poll::Pending;
            }
        }
    }

    /// Tells the machine what has happened. Returns false if nothing has.
    fn poll_world(&mut self, cx: &mut Context<'_>) -> bool {
        if let Some(dialing) = &mut self.dialing
            && let Poll::Ready(dialed) = dialing.as_mut().poll(cx)
        {
            self.dialing = None;
            match dialed {
                Ok((socket, credentials)) => {
                    self.socket = Some(socket);
                    self.machine.connected(credentials);
                }
                Err(lost) => self.machine.lost(now(), lost),
            }
            return true;
        }
        if let Some(socket) = &mut self.socket
            && let Poll::Ready(received) = socket.poll_receive(cx)
        {
            match received {
                Ok(Received::Text(text)) => self.machine.frame(now(), &text),
                Ok(Received::Ping) => self.machine.heard(now()),
                Err(lost) => {
                    self.socket = None;
                    self.machine.lost(now(), lost);
                }
            }
            return true;
        }
        let Some(deadline) = self.machine.deadline() else { return false };
        self.sleep.as_mut().reset(deadline.into());
        if self.sleep.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.machine.tick(now());
        true
    }

    fn dial(&self) -> Dialing {
        let (address, ask) = (self.address.clone(), self.credentials.clone());
        Box::pin(async move {
            let credentials = match ask {
                Some(ask) => ask().await?,
                None => Credentials::None,
            };
            Ok((Socket::open(&address).await?, credentials))
        })
    }

    fn keep(&mut self, update: Update) {
        if self.kept.len() >= KEPT_MAX {
            use crate::update::SessionEvent::Ephemeral;
            let decoration = |update: &Update| matches!(update, Update::Event { event: Ephemeral(_), .. });
            if let Some(place) = self.kept.iter().position(decoration) {
                self.kept.remove(place);
            }
        }
        self.kept.push_back(update);
    }

    fn stopped(&mut self, stop: Stop) -> Error {
        self.keep(Update::Stopped(stop.clone()));
        stop.into()
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("address", &self.address.to_string()).finish_non_exhaustive()
    }
}

fn now() -> std::time::Instant {
    Instant::now().into_std()
}
