//! Model providers. The server has one [`Provider`]; the runtime calls it, the core never does.

mod adapt;
pub mod anthropic;
pub(crate) mod by_model;
#[cfg(test)]
mod documented;
pub(crate) mod fault;
pub mod offline;
pub mod openai;
pub(crate) mod overflow;
mod refusal;
pub mod retry;
mod said;
mod upstream;
mod wait;

use crate::core::{
    model::{Answer, Delta, ModelFault, ModelRequest, Takes},
    prewarm::CacheTerms,
};
use reseed_protocol::ErrorCode;
use std::{future::Future, pin::Pin, time::Duration};

/// The future that [`Provider::answer`] returns.
pub type AnswerFuture<'a> = Pin<Box<dyn Future<Output = Result<Answer, ModelFault>> + Send + 'a>>;
/// The future that [`Provider::models`] returns.
pub type ModelsFuture<'a> = Pin<Box<dyn Future<Output = Result<Vec<ListedModel>, ModelFault>> + Send + 'a>>;

/// Receives the pieces of an answer as they arrive. Called in order; must not block.
pub trait DeltaSink: Send {
    /// Receives the next piece.
    fn delta(&mut self, delta: Delta<'_>);

    /// Reports a wait before the request is sent again. This happens only before the first piece.
    fn delayed(&mut self, _: &Delay) {}
}

/// A wait before a request is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delay {
    /// The number of the next attempt: 2 after the first one has failed.
    pub attempt: u32,
    /// The length of the wait.
    pub wait: Duration,
    /// The reason why the last attempt failed.
    pub reason: ErrorCode,
}

/// A model backend.
///
/// Every provider must keep this contract:
/// - Each call to `answer` sends one request. It retries only before the first byte of an answer.
/// - Dropping the future cancels the upstream request at once. There is no other way to cancel.
/// - Every piece of text in the answer is passed to `sink` before the future resolves to `Ok`. Part numbers match the
///   answer's parts.
/// - For a tool call, `sink` gets the name first, then the arguments in pieces, then the end. If it gets nothing of a
///   call, the call is shown when the answer is complete.
/// - An answer is complete. A stream that ended early or was empty is a fault.
///
/// ```
/// use reseed::{
///     core::model::{Answer, Delta, ModelRequest},
///     provider::{AnswerFuture, DeltaSink, ModelsFuture, Provider},
/// };
/// use reseed_protocol::{Part, StopReason};
///
/// /// Answers with the last message.
/// struct Echo;
///
/// impl Provider for Echo {
///     fn name(&self) -> &'static str {
///         "echo"
///     }
///
///     fn answer<'a>(&'a self, request: &'a ModelRequest, sink: &'a mut dyn DeltaSink) -> AnswerFuture<'a> {
///         Box::pin(async move {
///             let text = request.messages().last().map(|last| last.message.text()).unwrap_or_default();
///             sink.delta(Delta::Text { part: 0, text: &text });
///             Ok(Answer::new(vec![Part::Text { text }], StopReason::Stop))
///         })
///     }
///
///     fn models(&self) -> ModelsFuture<'_> {
///         Box::pin(async { Ok(Vec::new()) })
///     }
/// }
///
/// let provider: Box<dyn Provider> = Box::new(Echo);
/// assert_eq!(provider.name(), "echo");
/// ```
pub trait Provider: Send + Sync {
    /// Returns the provider's name, for the startup line, metrics and the page: `openai`, `offline`.
    fn name(&self) -> &'static str;

    /// Returns the name of the provider that serves this model.
    fn name_of(&self, _model: &str) -> &'static str {
        self.name()
    }

    /// Sends one request to the model.
    fn answer<'a>(&'a self, request: &'a ModelRequest, sink: &'a mut dyn DeltaSink) -> AnswerFuture<'a>;

    /// Lists the models, with their windows where the provider reports them.
    fn models(&self) -> ModelsFuture<'_>;

    /// Returns what is known of the provider's cache of a model, if a request can fill it without an answer.
    fn cache(&self, _model: &str) -> Option<CacheTerms> {
        None
    }

    /// Returns how many requests the provider works on at a time, as far as it is known.
    fn slots(&self) -> Slots {
        Slots::Several
    }
}

/// How many requests a model server works on at a time. A server with one slot makes further requests wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slots {
    /// One.
    One,
    /// More than one.
    Several,
    /// The server does not say. Its behaviour may show it.
    Unknown,
}

/// A model as listed by a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedModel {
    /// Its name.
    pub id: String,
    /// Its window in tokens, if the list has it (`context_length`, `max_model_len`, `meta.n_ctx` and the like).
    pub window_tokens: Option<u64>,
    /// What it accepts besides text.
    pub takes: Takes,
}
