//! What the core asks of a model and what it is told back: the words between the agent loop and the providers.

use reseed_protocol::{
    ErrorCode, Part, StopReason, Usage, UsageSource,
    context::{ContextEnvelope, ContextMessage},
};

/// One request to a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRequest {
    /// The model's name, as the provider knows it.
    pub model: String,
    /// Everything that is sent.
    pub envelope: ContextEnvelope,
    /// What the answer is for.
    pub purpose: Purpose,
}

impl ModelRequest {
    /// The messages in the order in which they are sent.
    pub fn messages(&self) -> impl Iterator<Item = &ContextMessage> {
        self.envelope.messages.cached.iter().chain(&self.envelope.messages.uncached)
    }
}

/// What an answer is for. Providers send both alike; the offline model and metrics tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// The answer to the user.
    Turn,
    /// A summary for a compaction; never shown.
    Summary,
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Its parts, in order, at least one that is not empty. `call_id`s are the upstream's where they are valid ids;
    /// the agent loop gives calls its own.
    pub parts: Vec<Part>,
    /// Why it ended.
    pub stop_reason: StopReason,
    /// What the provider reported, if it did.
    pub usage: Option<ReportedUsage>,
}

/// What a provider reported a request to have cost. Absent means that it did not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReportedUsage {
    /// Tokens sent, the cached ones included.
    pub input_tokens: u64,
    /// Of these, from the provider's cache.
    pub cached_tokens: Option<u64>,
    /// Of these, written to the provider's cache.
    pub cache_write_tokens: Option<u64>,
    /// Tokens answered, reasoning included.
    pub output_tokens: u64,
    /// Of these, reasoning.
    pub reasoning_tokens: Option<u64>,
}

impl ReportedUsage {
    /// The same as the wire has it, from this source.
    #[must_use]
    pub fn usage(self, source: UsageSource) -> Usage {
        Usage {
            input_tokens: self.input_tokens,
            cached_tokens: self.cached_tokens.unwrap_or(0),
            cache_write_tokens: self.cache_write_tokens,
            output_tokens: self.output_tokens,
            reasoning_tokens: self.reasoning_tokens,
            prefix_tokens: None,
            cost_nano_usd: None,
            source,
        }
    }
}

/// Why a request failed. The message is ours: upstream bodies can echo keys and prompts and never get this far.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct ModelFault {
    /// What went wrong, for programs.
    pub code: ErrorCode,
    /// What went wrong, for people, with the upstream's status and the remedy; none of the upstream's own text.
    pub message: String,
    /// How long the upstream asked to wait.
    pub retry_after_ms: Option<u64>,
    /// On [`ErrorCode::ContextOverflow`], what the refusal told.
    pub overflow: OverflowHint,
    /// Whether any text of this answer had been shown.
    pub shown: bool,
    /// What the upstream's operator needs to find the request; for the log alone.
    pub origin: FaultOrigin,
}

/// Where a fault comes from, as the upstream told it. Never its text: what stands here is a number or a name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultOrigin {
    /// The HTTP status of the response, where there was one.
    pub http_status: Option<u16>,
    /// The upstream's type or code of the error.
    pub error_type: Option<String>,
    /// The upstream's id of the request.
    pub request_id: Option<String>,
}

impl ModelFault {
    /// The same fault, of which this is known where it does not say it itself.
    #[must_use]
    pub fn at(mut self, origin: FaultOrigin) -> Self {
        let own = &mut self.origin;
        own.http_status = own.http_status.or(origin.http_status);
        own.error_type = own.error_type.take().or(origin.error_type);
        own.request_id = own.request_id.take().or(origin.request_id);
        self
    }

    /// A fault of this code before anything was shown.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            retry_after_ms: None,
            overflow: OverflowHint::default(),
            shown: false,
            origin: FaultOrigin::default(),
        }
    }
}

/// What a refusal as too large told about the numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OverflowHint {
    /// How many tokens the request had, as the upstream counts.
    pub prompt_tokens: Option<u64>,
    /// The upstream's window.
    pub window_tokens: Option<u64>,
}

/// A piece of an answer as it arrives, to be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delta<'a> {
    /// Text of part `part`, which is a text part.
    Text {
        /// The part's place in the answer's parts.
        part: usize,
        /// The piece.
        text: &'a str,
    },
    /// Text of part `part`, which is a reasoning part.
    Reasoning {
        /// The part's place in the answer's parts.
        part: usize,
        /// The piece.
        text: &'a str,
    },
}
