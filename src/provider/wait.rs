//! Reads from the body of a refusal how long the server asks to wait. Not all servers send this in headers.

use serde_json::Value;

/// The longest wait that is accepted from a text. A longer time means something else.
const WAIT_MS_MAX: u64 = 24 * 60 * 60 * 1000;

/// Words after which a text names the wait.
const CUES: &[&str] = &[
    "try again in",
    "try again after",
    "retry in",
    "retry after",
    "retry-after",
    "retrying in",
    "available in",
    "available again in",
    "reset in",
    "resets in",
    "reset after",
    "please wait",
    "wait for",
    "wait at least",
];

/// Returns the wait in milliseconds: Google's `RetryInfo`, `retry_after` in seconds, or a duration in the message.
pub(super) fn in_body(error: &Value, message: &str) -> Option<u64> {
    let details = error["details"].as_array().into_iter().flatten();
    let delay = details.filter_map(|detail| detail["retryDelay"].as_str()).find_map(duration);
    let fields = [&error["retry_after"], &error["metadata"]["retry_after"], &error["retryAfter"]];
    let seconds = || fields.into_iter().find_map(Value::as_f64).and_then(from_seconds);
    delay.or_else(seconds).or_else(|| in_text(message))
}

fn in_text(message: &str) -> Option<u64> {
    let text = message.to_lowercase();
    CUES.iter().find_map(|cue| {
        let (_, rest) = text.split_once(cue)?;
        duration(rest.trim_start_matches([' ', ':', '=']).trim_start_matches("about "))
    })
}

/// Parses a duration at the beginning of a text: `45s`, `1.5s`, `1m30s`, `250ms`, `20 seconds`, `2 minutes`. A number
/// without a unit is not a duration, because it could be anything.
fn duration(text: &str) -> Option<u64> {
    let mut rest = text.trim_start();
    let mut total: Option<f64> = None;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let Ok(number) = rest[..digits].parse::<f64>() else { break };
        let unit = rest[digits..].trim_start();
        let letters = unit.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(unit.len());
        let ms = match &unit[..letters] {
            "ms" | "millisecond" | "milliseconds" => 1.0,
            "s" | "sec" | "secs" | "second" | "seconds" => 1_000.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60_000.0,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3_600_000.0,
            _ => break,
        };
        total = Some(total.unwrap_or(0.0) + number * ms);
        rest = unit[letters..].trim_start();
    }
    from_seconds(total? / 1_000.0)
}

fn from_seconds(seconds: f64) -> Option<u64> {
    let ms = (seconds * 1_000.0).ceil();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be within a day")]
    (ms.is_finite() && ms >= 0.0 && ms <= WAIT_MS_MAX as f64).then_some(ms as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_wait_is_read_from_a_field_or_from_the_text() {
        for (error, message, expected) in [
            (json!({}), "Rate limit reached. Please try again in 45s.", Some(45_000)),
            (json!({}), "Please try again in 1m30.5s. Visit us", Some(90_500)),
            (json!({}), "try again in 250ms", Some(250)),
            (json!({}), "Please retry after 20 seconds.", Some(20_000)),
            (json!({}), "Quota exceeded.\nPlease retry in 1.5s.", Some(1_500)),
            (json!({}), "please wait 2 minutes before you ask again", Some(120_000)),
            (json!({}), "too many tokens, please wait before trying again", None),
            (json!({}), "try again in 5", None),
            (json!({}), "try again in 900 hours", None),
            (json!({ "retry_after": 3.5 }), "", Some(3_500)),
            (json!({ "details": [{ "@type": "QuotaFailure" }, { "retryDelay": "37s" }] }), "", Some(37_000)),
        ] {
            assert_eq!(in_body(&error, message), expected, "{error} {message}");
        }
    }
}
