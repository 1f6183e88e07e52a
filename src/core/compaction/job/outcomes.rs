//! The parts of the context that a job reads, and the outcome of each of its steps.

use super::{
    super::{
        Outcome,
        ask::{Ride, extract_chars},
    },
    Job, summary_in,
};
use crate::{
    compaction::{
        cut::Cut,
        extract::newest_lines,
        segments::{self, Segment},
        summary,
    },
    context::seed,
};
use reseed_protocol::{
    EntryId, Message, NativeCompaction, Part, Role, Usage,
    compaction::{CompactionDetails, CompactionRung},
};
use std::{collections::HashSet, sync::Arc};

/// Maximum characters of the file lists at the end of a summary: about a hundred paths. In a small window the limit is
/// two characters per token of the summary.
const FILES_CHARS_MAX: u64 = 4_000;

impl Job {
    /// Returns the removed messages. Branch summaries come without the text around them, which is ours and carries no
    /// information.
    pub(super) fn messages_of(&self, cut: &Cut) -> Vec<Arc<Message>> {
        let begins = |part: &Part| match part {
            Part::Text { text } => Some(seed::may_be_seed(text)),
            _ => None,
        };
        let bare = |message: Arc<Message>| {
            if message.content.iter().find_map(begins) != Some(true) {
                return message;
            }
            match seed::unseed(&message.text()) {
                Some(text) => Arc::new(Message::user(text.into_owned())),
                None => message,
            }
        };
        self.taken_out(cut).into_iter().map(bare).collect()
    }

    pub(super) fn taken_out(&self, cut: &Cut) -> Vec<Arc<Message>> {
        let goes = cut.summarised.iter().map(|at| &self.messages[*at]);
        let Some(raw) = &self.raw else { return goes.map(|(_, message)| message.clone()).collect() };
        raw.without(&self.kept_ids(cut), goes.filter_map(|(id, message)| id.clone().map(|id| (id, message.clone()))))
    }

    /// Returns the entries that the model still sees after this cut.
    pub(super) fn kept_ids(&self, cut: &Cut) -> HashSet<&EntryId> {
        let gone: HashSet<&EntryId> = cut.summarised.iter().filter_map(|at| self.messages[*at].0.as_ref()).collect();
        self.messages.iter().filter_map(|(id, _)| id.as_ref()).filter(|id| !gone.contains(id)).collect()
    }

    /// Returns the messages that a user wrote among those that this cut removes.
    pub(super) fn removed_inputs(&self, cut: &Cut) -> impl Iterator<Item = (Option<&EntryId>, &Message)> {
        let of = |at: &usize| (self.messages[*at].0.as_ref(), &*self.messages[*at].1);
        cut.summarised.iter().filter(|at| self.inputs.contains(at)).map(of)
    }

    pub(super) fn previous(&self, cut: &Cut) -> Option<String> {
        if self.raw.as_ref().is_some_and(|raw| raw.is_whole()) {
            return None;
        }
        Some(summary_in(&self.messages[cut.previous?].1))
    }

    /// Returns the summary that the model sees, with patches applied; empty if it sees none.
    pub(super) fn shown_summary(&self) -> String {
        let shown = self.messages.iter().find(|(id, _)| id.is_some() && *id == self.base);
        shown.map(|(_, message)| summary_in(message)).unwrap_or_default()
    }

    /// Returns the provider's own form of that summary, unless a patch has changed the text.
    fn shown_native(&self) -> Option<Box<NativeCompaction>> {
        let shown = self.messages.iter().find(|(id, _)| id.is_some() && *id == self.base);
        shown?.1.payload.as_ref()?.compaction.clone()
    }

    /// Returns two fifths of what is removed, so that something is gained. A rebuilt summary has only its own bound.
    pub(super) fn room_of(&self, cut: &Cut) -> u64 {
        if self.is_rebuild() { u64::MAX } else { self.newly_removed(cut) / 5 * 2 }
    }

    /// Returns the tokens of what this cut removes, without the previous summary.
    pub(super) fn newly_removed(&self, cut: &Cut) -> u64 {
        let previous = cut.previous.map_or(0, |at| self.task.counter.message(&self.messages[at].1).total());
        cut.dropped_tokens.saturating_sub(previous)
    }

    /// Returns the outcome of replacing what a cut removes with these segments.
    pub(super) fn summarised(&self, cut: &Cut, segments: &[Segment], rung: CompactionRung) -> Outcome {
        let details = self.details(cut);
        let (text, layout) = segments::write(segments, self.room.shows_ids);
        let written_tokens = segments.last().map_or(0, |newest| self.task.counter.text(&newest.text));
        let gained = if self.is_rebuild() { u64::MAX } else { cut.dropped_tokens / 2 };
        let files_chars_max = usize::try_from(self.files_chars_max().min(gained)).unwrap_or(usize::MAX);
        let summary = format!("{text}{}", summary::file_lists(&details, files_chars_max));
        // A single text without the user's words is stored as a plain summary.
        let is_plain = matches!(layout.as_slice(), [one] if one.said.is_empty());
        let segments = if is_plain { Vec::new() } else { layout };
        // Kept segments and the user's words were bounded before. The text that the model writes now may be as long as
        // requested.
        let bound = (self.task.counter.text(&text) + self.room.new_tokens).saturating_sub(written_tokens);
        let allowed_tokens = cut.kept_tokens + bound + self.files_chars_max() / 3;
        Outcome { summary, segments, details, allowed_tokens, ..self.outcome(cut, rung) }
    }

    pub(super) fn files_chars_max(&self) -> u64 {
        FILES_CHARS_MAX.min(2 * self.room.new_tokens)
    }

    /// Returns the conversation that a cached-prefix request for this cut would extend.
    pub(super) fn ride(&self, cut: &Cut) -> Option<Ride> {
        // A rebuilt summary covers messages that the conversation no longer contains.
        let conversation = self.conversation.clone().filter(|_| !self.is_rebuild())?;
        let from = self.tail_of(cut);
        let first_kept = self.messages.get(from).map(|(_, message)| message.clone());
        Some(Ride { conversation, kept_messages: self.messages.len() - from, first_kept })
    }

    /// Returns the index of the first message of the tail that a cut keeps.
    pub(super) fn tail_of(&self, cut: &Cut) -> usize {
        let first = cut.first_kept.as_ref();
        let from = self.messages.iter().position(|(id, _)| first.is_some() && id.as_ref() == first);
        let mut from = from.unwrap_or(self.messages.len());
        // Messages that a patch added before the first kept one stay with it.
        let is_inserted = |(id, message): &(Option<EntryId>, Arc<Message>)| id.is_none() && message.role != Role::Tool;
        while from > 0 && self.messages.get(from).is_some() && is_inserted(&self.messages[from - 1]) {
            from -= 1;
        }
        from
    }

    /// Returns the outcome of dropping the oldest messages: the previous summary, without its oldest segments if it is
    /// too long, or a note that something is missing.
    pub(super) fn truncated(&self, cut: &Cut) -> Outcome {
        let count = |text: &str| self.task.counter.text(text);
        let mut segments = self.segments(cut);
        let tokens_max = self.room.all_tokens;
        while segments.len() > 1 && count(&segments::write(&segments, self.room.shows_ids).0) > tokens_max {
            segments.remove(0);
        }
        if let [one] = segments.as_mut_slice()
            && count(&one.text) > tokens_max
        {
            one.text = newest_lines(&one.text, extract_chars(tokens_max));
        }
        if segments.is_empty() {
            let text = format!("{} earlier messages were left out to save room.", cut.summarised.len());
            segments.push(Segment { said: Vec::new(), text });
        }
        let (summary, layout) = segments::write(&segments, self.room.shows_ids);
        // It leaves no room for a future summary, because later messages must not fill that room.
        let allowed_tokens = cut.kept_tokens + count(&seed::seed_text(&summary));
        let outcome = self.outcome(cut, CompactionRung::Truncate);
        let segments = if layout.len() == 1 && layout[0].said.is_empty() { Vec::new() } else { layout };
        let native = cut.previous.and_then(|_| self.shown_native());
        Outcome { summary, segments, native, details: self.details(cut), allowed_tokens, ..outcome }
    }

    pub(super) fn clearing(&self, results: &[usize], any_gain: bool) -> Outcome {
        let earlier = self.earlier.clone();
        let (hook, hook_details) = self.owed();
        let mut cleared = earlier.as_ref().map(|earlier| earlier.cleared_entry_ids.clone()).unwrap_or_default();
        cleared.extend(results.iter().filter_map(|at| self.messages[*at].0.clone()));
        Outcome {
            summary: self.shown_summary(),
            segments: earlier.as_ref().map(|earlier| earlier.segments.clone()).unwrap_or_default(),
            left_out: 0,
            form: self.earlier.as_ref().and_then(|earlier| earlier.form),
            native: self.shown_native(),
            rung: CompactionRung::ClearToolResults,
            failed: self.failed.clone(),
            details: self.noted.clone().unwrap_or_default(),
            first_kept: self.begins.clone(),
            kept: earlier.map(|earlier| earlier.kept_entry_ids).unwrap_or_default(),
            cleared,
            usage: self.spent(),
            allowed_tokens: 0,
            any_gain,
            hook,
            hook_details,
        }
    }

    pub(super) fn outcome(&self, cut: &Cut, rung: CompactionRung) -> Outcome {
        let (hook, hook_details) = self.owed();
        // Cleared results that stay are still shown as notes.
        let stays: Vec<EntryId> =
            self.earlier.as_ref().map(|earlier| earlier.cleared_entry_ids.clone()).unwrap_or_default();
        let gone: HashSet<&EntryId> = cut.summarised.iter().filter_map(|at| self.messages[*at].0.as_ref()).collect();
        Outcome {
            summary: String::new(),
            segments: Vec::new(),
            left_out: 0,
            form: None,
            native: None,
            rung,
            failed: self.failed.clone(),
            details: CompactionDetails::default(),
            first_kept: cut.first_kept.clone(),
            kept: cut.kept.clone(),
            cleared: stays.into_iter().filter(|id| !gone.contains(id)).collect(),
            usage: self.spent(),
            allowed_tokens: cut.kept_tokens + self.room.new_tokens + self.files_chars_max() / 3,
            any_gain: false,
            hook,
            hook_details,
        }
    }

    /// Returns the usage of all requests so far; the cost only if it is known for all of them.
    pub(super) fn spent(&self) -> Option<Usage> {
        let cost = |usage: &Usage| usage.cost_nano_usd.filter(|_| !self.unreported);
        self.usage.clone().map(|usage| Usage { cost_nano_usd: cost(&usage), ..usage })
    }

    pub(super) fn details(&self, cut: &Cut) -> CompactionDetails {
        let messages = self.taken_out(cut);
        summary::file_operations(messages.iter().map(|message| &**message), self.noted.as_ref(), &self.file_tools)
    }
}
