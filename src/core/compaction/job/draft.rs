//! A summary in the making: which segments stay, which are merged, and what is written about the rest.

use super::{Job, Next, State};
use crate::{
    compaction::{
        ask::{Asking, Task, extract_chars},
        cut::Cut,
        extract::{extract, newest_lines},
        identifiers,
        order::Outcome,
        segments::{self, Arranged, Said, Segment},
    },
    text::clean::clean,
};
use reseed_protocol::{
    Message, NativeCompaction, Role,
    compaction::{CompactionRung, SummaryForm},
};
use std::{collections::HashSet, sync::Arc};

/// The identifiers of a stretch may take one part in this many of the room for its text.
const IDENTIFIERS_PART: u64 = 8;

/// Minimum tokens of an extract: two or three lines, even for a branch that has no more.
const EXTRACT_TOKENS_MIN: u64 = 64;

/// A summary in the making.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    /// The cut that it replaces.
    pub(super) cut: Cut,
    /// The plan for earlier segments.
    arranged: Arranged,
    /// The new segment's text, once it is written.
    text: Option<String>,
    /// The merged segments' text, if it is written separately.
    merged: Option<String>,
    /// True while the model writes the merged segments.
    pub(super) is_merging: bool,
    /// The step that wrote the new segment.
    step: CompactionRung,
    form: SummaryForm,
    /// The number of characters that no request contained.
    left_out: u64,
    /// The provider's own form of the summary.
    pub(super) native: Option<Box<NativeCompaction>>,
}

impl Draft {
    /// Sets the text that came with the provider's own form of the summary.
    pub(super) fn set_text(&mut self, text: String, form: SummaryForm) {
        (self.text, self.form, self.step) = (Some(text), form, CompactionRung::ProviderNative);
    }

    /// Takes the text that the model has written.
    pub(super) fn take(&mut self, asking: Asking) {
        self.left_out += asking.left_out();
        if self.is_merging {
            if self.text.as_ref().is_some_and(String::is_empty) {
                (self.step, self.form) = (asking.step(), asking.form);
            }
            self.merged = asking.summary;
        } else {
            (self.step, self.form) = (asking.step(), asking.form);
            self.text = asking.summary.or_else(|| Some(String::new()));
        }
    }

    /// Returns true if the merged segments must be written next.
    pub(super) fn merges_next(&self) -> bool {
        self.merged.is_none() && self.arranged.merges_apart()
    }
}

impl Job {
    /// Plans the summary of what this cut removes. Nothing is written yet.
    pub(super) fn draft(&self, cut: Cut) -> Box<Draft> {
        Box::new(Draft {
            arranged: self.arrange(&cut),
            text: None,
            merged: None,
            is_merging: false,
            step: CompactionRung::Extract,
            form: SummaryForm::Free,
            left_out: 0,
            cut,
            native: None,
        })
    }

    /// Begins the summary of what this cut removes.
    pub(super) fn summarise(&self, cut: Cut) -> State {
        self.write(self.draft(cut))
    }

    /// Begins to write a summary.
    pub(super) fn write(&self, draft: Box<Draft>) -> State {
        if !self.asks_model {
            return State::ByRule(draft);
        }
        let is_one = draft.arranged.is_one();
        let mut messages = self.messages_of(&draft.cut);
        if !is_one && messages.is_empty() {
            // Only earlier segments change.
            let draft = Box::new(Draft { text: Some(String::new()), ..*draft });
            return if draft.merges_next() { self.merge_segments(draft) } else { State::ByRule(draft) };
        }
        let cut = &draft.cut;
        if is_one && !draft.arranged.dropped.is_empty() {
            messages.splice(0..0, as_messages(&draft.arranged.dropped));
        }
        let previous = if is_one { draft.arranged.merged_text() } else { None };
        let task = Task {
            messages,
            split_turn: cut.turn_prefix.is_some(),
            keeps_words: self.keeps_words()
                && draft.arranged.keeps_all
                && (!is_one || draft.arranged.dropped.is_empty()),
            keeps_earlier: !is_one || draft.arranged.merged.is_empty(),
            ..self.task.clone()
        };
        // A request that extends the conversation has the old segments before it, and cannot bring them up to date.
        let ride = if is_one && previous.is_some() && self.keeps_words() { None } else { self.ride(cut) };
        State::Asking(Box::new(Asking::stage(task, previous, ride)), draft)
    }

    /// Lets the model write the merged segments.
    pub(super) fn merge_segments(&self, mut draft: Box<Draft>) -> State {
        draft.is_merging = true;
        let messages = as_messages(&draft.arranged.dropped).collect();
        let keeps_words = self.keeps_words() && draft.arranged.dropped.is_empty();
        let task = Task { messages, keeps_words, ..self.task.clone() };
        let asking = Asking::stage(task, draft.arranged.merged_text(), None);
        State::Asking(Box::new(asking), draft)
    }

    /// Writes by rule the parts that the model has not written.
    pub(super) fn write_by_rule(&self, draft: &mut Draft) {
        // The limit is a quarter of what is removed, not counting the user's words that stay.
        let said: u64 = draft.arranged.said.iter().map(|said| self.task.counter.text(&said.text)).sum();
        let removed = if self.is_rebuild() { u64::MAX } else { self.newly_removed(&draft.cut) };
        // If only the summary itself is rewritten, it may use its whole room.
        let removed = if draft.cut.summarised.is_empty() { u64::MAX } else { removed };
        let tokens_max = (removed.saturating_sub(said) / 4).max(EXTRACT_TOKENS_MIN);
        let chars_max = extract_chars(self.room.new_tokens.min(tokens_max));
        if draft.text.is_none() {
            let mut messages = self.messages_of(&draft.cut);
            let said: HashSet<&str> = draft.arranged.said.iter().map(|said| said.text.as_str()).collect();
            messages.retain(|message| message.role != Role::User || !said.contains(clean(&message.text()).trim()));
            let dropped: Vec<Arc<Message>> = as_messages(&draft.arranged.dropped).collect();
            let is_one = draft.arranged.is_one();
            let removed = dropped.iter().filter(|_| is_one).chain(&messages);
            let new = extract(removed.map(|message| &**message), chars_max);
            let before = draft.arranged.merged_text().filter(|_| is_one);
            let before = before.map(|text| newest_lines(&text, chars_max)).filter(|text| !text.is_empty());
            draft.text = Some(
                before
                    .into_iter()
                    .chain([new].into_iter().filter(|text| !text.is_empty()))
                    .collect::<Vec<_>>()
                    .join("\n"),
            );
            (draft.step, draft.form) = (CompactionRung::Extract, SummaryForm::Free);
        }
        if draft.merges_next() {
            let dropped: Vec<Arc<Message>> = as_messages(&draft.arranged.dropped).collect();
            let words = extract(dropped.iter().map(|message| &**message), chars_max);
            let texts = draft.arranged.merged_text().unwrap_or_default();
            draft.merged = Some(newest_lines(&format!("{texts}\n{words}"), extract_chars(self.room.new_tokens)));
        }
    }

    /// Offers the summary.
    pub(super) fn offer(&mut self, draft: Box<Draft>) -> Next {
        if draft.native.is_some() {
            return self.offer_native(*draft);
        }
        let step = draft.step;
        let by_rule = (step != CompactionRung::Extract).then(|| {
            let undone = Draft { text: None, merged: None, is_merging: false, ..(*draft).clone() };
            Box::new(undone)
        });
        let outcome = self.drafted(*draft);
        self.at = State::Offered(step, by_rule);
        Next::Offer(Box::new(outcome))
    }

    pub(super) fn drafted(&self, draft: Draft) -> Outcome {
        let Draft { cut, arranged, text, merged, step, form, left_out, native, .. } = draft;
        let step = if native.is_some() { CompactionRung::ProviderNative } else { step };
        let merged = merged.or_else(|| arranged.merged_text());
        let (new, old) = self.identified(&cut, &arranged, merged, text.unwrap_or_default());
        let segments = arranged.finish(old, new);
        Outcome { form: Some(form), left_out, native, ..self.summarised(&cut, &segments, step) }
    }

    /// Adds the identifiers of the removed messages to the new text, and those of merged segments to theirs.
    fn identified(
        &self,
        cut: &Cut,
        arranged: &Arranged,
        merged: Option<String>,
        text: String,
    ) -> (String, Option<String>) {
        // If a client supplied the prompt, its text is left unchanged.
        if self.order.free_form {
            return (text, merged);
        }
        let count = |text: &str| self.task.counter.text(text);
        let room = (self.room.new_tokens / IDENTIFIERS_PART, &count as &dyn Fn(&str) -> u64);
        let said = arranged.merged.iter().flat_map(|segment| &segment.said).chain(&arranged.said);
        let said: Vec<&str> = said.map(|said| said.text.as_str()).collect();
        let kept: Vec<&str> = arranged.kept.iter().map(|segment| segment.text.as_str()).collect();
        let knows = |text: &str, identifier: &str| {
            text.contains(identifier) || said.iter().chain(&kept).any(|said| said.contains(identifier))
        };
        let earlier = arranged.merged_identifiers();
        let messages = self.messages_of(cut);
        let messages = messages.iter().map(|message| &**message);
        let with = |text: String, line: Option<String>| match line {
            Some(line) if text.is_empty() => line,
            Some(line) => format!("{text}\n\n{line}"),
            None => text,
        };
        if arranged.is_one() {
            let line = identifiers::line(messages, earlier, |identifier| knows(&text, identifier), room);
            return (with(text, line), merged);
        }
        let line = identifiers::line(messages, Vec::new(), |identifier| knows(&text, identifier), room);
        let text = with(text, line);
        let merged = merged.map(|merged| {
            let knows = |identifier: &str| knows(&merged, identifier) || text.contains(identifier);
            let line = identifiers::line(std::iter::empty(), earlier, knows, room);
            with(merged, line)
        });
        (text, merged)
    }

    /// Decides what happens to earlier segments when this cut is removed.
    fn arrange(&self, cut: &Cut) -> Arranged {
        let count = |text: &str| self.task.counter.text(text);
        let earlier = self.segments(cut);
        let (said, are_whole) = self.said(cut, &earlier, &count);
        let arranged = segments::arrange(earlier, said, &self.room, (self.room_of(cut), &count));
        Arranged { keeps_all: arranged.keeps_all && are_whole, ..arranged }
    }

    /// Returns the segments of the summary that the model sees.
    pub(super) fn segments(&self, cut: &Cut) -> Vec<Segment> {
        let Some(previous) = self.previous(cut) else { return Vec::new() };
        segments::read(self.earlier.as_ref(), &previous)
    }

    /// Returns the user's messages that this cut removes and that earlier segments do not hold, and whether all of them
    /// are complete.
    fn said(&self, cut: &Cut, earlier: &[Segment], count: &dyn Fn(&str) -> u64) -> (Vec<Said>, bool) {
        if !self.keeps_words() {
            return (Vec::new(), true);
        }
        let kept = self.kept_ids(cut);
        let raw: Vec<_> = self.raw.iter().flat_map(|raw| raw.inputs(&kept)).collect();
        let known: HashSet<_> = raw.iter().filter_map(|(id, _)| *id).collect();
        let quoted: HashSet<_> =
            earlier.iter().flat_map(|segment| &segment.said).filter_map(|said| said.entry_id.as_ref()).collect();
        let since = self.removed_inputs(cut).filter(|(id, _)| id.is_none_or(|id| !known.contains(id)));
        let inputs = raw.iter().copied().chain(since).filter(|(id, _)| id.is_none_or(|id| !quoted.contains(id)));
        let most = self.room_of(cut);
        let of = |(id, message): (Option<&_>, &Message)| Said::of(id, message, &self.room, (most, count));
        let (said, whole): (Vec<_>, Vec<_>) = inputs.filter_map(of).unzip();
        (said, !whole.contains(&false))
    }

    /// Returns true if the user's words are kept beside the summary.
    fn keeps_words(&self) -> bool {
        self.room.said_tokens > 0
    }
}

/// Returns the user's words as messages to be summarised.
fn as_messages(said: &[Said]) -> impl Iterator<Item = Arc<Message>> {
    said.iter().map(|said| Arc::new(Message::user(said.text.clone())))
}
