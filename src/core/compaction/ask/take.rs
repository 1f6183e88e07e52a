//! Accepts the model's answers to summary requests.

use super::{Asking, Why};
use crate::{
    compaction::summary::{self, Unusable},
    model::Answer,
};
use reseed_protocol::{Part, StopReason, compaction::SummaryForm};

impl Asking {
    /// Takes the model's summary of a piece, or of everything with a cached-prefix request. If an answer repeats
    /// itself, only the text before the repetition is taken.
    ///
    /// # Errors
    /// The reason it cannot be used.
    pub(in crate::compaction) fn take(&mut self, answer: &Answer) -> Result<(), Why> {
        if thought_too_long(answer) && self.leave_room_for_reasoning() {
            return Ok(());
        }
        let pieces = if self.ride.is_some() { self.chunks.len() } else { 1 };
        let read: Vec<&str> = self.chunks.iter().take(pieces).flatten().map(String::as_str).collect();
        let replaces_much = self.summary.is_some() || read.iter().map(|block| block.len()).sum::<usize>() >= MUCH_BYTES;
        let (summary, form) = readable(answer, &self.task.delimiter, &read, replaces_much && !self.task.is_clients)?;
        self.form = form;
        self.summary = Some(summary);
        self.chunks.drain(..pieces.min(self.chunks.len()));
        Ok(())
    }

    /// Repeats the request with room for the model's reasoning. Returns `false` if it already had that room.
    pub(in crate::compaction) fn leave_room_for_reasoning(&mut self) -> bool {
        let may_help = !self.task.reasons;
        self.task.reasons = true;
        may_help
    }

    /// Repeats the request after an unusable answer: as a separate request if it was part of the conversation, and for
    /// fewer words if the answer was cut off. Returns `false` if that was done before.
    pub(in crate::compaction) fn retry(&mut self, why: Why) -> bool {
        if std::mem::replace(&mut self.retried, true) {
            return false;
        }
        self.ride = None;
        self.is_short = why == TRUNCATED;
        true
    }
}

/// Returns the text of an answer as a summary of the conversation that `read` quotes, and its form. `is_long` means
/// that a few words cannot be such a summary.
///
/// # Errors
/// The reason it cannot be used.
pub(in crate::compaction) fn readable(
    answer: &Answer,
    delimiter: &str,
    read: &[&str],
    is_long: bool,
) -> Result<(String, SummaryForm), Why> {
    let summary = summary::check(&said(answer)?, delimiter, read).map_err(why)?;
    if summary.chars().count() < CHARS_MIN && is_long {
        return Err(why(Unusable::Empty));
    }
    let is_in_sections = summary.lines().any(|line| line.starts_with("## "));
    Ok((summary, if is_in_sections { SummaryForm::Sections } else { SummaryForm::Free }))
}

/// The fewest characters of a summary that replaces this many bytes. A shorter answer says only "sorry" or "done".
const CHARS_MIN: usize = 40;
const MUCH_BYTES: usize = 500;

/// The fewest characters before an endless repetition that count as a summary, not only as its first line.
const KEPT_CHARS_MIN: usize = 200;

/// The reason for an answer that the output limit cut off.
const TRUNCATED: Why = "truncated";

/// Returns the text of a complete answer, or the text before the repetition of one that repeats itself.
///
/// # Errors
/// The reason there is none, as one word for programs.
fn said(answer: &Answer) -> Result<String, Why> {
    let mut text = String::new();
    for part in &answer.parts {
        if let Part::Text { text: piece } = part {
            text.push_str(piece);
        }
    }
    let kept = summary::before_repetition(&text).map(str::to_owned);
    match (answer.stop_reason, kept) {
        (StopReason::Stop | StopReason::Length, Some(kept)) if kept.chars().count() >= KEPT_CHARS_MIN => Ok(kept),
        (_, Some(_)) => Err("malformed"),
        (StopReason::Stop, None) => Ok(text),
        (StopReason::Length, None) => Err(TRUNCATED),
        _ => Err("malformed"),
    }
}

/// Returns true if the model reasoned until its output was cut off.
fn thought_too_long(answer: &Answer) -> bool {
    let thinks = |part: &Part| match part {
        Part::Reasoning { .. } => true,
        Part::Text { text } => text.trim_start().starts_with("<think>"),
        _ => false,
    };
    let counted = answer.usage.and_then(|usage| usage.reasoning_tokens).is_some_and(|tokens| tokens > 0);
    answer.stop_reason == StopReason::Length && (counted || answer.parts.iter().any(thinks))
}

/// Returns why a text is not a summary, as one word for programs.
fn why(unusable: Unusable) -> Why {
    match unusable {
        Unusable::Empty => "empty",
        Unusable::Continued => "continued",
        Unusable::Copied => "copied",
    }
}
