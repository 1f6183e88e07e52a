//! Any OpenAI-compatible server, through the Responses API or Chat Completions, always streaming.
//!
//! `chat_request` or `responses_request` writes the request, `connection` sends it, and `chat_stream` or
//! `responses_stream` reads its events. Code shared with other APIs is in `provider/upstream`. Both dialects are read
//! leniently: no field is required that some server omits, and unknown events are skipped.

mod answer_form;
mod chat_calls;
mod chat_request;
mod chat_stream;
mod compact;
mod connection;
pub(super) mod models;
mod options;
mod parts;
#[cfg(test)]
mod request_tests;
mod responses_request;
mod responses_stream;
#[cfg(test)]
mod shape_tests;
#[cfg(test)]
pub(super) mod stream_tests;

pub use super::upstream::{InvalidOptions, idle_timeout};
pub use crate::config::ApiChoice;
pub use options::{Api, OPENAI_BASE_URL, OpenAiOptions};

use super::{
    AnswerFuture, DeltaSink, ModelsFuture, Provider, Slots,
    adapt::{Attempt, Form, Plan, ResultImages, Server, no_compaction},
    fault::fault,
    retry::Failed,
    upstream::{Decoder, Reading},
};
use crate::core::{
    model::{Answer, ModelRequest},
    need::Needs,
    prewarm::CacheTerms,
};
use chat_request::ChatRequest;
use chat_stream::ChatStream;
use compact::{CompactRequest, CompactStream};
use connection::Connection;
use options::takes_cache_options;
use reseed_protocol::ErrorCode;
use responses_request::ResponsesRequest;
use responses_stream::ResponsesStream;
use serde::Serialize;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// The time limit for llama.cpp's server to report its properties. It answers at once or not at all.
const PROPS_TIME: Duration = Duration::from_secs(2);

/// A provider for one server.
#[derive(Debug)]
pub struct OpenAi {
    connection: Connection,
    api: Api,
    server: Server,
    /// How many requests the server works on at a time; 0 if it has not said so.
    slots: AtomicU64,
}

impl OpenAi {
    /// Creates the provider. Nothing is sent yet.
    ///
    /// # Errors
    /// The invalid option.
    pub fn new(options: OpenAiOptions) -> Result<Self, InvalidOptions> {
        let connection = Connection::new(&options)?;
        let api = options.api.at(connection.at_openai());
        let at_openai = connection.at_openai();
        let server = Server::new(connection.address(), options.retry, options.prefix)
            .diagnosing(options.diagnostics, if at_openai { takes_cache_options } else { |_| false });
        Ok(Self { connection, api, server, slots: AtomicU64::new(0) })
    }

    /// Returns the API it speaks.
    #[must_use]
    pub fn api(&self) -> Api {
        self.api
    }

    /// Returns the server's address, without a trailing slash.
    #[must_use]
    pub fn base_url(&self) -> &str {
        self.connection.address().base_url()
    }

    fn plan<'a>(&'a self, request: &'a ModelRequest, form: &Form) -> Plan<'a> {
        match self.api {
            Api::Chat => self.server.plan(request, form, ResultImages::After, None),
            Api::Responses => self.server.plan(request, form, ResultImages::Inside, Some(compact::API)),
        }
    }

    async fn exchange(
        &self,
        body: &(impl Serialize + Sync),
        decoder: impl Decoder,
        may_be_empty: bool,
        sink: &mut dyn DeltaSink,
    ) -> Result<Answer, Failed> {
        let events = self.connection.open(self.api, body).await.map_err(|fault| Failed { fault, begun: false })?;
        let mut reading = Reading::new(decoder, sink).empty_if(may_be_empty);
        reading.read(events).await?;
        reading.finish()
    }

    /// Lets the server compact a conversation.
    async fn compact(&self, body: &CompactRequest<'_>, sink: &mut dyn DeltaSink) -> Result<Answer, Failed> {
        let events = self.connection.compact(body).await.map_err(|fault| Failed { fault, begun: false })?;
        let mut reading = Reading::new(CompactStream::default(), sink);
        reading.read(events).await?;
        reading.decoder.compaction().map_err(|fault| reading.failed(fault))
    }
}

impl Attempt for OpenAi {
    fn body(&self, request: &ModelRequest, form: &Form) -> Vec<u8> {
        let plan = self.plan(request, form);
        let body = match self.api {
            Api::Chat => serde_json::to_vec(&ChatRequest::new(&plan)),
            Api::Responses => serde_json::to_vec(&ResponsesRequest::new(&plan, self.connection.at_openai())),
        };
        body.unwrap_or_default()
    }

    async fn attempt(
        &self,
        request: &ModelRequest,
        form: &Form,
        sink: &mut dyn DeltaSink,
    ) -> Result<(Answer, Needs), Failed> {
        let plan = self.plan(request, form);
        if request.compacts.is_some() {
            if self.api == Api::Chat {
                return Err(Failed { fault: no_compaction(), begun: false });
            }
            let compacted = self.compact(&CompactRequest::new(&plan), sink).await;
            return compacted.map(|answer| (answer, plan.shown()));
        }
        let answer = match self.api {
            Api::Chat => {
                let offered = request.envelope.tools.iter().map(|tool| tool.name.clone()).collect();
                self.exchange(&ChatRequest::new(&plan), ChatStream::new(offered), request.only_fills_cache(), sink)
                    .await
            }
            Api::Responses => {
                let body = ResponsesRequest::new(&plan, self.connection.at_openai());
                self.exchange(&body, ResponsesStream::default(), request.only_fills_cache(), sink).await
            }
        };
        answer.map(|answer| (answer, plan.shown()))
    }
}

impl Provider for OpenAi {
    fn name(&self) -> &'static str {
        "openai"
    }

    /// Sends the request, and retries it as long as nothing was shown. If the server refuses a part of it, the request
    /// is sent in another form. An oversized request causes [`ErrorCode::UpstreamEmpty`] at some servers:
    /// llama-cpp-python ends its stream without any event, and LiteLLM in front of it sends only a `finish_reason`.
    fn answer<'a>(&'a self, request: &'a ModelRequest, sink: &'a mut dyn DeltaSink) -> AnswerFuture<'a> {
        Box::pin(self.server.answer(self, request, sink))
    }

    fn models(&self) -> ModelsFuture<'_> {
        Box::pin(async move {
            let body = self.connection.list().await?;
            let mut listed = models::read(&body)
                .ok_or_else(|| fault(ErrorCode::UpstreamMalformed, "/models did not return a model list"))?;
            // The list may contain the window from the model's training instead of the one that is served.
            if models::is_llama_cpp(&body)
                && let [only] = &mut listed[..]
                && let Ok(props) = tokio::time::timeout(PROPS_TIME, self.connection.props()).await
            {
                match props {
                    Ok(body) => {
                        let props = models::read_props(&body);
                        only.window_tokens = props.window_tokens.or(only.window_tokens);
                        only.takes = props.takes;
                        if let Some(slots) = props.slots {
                            self.slots.store(slots, Ordering::Relaxed);
                        }
                    }
                    // While it loads a model, it lists the model and answers everything else with 503.
                    Err(fault) if fault.code == ErrorCode::UpstreamOverloaded => return Err(fault),
                    Err(_) => {}
                }
            }
            Ok(listed)
        })
    }

    /// OpenAI's cache keeps the beginning of a request for half an hour, unless another time is asked for.
    fn cache(&self, model: &str) -> Option<CacheTerms> {
        let terms = CacheTerms { lifetime_ms: 30 * 60_000, for_an_hour: false };
        (self.api == Api::Responses && self.server.diagnoses(model)).then_some(terms)
    }

    fn slots(&self) -> Slots {
        match self.slots.load(Ordering::Relaxed) {
            _ if self.connection.at_openai() => Slots::Several,
            0 => Slots::Unknown,
            1 => Slots::One,
            _ => Slots::Several,
        }
    }
}
