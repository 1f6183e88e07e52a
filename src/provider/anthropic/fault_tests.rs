//! Errors of the Messages API in its own words, and what is made of them.

use crate::{core::need::Need, provider::fault::classify};
use jiff::Timestamp;
use reqwest::header::HeaderMap;
use reseed_protocol::ErrorCode::{
    self, ContentFiltered, ContextOverflow, UpstreamAuth, UpstreamError, UpstreamNotFound, UpstreamOverloaded,
    UpstreamQuota, UpstreamRateLimited, UpstreamRejected,
};
use serde_json::json;

/// The status (0 in a stream), the type and the words of an error; then its code, what is tried first, whether that is
/// for this request alone, and the tokens that were sent and fit.
type Row = (u16, &'static str, &'static str, ErrorCode, Option<(Need, bool)>, (Option<u64>, Option<u64>));

const NONE: (Option<u64>, Option<u64>) = (None, None);
const INVALID: &str = "invalid_request_error";

const ROWS: &[Row] = &[
    (
        400,
        INVALID,
        "prompt is too long: 208656 tokens > 200000 maximum",
        ContextOverflow,
        None,
        (Some(208_656), Some(200_000)),
    ),
    (
        400,
        INVALID,
        "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease input length or `max_tokens` and try again",
        ContextOverflow,
        None,
        (Some(178_959), Some(200_000)),
    ),
    (413, "request_too_large", "Request exceeds the maximum size", ContextOverflow, Some((Need::NoImages, true)), NONE),
    (
        413,
        "request_too_large",
        "Request exceeds the maximum allowed number of bytes.",
        ContextOverflow,
        Some((Need::NoImages, true)),
        NONE,
    ),
    (529, "overloaded_error", "Overloaded", UpstreamOverloaded, None, NONE),
    (0, "overloaded_error", "Overloaded", UpstreamOverloaded, None, NONE),
    (0, "api_error", "Internal server error", UpstreamError, None, NONE),
    (500, "api_error", "Internal server error", UpstreamError, None, NONE),
    (504, "timeout_error", "Request timed out", UpstreamError, None, NONE),
    (
        429,
        "rate_limit_error",
        "This request would exceed the rate limit for your organization (0dccdde6-f924-4f1b-bb3b-92ef846e0a5b) of 40,000 input tokens per minute. For details, refer to: https://docs.anthropic.com/en/api/rate-limits. You can see the response headers for current usage. Please reduce the prompt length or the maximum tokens requested, or try again later.",
        UpstreamRateLimited,
        None,
        NONE,
    ),
    (
        429,
        "rate_limit_error",
        "This request would exceed your organization's rate limit of 30,000 input tokens per minute (org: 9d50ef40-6cc8-4ca6-9d35-1dc9cf26235c, model: claude-sonnet-4-6).",
        UpstreamRateLimited,
        None,
        NONE,
    ),
    (
        429,
        "rate_limit_error",
        "Number of request tokens has exceeded your per-minute rate limit (https://docs.anthropic.com/en/api/rate-limits); see the response headers for current usage.",
        UpstreamRateLimited,
        None,
        NONE,
    ),
    (
        429,
        "rate_limit_error",
        "Number of concurrent connections has exceeded your rate limit. Please try again later or contact sales.",
        UpstreamRateLimited,
        None,
        NONE,
    ),
    (
        400,
        INVALID,
        "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.",
        UpstreamQuota,
        None,
        NONE,
    ),
    (
        400,
        INVALID,
        "You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC.",
        UpstreamQuota,
        None,
        NONE,
    ),
    (402, "billing_error", "There is an issue with your billing or payment information.", UpstreamQuota, None, NONE),
    (401, "authentication_error", "invalid x-api-key", UpstreamAuth, None, NONE),
    (
        403,
        "permission_error",
        "Your API key does not have permission to use the specified resource.",
        UpstreamAuth,
        None,
        NONE,
    ),
    (404, "not_found_error", "model: claude-3-sonnet-20240229", UpstreamNotFound, None, NONE),
    (400, INVALID, "Output blocked by content filtering policy", ContentFiltered, None, NONE),
    (
        400,
        INVALID,
        "messages.14: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_01Ny5KPVs4XomMp7wqZwKvdj. Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
        UpstreamRejected,
        Some((Need::ShortIds, false)),
        NONE,
    ),
    (
        400,
        INVALID,
        "messages.8.content.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_01NGSZ6A8jPBzZr8prgLzR7P. Each `tool_result` block must have a corresponding `tool_use` block in the previous message.",
        UpstreamRejected,
        Some((Need::ShortIds, false)),
        NONE,
    ),
    (
        400,
        INVALID,
        "messages.3.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
        UpstreamRejected,
        Some((Need::ShortIds, false)),
        NONE,
    ),
    (
        400,
        INVALID,
        "tools.0.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12",
        UpstreamRejected,
        Some((Need::NoTools, true)),
        NONE,
    ),
    (
        400,
        INVALID,
        "messages.108.content.3.image.source.base64.data: At least one of the image dimensions exceed max allowed size for many-image requests: 2000 pixels",
        UpstreamRejected,
        Some((Need::NoImages, true)),
        NONE,
    ),
    (
        400,
        INVALID,
        "messages.7.content.2.image.source.base64.data: At least one of the image dimensions exceed max allowed size: 8000 pixels",
        UpstreamRejected,
        Some((Need::NoImages, true)),
        NONE,
    ),
    (
        400,
        INVALID,
        "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes",
        UpstreamRejected,
        Some((Need::NoImages, true)),
        NONE,
    ),
    (
        400,
        INVALID,
        "output_config.format.schema: For 'object' type, 'additionalProperties' must be explicitly set to false",
        UpstreamRejected,
        Some((Need::NoFormat, true)),
        NONE,
    ),
    (400, INVALID, "Could not process image", UpstreamRejected, Some((Need::NoImages, true)), NONE),
    (
        400,
        INVALID,
        "messages.1.content.0: Invalid `signature` in `thinking` block",
        UpstreamRejected,
        Some((Need::NoSealed, true)),
        NONE,
    ),
    (
        400,
        INVALID,
        "messages.3.content.8: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must remain as they were in the original response.",
        UpstreamRejected,
        Some((Need::NoSealed, true)),
        NONE,
    ),
    (
        400,
        INVALID,
        "adaptive thinking is not supported on this model",
        UpstreamRejected,
        Some((Need::NoEffort, false)),
        NONE,
    ),
    (
        400,
        INVALID,
        "\"thinking.type.enabled\" is not supported for this model. Use \"thinking.type.adaptive\" and \"output_config.effort\" to control thinking behavior.",
        UpstreamRejected,
        Some((Need::NoEffort, false)),
        NONE,
    ),
    (
        400,
        INVALID,
        "`temperature` may only be set to 1 when thinking is enabled or in adaptive mode.",
        UpstreamRejected,
        Some((Need::NoTemperature, false)),
        NONE,
    ),
    (
        400,
        INVALID,
        "`temperature` and `top_p` cannot both be specified for this model. Please use only one.",
        UpstreamRejected,
        Some((Need::NoTemperature, false)),
        NONE,
    ),
    (
        400,
        INVALID,
        "max_tokens: 64000 > 8192, which is the maximum allowed number of output tokens for claude-3-5-sonnet-20241022",
        UpstreamRejected,
        Some((Need::NoLimit, false)),
        NONE,
    ),
    (400, INVALID, "A maximum of 4 blocks with cache_control may be provided. Found 5.", UpstreamRejected, None, NONE),
    (
        400,
        INVALID,
        "This model does not support assistant message prefill. The conversation must end with a user message.",
        UpstreamRejected,
        None,
        NONE,
    ),
    (
        400,
        INVALID,
        "messages: roles must alternate between \"user\" and \"assistant\", but found multiple \"user\" roles in a row",
        UpstreamRejected,
        Some((Need::Alternate, false)),
        NONE,
    ),
];

#[test]
fn every_error_is_known_by_its_words() {
    let mut wrong = Vec::new();
    for (status, kind, words, code, first, numbers) in ROWS {
        let body = json!({ "type": "error", "error": { "type": kind, "message": words }, "request_id": "req_1" });
        let status = Some(*status).filter(|status| *status > 0);
        let fault = classify(status, &HeaderMap::new(), Timestamp::UNIX_EPOCH, body.to_string().as_bytes());
        let tried = fault.refusal.needs.first().map(|need| (*need, fault.refusal.of_request.has(*need)));
        let read = (fault.overflow.prompt_tokens, fault.overflow.window_tokens);
        if (fault.code, tried, read) != (*code, *first, *numbers) {
            wrong.push(format!("{words}: {} {tried:?} {read:?}", fault.code));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    // A limit on spending comes as a limit on the rate.
    let spent = br#"{"type":"error","error":{"type":"rate_limit_error","message":"","details":{"error_code":"enforced_spend_limit_reached"}}}"#;
    let fault = classify(Some(429), &HeaderMap::new(), Timestamp::UNIX_EPOCH, spent);
    assert_eq!(fault.code, UpstreamQuota);
    let headers = HeaderMap::from_iter([("retry-after".parse().unwrap(), "21".parse().unwrap())]);
    let slow = br#"{"type":"error","error":{"type":"rate_limit_error","message":"x"}}"#;
    let fault = classify(Some(429), &headers, Timestamp::UNIX_EPOCH, slow);
    assert_eq!((fault.code, fault.retry_after_ms), (UpstreamRateLimited, Some(21_000)));
}
