//! The end of a link: what goes on over another link without the client noticing, what is sent to another node, and
//! what ends.
//!
//! A connection that breaks says nothing about its holder. While the store names the same holder, the edge dials again
//! and opens each session where its client is, under the client's own name; then come the commands whose replies are
//! still owed. They may be repeated: one that writes is carried out once for each `id`, and a copy of any other does no
//! harm. A session that cannot go on like this ends with `session_closed`, as all do whose holder has stopped or is
//! silent.

use super::{
    bookmark::Bookmark,
    link::{Link, LinkEnd},
    peek::Peek,
    routes::{Resend, Route, Then},
    wire::{self, Resumption, ToHolder},
};
use crate::{
    runtime::{Place, Registry, encoded::FrameText},
    server::{
        closing::Flow,
        socket::{Connection, Unanswered, count_reply},
        v2,
    },
    store::NodeId,
};
use futures_util::future::join_all;
use reseed_protocol::{
    CloseCode, CommandId, ErrorBody, SessionId,
    command::{Command, Empty},
    event::SubscriptionEnd,
    frame::{encode_command, encode_event, encode_reply},
    reply::{Done, Reply},
};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// How often a command is sent on to where its session is by now.
const ATTEMPTS_MAX: u8 = 2;

/// The time within which a link is replaced. A client waits for it, and would reconnect by itself half a second after
/// it is told: a cut that lasts longer is not hidden.
pub(super) const OUTAGE_TIME: Duration = Duration::from_secs(4);

/// The connections that are attempted in that time.
const TRIES_MAX: u32 = 6;

/// The pause before the second attempt; it doubles with each. The first comes at once: most cuts are momentary.
const PAUSE: Duration = Duration::from_millis(100);

/// The time for which a link must last to end an outage. One that breaks earlier has not, so that a way on which links
/// break all the time does not keep both nodes busy.
const STEADY_TIME: Duration = Duration::from_secs(1);

/// The time limit for the store to say who holds the sessions. If it does not, the node that held them says so.
const ASK_TIME: Duration = Duration::from_secs(1);

/// The time between a break and the replacement of its link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outage {
    began: Instant,
    /// Connections attempted before this one.
    tries: u32,
    /// The time at which all sessions were open again.
    ended: Option<Instant>,
}

impl Outage {
    /// Returns the outage that the end of a link begins or prolongs; `None` if no other link is worth a try. `earlier`
    /// is the one that the link was to end.
    fn after(earlier: Option<Self>, end: &LinkEnd, now: Instant) -> Option<Self> {
        let is_worth_it = match end {
            LinkEnd::Broken => true,
            LinkEnd::Closed(code) => *code == CloseCode::NoPong.code(),
            LinkEnd::Unreachable(_) => earlier.is_some(),
            LinkEnd::Absent(_) | LinkEnd::WrongNode | LinkEnd::Gone => false,
        };
        let goes_on = earlier.filter(|outage| outage.ended.is_none_or(|ended| now - ended < STEADY_TIME));
        let outage = match goes_on {
            Some(Self { began, tries, .. }) => Self { began, tries: tries + 1, ended: None },
            None => Self { began: now, tries: 0, ended: None },
        };
        let is_short = outage.tries < TRIES_MAX && now - outage.began < OUTAGE_TIME;
        (is_worth_it && is_short).then_some(outage)
    }

    /// Returns the pause before the next attempt.
    pub(super) fn pause(self) -> Duration {
        match self.tries {
            0 => Duration::ZERO,
            tries => PAUSE * 2_u32.pow(tries - 1),
        }
    }

    /// Returns the time that is left.
    pub(super) fn left(self) -> Duration {
        OUTAGE_TIME.saturating_sub(self.began.elapsed())
    }
}

impl Connection {
    /// Handles that a link is over. The connection continues.
    pub(super) async fn lost(&mut self, number: u64, end: &LinkEnd) -> Flow {
        let Some((link, routes)) = self.relays.as_mut().and_then(|relays| relays.remove(number)) else { return Ok(()) };
        let node = link.row.id;
        match end {
            LinkEnd::Unreachable(error) | LinkEnd::Absent(error) => {
                if let Some(left_out) = self.app.registry.keeper().and_then(|keeper| keeper.admit_unreachable(node)) {
                    tracing::warn!(%node, error, left_out, "another server cannot be reached");
                }
            }
            end => {
                tracing::info!(%node, ?end, subscriptions = routes.len(), "a connection to another server has ended");
            }
        }
        let is_of = |waiting: &mut Unanswered| waiting.link == Some(number);
        let mut unanswered: Vec<Unanswered> = self.unanswered.extract_if(.., is_of).collect();
        let ended = match Outage::after(link.outage, end, Instant::now()) {
            Some(outage) => self.replace(&link, outage, routes, &mut unanswered).await,
            None => routes,
        };
        let mut again = Vec::new();
        for waiting in unanswered {
            if waiting.resend.is_some() {
                again.push(waiting);
                continue;
            }
            let reply = match waiting.name {
                "close_session" => Reply::Ok(Done::default()),
                // Its outcome is not known.
                _ => Reply::Error(self.app.session_gone()),
            };
            count_reply(waiting.name, &reply);
            self.send(encode_reply(Some(&waiting.id), Some(&waiting.session), &reply)).await?;
        }
        for route in ended.into_iter().filter(|route| route.is_open && route.then == Then::Stays) {
            self.send(encode_event(Some(&route.session), &SubscriptionEnd::Moved.event())).await?;
        }
        let is_dialled = self.relays.iter().any(|relays| relays.links.iter().any(|link| link.row.id == node));
        let may_be_there = is_dialled || matches!(end, LinkEnd::WrongNode | LinkEnd::Broken);
        for waiting in again {
            Box::pin(self.look_again(waiting, Some(node).filter(|_| !may_be_there))).await?;
        }
        Ok(())
    }

    /// Dials the node of a link that broke, for the sessions that it still holds, and sends it their commands again.
    /// Returns the other sessions, and leaves their commands in `unanswered`.
    async fn replace(
        &mut self,
        link: &Link,
        outage: Outage,
        routes: Vec<Route>,
        unanswered: &mut Vec<Unanswered>,
    ) -> Vec<Route> {
        // Commands stay in their order: if one cannot be repeated, its client sends it and those after it again.
        let is_kept = |waiting: &Unanswered| waiting.repeat.is_some() || waiting.resend.is_some();
        let goes_on = |route: &Route| {
            let bookmark = route.bookmark.as_ref().filter(|_| route.is_open && route.then == Then::Stays);
            bookmark.is_some_and(|bookmark| bookmark.hindrance().is_none())
                && unanswered.iter().all(|waiting| waiting.session != route.session || is_kept(waiting))
        };
        let (open, mut ended): (Vec<Route>, Vec<Route>) = routes.into_iter().partition(goes_on);
        let (registry, owner) = (self.app.registry.clone(), v2::owner(self));
        let (held, gone) = still_at(&registry, &owner, link.row.id, open).await;
        ended.extend(gone);
        if held.is_empty() {
            return ended;
        }
        let mut first = Vec::new();
        let mut kept = Vec::new();
        for route in &held {
            let Some(bookmark) = &route.bookmark else { continue };
            let id = again_id(self.relays.as_ref().map_or(0, |relays| relays.next), kept.len());
            let is_of = |waiting: &mut Unanswered| waiting.session == route.session && waiting.repeat.is_some();
            let commands: Vec<Unanswered> = unanswered.extract_if(.., is_of).collect();
            first.extend(frames(bookmark, &id, &route.session, &commands));
            kept.push((id, commands));
        }
        let Some(number) = self.dial(&link.row, Some(outage), first) else {
            unanswered.extend(kept.into_iter().flat_map(|(_, commands)| commands));
            ended.extend(held);
            return ended;
        };
        tracing::info!(node = %link.row.id, sessions = held.len(), attempt = outage.tries + 1, "dialling it again");
        let relays = self.relays.get_or_insert_default();
        for (route, (id, commands)) in held.into_iter().zip(kept) {
            relays.add_route(Route { link: number, opens_again: Some(id), ..route });
            let commands = commands.into_iter().map(|waiting| Unanswered { link: Some(number), ..waiting });
            self.unanswered.extend(commands);
        }
        ended
    }

    /// Returns the session that is opened again by this command of this node, if it is one.
    pub(super) fn opening_again(&self, link: u64, re: &str) -> Option<SessionId> {
        let mut routes = self.relays.as_ref()?.routes.iter().filter(|route| route.link == link);
        let is_it = |route: &&Route| route.opens_again.as_ref().is_some_and(|id| id.as_str() == re);
        routes.find(is_it).map(|route| route.session.clone())
    }

    /// Takes the holder's answer to the command that opens a session again.
    pub(super) async fn opened_again(&mut self, session: &SessionId, peek: &Peek<'_>, answer: &str) -> Flow {
        let Some(relays) = &mut self.relays else { return Ok(()) };
        let Some(route) = relays.route_mut(session) else { return Ok(()) };
        let (link, is_open) = (route.link, peek.is("session_opened"));
        route.opens_again = None;
        let went_on = match route.bookmark.as_mut().filter(|_| is_open) {
            Some(bookmark) => bookmark.go_on(answer, session),
            None => Err("it refuses"),
        };
        // Whatever becomes of the sessions, the outage is over once all of them were answered.
        if relays.routes.iter().all(|route| route.link != link || route.opens_again.is_none()) {
            let outage =
                relays.links.iter_mut().find(|found| found.number == link).and_then(|link| link.outage.as_mut());
            outage.into_iter().for_each(|outage| outage.ended = Some(Instant::now()));
        }
        match went_on {
            Ok(missed) => {
                for event in missed {
                    self.send(event).await?;
                }
                Ok(())
            }
            Err(why) if is_open => self.end_route(session, why).await,
            Err(why) => {
                tracing::info!(%session, why, "a session does not go on over another connection");
                self.close_route(session).await
            }
        }
    }

    /// Ends a session that is open at its holder: its client opens it itself.
    pub(super) async fn end_route(&mut self, session: &SessionId, why: &'static str) -> Flow {
        tracing::info!(%session, why, "a session does not go on over another connection");
        if let Some(relays) = &mut self.relays
            && let Some(route) = relays.route(session)
        {
            let link = route.link;
            let close = encode_command(&again_id(link, 0), Some(session), &Command::CloseSession(Empty {}));
            relays.push(link, close.into());
        }
        self.close_route(session).await
    }

    /// Ends a session for the client, and the commands that it waits for.
    async fn close_route(&mut self, session: &SessionId) -> Flow {
        let Some(relays) = &mut self.relays else { return Ok(()) };
        relays.forget(session);
        self.answer_for(session, SubscriptionEnd::Moved).await?;
        self.send(encode_event(Some(session), &SubscriptionEnd::Moved.event())).await
    }

    /// Looks for the session of a command again, whose node does not hold it or cannot be reached, and sends it there.
    pub(super) async fn look_again(&mut self, waiting: Unanswered, not_at: Option<NodeId>) -> Flow {
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
        count_reply(name, &reply);
        self.send(encode_reply(Some(&id), Some(&session), &reply)).await
    }
}

/// Asks the store which of these sessions a node still holds. Returns them, and then the others.
async fn still_at(registry: &Registry, owner: &str, node: NodeId, routes: Vec<Route>) -> (Vec<Route>, Vec<Route>) {
    let places = routes.iter().map(|route| registry.locate(&route.session, owner));
    let Ok(places) = timeout(ASK_TIME, join_all(places)).await else { return (routes, Vec::new()) };
    let is_there = |place: Result<Place, ErrorBody>| match place {
        Ok(Place::Elsewhere(row)) => row.id == node,
        Ok(Place::Here | Place::Free) => false,
        Err(error) => error.retriable,
    };
    let (mut held, mut gone) = (Vec::new(), Vec::new());
    for (route, place) in routes.into_iter().zip(places) {
        if is_there(place) { held.push(route) } else { gone.push(route) }
    }
    (held, gone)
}

/// Returns the id of a command of this node's own. A link has few; a client that uses one of them itself, in the same
/// moment, misses the reply.
fn again_id(link: u64, at: usize) -> CommandId {
    format!("reseed.relay.{link}.{at}").parse().expect("it is short, and of letters, digits and points")
}

/// Returns what is sent to open a session again, and then its commands.
fn frames(bookmark: &Bookmark, id: &CommandId, session: &SessionId, commands: &[Unanswered]) -> Vec<FrameText> {
    let writes = |waiting: &&Unanswered| Command::spec_of(waiting.name).is_some_and(|spec| spec.does.writes());
    let answers_first: Vec<CommandId> = commands.iter().filter(writes).map(|waiting| waiting.id.clone()).collect();
    let mut frames = Vec::new();
    if !answers_first.is_empty() {
        let resumption = Resumption { session_id: session.clone(), answers_first };
        frames.push(wire::encoded(&ToHolder::Resumption(resumption)).into());
    }
    frames.push(bookmark.open_again(id, session).into());
    frames.extend(commands.iter().filter_map(|waiting| waiting.repeat.clone()));
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_outage_has_a_bounded_number_of_tries_and_ends_with_a_link_that_lasts() {
        let began = Instant::now();
        let unreachable = LinkEnd::Unreachable(String::new());
        assert_eq!(Outage::after(None, &unreachable, began), None, "it never was there");
        for end in [LinkEnd::Gone, LinkEnd::WrongNode, LinkEnd::Absent(String::new()), LinkEnd::Closed(1012)] {
            assert_eq!(Outage::after(None, &end, began), None, "{end:?}");
        }
        let (mut outage, mut pauses) = (Outage::after(None, &LinkEnd::Broken, began), Vec::new());
        while let Some(now) = outage {
            pauses.push(now.pause());
            tokio::time::advance(now.pause()).await;
            outage = Outage::after(outage, &unreachable, Instant::now());
        }
        assert_eq!(pauses.len(), usize::try_from(TRIES_MAX).unwrap());
        assert!(pauses.iter().sum::<Duration>() < OUTAGE_TIME && pauses[0].is_zero(), "{pauses:?}");
        // Links that break at once prolong it, and one that lasts ends it.
        let first = Outage::after(None, &LinkEnd::Closed(CloseCode::NoPong.code()), began).unwrap();
        let now = Instant::now();
        let resumed = |ago: Duration| Some(Outage { began: now, ended: Some(now - ago), ..first });
        let next = |ago| Outage::after(resumed(ago), &LinkEnd::Broken, now).unwrap().tries;
        assert_eq!((next(STEADY_TIME / 2), next(STEADY_TIME)), (1, 0));
        // An attempt may take long.
        tokio::time::advance(OUTAGE_TIME).await;
        assert_eq!(Outage::after(Some(Outage { began: now, ..first }), &unreachable, Instant::now()), None);
    }
}
