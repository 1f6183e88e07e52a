//! Judges by this node's own clock which nodes are alive, and whether this node may trust itself. It is a pure value:
//! each call passes in the time.
//!
//! Each node increments its counter in the store every fifth of its lease, and reads all counters in the same
//! statement.
//! - **Silence.** If a counter is unchanged between two polls, it stood still at least from the answer of the first
//!   poll to the request of the second. These intervals are added up, and a node is silent when the sum reaches its
//!   lease. Each interval counts as two beats at most, so an outage of the store, in which nobody can beat, counts for
//!   almost nothing. No clock of another machine is involved.
//! - **Trust.** A node may trust that nobody judges it silent until 0.8 of its lease after it *sent* its last answered
//!   beat. An observer's sum starts only after that beat was written.

use crate::store::{NewNode, NodeId, NodeRow, Silent};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Beats per lease.
pub(crate) const BEATS: u32 = 5;

/// How long a node trusts itself, in tenths of its lease. The rest allows for clocks that run at different speeds.
const TRUST_TENTHS: u32 = 8;

/// How long a node must be silent before its row is removed. By then nobody asks for it any more, and an operator has
/// seen it in the list of nodes.
const REMOVED_AFTER: Duration = Duration::from_secs(60 * 60);

/// The maximum delay before asking a living node again for its session, because its last client may leave at any time.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(2);

/// What a node knows. Times are relative to a moment of its own monotonic clock.
#[derive(Debug, Clone)]
pub(crate) struct View {
    lease: Duration,
    me: NodeId,
    trusted_until: Duration,
    /// When the last successful poll was answered.
    answered: Duration,
    others: BTreeMap<NodeId, Peer>,
}

/// Another node.
#[derive(Debug, Clone)]
struct Peer {
    row: NodeRow,
    /// How long its counter is known to have stood still.
    quiet: Duration,
    /// True once its counter was seen to move. False again if the store fails over while the node is silent. Used for
    /// reports only; no judgment follows from it.
    has_moved: bool,
}

/// Who holds a session, as far as this node knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Holder {
    /// Nobody, or a silent node.
    Nobody,
    /// This node.
    Me,
    /// Another node.
    Other(Box<NodeRow>),
    /// A node that has joined since the last poll, or is gone.
    Unknown,
}

/// The number of servers in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) living: usize,
    pub(crate) draining: usize,
    pub(crate) silent: usize,
}

impl View {
    /// Returns the view of a node that has joined. It sent its request to join at `sent`.
    pub(crate) fn joined(lease: Duration, me: NodeId, sent: Duration) -> Self {
        let trusted_until = sent + lease * TRUST_TENTHS / 10;
        Self { lease, me, trusted_until, answered: sent, others: BTreeMap::new() }
    }

    /// Restarts all judgments, because another replica of the store has taken over. It may lack the last beats of every
    /// node, so their counters would seem to have stood still.
    pub(crate) fn doubt(&mut self) {
        for peer in self.others.values_mut() {
            // It is no longer known to be silent, but has not shown a sign of life either.
            peer.has_moved &= !peer.is_silent();
            peer.quiet = Duration::ZERO;
        }
    }

    /// Returns the interval between two beats.
    pub(crate) fn beat_every(&self) -> Duration {
        self.lease / BEATS
    }

    /// Returns how long after a beat this node trusts itself.
    pub(crate) fn trusted_for(&self) -> Duration {
        self.lease * TRUST_TENTHS / 10
    }

    pub(crate) fn me(&self) -> NodeId {
        self.me
    }

    /// Takes the result of a successful poll: all nodes, in their state between `sent` and `answered`. The same
    /// statement was a beat of this node.
    pub(crate) fn polled(&mut self, sent: Duration, answered: Duration, rows: Vec<NodeRow>) {
        let still = sent.saturating_sub(self.answered).min(self.beat_every() * 2);
        let mut before = std::mem::take(&mut self.others);
        for row in rows {
            if row.id == self.me {
                continue;
            }
            // A crash of the database may move a counter back, so any different value is a sign of life.
            let (quiet, has_moved) = match before.remove(&row.id) {
                Some(peer) if peer.row.beat == row.beat => (peer.quiet.saturating_add(still), peer.has_moved),
                Some(_) => (Duration::ZERO, true),
                None => (Duration::ZERO, false),
            };
            self.others.insert(row.id, Peer { row, quiet, has_moved });
        }
        self.trusted_until = sent + self.lease * TRUST_TENTHS / 10;
        self.answered = answered;
    }

    /// Returns the time since the last successful poll.
    pub(crate) fn renewed_ago(&self, now: Duration) -> Duration {
        now.saturating_sub(self.answered)
    }

    /// Returns true if nobody can have judged this node silent yet.
    pub(crate) fn is_trusted(&self, now: Duration) -> bool {
        now < self.trusted_until
    }

    /// Returns the nodes whose sessions may be taken over.
    pub(crate) fn silent(&self) -> Vec<Silent> {
        self.silent_for(Duration::ZERO)
    }

    /// Returns the nodes that have been silent for so long that their rows may be removed.
    pub(crate) fn gone(&self) -> Vec<Silent> {
        self.silent_for(REMOVED_AFTER)
    }

    fn silent_for(&self, at_least: Duration) -> Vec<Silent> {
        let silent = self.others.values().filter(|peer| peer.is_silent() && peer.quiet >= at_least);
        silent.map(|peer| Silent { node: peer.row.id, beat: peer.row.beat }).collect()
    }

    /// Returns the other nodes that are not silent.
    pub(crate) fn living(&self) -> impl Iterator<Item = &NodeRow> {
        self.others.values().filter(|peer| !peer.is_silent()).map(|peer| &peer.row)
    }

    /// Returns the other nodes that were seen alive, the newest last. A node that is merely not silent yet may be the
    /// row of a server that was killed long before this one started.
    fn seen_to_live(&self) -> impl DoubleEndedIterator<Item = &NodeRow> {
        self.others.values().filter(|peer| peer.has_moved && !peer.is_silent()).map(|peer| &peer.row)
    }

    /// Counts the servers in each state. This server is `me`. Each start of a server that was killed has left a row. So
    /// an address is counted as silent only once, and not at all if a living server has it.
    ///
    /// A node that is not silent but was not seen to move is not counted. After this server has joined, this hides a
    /// living node for one of its beats. The store's clock would show it earlier, but would also show a node that has
    /// just died.
    pub(crate) fn counted(&self, me: &NewNode, is_draining: bool) -> Counted {
        let mut counted = Counted { living: 0, draining: 0, silent: 0 };
        let mut count = |is_draining| {
            *(if is_draining { &mut counted.draining } else { &mut counted.living }) += 1;
        };
        count(is_draining);
        let mut lives = BTreeSet::from([identity(me)]);
        // The newest come first. If a server was killed and restarted within its lease, its old id is not silent yet.
        for row in self.seen_to_live().rev() {
            let is_first = lives.insert(identity(&row.node));
            // Without addresses, several servers on one machine may have its name.
            if is_first || row.node.address.is_none() {
                count(row.pulse.draining);
            }
        }
        let silent = self.others.values().filter(|peer| peer.is_silent());
        let silent: BTreeSet<_> = silent.map(|peer| identity(&peer.row.node)).collect();
        counted.silent = silent.difference(&lives).count();
        counted
    }

    /// Returns true if a node is known, and silent.
    pub(crate) fn is_silent(&self, node: NodeId) -> bool {
        self.others.get(&node).is_some_and(Peer::is_silent)
    }

    /// Returns another node with this address that was seen alive. This excludes the earlier id of this server, if it
    /// was killed and restarted.
    pub(crate) fn twin(&self, address: &str) -> Option<&NodeRow> {
        self.seen_to_live().find(|row| row.node.address.as_deref() == Some(address))
    }

    /// Returns who a holder is.
    pub(crate) fn holder(&self, holder: Option<NodeId>) -> Holder {
        match holder {
            None => Holder::Nobody,
            Some(node) if node == self.me => Holder::Me,
            Some(node) => match self.others.get(&node) {
                Some(peer) if peer.is_silent() => Holder::Nobody,
                Some(peer) => Holder::Other(Box::new(peer.row.clone())),
                None => Holder::Unknown,
            },
        }
    }

    /// Returns true if an unknown node may have joined since the last poll. Nodes are numbered in the order in which
    /// they join, so an unknown node with a lower number has left.
    pub(crate) fn may_have_joined(&self, node: NodeId) -> bool {
        node > self.me && self.others.keys().all(|known| node > *known)
    }

    /// Returns how long to wait before asking again for a session of this node. If it has missed several beats, this is
    /// when it will be silent.
    pub(crate) fn retry_after(&self, node: NodeId) -> Duration {
        let beat = self.beat_every();
        match self.others.get(&node) {
            Some(peer) if peer.quiet >= beat * 2 => peer.row.node.lease.saturating_sub(peer.quiet) + beat,
            _ => (beat * 2).min(GIVEN_UP_AFTER),
        }
    }
}

impl Peer {
    fn is_silent(&self) -> bool {
        self.quiet >= self.row.node.lease
    }
}

/// Returns what identifies a server across restarts: its address, or its name if it has none.
fn identity(node: &NewNode) -> (&'static str, &str) {
    node.address.as_deref().map_or(("name", node.name.as_str()), |address| ("address", address))
}

#[cfg(test)]
mod tests {
    use super::{BEATS, Counted, Holder, TRUST_TENTHS, View};
    use crate::store::{NewNode, NodeId, NodeRow, Pulse, Silent};
    use proptest::prelude::*;
    use std::time::Duration;

    const ME: NodeId = NodeId(1);
    const OTHER: NodeId = NodeId(2);
    const LEASE: Duration = Duration::from_millis(1000);

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn row(id: NodeId, beat: u64) -> NodeRow {
        let node = NewNode { name: "n".into(), address: None, version: "0".into(), lease: LEASE };
        NodeRow { id, node, beat, pulse: Pulse::default(), age: Duration::ZERO }
    }

    fn view() -> View {
        View::joined(LEASE, ME, ms(0))
    }

    fn new(address: Option<&str>) -> NewNode {
        NewNode { address: address.map(str::to_owned), ..row(ME, 0).node }
    }

    fn at(id: i64, beat: u64, address: &str, draining: bool) -> NodeRow {
        let row = row(NodeId(id), beat);
        NodeRow { node: new(Some(address)), pulse: Pulse { draining, ..row.pulse }, ..row }
    }

    #[test]
    fn each_node_is_counted_once_and_one_that_was_started_again_under_its_address() {
        let mut view = view();
        for n in 0..6 {
            // One node is alive and one is draining. Of the silent ones, two were restarted and one was draining.
            let moving = [at(2, n, "b", false), at(3, n, "c", true)];
            let still = [at(4, 1, "b", false), at(5, 1, "a", false), at(6, 1, "d", true)];
            let rows = [row(ME, n)].into_iter().chain(moving).chain(still).collect();
            view.polled(ms(200 * n + 200), ms(200 * n + 200), rows);
        }
        assert_eq!(view.counted(&new(Some("a")), false), Counted { living: 2, draining: 1, silent: 1 });
        assert_eq!(view.counted(&new(None), true), Counted { living: 1, draining: 2, silent: 2 });
    }

    #[test]
    fn rows_of_the_dead_count_once_for_their_address_and_not_before_they_are_judged() {
        let (mut view, mut polls) = (view(), 0..);
        // Eleven starts at `b` have died, one of them while draining. The twelfth beats, and so may a thirteenth.
        let mut poll = |view: &mut View, twelfth: u64, more: Vec<NodeRow>| {
            let time = ms(200 * polls.next().expect("it does not end") + 200);
            let dead = (2..13).map(|id| at(id, 7, "b", id == 5));
            view.polled(time, time, dead.chain([at(13, twelfth, "b", false)]).chain(more).collect());
            let Counted { living, draining, silent } = view.counted(&new(Some("a")), false);
            (living, draining, silent)
        };
        assert_eq!(poll(&mut view, 1, vec![]), (1, 0, 0), "nobody was seen to move");
        for n in 2..10 {
            assert_eq!(poll(&mut view, n, vec![]), (2, 0, 0), "poll {n}");
        }
        // It is killed. It counts as living until its lease is over, and then its address is silent.
        let killed: Vec<_> = (0..6).map(|_| poll(&mut view, 9, vec![])).collect();
        assert_eq!(killed, [(2, 0, 0), (2, 0, 0), (2, 0, 0), (2, 0, 0), (1, 0, 1), (1, 0, 1)]);
        // It is back, then restarted once more before anyone noticed, and draining.
        assert_eq!(poll(&mut view, 9, vec![at(14, 1, "b", false)]), (1, 0, 1), "it was not seen to move");
        assert_eq!(poll(&mut view, 9, vec![at(14, 2, "b", false)]), (2, 0, 0));
        for n in 1..4 {
            let both = vec![at(14, 2, "b", false), at(15, n, "b", true)];
            assert_eq!(poll(&mut view, 9, both), if n == 1 { (2, 0, 0) } else { (1, 1, 0) }, "poll {n} of the last");
        }
    }

    #[test]
    fn without_an_address_the_name_counts_for_the_dead_only() {
        let named = |id: i64, beat: u64, name: &str| {
            let row = row(NodeId(id), beat);
            NodeRow { node: NewNode { name: name.into(), ..row.node }, ..row }
        };
        let mut view = view();
        for n in 0..6 {
            let moving = [named(2, n, "one"), named(3, n, "one")];
            let still = [named(4, 7, "one"), named(5, 7, "other"), named(6, 7, "other"), named(7, 7, "n")];
            view.polled(ms(200 * n + 200), ms(200 * n + 200), moving.into_iter().chain(still).collect());
        }
        assert_eq!(view.counted(&new(None), false), Counted { living: 3, draining: 0, silent: 1 });
        // `n` is this server's name, but it has an address.
        assert_eq!(view.counted(&new(Some("a")), false), Counted { living: 3, draining: 0, silent: 2 });
    }

    #[test]
    fn a_failover_does_not_make_the_silent_count_as_living() {
        let (mut view, me) = (view(), new(None));
        for n in 0..9 {
            let rows = vec![at(2, n, "b", false), at(3, n.min(2), "c", false)];
            view.polled(ms(200 * n + 200), ms(200 * n + 200), rows);
        }
        assert_eq!(view.counted(&me, false), Counted { living: 2, draining: 0, silent: 1 });
        view.doubt();
        assert_eq!(view.silent(), []);
        assert_eq!(view.counted(&me, false), Counted { living: 2, draining: 0, silent: 0 });
    }

    #[test]
    fn a_node_that_stands_still_for_its_lease_is_silent() {
        let mut view = view();
        for n in 0..6 {
            assert_eq!(view.silent(), [], "after {n} polls");
            assert!(matches!(view.holder(Some(OTHER)), Holder::Unknown | Holder::Other(_)));
            view.polled(ms(200 * n + 200), ms(200 * n + 200), vec![row(ME, n), row(OTHER, 7)]);
        }
        assert_eq!(view.silent(), [Silent { node: OTHER, beat: 7 }]);
        assert_eq!(view.holder(Some(OTHER)), Holder::Nobody);
        // One change of the counter, in either direction, shows that it is alive.
        view.polled(ms(1400), ms(1400), vec![row(OTHER, 6)]);
        assert_eq!(view.silent(), []);
        // A node that has left is looked up in the store.
        view.polled(ms(1600), ms(1600), vec![]);
        assert_eq!(view.holder(Some(OTHER)), Holder::Unknown);
        assert_eq!((view.holder(Some(ME)), view.holder(None)), (Holder::Me, Holder::Nobody));
    }

    #[test]
    fn another_copy_of_the_store_proves_nothing_about_the_time_before() {
        let mut view = view();
        let mut polls = 0..;
        let mut poll = |view: &mut View| {
            let at = ms(200 * polls.next().expect("it does not end") + 200);
            view.polled(at, at, vec![row(ME, 1), row(OTHER, 7)]);
            view.silent().len()
        };
        let before: Vec<usize> = (0..7).map(|_| poll(&mut view)).collect();
        assert_eq!(before, [0, 0, 0, 0, 0, 1, 1]);
        view.doubt();
        assert_eq!(view.silent(), []);
        let after: Vec<usize> = (0..6).map(|_| poll(&mut view)).collect();
        assert_eq!(after, [0, 0, 0, 0, 1, 1]);
    }

    #[test]
    fn an_outage_of_the_store_makes_nobody_silent() {
        let mut view = view();
        view.polled(ms(200), ms(200), vec![row(OTHER, 1)]);
        // No poll succeeds for a minute. This node was waiting during all of it.
        view.polled(ms(400), ms(60_000), vec![row(OTHER, 1)]);
        view.polled(ms(60_200), ms(60_200), vec![row(OTHER, 1)]);
        assert_eq!(view.silent(), []);
        // The next poll succeeds after a new connection was made.
        view.polled(ms(90_000), ms(90_000), vec![row(OTHER, 1)]);
        assert_eq!(view.silent(), [], "a gap counts as two beats");
        assert!(view.is_trusted(ms(90_799)) && !view.is_trusted(ms(90_800)));
    }

    #[test]
    fn the_time_to_ask_again_is_when_the_lease_ends() {
        let mut view = view();
        for n in 1..5 {
            view.polled(ms(200 * n), ms(200 * n), vec![row(OTHER, 1)]);
        }
        assert_eq!(view.retry_after(OTHER), ms(600));
        assert_eq!(view.retry_after(NodeId(3)), ms(400));
        let long = View::joined(ms(60_000), ME, ms(0));
        assert_eq!(long.retry_after(NodeId(3)), ms(2_000), "however long its lease is");
    }

    proptest! {
        /// A node has stopped trusting itself before another node judges it silent, even if beats are lost or late.
        #[test]
        fn nobody_is_silent_who_trusts_itself(
            beats in prop::collection::vec((1_u64..900, 0_u64..400, any::<bool>()), 1..40),
            polls in prop::collection::vec((1_u64..600, 0_u64..3000, 0_u64..100, any::<bool>()), 1..60),
        ) {
            // The other node's beats: when each was sent and when it was written. Each is sent after the previous
            // answer.
            let (mut at, mut written) = (0, vec![(0, 0)]);
            for (pause, takes, arrives) in beats {
                at += pause;
                if arrives {
                    written.push((at, at + takes));
                }
                at += takes;
            }
            let (mut view, mut at) = (view(), 0);
            for (pause, takes, share, comes_back) in polls {
                let sent = at + pause;
                at = sent + takes;
                if !comes_back {
                    continue;
                }
                let read = sent + takes * share / 100;
                let beat = written.iter().rposition(|(_, when)| *when <= read).unwrap_or(0);
                view.polled(ms(sent), ms(at), vec![row(OTHER, beat as u64)]);
                if view.silent().is_empty() {
                    continue;
                }
                let trusted_until = ms(written[beat].0) + LEASE * TRUST_TENTHS / 10;
                prop_assert!(ms(read) >= trusted_until, "silent at {read}, trusted until {trusted_until:?}");
            }
        }

        /// A dead node is silent after its lease and a few beats, if polls succeed.
        #[test]
        fn a_dead_node_is_noticed(late in prop::collection::vec(0_u64..40, 12)) {
            let (mut view, mut at) = (view(), 0);
            for takes in late {
                at += 200;
                view.polled(ms(at), ms(at + takes), vec![row(OTHER, 1)]);
            }
            prop_assert_eq!(view.silent().len(), 1, "after {} beats", BEATS);
        }
    }
}
