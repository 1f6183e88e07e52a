//! Recognises a request that was refused as too large, on any server.
//!
//! There is no common code for it, and each server has its own sentence, so no sentence is matched. A text means
//! overflow if it contains one of a few codes. It also does if it mentions the size of the model's input (tokens, a
//! context, the length of a prompt) and says that a limit is exceeded. It does not if it is about another limit: the
//! rate of requests, images, tools, or the answer alone. Numbers get their meaning from the words around them
//! (`numbers`).

mod numbers;

use crate::core::model::OverflowHint;

/// What an error text says about the size of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The request is too large for the model.
    TooLarge(OverflowHint),
    /// Requests come too fast, or there are too many. Waiting helps, and a smaller request does not.
    Throttled,
    /// It says neither.
    Other,
}

/// Codes that name an overflow. They are in separate fields, and some servers put them into the text.
const CODES: &[&str] = &[
    "context_length_exceeded",
    "context_window_exceeded",
    "contextwindowexceeded",
    "exceed_context_size",
    "context_overflow",
    "request_too_large",
    "prompt_too_long",
    "input_too_long",
    "tokens_limit_reached",
    "max_tokens_exceeded",
];

/// Words of errors that limit the rate and not the size.
const THROTTLES: &[&str] = &[
    "rate limit",
    "rate_limit",
    "rate-limit",
    "ratelimit",
    "too many requests",
    "request rate",
    "rate exceeded",
    "throttl",
    "quota",
    "per minute",
    "per-minute",
    "per min",
    "per second",
    "per hour",
    "per day",
    "/min",
    "(tpm)",
    "(rpm)",
    "(tpd)",
    "this minute",
    "this hour",
    "today",
    "daily",
    "monthly",
    "please wait",
    "wait before",
    "slow down",
    "try again in",
    "retry in",
    "retry after",
    "try again later",
    "service unavailable",
    "overloaded",
    "at capacity",
    "concurren",
];

/// Words for the model's input, which can be too large for it.
const READ: &[&str] =
    &["prompt", "input", "message", "request", "sequence", "conversation", "history", "content", "chat", "body"];

/// Words for the input's size.
const SIZES: &[&str] = &["length", "size", "long", "large", "big", "exceed"];

/// Words that say that there is a limit and that it is exceeded.
const LIMITS: &[&str] = &[
    "exceed",
    "overflow",
    "too long",
    "too large",
    "too big",
    "too many",
    "longer than",
    "larger than",
    "greater than",
    "bigger than",
    "higher than",
    "more than",
    "above the",
    "beyond",
    "over the",
    "surpass",
    "less than",
    "smaller than",
    "shorter than",
    "fewer than",
    "at most",
    "no more than",
    "up to",
    "maximum",
    "limit",
    "max ",
    "max_",
    "must be <",
    "range of",
    "not enough",
    "does not fit",
    "doesn't fit",
    "not fit",
    "cannot fit",
    "reduce the length",
    "shorten",
    " > ",
    ">=",
];

/// Other things that are limited too. If one is named, the error is about the text only if it mentions tokens or a
/// context.
const ELSEWHERE: &[&str] = &[
    "image",
    "picture",
    "photo",
    "audio",
    "video",
    "pixel",
    "file",
    "attachment",
    "document",
    "page",
    "tool",
    "function",
    "array",
    "stop",
    "description",
    "schema",
    "metadata",
    "header",
    "url",
    "_id",
    ".id",
    ".name",
    "name is",
    "logprob",
    "choices",
    "time",
    "second",
    "deadline",
    "billing",
    "spend",
    "credit",
    "balance",
    "budget",
];

/// Options that count tokens, and words for the answer. Their limits are not limits on the input. A text that contains
/// these and no word for the input is only about them.
const ANSWERS: &[&str] = &[
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "max_thinking_tokens",
    "min_tokens",
    "budget_tokens",
    "token_budget",
    "token budget",
    "tokens budget",
    "thinking_budget",
    "thinkingbudget",
    "thinking budget",
    "reasoning_tokens",
    "reasoning tokens",
    "thinking tokens",
    "output",
    "completion",
];

/// Words of servers that gave up waiting, or whose client did. In Go, the request's deadline belongs to its "context".
const TIMES_OUT: &[&str] = &[
    "deadline exceeded",
    "deadline_exceeded",
    "deadlineexceeded",
    "context cancel",
    "context was cancel",
    "context has been cancel",
    "context done",
    "operation was cancel",
    "timed out",
    "request timeout",
    "gateway timeout",
    "upstream timeout",
    "timeout exceeded",
];

/// Places where "context" does not mean the model's input: a schema path, options, and words that begin alike.
const OTHER_CONTEXTS: &[&str] = &["context=", "context_management", "contextual", "ssl context", "tls context"];

/// Phrases that validators use for any value. Their `Input` is not the model's input.
const VALIDATORS: &[&str] =
    &["input should be greater than", "input should be less than", "input should be a ", "input should be '"];

/// Words for the size of a body or a text, as servers and proxies measure it.
const BYTES: &[&str] = &[
    "byte",
    "kb",
    "mb",
    "gb",
    "kib",
    "mib",
    "megabyte",
    "character",
    "string too long",
    "payload",
    "entity",
    "body",
    "message size",
    "message larger",
    "content-length",
    "content length",
    "upload",
    "client_max_body_size",
];

/// Words for the size of the model's input.
const TOKENS: &[&str] = &["token", "context", "n_ctx", "prompt", "sequence", "conversation", "history", "input is"];

/// Cerebras refuses without a body. Clients that keep only a text represent that in these words.
const BODILESS: &[&str] = &["400 status code (no body)", "413 status code (no body)", "400 (no body)", "413 (no body)"];

/// Classifies an error text, which is a refusal's message or its codes.
#[must_use]
pub(crate) fn judge(text: &str) -> Verdict {
    let text = VALIDATORS.iter().fold(text.trim().to_lowercase(), |text, words| text.replace(words, ""));
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let numbers = || if is_of_bytes(&text, false) { OverflowHint::default() } else { numbers::read(&text) };
    if has(TIMES_OUT) && !has(CODES) {
        return Verdict::Other;
    }
    if has(THROTTLES) {
        // A single request above the allowance per minute never succeeds, however long one waits.
        let hint = numbers();
        let is_hopeless = matches!((hint.prompt_tokens, hint.window_tokens), (Some(sent), Some(fit)) if sent > fit);
        let is_large = text.contains("too large") || text.contains("too long") || text.contains("too big");
        return if is_hopeless && is_large { Verdict::TooLarge(hint) } else { Verdict::Throttled };
    }
    if BODILESS.iter().any(|start| text.starts_with(start)) {
        return Verdict::TooLarge(OverflowHint::default());
    }
    if has(CODES) || (has(LIMITS) && is_about_what_is_read(&text)) {
        return Verdict::TooLarge(numbers());
    }
    Verdict::Other
}

/// Returns the overflow that an error text reports, with its numbers; `None` if it reports none.
#[must_use]
pub fn detect(text: &str) -> Option<OverflowHint> {
    match judge(text) {
        Verdict::TooLarge(hint) => Some(hint),
        Verdict::Throttled | Verdict::Other => None,
    }
}

/// Returns true if a text that names a limit is about the model's input.
fn is_about_what_is_read(text: &str) -> bool {
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if OTHER_CONTEXTS.iter().fold(text.to_owned(), |text, other| text.replace(other, "")).contains("context") {
        return true;
    }
    let tokens = text.contains("token");
    if tokens {
        // "max_tokens 9000 exceeds 8192 output tokens" is about the answer, unless the text also names the input.
        let rest = without_answers(text);
        let is_answer = rest.len() < text.len();
        let names_read =
            ["prompt", "input", "messages", "conversation", "history"].iter().any(|word| rest.contains(word));
        let counts_all =
            ["total token", "number of token", "requested token", "sequence"].iter().any(|word| rest.contains(word));
        let is_sampled = has(&["must be at least", "logprob", "logit", "tokenizer"]);
        return !is_sampled && (!is_answer || names_read || counts_all);
    }
    if has(ELSEWHERE) {
        return false;
    }
    has(READ) && has(SIZES)
}

/// Returns true if a text is about images, files and the like.
#[must_use]
pub(crate) fn is_about_media(text: &str) -> bool {
    let text = text.to_lowercase();
    !text.contains("token")
        && ["image", "picture", "audio", "video", "attachment"].iter().any(|word| text.contains(word))
}

/// Returns true if a refusal as too large measures bytes or characters, which say nothing about a window. `by_status`
/// means that the status stands for the size of a body.
#[must_use]
pub(crate) fn is_of_bytes(text: &str, by_status: bool) -> bool {
    let text = text.to_lowercase();
    let names_bytes = |word: &&str| {
        // A unit follows a number or stands alone. As a part of a longer word, it does not count.
        text.match_indices(*word)
            .any(|(at, _)| word.len() > 3 || !text[..at].ends_with(|c: char| c.is_alphabetic() || c == '_'))
    };
    // A number above a million without a unit counts bytes.
    let is_huge = text.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > 6);
    !TOKENS.iter().any(|word| text.contains(word)) && (by_status || is_huge || BYTES.iter().any(names_bytes))
}

/// Returns true if a server gave up waiting.
#[must_use]
pub(crate) fn is_timeout(text: &str) -> bool {
    let text = text.to_lowercase();
    TIMES_OUT.iter().any(|word| text.contains(word))
}

/// Returns a text without the names of the answer's limit, whose parts would otherwise count as words.
fn without_answers(text: &str) -> String {
    ANSWERS.iter().fold(text.to_owned(), |text, word| text.replace(word, ""))
}

#[cfg(test)]
mod tests;
