//! Any OpenAI-compatible server, through the Responses API or Chat Completions, always streaming.
//!
//! `chat_request` or `responses_request` writes the request, `connection` sends it, and `chat_stream` or
//! `responses_stream` reads its events; the rest is shared with other APIs in `provider/upstream`. Both dialects are
//! read leniently: no field is required that some server omits, and unknown events are skipped.

mod chat_calls;
mod chat_request;
mod chat_stream;
mod connection;
mod finish;
mod models;
mod options;
mod parts;
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
pub use options::{Api, InvalidOptions, OPENAI_BASE_URL, OpenAiOptions};

use super::{
    AnswerFuture, DeltaSink, ModelsFuture, Provider,
    fault::fault,
    retry::{Attempts, Failed, RetryPolicy},
    upstream::{Decoder, read_answer},
};
use crate::core::model::{Answer, ModelRequest};
use chat_request::ChatRequest;
use chat_stream::ChatStream;
use connection::Connection;
use reseed_protocol::ErrorCode;
use responses_request::ResponsesRequest;
use responses_stream::ResponsesStream;
use serde::Serialize;

/// A provider for one server.
#[derive(Debug)]
pub struct OpenAi {
    connection: Connection,
    api: Api,
    retry: RetryPolicy,
}

impl OpenAi {
    /// Creates the provider; sends nothing yet.
    ///
    /// # Errors
    /// The invalid option.
    pub fn new(options: OpenAiOptions) -> Result<Self, InvalidOptions> {
        let connection = Connection::new(&options)?;
        let api = options.api.at(connection.at_openai());
        Ok(Self { connection, api, retry: options.retry })
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

    /// Makes one attempt.
    async fn attempt(&self, request: &ModelRequest, sink: &mut dyn DeltaSink) -> Result<Answer, Failed> {
        let at_openai = self.connection.at_openai();
        match self.api {
            Api::Chat => {
                let offered = request.envelope.tools.iter().map(|tool| tool.name.clone()).collect();
                self.exchange(&ChatRequest::new(request, at_openai), ChatStream::new(offered), sink).await
            }
            Api::Responses => {
                self.exchange(&ResponsesRequest::new(request, at_openai), ResponsesStream::default(), sink).await
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

    /// Sends the request, and retries it as long as nothing was shown. A server that refuses an oversized request by
    /// ending its stream without any event (llama-cpp-python) causes [`ErrorCode::UpstreamEmpty`] with nothing shown,
    /// and so does one that sends only a `finish_reason` (LiteLLM in front of it).
    fn answer<'a>(&'a self, request: &'a ModelRequest, sink: &'a mut dyn DeltaSink) -> AnswerFuture<'a> {
        Box::pin(async move {
            let mut attempts = Attempts::new(&self.retry);
            loop {
                match self.attempt(request, &mut *sink).await {
                    Ok(answer) => return Ok(answer),
                    Err(failed) => attempts.after(failed).await?,
                }
            }
        })
    }

    fn models(&self) -> ModelsFuture<'_> {
        Box::pin(async move {
            let body = self.connection.list().await?;
            models::read(&body)
                .ok_or_else(|| fault(ErrorCode::UpstreamMalformed, "/models did not return a model list"))
        })
    }
}
