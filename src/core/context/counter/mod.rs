//! Estimates the tokens of a text, a message or a tool in the next request.
//!
//! Two methods, selected by the model's name: the model's own byte-pair tokenizer if it is known and the feature
//! `exact-tokens` is on, otherwise character weights per script. Both estimate a request, because what a provider wraps
//! around messages is not published; [`Calibration`] corrects them from reported usage. The `README.md` beside this
//! file lists the errors.
//!
//! Invariants: counting depends on its arguments only, never panics, takes linear time, and an empty text costs
//! nothing.

mod calibration;
mod characters;
#[cfg(test)]
#[cfg(feature = "exact-tokens")]
mod learning;
#[cfg(test)]
#[cfg(feature = "exact-tokens")]
mod measured;
mod mix;
mod payload;
#[cfg(feature = "exact-tokens")]
mod tokenizer;

pub use calibration::{Calibration, Report, ReportScope};
pub use mix::{Mix, SCRIPTS, Script, Scripts};

use crate::core::pi;
use reseed_protocol::{Entry, Message, Part, context::ToolDefinition};

/// Tokens around every message: a start mark, the role, a separator and an end mark. The chat templates of OpenAI's
/// models, Llama 3 and ChatML (Qwen and many others) use 4 or 5.
const MESSAGE_TOKENS: u64 = 4;

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

/// How a [`Counter`] counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// With the model's tokenizer: `o200k` or `cl100k`.
    Tokenizer(&'static str),
    /// With per-script character weights.
    Characters,
    /// As pi estimates.
    Pi,
}

/// The estimator that is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Estimator {
    /// The model's tokenizer or character weights, corrected by reported usage.
    #[default]
    Own,
    /// pi's: a quarter of the UTF-16 length; system prompt and tools are free; any earlier answer's usage is used
    /// unchanged. For comparing with pi.
    Pi,
}

/// Counts tokens for one model.
#[derive(Debug, Clone, Copy)]
pub struct Counter {
    rule: Rule,
}

#[derive(Debug, Clone, Copy)]
enum Rule {
    #[cfg(feature = "exact-tokens")]
    Tokenizer(tokenizer::Vocabulary),
    Characters,
    Pi,
}

/// Tokens of a message by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MessageTokens {
    /// Text, tool calls, tool results, and the message's framing.
    pub text: u64,
    /// Reasoning that is sent back.
    pub reasoning: u64,
    /// Images.
    pub images: u64,
    /// The written part of `text`, by script.
    pub scripts: Scripts,
    /// The framing part of `text`.
    pub frame: u32,
    /// Reasoning that no request sends back; not included in the others.
    pub unsent: u32,
}

impl MessageTokens {
    /// Returns the sum of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.text + self.reasoning + self.images
    }
}

impl Counter {
    /// Creates the counter for a model: its tokenizer if the name is known, character weights otherwise. Prefixes of
    /// routers and fine-tunes (`openai/`, `ft:`) are understood.
    #[must_use]
    pub fn for_model(model: &str) -> Self {
        #[cfg(feature = "exact-tokens")]
        if let Some(vocabulary) = tokenizer::Vocabulary::of_model(model) {
            return Self { rule: Rule::Tokenizer(vocabulary) };
        }
        let _ = model;
        Self { rule: Rule::Characters }
    }

    /// Creates the counter of an estimator for a model.
    #[must_use]
    pub fn chosen(estimator: Estimator, model: &str) -> Self {
        match estimator {
            Estimator::Own => Self::for_model(model),
            Estimator::Pi => Self { rule: Rule::Pi },
        }
    }

    /// Returns the estimator.
    #[must_use]
    pub fn estimator(&self) -> Estimator {
        if matches!(self.rule, Rule::Pi) { Estimator::Pi } else { Estimator::Own }
    }

    /// Returns the counting method.
    #[must_use]
    pub fn method(&self) -> Method {
        match self.rule {
            #[cfg(feature = "exact-tokens")]
            Rule::Tokenizer(vocabulary) => Method::Tokenizer(vocabulary.name()),
            Rule::Characters => Method::Characters,
            Rule::Pi => Method::Pi,
        }
    }

    /// Loads the tokenizer's tables now, on the calling thread, instead of on the first count. They are shared by the
    /// whole process and loaded once, which takes part of a second and about 70 MB for o200k, 30 MB for cl100k. Returns
    /// at once if they are loaded, or for character weights.
    pub fn warm(&self) {
        let _ = self.text("warm");
    }

    /// Counts the tokens of a text.
    #[must_use]
    pub fn text(&self, text: &str) -> u64 {
        match self.rule {
            #[cfg(feature = "exact-tokens")]
            Rule::Tokenizer(vocabulary) => vocabulary.count(text),
            Rule::Characters => characters::count(text),
            Rule::Pi => pi::estimate::text_tokens(text),
        }
    }

    /// Counts the tokens of a text by script; they add up to [`Self::text`].
    #[must_use]
    pub fn scripts(&self, text: &str) -> Scripts {
        let weights = characters::by_script(text);
        let tokens = match self.rule {
            Rule::Characters => characters::total(&weights),
            _ => self.text(text),
        };
        Scripts::dealt(tokens, &weights)
    }

    /// Counts the tokens of a message with its framing. Each tool result is sent as a message of its own.
    #[must_use]
    pub fn message(&self, message: &Message) -> MessageTokens {
        if self.estimator() == Estimator::Pi {
            return MessageTokens { text: pi::estimate::message_tokens(message), ..MessageTokens::default() };
        }
        let mut tokens = MessageTokens::default();
        let (mut results, mut frame) = (0, 0);
        for part in &message.content {
            match part {
                Part::Text { text } => tokens.scripts.add(&self.scripts(text)),
                Part::Image { detail, .. } => tokens.images += image(detail.as_deref()),
                Part::Reasoning { text, payload: Some(payload) } => {
                    tokens.reasoning += self.text(text).max(payload::tokens(self, payload));
                }
                // Without a payload no dialect can send it.
                Part::Reasoning { text, payload: None } => {
                    tokens.unsent = tokens.unsent.saturating_add(u32::try_from(self.text(text)).unwrap_or(u32::MAX));
                }
                Part::ToolCall { name, arguments, .. } => {
                    tokens.scripts.add(&self.scripts(name));
                    tokens.scripts.add(&self.scripts(arguments));
                    frame += TOOL_CALL_TOKENS;
                }
                Part::ToolResult { output, .. } => {
                    tokens.scripts.add(&self.scripts(output));
                    frame += TOOL_RESULT_TOKENS;
                    results += 1;
                }
            }
        }
        frame += MESSAGE_TOKENS * results.max(1);
        tokens.frame = u32::try_from(frame).unwrap_or(u32::MAX);
        tokens.text = tokens.scripts.total() + frame;
        tokens
    }

    /// Returns the part of a message that a model writes as its answer: everything except the message's framing.
    #[must_use]
    pub fn written(&self, tokens: &MessageTokens) -> Mix {
        let frame = tokens.frame.saturating_sub(u32::try_from(MESSAGE_TOKENS).unwrap_or(u32::MAX));
        let mut mix = Mix::of_text(&tokens.scripts);
        mix.add_frame(u64::from(frame));
        mix
    }

    /// Counts the tokens of an entry that appears in a context as this message; zero without one.
    #[must_use]
    pub fn entry(&self, entry: &Entry, message: Option<&Message>) -> MessageTokens {
        match (message, self.estimator()) {
            (None, _) => MessageTokens::default(),
            (Some(message), Estimator::Own) => self.message(message),
            (Some(_), Estimator::Pi) => {
                MessageTokens { text: pi::estimate::entry_tokens(entry), ..MessageTokens::default() }
            }
        }
    }

    /// Counts the tokens of the system prompt with its framing; 0 for an empty one, which is not sent.
    #[must_use]
    pub fn system(&self, compiled: &str) -> u64 {
        if compiled.is_empty() || self.estimator() == Estimator::Pi { 0 } else { self.text(compiled) + MESSAGE_TOKENS }
    }

    /// Counts the tokens of a tool definition: its JSON text and framing.
    #[must_use]
    pub fn tool(&self, tool: &ToolDefinition) -> u64 {
        if self.estimator() == Estimator::Pi {
            return 0;
        }
        self.text(&tool.name)
            + self.text(&tool.description)
            + self.text(&tool.parameters.to_string())
            + TOOL_DEFINITION_TOKENS
    }

    /// Returns the tokens of every request besides system prompt, tools and messages.
    #[must_use]
    pub fn request_overhead(&self) -> u64 {
        if self.estimator() == Estimator::Pi { 0 } else { ANSWER_START_TOKENS }
    }
}

/// Returns the tokens of an image by its detail setting. Its URL is never counted as text, however long.
fn image(detail: Option<&str>) -> u64 {
    if detail == Some("low") { IMAGE_LOW_TOKENS } else { IMAGE_TOKENS }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reseed_protocol::Role;
    use serde_json::{Value, json};

    fn parts(parts: Value) -> Message {
        Message::new(Role::Assistant, serde_json::from_value(parts).unwrap())
    }

    #[test]
    fn every_kind_of_part_has_its_price() {
        let counter = Counter::for_model("a model nobody knows");
        let text = |text: &str| counter.text(text);
        let sealed = |bytes: usize| json!({ "type": "reasoning", "encrypted_content": "A".repeat(bytes) });
        let long = format!("data:image/png;base64,{}", "A".repeat(100_000));
        let cases = [
            (json!([]), (4, 0, 0)),
            (json!([{ "type": "text", "text": "Good morning" }]), (4 + text("Good morning"), 0, 0)),
            (json!([{ "type": "image", "url": "https://a.example/b.png", "detail": "low" }]), (4, 0, 85)),
            (json!([{ "type": "image", "url": "https://a.example/b.png", "detail": "high" }]), (4, 0, 1_105)),
            (json!([{ "type": "image", "url": long }]), (4, 0, 1_105)),
            (json!([{ "type": "reasoning", "text": "I wonder." }]), (4, 0, 0)),
            (
                json!([{ "type": "reasoning", "text": "I wonder.", "payload": { "id": "rs_1" } }]),
                (4, text("I wonder."), 0),
            ),
            (json!([{ "type": "reasoning", "text": "", "payload": sealed(10_000) }]), (4, 1_712, 0)),
            (json!([{ "type": "reasoning", "text": "", "payload": sealed(400) }]), (4, 0, 0)),
            (
                json!([{ "type": "tool_call", "callId": "c1", "name": "read", "arguments": "{\"path\":\"a.txt\"}" }]),
                (4 + text("read") + text("{\"path\":\"a.txt\"}") + 10, 0, 0),
            ),
            (
                json!([
                    { "type": "tool_result", "callId": "c1", "output": "one" },
                    { "type": "tool_result", "callId": "c2", "output": "", "isError": true },
                ]),
                (2 * (4 + 4) + text("one"), 0, 0),
            ),
        ];
        for (content, (text, reasoning, images)) in cases {
            let tokens = counter.message(&parts(content.clone()));
            assert_eq!((tokens.text, tokens.reasoning, tokens.images), (text, reasoning, images), "{content}");
            assert_eq!(tokens.total(), text + reasoning + images);
        }
    }

    #[test]
    fn an_empty_system_prompt_costs_nothing_and_a_tool_costs_its_json() {
        let counter = Counter::for_model("a model nobody knows");
        assert_eq!(counter.text(""), 0);
        assert_eq!(counter.system(""), 0);
        assert_eq!(counter.system("Be brief."), counter.text("Be brief.") + 4);
        let parameters = json!({ "type": "object", "properties": { "path": { "type": "string" } } });
        let tool = |parameters| ToolDefinition { name: "read".into(), description: "Reads a file".into(), parameters };
        let small = counter.tool(&tool(json!({})));
        let whole = counter.tool(&tool(parameters.clone()));
        assert_eq!(whole - small, counter.text(&parameters.to_string()) - counter.text("{}"));
    }

    #[cfg(not(feature = "exact-tokens"))]
    #[test]
    fn without_the_feature_every_model_is_counted_by_characters() {
        assert_eq!(Counter::for_model("gpt-4o").method(), Method::Characters);
    }

    #[cfg(feature = "exact-tokens")]
    #[test]
    fn a_known_model_is_counted_with_its_tokenizer() {
        assert_eq!(Counter::for_model("gpt-4o").method(), Method::Tokenizer("o200k"));
        assert_eq!(Counter::for_model("gpt-4").method(), Method::Tokenizer("cl100k"));
        assert_eq!(Counter::for_model("llama-3.1-8b").method(), Method::Characters);
        // Figures from OpenAI's cookbook.
        assert_eq!(Counter::for_model("gpt-4o").text("お誕生日おめでとう"), 8);
        assert_eq!(Counter::for_model("gpt-4").text("お誕生日おめでとう"), 9);
    }
}
