//! One-time tickets: a browser cannot send a token with a WebSocket's handshake, so it gets a ticket for one.

use super::auth::Name;
use crate::metrics::limits::Limit;
use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

/// Unused tickets at a time: far more than people request within a ticket's life of a minute.
const TICKETS_MAX: usize = 10_000;

/// Why no ticket was issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// This user has its share, which is this many.
    Share(usize),
    /// All users together have too many.
    All,
}

/// The tickets that nobody has used.
#[derive(Debug)]
pub(super) struct Tickets {
    life: Duration,
    /// The most of one user; 0 for no limit.
    per_user_max: usize,
    next: u64,
    all: HashMap<String, Ticket>,
    /// By age, which is the order in which they expire.
    by_age: BTreeMap<u64, String>,
    /// How many a user has.
    counts: HashMap<Name, usize>,
}

#[derive(Debug)]
struct Ticket {
    name: Name,
    number: u64,
    expires: Instant,
}

impl Tickets {
    pub(super) fn new(life: Duration, per_user_max: usize) -> Self {
        Self { life, per_user_max, next: 0, all: HashMap::new(), by_age: BTreeMap::new(), counts: HashMap::new() }
    }

    pub(super) fn life(&self) -> Duration {
        self.life
    }

    /// Adds a ticket of this user.
    ///
    /// # Errors
    /// The user, or all together, have too many unused ones.
    pub(super) fn add(&mut self, ticket: String, name: Name, now: Instant) -> Result<(), Refused> {
        self.expire(now);
        if self.all.len() >= TICKETS_MAX {
            Limit::Tickets.refused();
            return Err(Refused::All);
        }
        let count = self.counts.entry(name.clone()).or_insert(0);
        if self.per_user_max > 0 && *count >= self.per_user_max {
            Limit::TicketsPerUser.refused();
            return Err(Refused::Share(self.per_user_max));
        }
        *count += 1;
        let number = self.next;
        self.next += 1;
        self.by_age.insert(number, ticket.clone());
        self.all.insert(ticket, Ticket { name, number, expires: now + self.life });
        Ok(())
    }

    /// Redeems a ticket and returns its user.
    pub(super) fn redeem(&mut self, ticket: &str, now: Instant) -> Option<Name> {
        // A ticket is 192 random bits, looked up by hash: the time it takes reveals nothing about other tickets.
        let Ticket { name, expires, .. } = self.remove(ticket)?;
        (expires > now).then_some(name)
    }

    /// Drops what has expired.
    fn expire(&mut self, now: Instant) {
        while let Some((_, oldest)) = self.by_age.first_key_value()
            && self.all.get(oldest).is_none_or(|ticket| ticket.expires <= now)
        {
            let oldest = oldest.clone();
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, ticket: &str) -> Option<Ticket> {
        let removed = self.all.remove(ticket)?;
        self.by_age.remove(&removed.number);
        if let Some(count) = self.counts.get_mut(&removed.name) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&removed.name);
            }
        }
        Some(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Duration = Duration::from_secs(60);

    fn add(tickets: &mut Tickets, ticket: usize, name: &str, now: Instant) -> Result<(), Refused> {
        tickets.add(format!("{name}-{ticket}"), name.to_owned(), now)
    }

    #[test]
    fn a_ticket_is_good_once_and_for_a_time() {
        let (mut tickets, now) = (Tickets::new(LIFE, 0), Instant::now());
        add(&mut tickets, 1, "ann", now).unwrap();
        add(&mut tickets, 2, "ann", now).unwrap();
        assert_eq!(tickets.redeem("ann-1", now).as_deref(), Some("ann"));
        assert_eq!(tickets.redeem("ann-1", now), None, "it was used");
        assert_eq!(tickets.redeem("ann-2", now + LIFE), None, "it has expired");
        assert!(tickets.all.is_empty() && tickets.by_age.is_empty() && tickets.counts.is_empty());
    }

    #[test]
    fn one_user_leaves_tickets_to_the_others() {
        let (mut tickets, now) = (Tickets::new(LIFE, 3), Instant::now());
        let issued = (0..9).filter(|at| add(&mut tickets, *at, "ann", now).is_ok()).count();
        assert_eq!((issued, add(&mut tickets, 9, "ann", now)), (3, Err(Refused::Share(3))));
        assert_eq!(add(&mut tickets, 0, "bob", now), Ok(()));
        tickets.redeem("ann-0", now);
        assert_eq!(add(&mut tickets, 10, "ann", now), Ok(()), "a used one makes room");
        assert_eq!(add(&mut tickets, 11, "ann", now + LIFE), Ok(()), "and so does time");
        assert_eq!(tickets.all.len(), 1, "what has expired is gone");
    }

    #[test]
    fn all_users_together_have_a_bound() {
        let (mut tickets, now) = (Tickets::new(LIFE, 0), Instant::now());
        let issued = (0..TICKETS_MAX + 5).filter(|at| add(&mut tickets, *at, "ann", now).is_ok()).count();
        assert_eq!((issued, add(&mut tickets, 0, "bob", now)), (TICKETS_MAX, Err(Refused::All)));
    }
}
