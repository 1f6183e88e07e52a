//! The HTTP connection to a model server: its client, the deadlines of an exchange, and the reading of refusals.
//!
//! Invariant: everything runs in the caller's future. Dropping it closes the connection, which makes a server stop.

use super::events::Events;
use crate::{
    config::listed::is_this_machine,
    core::model::ModelFault,
    provider::fault::{classify, fault},
};
use jiff::Timestamp;
use reqwest::{
    Response, Url,
    header::{ACCEPT_ENCODING, HeaderMap, HeaderValue},
};
use reseed_protocol::ErrorCode;
use std::{future::Future, time::Duration};
use tokio::time::{Instant, timeout, timeout_at};

/// Maximum bytes read of an error's body. Errors are short, and longer bodies are HTML pages.
const ERROR_BYTES_MAX: usize = 64 * 1024;
/// Maximum bytes of a model list. OpenRouter's is the largest known and has half a MiB.
const LIST_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The time limit for a model list and for the body of an error. Neither needs inference.
const SHORT_TIMEOUT: Duration = Duration::from_secs(15);

/// The time limit for opening a connection. Beyond ten seconds, a server is down rather than slow.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for the first event. A small machine takes minutes to read a large prompt.
pub(crate) const FIRST_EVENT_TIMEOUT: Duration = Duration::from_secs(300);
/// The silence within an answer that is always allowed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the maximum silence within an answer of a server with this time limit for the first event. It is a minute,
/// or a fifth of that limit if this is longer, and never more than the limit. A machine that is slow to read a prompt
/// is also slow to write, and a pause for thought is shorter than a minute.
#[must_use]
pub fn idle_timeout(first_event_timeout: Duration) -> Duration {
    first_event_timeout.min(IDLE_TIMEOUT).max(first_event_timeout / 5)
}

/// The time limits of an exchange.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    /// The time limit for opening a connection, including TLS.
    pub(crate) connect: Duration,
    /// The time limit from sending a request to the first event of its answer.
    pub(crate) first_event: Duration,
    /// The maximum silence within an answer.
    pub(crate) idle: Duration,
}

/// The connection to one server.
#[derive(Debug, Clone)]
pub(crate) struct Transport {
    client: reqwest::Client,
    timeouts: Timeouts,
}

impl Transport {
    /// Creates the client for the server at this address. Nothing is sent yet.
    pub(crate) fn new(url: &Url, timeouts: Timeouts) -> Result<Self, reqwest::Error> {
        // A compressed stream would arrive in batches.
        let plain = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("identity"))]);
        let builder = reqwest::Client::builder()
            .connect_timeout(timeouts.connect)
            .default_headers(plain)
            // A redirected POST becomes a GET, and its key would go to a host that nobody has approved.
            .redirect(reqwest::redirect::Policy::none());
        // On this machine, a proxy is not wanted.
        let is_here = is_this_machine(url.host_str().unwrap_or_default());
        let builder = if is_here { builder.no_proxy() } else { builder };
        let builder = if url.scheme() == "http" {
            // Plain HTTP needs no certificates, so a machine without any works too.
            builder.tls_certs_only([])
        } else {
            builder
        };
        // If another part of the process has already installed a provider, that one is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Ok(Self { client: builder.build()?, timeouts })
    }

    /// Returns the HTTP client, which every request uses.
    pub(crate) fn client(&self) -> &reqwest::Client {
        &self.client
    }

    /// Waits for the head of the response to `sending`. Returns the events that follow.
    pub(crate) async fn open(
        &self,
        sending: impl Future<Output = Result<Response, ModelFault>>,
    ) -> Result<Events, ModelFault> {
        let first_event = self.timeouts.first_event;
        let first_event_by = Instant::now() + first_event;
        let sent = timeout_at(first_event_by, sending).await;
        let response = sent.map_err(|_| silent(first_event, "before the answer started"))??;
        // The content type is ignored, because streams and errors come under any type.
        if !response.status().is_success() {
            return Err(refused(response).await);
        }
        Ok(Events::new(response, first_event_by, self.timeouts))
    }

    /// Returns the body of a list of models.
    pub(crate) async fn list(&self, url: String, headers: HeaderMap) -> Result<Vec<u8>, ModelFault> {
        let exchange = async {
            let response = self.client.get(url).headers(headers).send().await.map_err(|error| lost(&error))?;
            let status = response.status();
            if !status.is_success() {
                return Err(refused(response).await);
            }
            read(response, LIST_BYTES_MAX)
                .await
                .map_err(|_| fault(ErrorCode::UpstreamUnreachable, "the connection broke while reading the model list"))
        };
        timeout(SHORT_TIMEOUT, exchange).await.map_err(|_| silent(SHORT_TIMEOUT, "while listing models"))?
    }
}

async fn refused(response: Response) -> ModelFault {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    // Without a complete body, only the status can be classified.
    let body = timeout(SHORT_TIMEOUT, read(response, ERROR_BYTES_MAX)).await.ok().and_then(Result::ok);
    match body {
        Some(body) => classify(Some(status), &headers, Timestamp::now(), &body),
        None => classify(Some(status), &headers, Timestamp::now(), b"{}"),
    }
}

/// Reads a body to its end, or to `bytes_max`.
async fn read(mut response: Response, bytes_max: usize) -> Result<Vec<u8>, reqwest::Error> {
    let mut read = Vec::new();
    while read.len() < bytes_max
        && let Some(bytes) = response.chunk().await?
    {
        read.extend_from_slice(&bytes);
    }
    read.truncate(bytes_max);
    Ok(read)
}

/// Returns the fault for a server that sent nothing for this long.
pub(super) fn silent(limit: Duration, place: &str) -> ModelFault {
    fault(ErrorCode::UpstreamTimeout, &format!("nothing for {} s {place}", limit.as_secs_f32()))
}

/// Returns the fault for a request without a response. The error's own text contains the address, so only its kind is
/// reported.
pub(crate) fn lost(error: &reqwest::Error) -> ModelFault {
    let mut kind = None;
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind).or(kind);
        source = error.source();
    }
    let stage = if error.is_connect() { "no connection" } else { "the connection broke before the answer started" };
    let note = match kind {
        Some(kind) if kind != std::io::ErrorKind::Other => format!("{stage}: {kind}"),
        _ if error.is_timeout() => format!("{stage}: timed out"),
        _ => stage.to_owned(),
    };
    fault(ErrorCode::UpstreamUnreachable, &note)
}
