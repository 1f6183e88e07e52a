//! Reads the usage report of an answer, which every server fills differently.

use crate::{
    core::model::ReportedUsage,
    provider::upstream::{Count, lax},
};
use serde::Deserialize;

/// The usage report, under every name that a server of either API may use.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Usage {
    #[serde(deserialize_with = "lax")]
    prompt_tokens: Option<Count>,
    #[serde(deserialize_with = "lax")]
    input_tokens: Option<Count>,
    #[serde(deserialize_with = "lax")]
    completion_tokens: Option<Count>,
    #[serde(deserialize_with = "lax")]
    output_tokens: Option<Count>,
    #[serde(deserialize_with = "lax")]
    prompt_tokens_details: Option<InputDetails>,
    #[serde(deserialize_with = "lax")]
    input_tokens_details: Option<InputDetails>,
    #[serde(deserialize_with = "lax")]
    completion_tokens_details: Option<OutputDetails>,
    #[serde(deserialize_with = "lax")]
    output_tokens_details: Option<OutputDetails>,
    /// DeepSeek's field for cached tokens.
    #[serde(deserialize_with = "lax")]
    prompt_cache_hit_tokens: Option<Count>,
    /// Anthropic's fields, which some proxies keep.
    #[serde(deserialize_with = "lax")]
    cache_read_input_tokens: Option<Count>,
    #[serde(deserialize_with = "lax")]
    cache_creation_input_tokens: Option<Count>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct InputDetails {
    #[serde(deserialize_with = "lax")]
    cached_tokens: Option<Count>,
    #[serde(deserialize_with = "lax")]
    cache_write_tokens: Option<Count>,
    #[serde(deserialize_with = "lax")]
    cache_creation_tokens: Option<Count>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OutputDetails {
    #[serde(deserialize_with = "lax")]
    reasoning_tokens: Option<Count>,
}

impl Usage {
    /// Returns the usage, unless all counts are absent or 0.
    pub(super) fn reported(self) -> Option<ReportedUsage> {
        let input = self.input_tokens.or(self.prompt_tokens);
        let output = self.output_tokens.or(self.completion_tokens);
        let tokens = |count: Option<Count>| count.map(|count| count.0);
        let input_details = self.input_tokens_details.or(self.prompt_tokens_details);
        let has_details = input_details.is_some();
        let input_details = input_details.unwrap_or_default();
        let output_details = self.output_tokens_details.or(self.completion_tokens_details).unwrap_or_default();
        let (mut input_tokens, output_tokens) = (input.map_or(0, |n| n.0), output.map_or(0, |n| n.0));
        let cached =
            tokens(input_details.cached_tokens.or(self.prompt_cache_hit_tokens).or(self.cache_read_input_tokens));
        let creation = input_details.cache_creation_tokens.or(self.cache_creation_input_tokens);
        let written = tokens(input_details.cache_write_tokens.or(creation));
        // Anthropic does not include tokens read from and written to its cache in `input_tokens`. Proxies that call the
        // number `prompt_tokens` have added them, unless the number is smaller than its parts.
        let parts = cached.unwrap_or(0) + written.unwrap_or(0);
        let is_anthropic = self.cache_read_input_tokens.or(self.cache_creation_input_tokens).is_some() && !has_details;
        if is_anthropic && (self.prompt_tokens.is_none() || input_tokens < parts) {
            input_tokens += parts;
        }
        if input_tokens == 0 && output_tokens == 0 {
            return None;
        }
        Some(ReportedUsage {
            input_tokens,
            cached_tokens: cached,
            cache_write_tokens: written,
            output_tokens,
            reasoning_tokens: output_details.reasoning_tokens.map(|n| n.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(json: &str) -> Option<ReportedUsage> {
        serde_json::from_str::<Usage>(json).unwrap().reported()
    }

    #[test]
    fn usage_is_read_in_every_shape() {
        let plain = ReportedUsage { input_tokens: 9, output_tokens: 8, ..ReportedUsage::default() };
        for (json, expected) in [
            (r#"{"prompt_tokens":9,"completion_tokens":8,"total_tokens":17}"#, Some(plain)),
            (r#"{"input_tokens":9,"output_tokens":8}"#, Some(plain)),
            (r#"{"input_tokens":9,"output_tokens":8,"prompt_tokens":1,"completion_tokens":1}"#, Some(plain)),
            (
                r#"{"input_tokens":9.0,"output_tokens":8.0,"input_tokens_details":null,"output_tokens_details":[]}"#,
                Some(plain),
            ),
            (
                r#"{"input_tokens":9,"input_tokens_details":{"cached_tokens":7,"cache_write_tokens":2},"output_tokens":8,"output_tokens_details":{"reasoning_tokens":3}}"#,
                Some(ReportedUsage {
                    cached_tokens: Some(7),
                    cache_write_tokens: Some(2),
                    reasoning_tokens: Some(3),
                    ..plain
                }),
            ),
            (
                r#"{"prompt_tokens":9,"completion_tokens":8,"prompt_cache_hit_tokens":4,"prompt_tokens_details":{"cached_tokens":null}}"#,
                Some(ReportedUsage { cached_tokens: Some(4), ..plain }),
            ),
            // Anthropic's numbers, in original form and as summed up by proxies.
            (
                r#"{"input_tokens":2,"output_tokens":8,"cache_read_input_tokens":4,"cache_creation_input_tokens":3}"#,
                Some(ReportedUsage { cached_tokens: Some(4), cache_write_tokens: Some(3), ..plain }),
            ),
            (
                r#"{"prompt_tokens":9,"completion_tokens":8,"cache_read_input_tokens":4,"cache_creation_input_tokens":3}"#,
                Some(ReportedUsage { cached_tokens: Some(4), cache_write_tokens: Some(3), ..plain }),
            ),
            (
                r#"{"prompt_tokens":2,"completion_tokens":8,"cache_read_input_tokens":4,"cache_creation_input_tokens":3}"#,
                Some(ReportedUsage { cached_tokens: Some(4), cache_write_tokens: Some(3), ..plain }),
            ),
            (
                r#"{"prompt_tokens":9,"completion_tokens":8,"prompt_tokens_details":{"cached_tokens":4,"cache_creation_tokens":3},"cache_creation_input_tokens":3}"#,
                Some(ReportedUsage { cached_tokens: Some(4), cache_write_tokens: Some(3), ..plain }),
            ),
            (r#"{"prompt_tokens":0,"completion_tokens":0}"#, None),
            (r#"{"prompt_tokens":"many","completion_tokens":-1}"#, None),
            ("{}", None),
        ] {
            assert_eq!(usage(json), expected, "{json}");
        }
    }
}
