//! The context window of a model: the tokens available for a request and its answer together.
//!
//! Sources, most reliable first: the operator's configuration for the model, the provider's model list, a table of
//! known models, and the operator's configuration for models that none of these names. If all are missing, the caller
//! reports that instead of guessing, because a guess that is too large fails in the middle of a conversation.

use crate::model::ReportedUsage;
use reseed_protocol::{StopReason, context::RequestOptions};

/// Maximum tokens that any setting may specify: ten times the largest windows of 2026.
pub const TOKENS_MAX: u64 = 100_000_000;

/// The size of a model's window, and its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Tokens for request and answer together.
    pub tokens: u64,
    /// The source of the number.
    pub source: WindowSource,
}

/// The source of a window's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WindowSource {
    /// `MODEL_WINDOWS`, or `CONTEXT_WINDOW` for the deployment's own model.
    Configured,
    /// The provider's model list.
    Provider,
    /// The table in this file.
    Table,
    /// `CONTEXT_WINDOW`, for a model that no other source names.
    Assumed,
}

impl WindowSource {
    /// Returns the source as one word, for logs and the page.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Provider => "provider",
            Self::Table => "table",
            Self::Assumed => "assumed",
        }
    }
}

/// Looks up the window of `model`: `configured` for exactly this model, `listed` in the provider's model list (names,
/// and windows in tokens if the list has them), the table, then `assumed`. A window of 0 tokens counts as missing.
#[must_use]
pub fn resolve(
    model: &str,
    configured: Option<u64>,
    listed: &[(String, Option<u64>)],
    assumed: Option<u64>,
) -> Option<Window> {
    let from = |tokens: Option<u64>, source| tokens.filter(|&n| n > 0).map(|tokens| Window { tokens, source });
    let of = |model: &str| listed.iter().find(|(id, _)| id == model).and_then(|&(_, tokens)| tokens);
    let provider = || of(model).or_else(|| of(base_model(model)?));
    from(configured, WindowSource::Configured)
        .or_else(|| from(provider(), WindowSource::Provider))
        .or_else(|| from(known(model), WindowSource::Table))
        .or_else(|| from(assumed, WindowSource::Assumed))
}

/// Returns true if an answer's usage shows that the request did not fit although the server did not refuse it, because
/// some servers truncate silently. It is for callers that know the model's window in tokens.
///
/// - Reported input above the window: the answer was made from a truncated request.
/// - Cut off before its first token with the window practically full: there was no room for an answer.
#[must_use]
pub fn told_by_usage(stop_reason: StopReason, usage: ReportedUsage, window_tokens: u64) -> bool {
    if window_tokens == 0 {
        return false;
    }
    match stop_reason {
        StopReason::Stop => usage.input_tokens > window_tokens,
        // The limit is 99 %, because servers reserve a few tokens for themselves.
        StopReason::Length => {
            usage.output_tokens == 0 && usage.input_tokens.saturating_mul(100) >= window_tokens.saturating_mul(99)
        }
        StopReason::ToolCalls | StopReason::ContentFilter | StopReason::Cancelled => false,
    }
}

/// The smallest answer limit that servers accept; the Responses API rejects smaller ones.
const ANSWER_TOKENS_MIN: u64 = 16;

/// Caps the answer limit at what a request of this many tokens leaves in the window, because servers refuse a request
/// that exceeds the window together with its longest possible answer. Every request passes through here. Without a
/// limit, the server uses what is left.
pub fn limit_answer(options: &mut RequestOptions, sent_tokens: u64, window_tokens: u64) {
    let left = window_tokens.saturating_sub(sent_tokens).max(ANSWER_TOKENS_MIN);
    options.max_output_tokens = options.max_output_tokens.map(|asked| asked.min(left));
}

/// Returns a name without the suffix by which routers choose a variant of the same model: `name:nitro`,
/// `name@2026-01-01`. Returns `None` if there is no such suffix.
pub(crate) fn base_model(model: &str) -> Option<&str> {
    let name = model.rfind('/').map_or(0, |slash| slash + 1);
    let end = model[name..].find([':', '@'])? + name;
    (end > name).then(|| &model[..end])
}

/// Returns the table's window for a model: that of the longest entry that is a prefix of the name, because vendors
/// append dates and sizes. A router's path before the name (`openai/gpt-4o`, `models/gemini-2.0-flash`) is ignored.
fn known(model: &str) -> Option<u64> {
    let path = model.to_ascii_lowercase();
    let name = path.rsplit('/').next().unwrap_or(&path);
    KNOWN.iter().filter(|(prefix, _)| begins(name, prefix)).max_by_key(|(prefix, _)| prefix.len()).map(|&(_, n)| n)
}

/// Returns true if `name` starts with `prefix` and the prefix ends at a word boundary, so that `gpt-4` does not match
/// `gpt-4.7`. An entry that ends in a separator stands for the whole family.
fn begins(name: &str, prefix: &str) -> bool {
    let Some(rest) = name.strip_prefix(prefix) else { return false };
    prefix.ends_with(['.', '-']) || rest.is_empty() || rest.starts_with(['-', ':', '@', '_'])
}

/// Windows published by vendors, in tokens. For families with different variants, this is the smallest: a value that is
/// too small compacts early, and one that is too large fails.
const KNOWN: &[(&str, u64)] = &[
    // OpenAI.
    ("gpt-5", 400_000),
    ("gpt-5.", 400_000),
    ("gpt-5-chat", 128_000),
    ("gpt-5.1-chat", 128_000),
    ("gpt-5.2-chat", 128_000),
    ("gpt-4.5", 128_000),
    ("gpt-4.1", 1_047_576),
    ("gpt-4o", 128_000),
    ("chatgpt-4o", 128_000),
    ("gpt-4-turbo", 128_000),
    ("gpt-4-1106", 128_000),
    ("gpt-4-0125", 128_000),
    ("gpt-4-vision", 128_000),
    ("gpt-4-32k", 32_768),
    ("gpt-4", 8_192),
    ("gpt-3.5-turbo", 16_385),
    ("gpt-3.5-turbo-0613", 4_096),
    ("gpt-3.5-turbo-0301", 4_096),
    ("gpt-3.5-turbo-instruct", 4_096),
    ("o1", 200_000),
    ("o1-mini", 128_000),
    ("o1-preview", 128_000),
    ("o3", 200_000),
    ("o4-mini", 200_000),
    ("codex-mini", 200_000),
    ("gpt-oss", 131_072),
    // Other models that are often run or routed to.
    ("claude-", 200_000),
    ("deepseek-chat", 65_536),
    ("deepseek-reasoner", 65_536),
    ("gemini-1.5-", 1_048_576),
    ("gemini-2.", 1_048_576),
    ("gemma-2", 8_192),
    ("llama-3", 8_192),
    ("meta-llama-3", 8_192),
    ("llama-3.1", 131_072),
    ("meta-llama-3.1", 131_072),
    ("llama-3.2", 131_072),
    ("llama-3.3", 131_072),
    ("mistral-large", 131_072),
    ("mistral-small", 32_768),
    ("mixtral-8x7b", 32_768),
    ("mixtral-8x22b", 65_536),
    ("phi-4", 16_384),
    ("qwen2.5", 32_768),
    ("qwen3", 32_768),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_reliable_source_wins() {
        let listed = [("gpt-4o".to_owned(), Some(64_000)), ("mystery".to_owned(), None), ("zero".to_owned(), Some(0))];
        let window = |tokens, source| Some(Window { tokens, source });
        for (model, configured, assumed, expected) in [
            ("gpt-4o", Some(9_000), Some(700), window(9_000, WindowSource::Configured)),
            ("gpt-4o", Some(0), None, window(64_000, WindowSource::Provider)),
            ("gpt-4o", None, Some(700), window(64_000, WindowSource::Provider)),
            ("gpt-4.1", None, Some(700), window(1_047_576, WindowSource::Table)),
            ("mystery", None, Some(700), window(700, WindowSource::Assumed)),
            ("mystery", None, None, None),
            ("zero", None, Some(0), None),
        ] {
            let found = resolve(model, configured, &listed, assumed);
            assert_eq!(found, expected, "{model} {configured:?} {assumed:?}");
        }
    }

    #[test]
    fn a_variant_has_the_window_of_its_base() {
        let listed = [("maker/model".to_owned(), Some(9_000)), ("maker/model:long".to_owned(), Some(20_000))];
        for (model, expected) in [
            ("maker/model:nitro", Some(9_000)),
            ("maker/model@2026-01-01", Some(9_000)),
            ("maker/model:long", Some(20_000)),
            ("maker:1/model", None),
            (":free", None),
            ("maker/other:free", None),
        ] {
            assert_eq!(resolve(model, None, &listed, None).map(|window| window.tokens), expected, "{model}");
        }
    }

    #[test]
    fn an_answer_is_limited_to_what_is_left() {
        for (asked, sent, expected) in [
            (None, 500, None),
            (Some(300), 500, Some(300)),
            (Some(300), 900, Some(100)),
            (Some(300), 1_100, Some(16)),
            (Some(8), 1_100, Some(8)),
        ] {
            let mut options = RequestOptions { max_output_tokens: asked, ..RequestOptions::default() };
            limit_answer(&mut options, sent, 1_000);
            assert_eq!(options.max_output_tokens, expected, "{asked:?} {sent}");
        }
    }

    #[test]
    fn the_longest_entry_that_begins_the_name_counts() {
        for (model, expected) in [
            ("gpt-4o-mini-2024-07-18", Some(128_000)),
            ("GPT-4o", Some(128_000)),
            ("openai/gpt-4.1-nano", Some(1_047_576)),
            ("gpt-4", Some(8_192)),
            ("gpt-4-0613", Some(8_192)),
            ("gpt-4-turbo-preview", Some(128_000)),
            ("gpt-4.7", None),
            ("gpt-42", None),
            ("gpt-5-nano", Some(400_000)),
            ("gpt-5.2", Some(400_000)),
            ("gpt-5.2-chat-latest", Some(128_000)),
            ("gpt-3.5-turbo-16k", Some(16_385)),
            ("o1-mini", Some(128_000)),
            ("o3-mini", Some(200_000)),
            ("meta-llama/Llama-3.1-8B-Instruct", Some(131_072)),
            ("meta-llama/Meta-Llama-3-8B", Some(8_192)),
            ("Qwen/Qwen2.5-7B-Instruct", Some(32_768)),
            ("tiny-random", None),
            ("", None),
        ] {
            assert_eq!(known(model), expected, "{model}");
        }
    }

    #[test]
    fn the_table_is_lower_case_and_says_nothing_twice() {
        for (at, (prefix, tokens)) in KNOWN.iter().enumerate() {
            assert_eq!(*prefix, prefix.to_ascii_lowercase());
            assert!(*tokens > 0);
            assert!(!KNOWN[..at].iter().any(|(earlier, _)| earlier == prefix), "{prefix}");
        }
    }
}
