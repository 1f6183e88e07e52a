//! Reads the usage report of an answer, which every server fills differently.

use crate::{core::model::ReportedUsage, provider::upstream::Object};

/// Returns the usage in a report of either API, unless all counts are absent or 0.
pub(super) fn usage(report: &Object<'_>) -> Option<ReportedUsage> {
    let first = |names: [&str; 2]| names.into_iter().find_map(|name| report.count(name));
    let details = |names: [&str; 2]| names.into_iter().find_map(|name| report.object(name));
    let input_details = details(["input_tokens_details", "prompt_tokens_details"]);
    let output_details = details(["output_tokens_details", "completion_tokens_details"]);
    let detail = |name| input_details.as_ref().and_then(|details| details.count(name));
    let prompt_tokens = report.count("prompt_tokens");
    let mut input_tokens = report.count("input_tokens").or(prompt_tokens).unwrap_or(0);
    let output_tokens = first(["output_tokens", "completion_tokens"]).unwrap_or(0);
    // DeepSeek and Anthropic have fields of their own, and some proxies keep Anthropic's.
    let (read, created) = (report.count("cache_read_input_tokens"), report.count("cache_creation_input_tokens"));
    let cached_tokens = detail("cached_tokens").or_else(|| report.count("prompt_cache_hit_tokens")).or(read);
    let cache_write_tokens = detail("cache_write_tokens").or_else(|| detail("cache_creation_tokens")).or(created);
    // Anthropic does not include tokens read from and written to its cache in `input_tokens`. Proxies that call the
    // number `prompt_tokens` have added them, unless the number is smaller than its parts.
    let parts = cached_tokens.unwrap_or(0) + cache_write_tokens.unwrap_or(0);
    let is_anthropic = read.or(created).is_some() && input_details.is_none();
    if is_anthropic && (prompt_tokens.is_none() || input_tokens < parts) {
        input_tokens += parts;
    }
    let reasoning_tokens = output_details.and_then(|details| details.count("reasoning_tokens"));
    let reported = ReportedUsage {
        input_tokens,
        cached_tokens,
        cache_write_tokens,
        output_tokens,
        reasoning_tokens,
        ..ReportedUsage::default()
    };
    (input_tokens > 0 || output_tokens > 0).then_some(reported)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Option<ReportedUsage> {
        usage(&Object::read(json).unwrap())
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
            assert_eq!(read(json), expected, "{json}");
        }
    }
}
