//! Fetches a provider's keys in the background. Size, time and the rate of requests caused by tokens are bounded.

use super::keys::{KEYS_BYTES_MAX, KeySet};
use crate::hooks::webhook::address;
use anyhow::Context as _;
use reqwest::{Client, StatusCode, Url, header};
use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{Mutex, MutexGuard};

/// The time limit for the keys. Clients that wait for them hold a socket open.
const FETCH_TIME: Duration = Duration::from_secs(5);

/// The minimum interval between two fetches caused by tokens with unknown keys. Anyone can invent such tokens.
pub(super) const ASKED_INTERVAL: Duration = Duration::from_secs(30);

/// The delay before a failed fetch is repeated.
pub(super) const RETRY: Duration = Duration::from_secs(15);

/// The address of a provider's keys, and the requests to it.
pub(super) struct Remote {
    url: Url,
    http: Client,
    /// When a token last caused a fetch.
    asked: Mutex<Option<Instant>>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("host", &self.url.host_str()).finish_non_exhaustive()
    }
}

impl Remote {
    /// Prepares requests to this address.
    pub(super) fn new(url: &str) -> anyhow::Result<Self> {
        let url = address::checked(url)
            .map_err(|why| anyhow::anyhow!("AUTH_JWKS_URL: {why}; allowed: {}", address::ALLOWED))?;
        let builder = Client::builder()
            .user_agent(concat!("reseed/", env!("CARGO_PKG_VERSION")))
            .timeout(FETCH_TIME)
            // A redirect could lead to keys that nobody has approved, and they would let anyone in.
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .pool_max_idle_per_host(0);
        let builder = match address::is_loopback(&url) {
            true => builder.no_proxy().dns_resolver(Arc::new(address::ThisMachine)),
            false => builder.https_only(true),
        };
        // Plain HTTP needs no certificates, so a machine without any works too.
        let builder = if url.scheme() == "http" { builder.tls_certs_only([]) } else { builder };
        // If another part of the process has already installed a provider, that one is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = builder.build().context("create an HTTP client: are the system's root certificates installed?")?;
        Ok(Self { url, http, asked: Mutex::new(None) })
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// Waits for other fetches to finish, and prevents new ones while the guard is held. So an older response cannot
    /// replace a newer one, and everyone who waits shares its result. The guard says when a token last caused a fetch.
    pub(super) async fn alone(&self) -> MutexGuard<'_, Option<Instant>> {
        self.asked.lock().await
    }

    /// Fetches the keys.
    ///
    /// # Errors
    /// The reason. It quotes nothing of the response.
    pub(super) async fn fetch(&self) -> Result<KeySet, String> {
        let request = self.http.get(self.url.clone()).header(header::ACCEPT, "application/json");
        let lost = |error: reqwest::Error| format!("no answer: {}", error.without_url());
        let mut response = request.send().await.map_err(lost)?;
        if response.status() != StatusCode::OK {
            return Err(format!("it answered with HTTP {}", response.status().as_u16()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(lost)? {
            if body.len() + chunk.len() > KEYS_BYTES_MAX {
                return Err(format!("it has more than {KEYS_BYTES_MAX} bytes"));
            }
            body.extend_from_slice(&chunk);
        }
        KeySet::parse(&body)
    }
}
