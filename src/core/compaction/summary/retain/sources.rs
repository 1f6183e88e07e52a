//! The sources of identifiers: the messages, and what the previous summary says about earlier ones.
//!
//! The speaker determines the rank: what the user stated ranks above what was decided, and that above what a tool
//! returned. A statement that a newer sentence contradicts is dropped.

use super::{
    held::{Content, Lines},
    identify::{Found, IdentifierKind, classify, identify},
};
use crate::core::{
    compaction::{
        extract::{ASSISTANT, OPEN_QUESTION, TOOL, USER, Weight, judge},
        serialize::{TEXT_CHARS_MAX, TOOL_RESULT_CHARS_MAX},
        summary::kind::{may_keep, must_keep},
    },
    text::{
        clip::clip,
        files::strip_files,
        presentable,
        sections::{Sections, item_text},
        sentences::sentences,
        slot::Slot,
        words::Phrases,
    },
};
use reseed_protocol::{Message, Part, Role, command::SummaryKind};
use std::collections::{BTreeMap, BTreeSet};

/// Marks what is still to be done.
pub(super) const OPEN: &str = "Open: ";

/// Maximum identifiers taken from one tool result: the first ones tell as much as a log of a thousand lines.
const PER_RESULT_MAX: usize = 12;
/// Maximum user sentences whose weight is judged by content; older ones count as said in passing. Judging is slow, and
/// no section has room for more.
const JUDGED_MAX: usize = 1_000;
/// Maximum open tasks that are looked for; the newest.
const TASKS_MAX: usize = 48;

/// Who said something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    User,
    Assistant,
    Tool,
}

/// The rank of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// Returned by a tool.
    Answered,
    /// Said by the model, or part of finished work.
    Said,
    /// Said by the user in passing.
    Passing,
    /// Decided, or still to be done.
    Decided,
    /// Stated by the user, or kept by a summary.
    Told,
}

/// A sentence that contains identifiers.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) text: String,
    pub(super) speaker: Speaker,
    pub(super) rank: Rank,
    pub(super) found: Vec<Found>,
    /// True if the kind of conversation requires it to be kept.
    pub(super) must: bool,
}

/// Everything that was said, oldest first, and the words of the current goal.
#[derive(Debug, Default)]
pub(super) struct Sources {
    pub(super) all: Vec<Statement>,
    pub(super) goal: BTreeSet<String>,
    kind: SummaryKind,
}

impl Sources {
    /// Reads the previous summary, then lines that a summary had restored already, then the messages.
    pub(super) fn gather(messages: &[&Message], previous: Option<&str>, kept: &[String], kind: SummaryKind) -> Self {
        let mut sources = Self { kind, ..Self::default() };
        if let Some(previous) = previous {
            sources.take_previous(strip_files(&presentable(previous)));
        }
        for line in kept {
            sources.take_line(Slot::Restored, item_text(line));
        }
        for message in messages {
            for part in &message.content {
                sources.take_part(message.role, part);
            }
        }
        let asked =
            messages.iter().rev().find(|message| message.role == Role::User && !message.text().trim().is_empty());
        if let Some(asked) = asked {
            let asked = Content::of(&clip(&asked.text(), TEXT_CHARS_MAX));
            sources.goal.extend(asked.iter().map(str::to_owned));
        }
        sources.judge();
        sources.close_tasks(messages);
        sources
    }

    fn take_previous(&mut self, previous: &str) {
        let sections = Sections::parse(previous);
        // A summary in another form: all of it counts as told.
        for line in sections.before() {
            self.take_line(Slot::Context, item_text(line));
        }
        for slot in Slot::ALL {
            for line in sections.lines(slot) {
                let is_done = line.contains("[x]") || line.contains("[X]");
                let slot = if is_done { Slot::Done } else { slot };
                self.take_line(slot, item_text(line));
                if matches!(slot, Slot::Goal | Slot::NextSteps) {
                    self.goal.extend(Content::of(line).iter().map(str::to_owned));
                }
            }
        }
    }

    fn take_line(&mut self, slot: Slot, line: &str) {
        if line.starts_with(OPEN_QUESTION) {
            return;
        }
        let heads = [(USER, Speaker::User), (ASSISTANT, Speaker::Assistant), (TOOL, Speaker::Tool)];
        let head = heads.into_iter().find_map(|(head, speaker)| Some((line.strip_prefix(head)?, speaker)));
        let (line, speaker) = head.unwrap_or((line, Speaker::User));
        if slot == Slot::NextSteps || line.starts_with(OPEN) {
            let text = line.strip_prefix(OPEN).unwrap_or(line);
            self.push_task(text, speaker);
            return;
        }
        let rank = match (slot, speaker) {
            (_, Speaker::Tool) => Rank::Answered,
            (Slot::Done, _) | (_, Speaker::Assistant) => Rank::Said,
            (Slot::InProgress | Slot::Blocked, _) => Rank::Passing,
            (Slot::Decisions, _) => Rank::Decided,
            _ => Rank::Told,
        };
        for sentence in sentences(line) {
            let mut found = identify(sentence);
            if found.is_empty() && slot == Slot::Restored {
                // It was worth restoring once. Shortening may have removed the identifier.
                found.push(Found { kind: IdentifierKind::Task, start: 0, end: sentence.len() });
            }
            self.push(sentence, speaker, rank, found, true);
        }
    }

    fn take_part(&mut self, role: Role, part: &Part) {
        match part {
            Part::Text { text } => {
                let text = presentable(text);
                let text = clip(&text, TEXT_CHARS_MAX);
                let speaker = if role == Role::User { Speaker::User } else { Speaker::Assistant };
                // Checked for the whole text first: most texts contain none.
                let may_keep = may_keep(self.kind, &text);
                let may_decide = speaker == Speaker::Assistant && decides(&text);
                let may_remain = REMAINS.any_in(&text);
                for sentence in sentences(&text) {
                    if let Some(task) = task(sentence, may_remain) {
                        self.push_task(task, speaker);
                        continue;
                    }
                    let rank = match speaker {
                        Speaker::User => Rank::Passing,
                        _ if may_decide && decides(sentence) => Rank::Decided,
                        _ => Rank::Said,
                    };
                    let sentence = item_text(sentence);
                    self.push(sentence, speaker, rank, identify(sentence), may_keep);
                }
            }
            Part::ToolResult { output, .. } => {
                let output = presentable(output);
                let output = clip(&output, TOOL_RESULT_CHARS_MAX);
                let may_keep = may_keep(self.kind, &output);
                let mut left = PER_RESULT_MAX;
                for sentence in sentences(&output) {
                    let mut found = if left > 0 { identify(sentence) } else { Vec::new() };
                    // In data everything is quoted: classify what is inside the quotes.
                    found.retain_mut(|found| {
                        if found.kind == IdentifierKind::Quoted {
                            let Some(kind) = classify(&sentence[found.start..found.end]) else { return false };
                            found.kind = kind;
                        }
                        true
                    });
                    found.truncate(left);
                    left -= found.len();
                    if found.is_empty() && may_keep && must_keep(self.kind, sentence).is_some() {
                        // Quotations count if the sentence must be kept.
                        found = identify(sentence);
                    }
                    self.push(sentence, Speaker::Tool, Rank::Answered, found, may_keep);
                }
            }
            Part::Image { .. } | Part::Reasoning { .. } | Part::ToolCall { .. } => {}
        }
    }

    /// Adds a sentence if it contains an identifier or must be kept. `may_keep` is false if its text is known to
    /// contain nothing that must be kept.
    fn push(&mut self, sentence: &str, speaker: Speaker, rank: Rank, mut found: Vec<Found>, may_keep: bool) {
        let may_keep = may_keep && (speaker != Speaker::Tool || self.kind != SummaryKind::Chat);
        let must = if may_keep { must_keep(self.kind, sentence) } else { None };
        let rank = if must.is_some() { Rank::Told } else { rank };
        if let Some((kind, start, end)) = must {
            found.insert(0, Found { kind, start, end });
        }
        if !found.is_empty() {
            self.all.push(Statement { text: sentence.to_owned(), speaker, rank, found, must: must.is_some() });
        }
    }

    fn push_task(&mut self, text: &str, speaker: Speaker) {
        let text = text.trim();
        if Content::of(text).iter().next().is_none() {
            return;
        }
        let mut found = vec![Found { kind: IdentifierKind::Task, start: 0, end: text.len() }];
        found.extend(identify(text));
        self.all.push(Statement { text: text.to_owned(), speaker, rank: Rank::Decided, found, must: false });
    }

    /// Ranks the user's sentences, and drops those that newer ones contradict.
    fn judge(&mut self) {
        let mut holders: BTreeMap<String, usize> = BTreeMap::new();
        let mut by_subject: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        let mut gone: BTreeSet<usize> = BTreeSet::new();
        let users = self.all.iter().filter(|source| source.speaker == Speaker::User).count();
        let mut older = users.saturating_sub(JUDGED_MAX);
        for (at, source) in self.all.iter_mut().enumerate().filter(|(_, source)| source.speaker == Speaker::User) {
            if older > 0 {
                older -= 1;
                continue;
            }
            if source.must || source.found[0].kind == IdentifierKind::Task {
                continue;
            }
            let Some((weight, claim)) = judge(&source.text) else {
                // A question states nothing, but what it names is wanted.
                continue;
            };
            if source.rank == Rank::Passing && weight >= Weight::Told {
                source.rank = Rank::Told;
            } else if source.rank == Rank::Passing && decides(&source.text) {
                source.rank = Rank::Decided;
            }
            let Some(claim) = claim.filter(|_| weight >= Weight::Told) else { continue };
            let about = by_subject.entry(claim.subject).or_default();
            match claim.key {
                Some(key) => gone.extend(holders.insert(key, at)),
                None if claim.is_change => gone.extend(about.drain(..)),
                None => about.push(at),
            }
        }
        self.leave_out(&gone);
    }

    /// Drops tasks that are done, and the oldest beyond the maximum.
    fn close_tasks(&mut self, messages: &[&Message]) {
        let is_task = |source: &Statement| {
            !source.must && source.found[0].kind == IdentifierKind::Task && source.rank == Rank::Decided
        };
        let tasks: Vec<usize> = (0..self.all.len()).filter(|at| is_task(&self.all[*at])).collect();
        if tasks.is_empty() {
            return;
        }
        let (older, tasks) = tasks.split_at(tasks.len().saturating_sub(TASKS_MAX));
        let mut gone: BTreeSet<usize> = older.iter().copied().collect();
        let texts = messages.iter().flat_map(|message| &message.content).filter_map(|part| match part {
            Part::Text { text } => Some(text),
            _ => None,
        });
        let done = texts.filter(|text| CLOSES.any_in(text)).flat_map(|text| sentences(text));
        let done = Lines::of(done.filter(|sentence| closes(sentence)));
        gone.extend(tasks.iter().filter(|at| done.have(&self.all[**at].text)));
        self.leave_out(&gone);
    }

    fn leave_out(&mut self, gone: &BTreeSet<usize>) {
        let mut at = 0;
        self.all.retain(|_| {
            at += 1;
            !gone.contains(&(at - 1))
        });
    }
}

/// Phrases for what is still to be done.
static REMAINS: Phrases = Phrases::new(&[
    "still need",
    "still have to",
    "next step",
    "remains to be",
    "left to do",
    "not done yet",
    "muss noch",
    "müssen noch",
]);
/// Phrases for what is finished.
static CLOSES: Phrases = Phrases::new(&[
    "done",
    "finish",
    "complete",
    "fixed",
    "implemented",
    "deployed",
    "merged",
    "passes",
    "passed",
    "works now",
    "[x]",
    "erledigt",
    "fertig",
]);
/// Phrases for what was decided.
static DECIDES: Phrases = Phrases::new(&[
    "ecided",
    "ecision",
    "et's use",
    "will use",
    "ll use",
    "o with",
    "oing with",
    "hose ",
    "greed",
    "ettled on",
    "entschieden",
    "beschlossen",
]);

/// Returns the task that a sentence states; `may_remain` is true if its text contains a phrase for open tasks.
fn task(sentence: &str, may_remain: bool) -> Option<&str> {
    const HEADS: [&str; 8] = ["TODO:", "TODO ", "FIXME:", "FIXME ", "- [ ] ", "* [ ] ", "[ ] ", "Open task: "];
    let sentence = sentence.trim();
    if let Some(task) = HEADS.iter().find_map(|head| sentence.strip_prefix(head)) {
        return Some(task);
    }
    (may_remain && REMAINS.any_in(sentence)).then_some(sentence)
}

/// Returns true if a sentence says that something is finished.
fn closes(sentence: &str) -> bool {
    CLOSES.any_in(sentence) && !sentence.contains("not ")
}

/// Returns true if a sentence states a decision.
fn decides(sentence: &str) -> bool {
    DECIDES.any_in(sentence)
}
