//! Replies from sessions, and the answers to commands whose session has ended.

use super::{Connection, count_reply, subscriptions::Unanswered};
use crate::{
    runtime::{Outgoing, Private, Replied},
    server::closing::Flow,
    tools::mcp::ServerStatus,
};
use reseed_protocol::{ErrorBody, ErrorCode, SessionId, frame::encode_reply, reply::Reply, session::SubscriptionEnd};

impl Connection {
    /// Returns true if another command may be read.
    pub(in crate::server) fn may_read(&self) -> bool {
        self.subscriptions.may_read() && self.links.as_ref().is_none_or(|links| links.may_read())
    }

    /// Returns an error as the client gets it. The client of another node does not learn that this one is stopping,
    /// because its own server is not.
    pub(in crate::server) fn for_client(&self, error: ErrorBody) -> ErrorBody {
        if self.via.is_none() || error.code != ErrorCode::ShuttingDown {
            return error;
        }
        let message =
            "the session moves to another server; open it again, and send the command again with the same `id`";
        ErrorBody::new(ErrorCode::StoreFailed, message)
    }

    /// Answers the commands that a session can no longer answer because it has ended.
    pub(super) async fn answer_for(&mut self, session: &SessionId, end: SubscriptionEnd) -> Flow {
        let error = match end {
            SubscriptionEnd::Deleted => {
                ErrorBody::new(ErrorCode::SessionNotFound, format!("you have no session `{session}` any more"))
            }
            SubscriptionEnd::Failed | SubscriptionEnd::Moved => self.for_client(self.app.session_gone()),
        };
        for Unanswered { id, name, .. } in self.subscriptions.unanswerable(session) {
            let reply = Reply::Error(error.clone());
            count_reply(name, &reply);
            self.send(encode_reply(Some(&id), Some(session), &reply)).await?;
        }
        Ok(())
    }

    /// Returns a session's reply as the client gets it. The MCP servers belong to the server, and a session does not
    /// know them.
    fn completed(&self, reply: Reply) -> Reply {
        match (reply, &self.app.mcp) {
            (Reply::Error(error), _) => Reply::Error(self.for_client(error)),
            (Reply::Tools(mut tools), Some(mcp)) => {
                tools.servers = mcp.status().iter().map(ServerStatus::shown).collect();
                Reply::Tools(tools)
            }
            (reply, _) => reply,
        }
    }

    /// Writes a session's reply, or an event that is only for this connection.
    pub(in crate::server) async fn outgoing(&mut self, outgoing: Outgoing) -> Flow {
        match outgoing {
            Outgoing::Reply(replied) => {
                let Replied { session, re: id, reply, room: _room } = *replied;
                // A command that was answered when its session ended gets no second reply.
                let Some(Unanswered { name, .. }) = self.subscriptions.answered(&id, &session) else { return Ok(()) };
                count_reply(name, &reply);
                let reply = self.completed(reply);
                match self.dialect.reply(&session, &id, &reply) {
                    Some(frame) => self.send(frame).await,
                    None => Ok(()),
                }
            }
            Outgoing::Event(_) if !self.dialect.has_ephemeral_events() => Ok(()),
            Outgoing::Event(event) => self.private(event).await,
        }
    }

    /// Takes an event that is only for this connection.
    async fn private(&mut self, event: Box<Private>) -> Flow {
        let session = event.session.clone();
        // A connection that has left the session does not receive it.
        let Some(subscription) = self.subscriptions.of_mut(&session) else { return Ok(()) };
        subscription.early.push_back(event);
        self.send_private(&session).await
    }

    /// Sends the events for this connection only that no longer wait for a durable one.
    pub(super) async fn send_private(&mut self, session: &SessionId) -> Flow {
        while let Some(subscription) = self.subscriptions.of_mut(session)
            && let Some(event) = subscription.early.pop_front_if(|event| event.after <= subscription.written)
        {
            self.send(event.frame).await?;
        }
        Ok(())
    }
}
