//! Webhooks: hooks that are servers of others'. A call is one POST, signed as the Standard Webhooks specification says;
//! its answer is the body that comes back.
//!
//! Always holds:
//! - a call is sent at most once: it is tried again only where no connection came about, under the same `webhook-id`;
//! - it goes where the address says and nowhere else: redirects are failures, and what is not encrypted stays on this
//!   machine;
//! - a fault repeats nothing of an answer, of a secret, or of the address;
//! - everything runs in the caller's future: dropping it closes the connection.

mod address;
mod answer;
mod file;
mod sign;

pub use file::read;
pub use sign::{InvalidSecret, Secret};

use super::{Hook, HookFuture};
use crate::{
    clock::Clock,
    core::hook::{HookFault, HookSpec},
};
use bytes::Bytes;
use reqwest::{
    Response, StatusCode, Url,
    dns::Resolve,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use reseed_protocol::hook::{HookAnswer, HookCall};
use std::{fmt, sync::Arc, time::Duration};

/// Until a connection must have come about: a server that is there takes one in much less, over the longest cable too.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long it is waited before a connection is tried again: a server that is being restarted is back soon, and what
/// takes longer is not worth a user's time.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(400)];

/// The names of the specification's headers.
const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// A webhook: who is asked, what for, and how it knows that the question is ours.
pub struct Webhook {
    specs: Vec<HookSpec>,
    url: Url,
    secrets: Vec<Secret>,
    clock: Arc<dyn Clock>,
    http: reqwest::Client,
    pauses: [Duration; 2],
}

/// Why there is no such webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidWebhook {
    /// Nothing may be sent there.
    #[error("{0}; allowed: {allowed}", allowed = address::ALLOWED)]
    Address(&'static str),
    /// No key, or too many.
    #[error("it has {0} secrets; allowed: 1 to {most}", most = sign::SECRETS_MAX)]
    Secrets(usize),
    /// The system has no certificates to trust, or the like.
    #[error("its HTTP client cannot be made: are the system's root certificates there?")]
    Client,
}

impl Webhook {
    /// A webhook at this address; the newest of its secrets first, those that are going out of use behind it.
    ///
    /// # Errors
    /// An address that nothing may be sent to; too few or too many secrets.
    pub fn new(
        specs: Vec<HookSpec>,
        url: &str,
        secrets: Vec<Secret>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, InvalidWebhook> {
        Self::resolved_by(Arc::new(address::ThisMachine), specs, url, secrets, clock)
    }

    /// The same with another way to look up what is on this machine.
    fn resolved_by(
        resolver: Arc<dyn Resolve>,
        specs: Vec<HookSpec>,
        url: &str,
        secrets: Vec<Secret>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, InvalidWebhook> {
        let url = address::checked(url).map_err(InvalidWebhook::Address)?;
        if secrets.is_empty() || secrets.len() > sign::SECRETS_MAX {
            return Err(InvalidWebhook::Secrets(secrets.len()));
        }
        let builder = reqwest::Client::builder()
            .user_agent(concat!("reseed/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            // A connection for each call: servers close idle ones without a word, and a call that was written into one
            // of these may have been read, so it could not be sent again.
            .pool_max_idle_per_host(0);
        // As for models, a proxy of the environment's is used for what is not on this machine; it sees no plain text.
        let builder = match address::is_loopback(&url) {
            true => builder.no_proxy().dns_resolver(resolver),
            false => builder.https_only(true),
        };
        // Without TLS there is nothing to trust; a machine without certificates works all the same.
        let builder = if url.scheme() == "http" { builder.tls_certs_only([]) } else { builder };
        // Another part of the process may have chosen one before us: that one is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = builder.build().map_err(|_| InvalidWebhook::Client)?;
        Ok(Self { specs, url, secrets, clock, http, pauses: PAUSES })
    }

    async fn ask(&self, call: HookCall) -> Result<HookAnswer, HookFault> {
        let id = message_id(&call);
        let body = serde_json::to_vec(&call).map_err(|_| HookFault::failed("the call could not be written"))?;
        // What is sent may be a whole context: it is held once, whatever is tried.
        drop(call);
        let response = self.send(&id, Bytes::from(body)).await.map_err(|error| lost(&error))?;
        match response.status() {
            StatusCode::NO_CONTENT => Ok(HookAnswer::default()),
            status if status.is_success() => answer::read(response).await,
            status => Err(HookFault::failed(format!("it answered with HTTP {}", status.as_u16()))),
        }
    }

    /// Sends a call and waits for the head of its answer.
    async fn send(&self, id: &str, body: Bytes) -> Result<Response, reqwest::Error> {
        for pause in self.pauses {
            match self.send_once(id, body.clone()).await {
                Err(error) if error.is_connect() => tokio::time::sleep(pause).await,
                sent => return sent,
            }
        }
        self.send_once(id, body).await
    }

    async fn send_once(&self, id: &str, body: Bytes) -> Result<Response, reqwest::Error> {
        let seconds = self.clock.now().0.div_euclid(1000).to_string();
        let signature = sign::signatures(&self.secrets, id, &seconds, &body);
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        for (name, value) in [(ID, id), (TIMESTAMP, &seconds), (SIGNATURE, &signature)] {
            headers.insert(name, HeaderValue::from_str(value).expect("ids, digits and base64 are visible ASCII"));
        }
        self.http.post(self.url.clone()).headers(headers).body(body).send().await
    }
}

/// Names a call for its receiver, the same each time that it is tried. Without `.`, which stands between the parts of what
/// is signed.
fn message_id(call: &HookCall) -> String {
    format!("msg_{}_{}", call.session_id, call.call_id).replace('.', "-")
}

/// A call that got no answer. The error's own text names the address, so only its kind is told.
fn lost(error: &reqwest::Error) -> HookFault {
    let stage = match error.is_connect() {
        true => "no connection came about",
        false => "the connection broke before it answered; it may have been asked all the same",
    };
    let mut kind = None;
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind).or(kind);
        source = error.source();
    }
    HookFault::failed(match kind {
        Some(kind) if kind != std::io::ErrorKind::Other => format!("{stage} ({kind})"),
        _ if error.is_timeout() => format!("{stage} (timed out)"),
        _ => stage.to_owned(),
    })
}

impl Hook for Webhook {
    fn specs(&self) -> Vec<HookSpec> {
        self.specs.clone()
    }

    fn call(&self, call: HookCall) -> HookFuture<'_> {
        Box::pin(self.ask(call))
    }
}

impl fmt::Debug for Webhook {
    /// Without the path and the query of its address, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.url.host_str().unwrap_or_default();
        f.debug_struct("Webhook").field("host", &host).field("specs", &self.specs).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
