//! Sends a request and returns the events of its answer as they arrive.
//!
//! async-openai builds the request (address, headers, body) and passes it to [`send`], which is its whole HTTP layer
//! here: no retries, no second reading of bodies. [`Events`] reads the body of the answer, not async-openai's own
//! reader, which queues events without bound, takes the end of a broken stream for `[DONE]`, and logs bodies that it
//! cannot read.
//!
//! Invariant: everything runs in the caller's future. Dropping it closes the connection, which makes a server stop.

use super::{
    options::{Api, InvalidOptions, OPENAI_HOST, OpenAiOptions},
    sse::{EVENT_BYTES_MAX, Sse, TooLarge},
};
use crate::{
    core::model::{FaultOrigin, ModelFault},
    provider::fault::{classify, fault, request_id},
};
use async_openai::{Client, config::Config, error::OpenAIError, middleware::HttpRequestFactory};
use jiff::Timestamp;
use reqwest::{
    Response, Url,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue},
};
use reseed_protocol::ErrorCode;
use secrecy::{ExposeSecret, SecretString};
use serde::{Serialize, de::IgnoredAny};
use std::{net::IpAddr, time::Duration};
use tokio::time::{Instant, timeout, timeout_at};

/// Most bytes read of an error's body: errors are short, and longer bodies are HTML pages.
const ERROR_BYTES_MAX: usize = 64 * 1024;
/// Most bytes of a model list. OpenRouter's, the largest known, has half a MiB.
const LIST_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most bytes of one answer's stream. The longest known answers are 128,000 events of a few hundred bytes; a server
/// that sends more will not end.
const STREAM_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Longest time for a model list, and for the body of an error: neither needs inference.
const SHORT_TIMEOUT: Duration = Duration::from_secs(15);
/// The time limit for what may follow a complete answer (usage, `[DONE]`).
const TAIL_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit for a finished body to end, so that its connection can be reused.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The connection to one server.
#[derive(Debug, Clone)]
pub(super) struct Transport {
    http: reqwest::Client,
    client: Client<Endpoint>,
    first_event_timeout: Duration,
    idle_timeout: Duration,
}

/// The server's address and the headers of every request.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    base_url: String,
    headers: HeaderMap,
    api_key: SecretString,
    at_openai: bool,
}

impl Endpoint {
    fn new(options: &OpenAiOptions) -> Result<(Self, Url), InvalidOptions> {
        let base_url = options.base_url.trim().trim_end_matches('/').to_owned();
        let invalid = |reason| InvalidOptions::BaseUrl { value: base_url.clone(), reason };
        let url = match Url::parse(&base_url) {
            Ok(url) if !url.username().is_empty() || url.password().is_some() => {
                return Err(InvalidOptions::BaseUrlWithPassword);
            }
            Ok(url) => url,
            Err(_) if base_url.contains('@') => return Err(InvalidOptions::BaseUrlWithPassword),
            Err(_) => return Err(invalid("it must look like https://host/v1")),
        };
        if !matches!(url.scheme(), "http" | "https") {
            return Err(invalid("it must begin with http:// or https://"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(invalid("it must not have a query or fragment"));
        }
        let api_key = options.api_key.clone().unwrap_or_default();
        let mut headers = HeaderMap::new();
        if !api_key.expose_secret().is_empty() {
            let bearer = format!("Bearer {}", api_key.expose_secret());
            let mut value = HeaderValue::from_str(&bearer).map_err(|_| InvalidOptions::ApiKey)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let at_openai = url.host_str() == Some(OPENAI_HOST);
        Ok((Self { base_url, headers, api_key, at_openai }, url))
    }
}

impl Config for Endpoint {
    fn headers(&self) -> HeaderMap {
        self.headers.clone()
    }
    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base_url)
    }
    fn query(&self) -> Vec<(&str, &str)> {
        Vec::new()
    }
    fn api_base(&self) -> &str {
        &self.base_url
    }
    fn api_key(&self) -> &SecretString {
        &self.api_key
    }
}

/// The error type of [`send`]. It travels as an error, because async-openai passes errors through untouched.
#[derive(Debug, thiserror::Error)]
enum Sent {
    #[error("answered")]
    Answered(Response),
    #[error("not answered")]
    Lost(#[source] reqwest::Error),
}

/// Sends one request built by async-openai.
async fn send(http: reqwest::Client, request: HttpRequestFactory) -> Result<Response, OpenAIError> {
    let mut request = request.build().await?;
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    let sent = match http.execute(request).await {
        Ok(response) => Sent::Answered(response),
        Err(error) => Sent::Lost(error),
    };
    Err(OpenAIError::Boxed(Box::new(sent)))
}

impl Transport {
    pub(super) fn new(options: &OpenAiOptions) -> Result<Self, InvalidOptions> {
        let (endpoint, url) = Endpoint::new(options)?;
        let builder = reqwest::Client::builder()
            .connect_timeout(options.connect_timeout)
            // A redirected POST becomes a GET, and its key would go to a host that nobody chose.
            .redirect(reqwest::redirect::Policy::none());
        let builder = if is_loopback(&url) { builder.no_proxy() } else { builder };
        let builder = if url.scheme() == "http" {
            // Without TLS there is nothing to trust, and a machine without certificates works too.
            builder.tls_certs_only([])
        } else {
            builder
        };
        // If another part of the process has already installed one, that one is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = builder.build().map_err(InvalidOptions::HttpClient)?;
        let sender = http.clone();
        let service = tower::service_fn(move |request| send(sender.clone(), request));
        let client = Client::build(http.clone(), endpoint).with_http_service(service);
        let &OpenAiOptions { first_event_timeout, idle_timeout, .. } = options;
        Ok(Self { http, client, first_event_timeout, idle_timeout })
    }

    pub(super) fn at_openai(&self) -> bool {
        self.client.config().at_openai
    }

    pub(super) fn base_url(&self) -> &str {
        self.client.config().api_base()
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn open(&self, api: Api, body: &(impl Serialize + Sync)) -> Result<Events, ModelFault> {
        let first_event_by = Instant::now() + self.first_event_timeout;
        let sent = timeout_at(first_event_by, async {
            match api {
                Api::Chat => self.client.chat().create_stream_byot::<_, IgnoredAny>(body).await.err(),
                Api::Responses => self.client.responses().create_stream_byot::<_, IgnoredAny>(body).await.err(),
            }
        });
        let sent = sent.await.map_err(|_| silent(self.first_event_timeout, "before the answer started"))?;
        let response = self.checked(taken(sent)?).await?;
        Ok(Events {
            response,
            sse: Sse::default(),
            first_event_timeout: self.first_event_timeout,
            idle_timeout: self.idle_timeout,
            bytes: 0,
            begun: false,
            ended: false,
            event_by: first_event_by,
            byte_by: first_event_by,
        })
    }

    /// Returns the body of the model list.
    pub(super) async fn list(&self) -> Result<Vec<u8>, ModelFault> {
        let config = self.client.config();
        let request = self.http.get(config.url("/models")).headers(config.headers());
        let exchange = async {
            let response = request.send().await.map_err(|error| lost(&error))?;
            let status = response.status();
            if !status.is_success() {
                return Err(self.refused(response).await);
            }
            read(response, LIST_BYTES_MAX)
                .await
                .map_err(|_| fault(ErrorCode::UpstreamUnreachable, "the connection broke while reading the model list"))
        };
        timeout(SHORT_TIMEOUT, exchange).await.map_err(|_| silent(SHORT_TIMEOUT, "while listing models"))?
    }

    /// Accepts a response that can be an event stream.
    async fn checked(&self, response: Response) -> Result<Response, ModelFault> {
        if !response.status().is_success() {
            return Err(self.refused(response).await);
        }
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.starts_with("application/json") {
            // Some servers report errors with status 200. An answer that is not streamed is not accepted.
            let headers = response.headers().clone();
            let body = timeout(SHORT_TIMEOUT, read(response, ERROR_BYTES_MAX)).await.ok().and_then(Result::ok);
            let body = body.unwrap_or_default();
            let error = serde_json::from_slice::<serde_json::Value>(&body).is_ok_and(|body| !body["error"].is_null());
            return Err(if error {
                let mut fault = classify(None, &headers, Timestamp::now(), &body);
                fault.origin.http_status = fault.origin.http_status.or(Some(200));
                fault
            } else {
                fault(ErrorCode::UpstreamMalformed, "HTTP 200 with a JSON value instead of a stream")
            });
        }
        if kind.starts_with("text/html") {
            return Err(fault(ErrorCode::UpstreamMalformed, "HTTP 200 with a web page instead of a stream"));
        }
        Ok(response)
    }

    async fn refused(&self, response: Response) -> ModelFault {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        // Without a body, whether truncated or missing, only the status can be classified.
        let body = timeout(SHORT_TIMEOUT, read(response, ERROR_BYTES_MAX)).await.ok().and_then(Result::ok);
        match body {
            Some(body) => classify(Some(status), &headers, Timestamp::now(), &body),
            None => classify(Some(status), &headers, Timestamp::now(), b"{}"),
        }
    }
}

/// Extracts the response from the error that carries it.
fn taken(sent: Option<OpenAIError>) -> Result<Response, ModelFault> {
    match sent {
        Some(OpenAIError::Boxed(sent)) => match sent.downcast::<Sent>().map(|sent| *sent) {
            Ok(Sent::Answered(response)) => Ok(response),
            Ok(Sent::Lost(error)) => Err(lost(&error)),
            Err(_) => Err(fault(ErrorCode::UpstreamError, "the request was not sent")),
        },
        _ => Err(fault(ErrorCode::UpstreamRejected, "the request could not be built")),
    }
}

/// The events of one answer.
#[derive(Debug)]
pub(super) struct Events {
    response: Response,
    sse: Sse,
    first_event_timeout: Duration,
    idle_timeout: Duration,
    bytes: usize,
    begun: bool,
    ended: bool,
    /// The deadline of the next event.
    event_by: Instant,
    /// The deadline of the next byte.
    byte_by: Instant,
}

impl Events {
    /// Returns the status and id of this response, for the log of a fault in the middle of it.
    pub(super) fn origin(&self) -> FaultOrigin {
        let http_status = Some(self.response.status().as_u16());
        FaultOrigin { http_status, error_type: None, request_id: request_id(self.response.headers()) }
    }

    /// Returns true if any event has arrived.
    pub(super) fn begun(&self) -> bool {
        self.begun
    }

    /// Waits for the next event; returns `false` if the body ended properly.
    ///
    /// Two limits apply: any byte, even of a comment, is a sign of life and extends the idle limit, but comments alone
    /// do not keep an answer alive beyond the time limit of a first event. With `whole`, the answer is complete, and
    /// the wait for what may follow is short.
    pub(super) async fn next(&mut self, whole: bool) -> Result<bool, ModelFault> {
        loop {
            if self.sse.advance() || (self.ended && self.sse.end()) {
                self.begun = true;
                let now = Instant::now();
                self.event_by = now + self.first_event_timeout;
                self.byte_by = now + self.idle_timeout;
                return Ok(true);
            }
            if self.ended {
                return Ok(false);
            }
            let limit = self.event_by.min(self.byte_by);
            let limit = if whole { limit.min(Instant::now() + TAIL_TIMEOUT) } else { limit };
            match timeout_at(limit, self.response.chunk()).await {
                Err(_) if self.begun => return Err(silent(self.idle_timeout, "in the middle of the answer")),
                Err(_) => return Err(silent(self.first_event_timeout, "before the answer started")),
                Ok(Ok(Some(bytes))) => {
                    if self.begun {
                        self.byte_by = Instant::now() + self.idle_timeout;
                    }
                    self.bytes += bytes.len();
                    if self.bytes > STREAM_BYTES_MAX {
                        return Err(fault(ErrorCode::UpstreamMalformed, "the stream does not end"));
                    }
                    self.sse.push(&bytes).map_err(|TooLarge| {
                        let note = format!("an event exceeds {EVENT_BYTES_MAX} bytes");
                        fault(ErrorCode::UpstreamMalformed, &note)
                    })?;
                }
                Ok(Ok(None)) => self.ended = true,
                Ok(Err(_)) if self.begun => return Err(fault(ErrorCode::UpstreamTruncated, "the connection broke")),
                Ok(Err(_)) => {
                    return Err(fault(
                        ErrorCode::UpstreamUnreachable,
                        "the connection broke before the answer started",
                    ));
                }
            }
        }
    }

    /// Returns the data of the event that [`Events::next`] waited for.
    pub(super) fn data(&self) -> Result<&str, ModelFault> {
        std::str::from_utf8(self.sse.data()).map_err(|_| fault(ErrorCode::UpstreamMalformed, "an event is not UTF-8"))
    }

    /// Reads the rest of the body in the background, so that its connection can be reused. The answer is complete; a
    /// server that still does not end is disconnected.
    pub(super) fn finish(mut self) {
        if !self.ended {
            tokio::spawn(timeout(DRAIN_TIMEOUT, async move { while let Ok(Some(_)) = self.response.chunk().await {} }));
        }
    }
}

/// Reads a body to its end, or to `bytes_max`.
async fn read(mut response: Response, bytes_max: usize) -> Result<Vec<u8>, reqwest::Error> {
    let mut body = Vec::new();
    while body.len() < bytes_max
        && let Some(bytes) = response.chunk().await?
    {
        body.extend_from_slice(&bytes);
    }
    body.truncate(bytes_max);
    Ok(body)
}

fn silent(limit: Duration, place: &str) -> ModelFault {
    fault(ErrorCode::UpstreamTimeout, &format!("nothing for {} s {place}", limit.as_secs_f32()))
}

/// Returns the fault for a request without a response. The error's own text contains the address, so only its kind is
/// reported.
fn lost(error: &reqwest::Error) -> ModelFault {
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

/// Returns true if an address is on this machine, where no proxy is wanted.
fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
