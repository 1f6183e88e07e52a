//! Summaries by extraction: the conversation is read back from the request that quotes it.

use super::count::tokens;
use crate::core::{
    context::{
        extract::extract,
        summary::{SKELETON_CHARS, read_prompt, unseed},
    },
    model::ModelRequest,
};
use reseed_protocol::{Message, Role};

/// Words of a summary where the request names no bound.
const WORDS_DEFAULT: u32 = 400;
/// Characters of a word with its space, on average.
const CHARS_PER_WORD: usize = 6;

/// The summary that the request asks for, in at most about this many tokens.
pub(super) fn summarise(request: &ModelRequest, tokens_max: u64) -> String {
    let sent: Vec<&Message> = request.messages().map(|message| message.message.as_ref()).collect();
    let quoted = sent.last().and_then(|last| read_prompt(&last.text()));
    match quoted {
        Some(quoted) => {
            let messages: Vec<&Message> = quoted.messages.iter().collect();
            let words_max = quoted.words_max.unwrap_or(WORDS_DEFAULT);
            fitted(&messages, quoted.previous.as_deref(), quoted.instructions.as_deref(), words_max, tokens_max)
        }
        // The request rides on the conversation itself: its last message asks, the others are what is summarised.
        None => {
            let conversation = if sent.len() > 1 { &sent[..sent.len() - 1] } else { &sent[..] };
            let texts: Vec<(String, &Message)> =
                conversation.iter().map(|message| (message.text(), *message)).collect();
            let is_seed = |text: &str, message: &Message| message.role == Role::User && unseed(text).is_some();
            let previous = texts.iter().rev().find(|(text, message)| is_seed(text, message));
            let previous = previous.and_then(|(text, _)| unseed(text));
            let rest: Vec<&Message> =
                texts.iter().filter(|(text, message)| !is_seed(text, message)).map(|(_, message)| *message).collect();
            fitted(&rest, previous, None, WORDS_DEFAULT, tokens_max)
        }
    }
}

fn fitted(
    messages: &[&Message],
    previous: Option<&str>,
    instructions: Option<&str>,
    words_max: u32,
    tokens_max: u64,
) -> String {
    let mut chars_max = (words_max as usize).saturating_mul(CHARS_PER_WORD);
    loop {
        let summary = extract(messages, previous, instructions, chars_max);
        // Tokens a character depend on the language, so the bound is found by trying; a quarter less each time ends.
        if tokens(&summary) <= tokens_max || chars_max <= SKELETON_CHARS {
            return summary;
        }
        chars_max -= chars_max.div_ceil(4);
    }
}
