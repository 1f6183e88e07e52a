//! JSON Web Tokens: users of an identity provider, known by the tokens that it signs.
//!
//! Invariants:
//! - only an algorithm that the settings list verifies a token, with a key of its own kind; none of them has a shared
//!   secret, so a public key is never used as one;
//! - a user's name begins with the issuer of the settings, so that it is nobody else's;
//! - everything that costs little is checked before the signature, and signatures are verified a few at a time;
//! - no part of a token is logged.

mod claims;
mod crypto;
mod fetch;
mod keys;

use self::{claims::Rules, fetch::Remote, keys::KeySet};
use super::{Name, Refusal};
use crate::{
    clock::{Clock as _, SystemClock},
    config::{Scopes, Settings},
    metrics::limits::Limit,
};
use anyhow::Context as _;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use jsonwebtoken::Algorithm;
use serde::Deserialize;
use std::{
    fmt,
    fs::File,
    io::Read as _,
    path::Path,
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant},
};
use tokio::sync::Semaphore;

/// Most bytes of a token. HTTP servers usually accept headers of 8 KiB, so providers keep their tokens smaller.
pub(crate) const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// Most bytes of a set of keys; that of a large provider has a few thousand.
const KEYS_BYTES_MAX: usize = 256 * 1024;

/// The longest time for which a grant is counted down; a token may be valid for longer.
const VALID_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Accepts the tokens of one identity provider.
#[derive(Debug)]
pub(crate) struct Jwt {
    rules: Rules,
    keys: RwLock<Arc<KeySet>>,
    remote: Option<Remote>,
    /// Signatures verified at a time: half of the processors are left to everything else.
    verifying: Arc<Semaphore>,
}

impl fmt::Display for Jwt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let algorithms: Vec<String> = self.rules.algorithms.iter().map(|one| format!("{one:?}")).collect();
        let (issuer, algorithms) = (self.issuer(), algorithms.join(", "));
        match self.keys().len() {
            0 => {
                write!(f, "signed by {issuer}: NO KEYS YET, AUTH_JWKS_URL is asked again; until then nobody is let in")
            }
            count => write!(f, "signed by {issuer}: {count} keys; {algorithms}"),
        }
    }
}

/// The contents of a token that passed all checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Signed {
    /// The user: the issuer, `|` and the name that it gives.
    pub(crate) name: Name,
    /// Their scopes.
    pub(crate) scopes: Scopes,
    /// When the token expires.
    pub(crate) end: Instant,
}

/// The header of a token, as far as it matters.
#[derive(Deserialize)]
struct Header {
    alg: Algorithm,
    kid: Option<String>,
    typ: Option<String>,
    /// Extensions that must be understood; none is.
    crit: Option<serde_json::Value>,
}

impl Jwt {
    /// Reads the keys that the settings name; `None` if they name none. A provider that cannot be reached is asked
    /// again in the background; until then the keys of `known` are used, if they are of the same address, and without
    /// them nobody has a valid token.
    ///
    /// # Errors
    /// A file of keys, or an address, that cannot be used.
    pub(crate) async fn open(settings: &Settings, known: Option<&Self>) -> anyhow::Result<Option<Arc<Self>>> {
        let jwt = &settings.jwt;
        let Some(rules) = Rules::of(jwt) else { return Ok(None) };
        crypto::install();
        let remote = jwt.auth_jwks_url.as_deref().map(Remote::new).transpose()?;
        let keys = match settings.jwt_key_path() {
            Some(file) => read(&file)?,
            None => KeySet::default(),
        };
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let verifying = Arc::new(Semaphore::new((processors / 2).max(1)));
        let opened = Arc::new(Self { rules, keys: RwLock::new(Arc::new(keys)), remote, verifying });
        if opened.remote.is_some() {
            if let Some(known) = known.filter(|known| known.is_of_same_address(&opened)) {
                *opened.keys.write().unwrap_or_else(PoisonError::into_inner) = known.keys();
            }
            opened.fetch().await;
            fetch::keep_fresh(&opened, Duration::from_secs(jwt.auth_jwks_refresh_secs));
        }
        Ok(Some(opened))
    }

    /// Returns true if it knows any keys.
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

    /// Returns what a token says.
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
        if !self.rules.algorithms.contains(&header.alg) {
            return Err(Refusal::Wrong("the token's algorithm is not in AUTH_JWT_ALGORITHMS"));
        }
        if header.crit.is_some() {
            return Err(Refusal::Wrong("the token has extensions that must be understood (`crit`)"));
        }
        if !header.typ.as_deref().is_none_or(is_access) {
            return Err(Refusal::Wrong("the token is of another kind (`typ`)"));
        }
        let claims = part(payload).ok_or(Refusal::Wrong("the token's claims are not a JSON object"))?;
        // A token that is refused here costs no signature, and none that is valid takes longer.
        let said = self.rules.check(&claims, SystemClock.now().0)?;
        let candidates = self.candidates(header.kid.as_deref(), header.alg).await?;
        let permit =
            self.verifying.clone().acquire_owned().await.map_err(|_| Refusal::Wrong("the server is stopping"))?;
        let (message, signature) = (message.to_owned(), signature.to_owned());
        let verified = tokio::task::spawn_blocking(move || {
            let is_of = |key| jsonwebtoken::crypto::verify(&signature, message.as_bytes(), key, header.alg);
            let is_verified = candidates.iter().any(|key| is_of(key).unwrap_or(false));
            // Held here: a client that disconnects does not end the work.
            drop(permit);
            is_verified
        });
        let is_verified = verified.await.unwrap_or(false);
        if !is_verified {
            return Err(Refusal::Wrong("the token's signature is wrong"));
        }
        Ok(Signed { name: said.name, scopes: said.scopes, end: Instant::now() + said.left.min(VALID_MAX) })
    }

    /// Returns the keys that may have signed a token. Asks the provider if it names one that is unknown.
    async fn candidates(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Vec<jsonwebtoken::DecodingKey>, Refusal> {
        let found = self.keys().candidates(id, algorithm);
        let found = match (&self.remote, id) {
            (Some(remote), Some(_)) if found.is_empty() => {
                remote.refetch(|| self.keys().candidates(id, algorithm).is_empty(), || self.fetch()).await;
                self.keys().candidates(id, algorithm)
            }
            _ => found,
        };
        if found.is_empty() { Err(Refusal::Wrong("no known key fits the token")) } else { Ok(found) }
    }

    /// Fetches the keys; keeps those that it has if that fails. Returns true if it has those of the provider now.
    async fn fetch(&self) -> bool {
        let Some(remote) = &self.remote else { return true };
        // One at a time, so that an older answer does not replace a newer one.
        let _alone = remote.alone().await;
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

/// Returns true if tokens of this type give access. A provider signs others with the same keys: for logging out, or
/// about events.
fn is_access(typ: &str) -> bool {
    let typ = typ.to_ascii_lowercase();
    matches!(typ.strip_prefix("application/").unwrap_or(&typ), "jwt" | "at+jwt")
}

/// Decodes a part of a token.
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

#[cfg(test)]
mod tests;
