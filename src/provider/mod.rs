//! To the models. One [`Provider`] a deployment; the runtime calls it, the core never does.

pub mod fault;
pub mod offline;
pub mod openai;
pub mod overflow;
pub mod retry;
pub mod scripted;

use crate::core::model::{Answer, Delta, ModelFault, ModelRequest};
use std::{future::Future, pin::Pin};

/// What [`Provider::answer`] returns.
pub type AnswerFuture<'a> = Pin<Box<dyn Future<Output = Result<Answer, ModelFault>> + Send + 'a>>;
/// What [`Provider::models`] returns.
pub type ModelsFuture<'a> = Pin<Box<dyn Future<Output = Result<Vec<ListedModel>, ModelFault>> + Send + 'a>>;

/// Takes the pieces of an answer as they arrive. Called in order; must not block.
pub trait DeltaSink: Send {
    /// One more piece.
    fn delta(&mut self, delta: Delta<'_>);
}

/// A model backend.
///
/// Contract, the same for every provider:
/// - `answer` asks once for each call, retries included only before the first byte of an answer;
/// - dropping the future cancels the upstream request at once: that is the only way to cancel;
/// - every piece of text that the answer holds was given to `sink` before the future is ready with `Ok`, with part
///   numbers that match the answer's parts;
/// - an answer is whole: a stream that ended early, or said nothing, is a fault.
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
///             Ok(Answer { parts: vec![Part::Text { text }], stop_reason: StopReason::Stop, usage: None })
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
    /// The provider's name, for the start-up line, metrics and the page: `openai`, `offline`, `scripted`.
    fn name(&self) -> &'static str;

    /// Asks the model.
    fn answer<'a>(&'a self, request: &'a ModelRequest, sink: &'a mut dyn DeltaSink) -> AnswerFuture<'a>;

    /// The models it lists, with their windows where it tells.
    fn models(&self) -> ModelsFuture<'_>;
}

/// A model as a provider lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedModel {
    /// Its name.
    pub id: String,
    /// Its window in tokens, where the list tells (`context_length`, `max_model_len`, `meta.n_ctx` and the like).
    pub window_tokens: Option<u64>,
}
