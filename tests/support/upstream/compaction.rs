//! Compactions by the server, sealed in OpenAI's form and in Anthropic's.

use super::{Api, Asked, reply::Reply};
use serde_json::{Value, json};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// The bytes of an item that say nothing, so that a count of them would be noticed.
const PADDING: usize = 8_000;

fn checksum(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Returns a text in a form that only its server reads.
pub(super) fn sealed(text: &str) -> String {
    let bytes: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("gAAAA{}{bytes}.{}", checksum(text), "A".repeat(PADDING))
}

/// Returns the text in a compaction; `None` if it was changed.
pub(crate) fn unsealed(item: &Value) -> Option<String> {
    let (seal, padding) = item["encrypted_content"].as_str()?.strip_prefix("gAAAA")?.split_once('.')?;
    let (sum, bytes) = seal.split_at_checked(16)?;
    let bytes: Option<Vec<u8>> =
        (0..bytes.len() / 2).map(|at| u8::from_str_radix(bytes.get(2 * at..2 * at + 2)?, 16).ok()).collect();
    let text = String::from_utf8(bytes?).ok()?;
    let is_whole = checksum(&text) == sum && padding.len() == PADDING;
    let is_readable = item["content"].as_str().is_none_or(|content| content == text);
    let is_signed = item["content"].is_null() || item["signature"] == format!("sig_{sum}");
    (is_whole && is_readable && is_signed).then_some(text)
}

impl Reply {
    /// Returns the compaction that a request asks for, with this text. OpenAI's server keeps a message beside it.
    pub(crate) fn compaction(asked: &Asked, text: &str) -> Self {
        Self::compactions(asked, &[text])
    }

    /// Returns an answer with these compactions.
    pub(crate) fn compactions(asked: &Asked, texts: &[&str]) -> Self {
        let output_tokens: usize = texts.iter().map(|text| text.len() / 4).sum();
        if asked.api == Api::Responses {
            let item = |text: &&str| json!({ "type": "compaction", "id": "cmp_1", "encrypted_content": sealed(text) });
            let kept = json!({ "type": "message", "id": "kept_0", "role": "user",
                "content": [{ "type": "input_text", "text": "I keep this." }] });
            let output: Vec<Value> = std::iter::once(kept).chain(texts.iter().map(item)).collect();
            let usage = json!({ "input_tokens": asked.tokens, "output_tokens": output_tokens,
                "total_tokens": asked.tokens + output_tokens as u64, "input_tokens_details": { "cached_tokens": 7 } });
            let body = json!({ "id": "resp_2", "object": "response.compaction", "created_at": 1, "output": output,
                "error": null, "usage": usage });
            return Self::json(200, &body);
        }
        let message = json!({ "id": "msg_2", "type": "message", "role": "assistant", "model": "test-model",
            "content": [], "stop_reason": null, "usage": { "input_tokens": 0, "output_tokens": 0 } });
        let mut events = vec![json!({ "type": "message_start", "message": message })];
        for (index, text) in texts.iter().enumerate() {
            let block = json!({ "type": "compaction", "content": text, "encrypted_content": sealed(text),
                "signature": format!("sig_{}", checksum(text)) });
            events.push(json!({ "type": "content_block_start", "index": index, "content_block": block }));
            events.push(json!({ "type": "content_block_stop", "index": index }));
        }
        let pass = json!({ "type": "compaction", "input_tokens": asked.tokens, "output_tokens": output_tokens });
        let reason = if texts.is_empty() { "end_turn" } else { "compaction" };
        events.push(json!({ "type": "message_delta", "delta": { "stop_reason": reason },
            "usage": { "input_tokens": 0, "output_tokens": 0, "iterations": [pass] } }));
        events.push(json!({ "type": "message_stop" }));
        let text = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
        Self::Stream(events.iter().map(text).collect(), Vec::new())
    }
}
