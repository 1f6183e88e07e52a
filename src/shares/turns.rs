//! Lets users take turns at something scarce, such as the model.
//!
//! A request to the model needs a turn. If there is none, the request waits. The next turn goes to the users one after
//! another, and within a user to the oldest request. So a user with a hundred running conversations delays another
//! user's by only one request. A conversation holds no turn while it waits for a tool or a hook, so those that wait for
//! each other cannot deadlock.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::oneshot;

/// The number of turns at a time, in total and per user; 0 means no limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) most: usize,
    pub(crate) most_per_user: usize,
}

/// The turns in progress, and the requests that wait for one.
#[derive(Debug)]
pub(crate) struct Turns {
    bounds: Bounds,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    taken: usize,
    next: u64,
    /// The users who have turns or wait. There are at most as many as requests in progress, and each open session has
    /// one.
    users: HashMap<Arc<str>, User>,
    /// The users who wait and may have another turn, in order.
    order: VecDeque<Arc<str>>,
}

#[derive(Debug, Default)]
struct User {
    taken: usize,
    /// Ordered by age.
    waiting: BTreeMap<u64, oneshot::Sender<Turn>>,
    /// True if the user is in `order`.
    is_in_order: bool,
}

/// A user's turn, which ends on drop.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    /// The user; `None` once the turn has ended, or if there are no limits.
    user: Option<Arc<str>>,
}

/// A request's position in the queue. Dropping it leaves the queue.
struct Waiting<'a> {
    turns: &'a Turns,
    user: Arc<str>,
    number: u64,
}

impl Turns {
    pub(crate) fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self { bounds, queue: Mutex::default() })
    }

    /// Waits for a turn of this user, if necessary. Dropping the future leaves the queue.
    pub(crate) async fn take(self: &Arc<Self>, user: &str) -> Turn {
        if self.bounds.most == 0 && self.bounds.most_per_user == 0 {
            return Turn { turns: self.clone(), user: None };
        }
        let user: Arc<str> = user.into();
        let (grant, mut granted) = oneshot::channel();
        let number = {
            let mut queue = self.lock();
            let number = queue.next;
            queue.next += 1;
            queue.users.entry(user.clone()).or_default().waiting.insert(number, grant);
            queue.line_up(&user, self.bounds);
            number
        };
        self.grant();
        if let Ok(turn) = granted.try_recv() {
            return turn;
        }
        let _waiting = Waiting { turns: self, user: user.clone(), number };
        match granted.await {
            Ok(turn) => turn,
            // The queue never drops a sender without sending. But if it did, the request must not wait forever.
            Err(_) => Turn { turns: self.clone(), user: None },
        }
    }

    /// Returns how many requests wait.
    #[cfg(test)]
    fn waiting(&self) -> usize {
        self.lock().users.values().map(|user| user.waiting.len()).sum()
    }

    /// Grants free turns in order.
    fn grant(self: &Arc<Self>) {
        loop {
            let next = self.lock().next(self.bounds);
            let Some((user, grant)) = next else { return };
            // If the request no longer waits, it drops its turn, which calls this function again.
            let _ = grant.send(Turn { turns: self.clone(), user: Some(user) });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Adds a user to the order of turns, if one of its requests waits and it may have another turn.
    fn line_up(&mut self, name: &Arc<str>, bounds: Bounds) {
        let Some(user) = self.users.get_mut(name) else { return };
        let has_room = bounds.most_per_user == 0 || user.taken < bounds.most_per_user;
        if has_room && !user.is_in_order && !user.waiting.is_empty() {
            user.is_in_order = true;
            self.order.push_back(name.clone());
        }
    }

    /// Takes the next turn; `None` if there is none or nobody waits.
    fn next(&mut self, bounds: Bounds) -> Option<(Arc<str>, oneshot::Sender<Turn>)> {
        while bounds.most == 0 || self.taken < bounds.most {
            let name = self.order.pop_front()?;
            let Some(user) = self.users.get_mut(&name) else { continue };
            user.is_in_order = false;
            let Some((_, grant)) = user.waiting.pop_first() else {
                self.forget(&name);
                continue;
            };
            user.taken += 1;
            self.taken += 1;
            self.line_up(&name, bounds);
            return Some((name, grant));
        }
        None
    }

    /// Forgets a user who neither has a turn nor waits.
    fn forget(&mut self, name: &Arc<str>) {
        if self.users.get(name).is_some_and(|user| user.taken == 0 && user.waiting.is_empty() && !user.is_in_order) {
            self.users.remove(name);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(user) = self.user.take() else { return };
        {
            let mut queue = self.turns.lock();
            queue.taken -= 1;
            if let Some(found) = queue.users.get_mut(&user) {
                found.taken -= 1;
            }
            queue.line_up(&user, self.turns.bounds);
            queue.forget(&user);
        }
        self.turns.grant();
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut queue = self.turns.lock();
        if let Some(user) = queue.users.get_mut(&self.user) {
            user.waiting.remove(&self.number);
        }
        queue.forget(&self.user);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use std::{future::Future, pin::Pin};

    type Taking<'a> = Pin<Box<dyn Future<Output = Turn> + 'a>>;

    /// Requests a place for each of these users, in this order.
    fn ask<'a>(turns: &'a Arc<Turns>, users: &[&'a str]) -> Vec<(&'a str, Taking<'a>)> {
        let ask = |user: &&'a str| -> (&'a str, Taking<'a>) { (*user, Box::pin(turns.take(user))) };
        let mut asked: Vec<_> = users.iter().map(ask).collect();
        // A future does nothing until it is polled. The first poll of each may already be granted.
        let mut early = Vec::new();
        for (user, taking) in &mut asked {
            if let Some(place) = taking.now_or_never() {
                early.push((*user, place));
            }
        }
        assert!(early.is_empty(), "nothing was free");
        asked
    }

    /// Returns the users who have a place now, and removes their requests.
    fn granted<'a>(asked: &mut Vec<(&'a str, Taking<'a>)>) -> Vec<(&'a str, Turn)> {
        let mut places = Vec::new();
        asked.retain_mut(|(user, taking)| match taking.now_or_never() {
            Some(place) => {
                places.push((*user, place));
                false
            }
            None => true,
        });
        places
    }

    #[test]
    fn users_take_turns_at_a_scarce_place() {
        let turns = Turns::new(Bounds { most: 1, most_per_user: 0 });
        let mut place = turns.take("ann").now_or_never().unwrap();
        let mut asked = ask(&turns, &["ann", "ann", "ann", "bob", "ann", "eve", "bob"]);
        let mut served = Vec::new();
        while !asked.is_empty() {
            drop(place);
            let mut now = granted(&mut asked);
            assert_eq!(now.len(), 1, "one at a time");
            let (user, next) = now.remove(0);
            served.push(user);
            place = next;
        }
        assert_eq!(served, ["ann", "bob", "eve", "ann", "bob", "ann", "ann"]);
        drop(place);
        assert!(turns.lock().users.is_empty() && turns.lock().taken == 0);
    }

    #[test]
    fn a_users_share_leaves_places_to_others() {
        let turns = Turns::new(Bounds { most: 3, most_per_user: 2 });
        let first: Vec<Turn> = (0..2).map(|_| turns.take("ann").now_or_never().unwrap()).collect();
        let mut asked = ask(&turns, &["ann"]);
        let other = turns.take("bob").now_or_never().unwrap();
        assert_eq!(turns.waiting(), 1);
        drop(other);
        assert!(granted(&mut asked).is_empty(), "there is a place, but it is not hers");
        drop(first);
        assert_eq!(granted(&mut asked).len(), 1);
    }

    #[test]
    fn who_leaves_the_queue_takes_nothing_with_him() {
        let turns = Turns::new(Bounds { most: 1, most_per_user: 1 });
        let place = turns.take("ann").now_or_never().unwrap();
        let mut asked = ask(&turns, &["bob", "eve", "ann"]);
        // One request leaves while it waits, and one leaves after the place was granted.
        drop(asked.remove(0));
        drop(place);
        drop(asked.remove(0));
        assert_eq!(granted(&mut asked).len(), 1);
        drop(asked);
        assert!(turns.lock().users.is_empty() && turns.lock().order.is_empty() && turns.lock().taken == 0);
    }

    #[test]
    fn without_limits_nobody_waits() {
        let turns = Turns::new(Bounds { most: 0, most_per_user: 0 });
        let places: Vec<_> = (0..100).map(|_| turns.take("ann").now_or_never().unwrap()).collect();
        assert_eq!((places.len(), turns.lock().users.len()), (100, 0));
    }
}
