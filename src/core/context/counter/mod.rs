//! Estimates the tokens of a text, a message or a tool in the next request.
//!
//! [`TokenEstimate`] defines the rules. There are two built-in methods of counting a text, selected by the model's
//! name: the model's own byte-pair tokenizer if it is known and the feature `exact-tokens` is on, otherwise character
//! weights per script. Both only estimate a request, because providers do not publish what they wrap around messages;
//! [`Calibration`] corrects them from reported usage. The `README.md` beside this file lists the errors.
//!
//! Invariants: counting depends on its arguments only, never panics, takes linear time, and an empty text costs
//! nothing.

mod calibration;
mod characters;
mod estimate;
#[cfg(feature = "exact-tokens")]
mod lately;
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
pub use estimate::{Method, TokenEstimate};
pub use mix::{MessageTokens, Mix, SCRIPTS, Script, Scripts};

use estimate::MESSAGE_TOKENS;
use reseed_protocol::{Entry, Message, context::ToolDefinition};
use std::ops::Deref;

/// Counts tokens for one model, by the rules of an estimate.
#[derive(Debug, Clone, Copy)]
pub struct Counter(&'static dyn TokenEstimate);

/// Selects the counter of a model: [`Counter::for_model`], unless a deployment counts by other rules.
pub type CounterOf = fn(model: &str) -> Counter;

impl Counter {
    /// Creates the counter for a model: its tokenizer if the name is known, character weights otherwise. Prefixes of
    /// routers and fine-tunes (`openai/`, `ft:`) are understood.
    #[must_use]
    pub fn for_model(model: &str) -> Self {
        #[cfg(feature = "exact-tokens")]
        if let Some(vocabulary) = tokenizer::Vocabulary::of_model(model) {
            return Self(vocabulary);
        }
        let _ = model;
        Self::by_characters()
    }

    /// Creates the counter that needs no tables, for any model.
    #[must_use]
    pub fn by_characters() -> Self {
        Self(&Characters)
    }

    /// Creates a counter with other rules.
    #[must_use]
    pub const fn by_rules_of(estimate: &'static dyn TokenEstimate) -> Self {
        Self(estimate)
    }

    /// Unpacks the tokenizer's tables now, on the calling thread, instead of on the first count. The whole process
    /// shares them. This takes about a tenth of a second, and 20 MB for o200k or 10 MB for cl100k. Returns at once if
    /// they are already unpacked, or for character weights.
    pub fn warm(&self) {
        let _ = self.text("warm");
    }

    /// Returns the part of a message that a model writes as its answer: everything except the message's framing.
    #[must_use]
    pub fn written(&self, tokens: &MessageTokens) -> Mix {
        let frame = tokens.frame.saturating_sub(u32::try_from(MESSAGE_TOKENS).unwrap_or(u32::MAX));
        let mut mix = Mix::of_text(&tokens.scripts);
        mix.add_frame(u64::from(frame));
        mix
    }

    /// Counts the tokens of a tool definition as a provider's report includes them, even if these rules count it as
    /// free.
    #[must_use]
    pub fn tool_in_reports(&self, tool: &ToolDefinition) -> u64 {
        match self.tool(tool) {
            0 => self.text(&tool.name) + self.text(&tool.description) + self.text(&tool.parameters.to_string()),
            tokens => tokens,
        }
    }

    /// Counts the tokens of an entry that appears in a context as this message; zero if it does not appear.
    #[must_use]
    pub fn entry(&self, entry: &Entry, message: Option<&Message>) -> MessageTokens {
        message.map_or_else(MessageTokens::default, |message| self.0.entry(entry, message))
    }
}

impl Deref for Counter {
    type Target = dyn TokenEstimate;

    fn deref(&self) -> &Self::Target {
        self.0
    }
}

/// The built-in estimate with per-script character weights.
#[derive(Debug)]
struct Characters;

impl TokenEstimate for Characters {
    fn method(&self) -> Method {
        Method::Characters
    }

    fn text(&self, text: &str) -> u64 {
        characters::count(text)
    }

    fn scripts(&self, text: &str) -> Scripts {
        let weights = characters::by_script(text);
        Scripts::dealt(characters::total(&weights), &weights)
    }
}

/// The built-in estimate with the model's tokenizer.
#[cfg(feature = "exact-tokens")]
impl TokenEstimate for tokenizer::Vocabulary {
    fn method(&self) -> Method {
        Method::Tokenizer(self.name())
    }

    fn text(&self, text: &str) -> u64 {
        self.count(text)
    }
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
                json!([{ "type": "tool_call", "toolCallId": "c1", "name": "read", "arguments": "{\"path\":\"a.txt\"}" }]),
                (4 + text("read") + text("{\"path\":\"a.txt\"}") + 10, 0, 0),
            ),
            (
                json!([
                    { "type": "tool_result", "toolCallId": "c1", "output": "one" },
                    { "type": "tool_result", "toolCallId": "c2", "output": "", "isError": true },
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
        // The figures are from OpenAI's cookbook.
        assert_eq!(Counter::for_model("gpt-4o").text("お誕生日おめでとう"), 8);
        assert_eq!(Counter::for_model("gpt-4").text("お誕生日おめでとう"), 9);
    }
}
