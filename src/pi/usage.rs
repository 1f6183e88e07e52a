//! The size of a context by pi's rule: the newest reported usage plus an estimate of everything after it.

use super::{
    estimate,
    json::{Json, Object},
};

/// The size of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextTokens {
    /// The total.
    pub tokens: u64,
    /// The reported part.
    pub usage_tokens: u64,
    /// The estimated part.
    pub trailing_tokens: u64,
    /// The index of the message whose usage was used.
    pub last_usage_index: Option<usize>,
}

/// Returns the size of a context.
///
/// As in pi, every report counts, even one from before a compaction. A report of all zeros makes the context look
/// empty.
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

/// Returns the usage that an answer reported, if it succeeded and reported any.
#[must_use]
pub fn answer_usage(message: &Object) -> Option<u64> {
    let counts = message.text("role") == Some("assistant") && !super::convert::has_failed(message);
    counts.then(|| message.get("usage")).flatten().filter(|usage| **usage != Json::Null).map(usage_tokens)
}

/// Returns the total of a usage report, or the sum of its parts if it has no total.
#[must_use]
pub fn usage_tokens(usage: &Json) -> u64 {
    let tokens = |name: &str| usage.get(name).and_then(Json::as_u64).unwrap_or(0);
    match tokens("totalTokens") {
        0 => ["input", "output", "cacheRead", "cacheWrite"].into_iter().map(tokens).sum(),
        total => total,
    }
}
