//! Tests refusals in the words of many servers, and texts that only look like one.

use super::*;
use crate::core::{context::window::told_by_usage, model::ReportedUsage};
use reseed_protocol::StopReason;
use serde::Deserialize;

#[derive(Deserialize)]
struct Cases {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Case {
    stop_reason: String,
    error_message: Option<String>,
    usage: Option<CaseUsage>,
    context_window: u64,
    expected: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CaseUsage {
    input: u64,
    output: u64,
    cache_read: u64,
}

/// Overflows that the recorded version did not recognise. Later versions do.
const SINCE_RECOGNISED: &[&str] = &["maximum context length (8192) exceeded", "Prompt exceeds max length"];

fn is_too_large(case: &Case) -> bool {
    let reason = match case.stop_reason.as_str() {
        "error" => {
            let text = case.error_message.as_deref().unwrap_or_default();
            return matches!(judge(text), Verdict::TooLarge(_));
        }
        "stop" => StopReason::Stop,
        "length" => StopReason::Length,
        "toolUse" => StopReason::ToolCalls,
        "aborted" => StopReason::Cancelled,
        other => panic!("{other}"),
    };
    case.usage.as_ref().is_some_and(|usage| {
        let reported = ReportedUsage {
            input_tokens: usage.input + usage.cache_read,
            output_tokens: usage.output,
            ..ReportedUsage::default()
        };
        told_by_usage(reason, reported, case.context_window)
    })
}

#[test]
fn every_recorded_case_is_judged_alike() {
    let cases: Cases = serde_json::from_str(include_str!("../../../tests/fixtures/overflow.json")).unwrap();
    assert!(cases.cases.len() > 50);
    for case in &cases.cases {
        let text = case.error_message.as_deref().unwrap_or_default();
        let expected = case.expected || SINCE_RECOGNISED.contains(&text);
        assert_eq!(is_too_large(case), expected, "{} {text}", case.stop_reason);
    }
}

/// Refusals in the words of servers. Where the text contains them, also the tokens that were sent and the maximum.
const TOO_LARGE: &[(&str, Option<u64>, Option<u64>)] = &[
    (
        "'max_tokens' or 'max_completion_tokens' is too large: 2048. This model's maximum context length is 4096 tokens \
         and your request has 3000 input tokens (2048 > 4096 - 3000).",
        Some(3000),
        Some(4096),
    ),
    (
        "max_tokens is too large: 2048. The context window of this model is 4096 tokens and your prompt has 3000.",
        Some(3000),
        Some(4096),
    ),
    ("request (7508 tokens) exceeds the available context size (2048 tokens), try", Some(7508), Some(2048)),
    (
        "This model's maximum context length is 2048 tokens. However, you requested 7515 tokens (7507 in the messages, \
         8 in the completion).",
        Some(7507),
        Some(2048),
    ),
    (
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
        Some(9000),
        Some(8192),
    ),
    (
        "This model's maximum context length is 16385 tokens, however you requested 17001 tokens (13001 in your \
         prompt; 4000 for the completion). Please reduce your prompt; or completion length.",
        Some(13001),
        Some(16385),
    ),
    ("prompt is too long: 213,462 tokens > 200,000 maximum", Some(213_462), Some(200_000)),
    ("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000", Some(190_000), Some(200_000)),
    ("input length and `max_tokens` exceed context limit: 4096 + 64 > 4100", Some(4096), Some(4100)),
    ("Your request exceeded model token limit: 262144 (requested: 300000)", Some(300_000), Some(262_144)),
    (
        "Prompt contains 140000 tokens and 10 draft tokens, too large for model with 131072 maximum context length",
        Some(140_000),
        Some(131_072),
    ),
    (
        "Trying to keep the first 9001 tokens when context the overflows. However, the model is loaded with context \
         length of only 8192 tokens, which is not enough.",
        Some(9001),
        Some(8192),
    ),
    (
        "The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 5000 >= \
         n_ctx: 4096).",
        Some(5000),
        Some(4096),
    ),
    ("Context size has been exceeded.", None, None),
    ("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]", None, Some(30_720)),
    (
        "You passed 6001 input tokens and requested 1024 output tokens. However, the model's context length is only \
         4096 tokens, resulting in a maximum input length of 3072 tokens.",
        Some(6001),
        Some(4096),
    ),
    (
        "The decoder prompt (length 5120) is longer than the maximum model length of 4096. Make sure that \
         `max_model_len` is no smaller than the number of text tokens.",
        Some(5120),
        Some(4096),
    ),
    ("The input (9000 tokens) is longer than the model's context length (8192 tokens).", Some(9000), Some(8192)),
    (
        "Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of \
         9500 tokens: 9000 tokens from the input messages and 500 tokens for the completion.",
        Some(9000),
        Some(8192),
    ),
    (
        "AiError: The estimated number of input and maximum output tokens (9000) exceeded this model context window \
         limit (8000).",
        Some(9000),
        Some(8000),
    ),
    ("Total tokens of image and text exceed max message tokens. Request id: 021755", None, None),
    (
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
        Some(1_196_265),
        Some(1_048_575),
    ),
    ("length of prompt_tokens (40000) must be less than max_seq_len (32768).", Some(40_000), Some(32_768)),
    (
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 280000 tokens.",
        Some(280_000),
        Some(272_000),
    ),
    (
        "Request too large for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000, Requested 45210. The \
         input or output tokens must be reduced in order to run successfully.",
        Some(45_210),
        Some(30_000),
    ),
    (
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and \
         512 `max_new_tokens`",
        Some(5000),
        Some(4096),
    ),
    ("Too many input tokens. Max input tokens: 8192, request input token count: 9000", Some(9000), Some(8192)),
    (
        "Current length is 70001 while limit is 65536. Please reduce the length of the messages or completion",
        Some(70_001),
        Some(65_536),
    ),
    (
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        Some(537_812),
        Some(131_072),
    ),
    ("Request body too large for gpt-4o model. Max size: 8000 tokens.", None, Some(8000)),
    ("too many tokens: the total number of tokens in the prompt cannot exceed 4081", None, Some(4081)),
    ("invalid params, context window exceeds limit (2013)", None, None),
    ("total message size 6127104 exceeds limit 4194304", None, None),
    ("Payload content length greater than maximum allowed length (1048576)", None, None),
    ("Invalid 'messages[3].content': string too long. Expected a string with maximum length 10485760.", None, None),
    ("Your input is 9001 tokens long, but the maximum for this model is 8192.", Some(9001), Some(8192)),
    ("conversation too long: 9001 tokens (limit 8192)", Some(9001), Some(8192)),
    (
        "Sequence length is longer than the specified maximum sequence length for this model (9001 > 8192)",
        Some(9001),
        Some(8192),
    ),
    ("Prompt length 9001 exceeds the maximum of 8192", Some(9001), Some(8192)),
    ("the total length of input and output exceeds 8192", None, Some(8192)),
    ("Input is too long for requested model.", None, None),
    ("context_length_exceeded", None, None),
];

/// Errors about other limits, or about the rate.
const NOT_TOO_LARGE: &[(&str, Verdict)] = &[
    ("Too many tokens, please wait before trying again.", Verdict::Throttled),
    ("Too many tokens per day, please wait before trying again.", Verdict::Throttled),
    ("Tokens per minute limit exceeded - too many tokens processed.", Verdict::Throttled),
    (
        "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000. Please try \
         again in 2s.",
        Verdict::Throttled,
    ),
    ("This request would exceed your organization's rate limit of 40,000 input tokens per minute.", Verdict::Throttled),
    ("You have reached your daily token limit.", Verdict::Throttled),
    ("The image size is 12.4 MB which exceeds the limit of 10 MB.", Verdict::Other),
    ("messages.1.content.0.image.source: image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes", Verdict::Other),
    ("Too many images: 25 > 20 maximum", Verdict::Other),
    ("max_tokens 9000 exceeds the limit of 8192 output tokens for this model.", Verdict::Other),
    ("max_tokens: 64000 > 8192, which is the maximum allowed number of output tokens for this model", Verdict::Other),
    (
        "max_tokens is too large: 200000. This model supports at most 16384 completion tokens, whereas you provided \
         200000.",
        Verdict::Other,
    ),
    (
        "Could not finish the message because max_tokens or model output limit was reached. Please try again with \
         higher max_tokens.",
        Verdict::Other,
    ),
    (
        "Invalid 'tools': array too long. Expected an array with maximum length 128, but got 200 instead.",
        Verdict::Other,
    ),
    (
        "Invalid 'stop': array too long. Expected an array with maximum length 4, but got one with length 5.",
        Verdict::Other,
    ),
    ("stop sequences: at most 4 are allowed", Verdict::Other),
    (
        "Invalid 'messages[3].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a \
         string with length 52 instead.",
        Verdict::Other,
    ),
    ("tools.0.description: too long, the limit is 1024 characters", Verdict::Other),
    ("`max_tokens` must be greater than `thinking.budget_tokens`", Verdict::Other),
    ("temperature must be less than 2", Verdict::Other),
    ("The request exceeded its time limit of 600 seconds.", Verdict::Other),
    ("Request rate exceeded the limit.", Verdict::Throttled),
    ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", Verdict::Other),
    ("Your request exceeds your monthly budget.", Verdict::Throttled),
    ("", Verdict::Other),
    // A server gave up waiting.
    ("do request failed: Post \"https://h.example/v1\": context deadline exceeded", Verdict::Other),
    ("context canceled", Verdict::Other),
    ("rpc error: code = DeadlineExceeded desc = context deadline exceeded while reading 9000 tokens", Verdict::Other),
    // The value of an option, in tokens.
    ("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024", Verdict::Other),
    ("thinking_budget 512 must be at most 24576 tokens", Verdict::Other),
    ("the thinking budget of 40000 tokens exceeds the maximum of 32768", Verdict::Other),
    ("min_tokens must be less than or equal to max_tokens=16", Verdict::Other),
    ("Invalid schema for function 'look': In context=('properties', 'a'), 'maximum' must be a number", Verdict::Other),
];

/// Refusals of a size, whether their status implies bytes, and whether they are about bytes.
const OF_BYTES: &[(&str, bool, bool)] = &[
    ("413 Request Entity Too Large", true, true),
    ("Payload Too Large", false, true),
    ("the request body of 12 MB is larger than the limit of 10MB", false, true),
    ("Request exceeds the maximum allowed number of bytes", true, true),
    ("total message size 6127104 exceeds limit 4194304", false, true),
    ("grpc: received message larger than max (6127104 vs. 4194304)", false, true),
    ("string too long. Expected a string with maximum length 10485760", false, true),
    ("Request body too large for gpt-4o model. Max size: 8000 tokens.", true, false),
    ("Prompt exceeds max length", true, false),
    ("context_length_exceeded", true, false),
    ("the request exceeds its limit", true, true),
    ("the request exceeds its limit", false, false),
];

#[test]
fn a_size_in_bytes_is_told_from_one_in_tokens() {
    for (text, by_status, expected) in OF_BYTES {
        assert_eq!(is_of_bytes(text, *by_status), *expected, "{text}");
    }
}

#[test]
fn a_refusal_as_too_large_is_recognised_with_its_numbers() {
    for (text, prompt_tokens, window_tokens) in TOO_LARGE {
        let expected = OverflowHint { prompt_tokens: *prompt_tokens, window_tokens: *window_tokens };
        assert_eq!(judge(text), Verdict::TooLarge(expected), "{text}");
    }
}

#[test]
fn what_limits_something_else_is_no_overflow() {
    for (text, expected) in NOT_TOO_LARGE {
        assert_eq!(judge(text), *expected, "{text}");
    }
}

/// The same sentences with other numbers, which the grammar does not know.
#[test]
fn any_numbers_are_read() {
    for (sent, fits) in [(5001, 5000), (300_000, 128_000), (33_000, 8192), (1_000_001, 999_999)] {
        for text in [
            format!("maximum context length is {fits} tokens, but {sent} tokens were requested"),
            format!("the prompt has {sent} tokens, which is more than the {fits} tokens of the context window"),
            format!("{sent} tokens exceed the model's limit of {fits}"),
            format!("context window of {fits} tokens exceeded by a request of {sent} tokens"),
        ] {
            let Verdict::TooLarge(hint) = judge(&text) else { panic!("{text}") };
            assert!(hint.window_tokens.is_none_or(|found| found == fits), "{text}: {hint:?}");
            assert!(hint.prompt_tokens.is_none_or(|found| found == sent), "{text}: {hint:?}");
        }
    }
}
