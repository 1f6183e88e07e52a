//! Tickets of a cluster: issued by one node, redeemed by any. The store keeps each ticket with the rights it stands
//! for.
//!
//! Instants are meaningless to other processes. A ticket is therefore stored with the time it had left when it was
//! issued, and is read together with its age.

use super::{Draft, Source, Valid, accepted::digest, grant::Digest};
use crate::{
    config::{Scope, Scopes},
    metrics::limits::Limit,
    server::tickets::{Refused, TICKETS_MAX, TicketShares},
    store::{Cluster, Error, NewTicket, SessionStore, TicketBounds, TicketPut, TicketsOf},
};
use reseed_protocol::SessionId;
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{RwLock, RwLockReadGuard};

/// The store that the nodes share, and the limits on tickets.
pub(super) struct SharedTickets {
    store: Arc<dyn SessionStore>,
    shares: TicketShares,
    /// Read-locked while a ticket is redeemed, until its grant is live. A revocation waits for the lock.
    redeeming: RwLock<()>,
}

impl fmt::Debug for SharedTickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTickets").field("shares", &self.shares).finish_non_exhaustive()
    }
}

/// A [`Draft`] in its stored form.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    name: String,
    scopes: Vec<String>,
    session: Option<SessionId>,
    valid: StoredValid,
    source: StoredSource,
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

#[derive(Debug, Serialize, Deserialize)]
enum StoredSource {
    Open,
    User(Digest),
    Service(String, Digest),
    Signed(String),
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
            source: match &draft.source {
                // A node issues no tickets.
                Source::Open | Source::Node => StoredSource::Open,
                Source::User(of) => StoredSource::User(*of),
                Source::Service(name, of) => StoredSource::Service(name.clone(), *of),
                Source::Signed(issuer) => StoredSource::Signed(issuer.clone()),
            },
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
        let source = match self.source {
            StoredSource::Open => Source::Open,
            StoredSource::User(of) => Source::User(of),
            StoredSource::Service(name, of) => Source::Service(name, of),
            StoredSource::Signed(issuer) => Source::Signed(issuer),
        };
        Draft { name: self.name, scopes, session: self.session, valid, source, id: self.id }
    }
}

impl SharedTickets {
    /// Returns the tickets of a store that several nodes can share; `None` if the store serves a single node.
    pub(super) fn of(store: Arc<dyn SessionStore>, shares: TicketShares) -> Option<Self> {
        let redeeming = RwLock::default();
        store.cluster().is_some().then_some(Self { store, shares, redeeming })
    }

    fn cluster(&self) -> Result<&dyn Cluster, Error> {
        self.store.cluster().ok_or_else(|| Error::Unknown("the store is for one server".to_owned()))
    }

    /// Stores a ticket.
    pub(super) async fn put(&self, ticket: &str, draft: &Draft, life: Duration) -> Result<Result<(), Refused>, Error> {
        let TicketShares { user_max, service_max } = self.shares;
        let service = match &draft.source {
            Source::Service(name, _) => Some(name.clone()),
            _ => None,
        };
        let stored = Stored::of(draft, Instant::now());
        let new = NewTicket {
            hash: digest(ticket),
            id: draft.id.clone().unwrap_or_default(),
            owner: draft.name.clone(),
            service,
            body: serde_json::to_string(&stored).expect("a draft has text keys"),
            life,
        };
        let bounds = TicketBounds { owner_max: user_max, service_max, all_max: TICKETS_MAX };
        let (limit, refused) = match self.cluster()?.put_ticket(&new, bounds).await? {
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

    /// Redeems a ticket; `None` if it does not exist or cannot be read.
    pub(super) async fn take(&self, ticket: &str) -> Result<Option<Draft>, Error> {
        let Some((body, age)) = self.cluster()?.take_ticket(&digest(ticket)).await? else { return Ok(None) };
        match serde_json::from_str::<Stored>(&body) {
            Ok(stored) => Ok(Some(stored.draft(Instant::now(), age))),
            Err(error) => {
                tracing::warn!(%error, "a ticket of another version cannot be read");
                Ok(None)
            }
        }
    }

    /// Removes a service's unused tickets.
    pub(super) async fn withdraw(&self, service: &str, of: TicketsOf<'_>) -> Result<u64, Error> {
        self.cluster()?.withdraw_tickets(service, of).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
