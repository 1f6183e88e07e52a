//! The content model of the wire, the tree and the store.

mod input;

pub use self::input::*;

use crate::{ids::CallId, receipt::Receipt};
use serde::{Deserialize, Serialize};

words! {
    /// The author of a message.
    enum Role {
        /// A person, or text that stands in for one (a summary, a note).
        User,
        /// The model.
        Assistant,
        /// The result of a tool call.
        Tool,
    }
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Part {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// An image, by address or as a `data:` URL.
    Image {
        /// `https:` or `data:` URL.
        url: String,
        /// The level of detail: `low`, `high` or `auto`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "codegen", ts(optional))]
        detail: Option<String>,
    },
    /// The model's reasoning before it answered.
    Reasoning {
        /// The readable part; empty if the provider hides it.
        text: String,
        /// The provider's own item, sent back to it unchanged; opaque to everyone else.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "codegen", ts(optional, type = "unknown"))]
        payload: Option<serde_json::Value>,
    },
    /// A tool call by the model.
    ToolCall {
        /// Identifies this call; its result carries the same id.
        #[serde(rename = "toolCallId")]
        call_id: CallId,
        /// The tool's name.
        name: String,
        /// The arguments: the JSON object that the model meant (`{}` if it wrote none), or the model's own text if it
        /// is not a JSON object. An envelope has the arguments as they are sent: such text becomes `{"malformed":
        /// TEXT}`.
        arguments: String,
    },
    /// The result of a tool.
    ToolResult {
        /// The call that it answers.
        #[serde(rename = "toolCallId")]
        call_id: CallId,
        /// The output, as text for the model.
        output: String,
        /// True if the tool failed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "codegen", ts(optional, as = "Option<bool>"))]
        is_error: bool,
    },
}

words! {
    /// The reason an answer ended.
    enum StopReason {
        /// The model finished.
        Stop,
        /// The output limit cut it off.
        Length,
        /// It waits for tools.
        ToolCalls,
        /// The provider's filter cut it off.
        ContentFilter,
        /// The user cancelled it.
        Cancelled,
    }

    /// The source of a count.
    enum UsageSource {
        /// The provider reported it.
        Reported,
        /// Estimated by the server.
        Estimated,
    }
}

open! {
    /// Tokens of one request.
    #[derive(Eq)]
    struct Usage {
        /// Tokens sent, including cached ones.
        input_tokens: u64,
        /// The input tokens that were read from the provider's cache.
        cached_tokens: u64,
        /// The input tokens that were written to the provider's cache; absent if the provider does not report them.
        cache_write_tokens?: u64,
        /// Those of `cacheWriteTokens` that the provider keeps for an hour; absent if it does not report them apart.
        cache_write_hour_tokens?: u64,
        /// Tokens of the answer, including reasoning.
        output_tokens: u64,
        /// The output tokens that were reasoning; absent if the provider does not report them.
        reasoning_tokens?: u64,
        /// The tokens of the longest prefix shared with the session's previous request, as counted before sending: what
        /// the provider could have cached. Absent for summaries, and in older logs.
        prefix_tokens?: u64,
        /// The tokens of further passes that the provider made for this answer, such as a continuation after a pause.
        /// They are billed, but are in none of the counts above.
        further?: FurtherUsage,
        /// The cost in billionths of a US dollar; absent if the model's price is unknown.
        cost_nano_usd?: u64,
        /// Reported by the provider, or estimated.
        source: UsageSource,
    }
}

open! {
    /// Tokens of the further passes of one request.
    #[derive(Default, Copy, Eq)]
    struct FurtherUsage {
        /// Tokens sent, including cached ones.
        input_tokens: u64,
        /// The input tokens that were read from the provider's cache.
        #[serde(default)]
        cached_tokens: u64,
        /// The input tokens that were written to the provider's cache.
        #[serde(default)]
        cache_write_tokens: u64,
        /// Those of `cacheWriteTokens` that the provider keeps for an hour.
        #[serde(default)]
        cache_write_hour_tokens: u64,
        /// Tokens of the answers.
        output_tokens: u64,
    }
}

impl FurtherUsage {
    /// Returns the sum of both.
    #[must_use]
    pub fn and(self, more: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(more.input_tokens),
            cached_tokens: self.cached_tokens.saturating_add(more.cached_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_add(more.cache_write_tokens),
            cache_write_hour_tokens: self.cache_write_hour_tokens.saturating_add(more.cache_write_hour_tokens),
            output_tokens: self.output_tokens.saturating_add(more.output_tokens),
        }
    }
}

impl Usage {
    /// Returns the tokens sent and answered together.
    #[must_use]
    pub fn total_tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

open! {
    /// The cut in a tool result that was too large. The output shows the beginning and the end, with a note between
    /// them. Lengths and positions are in UTF-16 code units.
    #[derive(Default, Eq)]
    struct Cut {
        /// The length of the whole result.
        characters: u64,
        /// The length of the parts that the output shows, without the note.
        shown: u64,
        /// The position from which characters were left out: the length of the beginning that is shown.
        from: u64,
        /// The whole result; only in the reply to `get_entries` with `entryId`.
        whole?: String,
    }

    /// Opaque data that a provider attached to an answer. It is sent back with that answer, byte for byte, and only to
    /// the same server and model.
    #[derive(Default, Eq)]
    struct Payload {
        /// Identifies the server, without naming its address.
        server: String,
        /// The field that held the reasoning. The text of the message's reasoning parts is sent back in it.
        reasoning?: String,
        /// The other fields of the answer, as the JSON text of an object.
        fields?: String,
        /// The data attached to its tool calls.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<CallPayload>>"))]
        calls: Vec<CallPayload>,
        /// The provider's own form of the summary that the message shows as text.
        compaction?: Box<NativeCompaction>,
    }
}

impl Payload {
    /// Returns what still belongs to the answer after its content was changed: fields that were made for the original
    /// text do not.
    #[must_use]
    pub fn of_changed(self) -> Self {
        Self { fields: None, compaction: None, ..self }
    }
}

open! {
    /// A provider's own form of a summary. It covers everything before the messages that are kept, like the
    /// text beside it. It is sent only to the server, the API and the model that made it; all others read the text.
    #[derive(Default, Eq)]
    struct NativeCompaction {
        /// Identifies the server, without naming its address.
        server: String,
        /// The API: `responses` or `messages`.
        api: String,
        /// The model.
        model: String,
        /// The opaque items, as the JSON text of an array. They are sent back unchanged.
        items: String,
        /// The tokens that the provider reported for it; absent if it reported none.
        tokens?: u64,
    }

    /// Opaque data that a provider attached to a tool call.
    #[derive(Eq)]
    struct CallPayload {
        /// The call.
        #[serde(rename = "toolCallId")]
        call_id: CallId,
        /// The provider's own id of the call; empty if it gave none.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<String>"))]
        id: String,
        /// The other fields of the call, as the JSON text of an object.
        fields?: String,
    }

    /// A message.
    #[derive(Eq)]
    struct Message {
        /// Its author.
        role: Role,
        /// Its content, in order.
        content: Vec<Part>,
        /// The model that answered; on assistant messages.
        model?: String,
        /// The usage of its request; on assistant messages.
        usage?: Usage,
        /// Identifies the system prompt, the tools and the messages sent with the request, so that its `usage` is known
        /// to be stale when they change; on assistant messages.
        envelope_key?: String,
        /// Cache diagnostics of its request; on assistant messages.
        receipt?: Box<Receipt>,
        /// The reason the answer ended; on assistant messages.
        stop_reason?: StopReason,
        /// True if the answer was cancelled, or cut off because the provider failed. The content is what had been
        /// shown. The stop reason is `cancelled` if it was cancelled, and otherwise absent.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<bool>"))]
        incomplete: bool,
        /// The cut in the result; on tool messages whose result was too large.
        cut?: Box<Cut>,
        /// Opaque data that the provider attached to the answer; on assistant messages.
        payload?: Box<Payload>,
        /// Data for programs: what came with an input, or `logprobs` of an answer. Never sent to the model.
        #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
        details?: Box<serde_json::Value>,
    }
}

impl Message {
    /// Creates a message without the fields of an answer.
    #[must_use]
    pub fn new(role: Role, content: Vec<Part>) -> Self {
        Self {
            role,
            content,
            model: None,
            usage: None,
            envelope_key: None,
            receipt: None,
            stop_reason: None,
            incomplete: false,
            cut: None,
            payload: None,
            details: None,
        }
    }

    /// Creates a user message of one text.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Self {
        Self::new(Role::User, vec![Part::Text { text: text.into() }])
    }

    /// Returns the provider's own form of the summary that the message shows as text.
    #[must_use]
    pub fn native(&self) -> Option<&NativeCompaction> {
        self.payload.as_ref()?.compaction.as_deref()
    }

    /// Returns the texts of this message, joined by newlines; without reasoning, calls and results.
    #[must_use]
    pub fn text(&self) -> String {
        let texts: Vec<&str> = self
            .content
            .iter()
            .filter_map(|part| match part {
                Part::Text { text } => Some(text.as_str()),
                _ => None,
            })
            .collect();
        texts.join("\n")
    }

    /// Returns this message's tool calls, in order.
    pub fn tool_calls(&self) -> impl Iterator<Item = (&CallId, &str, &str)> {
        self.content.iter().filter_map(|part| match part {
            Part::ToolCall { call_id, name, arguments } => Some((call_id, name.as_str(), arguments.as_str())),
            _ => None,
        })
    }
}

/// Returns the length of a text in UTF-16 code units, the unit of every text position on the wire.
#[must_use]
pub fn utf16_len(text: &str) -> u64 {
    text.chars().map(|c| c.len_utf16() as u64).sum()
}
