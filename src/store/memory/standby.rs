//! A standby of a memory store, for tests of a failover to a copy that lacks the last records.

use super::{MemoryStore, State};
use std::sync::PoisonError;

/// A copy of a store that receives no further writes.
#[derive(Debug)]
pub struct Standby(State);

impl MemoryStore {
    /// Returns a standby with everything written until now.
    #[must_use]
    pub fn standby(&self) -> Standby {
        Standby(self.state.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Replaces the store by a standby, for all handles: everything written since the standby was made is lost. On the
    /// new timeline, a session gets a new epoch at its next opening. With `is_noticed` false the timeline stays, as if
    /// a backup had been restored without telling reseed.
    pub fn fail_over(&self, to: Standby, is_noticed: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *state, to.0);
        state.timeline = before.timeline + u64::from(is_noticed);
        // Epochs are random, and a database's sequences run ahead of its rows.
        state.epochs = before.epochs;
        state.node_numbers = before.node_numbers;
    }
}

#[cfg(test)]
mod tests {
    use super::MemoryStore;
    use crate::{Append, Cluster as _, Error, Head, LeasedSession, NewNode, NewRecord, Pulse, SessionStore as _};
    use reseed_protocol::Timestamp;
    use std::time::Duration;

    #[tokio::test]
    async fn records_that_a_standby_lacks_are_lost_and_the_log_gets_a_new_epoch() {
        let store = MemoryStore::seeded(1);
        let session = "s".parse().expect("an id");
        let lease = store.create(&session, "", Timestamp(1)).await.expect("it is new");
        let append = || Append {
            records: vec![NewRecord { body: "{}".into(), entry: None }],
            marks: Vec::new(),
            head: Head::default(),
            usage: Vec::new(),
        };
        store.append(&lease, 1, append()).await.expect("the first record");
        let standby = store.standby();
        store.append(&lease, 2, append()).await.expect("the second record");
        let held = |last_seq| LeasedSession {
            session: session.clone(),
            epoch: lease.epoch.clone(),
            term: lease.term,
            last_seq,
        };
        assert_eq!(store.lost(&[held(2)]).await, Ok(vec![]));
        store.fail_over(standby, true);
        assert_eq!(store.failovers(), 1);
        assert_eq!(store.lost(&[held(2)]).await, Ok(vec![session.clone()]));
        assert_eq!(store.lost(&[held(1)]).await, Ok(vec![]), "all that was acknowledged is there");
        assert!(matches!(store.append(&lease, 3, append()).await, Err(Error::Fenced { .. })));
        let (again, head) = store.open(&session).await.expect("it is there");
        assert_eq!((head.last_seq, again.term), (1, 2));
        assert_ne!(again.epoch, lease.epoch);
        let (later, _) = store.open(&session).await.expect("it is there");
        assert_eq!(later.epoch, again.epoch, "the timeline is the same");
    }

    #[tokio::test]
    async fn a_node_that_the_standby_lacks_opens_nothing_until_it_has_joined_again() {
        let store = MemoryStore::seeded(1);
        let session = "s".parse().expect("an id");
        store.create(&session, "", Timestamp(1)).await.expect("it is new");
        let standby = store.standby();
        let new = NewNode { name: "a".into(), address: None, version: "0".into(), lease: Duration::from_secs(5) };
        store.join(&new).await.expect("it joins");
        store.fail_over(standby, true);
        assert!(matches!(store.open(&session).await, Err(Error::NotMember(_))));
        assert_eq!(store.beat(Pulse::default()).await, Ok(None));
        store.join(&new).await.expect("it joins");
        store.open(&session).await.expect("nobody has it");
    }
}
