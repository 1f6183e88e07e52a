//! One-time tickets. A browser cannot send a token with a WebSocket handshake, so it exchanges the token for a ticket.
//!
//! The nodes of a cluster keep their tickets in their store, with the rights that each stands for: any node redeems
//! what one has issued. A single server keeps them in the same way, in a store in memory. Instants are meaningless to
//! other processes. So a ticket is stored with the time it had left when it was issued, and is read together with its
//! age.

use super::{
    accepted::digest,
    grant::{Draft, Revoked, Source, Valid},
};
use crate::{
    config::{AuthSettings, Scope, Scopes},
    metrics::limits::Limit,
    store::{Cluster, Error, NewTicket, SessionStore, TicketBounds, TicketPut, TicketsOf, memory::MemoryStore},
};
use reseed_protocol::SessionId;
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    sync::Arc,
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

/// Returns the maximum numbers of unused tickets. With a single user, the limit per user does not apply.
pub(super) fn bounds(settings: &AuthSettings, has_several_users: bool) -> TicketBounds {
    let owner_max = if has_several_users { settings.tickets_per_user_max as usize } else { 0 };
    TicketBounds { owner_max, service_max: settings.tickets_per_service_max as usize, all_max: TICKETS_MAX }
}

/// The unused tickets.
pub(super) struct Tickets {
    bounds: TicketBounds,
    /// The store that may be a cluster's.
    store: Option<Arc<dyn SessionStore>>,
    /// Keeps the tickets of a single server.
    own: MemoryStore,
    /// Read-locked while a ticket is redeemed, until its grant is live. A revocation waits for the lock, so that it
    /// finds either the ticket or the grant.
    redeeming: RwLock<()>,
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

impl Tickets {
    /// Keeps tickets in the store if several nodes can share it.
    pub(super) fn new(bounds: TicketBounds, store: Option<Arc<dyn SessionStore>>) -> Self {
        Self { bounds, store, own: MemoryStore::new(), redeeming: RwLock::default() }
    }

    fn kept(&self) -> &dyn Cluster {
        self.store.as_ref().and_then(|store| store.cluster()).unwrap_or(&self.own)
    }

    /// Adds a ticket that can be redeemed for this long.
    ///
    /// # Errors
    /// The store failed.
    pub(super) async fn put(&self, ticket: &str, draft: Draft, life: Duration) -> Result<Result<(), Refused>, Error> {
        let now = Instant::now();
        let new = NewTicket {
            hash: digest(ticket),
            body: serde_json::to_string(&Stored::of(&draft, now)).expect("a draft has text keys"),
            id: draft.id.unwrap_or_default(),
            owner: draft.name,
            service: if let Source::Service(name, _) = draft.source { Some(name) } else { None },
            life,
        };
        let TicketBounds { owner_max, service_max, .. } = self.bounds;
        let (limit, refused) = match self.kept().put_ticket(&new, self.bounds).await? {
            TicketPut::Stored => return Ok(Ok(())),
            TicketPut::OwnerFull => (Limit::TicketsPerUser, Refused::Share(Limit::TicketsPerUser, owner_max)),
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
        let Some((body, age)) = self.kept().take_ticket(&digest(ticket)).await? else { return Ok(None) };
        match serde_json::from_str::<Stored>(&body) {
            Ok(stored) => Ok(Some(stored.draft(Instant::now(), age))),
            Err(error) => {
                tracing::warn!(%error, "a ticket of another version cannot be read");
                Ok(None)
            }
        }
    }

    /// Removes a user's unused tickets, and returns how many.
    ///
    /// # Errors
    /// The store failed, so tickets may be left.
    pub(super) async fn withdraw_user(&self, user: &str) -> Result<u64, Error> {
        self.kept().withdraw_tickets("", TicketsOf::Anyone(user)).await
    }

    /// Removes unused tickets of a service, and returns how many.
    ///
    /// # Errors
    /// The store failed, so tickets may be left.
    pub(super) async fn withdraw(&self, service: &str, whose: &Revoked) -> Result<u64, Error> {
        let owner = whose.owner(service);
        let of = match (&owner, whose) {
            (Some(owner), _) => TicketsOf::Owner(owner),
            (None, Revoked::Ticket(id) | Revoked::User(id)) => TicketsOf::Id(id),
        };
        self.kept().withdraw_tickets(service, of).await
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
    /// Tickets of older versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    class: Option<String>,
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
            class: draft.class.clone(),
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
        Draft {
            name: self.name,
            scopes,
            session: self.session,
            valid,
            source: self.source,
            id: self.id,
            class: self.class,
        }
    }
}

#[cfg(test)]
mod tests {
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
            class: None,
        }
    }

    fn tickets(owner_max: usize, service_max: usize, all_max: usize) -> Tickets {
        Tickets::new(TicketBounds { owner_max, service_max, all_max }, None)
    }

    async fn put(tickets: &Tickets, ticket: &str, draft: Draft) -> Result<(), Refused> {
        tickets.put(ticket, draft, LIFE).await.expect("memory does not fail")
    }

    async fn take(tickets: &Tickets, ticket: &str) -> Option<String> {
        tickets.take(ticket).await.expect("memory does not fail").map(|draft| draft.name)
    }

    #[tokio::test]
    async fn a_ticket_is_good_once() {
        let tickets = tickets(9, 0, 9);
        put(&tickets, "1", draft("ann")).await.unwrap();
        assert_eq!(take(&tickets, "2").await, None, "it is unknown");
        assert_eq!(take(&tickets, "1").await.as_deref(), Some("ann"));
        assert_eq!(take(&tickets, "1").await, None, "it was used");
        tickets.put("short", draft("ann"), Duration::ZERO).await.unwrap().unwrap();
        assert_eq!(take(&tickets, "short").await, None, "it has expired");
    }

    #[tokio::test]
    async fn users_and_services_leave_tickets_to_the_others() {
        let tickets = tickets(2, 3, 9);
        let of = |service: &str, name: &str| Draft {
            source: Source::Service(service.to_owned(), [0; 32]),
            id: Some(name.to_owned()),
            ..draft(name)
        };
        let share = |limit, most| Err(Refused::Share(limit, most));
        let table = [
            ("1", "app", "service:app|ann", Ok(())),
            ("2", "app", "service:app|ann", Ok(())),
            ("3", "app", "service:app|ann", share(Limit::TicketsPerUser, 2)),
            ("4", "app", "service:app|bob", Ok(())),
            ("5", "app", "service:app|cid", share(Limit::TicketsPerService, 3)),
            ("6", "web", "service:web|ann", Ok(())),
        ];
        for (ticket, service, name, expected) in table {
            assert_eq!(put(&tickets, ticket, of(service, name)).await, expected, "{ticket}");
        }
        take(&tickets, "1").await.unwrap();
        assert_eq!(put(&tickets, "7", of("app", "service:app|cid")).await, Ok(()), "a used one makes room");
        assert_eq!(tickets.withdraw("app", &Revoked::User("ann".to_owned())).await.unwrap(), 1);
        let bob = Revoked::Ticket("service:app|bob".to_owned());
        assert_eq!(tickets.withdraw("web", &bob).await.unwrap(), 0, "another service's");
        assert_eq!(tickets.withdraw("app", &bob).await.unwrap(), 1);
        assert_eq!((take(&tickets, "2").await, take(&tickets, "4").await), (None, None));
        assert!(take(&tickets, "6").await.is_some() && take(&tickets, "7").await.is_some());
    }

    #[tokio::test]
    async fn all_users_together_have_a_bound() {
        let tickets = tickets(0, 0, 5);
        for ticket in 0..5 {
            put(&tickets, &ticket.to_string(), draft("ann")).await.unwrap();
        }
        assert_eq!(put(&tickets, "more", draft("bob")).await, Err(Refused::All));
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
            let draft = Draft {
                name: "ann".into(),
                scopes: Scope::Read.into(),
                session,
                valid,
                source,
                id: Some("i".into()),
                class: Some("pro".into()),
            };
            let text = serde_json::to_string(&Stored::of(&draft, now)).expect("it is stored");
            let read = serde_json::from_str::<Stored>(&text).expect("it is read").draft(now, minute);
            assert_eq!((read.valid, &read.source, read.scopes), (expected, &draft.source, draft.scopes), "{text}");
            assert_eq!((read.name, read.session, read.id), (draft.name, draft.session, draft.id), "{text}");
        }
    }
}
