//! Maps the errors of a model server to our error codes.
//!
//! The text of an upstream error never leaves this file, because it can echo keys and prompts. It is only searched for
//! known words; the fault's message consists of the code's own cause and remedy, and of numbers.

use super::{
    overflow::{self, Verdict},
    refusal, wait,
};
use crate::core::{
    model::{FaultOrigin, ModelFault, OverflowHint},
    need::Refusal,
};
use jiff::Timestamp;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reseed_protocol::ErrorCode;
use serde_json::Value;

/// Returns a fault with this code. `note` is a few words of ours that go into the message, never the upstream's.
#[must_use]
pub(crate) fn fault(code: ErrorCode, note: &str) -> ModelFault {
    let cause = code.cause().trim_end_matches('.');
    ModelFault::new(code, format!("{cause} ({note}). {}", code.remedy()))
}

/// Classifies a failed exchange. `status` is the HTTP status, absent for an error inside a stream that started well;
/// `body` is the response body or the event. Total: any input gets a code.
///
/// The order matters: first what a model wrote, since the error quotes it; then refusals of who asks and of what was
/// said, which no other form and no smaller request cures; then overflow, because servers send it with 400, 413 and 500;
/// then words more reliable than the status (an exhausted quota arrives as 429, like a rate limit); then the status; then
/// less reliable words.
#[must_use]
pub(crate) fn classify(status: Option<u16>, headers: &HeaderMap, now: Timestamp, body: &[u8]) -> ModelFault {
    let error = ErrorBody::read(body);
    let status = status.or(error.status);
    let of_sample = refusal::is_of_sample(body);
    let of_key = || error.refuses_key(status).then_some(ErrorCode::UpstreamAuth);
    let certain = error.means(CERTAIN).or_else(of_key).or_else(|| error.of_content(status));
    let is_final =
        matches!(certain, Some(ErrorCode::UpstreamAuth | ErrorCode::UpstreamQuota | ErrorCode::ContentFiltered));
    let is_other = of_sample || (is_final && status != Some(429)) || refusal::is_of_form(body);
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
        // Never for credentials, quota, rates or what was said.
        ErrorCode::UpstreamRejected | ErrorCode::UpstreamNotFound | ErrorCode::UpstreamError => {
            refusal::read(body, code)
        }
        _ => Refusal::default(),
    };
    let origin =
        Box::new(FaultOrigin { http_status: status, error_type: error.error_type, request_id: request_id(headers) });
    let retry_after_ms = retry_after_ms(headers, now).or(error.wait_ms);
    ModelFault { overflow: hint, refusal, retry_after_ms, origin, ..fault(code, &note) }
}

/// Most characters of an error type or request id taken from upstream.
const NAME_CHARS_MAX: usize = 128;

/// Headers in which servers return a request id.
const REQUEST_ID_HEADERS: &[&str] =
    &["x-request-id", "request-id", "x-amzn-requestid", "apim-request-id", "x-litellm-call-id", "cf-ray"];

/// Returns the upstream's id of the request that these headers answer.
#[must_use]
pub(crate) fn request_id(headers: &HeaderMap) -> Option<String> {
    REQUEST_ID_HEADERS.iter().find_map(|header| name(headers.get(*header)?.to_str().ok()?))
}

/// Returns the text if it can only be a name, so that nothing a person wrote, and no key, reaches the log.
pub(crate) fn name(text: &str) -> Option<String> {
    let text = text.trim();
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    let is_name = (1..=NAME_CHARS_MAX).contains(&text.len()) && text.bytes().all(is_letter);
    (is_name && !text.starts_with("sk-")).then(|| text.to_owned())
}

/// Codes, types and phrases that determine the meaning, whatever the status.
const CERTAIN: &[(ErrorCode, &[&str])] = &[
    (
        ErrorCode::UpstreamQuota,
        &[
            "insufficient_quota",
            "exceeded your current quota",
            "exceeded_current_quota",
            "billing_hard_limit_reached",
            "billing_not_active",
            "enable billing",
            "insufficient_balance",
            "insufficient balance",
            "insufficient credit",
            "insufficient fund",
            "not enough credit",
            "enough balance",
            "out of credit",
            "quota exhausted",
            "quota has been exhausted",
            "free quota",
            "free tier is exhausted",
            "freetieronly",
            "credit balance",
            "recharge",
            "overdue",
            "arrearage",
            "good standing",
            "余额",
            "欠费",
            "充值",
        ],
    ),
    (
        ErrorCode::UpstreamAuth,
        &[
            "authentication_error",
            "authenticationerror",
            "authentication failed",
            "authentication fails",
            "invalid_authentication",
            "invalid authentication",
            "unauthenticated",
            "unauthorized",
            "not authorized",
            "permission_error",
            "permission_denied",
            "permission denied",
            "permissiondenied",
            "accessdenied",
            "access_denied",
            "access denied",
            "unrecognizedclient",
            "security token",
            "expiredtoken",
            "token expired",
            "token is expired",
            "token has expired",
            "invalidsignature",
            "signature does not match",
            "location is not supported",
            "unsupported_country",
            "country, region",
            "not available in your country",
            "not available in your region",
            "account has been suspended",
            "account has been disabled",
            "account has been deactivated",
            "account is suspended",
            "account is disabled",
            "account is deactivated",
        ],
    ),
    (
        ErrorCode::UpstreamNotFound,
        &["model_not_found", "deploymentnotfound", "invalid model name passed", "notfounderror"],
    ),
    (
        ErrorCode::UpstreamOverloaded,
        &[
            "overloaded_error",
            "server_is_overloaded",
            "engine_overloaded",
            "slow_down",
            "all_deployments_in_cooldown",
            "loading model",
        ],
    ),
    (
        ErrorCode::UpstreamRateLimited,
        &["rate_limit_exceeded", "rate_limit_error", "too_many_requests", "resource_exhausted", "throttling error"],
    ),
];

/// Words near which an API key is refused.
const BAD_KEY: &[&str] = &[
    "invalid",
    "not valid",
    "incorrect",
    "expired",
    "missing",
    "required",
    "wrong",
    "not found",
    "no ",
    "unknown",
    "revoked",
    "disabled",
    "provide a",
    "provide an",
];
/// Bytes before and after the word in which they are looked for.
const KEY_REACH: usize = 32;

/// Words of refusals of what was said, in the texts and codes of OpenAI, Azure, Anthropic, Mistral, Bedrock, DeepSeek,
/// DashScope, Doubao and Zhipu. Codes are read without their `_`, and as one word without their capitals.
const OF_CONTENT: &[&str] = &[
    "content filter",
    "contentfilter",
    "content policy",
    "contentpolicy",
    "content management policy",
    "responsible ai",
    "responsibleai",
    "data inspection",
    "datainspection",
    "content exists risk",
    "content risk",
    "risky content",
    "sensitive content",
    "sensitivecontent",
    "sensitive information",
    "sensitive word",
    "sensitivecontentdetected",
    "inappropriate",
    "prohibited content",
    "prohibited use",
    "harmful",
    "unsafe content",
    "forbidden content",
    "illegal content",
    "content blocked",
    "content is blocked",
    "outputted is blocked",
    "new sensitive",
    "high risk",
    "offensive",
    "flagged",
    "moderation",
    "moderated",
    "safety system",
    "safety filter",
    "safety polic",
    "safety guideline",
    "safety reason",
    "safety check",
    "safety setting",
    "for safety",
    "usage polic",
    "use policy",
    "usage guideline",
    "policy violation",
    "policyviolation",
    "violates content",
    "violates our",
    "violating our",
    "violation of our",
    "prompt was blocked",
    "input was blocked",
    "content was blocked",
    "response was blocked",
    "output blocked by",
    "guardrail",
    // Sensitive, unsafe, in violation, improper, harmful, content safety, risk in the content.
    "敏感",
    "不安全",
    "违规",
    "不当内容",
    "有害",
    "内容安全",
    "内容存在风险",
];

/// Words that only tell which side was at fault; used for errors without a status.
const VAGUE: &[(ErrorCode, &[&str])] = &[
    (ErrorCode::UpstreamRejected, &["invalid_request", "invalid_prompt", "bad_request", "badrequesterror"]),
    (ErrorCode::UpstreamOverloaded, &["overloaded", "service_unavailable", "service unavailable"]),
    (ErrorCode::UpstreamRateLimited, &["rate limit", "rate_limit", "too many requests"]),
    (ErrorCode::UpstreamNotFound, &["not_found"]),
];

fn by_status(status: u16) -> Option<ErrorCode> {
    Some(match status {
        300..=399 | 404 | 405 | 410 => ErrorCode::UpstreamNotFound,
        401 | 403 | 407 => ErrorCode::UpstreamAuth,
        402 => ErrorCode::UpstreamQuota,
        // Possibly transient: the request arrived too slowly or conflicted with another one.
        408 | 409 | 425 => ErrorCode::UpstreamError,
        429 => ErrorCode::UpstreamRateLimited,
        400..=499 => ErrorCode::UpstreamRejected,
        503 | 529 => ErrorCode::UpstreamOverloaded,
        500..=599 => ErrorCode::UpstreamError,
        _ => return None,
    })
}

/// An upstream error, as far as any server's dialect can be read.
struct ErrorBody {
    /// Code, type and message on separate lines, in lower case.
    words: String,
    /// The message alone.
    message: String,
    /// Its type, or else its code, if that is a name.
    error_type: Option<String>,
    /// A status given inside the body.
    status: Option<u16>,
    /// Codes and types in fields of their own, on separate lines.
    codes: String,
    /// Token counts in separate fields, as llama-server sends them.
    counts: OverflowHint,
    /// The wait that a field or the text asks for.
    wait_ms: Option<u64>,
    /// True if the body was empty.
    bodiless: bool,
}

impl ErrorBody {
    /// Reads `{"error":{…}}`, `{"error":"…"}`, `{"message":…}`, `{"detail":…}`, `{"errors":[…]}`, `[{"error":…}]`,
    /// what a router passes on in a field of its own, or plain text.
    fn read(body: &[u8]) -> Self {
        let root: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let root = match &root {
            Value::Array(items) => items.first().unwrap_or(&Value::Null),
            root => root,
        };
        let error = match (&root["error"], &root["errors"][0]) {
            (Value::Null, Value::Null) => root,
            (Value::Null, first) => first,
            (error, _) => error,
        };
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        let message = match error {
            // What a page says is for people who look at it; the status says what it means.
            Value::Null if refusal::is_page(body) => String::new(),
            Value::Null => String::from_utf8_lossy(body).into_owned(),
            Value::String(text) => text.clone(),
            error => {
                let fields = ["message", "detail", "error", "msg", "error_message"].map(|name| text(&error[name]));
                format!("{} {}", fields.join(" "), passed_on(&error["metadata"]["raw"])).trim().to_owned()
            }
        };
        let code = text(&error["code"]);
        let kinds = [&error["type"], &error["status"], &error["error_type"], &error["error_code"]].map(text).join("\n");
        let status = [&code, &text(&error["status"]), &text(&error["status_code"])]
            .into_iter()
            .find_map(|code| code.parse::<u16>().ok().filter(|status| (400..600).contains(status)));
        let counts =
            OverflowHint { prompt_tokens: error["n_prompt_tokens"].as_u64(), window_tokens: error["n_ctx"].as_u64() };
        let error_type = name(&text(&error["type"])).or_else(|| name(&code)).or_else(|| name(&text(&error["status"])));
        let wait_ms = wait::in_body(error, &message);
        // Google names the period of a quota among the details.
        let details = text(&error["details"]);
        let codes = format!("{code}\n{kinds}\n{details}").to_lowercase();
        let words = format!("{codes}\n{}", message.to_lowercase());
        Self { words, error_type, message, status, codes, counts, wait_ms, bodiless: body.trim_ascii().is_empty() }
    }

    /// Returns the overflow that the error reports. A status that is about who asks, or how often, is never one, unless
    /// the request alone is above what a minute allows.
    fn overflow(&self, status: Option<u16>) -> Option<OverflowHint> {
        let is_possible = !matches!(status, Some(401..=404 | 407..=410 | 503 | 529));
        if self.bodiless {
            let text = status.map(|status| format!("{status} (no body)")).unwrap_or_default();
            return overflow::detect(&text);
        }
        let hint = match overflow::judge(&self.message) {
            Verdict::TooLarge(hint) if is_possible && (status != Some(429) || hint.is_certain()) => hint,
            Verdict::TooLarge(_) | Verdict::Throttled => return None,
            // Compaction also cures a body too large for an intermediate proxy.
            Verdict::Other if status == Some(413) && !overflow::is_about_media(&self.message) => {
                OverflowHint::default()
            }
            Verdict::Other if is_possible && status != Some(429) => overflow::detect(&self.codes)?,
            Verdict::Other => return None,
        };
        Some(OverflowHint {
            prompt_tokens: self.counts.prompt_tokens.or(hint.prompt_tokens),
            window_tokens: self.counts.window_tokens.or(hint.window_tokens),
        })
    }

    /// Returns true if the error is one of the size in bytes: by its words, or by its status where they say nothing.
    fn is_of_bytes(&self, status: Option<u16>, hint: OverflowHint) -> bool {
        let text = format!("{}\n{}", self.message, self.codes);
        hint == OverflowHint::default() && !self.bodiless && overflow::is_of_bytes(&text, status == Some(413))
    }

    /// Returns true if a server gave up waiting. One that could not fetch an image refuses the image.
    fn is_timeout(&self, status: Option<u16>) -> bool {
        let is_possible = matches!(status, None | Some(400 | 413 | 422 | 500));
        is_possible && overflow::is_timeout(&self.words) && !overflow::is_about_media(&self.message)
    }

    /// Returns true if the API key is refused, in whatever words. Tools may have a parameter of that name.
    fn refuses_key(&self, status: Option<u16>) -> bool {
        let is_possible = matches!(status, None | Some(400..=404 | 422));
        let words = self.words.replace(['_', '-'], " ").replace("apikey", "api key");
        let is_of_tool = ["schema", "properties", "parameters"].iter().any(|word| words.contains(word));
        is_possible
            && !is_of_tool
            && words.match_indices("api key").any(|(at, key)| {
                let near = |range: &str| BAD_KEY.iter().any(|word| range.contains(word));
                near(overflow::tail(&words[..at], KEY_REACH))
                    || near(overflow::head(&words[at + key.len()..], KEY_REACH))
            })
    }

    /// Returns the code of a refusal of what was said. Statuses that are about who asks, or how often, are none.
    fn of_content(&self, status: Option<u16>) -> Option<ErrorCode> {
        let is_possible = !matches!(status, Some(401 | 402 | 404 | 407 | 429 | 502..=599));
        let words = self.words.replace(['_', '-'], " ");
        let is_filtered = OF_CONTENT.iter().any(|word| words.contains(word));
        (is_possible && is_filtered).then_some(ErrorCode::ContentFiltered)
    }

    /// Returns true if the error limits the rate: by the minute, or with a short wait. A quota by the day is used up.
    fn is_passing(&self) -> bool {
        let by_day = ["perday", "per day", "per_day", "daily", "monthly"].iter().any(|word| self.words.contains(word));
        let by_minute = ["perminute", "per minute", "per_minute", "per-minute", "per second", "persecond"];
        !by_day && (by_minute.iter().any(|word| self.words.contains(word)) || self.wait_ms.is_some())
    }

    fn means(&self, table: &[(ErrorCode, &[&str])]) -> Option<ErrorCode> {
        table.iter().find(|(_, words)| words.iter().any(|word| self.words.contains(word))).map(|&(code, _)| code)
    }
}

/// Returns the message of the error that a router passes on, often as JSON in a text.
fn passed_on(raw: &Value) -> String {
    let inner: Value = match raw {
        Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| raw.clone()),
        other => other.clone(),
    };
    match [&inner["error"]["message"], &inner["message"], &inner["error"], &inner]
        .into_iter()
        .find(|value| value.is_string())
    {
        Some(Value::String(text)) => text.clone(),
        _ => String::new(),
    }
}

/// Returns how long the upstream asks to wait: `retry-after-ms`, or `retry-after` in seconds or as a date.
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

#[cfg(test)]
mod tests {
    use super::*;
    use ErrorCode::{
        ContentFiltered, ContextOverflow, UpstreamAuth, UpstreamError, UpstreamNotFound, UpstreamOverloaded,
        UpstreamQuota, UpstreamRateLimited, UpstreamRejected,
    };

    fn now() -> Timestamp {
        "2026-11-21T07:28:00Z".parse().unwrap()
    }

    fn judged(status: Option<u16>, body: &str) -> ModelFault {
        classify(status, &HeaderMap::new(), now(), body.as_bytes())
    }

    #[test]
    fn a_fault_names_its_type_and_request_and_never_a_text() {
        let mut headers = HeaderMap::new();
        headers.insert("x-request-id", "req_8f-1".parse().unwrap());
        let origin = |body: &str, headers: &HeaderMap| classify(Some(400), headers, now(), body.as_bytes()).origin;
        for (body, error_type) in [
            (
                r#"{"error":{"message":"secret words","type":"invalid_request_error","code":"x"}}"#,
                Some("invalid_request_error"),
            ),
            (r#"{"error":{"message":"secret words","code":"model_not_found"}}"#, Some("model_not_found")),
            (r#"{"error":{"message":"secret words","type":"secret words in the type","code":400}}"#, Some("400")),
            (r#"{"error":{"message":"secret","type":"sk-abcdef"}}"#, None),
            ("secret words", None),
        ] {
            let found = origin(body, &headers);
            let expected = FaultOrigin {
                http_status: Some(400),
                error_type: error_type.map(str::to_owned),
                request_id: Some("req_8f-1".into()),
            };
            assert_eq!(*found, expected, "{body}");
        }
        let mut headers = HeaderMap::new();
        headers.insert("x-request-id", "several words".parse().unwrap());
        headers.insert("cf-ray", "9a1-FRA".parse().unwrap());
        assert_eq!(origin("{}", &headers).request_id.as_deref(), Some("9a1-FRA"));
    }

    #[test]
    fn every_dialect_gets_its_code() {
        for (status, body, expected) in [
            (
                Some(401),
                r#"{"error":{"message":"Incorrect API key provided: sk-1","type":"invalid_request_error","code":"invalid_api_key"}}"#,
                UpstreamAuth,
            ),
            (Some(403), "<html><body>Forbidden</body></html>", UpstreamAuth),
            (Some(400), r#"{"error":{"message":"litellm.AuthenticationError: no","code":"400"}}"#, UpstreamAuth),
            (Some(402), "", UpstreamQuota),
            (
                Some(429),
                r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
                UpstreamQuota,
            ),
            (
                Some(429),
                r#"{"error":{"message":"Rate limit reached: too many tokens per min","type":"tokens","code":"rate_limit_exceeded"}}"#,
                UpstreamRateLimited,
            ),
            (Some(429), "", UpstreamRateLimited),
            (
                Some(429),
                r#"{"error":{"message":"No deployments available","type":"all_deployments_in_cooldown","code":"429"}}"#,
                UpstreamOverloaded,
            ),
            (
                Some(503),
                r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#,
                UpstreamOverloaded,
            ),
            (Some(529), "{}", UpstreamOverloaded),
            (Some(404), "<!doctype html><title>Not Found</title>", UpstreamNotFound),
            (Some(404), r#"{"detail":"Not Found"}"#, UpstreamNotFound),
            (Some(302), "", UpstreamNotFound),
            (
                Some(400),
                r#"{"error":{"message":"The model `x` does not exist","code":"model_not_found"}}"#,
                UpstreamNotFound,
            ),
            (
                Some(400),
                r#"{"error":{"message":"Invalid model name passed in model=x","code":"400"}}"#,
                UpstreamNotFound,
            ),
            (
                Some(400),
                r#"{"error":{"code":400,"message":"'messages' is required","type":"invalid_request_error"}}"#,
                UpstreamRejected,
            ),
            (Some(422), r#"{"detail":[{"loc":["body","model"],"msg":"field required"}]}"#, UpstreamRejected),
            (Some(400), r#"{"error":{"message":"filtered","code":"content_filter"}}"#, ContentFiltered),
            // credentials and accounts, with the status of a bad request
            (
                Some(400),
                r#"[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID"}]}}]"#,
                UpstreamAuth,
            ),
            (
                Some(400),
                r#"[{"error":{"code":400,"message":"User location is not supported for the API use.","status":"FAILED_PRECONDITION"}}]"#,
                UpstreamAuth,
            ),
            (
                Some(400),
                r#"{"error":{"message":"litellm.BadRequestError: BedrockException - AccessDeniedException: You don't have access to the model with the specified model ID.","code":"400"}}"#,
                UpstreamAuth,
            ),
            (
                Some(400),
                r#"{"error":{"code":"Arrearage","message":"Access denied, please make sure your account is in good standing."}}"#,
                UpstreamQuota,
            ),
            (Some(402), r#"{"error":{"message":"Insufficient Balance","type":"unknown_error"}}"#, UpstreamQuota),
            (
                Some(400),
                r#"{"error":{"message":"Your account org-1 is suspended due to insufficient balance, please recharge your account or check your plan and billing details","type":"exceeded_current_quota_error"}}"#,
                UpstreamQuota,
            ),
            (Some(429), r#"{"error":{"code":"1113","message":"您的账户已欠费，请充值后重试。"}}"#, UpstreamQuota),
            // what was said
            (
                Some(400),
                r#"{"error":{"message":"Content Exists Risk","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}"#,
                ContentFiltered,
            ),
            (
                Some(400),
                r#"{"error":{"code":"data_inspection_failed","message":"Input data may contain inappropriate content.","type":"invalid_request_error"}}"#,
                ContentFiltered,
            ),
            (Some(400), r#"{"error":{"code":"DataInspectionFailed","message":"x"}}"#, ContentFiltered),
            (
                Some(400),
                r#"{"error":{"code":"InputTextSensitiveContentDetected","message":"The request failed because the input text may contain it."}}"#,
                ContentFiltered,
            ),
            (
                Some(400),
                r#"{"contentFilter":[{"level":1,"role":"user"}],"error":{"code":"1301","message":"系统检测到输入或生成内容可能包含不安全或敏感内容，请您避免输入易产生敏感内容的提示语，感谢您的配合。"}}"#,
                ContentFiltered,
            ),
            (
                Some(400),
                r#"{"error":{"message":"The response was filtered due to the prompt triggering Azure OpenAI's content management policy.","code":"content_filter","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation"}}}"#,
                ContentFiltered,
            ),
            (
                Some(403),
                r#"{"error":{"code":403,"message":"m requires moderation on OpenRouter. Your input was flagged for "violence"."}}"#,
                ContentFiltered,
            ),
            (
                Some(400),
                r#"{"error":{"message":"Your image was flagged by our safety system","code":"moderation_blocked"}}"#,
                ContentFiltered,
            ),
            (
                Some(400),
                r#"{"error":{"type":"invalid_request_error","message":"Output blocked by content filtering policy"}}"#,
                ContentFiltered,
            ),
            (Some(400), r#"{"error":{"message":"The api_key provided is invalid"}}"#, UpstreamAuth),
            (
                Some(400),
                r#"{"error":{"message":"Invalid schema: tools[0].function.parameters.properties.api_key is invalid"}}"#,
                UpstreamRejected,
            ),
            (
                Some(429),
                r#"{"error":{"message":"Rate limit reached for this API key. No more requests now."}}"#,
                UpstreamRateLimited,
            ),
            (Some(403), r#"{"error":{"message":"blocked by the network policy"}}"#, UpstreamAuth),
            // what the model wrote is at fault, and not the request
            (
                Some(400),
                r#"{"error":{"message":"Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details.","type":"invalid_request_error","code":"tool_use_failed","failed_generation":"<function=look>"}}"#,
                UpstreamError,
            ),
            (
                None,
                r#"{"error":{"message":"tool call validation failed: attempted to call tool 'x' which was not in request.tools","type":"invalid_request_error","code":"tool_use_failed","status_code":400}}"#,
                UpstreamError,
            ),
            (
                Some(500),
                r#"{"error":{"code":500,"message":"Failed to parse input at pos 12: <tool_call>the context length exceeds 9000 tokens","type":"server_error"}}"#,
                UpstreamError,
            ),
            // a server that gave up waiting
            (
                Some(500),
                r#"{"error":{"message":"do request failed: Post "https://h.example/v1": context deadline exceeded"}}"#,
                UpstreamError,
            ),
            (Some(504), r#"{"error":{"message":"context deadline exceeded"}}"#, UpstreamError),
            (Some(400), r#"{"error":{"message":"context canceled"}}"#, UpstreamError),
            (
                Some(400),
                r#"{"error":{"message":"Timed out while downloading the image","code":"invalid_image_url"}}"#,
                UpstreamRejected,
            ),
            // the value of an option
            (
                Some(400),
                r#"{"error":{"message":"thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"}}"#,
                UpstreamRejected,
            ),
            (Some(500), "Internal Server Error", UpstreamError),
            (Some(520), "<!doctype html><title>520: unknown error</title><p>content, images, tools</p>", UpstreamError),
            (Some(502), "<html>502 Bad Gateway</html>", UpstreamError),
            (Some(408), "", UpstreamError),
            // overflow, with every status that servers use for it
            (
                Some(400),
                r#"{"error":{"message":"too long","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
                ContextOverflow,
            ),
            (
                Some(500),
                r#"{"error":{"code":500,"message":"the request exceeds the available context size","type":"server_error"}}"#,
                ContextOverflow,
            ),
            (
                Some(400),
                r#"{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 in the messages, 1000 in the completion).","type":"BadRequestError","code":400}"#,
                ContextOverflow,
            ),
            (Some(413), "<html>413 Request Entity Too Large</html>", ContextOverflow),
            (Some(413), "", ContextOverflow),
            (Some(400), "  ", ContextOverflow),
            (None, r#"{"error":{"code":"context_length_exceeded","message":"no"}}"#, ContextOverflow),
            // errors that only resemble an overflow
            (Some(429), r#"{"error":{"message":"Too many requests: context_length_exceeded"}}"#, UpstreamRateLimited),
            (
                Some(429),
                r#"{"error":{"message":"Throttling error: Too many tokens, please wait","type":"x"}}"#,
                UpstreamRateLimited,
            ),
            (Some(503), r#"{"error":{"message":"Service unavailable: too many tokens"}}"#, UpstreamOverloaded),
            (Some(429), r#"{"message":"Too many tokens, please wait before trying again."}"#, UpstreamRateLimited),
            (Some(500), r#"{"error":{"message":"Too many tokens, please wait before trying again."}}"#, UpstreamError),
            (
                None,
                r#"{"error":{"message":"Too many tokens, please wait before trying again.","code":429}}"#,
                UpstreamRateLimited,
            ),
            (Some(401), r#"{"error":{"message":"The token exceeds the maximum length"}}"#, UpstreamAuth),
            (
                Some(400),
                r#"{"error":{"message":"The image size is 12 MB which exceeds the limit of 10 MB.","type":"invalid_request_error"}}"#,
                UpstreamRejected,
            ),
            (Some(413), r#"{"error":{"message":"image is larger than 5 MB"}}"#, UpstreamRejected),
            // overflow in fields of other names, and passed on by a router
            (
                Some(400),
                r#"{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"error\":{\"message\":\"the prompt is longer than the context of 4096 tokens\"}}"}}}"#,
                ContextOverflow,
            ),
            (
                None,
                r#"{"choices":null,"error_type":"BadRequestError","error_message":"maximum context length is 4096 tokens, 5000 were sent"}"#,
                ContextOverflow,
            ),
            (
                Some(400),
                r#"{"errors":[{"message":"AiError: 9000 tokens exceeded this model context window limit (8000).","code":5021}],"success":false}"#,
                ContextOverflow,
            ),
            (
                Some(429),
                r#"{"error":{"message":"Request too large for m on tokens per min (TPM): Limit 4000, Requested 5000.","code":"rate_limit_exceeded"}}"#,
                ContextOverflow,
            ),
            // a quota by the minute is waited for, one by the day is used up
            (
                Some(429),
                r#"[{"error":{"code":429,"message":"You exceeded your current quota.\nPlease retry in 1.5s.","status":"RESOURCE_EXHAUSTED","details":[{"violations":[{"quotaId":"GenerateRequestsPerMinutePerProject"}]}]}}]"#,
                UpstreamRateLimited,
            ),
            (
                Some(429),
                r#"[{"error":{"code":429,"message":"You exceeded your current quota per day.\nPlease retry in 40s.","status":"RESOURCE_EXHAUSTED"}}]"#,
                UpstreamQuota,
            ),
            // inside a stream, without an HTTP status
            (None, r#"{"error":{"message":"x","type":"server_error","code":null}}"#, UpstreamError),
            (None, r#"{"type":"error","code":"rate_limit_exceeded","message":"x","param":null}"#, UpstreamRateLimited),
            (None, r#"{"error":{"code":429,"message":"x"}}"#, UpstreamRateLimited),
            (None, r#"{"error":{"code":"401","message":"x"}}"#, UpstreamAuth),
            (None, r#"{"error":"something broke"}"#, UpstreamError),
            (None, r#"[{"error":{"code":400,"message":"bad","status":"INVALID_ARGUMENT"}}]"#, UpstreamRejected),
            (None, r#"{"error":{"type":"invalid_request_error","message":"bad"}}"#, UpstreamRejected),
            (None, "not json at all", UpstreamError),
        ] {
            assert_eq!(judged(status, body).code, expected, "{status:?} {body}");
        }
    }

    #[test]
    fn an_overflow_tells_its_numbers() {
        let body = r#"{"error":{"code":400,"message":"request (7508 tokens) exceeds the available context size (2048 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":7508,"n_ctx":2048}}"#;
        let fault = judged(Some(400), body);
        assert_eq!(fault.overflow, OverflowHint { prompt_tokens: Some(7508), window_tokens: Some(2048) });
        assert!(fault.message.contains("(HTTP 400, 7508 tokens sent, 2048 fit)"), "{}", fault.message);
    }

    #[test]
    fn a_size_in_bytes_names_no_window() {
        for (status, body, of_bytes) in [
            (Some(413), "<html><title>413 Request Entity Too Large</title><center>nginx/1.29.4</center></html>", true),
            (Some(413), r#"{"error":{"message":"Payload too large: 12 MB, at most 10485760 bytes"}}"#, true),
            (Some(413), r#"{"error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#, true),
            (Some(400), r#"{"error":{"message":"total message size 6127104 exceeds limit 4194304"}}"#, true),
            (Some(413), r#"{"error":{"message":"Request too large: limit 4000 tokens, requested 5000"}}"#, false),
            (Some(400), r#"{"error":{"code":"context_length_exceeded","message":"too long"}}"#, false),
        ] {
            let fault = judged(status, body);
            assert_eq!((fault.code, fault.refusal.of_bytes), (ContextOverflow, of_bytes), "{body}");
            assert!(!of_bytes || fault.overflow == OverflowHint::default(), "{body}");
        }
    }

    #[test]
    fn no_word_of_the_upstream_is_passed_on() {
        let body =
            r#"{"error":{"message":"Incorrect API key provided: sk-verysecret","type":"zebra","code":"giraffe"}}"#;
        for status in [None, Some(400), Some(401), Some(429), Some(500)] {
            let message = judged(status, body).message;
            for secret in ["sk-verysecret", "zebra", "giraffe", "provided"] {
                assert!(!message.contains(secret), "{message}");
            }
        }
    }

    #[test]
    fn the_wait_is_read_in_each_form() {
        for (name, value, expected) in [
            ("retry-after", "5", Some(5_000)),
            ("retry-after", "0.25", Some(250)),
            ("retry-after", "Sat, 21 Nov 2026 07:28:07 GMT", Some(7_000)),
            ("retry-after", "Sat, 21 Nov 2026 07:27:00 GMT", None),
            ("retry-after", "soon", None),
            ("retry-after", "-1", None),
            ("retry-after-ms", "120", Some(120)),
            ("x-other", "5", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            assert_eq!(classify(Some(429), &headers, now(), b"").retry_after_ms, expected, "{name}: {value}");
        }
    }
}
