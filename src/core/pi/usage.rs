//! pi's size of a context: what the newest answer reported, and an estimate of what came after it.

use super::{
    estimate,
    json::{Json, Object},
};

/// The size of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextTokens {
    /// All of it.
    pub tokens: u64,
    /// Of it, what was reported.
    pub usage_tokens: u64,
    /// Of it, what was estimated.
    pub trailing_tokens: u64,
    /// Whose report was used: a place in the list of messages.
    pub last_usage_index: Option<usize>,
}

/// The size of the context that these messages are.
///
/// As in pi every report counts, also one from before a compaction, and one of zeros makes the context look empty.
#[must_use]
pub fn context_tokens(messages: &[Object]) -> ContextTokens {
    let reported = messages.iter().enumerate().rev().find_map(|(at, message)| Some((at, answer_usage(message)?)));
    let (rest, usage_tokens) = reported.map_or((messages, 0), |(at, usage)| (&messages[at + 1..], usage));
    let trailing_tokens = rest.iter().map(estimate::tokens).sum();
    ContextTokens {
        tokens: usage_tokens + trailing_tokens,
        usage_tokens,
        trailing_tokens,
        last_usage_index: reported.map(|(at, _)| at),
    }
}

/// What an answer reported, where it ended well and reported anything.
#[must_use]
pub fn answer_usage(message: &Object) -> Option<u64> {
    let counts = message.text("role") == Some("assistant") && !super::convert::has_failed(message);
    counts.then(|| message.get("usage")).flatten().filter(|usage| **usage != Json::Null).map(usage_tokens)
}

/// A report's total; its parts added up where it has none.
#[must_use]
pub fn usage_tokens(usage: &Json) -> u64 {
    let tokens = |name: &str| usage.get(name).and_then(Json::as_u64).unwrap_or(0);
    match tokens("totalTokens") {
        0 => ["input", "output", "cacheRead", "cacheWrite"].into_iter().map(tokens).sum(),
        total => total,
    }
}
