//! Repairs a summary: finds the names, paths, numbers and identifiers that it lost, and restores them verbatim in a
//! final section.
//!
//! Invariants:
//! - existing text stays as it was; only the section [`RESTORED`] is rewritten, within its bound;
//! - the most important facts go in first: those the user stated, decisions and open tasks, those about the current
//!   goal, the newest;
//! - the next summary's repair treats a restored fact as told, so that nothing fades from one summary to the next;
//! - secrets are masked first, so none is restored;
//! - the work is linear in the messages, except for sorting.

mod clause;
mod held;
pub(super) mod identify;
mod sources;

use ahash::{AHashMap, AHashSet};
use clause::{Width, push_clause};
pub(super) use held::normal;
use held::{Content, IndexedText};
use identify::Found;
pub(super) use identify::IdentifierKind;
use reseed_protocol::{Message, command::SummaryKind};
use sources::{OPEN, Rank, Sources, Speaker};
use std::{borrow::Cow, cell::LazyCell, cmp::Reverse};

use crate::core::{
    compaction::extract::{ASSISTANT, TOOL},
    text::{
        files::strip_files,
        sections::{self, RESTORED, Sections},
        slot::Slot,
    },
};

/// Maximum identifiers looked for; the most important. The section of the largest summary holds some 200 lines; ten
/// times as many leave the choice to their importance and keep the work small.
const IDENTIFIERS_MAX: usize = 2_000;
/// Lines that may fail to fit before the search for shorter ones stops.
const MISSES_MAX: usize = 16;
/// From this many restored lines on, all of them in fewer words are better than some of them in more.
const MANY_LINES: usize = 32;

/// How much may be restored.
#[derive(Clone, Copy)]
pub struct RepairBounds<'a> {
    /// Maximum tokens of the section of restored facts, heading included.
    pub tokens_max: u64,
    /// Counts the tokens of a text.
    pub count: &'a dyn Fn(&str) -> u64,
}

/// A summary after repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repaired {
    /// The summary, followed by a section of what was missing, if anything was.
    pub text: String,
    /// Number of identifiers looked for.
    pub checked: u64,
    /// Number of those that were missing and are present now.
    pub restored: u64,
}

/// Checks that a summary contains what matters in the messages and the previous summary, and restores what it lost.
///
/// An existing section of restored facts is rewritten: its lines count as told. File lists after the summary are
/// removed.
#[must_use]
pub fn repair(
    summary: &str,
    sources: &[&Message],
    previous: Option<&str>,
    kind: SummaryKind,
    bounds: RepairBounds<'_>,
) -> Repaired {
    let (body, kept) = without_restored(strip_files(summary));
    let sources = Sources::gather(sources, previous, &kept, kind);
    let identifiers = identifiers(&sources);
    let held = IndexedText::new(&body);
    let has = |text: &IndexedText<'_>, it: &Identifier<'_>| text.has(it.text(&sources), &it.normal, it.kind);
    let missing: Vec<&Identifier<'_>> = identifiers.iter().filter(|identifier| !has(&held, identifier)).collect();
    let checked = identifiers.len() as u64;
    let lines = lines(&sources, &missing, bounds);
    if lines.is_empty() {
        return Repaired { text: body, checked, restored: 0 };
    }
    let section = lines.join("\n");
    let found = IndexedText::new(&section);
    let restored = missing.iter().filter(|identifier| has(&found, identifier)).count();
    Repaired { text: format!("{body}\n\n## {RESTORED}\n{section}"), checked, restored: restored as u64 }
}

/// Splits a summary into the text without its section of restored facts, and the lines of that.
fn without_restored(summary: &str) -> (String, Vec<String>) {
    let sections = Sections::parse(summary);
    let lines = sections.lines(Slot::Restored).to_vec();
    if lines.is_empty() {
        return (summary.trim().to_owned(), lines);
    }
    let mut is_within = false;
    let mut body = String::new();
    for line in summary.lines() {
        let is_heading = sections::opens(line);
        is_within = is_heading.map_or(is_within, |slot| slot == Slot::Restored);
        if !is_within {
            body.push_str(line);
            body.push('\n');
        }
    }
    (body.trim().to_owned(), lines)
}

/// Something exact that was said, at its most important occurrence.
#[derive(Debug)]
struct Identifier<'a> {
    kind: IdentifierKind,
    normal: Cow<'a, str>,
    source: usize,
    found: usize,
    rank: Rank,
}

impl Identifier<'_> {
    fn text<'s>(&self, sources: &'s Sources) -> &'s str {
        let source = &sources.all[self.source];
        let found = source.found[self.found];
        &source.text[found.start..found.end]
    }
}

/// One occurrence of an identifier.
struct Occurrence {
    kind: IdentifierKind,
    source: usize,
    found: usize,
    rank: Rank,
}

/// Returns each identifier to look for once, at its most important occurrence; among equals, the newest.
fn identifiers(sources: &Sources) -> Vec<Identifier<'_>> {
    let mut ordered: Vec<usize> = (0..sources.all.len()).collect();
    ordered.sort_unstable_by_key(|at| (Reverse(sources.all[*at].rank), Reverse(*at)));
    let mut best: AHashMap<Cow<'_, str>, Occurrence> = AHashMap::with_capacity(IDENTIFIERS_MAX);
    for at in ordered {
        // What follows is less important than all of these.
        if best.len() >= IDENTIFIERS_MAX {
            break;
        }
        let source = &sources.all[at];
        for (nth, found) in source.found.iter().enumerate().rev() {
            let here = Occurrence { kind: found.kind, source: at, found: nth, rank: source.rank };
            best.entry(normal(&source.text[found.start..found.end])).or_insert(here);
        }
    }
    let named = |(normal, at): (_, Occurrence)| {
        let Occurrence { kind, source, found, rank } = at;
        Identifier { kind, normal, source, found, rank }
    };
    let mut identifiers: Vec<Identifier<'_>> = best.into_iter().map(named).collect();
    // This key is unique, so the order does not depend on the map's.
    identifiers.sort_unstable_by_key(|it| (Reverse(it.rank), Reverse(it.source), it.found));
    identifiers.truncate(IDENTIFIERS_MAX);
    identifiers
}

/// Returns the lines to restore, in the order in which they were said.
fn lines(sources: &Sources, missing: &[&Identifier<'_>], bounds: RepairBounds<'_>) -> Vec<String> {
    let mut spans: Vec<(usize, Found)> =
        missing.iter().map(|it| (it.source, sources.all[it.source].found[it.found])).collect();
    spans.sort_unstable_by_key(|(at, found)| (*at, found.start));
    let mut ordered: Vec<&[(usize, Found)]> = spans.chunk_by(|a, b| a.0 == b.0).collect();
    let rank = |spans: &[(usize, Found)]| sources.all[spans[0].0].rank;
    ordered.sort_by_key(|spans| Reverse(rank(spans)));
    let goal: AHashSet<&str> = sources.goal.iter().map(String::as_str).collect();
    let relevance = |at: usize| shared(&sources.all[at].text, &goal);
    // Comparing sentences with the goal is slow, so those of a rank are compared only once there is room for it.
    let ordered: Vec<_> = ordered
        .chunk_by(|a, b| rank(a) == rank(b))
        .map(|equals| {
            LazyCell::new(|| {
                let mut equals = equals.to_vec();
                equals.sort_by_cached_key(|spans| (Reverse(relevance(spans[0].0)), Reverse(spans[0].0)));
                equals
            })
        })
        .collect();

    let cost = |line: &str| (bounds.count)(line) + 1;
    let room = bounds.tokens_max.saturating_sub(cost(&format!("\n\n## {RESTORED}")));
    // Stops as soon as it is clear that there are many lines and that some do not fit, if only that is asked.
    let fit = |width: Width, is_try: bool| {
        let mut left = room;
        let mut chosen: Vec<RestoredLine<'_>> = Vec::new();
        let mut seen: AHashSet<String> = AHashSet::new();
        let mut misses = 0;
        for spans in ordered.iter().flat_map(|equals| equals.iter()) {
            let text = line(sources, spans, width);
            if !seen.insert(normal(&text).into_owned()) {
                continue;
            }
            let tokens = cost(&text);
            match left.checked_sub(tokens) {
                Some(rest) => {
                    left = rest;
                    chosen.push(RestoredLine { text, tokens, spans });
                }
                None if misses == MISSES_MAX => break,
                None => misses += 1,
            }
            if is_try && misses > 0 && chosen.len() >= MANY_LINES {
                break;
            }
        }
        (chosen, left, misses)
    };
    let (mut chosen, mut left, misses) = fit(Width::Bare, true);
    let widths = if misses > 0 && chosen.len() >= MANY_LINES {
        (chosen, left, _) = fit(Width::Least, false);
        [Width::Bare, Width::Tight, Width::Whole].as_slice()
    } else {
        &[Width::Tight, Width::Whole]
    };
    // Spend the remaining room on longer excerpts of the most important sentences; a tool's are not extended.
    for width in widths {
        for narrow in &mut chosen {
            if *width == Width::Whole && sources.all[narrow.source()].speaker == Speaker::Tool {
                continue;
            }
            let text = line(sources, narrow.spans, *width);
            if text == narrow.text {
                continue;
            }
            let tokens = cost(&text);
            let Some(rest) = left.checked_sub(tokens.saturating_sub(narrow.tokens)) else { break };
            left = rest;
            *narrow = RestoredLine { text, tokens, spans: narrow.spans };
        }
    }
    chosen.sort_unstable_by_key(RestoredLine::source);
    chosen.into_iter().map(|line| line.text).collect()
}

/// Returns how many words of a text that carry its meaning are in this set, at most two.
fn shared(text: &str, wanted: &AHashSet<&str>) -> usize {
    let mut found = 0;
    if !wanted.is_empty() {
        Content::any(text, |word| {
            found += usize::from(wanted.contains(word));
            found == 2
        });
    }
    found
}

/// A restored line.
struct RestoredLine<'a> {
    text: String,
    /// Its tokens, line break included.
    tokens: u64,
    /// What it restores, each with the number of its sentence; never empty.
    spans: &'a [(usize, Found)],
}

impl RestoredLine<'_> {
    fn source(&self) -> usize {
        self.spans[0].0
    }
}

/// Formats a sentence as a line of the section, with its speaker unless that was the user.
fn line(sources: &Sources, spans: &[(usize, Found)], width: Width) -> String {
    let source = &sources.all[spans[0].0];
    let is_task = source.found[0].kind == IdentifierKind::Task && source.rank == Rank::Decided && !source.must;
    let head = match source.speaker {
        _ if is_task => OPEN,
        Speaker::User => "",
        // With this many lines the fact matters more than its speaker.
        _ if width == Width::Least => "",
        Speaker::Assistant => ASSISTANT,
        Speaker::Tool => TOOL,
    };
    let mut line = String::with_capacity("- ".len() + head.len() + source.text.len());
    line.push_str("- ");
    line.push_str(head);
    push_clause(&mut line, &source.text, spans.iter().map(|(_, found)| (found.start, found.end)), width);
    line
}

#[cfg(test)]
mod tests;
