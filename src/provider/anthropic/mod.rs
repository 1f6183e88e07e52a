//! Anthropic's Messages API, always streaming.
//!
//! `request` writes the request, and `stream` reads its events. `models` reads what the models are able to do. The
//! rules about what a server refuses are those of all providers (`provider/adapt`).

#[cfg(test)]
mod fault_tests;
mod models;
mod options;
mod request;
#[cfg(test)]
mod request_tests;
mod stream;
#[cfg(test)]
mod stream_tests;

pub use options::{ANTHROPIC_BASE_URL, AnthropicOptions};

use super::{
    AnswerFuture, DeltaSink, ListedModel, ModelsFuture, Provider, Slots,
    adapt::{Attempt, Form, Plan, ResultImages, Server, no_compaction},
    fault::fault,
    retry::{Failed, is_transient},
    upstream::{Address, Events, InvalidOptions, Reading, Timeouts, Transport, key_header, lost},
};
use crate::{
    config::CacheTtl,
    core::{
        model::{Answer, ModelFault, ModelRequest},
        need::Needs,
        prewarm::CacheTerms,
    },
    trace,
};
use models::Limits;
pub(crate) use models::is_dated;
use options::VARIABLES;
use request::MessagesRequest;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reseed_protocol::ErrorCode;
use serde_json::Value;
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use stream::MessagesStream;
use tokio::time::Instant;

/// The host that is known to compare requests.
const ANTHROPIC_HOST: &str = "api.anthropic.com";
/// The part of the API that compares requests.
const DIAGNOSIS_BETA: &str = "cache-diagnosis-2026-04-07";
/// The version of the API.
const VERSION: &str = "2023-06-01";
/// The time after which the models are listed again, if a fault may be over.
const LIST_AGAIN: Duration = Duration::from_secs(60);

/// A provider for one server.
#[derive(Debug)]
pub struct Anthropic {
    transport: Transport,
    address: Address,
    headers: HeaderMap,
    cache_ttl: CacheTtl,
    server: Server,
    listed: Mutex<Listed>,
}

/// What is known from the list of models.
#[derive(Debug, Default)]
struct Listed {
    /// The models' limits, by name; `None` until the list was read, or the server has none.
    limits: Option<Vec<(String, Limits)>>,
    /// The time of the next try after a fault.
    again_at: Option<Instant>,
}

impl Anthropic {
    /// Creates the provider. Nothing is sent yet.
    ///
    /// # Errors
    /// The invalid option.
    pub fn new(options: AnthropicOptions) -> Result<Self, InvalidOptions> {
        let base_url = options.base_url.trim().trim_end_matches('/');
        let address = Address::parse(base_url.strip_suffix("/v1").unwrap_or(base_url), VARIABLES)?;
        let AnthropicOptions { connect_timeout, first_event_timeout, idle_timeout, cache_ttl, retry, prefix, .. } =
            options;
        let timeouts = Timeouts { connect: connect_timeout, first_event: first_event_timeout, idle: idle_timeout };
        let transport = Transport::new(address.url(), timeouts).map_err(InvalidOptions::HttpClient)?;
        let key = key_header(HeaderName::from_static("x-api-key"), "", options.api_key.as_ref(), VARIABLES)?;
        let version = (HeaderName::from_static("anthropic-version"), HeaderValue::from_static(VERSION));
        let headers = HeaderMap::from_iter(key.into_iter().chain([version]));
        let at_anthropic = address.host() == ANTHROPIC_HOST;
        let server = Server::new(&address, retry, prefix)
            .diagnosing(options.diagnostics, if at_anthropic { |_| true } else { |_| false });
        Ok(Self { transport, address, headers, cache_ttl, server, listed: Mutex::default() })
    }

    fn plan<'a>(&'a self, request: &'a ModelRequest, form: &Form) -> Plan<'a> {
        let mut plan = self.server.plan(request, form, ResultImages::Inside, Some(stream::API));
        plan.ids.make_plain();
        plan
    }

    fn listed(&self) -> MutexGuard<'_, Listed> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists the models, and remembers their limits.
    async fn list(&self) -> Result<Vec<ListedModel>, ModelFault> {
        let url = format!("{}/v1/models?limit=1000", self.address.base_url());
        let listed = self.transport.list(url, self.headers.clone()).await.and_then(|body| {
            let malformed = || fault(ErrorCode::UpstreamMalformed, "/v1/models did not return a model list");
            models::read(&body).ok_or_else(malformed)
        });
        let (models, limits): (Vec<ListedModel>, Vec<Limits>) = listed.iter().flatten().cloned().unzip();
        let named: Vec<_> = models.iter().map(|model| model.id.clone()).zip(limits).collect();
        let mut known = self.listed();
        match &listed {
            Err(fault) if is_transient(fault.code) || fault.code == ErrorCode::UpstreamTimeout => {
                known.again_at = Some(Instant::now() + LIST_AGAIN);
            }
            Err(_) if known.limits.is_some() => {}
            _ => known.limits = Some(named),
        }
        listed.map(|_| models)
    }

    /// Asks for the list if nobody has done so. A server without one costs this once, and one with a passing fault once
    /// a minute.
    async fn learn_limits(&self) {
        let is_due = {
            let known = self.listed();
            known.limits.is_none() && known.again_at.is_none_or(|at| at <= Instant::now())
        };
        if is_due && let Err(fault) = self.list().await {
            tracing::info!("the limits of models are unknown: {}", fault.message);
        }
    }

    /// Returns what is known about a model's limits.
    fn limits(&self, model: &str) -> Limits {
        let known = self.listed();
        let limits = &known.limits;
        limits
            .iter()
            .flatten()
            .find(|(listed, _)| listed == model || is_dated(listed, model))
            .map(|(_, limits)| *limits)
            .unwrap_or_default()
    }

    /// Returns the bytes of a request. `begun` has the blocks of a paused answer.
    fn bytes(&self, plan: &Plan<'_>, begun: &[Value]) -> Vec<u8> {
        let body = MessagesRequest::new(plan, self.limits(plan.model), self.cache_ttl, begun);
        serde_json::to_vec(&body).unwrap_or_default()
    }

    /// Sends a request that uses these further parts of the API, and waits for the head of the response.
    async fn open(&self, body: Vec<u8>, betas: &[&str]) -> Result<Events, ModelFault> {
        let sending = async {
            let url = format!("{}/v1/messages", self.address.base_url());
            let mut headers = self.headers.clone();
            trace::add_headers(trace::current(), &mut headers);
            let request = self.transport.client().post(url).headers(headers);
            let mut request = request.header(CONTENT_TYPE, "application/json").header(ACCEPT, "text/event-stream");
            if !betas.is_empty() {
                request = request.header("anthropic-beta", betas.join(","));
            }
            request.body(body).send().await.map_err(|error| lost(&error))
        };
        self.transport.open(sending).await
    }
}

impl Attempt for Anthropic {
    fn body(&self, request: &ModelRequest, form: &Form) -> Vec<u8> {
        self.bytes(&self.plan(request, form), &[])
    }

    async fn attempt(
        &self,
        request: &ModelRequest,
        form: &Form,
        sink: &mut dyn DeltaSink,
    ) -> Result<(Answer, Needs), Failed> {
        self.learn_limits().await;
        let plan = self.plan(request, form);
        let comparison = plan.comparison();
        let is_compacted = request.compacts.is_some();
        if is_compacted && self.limits(plan.model).lacks_compaction {
            return Err(Failed { fault: no_compaction(), begun: false });
        }
        let fills_cache = request.only_fills_cache();
        if fills_cache && MessagesRequest::new(&plan, self.limits(plan.model), self.cache_ttl, &[]).has_budget() {
            let message = "a model that thinks within a budget fills its cache only with an answer";
            return Err(Failed { fault: fault(ErrorCode::UpstreamRejected, message), begun: false });
        }
        let betas: Vec<&str> =
            comparison.map(|_| DIAGNOSIS_BETA).into_iter().chain(MessagesRequest::betas(&plan)).collect();
        let is_compared = comparison.is_some_and(|comparison| comparison.with.is_some());
        let mut reading = Reading::new(MessagesStream::new(is_compared), sink).empty_if(fills_cache);
        loop {
            let body = self.bytes(&plan, reading.decoder.begun());
            let events = self.open(body, &betas).await.map_err(|fault| reading.failed(fault))?;
            reading.read(events).await?;
            if is_compacted {
                let answer = reading.decoder.compaction().map_err(|fault| reading.failed(fault))?;
                return Ok((answer, plan.shown()));
            }
            if !reading.decoder.goes_on() {
                return reading.finish().map(|answer| (answer, plan.shown()));
            }
        }
    }
}

impl Provider for Anthropic {
    fn name(&self) -> &'static str {
        "anthropic"
    }

    fn answer<'a>(&'a self, request: &'a ModelRequest, sink: &'a mut dyn DeltaSink) -> AnswerFuture<'a> {
        Box::pin(self.server.answer(self, request, sink))
    }

    /// Lists the models. Their output limits apply to the requests that follow.
    fn models(&self) -> ModelsFuture<'_> {
        Box::pin(self.list())
    }

    fn cache(&self, _model: &str) -> Option<CacheTerms> {
        let for_an_hour = self.cache_ttl == CacheTtl::Hour;
        let lifetime_ms = if for_an_hour { 60 * 60_000 } else { 5 * 60_000 };
        Some(CacheTerms { lifetime_ms, for_an_hour })
    }

    fn slots(&self) -> Slots {
        Slots::Several
    }
}
