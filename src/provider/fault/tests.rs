//! Tests that errors of many servers get the right codes.

use super::*;
use ErrorCode::{
    ContentFiltered, ContextOverflow, UpstreamAuth, UpstreamError, UpstreamNotFound, UpstreamOverloaded, UpstreamQuota,
    UpstreamRateLimited, UpstreamRejected,
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
            usage: None,
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
            Some(400),
            r#"{"error":{"message":"Invalid 'tools[0].function.description': string too long. Expected a string with maximum length 1024, but got a string with length 1600 instead.","type":"invalid_request_error","param":"tools[0].function.description","code":"string_above_max_length"}}"#,
            UpstreamRejected,
        ),
        (
            Some(400),
            r#"{"error":{"message":"Invalid 'messages[3].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a string with length 300 instead.","type":"invalid_request_error","param":"messages[3].tool_calls[0].id","code":"string_above_max_length"}}"#,
            UpstreamRejected,
        ),
        (
            Some(400),
            r#"{"error":{"message":"Invalid schema for function 'list_overdue_invoices': 'object' is not of type 'array'","type":"invalid_request_error"}}"#,
            UpstreamRejected,
        ),
        (
            Some(400),
            r#"{"error":{"message":"Invalid schema for function `get_flagged_posts`: no type","type":"invalid_request_error"}}"#,
            UpstreamRejected,
        ),
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
        (Some(400), r#"{"error":{"message":"Invalid model name passed in model=x","code":"400"}}"#, UpstreamNotFound),
        (
            Some(400),
            r#"{"error":{"code":400,"message":"'messages' is required","type":"invalid_request_error"}}"#,
            UpstreamRejected,
        ),
        (Some(422), r#"{"detail":[{"loc":["body","model"],"msg":"field required"}]}"#, UpstreamRejected),
        (Some(400), r#"{"error":{"message":"filtered","code":"content_filter"}}"#, ContentFiltered),
        // credentials and accounts, reported as a bad request
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
        // refused content
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
        // errors about the model's own output, not the request
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
        // overflow in other fields, or passed on by a router
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
        // a quota per minute is waited for; a daily one is used up
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
        (Some(413), "", true),
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
    let body = r#"{"error":{"message":"Incorrect API key provided: sk-verysecret","type":"zebra","code":"giraffe"}}"#;
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
