//! JSON Web Tokens: authenticates users by the tokens that their identity provider signs.
//!
//! Invariants:
//! - A token is verified only with an algorithm that the settings list, and with a key of that algorithm's kind. No
//!   allowed algorithm uses a shared secret, so a public key is never used as one.
//! - A user's name begins with the configured issuer, so it cannot collide with another issuer's.
//! - All cheap checks precede the signature. A few signatures are verified for a token at most, each in a tenth of a
//!   millisecond.
//! - No part of a token is logged.

mod claims;
mod crypto;
mod fetch;
mod keys;

use self::{
    claims::Rules,
    fetch::{ASKED_INTERVAL, RETRY, Remote},
    keys::{KEYS_BYTES_MAX, KeySet},
};
use super::user::{Name, Refusal};
use crate::{
    clock::{Clock as _, SystemClock},
    config::{Scopes, Settings},
    metrics::limits::Limit,
};
use anyhow::Context as _;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, AlgorithmFamily};
use serde::Deserialize;
use std::{
    fmt,
    fs::File,
    io::Read as _,
    path::Path,
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant},
};

/// Maximum bytes of a token. HTTP servers usually accept headers of 8 KiB, so providers keep their tokens smaller.
pub(crate) const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// The maximum lifetime of a grant. A token may be valid for longer.
const VALID_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Verifies the tokens of one identity provider.
#[derive(Debug)]
pub(crate) struct Jwt {
    rules: Rules,
    keys: RwLock<Arc<KeySet>>,
    remote: Option<Remote>,
}

impl fmt::Display for Jwt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let issuer = self.issuer();
        match self.keys().len() {
            0 => {
                write!(f, "signed by {issuer}: NO KEYS YET, nobody can sign in until AUTH_JWKS_URL returns them")
            }
            count => write!(f, "signed by {issuer}: {count} keys"),
        }
    }
}

/// The contents of a token that passed all checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Signed {
    /// The user, as `issuer|name`.
    pub(crate) name: Name,
    pub(crate) scopes: Scopes,
    /// When the token expires.
    pub(crate) end: Instant,
    /// The class of budgets that it names.
    pub(crate) class: Option<String>,
}

/// The fields of a token's header that matter here.
#[derive(Deserialize)]
struct Header {
    alg: Algorithm,
    kid: Option<String>,
    typ: Option<String>,
    /// Extensions that a verifier must understand. None are supported.
    crit: Option<serde_json::Value>,
}

impl Jwt {
    /// Reads the keys that the settings name; `None` if they name none. An unreachable provider is retried in the
    /// background. Until it answers, the keys of `known` are used if they come from the same address. Without them, no
    /// token is valid.
    ///
    /// # Errors
    /// A key file or an address that cannot be used.
    pub(crate) async fn open(settings: &Settings, known: Option<&Self>) -> anyhow::Result<Option<Arc<Self>>> {
        let jwt = &settings.jwt;
        let Some(rules) = Rules::of(jwt) else { return Ok(None) };
        crypto::install();
        let remote = jwt.auth_jwks_url.as_deref().map(Remote::new).transpose()?;
        let keys = match settings.jwt_key_path() {
            Some(file) => read(&file)?,
            None => KeySet::default(),
        };
        let opened = Arc::new(Self { rules, keys: RwLock::new(Arc::new(keys)), remote });
        if opened.remote.is_some() {
            if let Some(known) = known.filter(|known| known.is_of_same_address(&opened)) {
                *opened.keys.write().unwrap_or_else(PoisonError::into_inner) = known.keys();
            }
            opened.fetch().await;
            keep_fresh(&opened, Duration::from_secs(jwt.auth_jwks_refresh_secs));
        }
        Ok(Some(opened))
    }

    pub(crate) fn has_keys(&self) -> bool {
        self.keys().len() > 0
    }

    /// Returns true if the keys of both come from the same address.
    pub(crate) fn is_of_same_address(&self, other: &Self) -> bool {
        let url = |jwt: &Self| jwt.remote.as_ref().map(|remote| remote.url().clone());
        url(self) == url(other)
    }

    /// Returns the issuer whose tokens are accepted.
    pub(crate) fn issuer(&self) -> &str {
        &self.rules.issuer
    }

    /// Returns true if a text has the form of a signed token.
    pub(crate) fn is_signed(token: &str) -> bool {
        token.bytes().filter(|byte| *byte == b'.').count() == 2
    }

    /// Verifies a token and returns its contents.
    ///
    /// # Errors
    /// The reason why it is not accepted.
    pub(crate) async fn verify(&self, token: &str) -> Result<Signed, Refusal> {
        if token.len() > TOKEN_BYTES_MAX {
            Limit::TokenBytes.refused();
            return Err(Refusal::Wrong("the signed token is too large"));
        }
        let (message, signature) = token.rsplit_once('.').ok_or(Refusal::Wrong("the signed token is not one"))?;
        let (header, payload) = message.split_once('.').ok_or(Refusal::Wrong("the signed token is not one"))?;
        let header: Header = part(header).ok_or(Refusal::Wrong("the token's algorithm is unknown, or it has none"))?;
        // A public key could be used as the shared secret. No key fits such an algorithm, and none is searched for.
        if header.alg.family() == AlgorithmFamily::Hmac {
            return Err(Refusal::Wrong("the token is signed with a shared secret"));
        }
        if header.crit.is_some() {
            return Err(Refusal::Wrong("the token has extensions that must be understood (`crit`)"));
        }
        if !header.typ.as_deref().is_none_or(is_access) {
            return Err(Refusal::Wrong("the token is of another kind (`typ`)"));
        }
        let claims = part(payload).ok_or(Refusal::Wrong("the token's claims are not a JSON object"))?;
        // A token that is refused here costs no signature check, and a valid one is not delayed.
        let said = self.rules.check(&claims, SystemClock.now().0)?;
        let candidates = self.candidates(header.kid.as_deref(), header.alg).await?;
        let is_of = |key| jsonwebtoken::crypto::verify(signature, message.as_bytes(), key, header.alg);
        if !candidates.iter().any(|key| is_of(key).unwrap_or(false)) {
            return Err(Refusal::Wrong("the token's signature is wrong"));
        }
        let end = Instant::now() + said.left.min(VALID_MAX);
        Ok(Signed { name: said.name, scopes: said.scopes, end, class: said.class })
    }

    /// Returns the keys that may have signed a token. If the token names an unknown key, they are fetched again first.
    async fn candidates(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Vec<jsonwebtoken::DecodingKey>, Refusal> {
        let found = self.keys().candidates(id, algorithm);
        let found = match (&self.remote, id) {
            (Some(remote), Some(_)) if found.is_empty() => {
                let mut asked = remote.alone().await;
                let found = self.keys().candidates(id, algorithm);
                // Anyone can invent a token with an unknown key.
                let is_recent = asked.is_some_and(|asked| asked.elapsed() < ASKED_INTERVAL);
                match found.is_empty() {
                    false => found,
                    true if is_recent => {
                        Limit::JwksFetches.refused();
                        found
                    }
                    true => {
                        *asked = Some(Instant::now());
                        self.take_from(remote).await;
                        self.keys().candidates(id, algorithm)
                    }
                }
            }
            _ => found,
        };
        if found.is_empty() { Err(Refusal::Wrong("no known key fits the token")) } else { Ok(found) }
    }

    /// Fetches the keys. Returns true if they are the provider's current ones.
    async fn fetch(&self) -> bool {
        let Some(remote) = &self.remote else { return true };
        let _alone = remote.alone().await;
        self.take_from(remote).await
    }

    /// Fetches the keys, and keeps the old ones on failure. Returns true if they are the provider's current ones.
    async fn take_from(&self, remote: &Remote) -> bool {
        match remote.fetch().await {
            Ok(keys) => {
                tracing::debug!(keys = keys.len(), "fetch the identity provider's keys");
                *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
                true
            }
            Err(why) => {
                tracing::warn!(why, kept = self.keys().len(), "fetch the keys of AUTH_JWKS_URL");
                false
            }
        }
    }

    fn keys(&self) -> Arc<KeySet> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Returns true if tokens of this type give access. A provider signs other tokens with the same keys, such as logout
/// tokens.
fn is_access(typ: &str) -> bool {
    let typ = typ.to_ascii_lowercase();
    matches!(typ.strip_prefix("application/").unwrap_or(&typ), "jwt" | "at+jwt")
}

/// Decodes one part of a token.
fn part<T: serde::de::DeserializeOwned>(encoded: &str) -> Option<T> {
    serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(encoded).ok()?).ok()
}

/// Reads a file of keys.
fn read(file: &Path) -> anyhow::Result<KeySet> {
    let named = || format!("AUTH_JWT_KEY_FILE names {}", file.display());
    let mut text = Vec::new();
    let read = File::open(file).and_then(|file| file.take(KEYS_BYTES_MAX as u64 + 1).read_to_end(&mut text));
    read.with_context(|| format!("{}, which cannot be read", named()))?;
    anyhow::ensure!(text.len() <= KEYS_BYTES_MAX, "{}, which has more than {KEYS_BYTES_MAX} bytes", named());
    KeySet::parse(&text).map_err(|why| anyhow::anyhow!("{}: {why}", named()))
}

/// Fetches the keys at this interval until the [`Jwt`] is dropped.
fn keep_fresh(jwt: &Arc<Jwt>, interval: Duration) {
    let jwt = Arc::downgrade(jwt);
    tokio::spawn(async move {
        let mut wait = interval;
        loop {
            tokio::time::sleep(wait).await;
            let Some(jwt) = jwt.upgrade() else { return };
            wait = if jwt.fetch().await { interval } else { interval.min(RETRY) };
        }
    });
}

#[cfg(test)]
mod tests;
