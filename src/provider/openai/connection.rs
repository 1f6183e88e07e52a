//! Sends requests to one server.
//!
//! async-openai builds the request (address, headers, body) and passes it to [`send`], which here is its whole HTTP
//! layer. So there are no retries, and bodies are not parsed twice. [`Events`] reads the body of the answer instead of
//! async-openai's own reader. That reader queues events without a bound, takes the end of a broken stream for `[DONE]`,
//! and logs bodies that it cannot read.

use super::options::{Api, OPENAI_HOST, OpenAiOptions, VARIABLES};
use crate::{
    core::model::ModelFault,
    provider::{
        fault::fault,
        upstream::{Address, Events, InvalidOptions, Timeouts, Transport, key_header, lost},
    },
    trace,
};
use async_openai::{Client, config::Config, error::OpenAIError, middleware::HttpRequestFactory};
use reqwest::{
    Response,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue},
};
use reseed_protocol::ErrorCode;
use secrecy::SecretString;
use serde::{Serialize, de::IgnoredAny};

/// The connection to one server.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    transport: Transport,
    client: Client<Endpoint>,
}

impl Connection {
    pub(super) fn new(options: &OpenAiOptions) -> Result<Self, InvalidOptions> {
        let endpoint = Endpoint::new(options)?;
        let &OpenAiOptions { connect_timeout, first_event_timeout, idle_timeout, .. } = options;
        let timeouts = Timeouts { connect: connect_timeout, first_event: first_event_timeout, idle: idle_timeout };
        let transport = Transport::new(endpoint.address.url(), timeouts).map_err(InvalidOptions::HttpClient)?;
        let http = transport.client().clone();
        let sender = http.clone();
        let service = tower::service_fn(move |request| send(sender.clone(), request));
        let client = Client::build(http, endpoint).with_http_service(service);
        Ok(Self { transport, client })
    }

    pub(super) fn at_openai(&self) -> bool {
        self.client.config().at_openai
    }

    pub(super) fn address(&self) -> &Address {
        &self.client.config().address
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

    /// Asks for a compaction and waits for the head of the response.
    pub(super) async fn compact(&self, body: &(impl Serialize + Sync)) -> Result<Events, ModelFault> {
        let config = self.client.config();
        let sending = async {
            let mut headers = config.headers();
            trace::add_headers(trace::current(), &mut headers);
            let request = self.transport.client().post(config.url("/responses/compact")).headers(headers);
            let request = request.header(CONTENT_TYPE, "application/json").header(ACCEPT, "application/json");
            let bytes = serde_json::to_vec(body).unwrap_or_default();
            request.body(bytes).send().await.map_err(|error| lost(&error))
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
    address: Address,
    headers: HeaderMap,
    api_key: SecretString,
    at_openai: bool,
}

impl Endpoint {
    fn new(options: &OpenAiOptions) -> Result<Self, InvalidOptions> {
        let address = Address::parse(&options.base_url, VARIABLES)?;
        let bearer = key_header(AUTHORIZATION, "Bearer ", options.api_key.as_ref(), VARIABLES)?;
        let headers = HeaderMap::from_iter(bearer);
        let at_openai = address.host() == OPENAI_HOST;
        Ok(Self { address, headers, api_key: options.api_key.clone().unwrap_or_default(), at_openai })
    }
}

impl Config for Endpoint {
    fn headers(&self) -> HeaderMap {
        self.headers.clone()
    }
    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.address.base_url())
    }
    fn query(&self) -> Vec<(&str, &str)> {
        Vec::new()
    }
    fn api_base(&self) -> &str {
        self.address.base_url()
    }
    fn api_key(&self) -> &SecretString {
        &self.api_key
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
    trace::add_headers(trace::current(), request.headers_mut());
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
