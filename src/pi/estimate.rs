//! pi's token estimate: one token per four UTF-16 code units, rounded up per message.
//!
//! It is accurate for English text; for Chinese it is about a quarter of the real count. Images count in tool results
//! and client messages, but not in user messages.

use super::{
    json::{Json, Object},
    message, usage,
};
use reseed_core::context::counter::{Counter, MessageTokens, Method, TokenEstimate};
use reseed_protocol::{Entry, Message, Timestamp, content::utf16_len, context::ToolDefinition};

/// UTF-16 code units per token.
const UNITS_PER_TOKEN: u64 = 4;

/// The code units that an image counts as.
const IMAGE_UNITS: u64 = 4_800;

/// pi's rules: system prompt, tools and framing cost nothing; the newest report of a complete answer is used unchanged.
#[derive(Debug)]
pub struct Estimate;

/// Returns the counter by pi's rules, the same for every model.
#[must_use]
pub fn counter(_model: &str) -> Counter {
    Counter::by_rules_of(&Estimate)
}

impl TokenEstimate for Estimate {
    fn method(&self) -> Method {
        Method::Named("pi")
    }

    fn text(&self, text: &str) -> u64 {
        text_tokens(text)
    }

    fn message(&self, message: &Message) -> MessageTokens {
        MessageTokens { text: message_tokens(message), ..MessageTokens::default() }
    }

    fn entry(&self, entry: &Entry, _message: &Message) -> MessageTokens {
        MessageTokens { text: entry_tokens(entry), ..MessageTokens::default() }
    }

    fn system(&self, _compiled: &str) -> u64 {
        0
    }

    fn tool(&self, _tool: &ToolDefinition) -> u64 {
        0
    }

    fn request_overhead(&self) -> u64 {
        0
    }

    fn trusts_reports(&self) -> bool {
        true
    }

    /// Returns the same as [`usage::context_tokens`]: it uses the newest report, even one from before the last
    /// compaction.
    fn tokens_before(&self, _counted: u64, remaining: &mut dyn Iterator<Item = &Entry>) -> u64 {
        usage::context_tokens(&message::of_entries(remaining)).tokens
    }
}

/// Estimates the tokens of a text.
#[must_use]
pub fn text_tokens(text: &str) -> u64 {
    utf16_len(text).div_ceil(UNITS_PER_TOKEN)
}

/// Estimates the tokens of a message in pi's form.
#[must_use]
pub fn tokens(message: &Object) -> u64 {
    let text = |name: &str| utf16_len(message.text(name).unwrap_or_default());
    let units = match message.text("role").unwrap_or_default() {
        "user" => content_units(message.get("content"), 0),
        "assistant" => {
            message.get("content").and_then(Json::as_list).unwrap_or_default().iter().map(answer_units).sum()
        }
        "toolResult" | "custom" => content_units(message.get("content"), IMAGE_UNITS),
        "bashExecution" => text("command") + text("output"),
        "branchSummary" | "compactionSummary" => text("summary"),
        _ => 0,
    };
    units.div_ceil(UNITS_PER_TOKEN)
}

/// Estimates the tokens that an entry adds to pi's context; 0 if it adds nothing.
#[must_use]
pub fn entry_tokens(entry: &Entry) -> u64 {
    message::of_entry(entry).map_or(0, |message| tokens(&message))
}

/// Estimates the tokens of one of our messages.
#[must_use]
pub fn message_tokens(message: &Message) -> u64 {
    tokens(&super::convert::message_fields(message, Timestamp(0)))
}

fn content_units(content: Option<&Json>, image_units: u64) -> u64 {
    match content {
        Some(Json::Text(text)) => utf16_len(text),
        Some(Json::List(blocks)) => blocks
            .iter()
            .map(|block| match block.text("type") {
                Some("text") => utf16_len(block.text("text").unwrap_or_default()),
                Some("image") => image_units,
                _ => 0,
            })
            .sum(),
        _ => 0,
    }
}

fn answer_units(block: &Json) -> u64 {
    let text = |name: &str| utf16_len(block.text(name).unwrap_or_default());
    match block.text("type") {
        Some("text") => text("text"),
        Some("thinking") => text("thinking"),
        Some("toolCall") => text("name") + block.get("arguments").map_or(0, |given| utf16_len(&given.to_js_text())),
        _ => 0,
    }
}
