//! What a job reads of the context, and the outcome of each of its steps.

use super::{super::Outcome, Extent, Job, told_by};
use crate::core::compaction::ask::{EXTRACT_CHARS_PER_TOKEN, Ride};
use crate::core::context::seed;
use crate::core::{
    compaction::{
        cut::Cut,
        extract::extract,
        summary::{self, RepairBounds},
    },
    text::presentable,
};
use reseed_protocol::{
    EntryId, Message, Part, Role, Usage,
    entry::CompactionDetails,
    event::{CompactionRung, Retained},
};
use std::{collections::HashSet, sync::Arc};

/// Maximum characters of the file lists at the end of a summary: about a hundred paths, and in a small window two per
/// token of the summary.
const FILES_CHARS_MAX: u64 = 4_000;

impl Job {
    /// Returns the removed messages; branch summaries come without the text around them, which is ours and says
    /// nothing.
    pub(super) fn told(&self, cut: &Cut) -> Vec<Arc<Message>> {
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
        let gone: HashSet<&EntryId> = goes.clone().filter_map(|(id, _)| id.as_ref()).collect();
        let ids = self.messages.iter().filter_map(|(id, _)| id.as_ref());
        let stays: HashSet<&EntryId> = ids.filter(|id| !gone.contains(id)).collect();
        raw.without(&stays, goes.filter_map(|(id, message)| id.clone().map(|id| (id, message.clone()))))
    }

    /// Returns the tokens of what a cut removes, if known: counted for the same model, with nothing cleared.
    pub(super) fn counted(&self, cut: &Cut) -> Option<u64> {
        let as_said = !self.is_rebuild() && cut.summarised.iter().all(|at| !self.cleared.contains(at));
        (as_said && self.task.counter.method() == self.context_method).then_some(cut.dropped_tokens)
    }

    pub(super) fn previous(&self, cut: &Cut) -> Option<String> {
        if self.raw.as_ref().is_some_and(|raw| raw.is_whole()) {
            return None;
        }
        Some(told_by(&self.messages[cut.previous?].1))
    }

    /// Returns the summary that the model sees, as patches left it; empty if it sees none.
    pub(super) fn shown_summary(&self) -> String {
        let shown = self.messages.iter().find(|(id, _)| id.is_some() && *id == self.base);
        shown.map(|(_, message)| told_by(message)).unwrap_or_default()
    }

    pub(super) fn extract(&self, cut: &Cut, previous: Option<&str>, extent: Extent) -> String {
        let messages = self.told(cut);
        let messages: Vec<&Message> = messages.iter().map(|message| &**message).collect();
        let tokens_max = match extent {
            Extent::Full => self.task.summary_tokens_max,
            Extent::Half => self.task.summary_tokens_max.min(self.room(cut)),
        };
        presentable(&self.task.extract(&messages, previous, tokens_max)).into_owned()
    }

    /// Returns half of what is removed, so that something is gained; a rebuilt summary has only its own bound.
    pub(super) fn room(&self, cut: &Cut) -> u64 {
        if self.is_rebuild() { u64::MAX } else { cut.dropped_tokens / 2 }
    }

    pub(super) fn summarised(&self, cut: &Cut, text: &str, rung: CompactionRung) -> Outcome {
        let details = self.details(cut);
        let messages = self.told(cut);
        let messages: Vec<&Message> = messages.iter().map(|message| &**message).collect();
        let count = |text: &str| self.task.counter.text(text);
        // At most half of what the summary saves is given back: even a small cut stays worth it.
        let saved = if self.is_rebuild() { u64::MAX } else { cut.dropped_tokens.saturating_sub(count(text)) };
        let bounds = RepairBounds { tokens_max: self.restored_tokens_max.min(saved / 2), count: &count };
        let previous = self.previous(cut);
        // Nothing is known about a form of the client's own.
        let settled =
            (!self.order.free_form).then(|| self.with_sources(cut, |said| summary::settle(text, said, bounds)));
        let constraints = match &settled {
            Some(settled) => settled.constraints.clone(),
            None => self.with_sources(cut, summary::stated),
        };
        let repaired = settled.map(|settled| {
            let tokens_max = bounds.tokens_max.saturating_sub(settled.added_tokens);
            let bounds = RepairBounds { tokens_max, ..bounds };
            summary::repair(&settled.text, &messages, previous.as_deref(), self.task.kind, bounds)
        });
        let retained = repaired.as_ref().map(|found| Retained { checked: found.checked, restored: found.restored });
        let text = repaired.as_ref().map_or(text, |repaired| &repaired.text);
        let files_chars_max = usize::try_from(self.files_chars_max().min(self.room(cut))).unwrap_or(usize::MAX);
        let summary = summary::with_files(text, &details, files_chars_max);
        Outcome { summary, details, retained, constraints, ..self.outcome(cut, rung) }
    }

    pub(super) fn files_chars_max(&self) -> u64 {
        FILES_CHARS_MAX.min(2 * self.task.summary_tokens_max)
    }

    /// Returns the conversation that a cached-prefix request for this cut would extend.
    pub(super) fn ride(&self, cut: &Cut) -> Option<Ride> {
        // A rebuilt summary covers messages that the conversation no longer contains.
        let conversation = self.conversation.clone().filter(|_| !self.is_rebuild())?;
        let first = cut.first_kept.as_ref();
        let from = self.messages.iter().position(|(id, _)| first.is_some() && id.as_ref() == first);
        let mut from = from.unwrap_or(self.messages.len());
        // Messages that a patch added before the first kept one stay with it.
        let is_inserted = |(id, message): &(Option<EntryId>, Arc<Message>)| id.is_none() && message.role != Role::Tool;
        while from > 0 && self.messages.get(from).is_some() && is_inserted(&self.messages[from - 1]) {
            from -= 1;
        }
        let first_kept = self.messages.get(from).map(|(_, message)| message.clone());
        Some(Ride { conversation, kept_messages: self.messages.len() - from, first_kept })
    }

    /// Returns the outcome of dropping the oldest messages: the previous summary, cut to its bound, or a note that
    /// something is missing.
    pub(super) fn truncated(&self, cut: &Cut) -> Outcome {
        let summary = match self.previous(cut) {
            Some(previous) => {
                let chars_max = self.task.summary_tokens_max.saturating_mul(EXTRACT_CHARS_PER_TOKEN);
                let chars_max = usize::try_from(chars_max).unwrap_or(usize::MAX);
                if previous.chars().count() <= chars_max {
                    previous
                } else {
                    extract(&[], Some(&previous), None, chars_max)
                }
            }
            None => format!("{} earlier messages were left out to save room.", cut.summarised.len()),
        };
        let constraints = self.with_sources(cut, summary::stated);
        // No room for a future summary: it must not be filled with later messages.
        let allowed_tokens = cut.kept_tokens + self.task.counter.text(&seed::seed_text(&summary));
        let outcome = self.outcome(cut, CompactionRung::Truncate);
        Outcome { summary, details: self.details(cut), constraints, allowed_tokens, ..outcome }
    }

    pub(super) fn clearing(&self, results: &[usize], any_gain: bool) -> Outcome {
        let earlier = self.earlier.clone();
        let (hook, hook_details) = self.owed();
        let mut cleared = earlier.as_ref().map(|earlier| earlier.cleared_entry_ids.clone()).unwrap_or_default();
        cleared.extend(results.iter().filter_map(|at| self.messages[*at].0.clone()));
        Outcome {
            summary: self.shown_summary(),
            form: self.earlier.as_ref().and_then(|earlier| earlier.form),
            constraints: self.noted_constraints().to_vec(),
            rung: CompactionRung::ClearToolResults,
            failed: self.failed.clone(),
            details: self.noted.clone().unwrap_or_default(),
            first_kept: self.begins.clone(),
            kept: earlier.map(|earlier| earlier.kept_entry_ids).unwrap_or_default(),
            cleared,
            usage: self.spent(),
            retained: None,
            allowed_tokens: 0,
            any_gain,
            hook,
            hook_details,
        }
    }

    pub(super) fn outcome(&self, cut: &Cut, rung: CompactionRung) -> Outcome {
        let (hook, hook_details) = self.owed();
        // Cleared results that stay are still shown as a note.
        let stays: Vec<EntryId> =
            self.earlier.as_ref().map(|earlier| earlier.cleared_entry_ids.clone()).unwrap_or_default();
        let gone: HashSet<&EntryId> = cut.summarised.iter().filter_map(|at| self.messages[*at].0.as_ref()).collect();
        Outcome {
            summary: String::new(),
            form: None,
            constraints: self.noted_constraints().to_vec(),
            rung,
            failed: self.failed.clone(),
            details: CompactionDetails::default(),
            first_kept: cut.first_kept.clone(),
            kept: cut.kept.clone(),
            cleared: stays.into_iter().filter(|id| !gone.contains(id)).collect(),
            usage: self.spent(),
            retained: None,
            allowed_tokens: cut.kept_tokens
                + self.task.summary_tokens_max
                + self.restored_tokens_max
                + self.files_chars_max() / 3,
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
