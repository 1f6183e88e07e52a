//! Grants: what a client's credentials allow, for how long, and how that is revoked.
//!
//! A grant belongs to one connection. It is made from a token or a ticket, and counts as live until the connection
//! drops it. It can be ended at any time, and the connection then closes.

use super::user::{ISSUER_END, Name, SERVICE};
use crate::config::{Scope, Scopes};
use reseed_protocol::{CloseCode, SessionId};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::Notify;

/// Bytes of a token's digest.
pub(super) const DIGEST_BYTES: usize = 32;

/// How long before expiry a client is warned. It can fetch a new ticket in this time, and try again.
const NOTICE: Duration = Duration::from_secs(60);

/// The digest of a token, where the token itself must not be kept.
pub(super) type Digest = [u8; DIGEST_BYTES];

/// The origin of a grant. A reload of the settings ends the grant if its origin is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Source {
    /// The server requires no credentials.
    Open,
    /// A token of AUTH_TOKENS.
    User(Digest),
    /// A token of SERVICE_TOKENS, used by the service with this name.
    Service(String, Digest),
    /// A token signed by this identity provider.
    Signed(String),
    /// Another node of the cluster. It has checked the credentials, and ends the connection when they end. It issues no
    /// tickets.
    #[serde(skip)]
    Node,
    /// An operator, who acts for the owner of a session.
    #[serde(skip)]
    Operator,
}

/// How long a grant is valid, before a connection uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Valid {
    /// Until it is revoked.
    Indefinitely,
    /// For this long after its ticket is redeemed.
    For(Duration),
    /// Until the underlying token expires, but at most for this long after its ticket is redeemed.
    Until(Instant, Duration),
}

/// The identity and the rights that a ticket or a token stands for.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    /// The user whose sessions it opens.
    pub(crate) name: Name,
    /// The scopes that it allows.
    pub(crate) scopes: Scopes,
    /// The only session that it opens; `None` for all sessions of the user.
    pub(crate) session: Option<SessionId>,
    pub(crate) valid: Valid,
    pub(crate) source: Source,
    /// The public id of its ticket; `None` if there was no ticket.
    pub(crate) id: Option<String>,
    /// The class of BUDGETS_FILE that the user's token names, if it does.
    pub(crate) class: Option<String>,
}

/// The reason why a grant was ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Ended {
    /// The service that made it has revoked it.
    Revoked = 1,
    /// The settings no longer contain the token that it was made from.
    Withdrawn = 2,
}

impl Ended {
    /// Returns the close code and the reason for the client.
    pub(crate) fn close(self) -> (CloseCode, &'static str) {
        match self {
            Self::Revoked => (CloseCode::Revoked, "the grant was revoked"),
            Self::Withdrawn => (CloseCode::Credentials, "these credentials are no longer accepted"),
        }
    }
}

/// The grants that a service revokes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Revoked {
    /// The grant of the ticket with this public id.
    Ticket(String),
    /// All grants of the user whom the service knows by this name.
    User(String),
}

impl Revoked {
    /// Returns the user whose grants are meant.
    pub(crate) fn owner(&self, service: &str) -> Option<Name> {
        match self {
            Self::Ticket(_) => None,
            Self::User(name) => Some(format!("{SERVICE}{service}{ISSUER_END}{name}")),
        }
    }

    /// Returns true if a grant of this service is meant.
    pub(super) fn is_meant(&self, service: &str, draft: &Draft) -> bool {
        matches!(&draft.source, Source::Service(name, _) if name == service)
            && match self {
                Self::Ticket(id) => draft.id.as_ref() == Some(id),
                Self::User(_) => self.owner(service).as_ref() == Some(&draft.name),
            }
    }
}

/// The rights of one connection.
#[derive(Debug)]
pub(crate) struct Grant {
    draft: Draft,
    expires: Option<Instant>,
    notice: Duration,
    /// An [`Ended`], or 0.
    ended: AtomicU8,
    bell: Notify,
    number: u64,
    live: Arc<Live>,
}

impl Grant {
    /// Returns the user whose sessions it opens.
    pub(crate) fn name(&self) -> &Name {
        &self.draft.name
    }

    pub(crate) fn scopes(&self) -> Scopes {
        self.draft.scopes
    }

    /// Returns the public id of its ticket; `None` if there was no ticket.
    pub(crate) fn ticket(&self) -> Option<&str> {
        self.draft.id.as_deref()
    }

    /// Returns the kind of its credentials; `None` if none were required, another node has checked them,
    /// or an operator acts for the user.
    pub(crate) fn credential(&self) -> Option<&'static str> {
        match (&self.draft.source, self.ticket()) {
            (Source::Open | Source::Node | Source::Operator, _) => None,
            (_, Some(_)) => Some("ticket"),
            (Source::Signed(_), None) => Some("signed token"),
            (Source::User(_) | Source::Service(..), None) => Some("token"),
        }
    }

    /// Returns the class of budgets that the user's token names.
    pub(crate) fn class(&self) -> Option<&str> {
        self.draft.class.as_deref()
    }

    /// Returns the only session that it opens, if it is bound to one.
    pub(crate) fn session(&self) -> Option<&SessionId> {
        self.draft.session.as_ref()
    }

    /// Returns true if an operator acts for the user.
    pub(crate) fn is_operator(&self) -> bool {
        self.draft.source == Source::Operator
    }

    /// Returns what it was made from.
    pub(super) fn draft(&self) -> &Draft {
        &self.draft
    }

    /// Returns the time that is left; `None` if it does not expire.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        self.expires.map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// Returns how long before expiry the client is warned: at most half of the grant's time, so that a client with a
    /// short grant is not warned immediately after renewing it.
    pub(crate) fn notice(&self) -> Duration {
        self.notice
    }

    /// Waits until the grant is ended early. Cancel safe.
    pub(crate) async fn ended(&self) -> Ended {
        loop {
            match self.has_ended() {
                None => self.bell.notified().await,
                Some(why) => return why,
            }
        }
    }

    /// Returns why the grant was ended early; `None` if it was not.
    pub(crate) fn has_ended(&self) -> Option<Ended> {
        match self.ended.load(Ordering::Acquire) {
            0 => None,
            why if why == Ended::Revoked as u8 => Some(Ended::Revoked),
            _ => Some(Ended::Withdrawn),
        }
    }

    /// Returns true if this grant may replace another one on a connection. It must belong to the same user, and must
    /// not remove a right that the connection may be using.
    pub(crate) fn renews(&self, other: &Self) -> bool {
        self.name() == other.name()
            && self.scopes().cover(other.scopes())
            && self.session().is_none_or(|session| other.session() == Some(session))
    }

    /// Ends the grant; returns false if it had already ended.
    fn end(&self, why: Ended) -> bool {
        let is_first = self.ended.compare_exchange(0, why as u8, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if is_first {
            // Leaves a permit if the connection is busy.
            self.bell.notify_one();
        }
        is_first
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.live.lock().1.remove(&self.number);
    }
}

/// The grants that connections hold, at most one per connection.
#[derive(Debug, Default)]
pub(super) struct Live(Mutex<(u64, HashMap<u64, Weak<Grant>>)>);

impl Live {
    /// Makes a grant that begins now.
    pub(super) fn begin(self: &Arc<Self>, draft: Draft) -> Arc<Grant> {
        let expires = match draft.valid {
            Valid::Indefinitely => None,
            Valid::For(time) => Some(Instant::now() + time),
            Valid::Until(end, time) => Some(Instant::now().checked_add(time).map_or(end, |last| last.min(end))),
        };
        let mut live = self.lock();
        let (next, all) = &mut *live;
        let number = *next;
        *next += 1;
        let (ended, bell, live) = (AtomicU8::new(0), Notify::new(), self.clone());
        let mut grant = Grant { draft, expires, notice: NOTICE, ended, bell, number, live };
        grant.notice = grant.remaining().map_or(NOTICE, |left| NOTICE.min(left / 2));
        let grant = Arc::new(grant);
        all.insert(number, Arc::downgrade(&grant));
        grant
    }

    /// Returns the number of grants that satisfy `is_meant`.
    pub(super) fn count(&self, is_meant: impl Fn(&Draft) -> bool) -> usize {
        let all: Vec<Arc<Grant>> = self.lock().1.values().filter_map(Weak::upgrade).collect();
        all.iter().filter(|grant| is_meant(&grant.draft)).count()
    }

    /// Ends every grant that satisfies `is_meant`, and returns how many.
    pub(super) fn end(&self, why: Ended, is_meant: impl Fn(&Draft) -> bool) -> usize {
        // Dropping a grant takes the lock, so the lock is released first.
        let all: Vec<Arc<Grant>> = self.lock().1.values().filter_map(Weak::upgrade).collect();
        all.iter().filter(|grant| is_meant(&grant.draft) && grant.end(why)).count()
    }

    fn lock(&self) -> MutexGuard<'_, (u64, HashMap<u64, Weak<Grant>>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns true if these scopes open sessions.
pub(crate) fn opens_sessions(scopes: Scopes) -> bool {
    scopes.allow(Scope::Read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(name: &str, scopes: Scopes, session: Option<&str>) -> Draft {
        Draft {
            name: name.to_owned(),
            scopes,
            session: session.map(|id| id.parse().expect("an id")),
            valid: Valid::Indefinitely,
            class: None,
            source: Source::Open,
            id: None,
        }
    }

    #[tokio::test]
    async fn what_is_ended_is_told_once_and_for_good() {
        let live = Arc::new(Live::default());
        let [ann, bob] = ["ann", "bob"].map(|name| live.begin(draft(name, Scope::Read.into(), None)));
        assert_eq!(live.end(Ended::Revoked, |draft| draft.name == "ann"), 1);
        assert_eq!(live.end(Ended::Withdrawn, |draft| draft.name == "ann"), 0, "it has ended already");
        assert_eq!((ann.ended().await, ann.ended().await), (Ended::Revoked, Ended::Revoked));
        let waits = tokio::time::timeout(Duration::ZERO, bob.ended()).await;
        assert!(waits.is_err(), "the other goes on");
        drop((ann, bob));
        assert!(live.lock().1.is_empty(), "and both are forgotten with their connections");
    }

    #[test]
    fn a_grant_is_renewed_by_one_that_takes_nothing_away() {
        let live = Arc::new(Live::default());
        let (all, read) = (Scopes::from(Scope::Sessions), Scopes::from(Scope::Read));
        let table = [
            (("ann", all, None), ("ann", all, None), true),
            (("ann", read, None), ("ann", all, None), true),
            (("ann", all, None), ("ann", read, None), false),
            (("ann", all, None), ("bob", all, None), false),
            (("ann", all, Some("one")), ("ann", all, None), true),
            (("ann", all, Some("one")), ("ann", all, Some("one")), true),
            (("ann", all, Some("one")), ("ann", all, Some("two")), false),
            (("ann", all, None), ("ann", all, Some("one")), false),
        ];
        for (old, new, expected) in table {
            let [old, new] = [old, new].map(|(name, scopes, session)| live.begin(draft(name, scopes, session)));
            assert_eq!(new.renews(&old), expected, "{old:?} by {new:?}");
        }
    }
}
