//! What sessions send to one connection besides their feeds: replies to its commands, and events for it alone.
//!
//! If a client does not read, all replies on their way to it are held. Each reply to `get_context` may have megabytes.
//! So each connection has a budget for the bytes of large replies, as it has for its events. A reply that does not fit
//! is replaced by `limit_reached`.

use crate::metrics::limits::Limit;
use reseed_protocol::{CommandId, ErrorBody, ErrorCode, SessionId, reply::Reply};
use std::{io, ops::Deref, sync::Arc};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Maximum number of replies and events of one session that wait for a connection. A connection stops reading commands
/// when half as many are unanswered. Events leave that half to the replies.
pub const REPLIES_MAX: usize = 64;

/// Maximum bytes of large replies that wait for one connection, or one reply if that is larger.
pub(crate) const REPLY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A message from a session to one connection, besides its feed. It is small, because a connection's channel reserves
/// room for 32 from the start.
#[derive(Debug)]
pub enum Outgoing {
    /// The session's reply to one of the connection's own commands.
    Reply(Box<Replied>),
    /// An ephemeral event for this connection only.
    Event(Box<Private>),
}

/// A reply and the command that it answers.
#[derive(Debug)]
pub struct Replied {
    /// The session.
    pub session: SessionId,
    /// The command.
    pub re: CommandId,
    /// The reply.
    pub reply: Reply,
    /// The space that a large reply takes in the connection's queue, released when it is written or dropped.
    pub(crate) room: Option<OwnedSemaphorePermit>,
}

/// An ephemeral event for one connection.
#[derive(Debug)]
pub struct Private {
    /// The session that it belongs to. A connection that has left that session does not receive it.
    pub session: SessionId,
    /// It is sent once the connection has sent all durable events up to this one, to which it may refer.
    pub after: u64,
    /// The complete frame.
    pub frame: String,
    /// The space that it takes in the connection's queue, released when it is written or dropped.
    pub(super) _room: OwnedSemaphorePermit,
}

/// The sending side of a connection's channel.
#[derive(Debug, Clone)]
pub struct Outbox {
    channel: mpsc::Sender<Outgoing>,
    /// Room for large replies, in bytes.
    room: Arc<Semaphore>,
}

impl Outbox {
    /// Creates a channel with room for this many messages.
    #[must_use]
    pub fn new(messages: usize) -> (Self, mpsc::Receiver<Outgoing>) {
        let (channel, incoming) = mpsc::channel(messages);
        (Self { channel, room: Arc::new(Semaphore::new(REPLY_BYTES_MAX)) }, incoming)
    }

    /// Sends the session's reply to a command. A connection stops reading commands before its channel has no room for
    /// replies. So this fails only if the connection is gone, and its client sends the command again elsewhere.
    pub(super) fn reply(&self, session: SessionId, re: CommandId, reply: Reply) {
        let bytes = large_bytes(&reply).min(REPLY_BYTES_MAX);
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        let (reply, room) = match self.room.clone().try_acquire_many_owned(permits) {
            Ok(room) => (reply, (bytes > 0).then_some(room)),
            Err(_) => (Reply::Error(no_room()), None),
        };
        let _ = self.channel.try_send(Outgoing::Reply(Box::new(Replied { session, re, reply, room })));
    }
}

impl Deref for Outbox {
    type Target = mpsc::Sender<Outgoing>;

    fn deref(&self) -> &Self::Target {
        &self.channel
    }
}

fn no_room() -> ErrorBody {
    Limit::ReplyBytes.refused();
    let message = format!(
        "replies of {REPLY_BYTES_MAX} bytes wait for this connection to read them (the limit); read them, then send \
         the command again"
    );
    let details = serde_json::json!({ "limit": Limit::ReplyBytes.as_str(), "max": REPLY_BYTES_MAX });
    ErrorBody::new(ErrorCode::LimitReached, message).with_details(details)
}

/// Returns the bytes of a reply that may be large. Other replies are too small to count, and return 0.
fn large_bytes(reply: &Reply) -> usize {
    match reply {
        Reply::Context(context) => {
            let mut counted = Counted(0);
            // A context serialises to JSON, so counting cannot fail.
            let _ = serde_json::to_writer(&mut counted, context);
            counted.0
        }
        _ => 0,
    }
}

struct Counted(usize);

impl io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reseed_protocol::{context::Context, reply::Done};

    #[test]
    fn large_replies_wait_within_a_budget_and_small_ones_always_fit() {
        let (outbox, mut incoming) = Outbox::new(8);
        let send = |reply: Reply| outbox.reply("session".parse().unwrap(), "command".parse().unwrap(), reply);
        let context = |bytes: usize| {
            let context =
                Context { envelope: None, markdown: Some("x".repeat(bytes)), tokens: 0, receipt: None, answered: None };
            Reply::Context(Box::new(context))
        };
        let mut code = || match incoming.try_recv() {
            Ok(Outgoing::Reply(replied)) => match replied.reply {
                Reply::Error(error) => Some(error.code),
                _ => None,
            },
            other => panic!("no reply: {other:?}"),
        };
        send(context(REPLY_BYTES_MAX));
        send(context(1));
        send(Reply::Ok(Done::default()));
        assert_eq!([code(), code(), code()], [None, Some(ErrorCode::LimitReached), None]);
        send(context(REPLY_BYTES_MAX / 2));
        assert_eq!(code(), None, "what was read gives its room back");
    }
}
