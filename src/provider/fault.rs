//! Maps the errors of a model server to our error codes.
//!
//! The text of an upstream error is never passed on, because it can echo keys and prompts. It is only searched for
//! known words. The fault's message consists of the code's own cause and remedy, and of numbers.

#[cfg(test)]
mod tests;
mod words;

use super::{
    overflow::{self, Verdict},
    refusal,
    said::{Said, joined},
    wait,
};
use crate::core::{
    model::{FaultOrigin, ModelFault, OverflowHint},
    need::Refusal,
};
use jiff::Timestamp;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reseed_protocol::ErrorCode;
use words::{BAD_KEY, CERTAIN, OF_CONTENT, VAGUE};

/// Returns a fault with this code. `note` is a few words of ours for the message, never the upstream's.
#[must_use]
pub(crate) fn fault(code: ErrorCode, note: &str) -> ModelFault {
    let cause = code.cause().trim_end_matches('.');
    ModelFault::new(code, format!("{cause} ({note}). {}", code.remedy()))
}

/// Classifies a failed exchange. `status` is the HTTP status, which is absent for an error inside a stream that started
/// well. `body` is the response body or the event. Every input gets a code.
///
/// The order of the checks matters:
/// 1. errors about the model's own output, which they quote;
/// 2. refusals of credentials or content, which no other form and no smaller request can fix;
/// 3. overflow, which servers report with 400, 413 and 500;
/// 4. words that are more reliable than the status: an exhausted quota comes as 429, like a rate limit;
/// 5. the status;
/// 6. less reliable words.
#[must_use]
pub(crate) fn classify(status: Option<u16>, headers: &HeaderMap, now: Timestamp, body: &[u8]) -> ModelFault {
    let error = ErrorBody::of(Said::of(body));
    let said = &error.said;
    let status = status.or_else(|| said.status());
    let of_sample = refusal::is_of_sample(said);
    let of_key = || error.refuses_key(status).then_some(ErrorCode::UpstreamAuth);
    let certain = error.means(CERTAIN).or_else(of_key).or_else(|| error.of_content(status));
    let is_final =
        matches!(certain, Some(ErrorCode::UpstreamAuth | ErrorCode::UpstreamQuota | ErrorCode::ContentFiltered));
    let is_other = of_sample || (is_final && status != Some(429)) || refusal::is_of_form(said);
    let overflow = if is_other { None } else { error.overflow(status) };
    let code = match (&overflow, status) {
        _ if of_sample => ErrorCode::UpstreamError,
        (Some(_), _) => ErrorCode::ContextOverflow,
        (None, _) if error.is_passing() && certain == Some(ErrorCode::UpstreamQuota) => ErrorCode::UpstreamRateLimited,
        (None, status) => certain
            .or_else(|| error.is_timeout(status).then_some(ErrorCode::UpstreamError))
            .or_else(|| status.and_then(by_status))
            .or_else(|| error.means(VAGUE))
            .unwrap_or(ErrorCode::UpstreamError),
    };
    let mut note = match status {
        Some(status) => format!("HTTP {status}"),
        None => "an error inside the stream".to_owned(),
    };
    let hint = overflow.unwrap_or_default();
    if let Some(prompt) = hint.prompt_tokens {
        note.push_str(&format!(", {prompt} tokens sent"));
    }
    if let Some(window) = hint.window_tokens {
        note.push_str(&format!(", {window} fit"));
    }
    let refusal = match code {
        _ if of_sample => refusal::of_sample(),
        ErrorCode::ContextOverflow if error.is_of_bytes(status, hint) => refusal::of_bytes(),
        // This excludes errors about credentials, quotas, rates and content.
        ErrorCode::UpstreamRejected | ErrorCode::UpstreamNotFound | ErrorCode::UpstreamError => {
            refusal::read(said, code)
        }
        _ => Refusal::default(),
    };
    let error_type = ["type", "code", "status"].into_iter().find_map(|field| match &said.error[field] {
        serde_json::Value::String(text) => name(text),
        other => other.as_u64().map(|number| number.to_string()),
    });
    let origin =
        Box::new(FaultOrigin { http_status: status, error_type, request_id: request_id(headers), usage: None });
    let retry_after_ms = retry_after_ms(headers, now).or(error.wait_ms);
    ModelFault { overflow: hint, refusal, retry_after_ms, origin, ..fault(code, &note) }
}

/// Maximum characters of an error type or request id taken from upstream.
const NAME_CHARS_MAX: usize = 128;

/// Headers in which servers return a request id.
const REQUEST_ID_HEADERS: &[&str] =
    &["x-request-id", "request-id", "x-amzn-requestid", "apim-request-id", "x-litellm-call-id", "cf-ray"];

/// Returns the upstream's id of the request that these headers answer.
#[must_use]
pub(crate) fn request_id(headers: &HeaderMap) -> Option<String> {
    REQUEST_ID_HEADERS.iter().find_map(|header| name(headers.get(*header)?.to_str().ok()?))
}

/// Returns the text if it can only be a name. This keeps user text and keys out of the log.
pub(crate) fn name(text: &str) -> Option<String> {
    let text = text.trim();
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    let is_name = (1..=NAME_CHARS_MAX).contains(&text.len()) && text.bytes().all(is_letter);
    (is_name && !text.starts_with("sk-")).then(|| text.to_owned())
}

fn by_status(status: u16) -> Option<ErrorCode> {
    Some(match status {
        300..=399 | 404 | 405 | 410 => ErrorCode::UpstreamNotFound,
        401 | 403 | 407 => ErrorCode::UpstreamAuth,
        402 => ErrorCode::UpstreamQuota,
        // These may be transient: the request arrived too slowly, or conflicted with another one.
        408 | 409 | 425 => ErrorCode::UpstreamError,
        429 => ErrorCode::UpstreamRateLimited,
        400..=499 => ErrorCode::UpstreamRejected,
        503 | 529 => ErrorCode::UpstreamOverloaded,
        500..=599 => ErrorCode::UpstreamError,
        _ => return None,
    })
}

/// An upstream error, and what it says about causes.
struct ErrorBody {
    said: Said,
    /// Codes, types and message, without the names that the message quotes, and [`joined`].
    joined: String,
    /// The wait that a field or the text asks for.
    wait_ms: Option<u64>,
}

impl ErrorBody {
    fn of(said: Said) -> Self {
        let joined = joined(&format!("{}\n{}", said.codes, without_quoted_names(&said.message)));
        let wait_ms = wait::in_body(&said.error, &said.message);
        Self { joined, wait_ms, said }
    }

    /// Returns the overflow that the error reports. Statuses about credentials or rates never mean overflow, unless the
    /// request alone exceeds the allowance per minute.
    fn overflow(&self, status: Option<u16>) -> Option<OverflowHint> {
        let is_possible = !matches!(status, Some(401..=404 | 407..=410 | 503 | 529));
        if self.said.is_empty {
            let text = status.map(|status| format!("{status} (no body)")).unwrap_or_default();
            return overflow::detect(&text);
        }
        let hint = match overflow::judge(&self.said.message) {
            Verdict::TooLarge(hint) if is_possible && (status != Some(429) || hint.is_certain()) => hint,
            Verdict::TooLarge(_) | Verdict::Throttled => return None,
            // Compaction also helps if the body was too large for a proxy in between.
            Verdict::Other if status == Some(413) && !overflow::is_about_media(&self.said.message) => {
                OverflowHint::default()
            }
            Verdict::Other if is_possible && status != Some(429) => {
                // OpenAI adds this type to every code, such as `string_above_max_length` for a description.
                let codes = ["invalid_request_error", "bad_request", "badrequest"];
                overflow::detect(&codes.iter().fold(self.said.codes.clone(), |left, code| left.replace(code, "")))?
            }
            Verdict::Other => return None,
        };
        // llama-server sends the counts in separate fields.
        let count = |field: &str| self.said.error[field].as_u64();
        Some(OverflowHint {
            prompt_tokens: count("n_prompt_tokens").or(hint.prompt_tokens),
            window_tokens: count("n_ctx").or(hint.window_tokens),
        })
    }

    /// Returns true if the error is about the size in bytes. Its words decide, or its status if they say nothing.
    fn is_of_bytes(&self, status: Option<u16>, hint: OverflowHint) -> bool {
        let is_by_status = status == Some(413);
        hint == OverflowHint::default()
            && (!self.said.is_empty || is_by_status)
            && overflow::is_of_bytes(&self.said.text, is_by_status)
    }

    /// Returns true if a server gave up waiting. If it could not fetch an image, the image counts as refused instead.
    fn is_timeout(&self, status: Option<u16>) -> bool {
        let is_possible = matches!(status, None | Some(400 | 413 | 422 | 500));
        is_possible && overflow::is_timeout(&self.said.text) && !overflow::is_about_media(&self.said.message)
    }

    /// Returns true if the API key was refused, however that is worded. A tool may have a parameter of that name.
    fn refuses_key(&self, status: Option<u16>) -> bool {
        let is_possible = matches!(status, None | Some(400..=404 | 422));
        let is_of_tool = self.has(&["schema", "properties", "parameters"]);
        is_possible && !is_of_tool && self.has(&["apikey"]) && self.has(BAD_KEY)
    }

    /// Returns the code if the content was refused. Statuses about credentials or rates never mean this.
    fn of_content(&self, status: Option<u16>) -> Option<ErrorCode> {
        let is_possible = !matches!(status, Some(401 | 402 | 404 | 407 | 429 | 502..=599));
        (is_possible && self.has(OF_CONTENT)).then_some(ErrorCode::ContentFiltered)
    }

    /// Returns true if a rate limit applies, per minute or with a short wait. A daily quota counts as used up.
    fn is_passing(&self) -> bool {
        let by_day = self.has(&["perday", "daily", "monthly"]);
        !by_day && (self.has(&["perminute", "persecond"]) || self.wait_ms.is_some())
    }

    fn means(&self, table: &[(ErrorCode, &[&str])]) -> Option<ErrorCode> {
        table.iter().find(|(_, words)| self.has(words)).map(|&(code, _)| code)
    }

    fn has(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.joined.contains(word))
    }
}

/// Returns a message about tools without the names it quotes. A tool may be called `list_overdue_invoices`.
fn without_quoted_names(message: &str) -> String {
    let is_about_tools = ["function", "tool", "schema"].iter().any(|word| message.contains(word));
    if !is_about_tools {
        return message.to_owned();
    }
    let is_name = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '[' | ']'))
    };
    let mut left = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(at) = rest.find(['\'', '`', '"']) {
        let (before, quoted) = rest.split_at(at);
        let (mark, inside) = quoted.split_at(1);
        left.push_str(before);
        left.push_str(mark);
        rest = match inside.split_once(mark) {
            Some((name, after)) if is_name(name) => after,
            _ => inside,
        };
    }
    left + rest
}

/// Returns how long the upstream asks to wait: from `retry-after-ms`, or from `retry-after` in seconds or as a date.
fn retry_after_ms(headers: &HeaderMap, now: Timestamp) -> Option<u64> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let number = |text: &str| text.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0);
    if let Some(ms) = text("retry-after-ms").and_then(number) {
        return Some(ms.ceil() as u64);
    }
    let after = text(RETRY_AFTER.as_str())?;
    if let Some(seconds) = number(after) {
        return Some((seconds * 1000.0).ceil() as u64);
    }
    let at = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(after).ok()?;
    u64::try_from(at.as_millisecond() - now.as_millisecond()).ok()
}
