//! Commands without a reply, in the order in which they were given.
//!
//! Invariants:
//! - There are at most [`COMMANDS_MAX`] of them, with [`BYTES_MAX`] in total.
//! - A command has one id, however often it is sent.
//! - A command that needs its session is sent once that session is open on this connection.
//! - No command is sent before an earlier one of the same session.
//! - A writing command that gets `store_failed` or `shutting_down` stays and is sent again, because it may have been
//!   stored.
//! - A command that was sent before stays after every temporary refusal.
//! - A command stays for a bounded number of refusals, and its caller gets the last one.

use crate::{
    ending::{backoff, told_wait},
    update::{NotTaken, Session, To, Unanswered},
};
use reseed_protocol::{CommandId, ErrorBody, ErrorCode, SessionId, command::Command};
use std::time::Instant;

/// Maximum number of commands without a reply. A well-behaved program gives fewer while the network is down.
pub const COMMANDS_MAX: usize = 256;

/// Maximum bytes of these commands in total.
pub const BYTES_MAX: usize = 16 * 1024 * 1024;

/// The number of temporary refusals of one command after which its caller gets the error.
const REFUSALS_MAX: u32 = 5;

/// A command without a reply.
#[derive(Debug)]
struct Waiting {
    id: CommandId,
    name: &'static str,
    to: To,
    /// True if it needs a subscription to its session.
    subscribes: bool,
    /// True if it deletes its session. The server reports the deletion only to other connections.
    deletes: bool,
    /// `{"type":…,"payload":…}`.
    body: String,
    /// True if it is sent again after a lost connection.
    resent: bool,
    /// True if the server stores its effect, once per id.
    writes: bool,
    sent: bool,
    sendings: u32,
    refusals: u32,
    /// The time until which it waits after a temporary refusal.
    held_until: Option<Instant>,
}

/// The result of matching a reply with its command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Replied {
    /// It is a command's reply, and the command is finished.
    Over,
    /// The same, and the command has deleted this session.
    Deleted(To),
    /// The command stays and is sent again.
    Stays,
    /// No command waits for this reply.
    Unknown,
}

/// The state of a command's session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// Open on this connection.
    Open(SessionId),
    /// Known, but not open.
    Known(SessionId),
    /// Not known yet.
    Unknown,
}

/// The commands that wait for a reply.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    waiting: Vec<Waiting>,
    bytes: usize,
}

impl Outbox {
    /// Adds a command.
    pub(crate) fn add(&mut self, id: CommandId, to: To, command: &Command) -> Result<(), NotTaken> {
        if self.waiting.len() >= COMMANDS_MAX {
            return Err(NotTaken::Commands(self.waiting.len()));
        }
        let body = serde_json::to_string(command).expect("wire types have text keys and finite numbers");
        // A single command may have any size. The server's own limit applies to it.
        if !self.waiting.is_empty() && self.bytes + body.len() > BYTES_MAX {
            return Err(NotTaken::Bytes(self.bytes));
        }
        self.bytes += body.len();
        let spec = command.spec();
        self.waiting.push(Waiting {
            id,
            name: spec.name,
            to,
            subscribes: spec.needs_subscription(),
            deletes: matches!(command, Command::DeleteSession(_)),
            body,
            resent: command.writes() || spec.is_query(),
            writes: command.writes(),
            sent: false,
            sendings: 0,
            refusals: 0,
            held_until: None,
        });
        Ok(())
    }

    /// Returns the number of commands.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Takes the frames that may be sent now and were not sent on this connection, in order.
    pub(crate) fn take(&mut self, place: impl Fn(Session) -> Place) -> Vec<String> {
        let mut frames = Vec::new();
        // The same session may be named by its handle and by its id.
        let mut behind: Vec<(To, Option<SessionId>)> = Vec::new();
        for command in self.waiting.iter_mut().filter(|command| !command.sent) {
            let (session, is_there) = match &command.to {
                To::Server => (None, true),
                To::Id(id) => (Some(id.clone()), true),
                To::Session(session) => match place(*session) {
                    Place::Open(id) => (Some(id), true),
                    Place::Known(id) => (Some(id), !command.subscribes),
                    Place::Unknown => (None, false),
                },
            };
            let same = |(to, id): &(To, Option<SessionId>)| *to == command.to || id.is_some() && *id == session;
            // A command waits behind a waiting command of the same session, so that their order is kept. For example, a
            // session is not deleted before earlier commands have reached it.
            if !is_there || command.held_until.is_some() || behind.iter().any(same) {
                if command.to != To::Server {
                    behind.push((command.to.clone(), session));
                }
                continue;
            }
            command.sent = true;
            command.sendings += 1;
            frames.push(frame(&command.id, session.as_ref(), &command.body));
        }
        frames
    }

    /// Handles a reply. A refused command may stay: see [`Waiting::stays`].
    pub(crate) fn reply(
        &mut self,
        now: Instant,
        id: &CommandId,
        refusal: Option<&ErrorBody>,
        is_open: impl Fn(Session) -> bool,
        random: &mut fastrand::Rng,
    ) -> Replied {
        // A command that was not sent on this connection has no reply here.
        let sent = |command: &Waiting| command.id == *id && command.sent;
        let Some(place) = self.waiting.iter().position(sent) else { return Replied::Unknown };
        let command = &mut self.waiting[place];
        if let Some(error) = refusal.filter(|error| command.stays(error, is_open)) {
            command.sent = false;
            command.refusals += 1;
            if error.code != ErrorCode::NoSession {
                let wait = told_wait(error);
                command.held_until = Some(now + wait.max(backoff(command.refusals, random)));
            }
            return Replied::Stays;
        }
        let command = self.waiting.remove(place);
        self.bytes -= command.body.len();
        if command.deletes && refusal.is_none() { Replied::Deleted(command.to) } else { Replied::Over }
    }

    /// Returns when the next temporarily refused command may be sent.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.waiting.iter().filter_map(|command| command.held_until).min()
    }

    /// Releases the commands whose wait is over.
    pub(crate) fn release(&mut self, now: Instant) {
        for command in &mut self.waiting {
            command.held_until.take_if(|until| *until <= now);
        }
    }

    /// Handles the loss of the connection. Commands that may be sent again wait for the next one. Returns the others,
    /// which are finished.
    pub(crate) fn lost(&mut self) -> Vec<CommandId> {
        let over = self.remove_all(|command| command.sent && !command.resent);
        self.waiting.iter_mut().for_each(|command| command.sent = false);
        over.into_iter().map(|command| command.id).collect()
    }

    /// Removes all commands.
    pub(crate) fn fail_all(&mut self) -> Vec<CommandId> {
        self.remove_all(|_| true).into_iter().map(|command| command.id).collect()
    }

    /// Removes the commands that need a session which is no longer open. Commands without that need stay if the
    /// session's id is known. For example, the reply to `delete_session` may come after the session's end.
    pub(crate) fn fail_session(&mut self, session: Session, id: Option<&SessionId>) -> Vec<CommandId> {
        let to = To::Session(session);
        if let Some(id) = id {
            for command in self.waiting.iter_mut().filter(|command| command.to == to && !command.subscribes) {
                command.to = To::Id(id.clone());
            }
        }
        self.remove_all(|command| command.to == to).into_iter().map(|command| command.id).collect()
    }

    /// Removes the commands that are too large for the server, which would close every connection because of them.
    pub(crate) fn refuse_larger_than(&mut self, bytes_max: u64) -> Vec<(CommandId, Unanswered)> {
        let over = self.remove_all(|command| command.frame_bytes() as u64 > bytes_max);
        let why = |command: &Waiting| {
            let Waiting { name, .. } = command;
            Unanswered::TooLarge { name, bytes: command.frame_bytes(), bytes_max }
        };
        over.into_iter().map(|command| (command.id.clone(), why(&command))).collect()
    }

    fn remove_all(&mut self, is_over: impl Fn(&Waiting) -> bool) -> Vec<Waiting> {
        let over: Vec<Waiting> = self.waiting.extract_if(.., |command| is_over(command)).collect();
        self.bytes -= over.iter().map(|command| command.body.len()).sum::<usize>();
        over
    }
}

impl Waiting {
    /// Returns true if a refused command stays. There are three reasons: it may have been stored; it was sent before,
    /// so its caller counts on it; or the server has ended its session temporarily, and it came too late for that
    /// subscription.
    fn stays(&self, error: &ErrorBody, is_open: impl Fn(Session) -> bool) -> bool {
        let sent_before = self.sendings > 1;
        match (&error.code, &self.to) {
            _ if !self.resent || self.refusals >= REFUSALS_MAX => false,
            (ErrorCode::NoSession, To::Session(session)) => !is_open(*session),
            (ErrorCode::StoreFailed | ErrorCode::ShuttingDown, _) => error.retriable && (self.writes || sent_before),
            (ErrorCode::RateLimited | ErrorCode::Overloaded, _) => error.retriable && sent_before,
            _ => false,
        }
    }

    fn frame_bytes(&self) -> usize {
        // This adds the longest session id, and the field names and quotes around both ids.
        self.body.len() + self.id.as_str().len() + 64 + r#""id":"","sessionId":"","#.len()
    }
}

/// Returns the frame of a command.
fn frame(id: &CommandId, session: Option<&SessionId>, body: &str) -> String {
    // An id needs no escapes.
    let session = session.map(|session| format!(r#""sessionId":"{session}","#)).unwrap_or_default();
    format!(r#"{{"id":"{id}",{session}{}"#, &body[1..])
}
