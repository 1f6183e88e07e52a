//! The nodes of a memory store: handles on the same sessions.

use super::{MemoryStore, State, session::Session};
use crate::{
    Error, SessionHead, StoreFuture,
    cluster::{
        Changes, Cluster, LeasedSession, NewNode, NewTicket, NodeId, NodeRow, Pulse, Silent, TicketBounds, TicketPut,
        TicketsOf, by_name,
    },
};
use reseed_protocol::{SessionId, Timestamp};
use std::{
    sync::PoisonError,
    time::{Duration, Instant},
};

impl State {
    /// Returns true if this node is alive: others cannot open the sessions that it holds.
    pub(super) fn lives(&self, node: NodeId, silent: &[Silent]) -> bool {
        self.nodes.get(&node).is_some_and(|row| !silent.contains(&Silent { node, beat: row.beat }))
    }

    /// Fails if a node has joined but is missing from the store.
    pub(super) fn expect_member(&self, me: Option<NodeId>) -> Result<(), Error> {
        match me {
            Some(me) if !self.nodes.contains_key(&me) => Err(Error::NotMember(me)),
            _ => Ok(()),
        }
    }
}

impl Cluster for MemoryStore {
    fn join<'a>(&'a self, node: &'a NewNode) -> StoreFuture<'a, Result<NodeId, Error>> {
        self.with(move |state| {
            state.node_numbers += 1;
            let id = NodeId(state.node_numbers);
            state
                .nodes
                .insert(id, NodeRow { id, node: node.clone(), beat: 1, pulse: Pulse::default(), age: Duration::ZERO });
            self.member.set_me(Some(id));
            Ok(id)
        })
    }

    fn beat(&self, pulse: Pulse) -> StoreFuture<'_, Result<Option<Vec<NodeRow>>, Error>> {
        self.with(move |state| {
            let rows = state.nodes.values().cloned().collect();
            let Some(row) = self.member.me().and_then(|me| state.nodes.get_mut(&me)) else { return Ok(None) };
            row.beat += 1;
            let draining = pulse.draining || row.pulse.draining;
            row.pulse = Pulse { draining, ..pulse };
            Ok(Some(rows))
        })
    }

    fn judge(&self, silent: Vec<Silent>, failovers: u64) {
        self.member.judge(silent, failovers);
    }

    fn leave(&self) -> StoreFuture<'_, Result<(), Error>> {
        self.with(|state| {
            if let Some(me) = self.member.me() {
                state.nodes.remove(&me);
            }
            self.member.set_me(None);
            Ok(())
        })
    }

    fn nodes(&self) -> StoreFuture<'_, Result<Vec<NodeRow>, Error>> {
        self.with(|state| Ok(by_name(state.nodes.values().cloned().collect())))
    }

    fn remove<'a>(&'a self, silent: &'a [Silent]) -> StoreFuture<'a, Result<(), Error>> {
        self.with(move |state| {
            state.nodes.retain(|node, row| !silent.contains(&Silent { node: *node, beat: row.beat }));
            Ok(())
        })
    }

    fn ask_to_drain(&self, node: NodeId) -> StoreFuture<'_, Result<bool, Error>> {
        self.with(move |state| {
            let found = state.nodes.get_mut(&node);
            Ok(found.map(|row| row.pulse.draining = true).is_some())
        })
    }

    fn lost<'a>(&'a self, held: &'a [LeasedSession]) -> StoreFuture<'a, Result<Vec<SessionId>, Error>> {
        self.with(move |state| {
            let is_same = |found: &Session, held: &LeasedSession| {
                (found.term, &found.epoch) == (held.term, &held.epoch) && found.last_seq() >= held.last_seq
            };
            let is_lost =
                |held: &&LeasedSession| state.sessions.get(&held.session).is_none_or(|found| !is_same(found, held));
            Ok(held.iter().filter(is_lost).map(|held| held.session.clone()).collect())
        })
    }

    fn failovers(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).timeline
    }

    fn changes<'a>(
        &'a self,
        owners: &'a [String],
        since: Timestamp,
        within: Duration,
    ) -> StoreFuture<'a, Result<Changes, Error>> {
        self.with(move |state| {
            let is_of = |owner: &String| owners.contains(owner);
            let heads = state.sessions.iter().map(|(id, session)| session.session_head(id));
            let heads = heads.filter(|head| is_of(&head.owner) && head.head.updated_at >= since).collect();
            let deleted = state.deleted.iter().filter(|(at, _, owner)| is_of(owner) && at.elapsed() < within);
            let deleted = deleted.map(|(_, session, owner)| (session.clone(), owner.clone())).collect();
            Ok(Changes { heads, deleted, is_cut: false })
        })
    }

    fn running<'a>(&'a self, owners: &'a [String]) -> StoreFuture<'a, Result<Vec<SessionHead>, Error>> {
        self.with(move |state| {
            let heads = state.sessions.iter().map(|(id, session)| session.session_head(id));
            let is_meant =
                |head: &SessionHead| head.head.running && head.holder.is_some() && owners.contains(&head.owner);
            Ok(heads.filter(is_meant).collect())
        })
    }

    fn put_ticket<'a>(
        &'a self,
        ticket: &'a NewTicket,
        bounds: TicketBounds,
    ) -> StoreFuture<'a, Result<TicketPut, Error>> {
        self.with(move |state| {
            let tickets = &mut state.tickets;
            tickets.retain(|(made, ticket)| made.elapsed() < ticket.life);
            let count = |is_meant: &dyn Fn(&NewTicket) -> bool| tickets.iter().filter(|(_, t)| is_meant(t)).count();
            let is_full = |count: usize, max: usize| max > 0 && count >= max;
            let of_service = ticket.service.as_ref().map_or(0, |_| count(&|other| other.service == ticket.service));
            Ok(if is_full(tickets.len(), bounds.all_max) {
                TicketPut::Full
            } else if is_full(count(&|other| other.owner == ticket.owner), bounds.owner_max) {
                TicketPut::OwnerFull
            } else if is_full(of_service, bounds.service_max) {
                TicketPut::ServiceFull
            } else {
                tickets.push((Instant::now(), ticket.clone()));
                TicketPut::Stored
            })
        })
    }

    fn take_ticket<'a>(&'a self, hash: &'a [u8; 32]) -> StoreFuture<'a, Result<Option<(String, Duration)>, Error>> {
        self.with(move |state| {
            let Some(at) = state.tickets.iter().position(|(_, ticket)| ticket.hash == *hash) else { return Ok(None) };
            let (made, ticket) = state.tickets.swap_remove(at);
            let age = made.elapsed();
            Ok((age < ticket.life).then_some((ticket.body, age)))
        })
    }

    fn withdraw_tickets<'a>(&'a self, service: &'a str, of: TicketsOf<'a>) -> StoreFuture<'a, Result<u64, Error>> {
        self.with(move |state| {
            let is_meant = |ticket: &NewTicket| {
                let is_of_service = ticket.service.as_deref() == Some(service);
                match of {
                    TicketsOf::Id(id) => is_of_service && ticket.id == id,
                    TicketsOf::Owner(owner) => is_of_service && ticket.owner == owner,
                    TicketsOf::Anyone(owner) => ticket.owner == owner,
                }
            };
            let before = state.tickets.len();
            state.tickets.retain(|(_, ticket)| !is_meant(ticket));
            Ok((before - state.tickets.len()) as u64)
        })
    }
}
