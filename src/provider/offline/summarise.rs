//! Summaries by extraction. The request either quotes the conversation, or continues it with a message that asks for
//! the summary.

use super::tokens;
use crate::core::{
    compaction::{
        extract::{extract, newest_lines},
        summary::{read_in_place, read_prompt, says_words_are_kept},
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

/// The contents of a request for a summary.
#[derive(Debug)]
pub(crate) struct AskedSummary<'a> {
    /// The messages to summarise.
    pub(crate) messages: Vec<Cow<'a, Message>>,
    /// The previous summary, if it should be updated.
    pub(crate) previous: Option<String>,
    /// The requested maximum number of words.
    pub(crate) words_max: Option<u32>,
}

/// Reads a request for a summary.
pub(crate) fn asked_summary(request: &ModelRequest) -> AskedSummary<'_> {
    let sent: Vec<&Message> = request.messages().map(|message| message.message.as_ref()).collect();
    let Some((asking, conversation)) = sent.split_last() else {
        return AskedSummary { messages: Vec::new(), previous: None, words_max: None };
    };
    let asked = asking.text();
    if let Some(quoted) = read_prompt(&asked) {
        let messages = quoted.messages.into_iter().map(Cow::Owned).collect();
        return AskedSummary { messages, previous: quoted.previous, words_max: quoted.words_max };
    }
    // The request continues the conversation itself. Its last message asks for the summary. The messages before it are
    // summarised, except for the last ones if it says so.
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
    let keeps = riding.as_ref().is_some_and(|riding| riding.keeps_summary);
    let previous = conversation.iter().rev().find_map(|message| seed(message)).filter(|_| !keeps);
    let messages = conversation.iter().filter(|message| seed(message).is_none());
    AskedSummary {
        messages: messages.map(|message| Cow::Borrowed(*message)).collect(),
        previous,
        words_max: riding.and_then(|riding| riding.words_max),
    }
}

/// Returns the summary that the request asks for, in about `tokens_max` tokens at most.
pub(super) fn summarise(request: &ModelRequest, tokens_max: u64) -> String {
    let asked = asked_summary(request);
    let words_are_kept = request.messages().last().is_some_and(|asking| says_words_are_kept(&asking.message.text()));
    let is_told = |message: &&Message| !(words_are_kept && message.role == Role::User);
    let mut chars_max = (asked.words_max.unwrap_or(WORDS_DEFAULT) as usize).saturating_mul(CHARS_PER_WORD);
    loop {
        let new = extract(asked.messages.iter().map(|message| &**message).filter(is_told), chars_max);
        let summary = match &asked.previous {
            Some(previous) if !new.is_empty() => format!("{}\n{new}", newest_lines(previous, chars_max / 2)),
            Some(previous) => newest_lines(previous, chars_max),
            None => new,
        };
        // Tokens per character depend on the language, so the size is found by trying. It shrinks by a quarter each
        // time.
        if tokens(&summary) <= tokens_max || chars_max == 0 {
            return summary.trim().to_owned();
        }
        chars_max -= chars_max.div_ceil(4);
    }
}
