//! The tokens of a provider's own reasoning when it is sent back.
//!
//! An item holds the same reasoning in up to two forms, readable and opaque. The model is charged once, so the larger
//! form counts. Only the length of the opaque form is known.

use serde_json::Value;

/// Fields that hold the reasoning as text.
const READABLE: [&str; 4] = ["text", "thinking", "reasoning", "reasoning_content"];
/// Fields that hold it opaquely, as base64. A signature is not one of them: it is verified, not read by the model.
const SEALED: [&str; 2] = ["encrypted_content", "data"];
/// Bytes of overhead in an opaque form, as OpenAI's clients assume.
const SEAL_BYTES: u64 = 650;
/// Bytes of reasoning per token, as in English.
const BYTES_PER_TOKEN: u64 = 4;

/// Estimates the tokens of a provider's reasoning item; `count` counts a text.
pub(super) fn tokens(count: &dyn Fn(&str) -> u64, payload: &Value) -> u64 {
    let mut sum = Sum::default();
    sum.add(count, "", payload);
    sum.readable.max(sum.sealed)
}

#[derive(Default)]
struct Sum {
    readable: u64,
    sealed: u64,
}

impl Sum {
    /// Adds the value of `field`. The recursion is as deep as the item, whose depth the parser of the answer bounds.
    fn add(&mut self, count: &dyn Fn(&str) -> u64, field: &str, value: &Value) {
        match value {
            Value::String(text) if READABLE.contains(&field) => self.readable += count(text),
            Value::String(seal) if SEALED.contains(&field) => {
                let bytes = seal.len() as u64 / 4 * 3;
                self.sealed += bytes.saturating_sub(SEAL_BYTES) / BYTES_PER_TOKEN;
            }
            Value::Array(items) => items.iter().for_each(|item| self.add(count, field, item)),
            Value::Object(fields) => fields.iter().for_each(|(field, value)| self.add(count, field, value)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::context::counter::Counter;
    use serde_json::json;

    #[test]
    fn the_larger_form_of_a_thought_counts() {
        let counter = Counter::for_model("a model nobody knows");
        let words = "First I look at the clock, then at the door.";
        let summary = json!([{ "type": "summary_text", "text": words }]);
        let seal = |bytes: usize| "A".repeat(bytes);
        let cases = [
            (json!({}), 0),
            (json!(null), 0),
            (json!("words that no field names"), 0),
            (json!({ "id": "rs_1", "type": "reasoning", "summary": summary }), counter.text(words)),
            (json!({ "summary": summary, "encrypted_content": seal(4_000) }), (3_000 - 650) / 4),
            (json!({ "summary": summary, "encrypted_content": seal(40) }), counter.text(words)),
            (json!([{ "thinking": words, "signature": seal(4_000) }, { "data": null }]), counter.text(words)),
        ];
        for (payload, tokens) in cases {
            assert_eq!(super::tokens(&|text| counter.text(text), &payload), tokens, "{payload}");
        }
    }
}
