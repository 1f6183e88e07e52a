//! One-time tickets. A browser cannot send a token with a WebSocket handshake, so it exchanges the token for a ticket.
//!
//! A single server keeps its tickets in memory. The nodes of a cluster keep them in their store, with the rights that
//! each stands for: any node redeems what one has issued. Instants are meaningless to other processes. So a ticket is
//! stored with the time it had left when it was issued, and is read together with its age.

use super::{
    accepted::digest,
    grant::{Draft, Revoked, Source, Valid},
};
use crate::{
    config::{AuthSettings, Scope, Scopes},
    metrics::limits::Limit,
    shares::{Permit, quota::Quota},
    store::{Cluster, Error, NewTicket, SessionStore, TicketBounds, TicketPut, TicketsOf},
};
use reseed_protocol::SessionId;
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::{RwLock, RwLockReadGuard};

/// Maximum number of unused tickets. People request far fewer within a ticket's life of a minute.
const TICKETS_MAX: usize = 10_000;

/// The reason why no ticket was issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
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
pub(super) struct Tickets {
    shares: TicketShares,
    here: Mutex<Table>,
    /// The store of a cluster, which has the tickets instead.
    store: Option<Arc<dyn SessionStore>>,
    /// Read-locked while a ticket is redeemed, until its grant is live. A revocation waits for the lock, so that it
    /// finds either the ticket or the grant.
    redeeming: RwLock<()>,
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets").field("shares", &self.shares).finish_non_exhaustive()
    }
}

impl Tickets {
    /// Keeps tickets in the store if several nodes can share it.
    pub(super) fn new(shares: TicketShares, store: Option<Arc<dyn SessionStore>>) -> Self {
        let store = store.filter(|store| store.cluster().is_some());
        Self { shares, here: Mutex::new(Table::new(shares)), store, redeeming: RwLock::default() }
    }

    fn cluster(&self) -> Option<&dyn Cluster> {
        self.store.as_ref().and_then(|store| store.cluster())
    }

    /// Adds a ticket that can be redeemed for this long.
    ///
    /// # Errors
    /// The store failed.
    pub(super) async fn put(&self, ticket: &str, draft: Draft, life: Duration) -> Result<Result<(), Refused>, Error> {
        let now = Instant::now();
        let Some(cluster) = self.cluster() else { return Ok(self.table().add(ticket.to_owned(), draft, life, now)) };
        let new = NewTicket {
            hash: digest(ticket),
            body: serde_json::to_string(&Stored::of(&draft, now)).expect("a draft has text keys"),
            id: draft.id.unwrap_or_default(),
            owner: draft.name,
            service: if let Source::Service(name, _) = draft.source { Some(name) } else { None },
            life,
        };
        let TicketShares { user_max, service_max } = self.shares;
        let bounds = TicketBounds { owner_max: user_max, service_max, all_max: TICKETS_MAX };
        let (limit, refused) = match cluster.put_ticket(&new, bounds).await? {
            TicketPut::Stored => return Ok(Ok(())),
            TicketPut::OwnerFull => (Limit::TicketsPerUser, Refused::Share(Limit::TicketsPerUser, user_max)),
            TicketPut::ServiceFull => (Limit::TicketsPerService, Refused::Share(Limit::TicketsPerService, service_max)),
            TicketPut::Full => (Limit::Tickets, Refused::All),
        };
        limit.refused();
        Ok(Err(refused))
    }

    /// Marks a ticket as being redeemed until the guard is dropped.
    pub(super) async fn redeems(&self) -> RwLockReadGuard<'_, ()> {
        self.redeeming.read().await
    }

    /// Waits until every redeemed ticket has its grant.
    pub(super) async fn settled(&self) {
        drop(self.redeeming.write().await);
    }

    /// Redeems a ticket, and returns the rights it stands for; `None` if it does not exist or cannot be read.
    ///
    /// # Errors
    /// The store failed.
    pub(super) async fn take(&self, ticket: &str) -> Result<Option<Draft>, Error> {
        let Some(cluster) = self.cluster() else { return Ok(self.table().redeem(ticket, Instant::now())) };
        let Some((body, age)) = cluster.take_ticket(&digest(ticket)).await? else { return Ok(None) };
        match serde_json::from_str::<Stored>(&body) {
            Ok(stored) => Ok(Some(stored.draft(Instant::now(), age))),
            Err(error) => {
                tracing::warn!(%error, "a ticket of another version cannot be read");
                Ok(None)
            }
        }
    }

    /// Removes unused tickets of a service, and returns how many.
    ///
    /// # Errors
    /// The store failed, so tickets may be left.
    pub(super) async fn withdraw(&self, service: &str, whose: &Revoked) -> Result<u64, Error> {
        let Some(cluster) = self.cluster() else {
            return Ok(self.table().withdraw(|draft| whose.is_meant(service, draft)) as u64);
        };
        let owner = whose.owner(service);
        let of = match (&owner, whose) {
            (Some(owner), _) => TicketsOf::Owner(owner),
            (None, Revoked::Ticket(id) | Revoked::User(id)) => TicketsOf::Id(id),
        };
        cluster.withdraw_tickets(service, of).await
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.here.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The unused tickets of a single server.
#[derive(Debug)]
struct Table {
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

impl Table {
    fn new(shares: TicketShares) -> Self {
        let TicketShares { user_max, service_max } = shares;
        let [users, services] = [user_max, service_max].map(|most| Quota::new(0, most as u64));
        Self { all: HashMap::new(), users, services }
    }

    /// Adds a ticket that can be redeemed for this long.
    ///
    /// # Errors
    /// The user, its service, or all together have too many unused tickets.
    fn add(&mut self, ticket: String, draft: Draft, life: Duration, now: Instant) -> Result<(), Refused> {
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
    fn redeem(&mut self, ticket: &str, now: Instant) -> Option<Draft> {
        // A ticket is 192 random bits, looked up by hash. The lookup time reveals nothing about other tickets.
        let Ticket { draft, expires, .. } = self.all.remove(ticket)?;
        (expires > now).then_some(draft)
    }

    /// Removes every ticket that satisfies `is_meant`, and returns how many.
    fn withdraw(&mut self, is_meant: impl Fn(&Draft) -> bool) -> usize {
        self.all.extract_if(|_, ticket| is_meant(&ticket.draft)).count()
    }
}

/// A [`Draft`] in its stored form.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    name: String,
    scopes: Vec<String>,
    session: Option<SessionId>,
    valid: StoredValid,
    source: Source,
    id: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
enum StoredValid {
    Indefinitely,
    /// Milliseconds after redemption.
    For(u64),
    /// Milliseconds after issue, and at most this many after redemption.
    Until(u64, u64),
}

impl Stored {
    fn of(draft: &Draft, now: Instant) -> Self {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            name: draft.name.clone(),
            scopes: draft.scopes.names().map(str::to_owned).collect(),
            session: draft.session.clone(),
            valid: match draft.valid {
                Valid::Indefinitely => StoredValid::Indefinitely,
                Valid::For(time) => StoredValid::For(millis(time)),
                Valid::Until(end, most) => StoredValid::Until(millis(end.saturating_duration_since(now)), millis(most)),
            },
            source: draft.source.clone(),
            id: draft.id.clone(),
        }
    }

    fn draft(self, now: Instant, age: Duration) -> Draft {
        let valid = match self.valid {
            StoredValid::Indefinitely => Valid::Indefinitely,
            StoredValid::For(millis) => Valid::For(Duration::from_millis(millis)),
            StoredValid::Until(millis, most) => {
                let left = Duration::from_millis(millis).saturating_sub(age);
                Valid::Until(now.checked_add(left).unwrap_or(now), Duration::from_millis(most))
            }
        };
        let scopes: Scopes = self.scopes.iter().filter_map(|name| Scope::named(name)).collect();
        Draft { name: self.name, scopes, session: self.session, valid, source: self.source, id: self.id }
    }
}

#[cfg(test)]
mod tests {
    use super::super::user::Name;
    use super::*;

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

    fn tickets(user_max: usize) -> Table {
        Table::new(TicketShares { user_max, service_max: 0 })
    }

    fn add(tickets: &mut Table, ticket: usize, name: &str, now: Instant) -> Result<(), Refused> {
        tickets.add(format!("{name}-{ticket}"), draft(name), LIFE, now)
    }

    fn redeem(tickets: &mut Table, ticket: &str, now: Instant) -> Option<Name> {
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
        let mut tickets = Table::new(TicketShares { user_max: 2, service_max: 3 });
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

    #[test]
    fn a_draft_is_read_as_it_was_stored_and_older() {
        let now = Instant::now();
        let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3_600));
        let sources =
            [Source::Open, Source::User([7; 32]), Source::Service("app".into(), [8; 32]), Source::Signed("iss".into())];
        for (source, valid, expected) in sources
            .into_iter()
            .zip([
                (Valid::Indefinitely, Valid::Indefinitely),
                (Valid::For(hour), Valid::For(hour)),
                (Valid::Until(now + hour, minute), Valid::Until(now + hour - minute, minute)),
                (Valid::Until(now, hour), Valid::Until(now, hour)),
            ])
            .map(|(source, (valid, expected))| (source, valid, expected))
        {
            let session = Some("s".parse().expect("an id"));
            let draft =
                Draft { name: "ann".into(), scopes: Scope::Read.into(), session, valid, source, id: Some("i".into()) };
            let text = serde_json::to_string(&Stored::of(&draft, now)).expect("it is stored");
            let read = serde_json::from_str::<Stored>(&text).expect("it is read").draft(now, minute);
            assert_eq!((read.valid, &read.source, read.scopes), (expected, &draft.source, draft.scopes), "{text}");
            assert_eq!((read.name, read.session, read.id), (draft.name, draft.session, draft.id), "{text}");
        }
    }
}
