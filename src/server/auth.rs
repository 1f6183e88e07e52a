//! Authentication: tokens, one-time tickets for browsers, and the origins of web pages.

use super::tickets::{Refused, Tickets};
use crate::config::{AuthSettings, NamedToken, Origin};
use reseed_protocol::{ErrorBody, ErrorCode};
use secrecy::ExposeSecret;
use std::{
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use subtle::ConstantTimeEq;

/// The name of a user: sessions belong to it. Empty if no tokens are configured.
pub(crate) type Name = String;

/// The credentials that this deployment accepts.
#[derive(Debug)]
pub(crate) struct Auth {
    users: Vec<NamedToken>,
    operators: Vec<NamedToken>,
    origins: Vec<Origin>,
    loopback: bool,
    tickets: Mutex<Tickets>,
}

impl Auth {
    /// Creates it for a server that listens on `host`.
    #[must_use]
    pub(crate) fn new(settings: &AuthSettings, host: IpAddr) -> Self {
        let per_user_max = if settings.has_several_users() { settings.tickets_per_user_max as usize } else { 0 };
        Self {
            users: settings.auth_tokens.clone(),
            operators: settings.operator_tokens.clone(),
            origins: settings.allowed_origins.clone(),
            loopback: host.is_loopback(),
            tickets: Mutex::new(Tickets::new(Duration::from_secs(settings.ticket_secs), per_user_max)),
        }
    }

    /// Returns true if credentials are required.
    #[must_use]
    pub(crate) fn is_required(&self) -> bool {
        !self.users.is_empty()
    }

    /// Returns the name that this token belongs to.
    #[must_use]
    pub(crate) fn user(&self, token: &str) -> Option<Name> {
        find(&self.users, token)
    }

    /// Returns the name of the operator whose token this is. If no tokens at all are configured, everyone who reaches
    /// the server is an operator: it then listens only on this machine.
    #[must_use]
    pub(crate) fn operator(&self, token: Option<&str>) -> Option<Name> {
        if self.users.is_empty() && self.operators.is_empty() {
            return Some(Name::new());
        }
        find(&self.operators, token?)
    }

    /// Returns true if this token is an operator's, as [`Self::operator`] says.
    #[must_use]
    pub(crate) fn is_operator(&self, token: Option<&str>) -> bool {
        self.operator(token).is_some()
    }

    /// Returns why these credentials open no session: the error, and the reason for closing the connection.
    #[must_use]
    pub(crate) fn refusal(&self, token: Option<&str>) -> (ErrorBody, &'static str) {
        let (code, why) = match token {
            Some(token) if find(&self.operators, token).is_some() => {
                (ErrorCode::Forbidden, "an operator's token opens no sessions; use one of AUTH_TOKENS")
            }
            _ => (ErrorCode::Unauthenticated, "the credentials are missing, wrong or expired"),
        };
        (ErrorBody::new(code, why), why)
    }

    /// Issues a single-use ticket for this name, or says why not: too many are unused.
    ///
    /// # Errors
    /// The system has no randomness.
    pub(super) fn issue(&self, name: Name) -> Result<Result<String, Refused>, getrandom::Error> {
        let mut bytes = [0; 24];
        getrandom::fill(&mut bytes)?;
        let ticket: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(self.tickets().add(ticket.clone(), name, Instant::now()).map(|()| ticket))
    }

    /// Redeems a ticket and returns its name.
    #[must_use]
    pub(crate) fn redeem(&self, ticket: &str) -> Option<Name> {
        self.tickets().redeem(ticket, Instant::now())
    }

    fn tickets(&self) -> MutexGuard<'_, Tickets> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the lifetime of a ticket in seconds.
    #[must_use]
    pub(crate) fn ticket_secs(&self) -> u64 {
        self.tickets().life().as_secs()
    }

    /// Returns true if a page of this origin may connect: the server's own page on this machine, or a configured
    /// origin.
    #[must_use]
    pub(crate) fn allows_origin(&self, origin: &str, port: u16) -> bool {
        if self.origins.iter().any(|allowed| allowed.as_str().eq_ignore_ascii_case(origin)) {
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
            || self.origins.iter().any(|origin| {
                origin.as_str().split_once("://").is_some_and(|(_, allowed)| allowed.eq_ignore_ascii_case(host))
            })
    }
}

/// Compares with every token, each in constant time, so that neither the position nor the length of a match can be
/// timed.
fn find(tokens: &[NamedToken], given: &str) -> Option<Name> {
    let mut found = None;
    for NamedToken { name, token } in tokens {
        if bool::from(token.expose_secret().as_bytes().ct_eq(given.as_bytes())) {
            found = Some(name);
        }
    }
    found.cloned()
}

/// Returns the token of an `Authorization: Bearer` header.
#[must_use]
pub(crate) fn bearer(headers: &axum::http::HeaderMap) -> Option<&str> {
    let value = headers.get(axum::http::header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    fn auth(host: &str) -> Auth {
        let settings = Settings::from_iter([
            ("AUTH_TOKENS", "ann:secret-a,bob:secret-b"),
            ("OPERATOR_TOKENS", "ops:secret-o"),
            ("ALLOWED_ORIGINS", "https://chat.example"),
        ]);
        Auth::new(&settings.unwrap().auth, host.parse().unwrap())
    }

    #[test]
    fn tokens_name_their_owner() {
        let auth = auth("127.0.0.1");
        let table =
            [("secret-a", Some("ann")), ("secret-b", Some("bob")), ("secret-o", None), ("", None), ("secret-", None)];
        for (token, name) in table {
            assert_eq!(auth.user(token).as_deref(), name, "{token}");
        }
        assert!(auth.is_operator(Some("secret-o")) && !auth.is_operator(Some("secret-a")) && !auth.is_operator(None));
    }

    #[test]
    fn a_ticket_is_good_once() {
        let auth = auth("127.0.0.1");
        let ticket = auth.issue("ann".into()).unwrap().unwrap();
        assert_eq!(auth.redeem(&ticket).as_deref(), Some("ann"));
        assert_eq!(auth.redeem(&ticket), None);
    }

    #[test]
    fn only_known_origins_and_own_hosts_come_in() {
        let table = [
            ("127.0.0.1", "http://localhost:8080", true),
            ("127.0.0.1", "http://127.0.0.1:8080", true),
            ("127.0.0.1", "http://localhost:9999", false),
            ("127.0.0.1", "https://chat.example", true),
            ("127.0.0.1", "https://evil.example", false),
            ("127.0.0.1", "null", false),
            ("0.0.0.0", "http://localhost:8080", false),
            ("0.0.0.0", "https://chat.example", true),
        ];
        for (host, origin, allowed) in table {
            assert_eq!(auth(host).allows_origin(origin, 8080), allowed, "{origin} at {host}");
        }
        let hosts = [
            ("localhost:8080", true),
            ("[::1]:8080", true),
            ("127.0.0.1", true),
            ("evil.example:8080", false),
            ("chat.example", true),
        ];
        for (host, allowed) in hosts {
            assert_eq!(auth("127.0.0.1").allows_host(host), allowed, "{host}");
        }
    }
}
