//! Taking the model's answers to summary requests.

use super::{Asking, IncompleteAnswer, Why};
use crate::core::{
    compaction::summary::{self, Form, Unusable},
    model::Answer,
};
use reseed_protocol::{Part, StopReason, entry::SummaryForm};

impl Asking {
    /// Takes the model's summary of a piece, or of everything with a cached-prefix request. The model is asked once for
    /// missing sections; after that the answer is taken as it is, if it is a summary. Of an answer that repeats itself,
    /// what precedes the repetition is taken so, and nothing more is asked for.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub(in crate::compaction) fn take(&mut self, answer: &Answer) -> Result<(), Why> {
        if thought_too_long(answer) && self.leave_room_for_reasoning() {
            return Ok(());
        }
        let said = match said(answer) {
            Ok(Said::Whole(said)) => said,
            Ok(Said::BeforeRepetition(said)) => {
                self.completed = true;
                said
            }
            Err(why) => return if self.settle() { Ok(()) } else { Err(why) },
        };
        if let Some(draft) = self.draft.take() {
            return match summary::check_completed(&draft.said, &said) {
                Ok(summary) => self.accept(summary, SummaryForm::Sections),
                Err(_) => {
                    let text = draft.text.or_else(|why| self.prose(&said).map_err(|_| why))?;
                    self.accept(text, SummaryForm::Free)
                }
            };
        }
        if self.task.is_clients {
            let text = summary::check_free_form(&said).map_err(why)?;
            return self.accept(text, SummaryForm::Free);
        }
        match summary::check(&said) {
            Ok(summary) => self.accept(summary, SummaryForm::Sections),
            Err(Unusable::Missing(_)) => {
                let text = self.prose(&said);
                let lacking = summary::lacking(&said);
                if self.may_complete(&said, &lacking) {
                    self.completed = true;
                    self.draft = Some(IncompleteAnswer { said, lacking, text });
                    return Ok(());
                }
                self.accept(text?, SummaryForm::Free)
            }
            Err(unusable) => Err(why(unusable)),
        }
    }

    /// Asks for the same once more, with room for the model's reasoning. Returns `false` if there was such room before.
    pub(in crate::compaction) fn leave_room_for_reasoning(&mut self) -> bool {
        let may_help = self.task.answer_tokens_max.is_none() && !self.task.reasons;
        self.task.reasons = true;
        may_help
    }

    /// Returns the text as it is, if it is a summary and not a copy.
    fn prose(&self, said: &str) -> Result<String, Why> {
        let told = self.read().chain(self.summary.as_deref());
        summary::check_prose(said, told).map_err(why)
    }

    /// Returns the blocks that the newest answer covers.
    fn read(&self) -> impl Iterator<Item = &str> {
        let pieces = if self.ride.is_some() { self.chunks.len() } else { 1 };
        self.chunks.iter().take(pieces).flatten().map(String::as_str)
    }

    /// Returns true if the model may be asked for what is missing: sections were requested, it was not asked before,
    /// and the window has room for its text and an answer.
    fn may_complete(&self, said: &str, lacking: &[&str]) -> bool {
        if self.completed || self.task.form() != Form::Sections || summary::check_free_form(said).is_err() {
            return false;
        }
        let Some(request) = self.piece_request() else { return false };
        let request = self.with_draft(request, said, lacking);
        request.envelope.options.max_output_tokens.is_some_and(|tokens| tokens >= self.task.summary_tokens_max)
    }

    /// Takes the incomplete answer as it is, if it is a summary. Returns `false` if there is none.
    pub(in crate::compaction) fn settle(&mut self) -> bool {
        let Some(IncompleteAnswer { text: Ok(text), .. }) = self.draft.take() else { return false };
        self.accept(text, SummaryForm::Free).is_ok()
    }

    /// Returns true if the model has answered and is being asked for missing sections.
    pub(in crate::compaction) fn is_completing(&self) -> bool {
        self.draft.is_some()
    }

    /// Returns true if there is an answer that can be taken as it is.
    pub(in crate::compaction) fn has_draft(&self) -> bool {
        self.draft.as_ref().is_some_and(|draft| draft.text.is_ok())
    }

    fn accept(&mut self, summary: String, form: SummaryForm) -> Result<(), Why> {
        summary::check_copied(&summary, &self.read().collect::<Vec<_>>()).map_err(why)?;
        self.summary = Some(summary);
        self.form = form;
        let pieces = if self.ride.is_some() { self.chunks.len() } else { 1 };
        self.chunks.drain(..pieces.min(self.chunks.len()));
        Ok(())
    }
}

/// The text of an answer.
enum Said {
    Whole(String),
    /// The model repeats itself from here on.
    BeforeRepetition(String),
}

/// Returns the text of a complete answer, or of one that repeats itself, up to there.
///
/// # Errors
/// Why there is none, as one word for programs.
fn said(answer: &Answer) -> Result<Said, Why> {
    let mut text = String::new();
    for part in &answer.parts {
        if let Part::Text { text: piece } = part {
            text.push_str(piece);
        }
    }
    let kept = summary::before_repetition(&text).map(str::to_owned);
    match (answer.stop_reason, kept) {
        (StopReason::Stop | StopReason::Length, Some(kept)) => Ok(Said::BeforeRepetition(kept)),
        (StopReason::Stop, None) => Ok(Said::Whole(text)),
        (StopReason::Length, None) => Err("truncated"),
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
        Unusable::Empty | Unusable::Nothing => "empty",
        Unusable::Refused => "refused",
        Unusable::CutOff => "truncated",
        Unusable::Continued => "continued",
        Unusable::Missing(_) | Unusable::Repetitive | Unusable::Copied | Unusable::Unrelated => "malformed",
    }
}
