//! Summarisers: they answer the requests for summaries.

use super::recorded::{Recorded, normal};
use crate::{
    core::model::{Answer, Delta, ModelFault, ModelRequest},
    provider::{DeltaSink, Provider, offline},
};
use reseed_protocol::{ErrorCode, Part, StopReason};
use std::{fmt, sync::Arc};

/// The length of a quoting summary, in words, if the request names none: about what models write without a limit.
const WORDS_DEFAULT: usize = 1_000;

/// The fewest words for which a message is quoted at all.
const WORDS_MIN: usize = 12;

/// The sections that a summary must have to be accepted unchanged.
const SECTIONS: &str = "## Goal\n- none\n\n## Constraints & Preferences\n- none\n\n## Progress\n### Done\n- none\n### In \
                        Progress\n- none\n### Blocked\n- none\n\n## Key Decisions\n- none\n\n## Next Steps\n- none\n\n\
                        ## Critical Context\n";

/// A source of summaries.
#[derive(Clone)]
pub(crate) enum Summariser {
    /// Writes an empty summary, so that everything kept is due to the policy.
    Empty,
    /// Quotes the first sentences of each message.
    Quote,
    /// Returns the summaries in the record, each at its recorded position.
    Recorded,
    /// Asks the configured model.
    Model(Arc<dyn Provider>),
}

/// The name of a summariser on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Named {
    /// Says nothing, so that what is kept is the policy's own doing.
    Empty,
    /// Quotes the first sentences of each message, as far as the summary has room.
    Quote,
    /// Repeats the summary that the record has at the nearest earlier place.
    Recorded,
    /// Asks the model of the settings.
    Model,
}

impl fmt::Debug for Summariser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Summariser {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Quote => "quote",
            Self::Recorded => "recorded",
            Self::Model(_) => "model",
        }
    }

    /// Answers a request for a summary of a conversation with this many texts so far.
    pub(crate) fn answer(
        &self,
        request: &ModelRequest,
        recorded: &Recorded,
        texts: usize,
    ) -> Result<Answer, ModelFault> {
        let text = match self {
            Self::Empty => empty(),
            Self::Quote => quoted(request),
            Self::Recorded => {
                let before = recorded.summaries.iter().rev().find(|(at, _)| *at <= texts);
                before.or(recorded.summaries.first()).map_or_else(empty, |(_, summary)| summary.clone())
            }
            Self::Model(provider) => return asked(&**provider, request),
        };
        Ok(Answer::new(vec![Part::Text { text }], StopReason::Stop))
    }
}

/// Returns a summary without content. It has one line, because a summary without any line is refused.
fn empty() -> String {
    format!("{SECTIONS}- The earlier part of the conversation is left out.")
}

/// Quotes the beginning of every message, and of the lines of the previous summary.
fn quoted(request: &ModelRequest) -> String {
    let asked = offline::asked_summary(request);
    let words_max = asked.words_max.map_or(WORDS_DEFAULT, |words| words as usize);
    // Two tokens per word are more than the words of any language here take, so the request's limit is kept.
    let limit = request.envelope.options.max_output_tokens.map_or(usize::MAX, |tokens| (tokens / 2) as usize);
    let room = words_max.min(limit).saturating_sub(SECTIONS.split_whitespace().count());
    let texts = asked.messages.iter().map(|message| normal(&message.text())).filter(|text| !text.is_empty());
    let texts: Vec<String> = texts.collect();
    let before: Vec<&str> = asked.previous.iter().flat_map(|previous| previous.lines()).filter_map(item).collect();
    let all: Vec<&str> = before.into_iter().chain(texts.iter().map(String::as_str)).collect();
    let share = (room / all.len().max(1)).max(WORDS_MIN);
    let (mut lines, mut left) = (Vec::new(), room);
    // The newest come first, so that the oldest are left out if the room does not suffice.
    for text in all.iter().rev() {
        let line = sentences(text, share);
        let words = line.split_whitespace().count() + 1;
        if words > left {
            break;
        }
        left -= words;
        lines.push(format!("- {line}"));
    }
    lines.reverse();
    if lines.is_empty() {
        return empty();
    }
    format!("{SECTIONS}{}", lines.join("\n"))
}

/// Returns the text of a quoted summary line.
fn item(line: &str) -> Option<&str> {
    let text = line.trim().strip_prefix("- ")?;
    (text != "none" && !text.is_empty()).then_some(text)
}

/// Returns the whole sentences at the beginning of a text that together have at most this many words. If the first
/// sentence is longer, returns its beginning.
fn sentences(text: &str, words_max: usize) -> String {
    let words: Vec<&str> = text.split(' ').take(words_max).collect();
    let ends = |word: &str| word.ends_with(['.', '!', '?', '。', '！', '？']);
    if text.split(' ').nth(words_max).is_none() {
        return words.join(" ");
    }
    let whole = words.iter().rposition(|word| ends(word)).map_or(words.len(), |at| at + 1);
    words[..whole].join(" ")
}

/// Ignores the pieces of an answer, which is used once it is complete.
struct Unshown;

impl DeltaSink for Unshown {
    fn delta(&mut self, _: Delta<'_>) {}
}

/// Asks the model. The replay waits for it, because a summary takes no time in the replayed conversation.
fn asked(provider: &dyn Provider, request: &ModelRequest) -> Result<Answer, ModelFault> {
    let handle = tokio::runtime::Handle::try_current()
        .map_err(|error| ModelFault::new(ErrorCode::Internal, format!("no runtime to ask the model in: {error}")))?;
    let mut unshown = Unshown;
    tokio::task::block_in_place(|| handle.block_on(provider.answer(request, &mut unshown)))
}
