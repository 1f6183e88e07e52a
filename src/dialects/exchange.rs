//! An exchange with a session, for a dialect over HTTP: opens it, sets what differs, asks, and follows the turn.
//!
//! [`Exchange::next`] tells the course of one turn as [`Step`]s. Texts come in order and without overlap, entries once
//! each, also if the turn was already running, and if the connection to its session was lost on the way.

mod chain;
mod course;
mod errors;
mod reading;
mod wanted;
mod whole;

pub use chain::{DELETED_MARK, INPUT_MARK, is_said};
pub use course::{Compaction, Delta, Ended, Step, added, after_units, usage_of};
pub use errors::error_of;
pub use wanted::Wanted;

use course::Course;
use reseed_client::{Client, Connect, Opening, Options, Session, Update, fold::Snapshot};
use reseed_protocol::{
    CommandId, Entry, EntryData, EntryId, ErrorBody, ErrorCode, SessionId, TurnId,
    command::{Command, Empty},
    compaction::StartCompaction,
    reply::{Done, Reply},
    session::{SessionRole, Software},
    tools::{RegisterTools, ToolOffer},
    tree::{ForkPosition, ForkSession, GetEntries},
    turn::{Accepted, UserInput},
};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;

/// The number of temporary refusals after which a session counts as not available.
const REFUSALS_MAX: u32 = 3;

/// Entries of the snapshot that an exchange begins with: mostly, what a request refers to is among them.
const ENTRIES: u32 = 32;

/// Entries of one page.
const PAGE: u32 = 500;

/// The session of an exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A new one.
    New,
    /// The one that this command has created for this user, or a new one.
    Once(CommandId),
    /// As the two above, in the server's memory only.
    Unstored(Option<CommandId>),
    /// One that exists.
    Session(SessionId),
}

/// An open session of a dialect's client.
#[derive(Debug)]
pub struct Exchange {
    client: Client,
    session: Session,
    course: Course,
}

/// Returns the id of a command for a key that a client chose, such as `Idempotency-Key`.
#[must_use]
pub fn command_id(dialect: &str, key: &str) -> CommandId {
    let mut hash = Sha256::new();
    hash.update(dialect.as_bytes());
    hash.update([0]);
    hash.update(key.as_bytes());
    let hash: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    hash.parse().expect("64 hexadecimal digits are an id")
}

/// Returns a client of a dialect. Each has an id of its own, so none takes over the tools of another.
#[must_use]
pub fn client(connect: Box<dyn Connect>) -> Client {
    Client::over(connect, Options::default())
}

/// Sends a command that needs no subscription.
///
/// # Errors
/// Returns the server's error, or why there is no reply.
pub async fn request(
    client: &mut Client,
    to: impl Into<reseed_client::To>,
    command: &Command,
) -> Result<Reply, ErrorBody> {
    client.request(to, command).await.map_err(error_of)
}

impl Exchange {
    /// Opens or creates a session, with these tools.
    ///
    /// # Errors
    /// Returns the error of a session that does not exist or is not available, or of a server that is full.
    pub async fn open(connect: Box<dyn Connect>, place: Place, tools: Vec<ToolOffer>) -> Result<Self, ErrorBody> {
        let tools = Some(tools).filter(|tools| !tools.is_empty());
        let opening = Opening { tools, entries: Some(ENTRIES), ..Opening::default() };
        Self::open_with(client(connect), place, opening).await
    }

    /// As [`Self::open`], without tools. An observer can only read.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn open_as(connect: Box<dyn Connect>, place: Place, role: SessionRole) -> Result<Self, ErrorBody> {
        let opening = Opening { role: Some(role), entries: Some(ENTRIES), ..Opening::default() };
        Self::open_with(client(connect), place, opening).await
    }

    /// Observes a session without its entries, as this program.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn observe(
        connect: impl Connect + 'static,
        session: SessionId,
        software: Software,
    ) -> Result<Self, ErrorBody> {
        let client = Client::over(connect, Options { software: Some(software), ..Options::default() });
        let role = Some(SessionRole::Observer);
        let opening = Opening { role, entries: Some(0), deltas: Some(false), ..Opening::default() };
        Self::open_with(client, Place::Session(session), opening).await
    }

    /// As [`Self::open`], with a client that may have other sessions, and these options.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn open_with(mut client: Client, place: Place, opening: Opening) -> Result<Self, ErrorBody> {
        let session = opened(&mut client, place, opening).await?;
        Ok(Self { client, session, course: Course::default() })
    }

    /// Copies the path to an entry into a new session in the server's memory, once for the id if there is one, and goes
    /// on there.
    ///
    /// # Errors
    /// The server's error, or why there is no reply.
    pub async fn into_unstored(mut self, entry_id: EntryId, id: Option<CommandId>) -> Result<Self, ErrorBody> {
        let fork = Command::ForkSession(ForkSession { entry_id, position: ForkPosition::At, store: Some(false) });
        let reply = match id {
            Some(id) => self.request_as(id, &fork).await?,
            None => self.request(&fork).await?,
        };
        let mut reply = reply;
        loop {
            let Reply::Forked(forked) = reply else { return Err(errors::of_reply(&reply)) };
            let opening = Opening { entries: Some(ENTRIES), ..Opening::default() };
            match opened(&mut self.client, Place::Session(forked.session_id), opening).await {
                // The copy of a repeated command may be gone.
                Err(error) if error.code == ErrorCode::SessionNotFound && forked.duplicate == Some(true) => {
                    reply = self.request(&fork).await?;
                }
                Err(error) => return Err(error),
                Ok(session) => return Ok(Self { client: self.client, session, course: Course::default() }),
            }
        }
    }

    /// Offers tools, whichever client offered some before.
    ///
    /// # Errors
    /// `invalid_tools`, or why there is no reply.
    pub async fn offer(&mut self, tools: Vec<ToolOffer>) -> Result<(), ErrorBody> {
        let reply = self.request(&Command::RegisterTools(RegisterTools { tools })).await?;
        if matches!(reply, Reply::Ok(Done { standby: Some(true), .. })) {
            self.request(&Command::TakeOverHost(Empty {})).await?;
        }
        Ok(())
    }

    /// Returns the session as it is now.
    ///
    /// # Panics
    /// Never: the session is open, or was.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        self.client.snapshot(self.session).expect("the session was opened")
    }

    /// Sends a command to the session.
    ///
    /// # Errors
    /// Returns the server's error, or why there is no reply.
    pub async fn request(&mut self, command: &Command) -> Result<Reply, ErrorBody> {
        request(&mut self.client, self.session, command).await
    }

    /// Sends a command that need not go to this session.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub async fn request_to(&mut self, to: reseed_client::To, command: &Command) -> Result<Reply, ErrorBody> {
        request(&mut self.client, to, command).await
    }

    /// As [`Self::request`], once for this id.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub async fn request_as(&mut self, id: CommandId, command: &Command) -> Result<Reply, ErrorBody> {
        let sent = self.client.send_as(id.clone(), self.session, command).map_err(reseed_client::Error::from);
        sent.map_err(error_of)?;
        self.client.reply(&id).await.map_err(error_of)
    }

    /// Makes the session's settings those that are wanted. Sends only what differs.
    ///
    /// # Errors
    /// Returns the first error. Refuses with `turn_running` to change the settings of a running turn.
    pub async fn configure(&mut self, wanted: Wanted) -> Result<(), ErrorBody> {
        let commands = wanted::differences(self.snapshot(), wanted);
        if commands.is_empty() {
            return Ok(());
        }
        if self.snapshot().turn.is_some() {
            return Err(ErrorBody::new(ErrorCode::TurnRunning, "another turn is running in this conversation"));
        }
        let mut sent = Vec::new();
        for command in &commands {
            sent.push(self.client.send(self.session, command).map_err(|error| error_of(error.into()))?);
        }
        for id in sent {
            self.client.reply(&id).await.map_err(error_of)?;
        }
        Ok(())
    }

    /// Sends input, once for the id if there is one, and follows its turn.
    ///
    /// # Errors
    /// Returns the server's error, or why there is no reply.
    pub async fn ask(&mut self, input: UserInput, id: Option<CommandId>) -> Result<Accepted, ErrorBody> {
        let command = Command::UserInput(input);
        let reply = match id {
            Some(id) => self.request_as(id, &command).await?,
            None => self.request(&command).await?,
        };
        let Reply::Accepted(accepted) = reply else { return Err(errors::of_reply(&reply)) };
        if let Some(turn) = &accepted.turn_id {
            self.course.follow(turn.clone(), accepted.entry_id.as_ref());
            if accepted.duplicate == Some(true) {
                let entries = match &accepted.entry_id {
                    Some(entry) => self.answer_to(entry, &[]).await?,
                    None => Vec::new(),
                };
                let snapshot = self.client.snapshot(self.session).expect("the session was opened");
                self.course.catch_up(snapshot, entries);
            }
        }
        Ok(accepted)
    }

    /// Follows what answers this input from its beginning, whether it runs or is over. `functions` are the tools whose
    /// results the client gives as input.
    ///
    /// # Errors
    /// Returns the server's error, or why there is no reply.
    pub async fn follow(&mut self, input: &EntryId, functions: &[String]) -> Result<(), ErrorBody> {
        let entries = self.answer_to(input, functions).await?;
        let snapshot = self.client.snapshot(self.session).expect("the session was opened");
        self.course.resume(snapshot, input, entries);
        Ok(())
    }

    /// Returns what happens next in the turn that is followed. Nothing follows [`Step::Finished`] and
    /// [`Step::Failed`].
    pub async fn next(&mut self) -> Step {
        loop {
            if let Some(step) = self.course.take() {
                return step;
            }
            if let Err(error) = self.receive().await {
                return Step::Failed(error);
            }
        }
    }

    /// Follows a turn that waits, from this entry on.
    pub fn follow_turn(&mut self, turn: TurnId, after: &EntryId) {
        self.course.follow(turn, Some(after));
    }

    /// Takes the next step if it is ready, without waiting.
    pub fn ready(&mut self) -> Option<Step> {
        self.course.take()
    }

    /// Takes the next update of the session.
    async fn receive(&mut self) -> Result<(), ErrorBody> {
        let update = self.client.next().await;
        self.take(update)
    }

    fn take(&mut self, update: Update) -> Result<(), ErrorBody> {
        match update {
            Update::Event { session, event } if session == self.session => {
                let snapshot = self.client.snapshot(self.session).expect("the session was opened");
                self.course.event(snapshot, event);
            }
            Update::Opened { session, .. } if session == self.session => {
                let snapshot = self.client.snapshot(self.session).expect("the session was opened");
                self.course.catch_up(snapshot, Vec::new());
            }
            Update::Disconnected { lost, .. } if errors::is_final(&lost) => return Err(errors::of_loss(&lost)),
            Update::Ended { session, why } if session == self.session => return Err(errors::of_end(why)),
            Update::Stopped(stop) => return Err(errors::of_stop(stop)),
            _ => {}
        }
        Ok(())
    }

    /// Waits for an entry that was appended, and returns it.
    ///
    /// # Errors
    /// Returns why the session can no longer be followed.
    pub async fn appended(&mut self, id: &EntryId) -> Result<Arc<Entry>, ErrorBody> {
        loop {
            if let Some(entry) = self.snapshot().entries.get(id) {
                return Ok(entry.clone());
            }
            self.receive().await?;
        }
    }

    /// Compacts now. Returns the entry of the compaction.
    ///
    /// # Errors
    /// Returns why it failed, or why the session can no longer be followed.
    pub async fn compact(&mut self, command: StartCompaction) -> Result<Arc<Entry>, ErrorBody> {
        let known = self.newest_compaction();
        let reply = self.request(&Command::StartCompaction(command)).await?;
        if !matches!(reply, Reply::Ok(_)) {
            return Err(errors::of_reply(&reply));
        }
        self.course.watch();
        loop {
            match self.next().await {
                Step::Compaction(Compaction::Committed(_)) => {
                    let newest = self.newest_compaction().filter(|newest| Some(newest) != known.as_ref());
                    let unknown = || ErrorBody::new(ErrorCode::Internal, "the compaction has no entry");
                    return self.snapshot().entries.get(&newest.ok_or_else(unknown)?).cloned().ok_or_else(unknown);
                }
                Step::Compaction(Compaction::Failed(error)) => return Err(error),
                Step::Failed(error) => return Err(error),
                _ => {}
            }
        }
    }

    fn newest_compaction(&self) -> Option<EntryId> {
        let is_one = |entry: &&Arc<Entry>| matches!(entry.data, EntryData::Compaction(_));
        self.snapshot().path.iter().rev().find(is_one).map(|entry| entry.entry_id.clone())
    }

    /// Returns one entry.
    ///
    /// # Errors
    /// Returns `entry_not_found`, or why there is no reply.
    pub async fn entry(&mut self, id: &EntryId) -> Result<Entry, ErrorBody> {
        let command = Command::GetEntries(GetEntries {
            entry_id: Some(id.clone()),
            before: None,
            after: None,
            limit: None,
            path: None,
        });
        match self.request(&command).await? {
            Reply::Entries(page) => page
                .items
                .into_iter()
                .next()
                .ok_or_else(|| ErrorBody::new(ErrorCode::EntryNotFound, "there is no such entry in this session")),
            reply => Err(errors::of_reply(&reply)),
        }
    }

    /// Returns the entries that answer an input, by parent, up to the next input.
    ///
    /// # Errors
    /// Returns the server's error, or why there is no reply.
    pub async fn answer_to(&mut self, input: &EntryId, functions: &[String]) -> Result<Vec<Entry>, ErrorBody> {
        let mut chain = chain::Chain::after(input, functions);
        let mut after = input.clone();
        loop {
            let command = Command::GetEntries(GetEntries {
                after: Some(after),
                limit: Some(PAGE),
                before: None,
                path: None,
                entry_id: None,
            });
            let page = match self.request(&command).await? {
                Reply::Entries(page) => page,
                reply => return Err(errors::of_reply(&reply)),
            };
            let last = page.items.last().map(|entry| entry.entry_id.clone());
            page.items.into_iter().for_each(|entry| chain.add(entry));
            match last {
                Some(last) if page.more => after = last,
                _ => return chain.into_entries().ok_or_else(gone),
            }
        }
    }

    /// Closes the connection. A running turn goes on.
    pub async fn close(self) {
        self.client.close().await;
    }
}

/// Opens a session beside those that the client has.
async fn opened(client: &mut Client, place: Place, opening: Opening) -> Result<Session, ErrorBody> {
    let opening = Opening { store: matches!(place, Place::Unstored(_)).then_some(false), ..opening };
    let session = match place {
        Place::New | Place::Unstored(None) => client.open(None, opening),
        Place::Once(command) | Place::Unstored(Some(command)) => client.open_once(command, opening),
        Place::Session(id) => client.open(Some(id), opening),
    };
    let mut refusals = 0;
    loop {
        match client.next().await {
            Update::Opened { session: opened, .. } if opened == session => return Ok(session),
            Update::Retrying { session: refused, error, .. } if refused == session => {
                refusals += 1;
                if refusals >= REFUSALS_MAX {
                    let busy = || ErrorBody::new(ErrorCode::Overloaded, "the session is not available now");
                    return Err(error.unwrap_or_else(busy));
                }
            }
            Update::Ended { session: ended, why } if ended == session => return Err(errors::of_end(why)),
            Update::Disconnected { lost, .. } => return Err(errors::of_loss(&lost)),
            Update::Stopped(stop) => return Err(errors::of_stop(stop)),
            _ => {}
        }
    }
}

fn gone() -> ErrorBody {
    ErrorBody::new(ErrorCode::EntryNotFound, "this input was deleted")
}
