//! Recognises a context overflow in the error texts of model servers.
//!
//! There is no common code for it: each server has its own sentence, and some include the two numbers worth knowing.
//! One table of patterns holds the sentences, matched in order, so that those with numbers come before those without.
//! Rate limit errors use nearly the same words ("too many tokens") and are excluded first.

use crate::core::model::OverflowHint;

/// Sentences that mean overflow, in lower case. `{prompt}` and `{window}` stand for the two numbers, `{n}` for any
/// other number, `*` for any text in between.
const SENTENCES: &[&str] = &[
    // llama-server, also inside what LiteLLM passes on
    "request ({prompt} tokens) exceeds the available context size ({window} tokens",
    "exceeds the available context size",
    "exceed_context_size_error",
    // llama-cpp-python and vLLM include the requested answer in the total; the messages alone are the prompt
    "maximum context length is {window} tokens. however, you requested {n} tokens ({prompt} in the messages",
    // OpenAI
    "maximum context length is {window} tokens. however, your messages resulted in {prompt} tokens",
    // vLLM
    "maximum context length is {window} tokens. however, your request has {prompt} input tokens",
    "maximum context length is {window} tokens and your request has {prompt} input tokens",
    // OpenRouter: the number is the total requested, the closest to the prompt that it reports
    "maximum context length is {window} tokens. however, you requested about {prompt} tokens",
    "maximum context length is {window}",
    "maximum context length ({window})",
    "context_length_exceeded",
    "context length exceeded",
    "exceeds the context window",
    // LiteLLM
    "contextwindowexceedederror",
    // Anthropic
    "prompt is too long: {prompt} tokens > {window} maximum",
    "prompt is too long",
    "request_too_large",
    // Bedrock
    "input is too long for requested model",
    // Google
    "input token count ({prompt}) exceeds the maximum number of tokens allowed ({window})",
    "input token count*exceeds the maximum",
    // xAI
    "maximum prompt length is {window} but the request contains {prompt} tokens",
    "maximum prompt length is {window}",
    // Groq
    "reduce the length of the messages",
    // Copilot
    "prompt token count of {prompt} exceeds the limit of {window}",
    "exceeds the limit of {n}",
    // LM Studio
    "greater than the context length",
    // MiniMax
    "context window exceeds limit",
    // Kimi
    "exceeded model token limit: {window} (requested: {prompt})",
    "exceeded model token limit",
    // Mistral
    "contains {prompt} tokens and {n} draft tokens, too large for model with {window} maximum context length",
    "too large for model with {window} maximum context length",
    // z.ai
    "model_context_window_exceeded",
    // Ollama
    "prompt too long",
    // others
    "prompt has {prompt} tokens, but the configured context size is {window}",
    "prompt exceeds max length",
    "too many tokens",
    "token limit exceeded",
];

/// Prefixes and words of errors that limit the rate and not the size.
const THROTTLE_STARTS: &[&str] = &["throttling error:", "service unavailable:"];
const THROTTLE_WORDS: &[&str] = &["rate limit", "rate_limit", "ratelimiterror", "too many requests"];

/// Cerebras refuses without a body; clients that keep only a text represent that like this.
const BODILESS: &[&str] = &["400 status code (no body)", "413 status code (no body)", "400 (no body)", "413 (no body)"];

/// Returns the overflow that an error text reports, with its numbers; `None` if it is another error.
#[must_use]
pub fn detect(text: &str) -> Option<OverflowHint> {
    let text = text.trim().to_lowercase();
    if throttles(&text) {
        return None;
    }
    if BODILESS.iter().any(|start| text.starts_with(start)) {
        return Some(OverflowHint::default());
    }
    SENTENCES.iter().find_map(|sentence| find(&text, sentence))
}

/// Returns true if an error text means that requests come too fast, in words that also occur in overflows.
#[must_use]
pub(crate) fn is_throttling(text: &str) -> bool {
    throttles(&text.trim().to_lowercase())
}

fn throttles(text: &str) -> bool {
    THROTTLE_STARTS.iter().any(|start| text.starts_with(start)) || THROTTLE_WORDS.iter().any(|word| text.contains(word))
}

/// Searches for a sentence anywhere in a text.
fn find(text: &str, sentence: &str) -> Option<OverflowHint> {
    let first = sentence.split(['{', '*']).next().unwrap_or(sentence);
    text.match_indices(first).find_map(|(at, _)| {
        let mut hint = OverflowHint::default();
        matches(&text[at..], sentence, &mut hint).then_some(hint)
    })
}

/// Returns true if `text` starts with the pattern `sentence`, and stores its numbers in `hint`.
fn matches(mut text: &str, mut sentence: &str, hint: &mut OverflowHint) -> bool {
    loop {
        let special = sentence.find(['{', '*']).unwrap_or(sentence.len());
        let Some(rest) = text.strip_prefix(&sentence[..special]) else { return false };
        text = rest;
        sentence = &sentence[special..];
        if let Some(after) = sentence.strip_prefix('*') {
            let literal = after.split(['{', '*']).next().unwrap_or(after);
            let Some(at) = text.find(literal) else { return false };
            (text, sentence) = (&text[at..], after);
        } else if let Some((name, after)) = sentence.strip_prefix('{').and_then(|named| named.split_once('}')) {
            let digits = text.find(|c: char| !c.is_ascii_digit() && c != ',').unwrap_or(text.len());
            let Ok(number) = text[..digits].replace(',', "").parse::<u64>() else { return false };
            match name {
                "prompt" => hint.prompt_tokens = Some(number),
                "window" => hint.window_tokens = Some(number),
                _ => {}
            }
            (text, sentence) = (text[..].split_at(digits).1, after);
        } else {
            return true;
        }
    }
}

#[cfg(test)]
mod tests {
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

    /// Overflows that the recorded version did not recognise yet; its successors do.
    const SINCE_RECOGNISED: &[&str] = &["maximum context length (8192) exceeded", "Prompt exceeds max length"];

    fn judge(case: &Case) -> bool {
        let reason = match case.stop_reason.as_str() {
            "error" => return detect(case.error_message.as_deref().unwrap_or_default()).is_some(),
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
        let cases: Cases = serde_json::from_str(include_str!("../../tests/fixtures/overflow.json")).unwrap();
        assert!(cases.cases.len() > 50);
        for case in &cases.cases {
            let text = case.error_message.as_deref().unwrap_or_default();
            let expected = case.expected || SINCE_RECOGNISED.contains(&text);
            assert_eq!(judge(case), expected, "{} {text}", case.stop_reason);
        }
    }

    #[test]
    fn the_numbers_are_read_where_a_sentence_tells_them() {
        for (text, prompt_tokens, window_tokens) in [
            ("request (7508 tokens) exceeds the available context size (2048 tokens), try", Some(7508), Some(2048)),
            (
                "This model's maximum context length is 2048 tokens. However, you requested 7515 tokens (7507 in the \
                 messages, 8 in the completion).",
                Some(7507),
                Some(2048),
            ),
            (
                "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
                Some(9000),
                Some(8192),
            ),
            ("prompt is too long: 213,462 tokens > 200,000 maximum", Some(213_462), Some(200_000)),
            ("Your request exceeded model token limit: 262144 (requested: 300000)", Some(300_000), Some(262_144)),
            (
                "Prompt contains 140000 tokens and 10 draft tokens, too large for model with 131072 maximum context",
                None,
                None,
            ),
            ("exceeds the limit of 128000", None, None),
            ("context_length_exceeded", None, None),
        ] {
            let hint = detect(text).unwrap_or_default();
            assert_eq!(hint, OverflowHint { prompt_tokens, window_tokens }, "{text}");
        }
    }
}
