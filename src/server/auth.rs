//! Authentication: tokens, one-time tickets, and the origins of web pages.

mod accepted;
mod grant;
mod jwt;
mod tickets;
mod user;

pub(crate) use self::{
    accepted::Service,
    grant::{Draft, Ended, Grant, Revoked, Source, Valid},
    jwt::Jwt,
    tickets::Refused,
    user::{Name, Refusal, is_name},
};

use self::{
    accepted::{Accepted, digest, find, find_scoped},
    grant::{Live, opens_sessions},
    jwt::Signed,
    tickets::Tickets,
};
use crate::{
    config::{AuthSettings, Scope, Scopes, Settings},
    store::{self, SessionStore},
};
use reseed_protocol::SessionId;
use std::{
    net::IpAddr,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

/// Random bytes of a ticket, and of its public id.
const TICKET_BYTES: usize = 24;
const TICKET_ID_BYTES: usize = 12;

/// The credentials that this deployment accepts, and the grants made from them.
#[derive(Debug)]
pub(crate) struct Auth {
    accepted: RwLock<Arc<Accepted>>,
    loopback: bool,
    /// The scheme of the server's own pages.
    scheme: &'static str,
    tickets: Tickets,
    live: Arc<Live>,
}

/// An operator, with their permissions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Operator {
    pub(crate) name: Name,
    /// True if they may read conversation text.
    pub(crate) reads_content: bool,
    /// True if they may change sessions and servers.
    pub(crate) writes: bool,
}

/// The party that requests a ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Minter {
    /// A user, for themselves, with the upper bounds of the ticket's scopes and validity, and with their class of
    /// budgets.
    User(Name, Scopes, Valid, Source, Option<String>),
    Service(Service),
}

impl Auth {
    /// Creates it from the settings and the verifier of their identity provider's tokens. Tickets are kept in the store
    /// if several nodes can share it.
    #[must_use]
    pub(crate) fn new(settings: &Settings, jwt: Option<Arc<Jwt>>, store: Option<Arc<dyn SessionStore>>) -> Self {
        let accepted = Accepted::new(settings, jwt);
        let bounds = tickets::bounds(&settings.auth, settings.has_several_users());
        Self {
            accepted: RwLock::new(Arc::new(accepted)),
            loopback: settings.listen.host.is_loopback(),
            scheme: if settings.listen.uses_tls() { "https" } else { "http" },
            tickets: Tickets::new(bounds, store),
            live: Arc::default(),
        }
    }

    /// Returns the verifier of the identity provider's tokens, if there is one.
    pub(crate) fn jwt(&self) -> Option<Arc<Jwt>> {
        self.accepted().jwt.clone()
    }

    /// Applies new settings. Ends the grants that they no longer allow, and returns the number of connections that this
    /// closes.
    pub(crate) fn reload(&self, settings: &Settings, jwt: Option<Arc<Jwt>>) -> usize {
        let accepted = Arc::new(Accepted::new(settings, jwt));
        *self.accepted.write().unwrap_or_else(PoisonError::into_inner) = accepted.clone();
        // Their unused tickets are refused when they are redeemed.
        self.live.end(Ended::Withdrawn, |draft| !accepted.have(draft))
    }

    /// Describes the identity provider whose users are accepted. `None` if none is configured.
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
    /// The reason why the credentials are refused.
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

    /// Returns the grant of the nameless user, which everyone is if no credentials are required.
    #[must_use]
    pub(crate) fn anonymous(&self) -> Option<Arc<Grant>> {
        (!self.is_required()).then(|| self.begin(everyone()).ok()).flatten()
    }

    /// Returns the identity and rights that a token stands for.
    async fn of_token(&self, token: &str) -> Result<Draft, Refusal> {
        let accepted = self.accepted();
        if let Some(name) = find(&accepted.settings.auth_tokens, token) {
            return Ok(Draft { name, source: Source::User(digest(token)), ..everyone() });
        }
        if find_scoped(&accepted.settings.operator_tokens, token).is_some() {
            return Err(Refusal::Forbidden("an operator's token opens no sessions; use one of AUTH_TOKENS"));
        }
        if accepted.service(token).is_some() {
            return Err(Refusal::Forbidden("a service's token opens no sessions; mint a ticket with it"));
        }
        match accepted.signed(token).await? {
            Some((jwt, Signed { name, scopes, end, class })) => {
                let (valid, source) = (Valid::Until(end, Duration::MAX), Source::Signed(jwt.issuer().to_owned()));
                Ok(Draft { name, scopes, valid, source, class, ..everyone() })
            }
            None => Err(Refusal::Wrong("nobody has this token")),
        }
    }

    /// Begins a grant, unless a reload of the settings has withdrawn its token in the meantime.
    fn begin(&self, draft: Draft) -> Result<Arc<Grant>, Refusal> {
        let grant = self.live.begin(draft);
        // A reload replaces the settings before it ends grants. So either the reload has seen this grant, or this check
        // sees the new settings.
        if self.accepted().have(grant.draft()) {
            return Ok(grant);
        }
        Err(Refusal::Wrong("the token was removed"))
    }

    /// Begins the grant of a client whose credentials were checked already: by another node, or as an operator's.
    pub(super) fn of_checked(&self, draft: Draft) -> Arc<Grant> {
        self.live.begin(draft)
    }

    /// Begins the grant of an operator who acts for a user, in this session.
    pub(super) fn of_operator(&self, user: &str, session: &SessionId) -> Arc<Grant> {
        let (name, session) = (user.to_owned(), Some(session.clone()));
        self.of_checked(Draft { name, session, source: Source::Operator, ..everyone() })
    }

    /// Returns the operator with this token. If no credentials are configured at all, everyone who reaches the server
    /// is an operator. The server then listens only on this machine.
    #[must_use]
    pub(crate) async fn operator(&self, token: Option<&str>) -> Option<Operator> {
        let accepted = self.accepted();
        let AuthSettings { operators_read_content, operator_tokens, .. } = &accepted.settings;
        let reads_content = *operators_read_content;
        if !accepted.is_required() && operator_tokens.is_empty() {
            return Some(Operator { name: Name::new(), reads_content, writes: true });
        }
        if let Some(found) = find_scoped(operator_tokens, token?) {
            let writes = found.scopes.allow(Scope::OperatorWrite);
            return Some(Operator { name: found.named.name.clone(), reads_content, writes });
        }
        let (_, signed) = accepted.signed(token?).await.ok()??;
        let scopes = signed.scopes;
        let (reads_content, writes) = (scopes.allow(Scope::OperatorContent), scopes.allow(Scope::OperatorWrite));
        scopes.allow(Scope::Operator).then_some(Operator { name: signed.name, reads_content, writes })
    }

    /// Identifies the requester of a ticket by their token.
    ///
    /// # Errors
    /// The reason why they get no ticket.
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
        Ok(Minter::User(draft.name, draft.scopes, draft.valid, draft.source, draft.class))
    }

    /// Returns the service with this token.
    #[must_use]
    pub(crate) fn service(&self, token: &str) -> Option<Service> {
        self.accepted().service(token)
    }

    /// Issues a single-use ticket, and returns it with its public id. Refuses if too many tickets are unused.
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
        let added = self.tickets.put(&ticket, draft, life).await?;
        Ok(added.map(|()| (ticket, id)))
    }

    async fn redeem(&self, ticket: &str) -> Result<Arc<Grant>, Refusal> {
        // Held until the grant is live.
        let _redeems = self.tickets.redeems().await;
        let draft = self.tickets.take(ticket).await.map_err(|error| {
            tracing::warn!(%error, "redeem a ticket");
            Refusal::Unavailable("the ticket cannot be checked now, because the database is away; reconnect")
        })?;
        self.begin(draft.ok_or(Refusal::Wrong("the ticket is unknown, used or expired"))?)
    }

    /// Revokes what a service granted to a user, or by the id of a ticket. Returns how many unused tickets and how many
    /// connections of this server that ended.
    ///
    /// # Errors
    /// The store failed, so unused tickets may be left.
    pub(super) async fn revoke(&self, service: &Service, whose: &Revoked) -> Result<(usize, usize), store::Error> {
        let unused = self.tickets.withdraw(&service.name, whose).await?;
        Ok((usize::try_from(unused).unwrap_or(usize::MAX), self.end(&service.name, whose).await))
    }

    /// Ends the live grants of a service. Returns the number of connections that this closes.
    pub(super) async fn end(&self, service: &str, whose: &Revoked) -> usize {
        self.tickets.settled().await;
        self.live.end(Ended::Revoked, |draft| whose.is_meant(service, draft))
    }

    /// Returns the number of a user's connections to clients of this server.
    pub(super) fn connections_of(&self, user: &str) -> usize {
        self.live.count(|draft| is_own(draft, user))
    }

    /// Ends a user's grants, whoever made them. Returns the number of connections that this closes.
    pub(super) async fn end_user(&self, user: &str) -> usize {
        self.tickets.settled().await;
        self.live.end(Ended::Revoked, |draft| is_own(draft, user))
    }

    /// Removes a user's unused tickets, whoever made them. Returns their number.
    ///
    /// # Errors
    /// The store failed, so tickets may be left.
    pub(super) async fn withdraw_user(&self, user: &str) -> Result<u64, store::Error> {
        self.tickets.withdraw_user(user).await
    }

    fn accepted(&self) -> Arc<Accepted> {
        self.accepted.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns true if a page of this origin may connect to this port. The port's own page on this machine and the
    /// configured origins may.
    #[must_use]
    pub(crate) fn allows_origin(&self, origin: &str, port: u16) -> bool {
        self.is_own_origin(origin, port)
            || (self.accepted().settings.allowed_origins.iter())
                .any(|allowed| allowed.as_str().eq_ignore_ascii_case(origin))
    }

    /// Returns true for the origin of the server's own page on this machine.
    #[must_use]
    pub(crate) fn is_own_origin(&self, origin: &str, port: u16) -> bool {
        let scheme = self.scheme;
        self.loopback
            && ["localhost", "127.0.0.1", "[::1]"].iter().any(|host| origin == format!("{scheme}://{host}:{port}"))
    }

    /// Returns true if a request may name this host. On this machine, only the machine's own names are allowed. DNS
    /// rebinding is thereby refused: a foreign page whose name resolves to this address sends the foreign name.
    #[must_use]
    pub(crate) fn allows_host(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((v6, _)) => v6,
            None => host.rsplit_once(':').map_or(host, |(name, _)| name),
        };
        !self.loopback
            || name.eq_ignore_ascii_case("localhost")
            || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
            || self.accepted().settings.allowed_origins.iter().any(|origin| {
                origin.as_str().split_once("://").is_some_and(|(_, allowed)| allowed.eq_ignore_ascii_case(host))
            })
    }
}

/// The reason why no ticket was issued.
#[derive(Debug, thiserror::Error)]
pub(super) enum IssueError {
    /// The system has no randomness.
    #[error(transparent)]
    Randomness(#[from] getrandom::Error),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// Returns true if this is the grant of a user's own client. A relayed client counts where it connects.
fn is_own(draft: &Draft, user: &str) -> bool {
    draft.name == user && !matches!(draft.source, Source::Node | Source::Operator)
}

/// Returns the rights of everyone if no credentials are required.
fn everyone() -> Draft {
    Draft {
        name: Name::new(),
        scopes: Scope::Sessions.into(),
        session: None,
        valid: Valid::Indefinitely,
        source: Source::Open,
        id: None,
        class: None,
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
