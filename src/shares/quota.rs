//! Limits what each key holds at a time, and what all of them hold together.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// A limit per key and a limit in total; 0 means no limit.
#[derive(Debug, Default)]
pub(crate) struct Quota {
    most: u64,
    most_per_key: u64,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    total: u64,
    /// The keys that hold something.
    by_key: HashMap<Arc<str>, u64>,
}

/// A part of a quota, released on drop. The default holds nothing.
#[derive(Debug, Default)]
pub(crate) struct Permit(Option<Taken>);

#[derive(Debug)]
struct Taken {
    quota: Arc<Quota>,
    key: Arc<str>,
    /// An exchange sets it to 0.
    count: AtomicU64,
}

/// Reports that a quota is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full {
    /// The amount that the key would have held.
    pub(crate) wanted: u64,
    /// The limit per key.
    pub(crate) most: u64,
}

impl Quota {
    /// Creates a quota with a limit in total and one per key.
    pub(crate) fn new(most: u64, most_per_key: u64) -> Arc<Self> {
        Arc::new(Self { most, most_per_key, held: Mutex::default() })
    }

    /// Takes this much for a key.
    ///
    /// # Errors
    /// The key would hold too much, or all keys together would.
    pub(crate) fn take(self: &Arc<Self>, key: &str, count: u64) -> Result<Permit, Full> {
        self.exchange(key, count, &Permit::default())
    }

    /// Takes this much for a key in exchange for what another permit of the key holds, which is then empty. If the
    /// exchange is refused, the other permit keeps its part. Taking less than before is never refused.
    ///
    /// # Errors
    /// The key would hold too much, or all keys together would.
    pub(crate) fn exchange(self: &Arc<Self>, key: &str, count: u64, old: &Permit) -> Result<Permit, Full> {
        if self.most == 0 && self.most_per_key == 0 {
            return Ok(Permit::default());
        }
        let mut held = self.lock();
        let (key, of_key) = match held.by_key.get_key_value(key) {
            Some((key, count)) => (key.clone(), *count),
            None => (key.into(), 0),
        };
        let old = old.0.as_ref().filter(|old| Arc::ptr_eq(&old.quota, self) && old.key == key);
        let given = old.map_or(0, |old| old.count.load(Ordering::Relaxed));
        let (wanted, total) = (of_key - given + count, held.total - given + count);
        let is_over = |wanted: u64, most: u64| most > 0 && wanted > most;
        if count > given && (is_over(wanted, self.most_per_key) || is_over(total, self.most)) {
            return Err(Full { wanted, most: self.most_per_key });
        }
        held.set(&key, wanted, total);
        old.inspect(|old| old.count.store(0, Ordering::Relaxed));
        drop(held);
        Ok(Permit(Some(Taken { quota: self.clone(), key, count: count.into() })))
    }

    /// Returns what all keys hold.
    #[cfg(test)]
    pub(crate) fn total(&self) -> u64 {
        let held = self.lock();
        assert_eq!(held.total, held.by_key.values().sum::<u64>());
        assert!(held.by_key.values().all(|count| *count > 0), "a key that holds nothing is forgotten");
        held.total
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn set(&mut self, key: &Arc<str>, of_key: u64, total: u64) {
        self.total = total;
        match of_key {
            0 => self.by_key.remove(key),
            _ => self.by_key.insert(key.clone(), of_key),
        };
    }
}

impl Permit {
    /// Returns what it holds.
    pub(crate) fn count(&self) -> u64 {
        self.0.as_ref().map_or(0, |taken| taken.count.load(Ordering::Relaxed))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let count = *self.count.get_mut();
        if count > 0 {
            let mut held = self.quota.lock();
            let of_key = held.by_key.get(&self.key).map_or(0, |of_key| of_key - count);
            let total = held.total - count;
            held.set(&self.key, of_key, total);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_a_part_of_the_whole_and_gives_it_back() {
        let quota = Quota::new(5, 3);
        let first: Vec<Permit> = (0..9).filter_map(|_| quota.take("ann", 1).ok()).collect();
        assert_eq!((first.len(), quota.total()), (3, 3));
        assert_eq!(quota.take("ann", 2).unwrap_err(), Full { wanted: 5, most: 3 });
        let second = quota.take("bob", 2).unwrap();
        assert!(quota.take("eve", 1).is_err(), "all together have too much");
        drop(first);
        let third = quota.take("ann", 3);
        assert!(third.is_ok() && quota.take("eve", 0).is_ok());
        drop((second, third));
        assert_eq!(quota.total(), 0);
        let endless = Quota::new(0, 0);
        assert!(endless.take("ann", 1_000).is_ok() && endless.total() == 0);
    }

    #[test]
    fn what_is_exchanged_counts_once() {
        let quota = Quota::new(0, 3);
        let mut permit = quota.take("ann", 2).unwrap();
        // How much is taken in exchange, and whether it is refused.
        for (count, is_refused) in [(3, false), (4, true), (1, false), (0, false), (4, true), (3, false), (3, false)] {
            let before = quota.total();
            match quota.exchange("ann", count, &permit) {
                Ok(new) => {
                    assert_eq!((quota.total(), is_refused), (count, false));
                    permit = new;
                    assert_eq!((quota.total(), permit.count()), (count, count), "the old one gives back nothing");
                }
                Err(_) => assert_eq!((quota.total(), is_refused), (before, true)),
            }
        }
        // Another user's permit is not exchanged.
        let others = quota.exchange("bob", 1, &permit).unwrap();
        assert_eq!(quota.total(), 4);
        drop((permit, others));
        assert_eq!(quota.total(), 0);
    }
}
