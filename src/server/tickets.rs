//! One-time tickets. A browser cannot send a token with a WebSocket handshake, so it exchanges the token for a ticket.

use super::auth::{Draft, Source};
use crate::{
    config::AuthSettings,
    metrics::limits::Limit,
    shares::{Permit, quota::Quota},
};
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

/// Maximum number of unused tickets. People request far fewer within a ticket's life of a minute.
pub(super) const TICKETS_MAX: usize = 10_000;

/// The reason why no ticket was issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// A user or a service has used up its share, which is this many.
    Share(Limit, usize),
    /// All users together have too many.
    All,
}

/// The maximum numbers of unused tickets; 0 means no limit.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TicketShares {
    pub(super) user_max: usize,
    pub(super) service_max: usize,
}

impl TicketShares {
    /// Returns the configured shares. In a deployment with one user, there is nobody to share with.
    pub(super) fn of(settings: &AuthSettings, has_several_users: bool) -> Self {
        let user_max = if has_several_users { settings.tickets_per_user_max as usize } else { 0 };
        Self { user_max, service_max: settings.tickets_per_service_max as usize }
    }
}

/// The unused tickets.
#[derive(Debug)]
pub(super) struct Tickets {
    all: HashMap<String, Ticket>,
    users: Arc<Quota>,
    /// The tickets that a service has issued to all its users.
    services: Arc<Quota>,
}

#[derive(Debug)]
struct Ticket {
    draft: Draft,
    expires: Instant,
    _permits: [Permit; 2],
}

impl Tickets {
    pub(super) fn new(shares: TicketShares) -> Self {
        let TicketShares { user_max, service_max } = shares;
        let [users, services] = [user_max, service_max].map(|most| Quota::new(0, most as u64));
        Self { all: HashMap::new(), users, services }
    }

    /// Adds a ticket that can be redeemed for this long.
    ///
    /// # Errors
    /// The user, its service, or all together have too many unused tickets.
    pub(super) fn add(&mut self, ticket: String, draft: Draft, life: Duration, now: Instant) -> Result<(), Refused> {
        self.all.retain(|_, ticket| ticket.expires > now);
        if self.all.len() >= TICKETS_MAX {
            Limit::Tickets.refused();
            return Err(Refused::All);
        }
        let take = |quota: &Arc<Quota>, of: &str, limit: Limit| {
            quota.take(of, 1).map_err(|full| {
                limit.refused();
                Refused::Share(limit, usize::try_from(full.most).unwrap_or(usize::MAX))
            })
        };
        let of_user = take(&self.users, &draft.name, Limit::TicketsPerUser)?;
        let of_service = match &draft.source {
            Source::Service(name, _) => take(&self.services, name, Limit::TicketsPerService)?,
            _ => Permit::default(),
        };
        self.all.insert(ticket, Ticket { draft, expires: now + life, _permits: [of_user, of_service] });
        Ok(())
    }

    /// Redeems a ticket and returns the rights it stands for.
    pub(super) fn redeem(&mut self, ticket: &str, now: Instant) -> Option<Draft> {
        // A ticket is 192 random bits, looked up by hash. The lookup time reveals nothing about other tickets.
        let Ticket { draft, expires, .. } = self.all.remove(ticket)?;
        (expires > now).then_some(draft)
    }

    /// Removes every ticket that satisfies `is_meant`, and returns how many.
    pub(super) fn withdraw(&mut self, is_meant: impl Fn(&Draft) -> bool) -> usize {
        self.all.extract_if(|_, ticket| is_meant(&ticket.draft)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::Scope,
        server::auth::{Name, Valid},
    };

    const LIFE: Duration = Duration::from_secs(60);

    fn draft(name: &str) -> Draft {
        Draft {
            name: name.to_owned(),
            scopes: Scope::Sessions.into(),
            session: None,
            valid: Valid::Indefinitely,
            source: Source::Open,
            id: None,
        }
    }

    fn tickets(user_max: usize) -> Tickets {
        Tickets::new(TicketShares { user_max, service_max: 0 })
    }

    fn add(tickets: &mut Tickets, ticket: usize, name: &str, now: Instant) -> Result<(), Refused> {
        tickets.add(format!("{name}-{ticket}"), draft(name), LIFE, now)
    }

    fn redeem(tickets: &mut Tickets, ticket: &str, now: Instant) -> Option<Name> {
        tickets.redeem(ticket, now).map(|draft| draft.name)
    }

    #[test]
    fn a_ticket_is_good_once_and_for_a_time() {
        let (mut tickets, now) = (tickets(9), Instant::now());
        add(&mut tickets, 1, "ann", now).unwrap();
        add(&mut tickets, 2, "ann", now).unwrap();
        assert_eq!(redeem(&mut tickets, "ann-1", now).as_deref(), Some("ann"));
        assert_eq!(redeem(&mut tickets, "ann-1", now), None, "it was used");
        assert_eq!(redeem(&mut tickets, "ann-2", now + LIFE), None, "it has expired");
        assert_eq!((tickets.all.len(), tickets.users.total()), (0, 0));
    }

    #[test]
    fn one_user_leaves_tickets_to_the_others() {
        let (mut tickets, now) = (tickets(3), Instant::now());
        let issued = (0..9).filter(|at| add(&mut tickets, *at, "ann", now).is_ok()).count();
        assert_eq!((issued, add(&mut tickets, 9, "ann", now)), (3, Err(Refused::Share(Limit::TicketsPerUser, 3))));
        assert_eq!(add(&mut tickets, 0, "bob", now), Ok(()));
        redeem(&mut tickets, "ann-0", now);
        assert_eq!(add(&mut tickets, 10, "ann", now), Ok(()), "a used one makes room");
        assert_eq!(add(&mut tickets, 11, "ann", now + LIFE), Ok(()), "and so does time");
        assert_eq!(tickets.all.len(), 1, "what has expired is gone");
    }

    #[test]
    fn one_service_leaves_tickets_to_the_others() {
        let mut tickets = Tickets::new(TicketShares { user_max: 2, service_max: 3 });
        let now = Instant::now();
        let mut add = |ticket: &str, service: &str, name: &str| {
            let draft = Draft { source: Source::Service(service.to_owned(), [0; 32]), ..draft(name) };
            tickets.add(ticket.to_owned(), draft, LIFE, now)
        };
        let share = |limit, most| Err(Refused::Share(limit, most));
        let table = [
            ("1", "app", "app|ann", Ok(())),
            ("2", "app", "app|ann", Ok(())),
            ("3", "app", "app|ann", share(Limit::TicketsPerUser, 2)),
            ("4", "app", "app|bob", Ok(())),
            ("5", "app", "app|cid", share(Limit::TicketsPerService, 3)),
            ("6", "web", "web|ann", Ok(())),
        ];
        for (ticket, service, name, expected) in table {
            assert_eq!(add(ticket, service, name), expected, "{ticket}");
        }
        redeem(&mut tickets, "1", now);
        assert_eq!((tickets.users.total(), tickets.services.total()), (3, 3));
        assert_eq!(tickets.withdraw(|_| true), 3);
        assert_eq!((tickets.users.total(), tickets.services.total()), (0, 0));
    }

    #[test]
    fn a_long_ticket_does_not_keep_a_short_one() {
        let (mut tickets, now) = (tickets(2), Instant::now());
        tickets.add("long".into(), draft("ann"), 10 * LIFE, now).unwrap();
        tickets.add("short".into(), draft("ann"), LIFE, now).unwrap();
        assert_eq!(add(&mut tickets, 1, "ann", now), Err(Refused::Share(Limit::TicketsPerUser, 2)));
        assert_eq!(add(&mut tickets, 1, "ann", now + LIFE), Ok(()), "the short one has expired");
        assert_eq!(redeem(&mut tickets, "long", now + 2 * LIFE).as_deref(), Some("ann"));
    }

    #[test]
    fn a_user_s_tickets_are_withdrawn() {
        let (mut tickets, now) = (tickets(0), Instant::now());
        for (ticket, name) in [(1, "ann"), (2, "bob"), (3, "ann")] {
            add(&mut tickets, ticket, name, now).unwrap();
        }
        assert_eq!(tickets.withdraw(|draft| draft.name == "ann"), 2);
        assert_eq!(redeem(&mut tickets, "ann-1", now), None);
        assert_eq!(redeem(&mut tickets, "bob-2", now).as_deref(), Some("bob"));
    }

    #[test]
    fn all_users_together_have_a_bound() {
        let (mut tickets, now) = (tickets(0), Instant::now());
        let issued = (0..TICKETS_MAX + 5).filter(|at| add(&mut tickets, *at, "ann", now).is_ok()).count();
        assert_eq!((issued, add(&mut tickets, 0, "bob", now)), (TICKETS_MAX, Err(Refused::All)));
    }
}
