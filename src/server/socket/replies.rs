//! Replies from sessions: which commands wait for one, how many may, and how they are answered if the session ends.

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
    frame::encode_reply,
    reply::Reply,
    session::SubscriptionEnd,
};

/// A command that a session will answer.
pub(in crate::server) struct Unanswered {
    pub(in crate::server) id: CommandId,
    pub(in crate::server) session: SessionId,
    pub(in crate::server) name: &'static str,
    /// True if the session answers it without waiting for anything.
    pub(in crate::server) quick: bool,
    /// The link that carried it, if another node holds the session.
    pub(in crate::server) link: Option<u64>,
    /// Set if it can be sent to another node.
    pub(in crate::server) resend: Option<Box<Resend>>,
}

impl Unanswered {
    pub(in crate::server) fn new(id: CommandId, session: &SessionId, name: &'static str) -> Self {
        let quick = Command::spec_of(name).is_some_and(|spec| spec.does == Does::Transient);
        Self { id, session: session.clone(), name, quick, link: None, resend: None }
    }
}

/// Adds to a connection's list that usually has one item. By default, a list starts with room for four.
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

    /// Adds a command that waits for its reply. Usually it is the only one.
    pub(in crate::server) fn wait_for(&mut self, command: Unanswered) {
        push_rare(&mut self.unanswered, command);
    }

    /// Returns true if another command may be read. Fewer than half of [`REPLIES_MAX`] may be unanswered: of the quick
    /// commands, of those that can be sent again, and of each session. The rest is for answers to this client's hooks,
    /// because commands may wait for these.
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

    /// Answers the commands that a session can no longer answer because it has ended.
    pub(in crate::server) async fn answer_for(&mut self, session: &SessionId, end: SubscriptionEnd) -> Flow {
        let error = match end {
            SubscriptionEnd::Deleted => {
                ErrorBody::new(ErrorCode::SessionNotFound, format!("you have no session `{session}` any more"))
            }
            SubscriptionEnd::Failed | SubscriptionEnd::Moved => self.app.session_gone(),
        };
        // A fork continues, because it needs no open session.
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

    /// Adds the MCP servers to a list of tools. They belong to the server, and a session does not know them.
    fn with_servers(&self, mut reply: Reply) -> Reply {
        if let (Reply::Tools(tools), Some(mcp)) = (&mut reply, &self.app.mcp) {
            tools.servers = mcp.status().iter().map(ServerStatus::shown).collect();
        }
        reply
    }

    /// Writes a session's reply, or an event that is only for this connection.
    pub(super) async fn outgoing(&mut self, outgoing: Outgoing) -> Flow {
        match outgoing {
            Outgoing::Reply(replied) => {
                let Replied { session, re: id, reply, room: _room } = *replied;
                let is_to = |waiting: &Unanswered| waiting.id == id && waiting.session == session;
                // A command that was answered when its session ended gets no second reply.
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
            // v1 has no such events.
            Outgoing::Event(event) => match self.speaks {
                Speaks::V2 { .. } => self.private(event).await,
                _ => Ok(()),
            },
        }
    }
}

pub(in crate::server) fn count_reply(name: &'static str, reply: &Reply) {
    let outcome = match reply {
        Reply::Error(error) => Outcome::Error(error.code),
        _ => Outcome::Ok,
    };
    metrics::command_answered(name, outcome);
}
