//! The rules of an estimate: the price of a text, the framing around it, and the weight of a provider's reports.

use super::{
    characters,
    mix::{MessageTokens, Scripts},
    payload,
};
use crate::context::arguments::{sent_arguments, sent_name};
use reseed_protocol::{Entry, Message, Part, context::ToolDefinition};
use std::fmt;

/// Tokens around every message: a start mark, the role, a separator and an end mark. The chat templates of OpenAI's
/// models, Llama 3 and ChatML (Qwen and many others) use 4 or 5.
pub(super) const MESSAGE_TOKENS: u64 = 4;

/// Tokens that start the answer at the end of a request: start mark, role, separator.
const ANSWER_START_TOKENS: u64 = 3;

/// Tokens around a tool call's name and arguments: the marks of the call and the keys of both.
const TOOL_CALL_TOKENS: u64 = 10;

/// Tokens around a tool result besides the message's own: the tool's name. Common templates do not show call ids to the
/// model, so these are not counted.
const TOOL_RESULT_TOKENS: u64 = 4;

/// Tokens around a tool definition's JSON: the `{"type":"function","function":…}` that open models receive. OpenAI's
/// models receive a shorter notation, for which JSON plus this is an upper estimate.
const TOOL_DEFINITION_TOKENS: u64 = 10;

/// Tokens of an image with `detail: low`: the base price of an image for GPT-4o in OpenAI's vision guide
/// (<https://platform.openai.com/docs/guides/images-vision>).
const IMAGE_LOW_TOKENS: u64 = 85;

/// Tokens of any other image. Its size is unknown (URLs are not fetched, `data:` URLs not decoded), so this is the
/// guide's example of a large one, 2048 × 4096 pixels: six tiles of 170 plus the base price of 85. A small image costs
/// a quarter of it, the largest possible 1,445.
const IMAGE_TOKENS: u64 = 6 * 170 + IMAGE_LOW_TOKENS;

/// The method of an estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// With the model's tokenizer: `o200k` or `cl100k`.
    Tokenizer(&'static str),
    /// With per-script character weights.
    Characters,
    /// By named rules from outside the core.
    Named(&'static str),
}

impl Method {
    /// Returns the method's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tokenizer(name) | Self::Named(name) => name,
            Self::Characters => "characters",
        }
    }
}

/// The rules by which tokens are estimated. Our own rules charge for everything that is sent and check every report;
/// they differ only in how they count a text. A deployment may use other rules: an implementation overrides whatever
/// differs.
pub trait TokenEstimate: fmt::Debug + Send + Sync {
    /// Returns the counting method. Counts of one method are never compared with those of another.
    fn method(&self) -> Method;

    /// Counts the tokens of a text.
    fn text(&self, text: &str) -> u64;

    /// Counts the tokens of a text by script; they add up to [`Self::text`].
    fn scripts(&self, text: &str) -> Scripts {
        Scripts::dealt(self.text(text), &characters::by_script(text))
    }

    /// Counts the tokens of a message with its framing. Each tool result is sent as a message of its own.
    fn message(&self, message: &Message) -> MessageTokens {
        let mut tokens = MessageTokens::default();
        let (mut results, mut frame) = (0, 0);
        let goes_back = message.payload.as_ref().is_some_and(|payload| payload.reasoning.is_some());
        for part in &message.content {
            match part {
                Part::Text { text } => tokens.scripts.add(&self.scripts(text)),
                Part::Image { detail, .. } => tokens.images += image(detail.as_deref()),
                Part::Reasoning { text, payload: Some(payload) } => {
                    let payload = payload::tokens(&|text| self.text(text), payload);
                    tokens.reasoning += self.text(text).max(payload);
                }
                Part::Reasoning { text, payload: None } if goes_back => tokens.reasoning += self.text(text),
                // Without a payload no dialect can send it.
                Part::Reasoning { text, payload: None } => {
                    tokens.unsent = tokens.unsent.saturating_add(u32::try_from(self.text(text)).unwrap_or(u32::MAX));
                }
                Part::ToolCall { name, arguments, .. } => {
                    tokens.scripts.add(&self.scripts(&sent_name(name)));
                    tokens.scripts.add(&self.scripts(&sent_arguments(arguments)));
                    frame += TOOL_CALL_TOKENS;
                }
                Part::ToolResult { output, .. } => {
                    tokens.scripts.add(&self.scripts(output));
                    frame += TOOL_RESULT_TOKENS;
                    results += 1;
                }
            }
        }
        if let Some(fields) = message.payload.as_ref().and_then(|payload| payload.fields.as_deref()) {
            let fields = serde_json::from_str(fields).unwrap_or_default();
            tokens.reasoning = tokens.reasoning.max(payload::tokens(&|text| self.text(text), &fields));
        }
        frame += MESSAGE_TOKENS * results.max(1);
        tokens.frame = u32::try_from(frame).unwrap_or(u32::MAX);
        tokens.text = tokens.scripts.total() + frame;
        tokens
    }

    /// Counts the tokens of an entry that a context shows as this message.
    fn entry(&self, _entry: &Entry, message: &Message) -> MessageTokens {
        self.message(message)
    }

    /// Counts the tokens of the system prompt with its framing; 0 for an empty one, which is not sent.
    fn system(&self, compiled: &str) -> u64 {
        if compiled.is_empty() { 0 } else { self.text(compiled) + MESSAGE_TOKENS }
    }

    /// Counts the tokens of a tool definition: its JSON text and framing.
    fn tool(&self, tool: &ToolDefinition) -> u64 {
        self.text(&tool.name)
            + self.text(&tool.description)
            + self.text(&tool.parameters.to_string())
            + TOOL_DEFINITION_TOKENS
    }

    /// Returns the tokens of every request besides its system prompt, tools and messages.
    fn request_overhead(&self) -> u64 {
        ANSWER_START_TOKENS
    }

    /// Returns true if the newest usage that a complete answer reported is used unchanged, whatever was sent before
    /// that answer; it then corrects no estimates. Otherwise a report counts only if it is plausible and belongs to
    /// exactly what was sent; it then also corrects later estimates.
    fn trusts_reports(&self) -> bool {
        false
    }

    /// Returns the `tokensBefore` that a compaction's entry records. `counted` is the count of the next request;
    /// `remaining` are the entries that the previous compaction left on the path.
    fn tokens_before(&self, counted: u64, _remaining: &mut dyn Iterator<Item = &Entry>) -> u64 {
        counted
    }
}

/// Returns the tokens of an image by its detail setting. Its URL is never counted as text, however long.
fn image(detail: Option<&str>) -> u64 {
    if detail == Some("low") { IMAGE_LOW_TOKENS } else { IMAGE_TOKENS }
}
