//! The links of a client connection, and the link of each of its sessions.

use super::link::{FromLink, Link, Told};
use crate::{runtime::encoded::FrameText, server::socket::push_rare, store::NodeId};
use reseed_protocol::SessionId;
use std::collections::VecDeque;
use tokio::sync::mpsc;

/// The links of a client connection.
#[derive(Debug)]
pub(in crate::server) struct Relays {
    pub(super) next: u64,
    /// At most one per holder.
    pub(super) links: Vec<Link>,
    /// At most [`SUBSCRIPTIONS_MAX`](crate::runtime::SUBSCRIPTIONS_MAX), including the subscriptions at this node.
    pub(super) routes: Vec<Route>,
    /// Frames for which a link had no room. The client is not read while there are any.
    pub(super) waiting: VecDeque<(u64, FrameText)>,
    pub(super) to_self: mpsc::Sender<Told>,
    from_links: mpsc::Receiver<Told>,
}

/// A session that another node holds.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) session: SessionId,
    pub(super) link: u64,
    /// True once its `open_session` was answered.
    pub(super) is_open: bool,
    /// What the client has requested since.
    pub(super) then: Then,
}

/// What becomes of a route once the commands on their way are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
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
    /// How many times its session has been looked up already.
    pub(in crate::server) attempts: u8,
}

impl Default for Relays {
    fn default() -> Self {
        // There is room for one batch. Frames that the client does not take stay with the holder.
        let (to_self, from_links) = mpsc::channel(1);
        let (links, routes, waiting) = (Vec::new(), Vec::new(), VecDeque::new());
        Self { next: 0, links, routes, waiting, to_self, from_links }
    }
}

impl Route {
    /// Returns the route of a session whose `open_session` is being sent.
    pub(super) fn opening(session: SessionId, link: u64) -> Self {
        Self { session, link, is_open: false, then: Then::Stays }
    }
}

impl Relays {
    pub(super) fn push(&mut self, link: u64, frame: FrameText) {
        let Some(found) = self.links.iter().find(|found| found.number == link) else { return };
        let frame = match self.waiting.iter().any(|(waiting, _)| *waiting == link) {
            true => Some(frame),
            // A link that has ended has reported it, or will.
            false => match found.to_holder.try_send(Box::new(frame)) {
                Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => None,
                Err(mpsc::error::TrySendError::Full(frame)) => Some(*frame),
            },
        };
        self.waiting.extend(frame.map(|frame| (link, frame)));
    }

    async fn arrived(&mut self) -> Option<Told> {
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
                    permit.send(Box::new(frame));
                }
                None
            }
        }
    }

    /// Returns true if every frame has been handed to its link.
    pub(in crate::server) fn has_room(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the routed sessions.
    pub(in crate::server) fn sessions(&self) -> impl Iterator<Item = &SessionId> {
        self.routes.iter().map(|route| &route.session)
    }

    /// Adds a link. Most connections have only one.
    pub(super) fn add_link(&mut self, link: Link) {
        push_rare(&mut self.links, link);
    }

    /// Adds the route of a session. Many connections have only one.
    pub(super) fn add_route(&mut self, route: Route) {
        push_rare(&mut self.routes, route);
    }

    pub(super) fn route(&self, session: &SessionId) -> Option<&Route> {
        self.routes.iter().find(|route| route.session == *session)
    }

    pub(super) fn route_mut(&mut self, session: &SessionId) -> Option<&mut Route> {
        self.routes.iter_mut().find(|route| route.session == *session)
    }

    pub(super) fn forget(&mut self, session: &SessionId) {
        self.routes.retain(|route| route.session != *session);
    }

    pub(super) fn node_of(&self, link: u64) -> Option<NodeId> {
        self.links.iter().find(|found| found.number == link).map(|found| found.row.id)
    }

    /// Removes a link that has ended, and the frames that wait for it. Returns it with its routes.
    pub(super) fn remove(&mut self, link: u64) -> Option<(Link, Vec<Route>)> {
        let at = self.links.iter().position(|found| found.number == link)?;
        let gone = self.links.swap_remove(at);
        self.waiting.retain(|(waiting, _)| *waiting != link);
        Some((gone, self.routes.extract_if(.., |route| route.link == link).collect()))
    }
}

/// Waits for a holder's frames, or for room for the client's. In the latter case it returns `None`. Waits indefinitely
/// if there are no links. Cancel safe. Boxed, because few connections have links.
pub(in crate::server) async fn arrived(relays: &mut Option<Box<Relays>>) -> Option<(u64, FromLink)> {
    match relays {
        Some(relays) => Box::pin(relays.arrived()).await.map(|told| *told),
        None => std::future::pending().await,
    }
}
