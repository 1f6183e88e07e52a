//! The edge's side of a relay: a client connection with its links to holders.
//!
//! A session is routed from the moment its `open_session` is forwarded. Its commands then go to its holder unchanged,
//! and the edge reads only the envelopes of the frames that come back. The edge parses commands first, so a holder
//! receives none that this version refuses.
//!
//! A command that any node can execute, such as `open_session`, is kept until it is answered. If its session has moved
//! in the meantime, the command is sent to the new holder.

use super::{
    link::{Dial, FromLink, Link},
    peek::Peek,
    routes::{Resend, Route, Then},
    wire::{self, Greeting, Rights, ToHolder},
};
use crate::{
    metrics::{self, Outcome},
    runtime::{SUBSCRIPTIONS_MAX, encoded::FrameText},
    server::{
        closing::Flow,
        socket::{Connection, Unanswered},
    },
    store::NodeRow,
};
use reseed_protocol::{CommandId, ErrorBody, ErrorCode, SessionId};

/// Bytes of commands that are kept until they are answered, or one command if that is larger. No command is read beyond
/// this limit.
const KEPT_BYTES_MAX: usize = 256 * 1024;

impl Connection {
    /// Returns true if the session's commands go to another node.
    pub(in crate::server) fn is_routed(&self, session: &SessionId) -> bool {
        self.relays.as_ref().is_some_and(|relays| relays.route(session).is_some())
    }

    /// Returns true if another node holds any session of this connection.
    pub(in crate::server) fn has_routes(&self) -> bool {
        self.relays.as_ref().is_some_and(|relays| !relays.routes.is_empty())
    }

    /// Returns true if the connection may subscribe to one more session.
    pub(in crate::server) fn may_subscribe(&self) -> bool {
        let routes = self.relays.as_ref().map_or(0, |relays| relays.routes.len());
        self.subscriptions.len() + routes < SUBSCRIPTIONS_MAX
    }

    /// Returns true if there is room to keep one more command for another attempt.
    pub(in crate::server) fn may_keep(&self) -> bool {
        let kept = self.unanswered.iter().filter_map(|waiting| waiting.resend.as_ref());
        kept.map(|resend| resend.text.len()).sum::<usize>() < KEPT_BYTES_MAX
    }

    /// Forwards a command to the holder of its session, which is routed.
    pub(in crate::server) fn pass_to_holder(
        &mut self,
        id: &CommandId,
        session: &SessionId,
        name: &'static str,
        text: &FrameText,
    ) {
        let Some(relays) = &mut self.relays else { return };
        let Some(route) = relays.route_mut(session) else { return };
        if name == "close_session" {
            route.then = Then::Closes;
        }
        let link = route.link;
        relays.push(link, text.clone());
        self.wait_for(Unanswered { link: Some(link), ..Unanswered::new(id.clone(), session, name) });
    }

    /// Forwards an `open_session` behind an unanswered `close_session` of the same session. Returns false if there is
    /// none.
    pub(in crate::server) fn reopen(&mut self, id: &CommandId, session: &SessionId, resend: Resend) -> bool {
        let Some(relays) = &mut self.relays else { return false };
        let closes = |route: &&mut Route| route.session == *session && route.then == Then::Closes;
        let Some(route) = relays.routes.iter_mut().find(closes) else { return false };
        route.then = Then::Reopens;
        let link = route.link;
        relays.push(link, resend.text.clone());
        let resend = Some(Box::new(resend));
        let waiting = Unanswered::new(id.clone(), session, "open_session");
        self.wait_for(Unanswered { link: Some(link), resend, ..waiting });
        true
    }

    /// Sends a command to the node that holds its session, which is not routed yet. `open_session` routes it.
    ///
    /// # Errors
    /// `overloaded`: the node cannot be reached from here.
    pub(in crate::server) fn send_to_node(
        &mut self,
        row: &NodeRow,
        id: &CommandId,
        session: &SessionId,
        name: &'static str,
        resend: Resend,
    ) -> Result<(), ErrorBody> {
        let link = self.link_to(row).ok_or_else(|| self.app.registry.held(session, row.id))?;
        let relays = self.relays.get_or_insert_default();
        relays.push(link, resend.text.clone());
        if name == "open_session" {
            relays.add_route(Route::opening(session.clone(), link));
        }
        let resend = Some(Box::new(resend));
        self.wait_for(Unanswered { link: Some(link), resend, ..Unanswered::new(id.clone(), session, name) });
        Ok(())
    }

    /// Returns the link to a node, and dials it if there is none. `None` if no nodes can be reached, or if this node
    /// has no address.
    fn link_to(&mut self, row: &NodeRow) -> Option<u64> {
        let relays = self.relays.get_or_insert_default();
        match relays.links.iter().find(|link| link.row.id == row.id) {
            Some(link) => Some(link.number),
            None => self.dial(row),
        }
    }

    fn dial(&mut self, row: &NodeRow) -> Option<u64> {
        let relays = self.relays.get_or_insert_default();
        let keeper = self.app.registry.keeper()?.clone();
        let identity = &self.shared.identity;
        let greeting = Greeting {
            node: row.id.0,
            from: keeper.me().0,
            connection_id: identity.connection_id.clone(),
            client_id: identity.client_id.clone(),
            client: identity.software.clone(),
            name: self.name.clone().unwrap_or_default(),
            rights: Rights::of(self.grant.as_ref()?),
        };
        let dial = Dial {
            row: row.clone(),
            address: row.node.address.clone()?,
            token: self.app.node_token.clone()?,
            greeting: wire::encoded(&ToHolder::Greeting(Box::new(greeting))),
            heartbeat: self.app.patience.heartbeat,
            keeper,
        };
        let number = relays.next;
        relays.next += 1;
        relays.add_link(Link::dial(dial, number, relays.to_self.clone()));
        Some(number)
    }

    /// Informs the holders that the client has renewed its credentials.
    pub(in crate::server) fn renew_links(&mut self) {
        let (Some(relays), Some(grant)) = (&mut self.relays, &self.grant) else { return };
        let renewal = FrameText::from(wire::encoded(&ToHolder::Renewal(Rights::of(grant))));
        let links: Vec<u64> = relays.links.iter().map(|link| link.number).collect();
        links.into_iter().for_each(|link| relays.push(link, renewal.clone()));
    }

    /// Handles a message from a link.
    pub(in crate::server) async fn hear(&mut self, link: u64, from: FromLink) -> Flow {
        match from {
            FromLink::Frames(frames) => {
                for frame in frames {
                    self.pass_to_client(link, frame).await?;
                }
            }
            FromLink::Lost(end) => self.lost(link, &end).await?,
        }
        self.close_idle_links();
        self.flush().await
    }

    async fn pass_to_client(&mut self, link: u64, frame: FrameText) -> Flow {
        self.still_granted()?;
        let Some(peek) = Peek::at(&frame) else { return Ok(()) };
        if let Some(re) = &peek.re {
            let is_it = |waiting: &Unanswered| {
                waiting.link == Some(link)
                    && waiting.id.as_str() == re
                    // A repeated command that creates a session may return a different session than the one it was sent
                    // for.
                    && (waiting.name == "open_session"
                        || peek.session_id.as_ref().is_none_or(|session| waiting.session.as_str() == session))
            };
            // A command that was answered when its session ended gets no second reply.
            let Some(at) = self.unanswered.iter().position(is_it) else { return Ok(()) };
            let mut waiting = self.unanswered.remove(at);
            if let Some(session) = peek.session_id.as_ref().and_then(|session| session.parse().ok()) {
                self.renamed(&mut waiting, session);
            }
            let refused = if peek.is("error") { Some(error_code(&frame)) } else { None };
            if peek.is(wire::WRONG_NODE) || refused == Some(ErrorCode::ShuttingDown) && waiting.resend.is_some() {
                let from = self.relays.as_ref().and_then(|relays| relays.node_of(link)).filter(|_| refused.is_some());
                return Box::pin(self.look_again(waiting, from)).await;
            }
            metrics::command_answered(waiting.name, refused.map_or(Outcome::Ok, Outcome::Error));
            self.answered(&waiting, refused.is_none());
            return self.send(frame).await;
        }
        // An event without a session, or of a session that the client has left in the meantime.
        let Some(relays) = &mut self.relays else { return Ok(()) };
        let of = |route: &&mut Route| route.link == link && Some(route.session.as_str()) == peek.session_id.as_deref();
        // An event that arrives before the reply to `open_session` belongs to a subscription that has already ended
        // here.
        let Some(route) = relays.routes.iter_mut().find(of).filter(|route| route.is_open) else { return Ok(()) };
        if peek.is("session_closed") {
            let session = route.session.clone();
            relays.forget(&session);
        }
        self.send(frame).await
    }

    /// Routes the session that a reply names, instead of the session that its command was sent for.
    fn renamed(&mut self, waiting: &mut Unanswered, session: SessionId) {
        if waiting.session == session {
            return;
        }
        let routes = self.relays.iter_mut().flat_map(|relays| &mut relays.routes);
        if let Some(route) = routes.into_iter().find(|route| route.session == waiting.session) {
            route.session = session.clone();
        }
        waiting.session = session;
    }

    /// Updates the routes after a holder's reply.
    fn answered(&mut self, waiting: &Unanswered, is_ok: bool) {
        let Some(relays) = &mut self.relays else { return };
        match waiting.name {
            "open_session" if is_ok => {
                // The holder may have ended an older subscription in the meantime, which removed the route.
                if relays.route(&waiting.session).is_none()
                    && let Some(link) = waiting.link
                {
                    relays.add_route(Route::opening(waiting.session.clone(), link));
                }
                let Some(route) = relays.route_mut(&waiting.session) else { return };
                route.is_open = true;
            }
            "open_session" => relays.forget(&waiting.session),
            "close_session" => {
                let Some(route) = relays.route_mut(&waiting.session) else { return };
                let others = || self.unanswered.iter().filter(|other| other.session == waiting.session);
                let is_reopened = others().any(|other| other.name == "open_session");
                let then = route.then;
                // If another `close_session` is on its way, it has set the state of the route, which holds until its
                // reply.
                if !others().any(|other| other.name == "close_session") {
                    route.then = Then::Stays;
                }
                match then {
                    Then::Reopens => route.is_open = false,
                    // Several commands of both kinds were on their way.
                    _ if is_reopened => route.is_open = false,
                    _ if is_ok => relays.forget(&waiting.session),
                    _ => {}
                }
            }
            "delete_session" if is_ok => relays.forget(&waiting.session),
            _ => {}
        }
    }

    /// Closes links that carry no session and no command.
    fn close_idle_links(&mut self) {
        let Some(relays) = &mut self.relays else { return };
        let unanswered = &self.unanswered;
        let (routes, waiting) = (&relays.routes, &relays.waiting);
        relays.links.retain(|link| {
            routes.iter().any(|route| route.link == link.number)
                || unanswered.iter().any(|command| command.link == Some(link.number))
                || waiting.iter().any(|(number, _)| *number == link.number)
        });
        if relays.links.is_empty() && relays.routes.is_empty() {
            self.relays = None;
        }
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
