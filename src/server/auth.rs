//! Authentication: tokens, one-time tickets, and the origins of web pages.
//!
//! A user is known by issuer and name. Names of AUTH_TOKENS have no issuer and are stored as they are. Other names are
//! stored as `issuer|name`; since no name of AUTH_TOKENS contains `|`, and no issuer does, no issuer can name another's
//! user. A service is the issuer `service:NAME`, and an identity provider is the issuer that its tokens claim.

mod accepted;
mod grant;
mod jwt;
mod shared;

pub(crate) use grant::{Draft, Ended, Grant, Source, Valid};
pub(crate) use jwt::Jwt;

use self::{
    accepted::{Accepted, digest, find},
    grant::{Live, opens_sessions},
    jwt::Signed,
    shared::SharedTickets,
};
use super::tickets::{Refused, TicketShares, Tickets};
use crate::{
    config::{Scope, Scopes, Settings},
    store::{self, SessionStore, TicketsOf},
};
use reseed_protocol::{CloseCode, ErrorBody, ErrorCode};
use std::{
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::{Duration, Instant},
};

/// The name of a user: sessions belong to it. Empty if no credentials are required.
pub(crate) type Name = String;

/// Separates issuer and name.
const ISSUER_END: char = '|';

/// Begins the issuer that stands for a service.
const SERVICE: &str = "service:";

/// Most bytes of a name that a service or an issuer gives. It is stored in every session's head.
const NAME_BYTES_MAX: usize = 256;

/// Random bytes of a ticket, and of its public id.
const TICKET_BYTES: usize = 24;
const TICKET_ID_BYTES: usize = 12;

/// The credentials that this deployment accepts, and what was granted for them.
#[derive(Debug)]
pub(crate) struct Auth {
    accepted: RwLock<Arc<Accepted>>,
    loopback: bool,
    tickets: Mutex<Tickets>,
    /// The tickets of a cluster; those of a single server are in memory.
    shared: Option<SharedTickets>,
    live: Arc<Live>,
}

/// An operator, and what they may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Operator {
    /// Their name.
    pub(crate) name: Name,
    /// True if they may read what was said.
    pub(crate) reads_content: bool,
}

/// The reason why credentials are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There are none.
    Missing,
    /// They are wrong or expired. The reason is for the log alone.
    Wrong(&'static str),
    /// They are valid, and for something else.
    Forbidden(&'static str),
    /// They cannot be checked now.
    Unavailable(&'static str),
}

impl Refusal {
    /// Returns the error for the client, and the reason for closing the connection.
    pub(crate) fn error(self) -> (ErrorBody, &'static str) {
        let (code, why) = match self {
            Self::Missing | Self::Wrong(_) => {
                (ErrorCode::Unauthenticated, "the credentials are missing, wrong or expired")
            }
            Self::Forbidden(why) => (ErrorCode::Forbidden, why),
            Self::Unavailable(why) => (ErrorCode::StoreFailed, why),
        };
        (ErrorBody::new(code, why), why)
    }

    /// Returns the code with which a connection closes whose credentials these are.
    pub(crate) fn close_code(self) -> CloseCode {
        match self {
            Self::Missing | Self::Wrong(_) | Self::Forbidden(_) => CloseCode::Credentials,
            // A client stops at the code for wrong ones; after this one it comes back.
            Self::Unavailable(_) => CloseCode::Overloaded,
        }
    }

    /// Returns the reason for the log.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Missing => "there are none",
            Self::Wrong(why) | Self::Forbidden(why) | Self::Unavailable(why) => why,
        }
    }
}

/// The sender of a request for a ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Minter {
    /// A user, for themselves: what the ticket is at most, and for how long.
    User(Name, Scopes, Valid, Source),
    /// A service, for its users.
    Service(Service),
}

/// A service, as its token names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Service {
    /// Its name.
    pub(crate) name: String,
    /// The most that it can grant.
    pub(crate) scopes: Scopes,
    /// The token that was used.
    pub(crate) source: Source,
}

impl Service {
    /// Returns the user that it knows by this name.
    pub(crate) fn user(&self, name: &str) -> Name {
        format!("{SERVICE}{}{ISSUER_END}{name}", self.name)
    }
}

/// Returns true if a service or an issuer may give a user this name.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(char::is_control)
}

impl Auth {
    /// Creates it from the settings, and from what accepts the tokens of their identity provider. Tickets are in the
    /// store, if several nodes can share it.
    #[must_use]
    pub(crate) fn new(settings: &Settings, jwt: Option<Arc<Jwt>>, store: Option<Arc<dyn SessionStore>>) -> Self {
        let accepted = Accepted::new(settings, jwt);
        let shares = TicketShares::of(&settings.auth, settings.has_several_users());
        let tickets = Tickets::new(shares);
        Self {
            shared: store.and_then(|store| SharedTickets::of(store, shares)),
            accepted: RwLock::new(Arc::new(accepted)),
            loopback: settings.listen.host.is_loopback(),
            tickets: Mutex::new(tickets),
            live: Arc::default(),
        }
    }

    /// Returns what accepts the tokens of an identity provider, if there is one.
    pub(crate) fn jwt(&self) -> Option<Arc<Jwt>> {
        self.accepted().jwt.clone()
    }

    /// Continues with other settings. Ends what they no longer allow; returns how many connections that were.
    pub(crate) fn reload(&self, settings: &Settings, jwt: Option<Arc<Jwt>>) -> usize {
        let accepted = Arc::new(Accepted::new(settings, jwt));
        *self.accepted.write().unwrap_or_else(PoisonError::into_inner) = accepted.clone();
        let is_gone = |draft: &Draft| !accepted.have(draft);
        let mut tickets = self.tickets();
        tickets.withdraw(is_gone);
        self.live.end(Ended::Withdrawn, is_gone)
    }

    /// Says which identity provider's users are let in; `None` if none is configured.
    pub(crate) fn signed_line(&self) -> Option<String> {
        self.accepted().jwt.as_ref().map(|jwt| jwt.to_string())
    }

    /// Returns true if credentials are required.
    #[must_use]
    pub(crate) fn is_required(&self) -> bool {
        self.accepted().is_required()
    }

    /// Returns the grant of a client with these credentials, or of everyone if none are required.
    ///
    /// # Errors
    /// The reason why they are refused.
    pub(crate) async fn check(&self, token: Option<&str>, ticket: Option<&str>) -> Result<Arc<Grant>, Refusal> {
        let found = match (token, ticket) {
            (Some(token), _) => self.of_token(token).await.and_then(|draft| self.begin(draft)),
            (None, Some(ticket)) => self.redeem(ticket).await,
            (None, None) => Err(Refusal::Missing),
        };
        let grant = found.or_else(|refusal| self.anonymous().ok_or(refusal))?;
        if opens_sessions(grant.scopes()) {
            return Ok(grant);
        }
        Err(Refusal::Forbidden("these credentials have neither the scope `sessions` nor `read`"))
    }

    /// Returns the grant of the nameless user that everyone is if no credentials are required.
    #[must_use]
    pub(crate) fn anonymous(&self) -> Option<Arc<Grant>> {
        (!self.is_required()).then(|| self.begin(everyone()).ok()).flatten()
    }

    /// Returns what a token stands for.
    async fn of_token(&self, token: &str) -> Result<Draft, Refusal> {
        let accepted = self.accepted();
        if let Some(name) = find(&accepted.users, token) {
            return Ok(Draft { name, source: Source::User(digest(token)), ..everyone() });
        }
        if find(&accepted.operators, token).is_some() {
            return Err(Refusal::Forbidden("an operator's token opens no sessions; use one of AUTH_TOKENS"));
        }
        if accepted.service(token).is_some() {
            return Err(Refusal::Forbidden("a service's token opens no sessions; mint a ticket with it"));
        }
        match accepted.signed(token).await? {
            Some((jwt, Signed { name, scopes, end })) => {
                let (valid, source) = (Valid::Until(end, Duration::MAX), Source::Signed(jwt.issuer().to_owned()));
                Ok(Draft { name, scopes, valid, source, ..everyone() })
            }
            None => Err(Refusal::Wrong("nobody has this token")),
        }
    }

    /// Begins a grant, unless a reload of the settings has withdrawn its token meanwhile.
    fn begin(&self, draft: Draft) -> Result<Arc<Grant>, Refusal> {
        let grant = self.live.begin(draft);
        // A reload replaces the settings before it ends grants: it has seen this one, or this sees its settings.
        if self.accepted().have(grant.draft()) {
            return Ok(grant);
        }
        Err(Refusal::Wrong("the token was removed"))
    }

    /// Begins the grant of a client whose credentials another node has checked.
    pub(super) fn of_node(&self, draft: Draft) -> Arc<Grant> {
        self.live.begin(draft)
    }

    /// Returns the operator whose token this is. If no credentials at all are configured, everyone who reaches the
    /// server is an operator: it then listens only on this machine.
    #[must_use]
    pub(crate) async fn operator(&self, token: Option<&str>) -> Option<Operator> {
        let accepted = self.accepted();
        let reads_content = accepted.operators_read_content;
        if !accepted.is_required() && accepted.operators.is_empty() {
            return Some(Operator { name: Name::new(), reads_content });
        }
        if let Some(name) = find(&accepted.operators, token?) {
            return Some(Operator { name, reads_content });
        }
        let (_, signed) = accepted.signed(token?).await.ok()??;
        let reads_content = signed.scopes.allow(Scope::OperatorContent);
        signed.scopes.allow(Scope::Operator).then_some(Operator { name: signed.name, reads_content })
    }

    /// Returns who asks for a ticket with this token.
    ///
    /// # Errors
    /// The reason why they get none.
    pub(crate) async fn minter(&self, token: Option<&str>) -> Result<Minter, Refusal> {
        let accepted = self.accepted();
        if let Some(service) = token.and_then(|token| accepted.service(token)) {
            return Ok(Minter::Service(service));
        }
        let draft = match token {
            Some(token) => self.of_token(token).await,
            None => Err(Refusal::Missing),
        };
        let draft = draft.or_else(|refusal| if accepted.is_required() { Err(refusal) } else { Ok(everyone()) })?;
        Ok(Minter::User(draft.name, draft.scopes, draft.valid, draft.source))
    }

    /// Returns the service whose token this is.
    #[must_use]
    pub(crate) fn service(&self, token: &str) -> Option<Service> {
        self.accepted().service(token)
    }

    /// Issues a single-use ticket, or says why not: too many are unused. Returns the ticket and its public id.
    ///
    /// # Errors
    /// The system has no randomness, or the store failed.
    pub(super) async fn issue(
        &self,
        draft: Draft,
        life: Duration,
    ) -> Result<Result<(String, String), Refused>, IssueError> {
        let (ticket, id) = (random_hex(TICKET_BYTES)?, random_hex(TICKET_ID_BYTES)?);
        let draft = Draft { id: Some(id.clone()), ..draft };
        let added = match &self.shared {
            Some(shared) => shared.put(&ticket, &draft, life).await?,
            None => self.tickets().add(ticket.clone(), draft, life, Instant::now()),
        };
        Ok(added.map(|()| (ticket, id)))
    }

    async fn redeem(&self, ticket: &str) -> Result<Arc<Grant>, Refusal> {
        let unknown = Refusal::Wrong("the ticket is unknown, used or expired");
        if let Some(shared) = &self.shared {
            // Held until the grant is live, as below.
            let _redeems = shared.redeems().await;
            let draft = shared.take(ticket).await.map_err(|error| {
                tracing::warn!(%error, "redeem a ticket");
                Refusal::Unavailable("the ticket cannot be checked now, because the database is away; reconnect")
            })?;
            return self.begin(draft.ok_or(unknown)?);
        }
        // Held until the grant is live: who revokes it finds the ticket or the grant.
        let mut tickets = self.tickets();
        let draft = tickets.redeem(ticket, Instant::now());
        self.begin(draft.ok_or(unknown)?)
    }

    /// Takes back what a service granted, to a user or by the id of a ticket. Returns how many unused tickets and how
    /// many connections of this server that ended.
    ///
    /// # Errors
    /// The store failed: unused tickets may be left.
    pub(super) async fn revoke(&self, service: &Service, whose: &Revoked<'_>) -> Result<(usize, usize), store::Error> {
        let shared = match (&self.shared, whose) {
            (None, _) => 0,
            (Some(shared), Revoked::Ticket(id)) => shared.withdraw(&service.name, TicketsOf::Id(id)).await?,
            (Some(shared), Revoked::User(name)) => {
                shared.withdraw(&service.name, TicketsOf::Owner(&service.user(name))).await?
            }
        };
        let (unused, sockets) = self.end(&service.name, whose).await;
        Ok((unused + usize::try_from(shared).unwrap_or(usize::MAX), sockets))
    }

    /// Ends what a service granted and this process knows of. Returns how many unused tickets and how many connections
    /// that were.
    pub(super) async fn end(&self, service: &str, whose: &Revoked<'_>) -> (usize, usize) {
        if let Some(shared) = &self.shared {
            shared.settled().await;
        }
        let user = |name: &str| format!("{SERVICE}{service}{ISSUER_END}{name}");
        let is_meant = |draft: &Draft| {
            matches!(&draft.source, Source::Service(name, _) if name == service)
                && match whose {
                    Revoked::Ticket(id) => draft.id.as_deref() == Some(*id),
                    Revoked::User(name) => draft.name == user(name),
                }
        };
        let mut tickets = self.tickets();
        (tickets.withdraw(is_meant), self.live.end(Ended::Revoked, is_meant))
    }

    fn tickets(&self) -> MutexGuard<'_, Tickets> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accepted(&self) -> Arc<Accepted> {
        self.accepted.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns true if a page of this origin may connect: the server's own page on this machine, or a configured
    /// origin.
    #[must_use]
    pub(crate) fn allows_origin(&self, origin: &str, port: u16) -> bool {
        if self.accepted().origins.iter().any(|allowed| allowed.as_str().eq_ignore_ascii_case(origin)) {
            return true;
        }
        self.loopback
            && ["localhost", "127.0.0.1", "[::1]"].iter().any(|host| origin == format!("http://{host}:{port}"))
    }

    /// Returns true if a request may name this host. On this machine only its own names are allowed: a foreign page
    /// whose name was bound to this address (DNS rebinding) sends the foreign name.
    #[must_use]
    pub(crate) fn allows_host(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((v6, _)) => v6,
            None => host.rsplit_once(':').map_or(host, |(name, _)| name),
        };
        !self.loopback
            || name.eq_ignore_ascii_case("localhost")
            || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
            || self.accepted().origins.iter().any(|origin| {
                origin.as_str().split_once("://").is_some_and(|(_, allowed)| allowed.eq_ignore_ascii_case(host))
            })
    }
}

/// Why no ticket was issued.
#[derive(Debug, thiserror::Error)]
pub(super) enum IssueError {
    /// The system has no randomness.
    #[error(transparent)]
    Randomness(#[from] getrandom::Error),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// The grants that a revocation ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum Revoked<'a> {
    /// The grant of the ticket with this public id.
    Ticket(&'a str),
    /// Everything of the user whom the service knows by this name.
    User(&'a str),
}

/// Returns what everyone may do if no credentials are required.
fn everyone() -> Draft {
    Draft {
        name: Name::new(),
        scopes: Scope::Sessions.into(),
        session: None,
        valid: Valid::Indefinitely,
        source: Source::Open,
        id: None,
    }
}

fn random_hex(count: usize) -> Result<String, getrandom::Error> {
    let mut bytes = vec![0; count];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns the token of an `Authorization: Bearer` header.
#[must_use]
pub(crate) fn bearer(headers: &axum::http::HeaderMap) -> Option<&str> {
    let value = headers.get(axum::http::header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

#[cfg(test)]
mod tests;
