//! Sends requests to one server.
//!
//! async-openai builds the request (address, headers, body) and passes it to [`send`], which here is its whole HTTP
//! layer. So there are no retries, and bodies are not parsed twice. [`Events`] reads the body of the answer instead of
//! async-openai's own reader. That reader queues events without a bound, takes the end of a broken stream for `[DONE]`,
//! and logs bodies that it cannot read.

use super::options::{Api, InvalidOptions, OPENAI_HOST, OpenAiOptions};
use crate::{
    core::model::ModelFault,
    provider::{
        fault::fault,
        upstream::{Events, Timeouts, Transport, lost},
    },
};
use async_openai::{Client, config::Config, error::OpenAIError, middleware::HttpRequestFactory};
use reqwest::{
    Response, Url,
    header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue},
};
use reseed_protocol::ErrorCode;
use secrecy::{ExposeSecret, SecretString};
use serde::{Serialize, de::IgnoredAny};

/// The connection to one server.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    transport: Transport,
    client: Client<Endpoint>,
}

impl Connection {
    pub(super) fn new(options: &OpenAiOptions) -> Result<Self, InvalidOptions> {
        let (endpoint, url) = Endpoint::new(options)?;
        let &OpenAiOptions { connect_timeout, first_event_timeout, idle_timeout, .. } = options;
        let timeouts = Timeouts { connect: connect_timeout, first_event: first_event_timeout, idle: idle_timeout };
        let transport = Transport::new(&url, timeouts).map_err(InvalidOptions::HttpClient)?;
        let http = transport.client().clone();
        let sender = http.clone();
        let service = tower::service_fn(move |request| send(sender.clone(), request));
        let client = Client::build(http, endpoint).with_http_service(service);
        Ok(Self { transport, client })
    }

    pub(super) fn at_openai(&self) -> bool {
        self.client.config().at_openai
    }

    pub(super) fn base_url(&self) -> &str {
        self.client.config().api_base()
    }

    pub(super) fn host(&self) -> &str {
        &self.client.config().host
    }

    /// Sends a request and waits for the head of the response.
    pub(super) async fn open(&self, api: Api, body: &(impl Serialize + Sync)) -> Result<Events, ModelFault> {
        let sending = async {
            let sent = match api {
                Api::Chat => self.client.chat().create_stream_byot::<_, IgnoredAny>(body).await.err(),
                Api::Responses => self.client.responses().create_stream_byot::<_, IgnoredAny>(body).await.err(),
            };
            taken(sent)
        };
        self.transport.open(sending).await
    }

    /// Returns the properties that llama.cpp's server reports, at an address beside `/v1`.
    pub(super) async fn props(&self) -> Result<Vec<u8>, ModelFault> {
        let config = self.client.config();
        let root = config.api_base().trim_end_matches("/v1");
        self.transport.list(format!("{root}/props"), config.headers()).await
    }

    /// Returns the body of the model list.
    pub(super) async fn list(&self) -> Result<Vec<u8>, ModelFault> {
        let config = self.client.config();
        self.transport.list(config.url("/models"), config.headers()).await
    }
}

/// The server's address and the headers of every request.
#[derive(Debug, Clone)]
struct Endpoint {
    base_url: String,
    headers: HeaderMap,
    api_key: SecretString,
    host: String,
    at_openai: bool,
}

impl Endpoint {
    fn new(options: &OpenAiOptions) -> Result<(Self, Url), InvalidOptions> {
        let base_url = options.base_url.trim().trim_end_matches('/').to_owned();
        let url = parse_address(&base_url)?;
        let api_key = options.api_key.clone().unwrap_or_default();
        let mut headers = HeaderMap::new();
        if !api_key.expose_secret().is_empty() {
            let bearer = format!("Bearer {}", api_key.expose_secret());
            let mut value = HeaderValue::from_str(&bearer).map_err(|_| InvalidOptions::ApiKey)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let host = url.host_str().unwrap_or_default().to_owned();
        let at_openai = host == OPENAI_HOST;
        Ok((Self { base_url, headers, api_key, host, at_openai }, url))
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

/// Parses the address of an API.
fn parse_address(text: &str) -> Result<Url, InvalidOptions> {
    let malformed = |reason| Err(InvalidOptions::BaseUrl { value: text.to_owned(), reason });
    match Url::parse(text) {
        Ok(url) if !url.username().is_empty() || url.password().is_some() => Err(InvalidOptions::BaseUrlWithPassword),
        Err(_) if text.contains('@') => Err(InvalidOptions::BaseUrlWithPassword),
        Err(_) => malformed("it must look like https://host/v1"),
        Ok(url) if !matches!(url.scheme(), "http" | "https") => malformed("it must begin with http:// or https://"),
        Ok(url) if url.query().or(url.fragment()).is_some() => malformed("it must not have a query or fragment"),
        Ok(url) => Ok(url),
    }
}

/// The error type of [`send`]. The response travels as an error, because async-openai passes errors through unchanged.
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
