//! A context as pi gives it again to one model: what other models thought becomes plain text.

use super::json::{Json, Object};

/// The model that is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target<'a> {
    /// Its provider.
    pub provider: &'a str,
    /// The provider's API.
    pub api: &'a str,
    /// Its name.
    pub model: &'a str,
}

/// An answer as this model is given it again.
#[must_use]
pub fn answer_for(message: &Object, target: Target<'_>) -> Object {
    let own = message.text("provider") == Some(target.provider)
        && message.text("api") == Some(target.api)
        && message.text("model") == Some(target.model);
    let content = message.get("content").and_then(Json::as_list).unwrap_or_default();
    let content: Vec<Json> = content.iter().filter_map(|block| block_for(block, own)).collect();
    let mut message = message.clone();
    message.set("content", content);
    message
}

fn block_for(block: &Json, own: bool) -> Option<Json> {
    if block.text("type") != Some("thinking") {
        return Some(block.clone());
    }
    let signed = block.text("thinkingSignature").is_some_and(|signature| !signature.is_empty());
    let thought = block.text("thinking").unwrap_or_default();
    if block.get("redacted").and_then(Json::as_bool) == Some(true) {
        return own.then(|| block.clone());
    }
    if own && signed {
        return Some(block.clone());
    }
    if thought.trim().is_empty() {
        return None;
    }
    if own {
        return Some(block.clone());
    }
    Some(Json::object([("type", "text".into()), ("text", thought.into())]))
}
