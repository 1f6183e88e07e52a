//! Reads the usage report of an answer, which every server fills differently.

use super::object::Object;
use crate::core::model::ReportedUsage;
use reseed_protocol::FurtherUsage;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// Maximum fields of a report. Known ones have a dozen.
const FIELDS_MAX: usize = 64;

/// Returns the usage in a report of either API, unless all counts are absent or 0.
pub(crate) fn usage(report: &Object<'_>) -> Option<ReportedUsage> {
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
    let hour = report.object("cache_creation").and_then(|kept| kept.count("ephemeral_1h_input_tokens"));
    let thought = |name: &str| output_details.as_ref().and_then(|details| details.count(name));
    let reported = ReportedUsage {
        input_tokens,
        cached_tokens,
        cache_write_tokens,
        cache_write_hour_tokens: hour.filter(|_| cache_write_tokens.is_some()),
        output_tokens,
        reasoning_tokens: thought("reasoning_tokens").or_else(|| thought("thinking_tokens")),
        further: further(report),
    };
    // Anthropic counts a compaction only as a further pass.
    (input_tokens > 0 || output_tokens > 0 || reported.further.is_some()).then_some(reported)
}

/// Returns the passes that are billed besides those in the report's own counts. Of Anthropic's `iterations`, the own
/// counts include those that wrote the message.
fn further(report: &Object<'_>) -> Option<FurtherUsage> {
    let is_further = |pass: &Object<'_>| pass.text("type").is_some_and(|kind| !kind.ends_with("message"));
    let passes = report.objects("iterations").filter(is_further).filter_map(|pass| usage(&pass));
    passes.map(as_further).reduce(FurtherUsage::and)
}

/// Returns the counts of a request as those of a further pass of another.
pub(crate) fn as_further(usage: ReportedUsage) -> FurtherUsage {
    let own = FurtherUsage {
        input_tokens: usage.input_tokens,
        cached_tokens: usage.cached_tokens.unwrap_or(0),
        cache_write_tokens: usage.cache_write_tokens.unwrap_or(0),
        cache_write_hour_tokens: usage.cache_write_hour_tokens.unwrap_or(0),
        output_tokens: usage.output_tokens,
    };
    usage.further.map_or(own, |further| own.and(further))
}

/// The fields of an answer's reports. A server may begin with what it has read, and end with what it has written.
#[derive(Debug, Default)]
pub(crate) struct Reports(BTreeMap<String, Box<RawValue>>);

impl Reports {
    /// Adds a report, and returns the usage that all report together. A later report replaces the counts that it has.
    pub(crate) fn add(&mut self, report: &Object<'_>) -> Option<ReportedUsage> {
        for (name, value) in report.fields().filter(|(_, value)| value.get() != "null") {
            // A count of 0 replaces none.
            let counts = if self.0.contains_key(name) { value.get() != "0" } else { self.0.len() < FIELDS_MAX };
            if counts {
                self.0.insert(name.to_owned(), value.to_owned());
            }
        }
        usage(&Object::of(self.0.iter().map(|(name, value)| (name.as_str(), &**value))))
    }
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
            // What is kept for an hour, and a pass that the report's own counts leave out.
            (
                r#"{"input_tokens":2,"output_tokens":8,"cache_read_input_tokens":4,"cache_creation_input_tokens":3,"cache_creation":{"ephemeral_5m_input_tokens":1,"ephemeral_1h_input_tokens":2},"output_tokens_details":{"thinking_tokens":5},"iterations":[{"type":"compaction","input_tokens":70,"output_tokens":6,"cache_read_input_tokens":30},{"type":"message","input_tokens":2,"output_tokens":8}]}"#,
                Some(ReportedUsage {
                    cached_tokens: Some(4),
                    cache_write_tokens: Some(3),
                    cache_write_hour_tokens: Some(2),
                    reasoning_tokens: Some(5),
                    further: Some(FurtherUsage {
                        input_tokens: 100,
                        cached_tokens: 30,
                        output_tokens: 6,
                        ..FurtherUsage::default()
                    }),
                    ..plain
                }),
            ),
            (
                r#"{"input_tokens":0,"output_tokens":0,"iterations":[{"type":"compaction","input_tokens":70,"output_tokens":6}]}"#,
                Some(ReportedUsage {
                    further: Some(FurtherUsage { input_tokens: 70, output_tokens: 6, ..FurtherUsage::default() }),
                    ..ReportedUsage::default()
                }),
            ),
            (r#"{"prompt_tokens":0,"completion_tokens":0}"#, None),
            (r#"{"prompt_tokens":"many","completion_tokens":-1}"#, None),
            ("{}", None),
        ] {
            assert_eq!(read(json), expected, "{json}");
        }
    }
}
