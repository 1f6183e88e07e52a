//! Implements [`Cluster`]: passes each call to the module that handles it.

use super::{PostgresStore, changes, tickets};
use crate::{
    Changes, Cluster, Error, Held, NewNode, NewTicket, NodeId, NodeRow, Pulse, SessionHead, Silent, StoreFuture,
    TicketBounds, TicketPut, TicketsOf,
};
use reseed_protocol::{SessionId, Timestamp};
use std::time::Duration;

impl Cluster for PostgresStore {
    fn join<'a>(&'a self, node: &'a NewNode) -> StoreFuture<'a, Result<NodeId, Error>> {
        Box::pin(self.nodes.join(node))
    }

    fn beat(&self, pulse: Pulse) -> StoreFuture<'_, Result<Option<Vec<NodeRow>>, Error>> {
        Box::pin(self.nodes.beat(pulse))
    }

    fn judge(&self, silent: Vec<Silent>, failovers: u64) {
        self.nodes.member.judge(silent, failovers);
    }

    fn leave(&self) -> StoreFuture<'_, Result<(), Error>> {
        Box::pin(self.nodes.leave())
    }

    fn nodes(&self) -> StoreFuture<'_, Result<Vec<NodeRow>, Error>> {
        Box::pin(self.nodes.all())
    }

    fn remove<'a>(&'a self, silent: &'a [Silent]) -> StoreFuture<'a, Result<(), Error>> {
        Box::pin(self.nodes.remove(silent))
    }

    fn ask_to_drain(&self, node: NodeId) -> StoreFuture<'_, Result<bool, Error>> {
        Box::pin(self.nodes.ask_to_drain(node))
    }

    fn lost<'a>(&'a self, held: &'a [Held]) -> StoreFuture<'a, Result<Vec<SessionId>, Error>> {
        Box::pin(self.nodes.lost(held))
    }

    fn changes<'a>(
        &'a self,
        owners: &'a [String],
        since: Timestamp,
        within: Duration,
    ) -> StoreFuture<'a, Result<Changes, Error>> {
        Box::pin(changes::since(&self.readers, owners, since, within))
    }

    fn running<'a>(&'a self, owners: &'a [String]) -> StoreFuture<'a, Result<Vec<SessionHead>, Error>> {
        Box::pin(changes::running(&self.readers, owners))
    }

    fn failovers(&self) -> u64 {
        self.timelines.failovers()
    }

    fn put_ticket<'a>(
        &'a self,
        ticket: &'a NewTicket,
        bounds: TicketBounds,
    ) -> StoreFuture<'a, Result<TicketPut, Error>> {
        Box::pin(tickets::put(&self.readers, ticket, bounds))
    }

    fn take_ticket<'a>(&'a self, hash: &'a [u8; 32]) -> StoreFuture<'a, Result<Option<(String, Duration)>, Error>> {
        Box::pin(tickets::take(&self.readers, hash))
    }

    fn withdraw_tickets<'a>(&'a self, service: &'a str, of: TicketsOf<'a>) -> StoreFuture<'a, Result<u64, Error>> {
        Box::pin(tickets::withdraw(&self.readers, service, of))
    }
}
