//! Any OpenAI-compatible server, through the Responses API or Chat Completions, always streaming.
//!
//! `chat_request` or `responses_request` writes the request, `transport` sends it, `sse` splits the response into
//! events, `chat_stream` or `responses_stream` reads them, and `assembly` builds the answer. Both dialects are read
//! leniently: no field is required that some server omits, and unknown events are skipped. Only the end is strict: a
//! stream that stops without its terminal event is a fault, and so is an empty answer.

mod assembly;
mod chat_request;
mod chat_stream;
mod decode;
mod lenient;
mod models;
mod options;
mod parts;
#[cfg(test)]
mod request_tests;
mod responses_request;
mod responses_stream;
mod sse;
#[cfg(test)]
mod stream_tests;
mod transport;

pub use crate::config::ApiChoice;
pub use options::{Api, InvalidOptions, OPENAI_BASE_URL, OpenAiOptions};

use super::{
    AnswerFuture, DeltaSink, ModelsFuture, Provider,
    fault::fault,
    retry::{Attempts, Failed, RetryPolicy},
};
use crate::core::model::{Answer, ModelFault, ModelRequest};
use assembly::Assembly;
use chat_request::ChatRequest;
use chat_stream::ChatStream;
use decode::{Decoder, Progress};
use reseed_protocol::ErrorCode;
use responses_request::ResponsesRequest;
use responses_stream::ResponsesStream;
use serde::Serialize;
use transport::{Events, Transport};

/// A provider for one server.
#[derive(Debug)]
pub struct OpenAi {
    transport: Transport,
    api: Api,
    retry: RetryPolicy,
}

impl OpenAi {
    /// Creates the provider; sends nothing yet.
    ///
    /// # Errors
    /// The invalid option.
    pub fn new(options: OpenAiOptions) -> Result<Self, InvalidOptions> {
        let transport = Transport::new(&options)?;
        let api = options.api.at(transport.at_openai());
        Ok(Self { transport, api, retry: options.retry })
    }

    /// Returns the API it speaks.
    #[must_use]
    pub fn api(&self) -> Api {
        self.api
    }

    /// Returns the server's address, without a trailing slash.
    #[must_use]
    pub fn base_url(&self) -> &str {
        self.transport.base_url()
    }

    /// Makes one attempt.
    async fn attempt(&self, request: &ModelRequest, sink: &mut dyn DeltaSink) -> Result<Answer, Failed> {
        let at_openai = self.transport.at_openai();
        match self.api {
            Api::Chat => self.exchange(&ChatRequest::new(request, at_openai), ChatStream::default(), sink).await,
            Api::Responses => {
                self.exchange(&ResponsesRequest::new(request, at_openai), ResponsesStream::default(), sink).await
            }
        }
    }

    async fn exchange(
        &self,
        body: &(impl Serialize + Sync),
        mut decoder: impl Decoder,
        sink: &mut dyn DeltaSink,
    ) -> Result<Answer, Failed> {
        let mut events = self.transport.open(self.api, body).await.map_err(|fault| Failed { fault, begun: false })?;
        let mut assembly = Assembly::new(sink);
        let read = read(&mut events, &mut decoder, &mut assembly).await;
        let (begun, shown, origin) = (events.begun(), assembly.shown(), events.origin());
        let answer = match (read, decoder.ending()) {
            // Once the answer is complete, what happens to the rest of the stream does not matter.
            (Ok(()) | Err(Stopped::Stream(_)), Some(ending)) => {
                events.finish();
                assembly.finish(ending)
            }
            (Ok(()), None) if begun => {
                Err(fault(ErrorCode::UpstreamTruncated, "the stream ended without its terminal event"))
            }
            // llama-cpp-python also does this to a request larger than its window.
            (Ok(()), None) => Err(fault(ErrorCode::UpstreamEmpty, "the stream ended without any event")),
            (Err(Stopped::Stream(fault) | Stopped::Said(fault)), _) => Err(fault),
        };
        answer.map_err(|fault| Failed { fault: ModelFault { shown, ..fault.at(origin) }, begun })
    }
}

/// The reason reading stopped before the stream did.
enum Stopped {
    /// The stream broke or fell silent.
    Stream(ModelFault),
    /// The stream reported an error.
    Said(ModelFault),
}

/// Reads events until the decoder or the stream is done.
async fn read(events: &mut Events, decoder: &mut impl Decoder, assembly: &mut Assembly<'_>) -> Result<(), Stopped> {
    while events.next(decoder.ending().is_some()).await.map_err(Stopped::Stream)? {
        let data = events.data().map_err(Stopped::Said)?;
        if decoder.event(data, assembly).map_err(Stopped::Said)? == Progress::Done {
            break;
        }
    }
    Ok(())
}

impl Provider for OpenAi {
    fn name(&self) -> &'static str {
        "openai"
    }

    /// Two cases that callers may need to know: a server that refuses an oversized request by ending its stream without
    /// any event (llama-cpp-python) causes [`ErrorCode::UpstreamEmpty`] with nothing shown, and so does one that sends
    /// only a `finish_reason` (LiteLLM in front of it).
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
            let body = self.transport.list().await?;
            models::read(&body)
                .ok_or_else(|| fault(ErrorCode::UpstreamMalformed, "/models did not return a model list"))
        })
    }
}
