//! The client: a [`Machine`] with its [`Driver`].

use crate::{
    Address,
    driver::{AskCredentials, Driver, now},
    fold::Snapshot,
    machine::{Credentials, Identity, Machine},
    subscription::Opening,
    transport::Connect,
    update::{NotTaken, Session, SessionEnd, Stop, To, Unanswered, Update},
};
use reseed_protocol::{CommandId, ErrorBody, SessionId, command::Command, reply::Reply, session::Software};
use std::collections::VecDeque;

/// Maximum number of updates that are kept while a reply is awaited. Beyond this, the oldest events that are already in
/// the snapshots are dropped.
const KEPT_MAX: usize = 16 * 1024;

/// The number of temporary refusals after which [`Client::open_now`] gives up. With backoff, they take some seconds.
const REFUSALS_MAX: u32 = 5;

/// The options of a client.
#[derive(Clone, Default)]
pub struct Options {
    /// Identifies one program across its reconnects, and differs from all others: 1 to 64 characters. If absent, it is
    /// generated. A program that keeps it across restarts regains its role as host.
    pub client_id: Option<String>,
    /// The name and version of your program, for the server's operator.
    pub software: Option<Software>,
    /// Provides a token or a ticket before each connection. If absent, none is sent.
    pub credentials: Option<AskCredentials>,
    /// True if the credentials never change, so that a refusal is final.
    pub fixed_credentials: bool,
}

impl Options {
    /// Returns the options with a token that never changes.
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

/// A client. It does nothing by itself: [`Client::next`] drives it, and that future may be dropped while it waits.
pub struct Client {
    machine: Machine,
    driver: Driver,
    /// Updates that arrived while a reply was awaited.
    kept: VecDeque<Update>,
}

/// The error of a call that waits for the server.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// The command was not accepted for sending.
    #[error(transparent)]
    NotTaken(#[from] NotTaken),
    /// The command has no reply, or was refused.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    /// The session ended.
    #[error(transparent)]
    SessionEnd(#[from] SessionEnd),
    /// The server temporarily refused the session too many times.
    #[error("the session was refused {refusals} times{}", reason(.error.as_ref()))]
    NotOpened {
        /// The number of refusals.
        refusals: u32,
        /// The server's last error, if it sent one.
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
    /// Creates a client, which starts to connect with the first [`Client::next`].
    ///
    /// # Panics
    /// The options' client id is empty or too long, or there is no tokio runtime.
    #[must_use]
    pub fn new(address: Address, options: Options) -> Self {
        Self::over(address, options)
    }

    /// Creates a client over any transport.
    ///
    /// # Panics
    /// As [`Self::new`].
    #[must_use]
    pub fn over(connect: impl Connect + 'static, options: Options) -> Self {
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
        Self { machine, driver: Driver::over(connect, options.credentials), kept: VecDeque::new() }
    }

    /// Opens a session, now and on every later connection. `None` creates a session, only once even if the connection
    /// is lost meanwhile. Commands to it may follow at once.
    pub fn open(&mut self, session: Option<SessionId>, opening: Opening) -> Session {
        self.machine.open(session, opening)
    }

    /// Opens or creates a session, and waits for its snapshot. If that fails, the session is closed.
    ///
    /// # Errors
    /// Returns an error if the session was refused permanently, or five times temporarily, or if the client stopped.
    pub async fn open_now(&mut self, session: Option<SessionId>, opening: Opening) -> Result<Session, Error> {
        let session = self.open(session, opening);
        self.opened(session).await
    }

    /// Opens the session that this command has created for this user. If there is none, creates it. So the command's
    /// id, of 16 to 64 characters, is a durable name of the session.
    pub fn open_once(&mut self, command: CommandId, opening: Opening) -> Session {
        self.machine.open_once(command, opening)
    }

    /// Waits for the snapshot of a session that was opened. If that fails, the session is closed.
    ///
    /// # Errors
    /// As [`Self::open_now`].
    pub async fn opened(&mut self, session: Session) -> Result<Session, Error> {
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
                    // Otherwise a later connection would open or create it although nobody uses it.
                    self.close_session(session);
                    return Err(self.stopped(stop));
                }
                update => self.keep(update),
            }
        }
        Ok(session)
    }

    /// Ends the subscription to a session. A running turn continues.
    pub fn close_session(&mut self, session: Session) {
        self.machine.close_session(session);
    }

    /// Sends a command as soon as possible. If that is safe, sends it again after a lost connection, and after a
    /// refusal that leaves open whether it was stored. Its [`Update::Reply`] has the returned id.
    ///
    /// # Errors
    /// Returns an error if too many commands are waiting.
    pub fn send(&mut self, to: impl Into<To>, command: &Command) -> Result<CommandId, NotTaken> {
        self.machine.send(to, command)
    }

    /// As [`Self::send`], under this id, which no other command of this client may have had. If the server has executed
    /// the command before under this id, even for an earlier client, it only repeats its reply.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn send_as(&mut self, id: CommandId, to: impl Into<To>, command: &Command) -> Result<(), NotTaken> {
        self.machine.send_as(id, to, command)
    }

    /// Sends a command and waits for its reply. Other updates that arrive meanwhile are kept for [`Client::next`].
    /// Beyond some thousand updates, the oldest events that are already in the snapshots are dropped.
    ///
    /// If this future is dropped earlier, the command continues, and [`Client::next`] returns its [`Update::Reply`].
    ///
    /// # Errors
    /// Returns an error if the command was refused, or can no longer be answered.
    pub async fn request(&mut self, to: impl Into<To>, command: &Command) -> Result<Reply, Error> {
        let sent = self.send(to, command)?;
        self.reply(&sent).await
    }

    /// Waits for the reply to a command that was sent. Other updates are kept, as with [`Self::request`].
    ///
    /// # Errors
    /// As [`Self::request`].
    pub async fn reply(&mut self, sent: &CommandId) -> Result<Reply, Error> {
        let is_it = |update: &Update| matches!(update, Update::Reply { id, .. } if id == sent);
        if let Some(Update::Reply { result, .. }) =
            self.kept.iter().position(is_it).and_then(|place| self.kept.remove(place))
        {
            return Ok(result?);
        }
        loop {
            match self.receive().await {
                Update::Reply { id, result } if id == *sent => return Ok(result?),
                Update::Stopped(stop) => return Err(self.stopped(stop)),
                update => self.keep(update),
            }
        }
    }

    /// Returns the next update. Once the client has stopped, it always returns [`Update::Stopped`]. The future may be
    /// dropped while it waits, and nothing is lost.
    ///
    /// The client makes progress only while this is awaited. If that does not happen for a minute, the connection is
    /// lost.
    pub async fn next(&mut self) -> Update {
        match self.kept.pop_front() {
            Some(update) => update,
            None => self.receive().await,
        }
    }

    /// Returns the state of a session; `None` before it was first opened, and after it was closed.
    #[must_use]
    pub fn snapshot(&self, session: Session) -> Option<&Snapshot> {
        self.machine.snapshot(session)
    }

    /// Returns this client's state machine.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Returns this client's state machine for changes. The next [`Client::next`] executes its outputs.
    pub fn machine_mut(&mut self) -> &mut Machine {
        &mut self.machine
    }

    /// Connects at once if the client waits for its next attempt or has stopped.
    pub fn connect(&mut self) {
        self.machine.connect(now());
    }

    /// Cuts the connection like a network failure. The client reconnects.
    pub fn cut(&mut self) {
        self.driver.cut(&mut self.machine);
    }

    /// Sends the pending commands that may go out now, and closes the connection. Running turns continue.
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
