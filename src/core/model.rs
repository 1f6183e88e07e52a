//! The types that the agent loop and the providers exchange.

use crate::{
    context::{pairing::Pairing, verdict::Diagnosis},
    need::{Needs, Refusal},
};
use reseed_protocol::{
    ErrorCode, FurtherUsage, Part, Payload, StopReason, Usage, UsageSource,
    context::{ContextEnvelope, ContextMessage},
    receipt::ResponseId,
};

/// One request to a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRequest {
    /// The model's name as the provider knows it.
    pub model: String,
    /// Everything that is sent.
    pub envelope: ContextEnvelope,
    /// What the answer is for.
    pub purpose: Purpose,
    /// The answer to the request with which its receipt compares it. The provider is asked to do the same.
    pub compared_with: Option<ResponseId>,
    /// Set if the provider compacts the messages in its own form.
    pub compacts: Option<Compacts>,
}

impl ModelRequest {
    /// Returns true if it only fills the provider's cache: it leaves no room for an answer. No session can set this
    /// limit.
    #[must_use]
    pub fn only_fills_cache(&self) -> bool {
        self.envelope.options.max_output_tokens == Some(0)
    }

    /// Iterates over the messages in the order in which they are sent.
    pub fn messages(&self) -> impl Iterator<Item = &ContextMessage> {
        self.envelope.messages.cached.iter().chain(&self.envelope.messages.uncached)
    }

    /// Returns true if every tool call is followed by its result. The core ensures it, and the sender asserts it.
    #[must_use]
    pub fn is_paired(&self) -> bool {
        let mut pairing = Pairing::default();
        self.messages().for_each(|sent| pairing.take(&sent.message));
        pairing.is_whole()
    }
}

/// The purpose of an answer. Providers send both alike; the offline model and the metrics distinguish them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// The answer to the user.
    Turn,
    /// A summary for a compaction; never shown to the user.
    Summary,
}

/// Asks for the provider's own compaction of the messages, instead of an answer to them. The payload of the answer has
/// it. The text is its readable form, if the provider gives one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Compacts {
    /// What it should focus on.
    pub instructions: Option<String>,
}

/// A complete answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Its parts in order, at least one of them not empty. `call_id`s are the provider's if they are valid ids; the
    /// agent loop assigns its own.
    pub parts: Vec<Part>,
    /// The reason it ended.
    pub stop_reason: StopReason,
    /// The usage that the provider reported, if it did.
    pub usage: Option<ReportedUsage>,
    /// The data that the provider wants back with this answer; it names calls by the `call_id`s of `parts`.
    pub payload: Option<Box<Payload>>,
    /// The probabilities of its tokens, if they were asked for.
    pub logprobs: Option<serde_json::Value>,
    /// The provider's id of it.
    pub response: Option<ResponseId>,
    /// The provider's comparison of the request with [`ModelRequest::compared_with`].
    pub diagnosis: Option<Diagnosis>,
    /// True if the provider said that it ended because the context window was full.
    pub filled_window: bool,
    /// The changes to this request without which its server would refuse it, and what its API does not have.
    pub adapted: Needs,
    /// The changes that all requests to the model get from now on.
    pub learnt: Needs,
}

impl Answer {
    /// Creates an answer for which the provider reported nothing further.
    #[must_use]
    pub fn new(parts: Vec<Part>, stop_reason: StopReason) -> Self {
        Self {
            parts,
            stop_reason,
            usage: None,
            payload: None,
            logprobs: None,
            response: None,
            diagnosis: None,
            filled_window: false,
            adapted: Needs::default(),
            learnt: Needs::default(),
        }
    }
}

/// The token usage that a provider reported; `None` if it did not report a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReportedUsage {
    /// Input tokens, including cached ones.
    pub input_tokens: u64,
    /// Input tokens read from the provider's cache.
    pub cached_tokens: Option<u64>,
    /// Input tokens written to the provider's cache.
    pub cache_write_tokens: Option<u64>,
    /// Those of them that the cache keeps for an hour.
    pub cache_write_hour_tokens: Option<u64>,
    /// Output tokens, including reasoning.
    pub output_tokens: u64,
    /// Output tokens used for reasoning.
    pub reasoning_tokens: Option<u64>,
    /// The tokens of further passes that the provider made for the answer, which are billed.
    pub further: Option<FurtherUsage>,
}

impl ReportedUsage {
    /// Converts to the wire type.
    #[must_use]
    pub fn usage(self, source: UsageSource) -> Usage {
        Usage {
            input_tokens: self.input_tokens,
            cached_tokens: self.cached_tokens.unwrap_or(0),
            cache_write_tokens: self.cache_write_tokens,
            cache_write_hour_tokens: self.cache_write_hour_tokens,
            output_tokens: self.output_tokens,
            reasoning_tokens: self.reasoning_tokens,
            prefix_tokens: None,
            further: self.further,
            cost_nano_usd: None,
            source,
        }
    }
}

/// What a model accepts besides text; `None` if unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Takes {
    /// Tools.
    pub tools: Option<bool>,
    /// Images.
    pub images: Option<bool>,
}

/// The reason a request failed. The message is ours: provider responses can echo keys and prompts, and never get this
/// far.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct ModelFault {
    /// The error code, for programs.
    pub code: ErrorCode,
    /// The message for people, with the upstream's status and the remedy, but none of the upstream's text.
    pub message: String,
    /// How long the upstream asked to wait before a retry.
    pub retry_after_ms: Option<u64>,
    /// For [`ErrorCode::ContextOverflow`]: the numbers that the refusal stated.
    pub overflow: OverflowHint,
    /// The parts of the request that the upstream may have refused.
    pub refusal: Refusal,
    /// True if the output limit was reached before any text. A model that reasons first may need a higher limit.
    pub ran_out: bool,
    /// True if some text of this answer was already shown.
    pub shown: bool,
    /// The data with which the provider's operator finds the request; for the log only.
    pub origin: Box<FaultOrigin>,
}

/// Identifies a fault at the provider, and what it cost. Contains numbers and names, never the provider's text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultOrigin {
    /// The HTTP status of the response, if there was one.
    pub http_status: Option<u16>,
    /// The upstream's error type or code.
    pub error_type: Option<String>,
    /// The upstream's request id.
    pub request_id: Option<String>,
    /// The usage that the provider reported, if it did: an answer without text is billed too.
    pub usage: Option<ReportedUsage>,
}

impl ModelFault {
    /// Adds origin details that the fault does not have itself.
    #[must_use]
    pub fn at(mut self, origin: FaultOrigin) -> Self {
        let own = &mut self.origin;
        own.http_status = own.http_status.or(origin.http_status);
        own.error_type = own.error_type.take().or(origin.error_type);
        own.request_id = own.request_id.take().or(origin.request_id);
        own.usage = own.usage.or(origin.usage);
        self
    }

    /// Creates a fault for an answer without any shown text.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            retry_after_ms: None,
            overflow: OverflowHint::default(),
            refusal: Refusal::default(),
            ran_out: false,
            shown: false,
            origin: Box::default(),
        }
    }
}

/// The numbers stated in a refusal of a request as too large.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OverflowHint {
    /// Size of the request in tokens, as the upstream counts.
    pub prompt_tokens: Option<u64>,
    /// The upstream's context window in tokens.
    pub window_tokens: Option<u64>,
}

impl OverflowHint {
    /// Returns true if both numbers are known, and the request is above the window.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        matches!((self.prompt_tokens, self.window_tokens), (Some(sent), Some(fits)) if sent > fits)
    }
}

/// A piece of an answer to show as it arrives. Every piece names its part by its index in the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delta<'a> {
    /// Text of a text part.
    Text {
        /// The part.
        part: usize,
        /// The piece.
        text: &'a str,
    },
    /// Text of a reasoning part.
    Reasoning {
        /// The part.
        part: usize,
        /// The piece.
        text: &'a str,
    },
    /// A tool call begins.
    Call {
        /// The part.
        part: usize,
        /// The tool's name.
        name: &'a str,
    },
    /// Text of a tool call's arguments.
    Arguments {
        /// The part, whose call has begun.
        part: usize,
        /// The piece.
        text: &'a str,
    },
    /// A tool call is complete.
    CallEnd {
        /// The part.
        part: usize,
    },
}

impl<'a> Delta<'a> {
    /// Returns the part that it belongs to.
    #[must_use]
    pub fn part(&self) -> usize {
        match *self {
            Self::Text { part, .. }
            | Self::Reasoning { part, .. }
            | Self::Call { part, .. }
            | Self::Arguments { part, .. }
            | Self::CallEnd { part } => part,
        }
    }

    /// Returns its text; empty for the beginning and the end of a call.
    #[must_use]
    pub fn text(&self) -> &'a str {
        match *self {
            Self::Text { text, .. } | Self::Reasoning { text, .. } | Self::Arguments { text, .. } => text,
            Self::Call { .. } | Self::CallEnd { .. } => "",
        }
    }
}

/// Returns true if an image may be sent by this URL.
#[must_use]
pub fn is_picture_address(url: &str) -> bool {
    url.strip_prefix("https://").is_some_and(|rest| !rest.trim().is_empty()) || url.starts_with("data:image/")
}
