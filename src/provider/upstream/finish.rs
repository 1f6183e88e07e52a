//! The reasons why an answer ended, in the words of all servers.

use crate::{
    core::model::ModelFault,
    provider::fault::{fault, name},
};
use reseed_protocol::{ErrorCode, StopReason};

/// The reason why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Finish {
    pub(crate) stop_reason: StopReason,
    /// True if the context window was full.
    pub(crate) is_full: bool,
}

impl Finish {
    pub(crate) const STOP: Self = Self { stop_reason: StopReason::Stop, is_full: false };
}

/// Words for an ordinary end, in lower case. An answer that calls tools is recognised by its calls.
const ORDINARY: &[&str] = &[
    "stop",
    "stop_sequence",
    "end_turn",
    "eos",
    "eos_token",
    "complete",
    "completed",
    "tool_calls",
    "tool_call",
    "tool_use",
    "function_call",
    // Anthropic: the answer is a compaction.
    "compaction",
];

/// Words for an answer that reached the output limit.
const LENGTH: &[&str] = &["length", "max_tokens", "max_output_tokens", "max_completion_tokens", "token_limit"];

/// Parts of words that indicate a filter at OpenAI, Anthropic, Gemini, GLM or Bedrock: `content_filter: RECITATION`,
/// `image_prohibited_content`, `guardrail_intervened` and the like.
const FILTERS: &[&str] = &[
    // Gemini: the language is not supported, or the text has personal information.
    "language",
    "spii",
    "content_filter",
    "contentfilter",
    "refus",
    "safety",
    "recitation",
    "blocklist",
    "blocked",
    "prohibit",
    "sensitive",
    "guardrail",
    "moderat",
    "flagged",
    "policy",
];

/// Words for a full window, used by Anthropic and z.ai, by Mistral, and by others.
const FULL: &[&str] = &["model_context_window_exceeded", "model_length", "context_length", "context_length_exceeded"];

/// Parts of words that indicate a failure: `error_finish`, `network_error`, `abort`, `request_cancelled` and the like.
/// A router lost the server behind it, or a server gave up, so the answer is not complete.
const FAILURES: &[&str] = &[
    "error",
    "abort",
    "fail",
    "cancel",
    "timeout",
    "timed_out",
    "interrupt",
    "disconnect",
    "overload",
    "insufficient_system_resource",
    // Gemini: the model tried to call a tool, and the server could not read the call.
    "malformed",
    "unexpected_tool_call",
];

/// Interprets the word for the reason why an answer ended. An unknown word counts as a normal end and is logged.
pub(crate) fn finish(word: &str) -> Result<Finish, ModelFault> {
    let known = word.to_ascii_lowercase().replace(['-', ' '], "_");
    if FULL.contains(&known.as_str()) {
        return Ok(Finish { stop_reason: StopReason::Length, is_full: true });
    }
    if ORDINARY.contains(&known.as_str()) {
        return Ok(Finish::STOP);
    }
    if LENGTH.contains(&known.as_str()) {
        return Ok(Finish { stop_reason: StopReason::Length, is_full: false });
    }
    if FILTERS.iter().any(|filter| known.contains(filter)) {
        return Ok(Finish { stop_reason: StopReason::ContentFilter, is_full: false });
    }
    if FAILURES.iter().any(|failure| known.contains(failure)) {
        return Err(fault(ErrorCode::UpstreamError, "the server ended the answer with an error"));
    }
    tracing::warn!(finish_reason = name(word), "the model server ended an answer for an unknown reason");
    Ok(Finish::STOP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_has_its_reason() {
        for (words, expected) in [
            (&["stop", "eos_token", "STOP", "end_turn", "a_new_one", ""][..], Some((StopReason::Stop, false))),
            (&["length", "MAX_TOKENS", "max-output-tokens"], Some((StopReason::Length, false))),
            (&["model_context_window_exceeded", "model_length"], Some((StopReason::Length, true))),
            (&["tool_calls", "function_call", "tool_use"], Some((StopReason::Stop, false))),
            (
                &[
                    "content_filter",
                    "SAFETY",
                    "sensitive",
                    "refusal",
                    "content_filter: RECITATION",
                    "content_filter: PROHIBITED_CONTENT",
                    "image_prohibited_content",
                    "IMAGE_RECITATION",
                    "image_safety",
                    "blocked_by_policy",
                ],
                Some((StopReason::ContentFilter, false)),
            ),
            (
                &[
                    "error",
                    "network_error",
                    "error_finish",
                    "abort",
                    "aborted",
                    "request_cancelled",
                    "insufficient_system_resource",
                    "MALFORMED_FUNCTION_CALL",
                ],
                None,
            ),
        ] {
            for word in words {
                let expected = expected.map(|(stop_reason, is_full)| Finish { stop_reason, is_full });
                assert_eq!(finish(word).ok(), expected, "{word}");
            }
        }
    }
}
