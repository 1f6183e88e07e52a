//! What sessions send to one connection besides their feeds: replies to its commands, and events for it alone.
//!
//! If a client does not read, all replies on their way to it are held. Each reply to `get_context` may have megabytes.
//! So each connection has a budget for the bytes of large replies, as it has for its events. A reply that does not fit
//! is replaced by `limit_reached`.

use super::handle::{Outgoing, Replied};
use crate::metrics::limits::Limit;
use reseed_protocol::{CommandId, ErrorBody, ErrorCode, SessionId, reply::Reply};
use std::{io, ops::Deref, sync::Arc};
use tokio::sync::{Semaphore, mpsc};

/// Maximum bytes of large replies that wait for one connection, or one reply if that is larger.
pub(crate) const REPLY_BYTES_MAX: usize = 16 * 1024 * 1024;

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
            let context = Context { envelope: None, markdown: Some("x".repeat(bytes)), tokens: 0, receipt: None };
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
