//! Summaries by extraction. The conversation is either quoted in the request or precedes the message that asks for the
//! summary.

use super::count::tokens;
use crate::core::{
    compaction::{
        extract::extract,
        summary::{SKELETON_CHARS, read_in_place, read_prompt},
    },
    context::seed::unseed,
    model::ModelRequest,
};
use reseed_protocol::{Message, Role};
use std::borrow::Cow;

/// Words of a summary if the request sets no limit.
const WORDS_DEFAULT: u32 = 400;
/// Average characters of a word, including a space.
const CHARS_PER_WORD: usize = 6;

/// Returns the summary that the request asks for, in about `tokens_max` tokens at most.
pub(super) fn summarise(request: &ModelRequest, tokens_max: u64) -> String {
    let sent: Vec<&Message> = request.messages().map(|message| message.message.as_ref()).collect();
    let Some((asking, conversation)) = sent.split_last() else {
        return fitted(&[], None, None, WORDS_DEFAULT, tokens_max);
    };
    let asked = asking.text();
    if let Some(quoted) = read_prompt(&asked) {
        let messages: Vec<&Message> = quoted.messages.iter().collect();
        let words_max = quoted.words_max.unwrap_or(WORDS_DEFAULT);
        return fitted(&messages, quoted.previous.as_deref(), quoted.instructions.as_deref(), words_max, tokens_max);
    }
    // The request extends the conversation itself: its last message asks for the summary, and the messages before it
    // are summarised, except for the last ones if it says so.
    let riding = read_in_place(&asked);
    let kept_messages = riding.as_ref().map_or(0, |riding| riding.kept_messages);
    let conversation = match conversation {
        [] => &sent[..],
        conversation => &conversation[..conversation.len().saturating_sub(kept_messages)],
    };
    let seed = |message: &Message| {
        let text = (message.role == Role::User).then(|| message.text())?;
        unseed(&text).map(Cow::into_owned)
    };
    let previous = conversation.iter().rev().find_map(|message| seed(message));
    let rest: Vec<&Message> = conversation.iter().filter(|message| seed(message).is_none()).copied().collect();
    let words_max = riding.as_ref().and_then(|riding| riding.words_max).unwrap_or(WORDS_DEFAULT);
    let instructions = riding.as_ref().and_then(|riding| riding.instructions.as_deref());
    fitted(&rest, previous.as_deref(), instructions, words_max, tokens_max)
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
        // Tokens per character depend on the language, so try: a quarter less each time terminates.
        if tokens(&summary) <= tokens_max || chars_max <= SKELETON_CHARS {
            return summary;
        }
        chars_max -= chars_max.div_ceil(4);
    }
}
