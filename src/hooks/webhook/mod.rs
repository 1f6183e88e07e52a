//! Webhooks: hooks on external servers. A call is one POST, signed according to the Standard Webhooks specification.
//! The response body is the answer.
//!
//! Invariants:
//! - A call is sent at most once. It is retried only if no connection was established, under the same `webhook-id`.
//! - It goes only to the configured address. Redirects are failures, and unencrypted calls stay on this machine.
//! - A fault repeats nothing of an answer, a secret or the address.
//! - Everything runs in the caller's future, and dropping it closes the connection.

pub(crate) mod address;
mod answer;
mod file;
mod sign;

pub(crate) use file::read;
pub(crate) use sign::Secret;

use super::{Hook, HookFuture};
use crate::{
    clock::Clock,
    core::hook::{HookFault, HookSpec},
    trace,
};
use bytes::Bytes;
use reqwest::{
    Response, StatusCode, Url,
    dns::Resolve,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use reseed_protocol::hooks::{HookAnswer, HookCall};
use std::{fmt, sync::Arc, time::Duration};

/// The time limit for a connection. A reachable server accepts one much faster, even around the world.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The waits before a connection is retried. A restarting server is back soon, and a longer wait is not worth a user's
/// time.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(400)];

/// The headers of the specification.
const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// A webhook: its address, the points at which it is called, and the secrets that sign its calls.
pub(crate) struct Webhook {
    specs: Vec<HookSpec>,
    url: Url,
    secrets: Vec<Secret>,
    clock: Arc<dyn Clock>,
    http: reqwest::Client,
    pauses: [Duration; 2],
}

/// The reason why a webhook is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidWebhook {
    /// Nothing may be sent to this address.
    #[error("{0}; allowed: {allowed}", allowed = address::ALLOWED)]
    Address(&'static str),
    /// There is no secret, or there are too many.
    #[error("it has {0} secrets; allowed: 1 to {most}", most = sign::SECRETS_MAX)]
    Secrets(usize),
    /// The HTTP client could not be created, for example because the system has no trusted certificates.
    #[error("cannot create its HTTP client: are the system's root certificates installed?")]
    Client,
}

impl Webhook {
    /// Creates a webhook at this address. The newest of its secrets comes first, and those being phased out follow.
    ///
    /// # Errors
    /// The address is not allowed, or there are too few or too many secrets.
    pub(crate) fn new(
        specs: Vec<HookSpec>,
        url: &str,
        secrets: Vec<Secret>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, InvalidWebhook> {
        Self::resolved_by(Arc::new(address::ThisMachine), specs, url, secrets, clock)
    }

    /// Like [`Self::new`], with another resolver for this machine.
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
            // Each call uses its own connection, because servers close idle ones silently. A call written to such a
            // connection may have been read, so it could not be sent again.
            .pool_max_idle_per_host(0);
        // As for models, the environment's proxy is used for addresses outside this machine. It sees no plain text.
        let builder = match address::is_loopback(&url) {
            true => builder.no_proxy().dns_resolver(resolver),
            false => builder.https_only(true),
        };
        // Plain HTTP needs no certificates, so a machine without any works too.
        let builder = if url.scheme() == "http" { builder.tls_certs_only([]) } else { builder };
        // If another part of the process has already installed a provider, that one is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = builder.build().map_err(|_| InvalidWebhook::Client)?;
        Ok(Self { specs, url, secrets, clock, http, pauses: PAUSES })
    }

    async fn ask(&self, call: HookCall) -> Result<HookAnswer, HookFault> {
        let id = message_id(&call);
        let body = serde_json::to_vec(&call).map_err(|_| HookFault::failed("the call could not be serialised"))?;
        // The body may be a whole context. It is held only once, however often it is sent.
        drop(call);
        let response = self.send(&id, Bytes::from(body)).await.map_err(|error| lost(&error))?;
        match response.status() {
            StatusCode::NO_CONTENT => Ok(HookAnswer::default()),
            status if status.is_success() => answer::read(response).await,
            status => Err(HookFault::failed(format!("it answered with HTTP {}", status.as_u16()))),
        }
    }

    /// Sends a call and waits for the head of the response.
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
        trace::add_headers(trace::current(), &mut headers);
        self.http.post(self.url.clone()).headers(headers).body(body).send().await
    }
}

/// Returns the id of a call for its receiver, which is the same for every attempt. It contains no `.`, because that
/// separates the signed parts.
fn message_id(call: &HookCall) -> String {
    format!("msg_{}_{}", call.session_id, call.call_id).replace('.', "-")
}

/// Returns the fault for a call without a response. The error's own text contains the address, so only its kind is
/// reported.
fn lost(error: &reqwest::Error) -> HookFault {
    let stage = match error.is_connect() {
        true => "could not connect",
        false => "the connection broke before the answer; the webhook may have received the call",
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
    /// Omits the path and query of the address, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.url.host_str().unwrap_or_default();
        f.debug_struct("Webhook").field("host", &host).field("specs", &self.specs).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
