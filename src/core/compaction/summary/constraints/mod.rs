//! Constraints and preferences: kept verbatim as far as the bounds below allow, the newest first; what nobody said is
//! marked.
//!
//! Invariants:
//! - constraints that the user stated are stored in the compaction's entry, as they were said, and carried from one
//!   compaction to the next; whatever a model writes, the section is generated from there;
//! - every unmarked line of the section is a sentence that was said: by the user, in the system prompt, in a tool's
//!   description, or in a branch summary. A line of the model with such a source is replaced by it, even if it is a
//!   paraphrase; a line without one is marked as [`INFERRED`];
//! - a sentence that the model took for a constraint is one, even if no rule recognises it;
//! - the work is linear in what was said.

mod detect;
mod phrases;
mod search;
mod sentence;

pub use sentence::INFERRED;

use super::retain::normal;
use crate::core::{
    compaction::{serialize::TEXT_CHARS_MAX, summary::retain::RepairBounds},
    context::seed::unseed,
    text::{
        clip::clip,
        headings, presentable,
        sections::{Sections, item_text, says_nothing},
        sentences::whole_sentences,
        slot::{SECTIONS, Slot},
        words::{Words, is_question},
    },
};
use detect::{SENTENCE_CHARS_MAX, opens_rules};
use reseed_protocol::{Message, Part, Role};
use search::{LineSource, Search, SectionLine, Speaker};
use sentence::Sentence;
use std::collections::BTreeSet;

/// Maximum constraints of a session; the newest are kept. An entry repeats those of the previous one, so they are
/// bounded.
pub const CONSTRAINTS_MAX: usize = 256;
/// Maximum characters of all constraints together; the newest are kept.
const CONSTRAINTS_CHARS_MAX: usize = 65_536;
/// Lines examined of a model's section; a section with more is not a list of constraints.
const LINES_MAX: usize = 64;

/// The sources of constraints.
#[derive(Debug, Clone, Copy)]
pub struct ConstraintSources<'a> {
    /// The messages that are summarised.
    pub messages: &'a [&'a Message],
    /// Messages kept beside the summary: a line may come from there, and what was said there stays there.
    pub kept: &'a [&'a Message],
    /// Constraints recorded by an earlier compaction.
    pub noted: &'a [String],
    /// The system prompt and the tools' descriptions.
    pub rules: &'a [String],
    /// The previous summary.
    pub previous: Option<&'a str>,
}

/// A summary with exactly the constraints that were said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// The summary.
    pub text: String,
    /// Every constraint of the user, in the order in which they were said.
    pub constraints: Vec<String>,
    /// Tokens that this added to the summary.
    pub added_tokens: u64,
}

/// Returns the constraints recorded before, followed by those that rules recognise in the user's messages.
#[must_use]
pub fn stated(sources: ConstraintSources<'_>) -> Vec<String> {
    let mut kept = ConstraintList::of(sources.noted);
    for sentence in users_sentences(sources.messages) {
        if sentence.is_order() {
            kept.add(&sentence.text);
        }
    }
    kept.into_list()
}

/// Generates the section of constraints from what was said. `bounds` limits what this adds.
#[must_use]
pub fn settle(summary: &str, sources: ConstraintSources<'_>, bounds: RepairBounds<'_>) -> Settled {
    let sections = Sections::parse(summary);
    let is_whole = sections.missing().is_none();
    let (body, own) = if is_whole { (String::new(), Vec::new()) } else { without_constraints(summary) };
    let own: Vec<&str> = match is_whole {
        true => sections.lines(Slot::Constraints).iter().map(String::as_str).collect(),
        false => own.into_iter().filter(|line| !says_nothing(line)).collect(),
    };
    let lines: Vec<SectionLine> = own.iter().take(LINES_MAX).map(|line| SectionLine::of(line)).collect();
    let mut found = Search::new(&lines);
    let mut kept = ConstraintList::of(sources.noted);
    for noted in sources.noted {
        found.look_at(&Sentence::of(noted), Speaker::User, true);
    }
    for sentence in users_sentences(sources.messages) {
        let is_order = sentence.is_order();
        if is_order {
            kept.add(&sentence.text);
        }
        found.look_at(&sentence, Speaker::User, is_order);
    }
    for sentence in users_sentences(sources.kept) {
        found.look_at(&sentence, Speaker::Other, false);
    }
    for text in sources.rules.iter().flat_map(|rules| whole_sentences(rules)) {
        found.look_at(&Sentence::of(text), Speaker::Other, false);
    }
    let earlier = sources.previous.map(Sections::parse).unwrap_or_default();
    let records: Vec<Sections> = sources.messages.iter().filter_map(|message| record(message)).collect();
    for line in records.iter().chain([&earlier]).flat_map(|sections| sections.lines(Slot::Constraints)) {
        let line = item_text(line);
        if !line.starts_with(INFERRED) {
            found.look_at(&Sentence::of(line), Speaker::Other, false);
        }
    }
    let mut others = ConstraintList::default();
    let mut inferred: Vec<&str> = Vec::new();
    for (line, source) in lines.iter().zip(found.best) {
        match source {
            Some(LineSource { text, origin: Speaker::User, .. }) => kept.add(&text),
            Some(LineSource { text, origin: Speaker::Other, .. }) => others.add(&text),
            None => inferred.push(&line.text),
        }
    }
    let constraints = kept.into_list();
    let before = (bounds.count)(&own.join("\n"));
    let mut written: Vec<String> = Vec::new();
    let mut seen = BTreeSet::new();
    let body = normal(&body);
    for line in constraints.iter().chain(&others.into_list()) {
        // A free-form text may contain it verbatim already.
        let same = normal(line).into_owned();
        if !body.contains(&same) && seen.insert(same) {
            written.push(format!("- {line}"));
        }
    }
    fit(&mut written, bounds, before);
    written.extend(inferred.iter().map(|line| format!("- {INFERRED}{line}")));
    let text = write(summary, sections, is_whole, written);
    // Most summaries have none to add.
    let added_tokens = if text == summary { 0 } else { (bounds.count)(&text).saturating_sub((bounds.count)(summary)) };
    Settled { text, constraints, added_tokens }
}

/// Removes lines from the middle until the rest fits; the removed ones are counted.
fn fit(lines: &mut Vec<String>, bounds: RepairBounds<'_>, before: u64) {
    let room = bounds.tokens_max.saturating_add(before);
    let cost = |line: &String| (bounds.count)(line) + 1;
    let costs: Vec<u64> = lines.iter().map(cost).collect();
    if costs.iter().sum::<u64>() <= room {
        return;
    }
    let mut left = room.saturating_sub(12);
    let mut keep = vec![false; lines.len()];
    for turn in 0..lines.len() {
        // The newest and the oldest alternate.
        let at = if turn % 2 == 0 { lines.len() - 1 - turn / 2 } else { turn / 2 };
        let Some(rest) = left.checked_sub(costs[at]) else { break };
        left = rest;
        keep[at] = true;
    }
    let gone = keep.iter().filter(|keep| !**keep).count();
    let mut at = 0;
    lines.retain(|_| {
        at += 1;
        keep[at - 1]
    });
    if room > 12 {
        lines.push(format!("- (and {gone} more, kept with this summary)"));
    }
}

fn write(summary: &str, mut sections: Sections, is_whole: bool, lines: Vec<String>) -> String {
    if is_whole {
        sections.set_lines(Slot::Constraints, lines);
        return sections.to_string();
    }
    let (mut text, _) = without_constraints(summary);
    if !lines.is_empty() {
        text.push_str(&format!("\n\n## {}\n{}", SECTIONS[1], lines.join("\n")));
    }
    text
}

/// Splits a free-form text into the text without its section of constraints, and the lines of that.
fn without_constraints(summary: &str) -> (String, Vec<&str>) {
    let mut within = false;
    let (mut text, mut lines) = (String::new(), Vec::new());
    // A name without heading marks, as in `Constraints: no sharks`, covers its line and the list directly below it.
    let mut is_heading = false;
    for line in summary.lines() {
        let opened = headings::named(line).or_else(|| headings::named_otherwise(line, |_| true));
        let ends = line.trim_start().starts_with('#') || !is_heading && !is_item(line);
        within = match opened {
            Some((slot, _)) => slot == Slot::Constraints,
            None => within && !ends,
        };
        if opened.is_some() {
            is_heading = headings::is_marked(line);
        }
        match opened {
            Some((_, rest)) if within => lines.push(rest),
            None if within => lines.push(line),
            _ => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    (text.trim().to_owned(), lines)
}

/// Returns true for a list item.
fn is_item(line: &str) -> bool {
    line.trim_start().starts_with(['-', '*', '•', '+']) || numbered(line).is_some()
}

/// Returns the text after the number of a line such as `1. Tests first`.
fn numbered(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let text = rest.strip_prefix(['.', ')'])?;
    (rest.len() < line.len() && text.starts_with(' ')).then(|| text.trim())
}

/// Constraints in the order in which they were said, each once.
#[derive(Debug, Default)]
struct ConstraintList {
    list: Vec<String>,
    seen: BTreeSet<String>,
}

impl ConstraintList {
    fn of(noted: &[String]) -> Self {
        let mut kept = Self::default();
        noted.iter().for_each(|text| kept.add(text));
        kept
    }

    fn add(&mut self, text: &str) {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let text = clip(&text, SENTENCE_CHARS_MAX).replace('\n', " ");
        if self.seen.insert(normal(&text).into_owned()) {
            self.list.push(text);
        }
    }

    fn into_list(mut self) -> Vec<String> {
        let mut chars = 0;
        let newest = self.list.iter().rev().take(CONSTRAINTS_MAX).take_while(|text| {
            chars += text.chars().count();
            chars <= CONSTRAINTS_CHARS_MAX
        });
        let excess = self.list.len() - newest.count();
        self.list.drain(..excess);
        self.list
    }
}

/// Returns the user's sentences; a list of rules yields one per line. Code fences and branch summaries are excluded.
fn users_sentences<'a>(messages: &'a [&'a Message]) -> impl Iterator<Item = Sentence> {
    let texts = messages.iter().filter(|message| message.role == Role::User && record(message).is_none());
    let texts = texts.flat_map(|message| &message.content).filter_map(|part| match part {
        Part::Text { text } => Some(clip(&presentable(text), TEXT_CHARS_MAX).into_owned()),
        _ => None,
    });
    texts.flat_map(|text| {
        let mut within = false;
        let mut in_rules = false;
        let mut said: Vec<Sentence> = Vec::new();
        for line in text.lines() {
            if line.trim_start().starts_with("```") {
                within = !within;
            } else if !within {
                in_rules = in_rules && (line.trim().is_empty() || is_item(line));
                if in_rules && !line.trim().is_empty() {
                    let text = numbered(line).unwrap_or(item_text(line));
                    said.push(Sentence { is_rule: true, ..Sentence::of(text) });
                    continue;
                }
                in_rules = in_rules || opens_rules(line);
                // Questions are not orders.
                let told = whole_sentences(line).into_iter().map(|text| (text, Words::of(text)));
                let told = told.filter(|(text, words)| !is_question(text, &words.list()));
                said.extend(told.map(|(text, words)| match item_text(text) {
                    item if item.len() == text.len() => Sentence { text: text.to_owned(), words, is_rule: false },
                    item => Sentence::of(item),
                }));
            }
        }
        said
    })
}

/// Parses the branch summary in this message, if there is one.
fn record(message: &Message) -> Option<Sections> {
    match message.content.first() {
        Some(Part::Text { text }) if message.role == Role::User => Some(Sections::parse(&unseed(text)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
