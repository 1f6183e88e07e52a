//! The client: a [`Machine`] with its [`Driver`].

use crate::{
    Address,
    driver::{AskCredentials, Driver, now},
    fold::Snapshot,
    machine::{Credentials, Identity, Machine},
    subscription::Opening,
    update::{NotTaken, Session, SessionEnd, Stop, To, Unanswered, Update},
};
use reseed_protocol::{
    CommandId, ErrorBody, SessionId,
    command::{Command, Software},
    reply::Reply,
};
use std::collections::VecDeque;

/// Updates that are kept while a reply is awaited. Beyond this, the oldest events that the snapshots contain are
/// dropped.
const KEPT_MAX: usize = 16 * 1024;

/// Refusals for now after which [`Client::open_now`] gives up: with growing waits these are some seconds.
const REFUSALS_MAX: u32 = 5;

/// The options of a client.
#[derive(Clone, Default)]
pub struct Options {
    /// Stays the same for one program over its reconnects, and differs from all others: 1 to 64 characters. Absent:
    /// made up. A program that keeps it over its restarts has its role as host back.
    pub client_id: Option<String>,
    /// The name and version of your program, for the server's operator.
    pub software: Option<Software>,
    /// Gives a token or a ticket, before each connection. Absent: none.
    pub credentials: Option<AskCredentials>,
    /// The credentials are always the same: a refusal is final.
    pub fixed_credentials: bool,
}

impl Options {
    /// Returns options with a token that stays the same.
    #[must_use]
    pub fn with_token(mut self, token: impl Into<String>) -> Self {
        self.credentials = Some(Credentials::fixed(token));
        self.fixed_credentials = true;
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
    machine: Machine,
    driver: Driver,
    /// Updates that were passed while a reply was awaited.
    kept: VecDeque<Update>,
}

/// The error of a call that waits for the server.
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
    /// The server refused the session temporarily too many times.
    #[error("the session was refused {refusals} times{}", reason(.error.as_ref()))]
    NotOpened {
        /// The number of refusals.
        refusals: u32,
        /// The server's last error, if it named one.
        error: Option<ErrorBody>,
    },
    /// The client stopped.
    #[error(transparent)]
    Stopped(#[from] Stop),
}

/// Returns the error as the end of a sentence.
fn reason(error: Option<&ErrorBody>) -> String {
    error.map(|error| format!(": {}", error.message)).unwrap_or_default()
}

impl Client {
    /// Creates a client, which begins to connect with the first [`Client::next`].
    ///
    /// # Panics
    /// The options' client id is empty or too long, or there is no tokio runtime.
    #[must_use]
    pub fn new(address: Address, options: Options) -> Self {
        let mut random = fastrand::Rng::new();
        let made_up = || format!("client-{:016x}", random.u64(..));
        let client_id = options.client_id.unwrap_or_else(made_up);
        let characters = client_id.chars().count();
        assert!((1..=64).contains(&characters), "a client id has 1 to 64 characters, this one has {characters}");
        let mut machine = Machine::new(Identity { client_id, software: options.software }, random);
        if options.fixed_credentials {
            machine = machine.with_fixed_credentials();
        }
        machine.connect(now());
        Self { machine, driver: Driver::new(address, options.credentials), kept: VecDeque::new() }
    }

    /// Opens a session, now and on every later connection; `None` creates one, once, even if the connection is lost
    /// meanwhile. Commands to it may follow at once.
    pub fn open(&mut self, session: Option<SessionId>, opening: Opening) -> Session {
        self.machine.open(session, opening)
    }

    /// Opens a session, or creates one, and waits until its snapshot is there. If that fails, the session is closed.
    ///
    /// # Errors
    /// Returns an error if the session was refused, for good or five times for now, or if the client stopped.
    pub async fn open_now(&mut self, session: Option<SessionId>, opening: Opening) -> Result<Session, Error> {
        let session = self.open(session, opening);
        let mut refusals = 0;
        while self.snapshot(session).is_none() {
            match self.receive().await {
                Update::Retrying { session: refused, error, .. } if refused == session => {
                    refusals += 1;
                    if refusals >= REFUSALS_MAX {
                        self.close_session(session);
                        return Err(Error::NotOpened { refusals, error });
                    }
                }
                Update::Ended { session: ended, why } if ended == session => {
                    self.close_session(session);
                    return Err(why.into());
                }
                Update::Stopped(stop) => {
                    // Otherwise a later connection would open it, or create one, for nobody.
                    self.close_session(session);
                    return Err(self.stopped(stop));
                }
                update => self.keep(update),
            }
        }
        Ok(session)
    }

    /// Ends the subscription to a session, where a turn continues.
    pub fn close_session(&mut self, session: Session) {
        self.machine.close_session(session);
    }

    /// Sends a command as soon as it may go out. Sends it again, if that is safe, after a lost connection and after a
    /// refusal that leaves open whether it was stored. Its [`Update::Reply`] has the id.
    ///
    /// # Errors
    /// Returns an error if too much waits already.
    pub fn send(&mut self, to: impl Into<To>, command: &Command) -> Result<CommandId, NotTaken> {
        self.machine.send(to, command)
    }

    /// Sends a command and waits for its reply. What else happens meanwhile is kept for [`Client::next`]: all of it up
    /// to some thousand updates, and beyond that not the oldest events that the snapshots have.
    ///
    /// If this is dropped before, the command goes on, and [`Client::next`] tells its [`Update::Reply`].
    ///
    /// # Errors
    /// Returns an error if the command was refused, or cannot be answered any more.
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

    /// Returns what happens next; [`Update::Stopped`] indefinitely once the client has stopped. It may be dropped while
    /// it waits: nothing is lost.
    ///
    /// The client lives while this is awaited: a connection on which nobody does so for a minute is lost.
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

    /// Returns the state machine of this client.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Returns the state machine of this client, to change it. The next [`Client::next`] carries out its outputs.
    pub fn machine_mut(&mut self) -> &mut Machine {
        &mut self.machine
    }

    /// Connects at once, if it waits for the next attempt or has stopped.
    pub fn connect(&mut self) {
        self.machine.connect(now());
    }

    /// Cuts the connection, as a network does; the client connects again.
    pub fn cut(&mut self) {
        self.driver.cut(&mut self.machine);
    }

    /// Sends what was asked for, as far as it may go out now, and says goodbye. Turns that run go on.
    pub async fn close(mut self) {
        self.driver.close(&mut self.machine).await;
    }

    async fn receive(&mut self) -> Update {
        self.driver.next(&mut self.machine).await
    }

    fn keep(&mut self, update: Update) {
        if self.kept.len() >= KEPT_MAX {
            let oldest = |goes: fn(&Update) -> bool| self.kept.iter().position(goes);
            if let Some(place) = oldest(Update::is_transient).or_else(|| oldest(Update::is_in_snapshot)) {
                self.kept.remove(place);
            }
        }
        if !matches!((&update, self.kept.back()), (Update::Stopped(_), Some(Update::Stopped(_)))) {
            self.kept.push_back(update);
        }
    }

    fn stopped(&mut self, stop: Stop) -> Error {
        self.keep(Update::Stopped(stop.clone()));
        stop.into()
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("driver", &self.driver).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::update::SessionEvent;
    use serde_json::json;

    fn ephemeral(name: &str, payload: serde_json::Value) -> Update {
        let event = serde_json::from_value(json!({"type": name, "payload": payload})).unwrap();
        Update::Event { session: Session(1), event: SessionEvent::Ephemeral(event) }
    }

    fn durable(seq: u64) -> Update {
        let event = serde_json::from_value(json!({"type": "session_updated", "payload": {}})).unwrap();
        Update::Event { session: Session(1), event: SessionEvent::Durable(seq, event) }
    }

    #[tokio::test]
    async fn of_what_is_kept_goes_first_what_the_snapshots_have() {
        let mut client = Client::new("ws://127.0.0.1:1".parse().unwrap(), Options::default());
        let call = || ephemeral("run_tool", json!({"toolCallId": "call"}));
        let delta = || ephemeral("item_delta", json!({"itemId": "item", "part": 0, "offset": 0, "text": "x"}));
        client.keep(call());
        client.keep(durable(1));
        (2..KEPT_MAX).for_each(|_| client.keep(delta()));
        (2..10).for_each(|seq| client.keep(durable(seq)));
        assert_eq!((client.kept.len(), &client.kept[0], &client.kept[1]), (KEPT_MAX, &call(), &durable(1)));
        (0..2 * KEPT_MAX as u64).for_each(|seq| client.keep(durable(seq)));
        assert_eq!((client.kept.len(), &client.kept[0]), (KEPT_MAX, &call()), "nobody tells of a call again");
        assert_eq!(client.kept[KEPT_MAX - 1], durable(2 * KEPT_MAX as u64 - 1));
    }

    #[tokio::test]
    async fn that_it_has_stopped_is_kept_once() {
        let mut client = Client::new("ws://127.0.0.1:1".parse().unwrap(), Options::default());
        client.machine_mut().close();
        for _ in 0..3 {
            let opened = client.open_now(None, Opening::default()).await;
            assert_eq!(opened, Err(Error::Stopped(Stop::Closed)));
        }
        assert_eq!(client.kept.len(), 1);
    }
}
