//! Replies of sessions: which commands wait for one, how many may, and what a session that has ended leaves behind.

use super::{Connection, Speaks};
use crate::{
    metrics::{self, Outcome},
    runtime::{Outgoing, Replied, handle::REPLIES_MAX},
    server::{closing::Flow, relay::Resend},
    tools::mcp::ServerStatus,
};
use reseed_protocol::{
    CommandId, ErrorBody, ErrorCode, SessionId,
    command::{Command, Does},
    event::SubscriptionEnd,
    frame::encode_reply,
    reply::Reply,
};

/// A command that a session will answer.
pub(in crate::server) struct Unanswered {
    pub(in crate::server) id: CommandId,
    pub(in crate::server) session: SessionId,
    pub(in crate::server) name: &'static str,
    /// True if the session answers it without waiting for anything.
    pub(in crate::server) quick: bool,
    /// The link that it went over, if another node holds the session.
    pub(in crate::server) link: Option<u64>,
    /// Set if it can be sent to yet another node.
    pub(in crate::server) resend: Option<Box<Resend>>,
}

impl Unanswered {
    pub(in crate::server) fn new(id: CommandId, session: &SessionId, name: &'static str) -> Self {
        let quick = Command::spec_of(name).is_some_and(|spec| spec.does == Does::Transient);
        Self { id, session: session.clone(), name, quick, link: None, resend: None }
    }
}

/// Adds to a list of a connection that mostly has one item: by itself, a list begins with room for four.
pub(in crate::server) fn push_rare<T>(list: &mut Vec<T>, item: T) {
    if list.is_empty() {
        list.reserve_exact(1);
    }
    list.push(item);
}

impl Connection {
    /// Records that a command was sent to the session, which will answer it.
    pub(in crate::server) fn expect_reply(&mut self, id: CommandId, session: &SessionId, name: &'static str) {
        self.wait_for(Unanswered::new(id, session, name));
    }

    /// Adds a command that waits for its reply. Mostly no other one does.
    pub(in crate::server) fn wait_for(&mut self, command: Unanswered) {
        push_rare(&mut self.unanswered, command);
    }

    /// Returns true if another command may be read: fewer than half of [`REPLIES_MAX`] are unanswered of the quick
    /// ones, and of each session. Commands that wait for hooks of this client leave room, in each session, for its
    /// answers.
    pub(super) fn may_read(&self) -> bool {
        let most = REPLIES_MAX / 2;
        let routed = || self.relays.iter().flat_map(|relays| relays.sessions());
        if self.relays.as_ref().is_some_and(|relays| !relays.has_room()) || !self.may_keep() {
            return false;
        }
        if self.unanswered.len() < most {
            return true;
        }
        let of = |session: &SessionId| self.unanswered.iter().filter(|waiting| waiting.session == *session).count();
        self.unanswered.iter().filter(|waiting| waiting.quick).count() < most
            && self.unanswered.iter().filter(|waiting| waiting.resend.is_some()).count() < most
            && self
                .subscriptions
                .iter()
                .map(|subscription| &subscription.handle.id)
                .chain(routed())
                .all(|id| of(id) < most)
    }

    /// Answers the commands that a session which has ended will not answer.
    pub(in crate::server) async fn answer_for(&mut self, session: &SessionId, end: SubscriptionEnd) -> Flow {
        let error = match end {
            SubscriptionEnd::Deleted => {
                ErrorBody::new(ErrorCode::SessionNotFound, format!("you have no session `{session}` any more"))
            }
            SubscriptionEnd::Failed | SubscriptionEnd::Moved => self.app.session_gone(),
        };
        // A fork goes on: it needs no open session.
        let is_over = |waiting: &Unanswered| waiting.session == *session && waiting.name != "fork_session";
        let (ended, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.unanswered).into_iter().partition(is_over);
        self.unanswered = others;
        for Unanswered { id, name, .. } in ended {
            let reply = Reply::Error(error.clone());
            count_reply(name, &reply);
            self.send(encode_reply(Some(&id), Some(session), &reply)).await?;
        }
        Ok(())
    }

    /// Adds the MCP servers to a list of tools: they are the server's, and a session knows nothing of them.
    fn with_servers(&self, mut reply: Reply) -> Reply {
        if let (Reply::Tools(tools), Some(mcp)) = (&mut reply, &self.app.mcp) {
            tools.servers = mcp.status().iter().map(ServerStatus::shown).collect();
        }
        reply
    }

    /// Writes a session's reply or an event for this connection alone.
    pub(super) async fn outgoing(&mut self, outgoing: Outgoing) -> Flow {
        match outgoing {
            Outgoing::Reply(replied) => {
                let Replied { session, re: id, reply, room: _room } = *replied;
                let is_to = |waiting: &Unanswered| waiting.id == id && waiting.session == session;
                // One that was answered when its session ended gets no second reply.
                let Some(at) = self.unanswered.iter().position(is_to) else { return Ok(()) };
                count_reply(self.unanswered.remove(at).name, &reply);
                let reply = self.with_servers(reply);
                let frame = match self.speaks {
                    Speaks::V2 { .. } => Some(encode_reply(Some(&id), Some(&session), &reply)),
                    _ => self.v1.reply(&id, &reply),
                };
                if let Some(frame) = frame {
                    self.send(frame).await?;
                }
                Ok(())
            }
            // v1 has none of them.
            Outgoing::Event(event) => match self.speaks {
                Speaks::V2 { .. } => self.private(event).await,
                _ => Ok(()),
            },
        }
    }
}

/// Counts an answered command.
pub(in crate::server) fn count_reply(name: &'static str, reply: &Reply) {
    let outcome = match reply {
        Reply::Error(error) => Outcome::Error(error.code),
        _ => Outcome::Ok,
    };
    metrics::command_answered(name, outcome);
}
