//! The edge's side: a client connection with its links to holders.
//!
//! A session is routed from the moment at which its `open_session` is passed on. Its commands then go to its holder as
//! they came, and its frames come back as they are; of these, the edge reads the envelope. Commands are parsed here
//! first, so a holder gets none that this version refuses.
//!
//! A command that can be carried out by any node, such as `open_session`, is kept until it is answered: if its session
//! is somewhere else by now, it is sent there.

use super::{
    link::{Dial, FromLink, Link, LinkEnd},
    peek::Peek,
    wire::{self, Greeting, Rights, ToHolder},
};
use crate::{
    metrics::{self, Outcome},
    runtime::{Place, SUBSCRIPTIONS_MAX, encoded::FrameText},
    server::{
        closing::Flow,
        socket::{Connection, Unanswered},
        v2,
    },
    store::{NodeId, NodeRow},
};
use reseed_protocol::{
    CommandId, ErrorBody, ErrorCode, SessionId, event::SubscriptionEnd, frame::encode_event, frame::encode_reply,
    reply::Reply,
};
use std::collections::VecDeque;
use tokio::sync::mpsc;

/// How often a command is sent on to where its session is by now.
const ATTEMPTS_MAX: u8 = 2;

/// Bytes of commands that are kept until they are answered, or one command: with more, no further one is read.
const KEPT_BYTES_MAX: usize = 256 * 1024;

/// The links of a client connection.
#[derive(Debug)]
pub(in crate::server) struct Relays {
    next: u64,
    /// At most one for each holder.
    links: Vec<Link>,
    /// Together with the subscriptions of this node at most [`SUBSCRIPTIONS_MAX`].
    routes: Vec<Route>,
    /// Frames for which a link had no room. While there are any, the client is not read.
    waiting: VecDeque<(u64, FrameText)>,
    to_self: mpsc::Sender<(u64, FromLink)>,
    from_links: mpsc::Receiver<(u64, FromLink)>,
}

/// A session that another node holds.
#[derive(Debug)]
struct Route {
    session: SessionId,
    link: u64,
    /// True once its `open_session` was answered.
    is_open: bool,
    /// Says what the client has asked for since.
    then: Then,
}

/// Says what becomes of a route once the commands on their way are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Stays,
    /// It is being closed.
    Closes,
    /// It is being closed, and opened again at the same node.
    Reopens,
}

/// A command that may have to be sent again, to another node.
#[derive(Debug)]
pub(in crate::server) struct Resend {
    pub(in crate::server) text: FrameText,
    /// How often its session was looked for before.
    pub(in crate::server) attempts: u8,
}

impl Default for Relays {
    fn default() -> Self {
        // Room for one batch: whatever the client does not take stays with the holder.
        let (to_self, from_links) = mpsc::channel(1);
        let (links, routes, waiting) = (Vec::new(), Vec::new(), VecDeque::new());
        Self { next: 0, links, routes, waiting, to_self, from_links }
    }
}

impl Relays {
    fn push(&mut self, link: u64, frame: FrameText) {
        let Some(found) = self.links.iter().find(|found| found.number == link) else { return };
        let frame = match self.waiting.iter().any(|(waiting, _)| *waiting == link) {
            true => Some(frame),
            // A link that is over has said so, or will.
            false => match found.to_holder.try_send(frame) {
                Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => None,
                Err(mpsc::error::TrySendError::Full(frame)) => Some(frame),
            },
        };
        self.waiting.extend(frame.map(|frame| (link, frame)));
    }

    async fn arrived(&mut self) -> Option<(u64, FromLink)> {
        let Self { from_links, links, waiting, .. } = self;
        let Some((number, _)) = waiting.front() else { return from_links.recv().await };
        let link = links.iter().find(|link| link.number == *number);
        let room = async {
            match link {
                Some(link) => link.to_holder.reserve().await.ok(),
                None => None,
            }
        };
        tokio::select! {
            from = from_links.recv() => from,
            permit = room => {
                if let (Some((_, frame)), Some(permit)) = (waiting.pop_front(), permit) {
                    permit.send(frame);
                }
                None
            }
        }
    }

    /// Returns true if every frame was given to its link.
    pub(in crate::server) fn has_room(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the routed sessions.
    pub(in crate::server) fn sessions(&self) -> impl Iterator<Item = &SessionId> {
        self.routes.iter().map(|route| &route.session)
    }

    fn route(&self, session: &SessionId) -> Option<&Route> {
        self.routes.iter().find(|route| route.session == *session)
    }

    fn forget(&mut self, session: &SessionId) {
        self.routes.retain(|route| route.session != *session);
    }
}

/// Waits for a holder's frames, or for room for the client's; in that case returns `None`. Forever without links.
/// Cancel safe. Boxed: few connections have links.
pub(in crate::server) async fn arrived(relays: &mut Option<Box<Relays>>) -> Option<(u64, FromLink)> {
    match relays {
        Some(relays) => Box::pin(relays.arrived()).await,
        None => std::future::pending().await,
    }
}

impl Connection {
    /// Returns true if the session's commands go to another node.
    pub(in crate::server) fn is_routed(&self, session: &SessionId) -> bool {
        self.relays.as_ref().is_some_and(|relays| relays.route(session).is_some())
    }

    /// Returns true if any session of this connection is another node's.
    pub(in crate::server) fn has_routes(&self) -> bool {
        self.relays.as_ref().is_some_and(|relays| !relays.routes.is_empty())
    }

    /// Returns true if the connection may subscribe to one session more.
    pub(in crate::server) fn may_subscribe(&self) -> bool {
        let routes = self.relays.as_ref().map_or(0, |relays| relays.routes.len());
        self.subscriptions.len() + routes < SUBSCRIPTIONS_MAX
    }

    /// Returns true if the commands that are kept for another attempt leave room for one more.
    pub(in crate::server) fn may_keep(&self) -> bool {
        let kept = self.unanswered.iter().filter_map(|waiting| waiting.resend.as_ref());
        kept.map(|resend| resend.text.len()).sum::<usize>() < KEPT_BYTES_MAX
    }

    /// Passes a command on to the holder of its session, which is routed.
    pub(in crate::server) fn pass_to_holder(
        &mut self,
        id: &CommandId,
        session: &SessionId,
        name: &'static str,
        text: &FrameText,
    ) {
        let Some(relays) = &mut self.relays else { return };
        let Some(route) = relays.routes.iter_mut().find(|route| route.session == *session) else { return };
        if name == "close_session" {
            route.then = Then::Closes;
        }
        let link = route.link;
        relays.push(link, text.clone());
        self.unanswered.push(Unanswered { link: Some(link), ..Unanswered::new(id.clone(), session, name) });
    }

    /// Passes an `open_session` on behind a `close_session` of the same session that is not answered yet. Returns false
    /// if there is none.
    pub(in crate::server) fn reopen(&mut self, id: &CommandId, session: &SessionId, resend: Resend) -> bool {
        let Some(relays) = &mut self.relays else { return false };
        let closes = |route: &&mut Route| route.session == *session && route.then == Then::Closes;
        let Some(route) = relays.routes.iter_mut().find(closes) else { return false };
        route.then = Then::Reopens;
        let link = route.link;
        relays.push(link, resend.text.clone());
        let resend = Some(Box::new(resend));
        let waiting = Unanswered::new(id.clone(), session, "open_session");
        self.unanswered.push(Unanswered { link: Some(link), resend, ..waiting });
        true
    }

    /// Sends a command to a node that holds its session, which is not routed yet; `open_session` routes it.
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
            relays.routes.push(Route { session: session.clone(), link, is_open: false, then: Then::Stays });
        }
        let resend = Some(Box::new(resend));
        self.unanswered.push(Unanswered { link: Some(link), resend, ..Unanswered::new(id.clone(), session, name) });
        Ok(())
    }

    /// Returns the link to a node, dialled now if there is none; `None` if nodes cannot be reached at all, or this one
    /// has no address.
    fn link_to(&mut self, row: &NodeRow) -> Option<u64> {
        let relays = self.relays.get_or_insert_default();
        if let Some(link) = relays.links.iter().find(|link| link.node == row.id) {
            return Some(link.number);
        }
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
            node: row.id,
            address: row.node.address.clone()?,
            token: self.app.node_token.clone()?,
            greeting: wire::encoded(&ToHolder::Greeting(Box::new(greeting))),
            heartbeat: self.app.patience.heartbeat,
            keeper,
        };
        let number = relays.next;
        relays.next += 1;
        relays.links.push(Link::dial(dial, number, relays.to_self.clone()));
        Some(number)
    }

    /// Tells the holders that the client has renewed its credentials.
    pub(in crate::server) fn renew_links(&mut self) {
        let (Some(relays), Some(grant)) = (&mut self.relays, &self.grant) else { return };
        let renewal = FrameText::from(wire::encoded(&ToHolder::Renewal(Rights::of(grant))));
        let links: Vec<u64> = relays.links.iter().map(|link| link.number).collect();
        links.into_iter().for_each(|link| relays.push(link, renewal.clone()));
    }

    /// Takes what a link tells.
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
                    // One that creates a session may have made another one than it made before.
                    && (waiting.name == "open_session"
                        || peek.session_id.as_ref().is_none_or(|session| waiting.session.as_str() == session))
            };
            // One that was answered when its session ended gets no second reply.
            let Some(at) = self.unanswered.iter().position(is_it) else { return Ok(()) };
            let mut waiting = self.unanswered.remove(at);
            if let Some(session) = peek.session_id.as_ref().and_then(|session| session.parse().ok()) {
                self.renamed(&mut waiting, session);
            }
            let refused = if peek.is("error") { Some(error_code(&frame)) } else { None };
            if peek.is(wire::WRONG_NODE) || refused == Some(ErrorCode::ShuttingDown) && waiting.resend.is_some() {
                let from = self.node_of(link).filter(|_| refused.is_some());
                return Box::pin(self.look_again(waiting, from)).await;
            }
            metrics::command_answered(waiting.name, refused.map_or(Outcome::Ok, Outcome::Error));
            self.answered(&waiting, refused.is_none());
            return self.send(frame).await;
        }
        // An event of a session that the client has left meanwhile, or of none.
        let relays = self.relays.as_mut();
        let Some(relays) = relays else { return Ok(()) };
        let of = |route: &&Route| route.link == link && Some(route.session.as_str()) == peek.session_id.as_deref();
        let Some(session) = relays.routes.iter().find(of).map(|route| route.session.clone()) else { return Ok(()) };
        if peek.is("session_closed") {
            relays.forget(&session);
        }
        self.send(frame).await
    }

    /// Routes the session that a reply names instead of the one that its command was sent for.
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

    /// Draws the conclusions from a holder's reply.
    fn answered(&mut self, waiting: &Unanswered, is_ok: bool) {
        let Some(relays) = &mut self.relays else { return };
        match waiting.name {
            "open_session" if is_ok => {
                let mut routes = relays.routes.iter_mut();
                if let Some(route) = routes.find(|route| route.session == waiting.session) {
                    route.is_open = true;
                }
            }
            "open_session" => relays.forget(&waiting.session),
            "close_session" => {
                let mut routes = relays.routes.iter_mut();
                let Some(route) = routes.find(|route| route.session == waiting.session) else { return };
                match std::mem::replace(&mut route.then, Then::Stays) {
                    Then::Reopens => route.is_open = false,
                    _ if is_ok => relays.forget(&waiting.session),
                    _ => {}
                }
            }
            "delete_session" if is_ok => relays.forget(&waiting.session),
            _ => {}
        }
    }

    fn node_of(&self, link: u64) -> Option<NodeId> {
        let links = &self.relays.as_ref()?.links;
        links.iter().find(|found| found.number == link).map(|found| found.node)
    }

    /// Looks for the session of a command again, whose node does not hold it or cannot be reached, and sends it there.
    async fn look_again(&mut self, waiting: Unanswered, not_at: Option<NodeId>) -> Flow {
        let Unanswered { id, session, name, resend, .. } = waiting;
        if let Some(relays) = self.relays.as_mut().filter(|_| name == "open_session") {
            relays.forget(&session);
        }
        let owner = v2::owner(self);
        let place = self.app.registry.locate(&session, &owner).await;
        let refused = match (place, resend) {
            (Err(error), _) => error,
            (Ok(Place::Elsewhere(row)), Some(resend)) if not_at != Some(row.id) && resend.attempts < ATTEMPTS_MAX => {
                let resend = Resend { attempts: resend.attempts + 1, ..*resend };
                match self.send_to_node(&row, &id, &session, name, resend) {
                    Ok(()) => return Ok(()),
                    Err(error) => error,
                }
            }
            (Ok(Place::Elsewhere(row)), _) => self.app.registry.held(&session, row.id),
            (Ok(Place::Here | Place::Free), Some(resend)) if resend.attempts < ATTEMPTS_MAX => {
                return v2::again(self, &resend.text, resend.attempts + 1).await;
            }
            (Ok(Place::Here | Place::Free), _) => self.app.session_gone(),
        };
        let reply = Reply::Error(refused);
        crate::server::socket::count_reply(name, &reply);
        self.send(encode_reply(Some(&id), Some(&session), &reply)).await
    }

    /// Ends what went over a link: its commands are answered, and its subscriptions end. The connection continues.
    async fn lost(&mut self, link: u64, end: &LinkEnd) -> Flow {
        let Some(relays) = &mut self.relays else { return Ok(()) };
        let Some(at) = relays.links.iter().position(|found| found.number == link) else { return Ok(()) };
        let node = relays.links.swap_remove(at).node;
        let routes: Vec<Route> = relays.routes.extract_if(.., |route| route.link == link).collect();
        relays.waiting.retain(|(waiting, _)| *waiting != link);
        match end {
            LinkEnd::Unreachable(error) => tracing::warn!(%node, error, "another server cannot be reached"),
            end => {
                tracing::info!(%node, ?end, subscriptions = routes.len(), "a connection to another server has ended")
            }
        }
        let is_of = |waiting: &mut Unanswered| waiting.link == Some(link);
        let unanswered: Vec<Unanswered> = self.unanswered.extract_if(.., is_of).collect();
        let mut again = Vec::new();
        for waiting in unanswered {
            if waiting.resend.is_some() {
                again.push(waiting);
                continue;
            }
            let reply = Reply::Error(self.app.session_gone());
            crate::server::socket::count_reply(waiting.name, &reply);
            self.send(encode_reply(Some(&waiting.id), Some(&waiting.session), &reply)).await?;
        }
        for route in routes.into_iter().filter(|route| route.is_open) {
            self.send(encode_event(Some(&route.session), &SubscriptionEnd::Moved.event())).await?;
        }
        let not_at = Some(node).filter(|_| *end != LinkEnd::WrongNode);
        for waiting in again {
            Box::pin(self.look_again(waiting, not_at)).await?;
        }
        Ok(())
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
    // A newer version may have another code: it is passed on, and counted as this one.
    serde_json::from_str::<Refusal>(frame).map_or(ErrorCode::Internal, |refusal| refusal.payload.code)
}
