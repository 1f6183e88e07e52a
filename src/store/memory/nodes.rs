//! The nodes of a memory store: handles on the same sessions.

use super::{MemoryStore, State};
use crate::store::{
    Error, StoreFuture,
    cluster::{Cluster, NewNode, NodeId, NodeRow, Pulse, Silent},
};
use reseed_protocol::SessionId;

impl State {
    /// Returns true if this node keeps others from opening what it holds.
    pub(super) fn lives(&self, node: NodeId, silent: &[Silent]) -> bool {
        self.nodes.get(&node).is_some_and(|row| !silent.contains(&Silent { node, beat: row.beat }))
    }
}

impl Cluster for MemoryStore {
    fn join<'a>(&'a self, node: &'a NewNode) -> StoreFuture<'a, Result<NodeId, Error>> {
        self.with(move |state| {
            state.node_numbers += 1;
            let id = NodeId(state.node_numbers);
            state.nodes.insert(id, NodeRow { id, node: node.clone(), beat: 1, pulse: Pulse::default() });
            self.member.set_me(Some(id));
            Ok(id)
        })
    }

    fn beat(&self, pulse: Pulse) -> StoreFuture<'_, Result<Option<Vec<NodeRow>>, Error>> {
        self.with(move |state| {
            let rows = state.nodes.values().cloned().collect();
            let Some(row) = self.member.me().and_then(|me| state.nodes.get_mut(&me)) else { return Ok(None) };
            row.beat += 1;
            row.pulse = pulse;
            Ok(Some(rows))
        })
    }

    fn judge(&self, silent: Vec<Silent>) {
        self.member.judge(silent);
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
        self.with(|state| Ok(state.nodes.values().cloned().collect()))
    }

    fn remove<'a>(&'a self, silent: &'a [Silent]) -> StoreFuture<'a, Result<(), Error>> {
        self.with(move |state| {
            state.nodes.retain(|node, row| !silent.contains(&Silent { node: *node, beat: row.beat }));
            Ok(())
        })
    }

    fn lost<'a>(&'a self, held: &'a [(SessionId, u64)]) -> StoreFuture<'a, Result<Vec<SessionId>, Error>> {
        self.with(move |state| {
            let is_lost =
                |(id, term): &&(SessionId, u64)| state.sessions.get(id).is_none_or(|found| found.term != *term);
            Ok(held.iter().filter(is_lost).map(|(id, _)| id.clone()).collect())
        })
    }
}
