//! Any OpenAI-compatible server, through the Responses API or Chat Completions, always streaming.
//!
//! `chat_request` or `responses_request` writes the request, `connection` sends it, and `chat_stream` or
//! `responses_stream` reads its events. Code shared with other APIs is in `provider/upstream`. Both dialects are read
//! leniently: no field is required that some server omits, and unknown events are skipped.

mod adapt;
mod answer_form;
mod chat_calls;
mod chat_request;
mod chat_stream;
mod connection;
mod finish;
mod form;
mod ids;
mod models;
mod options;
mod parts;
mod plan;
#[cfg(test)]
mod request_tests;
mod responses_request;
mod responses_stream;
#[cfg(test)]
mod shape_tests;
#[cfg(test)]
mod stream_tests;
mod usage;

pub use crate::config::ApiChoice;
pub use options::{Api, InvalidOptions, OPENAI_BASE_URL, OpenAiOptions, idle_timeout};

use super::{
    AnswerFuture, DeltaSink, ModelsFuture, Provider, Slots,
    fault::fault,
    retry::{Attempts, Failed, RetryPolicy},
    upstream::{Decoder, read_answer},
};
use crate::core::{
    fingerprint::fingerprint,
    model::{Answer, ModelFault, ModelRequest},
    need::Needs,
};
use adapt::{Adaptations, Search};
use chat_request::ChatRequest;
use chat_stream::ChatStream;
use connection::Connection;
use form::Form;
use ids::forget_known;
use plan::Plan;
use reseed_protocol::{ErrorCode, Part};
use responses_request::ResponsesRequest;
use responses_stream::ResponsesStream;
use serde::Serialize;
use std::{
    cell::OnceCell,
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
    retry: RetryPolicy,
    adaptations: Adaptations,
    /// Identifies the server in what it gets back, without revealing its address.
    server: String,
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
        let adaptations = Adaptations::at(connection.host());
        let server = format!("{:016x}", fingerprint(connection.base_url().as_bytes()));
        Ok(Self { connection, api, retry: options.retry, adaptations, server, slots: AtomicU64::new(0) })
    }

    /// Returns the API it speaks.
    #[must_use]
    pub fn api(&self) -> Api {
        self.api
    }

    /// Returns the server's address, without a trailing slash.
    #[must_use]
    pub fn base_url(&self) -> &str {
        self.connection.base_url()
    }

    /// Makes one attempt. Also returns the needs that changed what was sent.
    async fn attempt(
        &self,
        request: &ModelRequest,
        form: &Form,
        sink: &mut dyn DeltaSink,
    ) -> Result<(Answer, Needs), Failed> {
        let plan = self.plan(request, form);
        let answer = match self.api {
            Api::Chat => {
                let offered = request.envelope.tools.iter().map(|tool| tool.name.clone()).collect();
                self.exchange(&ChatRequest::new(&plan), ChatStream::new(offered), sink).await
            }
            Api::Responses => {
                let body = ResponsesRequest::new(&plan, self.connection.at_openai());
                self.exchange(&body, ResponsesStream::default(), sink).await
            }
        };
        answer.map(|answer| (answer, plan.shown()))
    }

    fn plan<'a>(&'a self, request: &'a ModelRequest, form: &Form) -> Plan<'a> {
        Plan::new(request, form, &self.server, self.api)
    }

    /// Returns the bytes of a request, to determine whether a form changes it.
    fn body(&self, request: &ModelRequest, form: &Form) -> Vec<u8> {
        let plan = self.plan(request, form);
        let body = match self.api {
            Api::Chat => serde_json::to_vec(&ChatRequest::new(&plan)),
            Api::Responses => serde_json::to_vec(&ResponsesRequest::new(&plan, self.connection.at_openai())),
        };
        body.unwrap_or_default()
    }

    /// Adds to an answer its origin and the adaptations of its request. `shown` has the needs that changed the request.
    fn completed(&self, mut answer: Answer, request: &ModelRequest, search: &Search, shown: Needs) -> Answer {
        let is_sealed = |part: &Part| matches!(part, Part::Reasoning { payload: Some(_), .. });
        if answer.payload.is_none() && answer.parts.iter().any(is_sealed) {
            answer.payload = Some(Box::default());
        }
        if let Some(payload) = &mut answer.payload {
            payload.server.clone_from(&self.server);
            forget_known(payload, request.messages().map(|message| &*message.message));
        }
        answer.adapted = search.adapted(shown);
        answer.learnt = search.found();
        answer
    }

    /// Sends a request until it is answered or fails permanently.
    async fn answered(
        &self,
        request: &ModelRequest,
        search: &mut Search,
        sink: &mut dyn DeltaSink,
    ) -> Result<Answer, ModelFault> {
        let mut attempts = Attempts::new(&self.retry);
        loop {
            match self.attempt(request, &search.form, &mut *sink).await {
                Ok((answer, shown)) => {
                    search.settle(request);
                    return Ok(self.completed(answer, request, search, shown));
                }
                Err(mut failed) => {
                    let (present, sent) = (search.form.clone(), OnceCell::new());
                    let changes =
                        |form: &Form| self.body(request, form) != *sent.get_or_init(|| self.body(request, &present));
                    if !search.goes_on(&mut failed, request, changes) {
                        attempts.after(failed, &mut *sink).await?;
                    }
                }
            }
        }
    }

    async fn exchange(
        &self,
        body: &(impl Serialize + Sync),
        decoder: impl Decoder,
        sink: &mut dyn DeltaSink,
    ) -> Result<Answer, Failed> {
        let events = self.connection.open(self.api, body).await.map_err(|fault| Failed { fault, begun: false })?;
        read_answer(events, decoder, sink).await
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
        Box::pin(async move {
            let mut search = self.adaptations.begin(request);
            let answer = self.answered(request, &mut search, sink).await;
            self.adaptations.keep(&request.model, &search);
            answer
        })
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

    fn slots(&self) -> Slots {
        match self.slots.load(Ordering::Relaxed) {
            _ if self.connection.at_openai() => Slots::Several,
            0 => Slots::Unknown,
            1 => Slots::One,
            _ => Slots::Several,
        }
    }
}
