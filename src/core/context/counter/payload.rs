//! What a provider's own reasoning item costs when it is sent back.
//!
//! An item holds the same thought in up to two forms, readable and sealed; the model is charged for it once, so the
//! larger form counts. What the sealed form holds cannot be read, only its length.

use super::Counter;
use serde_json::Value;

/// Fields that hold the thought in words.
const READABLE: [&str; 4] = ["text", "thinking", "reasoning", "reasoning_content"];
/// Fields that hold it sealed, as base64. A signature is not one of them: it is checked, not read by the model.
const SEALED: [&str; 2] = ["encrypted_content", "data"];
/// Bytes of a sealed thought that are seal, not thought, as OpenAI's clients reckon them.
const SEAL_BYTES: u64 = 650;
/// Bytes of thought a token: what English takes.
const BYTES_PER_TOKEN: u64 = 4;

/// Tokens of a provider's reasoning item.
pub(super) fn tokens(counter: &Counter, payload: &Value) -> u64 {
    let mut sum = Sum::default();
    sum.add(counter, "", payload);
    sum.readable.max(sum.sealed)
}

#[derive(Default)]
struct Sum {
    readable: u64,
    sealed: u64,
}

impl Sum {
    /// Adds what stands under `field`. As deep as the item, whose depth the reader of the answer bounds.
    fn add(&mut self, counter: &Counter, field: &str, value: &Value) {
        match value {
            Value::String(text) if READABLE.contains(&field) => self.readable += counter.text(text),
            Value::String(seal) if SEALED.contains(&field) => {
                let bytes = seal.len() as u64 / 4 * 3;
                self.sealed += bytes.saturating_sub(SEAL_BYTES) / BYTES_PER_TOKEN;
            }
            Value::Array(items) => items.iter().for_each(|item| self.add(counter, field, item)),
            Value::Object(fields) => fields.iter().for_each(|(field, value)| self.add(counter, field, value)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
            assert_eq!(super::tokens(&counter, &payload), tokens, "{payload}");
        }
    }
}
