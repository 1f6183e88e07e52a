//! The edge's side of a relay: the links of a client connection, and the sessions and commands that they carry.
//!
//! A holder answers in order, so its replies say which sessions the client is subscribed to there: `session_opened`
//! adds a route, and the reply to `close_session` or `delete_session` removes it, as `session_closed` does. A session's
//! commands go to its link, unchanged. The edge parses them first, so a holder receives none that this version refuses.

use super::{
    link::{Dial, Link, Told},
    wire::Peek,
};
use crate::{
    metrics::{self, Outcome},
    runtime::{encoded::FrameText, outbox::REPLIES_MAX},
    store::NodeId,
    trace::Span,
};
use reseed_protocol::{CommandId, ErrorCode, SessionId};
use tokio::sync::mpsc;

/// The links of a client connection.
#[derive(Debug)]
pub(in crate::server) struct Links {
    next: u64,
    /// At most one per holder.
    links: Vec<Link>,
    /// The sessions that the client is subscribed to at other nodes. With those at this node and those being opened,
    /// at most [`SUBSCRIPTIONS_MAX`](crate::runtime::SUBSCRIPTIONS_MAX).
    routes: Vec<Route>,
    /// The commands that holders have not answered yet.
    unanswered: Vec<Forwarded>,
    to_self: mpsc::Sender<Told>,
    from_links: mpsc::Receiver<Told>,
}

#[derive(Debug)]
struct Route {
    session: SessionId,
    link: u64,
}

/// A command that a holder will answer.
#[derive(Debug)]
pub(in crate::server) struct Forwarded {
    pub(in crate::server) id: CommandId,
    pub(in crate::server) session: SessionId,
    pub(in crate::server) name: &'static str,
    link: u64,
    span: Span,
}

/// What ends with a link.
#[derive(Debug)]
pub(in crate::server) struct Ended {
    pub(in crate::server) node: NodeId,
    pub(in crate::server) sessions: Vec<SessionId>,
    pub(in crate::server) unanswered: Vec<Forwarded>,
}

impl Default for Links {
    fn default() -> Self {
        // Frames that the client does not take stay with the holder.
        let (to_self, from_links) = mpsc::channel(1);
        Self { next: 0, links: Vec::new(), routes: Vec::new(), unanswered: Vec::new(), to_self, from_links }
    }
}

impl Links {
    /// Returns the link of a session that the client has open at another node, or is opening there.
    pub(in crate::server) fn of(&self, session: &SessionId) -> Option<u64> {
        let route = self.routes.iter().find(|route| route.session == *session).map(|route| route.link);
        route.or_else(|| self.opening().find(|open| open.session == *session).map(|open| open.link))
    }

    fn opening(&self) -> impl Iterator<Item = &Forwarded> {
        self.unanswered.iter().filter(|command| command.name == "open_session")
    }

    /// Returns the number of sessions that are open at other nodes, or being opened.
    pub(in crate::server) fn session_count(&self) -> usize {
        self.routes.len() + self.opening().count()
    }

    /// Returns true if the client's next command may be read: every link can take a frame, and neither a session nor
    /// the commands about other sessions have too many unanswered ones.
    pub(in crate::server) fn may_read(&self) -> bool {
        let is_of = |route: &Route, command: &Forwarded| route.session == command.session;
        let of = |route: &Route| self.unanswered.iter().filter(|command| is_of(route, command)).count();
        let others = self.unanswered.iter().filter(|command| !self.routes.iter().any(|route| is_of(route, command)));
        self.links.iter().all(Link::has_room)
            && others.count() < REPLIES_MAX / 2
            && self.routes.iter().all(|route| of(route) < REPLIES_MAX / 2)
    }

    /// Returns the link to a node, if there is one.
    pub(in crate::server) fn to(&self, node: NodeId) -> Option<u64> {
        self.links.iter().find(|link| link.holder == node).map(|link| link.number)
    }

    /// Dials a node, and returns the link.
    pub(in crate::server) fn dial(&mut self, dial: Dial) -> u64 {
        let number = self.next;
        self.next += 1;
        self.links.push(Link::dial(dial, number, self.to_self.clone()));
        number
    }

    /// Forwards a command.
    pub(in crate::server) fn forward(
        &mut self,
        link: u64,
        (id, session, name): (&CommandId, &SessionId, &'static str),
        text: &FrameText,
        span: Span,
    ) {
        self.unanswered.push(Forwarded { id: id.clone(), session: session.clone(), name, link, span });
        self.links.iter().filter(|found| found.number == link).for_each(|found| found.push(text.clone()));
    }

    /// Sends a frame to every holder.
    pub(in crate::server) fn tell_all(&self, frame: &FrameText) {
        self.links.iter().for_each(|link| link.push(frame.clone()));
    }

    /// Takes note of a holder's frame. Returns true if it goes to the client.
    pub(in crate::server) fn passes(&mut self, link: u64, frame: &str) -> bool {
        let Some(Peek { re, session_id, kind }) = Peek::of(frame) else { return false };
        let session: Option<SessionId> = session_id.and_then(|session| session.parse().ok());
        let Some(re) = re else {
            // The client may have left the session in the meantime.
            let is_it = |route: &Route| route.link == link && Some(&route.session) == session.as_ref();
            let Some(at) = self.routes.iter().position(is_it) else { return false };
            if kind == "session_closed" {
                self.routes.swap_remove(at);
            }
            return true;
        };
        let is_it = |command: &Forwarded| {
            command.link == link
                && command.id.as_str() == re
                // A repeated command that creates a session may return another session than it was sent for.
                && (command.name == "open_session" || session.as_ref().is_none_or(|of| command.session == *of))
        };
        let Some(at) = self.unanswered.iter().position(is_it) else { return false };
        let Forwarded { name, session: sent_for, span, .. } = self.unanswered.remove(at);
        let refused = (kind == "error").then(|| error_code(frame));
        match refused {
            Some(code) => span.fail(code.as_str()),
            None => span.end(),
        }
        metrics::command_answered(name, refused.map_or(Outcome::Ok, Outcome::Error));
        let session = session.unwrap_or(sent_for);
        if refused.is_none() && matches!(name, "open_session" | "close_session" | "delete_session") {
            self.routes.retain(|route| route.session != session);
            if name == "open_session" {
                self.routes.push(Route { session, link });
            }
        }
        true
    }

    /// Removes a link that has ended. Returns what ends with it.
    pub(in crate::server) fn lost(&mut self, number: u64) -> Option<Ended> {
        let at = self.links.iter().position(|link| link.number == number)?;
        let node = self.links.swap_remove(at).holder;
        let routes = self.routes.extract_if(.., |route| route.link == number);
        let sessions = routes.map(|route| route.session).collect();
        let unanswered = self.unanswered.extract_if(.., |command| command.link == number).collect();
        Some(Ended { node, sessions, unanswered })
    }

    /// Closes the links that carry no session and no command. Returns true if none is left.
    pub(in crate::server) fn close_idle(&mut self) -> bool {
        let Self { links, routes, unanswered, .. } = self;
        links.retain(|link| {
            routes.iter().any(|route| route.link == link.number)
                || unanswered.iter().any(|command| command.link == link.number)
        });
        links.is_empty()
    }

    async fn arrived(&mut self) -> Option<Told> {
        let room = async {
            match self.links.iter().find(|link| !link.has_room()) {
                Some(link) => link.room().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            told = self.from_links.recv() => told,
            () = room => None,
        }
    }
}

/// Waits for a holder's frame, or for room for the client's. In the latter case it returns `None`. Waits indefinitely
/// if there are no links. Cancel safe. Boxed, because few connections have links.
pub(in crate::server) async fn arrived(links: &mut Option<Box<Links>>) -> Option<Told> {
    match links {
        Some(links) => Box::pin(links.arrived()).await,
        None => std::future::pending().await,
    }
}

/// Returns the code of an error reply.
fn error_code(frame: &str) -> ErrorCode {
    #[derive(serde::Deserialize)]
    struct Coded {
        code: ErrorCode,
    }
    #[derive(serde::Deserialize)]
    struct Refusal {
        payload: Coded,
    }
    // A newer version may have other codes. They are forwarded, and counted as `internal`.
    serde_json::from_str::<Refusal>(frame).map_or(ErrorCode::Internal, |refusal| refusal.payload.code)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames of the client and of the holder, and what is expected after each.
    #[test]
    fn the_holders_replies_say_which_sessions_are_open() {
        let mut links = Links::default();
        let session: SessionId = "s".parse().unwrap();
        let forward = |links: &mut Links, id: &str, name: &'static str| {
            links.forward(
                0,
                (&id.parse().unwrap(), &session, name),
                &FrameText::from("{}".to_owned()),
                Span::default(),
            );
        };
        let event = r#"{"sessionId":"s","type":"turn_started","payload":{}}"#;
        let reply = |re: &str, kind: &str| format!(r#"{{"re":"{re}","sessionId":"s","type":"{kind}","payload":{{}}}}"#);
        forward(&mut links, "1", "open_session");
        assert_eq!((links.of(&session), links.session_count()), (Some(0), 1), "it is being opened");
        assert!(!links.passes(0, event), "an event of an earlier subscription");
        assert!(links.passes(0, &reply("1", "session_opened")) && links.passes(0, event));
        assert!(!links.passes(1, event), "another node's");
        forward(&mut links, "2", "close_session");
        forward(&mut links, "3", "open_session");
        assert!(links.passes(0, event), "the holder has not closed it yet");
        assert!(links.passes(0, &reply("2", "ok")) && !links.passes(0, event));
        assert_eq!((links.of(&session), links.session_count()), (Some(0), 1), "it is being opened again");
        assert!(links.passes(0, &reply("3", "session_opened")) && links.passes(0, event));
        assert!(!links.passes(0, &reply("3", "session_opened")), "a second reply");
        assert!(links.passes(0, r#"{"sessionId":"s","type":"session_closed","payload":{"code":"moved"}}"#));
        assert_eq!((links.of(&session), links.passes(0, event)), (None, false));
        forward(&mut links, "4", "open_session");
        let refused = r#"{"re":"4","sessionId":"s","type":"error","payload":{"code":"overloaded"}}"#;
        assert!(links.passes(0, refused) && links.of(&session).is_none());
    }
}
