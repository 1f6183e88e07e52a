//! The credentials that the settings in effect accept.

use super::{
    grant::{Digest, Draft, Source},
    jwt::{Jwt, Signed},
    user::{ISSUER_END, Name, Refusal, SERVICE},
};
use crate::config::{AuthSettings, NamedToken, ScopedToken, Scopes, Settings};
use secrecy::ExposeSecret;
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// A service, identified by its token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) name: String,
    /// The scopes that it can grant at most.
    pub(crate) scopes: Scopes,
    /// The token that it used.
    pub(crate) source: Source,
}

impl Service {
    /// Returns the user that the service knows by this name.
    pub(crate) fn user(&self, name: &str) -> Name {
        format!("{SERVICE}{}{ISSUER_END}{name}", self.name)
    }
}

/// The settings in effect. A reload replaces them as a whole.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) settings: AuthSettings,
    pub(super) jwt: Option<Arc<Jwt>>,
}

impl Accepted {
    pub(super) fn new(settings: &Settings, jwt: Option<Arc<Jwt>>) -> Self {
        Self { settings: settings.auth.clone(), jwt }
    }

    /// Returns true if credentials are required.
    pub(super) fn is_required(&self) -> bool {
        let AuthSettings { auth_tokens, service_tokens, .. } = &self.settings;
        !auth_tokens.is_empty() || !service_tokens.is_empty() || self.jwt.is_some()
    }

    /// Returns the contents of an identity provider's token. `None` if the token is not one.
    pub(super) async fn signed(&self, token: &str) -> Result<Option<(&Jwt, Signed)>, Refusal> {
        match &self.jwt {
            Some(jwt) if Jwt::is_signed(token) => Ok(Some((jwt, jwt.verify(token).await?))),
            _ => Ok(None),
        }
    }

    /// Returns the service with this token.
    pub(super) fn service(&self, token: &str) -> Option<Service> {
        find_scoped(&self.settings.service_tokens, token).map(|service| {
            let name = service.named.name.clone();
            Service { source: Source::Service(name.clone(), digest(token)), name, scopes: service.scopes }
        })
    }

    /// Returns true if the settings still contain the origin of a grant, and still allow everything it allows.
    pub(super) fn have(&self, draft: &Draft) -> bool {
        let has = |named: &NamedToken, of: &Digest| digest(named.token.expose_secret()) == *of;
        match &draft.source {
            Source::Open => !self.is_required(),
            Source::Node | Source::Operator => true,
            Source::User(of) => {
                self.settings.auth_tokens.iter().any(|named| named.name == draft.name && has(named, of))
            }
            Source::Signed(issuer) => self.jwt.as_ref().is_some_and(|jwt| jwt.issuer() == issuer),
            Source::Service(name, of) => {
                let is_it = |service: &ScopedToken| service.named.name == *name && has(&service.named, of);
                self.settings.service_tokens.iter().any(|service| is_it(service) && service.scopes.cover(draft.scopes))
            }
        }
    }
}

/// Returns the digest that a grant keeps of its token.
pub(super) fn digest(token: &str) -> Digest {
    let digest = ring::digest::digest(&ring::digest::SHA256, token.as_bytes());
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

fn is_token(named: &NamedToken, given: &str) -> bool {
    named.token.expose_secret().as_bytes().ct_eq(given.as_bytes()).into()
}

/// Compares the given token with every configured one in constant time. Timing reveals neither the position nor the
/// length of a match.
pub(super) fn find(tokens: &[NamedToken], given: &str) -> Option<Name> {
    let mut found = None;
    for named in tokens {
        if is_token(named, given) {
            found = Some(&named.name);
        }
    }
    found.cloned()
}

/// As [`find`], for tokens with scopes.
pub(super) fn find_scoped<'a>(tokens: &'a [ScopedToken], given: &str) -> Option<&'a ScopedToken> {
    let mut found = None;
    for scoped in tokens {
        if is_token(&scoped.named, given) {
            found = Some(scoped);
        }
    }
    found
}
