//! The context envelope: everything that one request sends.

use super::answer::AnswerOptions;
use crate::{
    content::Message,
    ids::{EntryId, TurnId},
};
use std::sync::Arc;

open! {
    /// Everything that one request sends.
    struct ContextEnvelope {
        /// The system prompt.
        system: SystemPrompt,
        /// The offered tools, in the order in which they are sent.
        tools: Vec<ToolDefinition>,
        /// The messages; the uncached ones are always last.
        messages: EnvelopeMessages,
        /// Sampling and limits.
        options: RequestOptions,
        /// The purpose and token counts of the request; not sent.
        #[serde(default)]
        meta: EnvelopeMeta,
    }

    /// The purpose and token counts of a request. Not sent.
    #[derive(Default, Eq)]
    struct EnvelopeMeta {
        /// The requested model.
        model: String,
        /// Its window in tokens.
        window_tokens: u64,
        /// The turn; absent outside a turn.
        turn_id?: TurnId,
        /// The number of the request within its turn, from 1.
        request: u64,
        /// Tokens of the whole request.
        tokens: u64,
        /// Tokens of each part, which add up to `tokens`; absent if not needed.
        parts?: EnvelopeTokens,
    }

    /// Tokens of each part of an envelope, in its order; they add up to its tokens.
    #[derive(Default, Eq)]
    struct EnvelopeTokens {
        /// The fixed overhead of a request.
        frame: u64,
        /// Each part of the system prompt.
        system: Vec<u64>,
        /// Each tool.
        tools: Vec<u64>,
        /// Each cached message.
        cached: Vec<u64>,
        /// Each uncached message.
        uncached: Vec<u64>,
    }

    /// The system prompt, in named parts.
    #[derive(Default, Eq)]
    struct SystemPrompt {
        /// The parts, in order.
        parts: Vec<SystemPart>,
        /// The parts' texts joined: what is sent. If empty, no system prompt is sent.
        compiled: String,
    }

    /// A named part of the system prompt.
    #[derive(Eq)]
    struct SystemPart {
        /// The purpose of the part, such as `base`.
        name: String,
        /// Its text.
        text: String,
    }

    /// The messages of a request.
    #[derive(Default)]
    struct EnvelopeMessages {
        /// The stable prefix, which a provider can cache.
        cached: Vec<ContextMessage>,
        /// Messages of this request only; always sent last.
        uncached: Vec<ContextMessage>,
    }

    /// A message of a request, with the entry it comes from.
    struct ContextMessage {
        /// The entry it comes from; absent for messages without an entry.
        entry_id?: EntryId,
        /// The message.
        #[cfg_attr(feature = "codegen", ts(as = "Message"))]
        message: Arc<Message>,
    }

    /// A tool definition as sent to the model.
    #[derive(Eq)]
    struct ToolDefinition {
        /// Its name: 1 to 64 of `A-Za-z0-9_-`.
        name: String,
        /// A description for the model.
        description: String,
        /// JSON Schema of its arguments, as an object.
        #[serde(default)]
        #[cfg_attr(feature = "codegen", ts(type = "Record<string, unknown>"))]
        parameters: serde_json::Value,
    }

    /// Sampling and limits of a request. Absent values are left to the provider.
    #[derive(Default)]
    struct RequestOptions {
        /// 0 to 2.
        temperature?: f64,
        /// 0 to 1.
        top_p?: f64,
        /// The maximum number of tokens in the answer.
        max_output_tokens?: u64,
        /// The reasoning effort, in the provider's own terms, such as `low` or `high`.
        reasoning_effort?: String,
        /// The form of the answer.
        answer?: AnswerOptions,
    }
}
