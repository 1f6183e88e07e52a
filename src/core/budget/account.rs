//! What has been spent of a budget, and what is reserved.

use super::{Amount, Limit};
use std::collections::BTreeMap;

/// Whether a request is admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It may be reserved.
    Free,
    /// What is spent leaves room, but what is reserved may use it up: the request waits until others are settled.
    Wait,
    /// The budget is used up.
    Exhausted,
}

/// A request that this server has reserved, and that [`Account::stored`] may not include as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Own {
    /// What it counts for.
    now: Amount,
    /// True until it is settled.
    is_open: bool,
    /// What of it is stored for certain.
    written: Amount,
    /// What of it [`Account::stored`] includes for certain.
    included: Amount,
    /// True if it was written as it is now.
    is_written: bool,
}

/// What has been spent of one user, session or deployment in one period, as one server knows it.
#[derive(Debug, Clone, Default)]
pub struct Account {
    /// The sum of the stored rows.
    stored: Amount,
    /// This server's requests, by the ids of their rows.
    own: BTreeMap<String, Own>,
    /// True if other servers also store rows, so that only reading them tells the sum.
    is_shared: bool,
    /// The largest share, in percent, at which users were told.
    told_percent: u64,
}

impl Account {
    /// Creates an account with this stored sum.
    #[must_use]
    pub fn loaded(stored: Amount, is_shared: bool) -> Self {
        Self { stored, own: BTreeMap::new(), is_shared, told_percent: 0 }
    }

    /// Returns the ids of requests that are written as they are now. A sum that is read from now on includes them.
    #[must_use]
    pub fn written_ids(&self) -> Vec<String> {
        self.own.iter().filter(|(_, own)| own.is_written).map(|(id, _)| id.clone()).collect()
    }

    /// Takes the sum of the stored rows, read after these requests were written.
    pub fn reread(&mut self, stored: Amount, written: &[String]) {
        self.stored = stored;
        for id in written {
            if let Some(own) = self.own.get_mut(id) {
                own.included = own.written;
            }
        }
        self.forget_settled();
    }

    fn forget_settled(&mut self) {
        self.own.retain(|_, own| own.is_open || !own.is_written || own.included != own.now);
    }

    /// Returns everything spent and reserved. If it is uncertain whether a sum includes a row, it is counted twice.
    #[must_use]
    pub fn total(&self) -> Amount {
        self.own.values().fold(self.stored, |sum, own| sum.and(own.now).without(own.included))
    }

    /// Returns what was spent, without this server's requests in progress.
    #[must_use]
    pub fn spent(&self) -> Amount {
        let open = self.own.values().filter(|own| own.is_open);
        self.total().without(open.fold(Amount::default(), |sum, own| sum.and(own.now)))
    }

    /// Returns true if this server has no requests in the account.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.own.is_empty()
    }

    /// Returns whether another request is admitted.
    #[must_use]
    pub fn admits(&self, limit: &Limit) -> Admission {
        match (limit.is_reached_by(self.spent()), limit.is_reached_by(self.total())) {
            (true, _) => Admission::Exhausted,
            (false, true) => Admission::Wait,
            (false, false) => Admission::Free,
        }
    }

    /// Returns whether a request whose reservation is stored is still admitted, now that other servers' are known: of
    /// several that were stored at the same time, at least the last one sees the others.
    #[must_use]
    pub fn still_admits(&self, id: &str, limit: &Limit) -> bool {
        let own = self.own.get(id).map_or(Amount::default(), |own| own.now);
        !limit.is_reached_by(self.total().without(own))
    }

    /// Reserves an admitted request.
    pub fn reserve(&mut self, id: &str, estimate: Amount) {
        let nothing = Amount::default();
        let own = Own { now: estimate, is_open: true, written: nothing, included: nothing, is_written: false };
        self.own.insert(id.to_owned(), own);
    }

    /// Settles a request by what it cost. Does nothing if it is unknown or already settled.
    pub fn settle(&mut self, id: &str, cost: Amount) {
        if let Some(own) = self.own.get_mut(id).filter(|own| own.is_open) {
            (own.now, own.is_open, own.is_written) = (cost, false, false);
        }
    }

    /// Settles a request by what it cost, also if it was reserved before the account was loaded.
    pub fn spend(&mut self, id: &str, cost: Amount) {
        if !self.own.contains_key(id) {
            self.reserve(id, Amount::default());
        }
        self.settle(id, cost);
    }

    /// Returns true if a request is reserved and not settled.
    #[must_use]
    pub fn has_open(&self, id: &str) -> bool {
        self.own.get(id).is_some_and(|own| own.is_open)
    }

    /// Removes a request that was never sent and whose reservation was not stored.
    pub fn withdraw(&mut self, id: &str) {
        self.own.remove(id);
    }

    /// Settles a request by what is reserved, because what it cost cannot be stored.
    pub fn keep(&mut self, id: &str) {
        if let Some(own) = self.own.get_mut(id) {
            own.is_open = false;
        }
        self.forget_settled();
    }

    /// Notes that a request was stored with this amount.
    pub fn written(&mut self, id: &str, amount: Amount) {
        let Some(own) = self.own.get_mut(id) else { return };
        own.written = amount;
        own.is_written = own.now == amount;
        if !self.is_shared {
            self.stored = self.stored.and(amount).without(own.included);
            own.included = amount;
        }
        self.forget_settled();
    }

    /// Returns the share of a limit that its users should be told of now: the largest one that was reached since the
    /// last call.
    pub fn to_tell(&mut self, limit: &Limit) -> Option<u64> {
        let used = limit.used_percent(self.spent());
        let reached = super::TOLD_PERCENT.into_iter().filter(|percent| *percent <= used).max()?;
        (reached > self.told_percent).then(|| {
            self.told_percent = reached;
            reached
        })
    }
}
