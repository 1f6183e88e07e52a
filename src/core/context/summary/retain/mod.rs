//! What a summary must not lose: names, paths, numbers and identifiers are looked for, and what is missing is put back
//! word for word, in a section of its own at the end.
//!
//! What always holds:
//! - what was there stays as it was; only the section [`RESTORED`] is written anew, within its bound;
//! - what matters most goes in first: what the user told, what was decided or is still to be done, what is about the
//!   present goal, what is newest;
//! - what was put back once counts as told by the next summary's repair, so that nothing fades from one to the next;
//! - secrets are masked before anything is looked for, so none is put back;
//! - the work is linear in the messages but for sorting.

mod clause;
mod held;
mod identify;
mod sources;

use super::{RESTORED, Sections, Slot, strip_files};
use clause::{Width, clause};
pub(super) use held::normal;
use held::{Content, Held};
pub(super) use identify::Kind;
use reseed_protocol::{Message, command::SummaryKind};
use sources::{OPEN, Rank, Source, Sources, Speaker};
use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet, hash_map::Entry},
};

use crate::core::context::extract::{ASSISTANT, TOOL};

/// Identifiers that are looked for, the ones that matter most. The section of the largest summary holds some 200 lines;
/// ten times as many leave the choice to what matters and keep the work small.
const IDENTIFIERS_MAX: usize = 2_000;
/// Lines that did not fit before no shorter one is looked for.
const MISSES_MAX: usize = 16;
/// From so many lines on that are put back, all of them in fewer words are better than some of them in more.
const MANY_LINES: usize = 32;

/// How much may be put back.
#[derive(Clone, Copy)]
pub struct RepairBounds<'a> {
    /// Tokens that the section of restored facts may have, its heading included.
    pub tokens_max: u64,
    /// Counts the tokens of a text.
    pub count: &'a dyn Fn(&str) -> u64,
}

/// A summary that was checked for what it must not lose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repaired {
    /// The summary, with a last section of what was missing if something was.
    pub text: String,
    /// Identifiers that were looked for.
    pub checked: u64,
    /// Those of them that were missing and are there now.
    pub restored: u64,
}

/// Checks that a summary holds what matters of the messages and of the summary before it, and puts back what it lost.
///
/// A section of restored facts that the summary has already is written anew: its lines count as told. Lists of files
/// behind the summary are left off.
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
    let held = Held::new(&body);
    let missing: Vec<&Identifier> =
        identifiers.iter().filter(|identifier| !held.has(identifier.text(&sources), identifier.kind)).collect();
    let checked = identifiers.len() as u64;
    let lines = lines(&sources, &missing, bounds);
    if lines.is_empty() {
        return Repaired { text: body, checked, restored: 0 };
    }
    let section = lines.join("\n");
    let found = Held::new(&section);
    let restored = missing.iter().filter(|identifier| found.has(identifier.text(&sources), identifier.kind)).count();
    Repaired { text: format!("{body}\n\n## {RESTORED}\n{section}"), checked, restored: restored as u64 }
}

/// A summary without its section of restored facts, and the lines of that.
fn without_restored(summary: &str) -> (String, Vec<String>) {
    let sections = Sections::parse(summary);
    let lines = sections.lines(Slot::Restored).to_vec();
    if lines.is_empty() {
        return (summary.trim().to_owned(), lines);
    }
    let mut is_within = false;
    let mut body = String::new();
    for line in summary.lines() {
        let is_heading = super::sections::opens(line);
        is_within = is_heading.map_or(is_within, |slot| slot == Slot::Restored);
        if !is_within {
            body.push_str(line);
            body.push('\n');
        }
    }
    (body.trim().to_owned(), lines)
}

/// Something exact that was said, at the place where it matters most.
#[derive(Debug)]
struct Identifier {
    kind: Kind,
    source: usize,
    found: usize,
    rank: Rank,
}

impl Identifier {
    fn text<'a>(&self, sources: &'a Sources) -> &'a str {
        let source = &sources.all[self.source];
        let found = source.found[self.found];
        &source.text[found.start..found.end]
    }
}

/// What is looked for: each identifier once, at the place where it matters most, among equal ones the newest.
fn identifiers(sources: &Sources) -> Vec<Identifier> {
    let mut best: HashMap<Cow<'_, str>, Identifier> = HashMap::new();
    for (at, source) in sources.all.iter().enumerate() {
        for (nth, found) in source.found.iter().enumerate() {
            let identifier = Identifier { kind: found.kind, source: at, found: nth, rank: source.rank };
            match best.entry(normal(&source.text[found.start..found.end])) {
                Entry::Vacant(place) => {
                    place.insert(identifier);
                }
                Entry::Occupied(mut best) if best.get().rank <= identifier.rank => {
                    best.insert(identifier);
                }
                Entry::Occupied(_) => {}
            }
        }
    }
    let mut identifiers: Vec<Identifier> = best.into_values().collect();
    // No two are alike in this, so that they come in one order whatever the map's is.
    let order = |it: &Identifier| (Reverse(it.rank), Reverse(it.source), it.found);
    if identifiers.len() > IDENTIFIERS_MAX {
        identifiers.select_nth_unstable_by_key(IDENTIFIERS_MAX, order);
        identifiers.truncate(IDENTIFIERS_MAX);
    }
    identifiers.sort_unstable_by_key(order);
    identifiers
}

/// The lines that are put back, in the order in which they were said.
fn lines(sources: &Sources, missing: &[&Identifier], bounds: RepairBounds<'_>) -> Vec<String> {
    let mut by_source: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
    for identifier in missing {
        let found = sources.all[identifier.source].found[identifier.found];
        by_source.entry(identifier.source).or_default().push((found.start, found.end));
    }
    let mut ordered: Vec<usize> = by_source.keys().copied().collect();
    let is_wanted = |word: &&str| sources.goal.contains(*word);
    let relevance = |at: usize| Content::of(&sources.all[at].text).iter().filter(is_wanted).take(2).count();
    ordered.sort_by_cached_key(|at| (Reverse(sources.all[*at].rank), Reverse(relevance(*at)), Reverse(*at)));

    let cost = |line: &str| (bounds.count)(line) + 1;
    let room = bounds.tokens_max.saturating_sub(cost(&format!("\n\n## {RESTORED}")));
    let fit = |width: Width| {
        let mut left = room;
        let mut chosen: BTreeMap<usize, Line> = BTreeMap::new();
        let mut seen: HashSet<String> = HashSet::new();
        let mut misses = 0;
        for at in &ordered {
            let text = line(&sources.all[*at], &by_source[at], width);
            if !seen.insert(normal(&text).into_owned()) {
                continue;
            }
            let tokens = cost(&text);
            match left.checked_sub(tokens) {
                Some(rest) => {
                    left = rest;
                    chosen.insert(*at, Line { text, tokens });
                }
                None if misses == MISSES_MAX => break,
                None => misses += 1,
            }
        }
        (chosen, left, misses)
    };
    let (mut chosen, mut left, misses) = fit(Width::Bare);
    let widths = if misses > 0 && chosen.len() >= MANY_LINES {
        (chosen, left, _) = fit(Width::Least);
        [Width::Bare, Width::Tight, Width::Whole].as_slice()
    } else {
        &[Width::Tight, Width::Whole]
    };
    // What room is left goes into more of the sentence around what matters most; a tool's words are not given more.
    for width in widths {
        for at in &ordered {
            let may_grow = *width < Width::Whole || sources.all[*at].speaker != Speaker::Tool;
            let Some(narrow) = chosen.get_mut(at).filter(|_| may_grow) else { continue };
            let text = line(&sources.all[*at], &by_source[at], *width);
            if text == narrow.text {
                continue;
            }
            let tokens = cost(&text);
            let Some(rest) = left.checked_sub(tokens.saturating_sub(narrow.tokens)) else { break };
            left = rest;
            *narrow = Line { text, tokens };
        }
    }
    chosen.into_values().map(|line| line.text).collect()
}

/// A line that is put back.
struct Line {
    text: String,
    /// What it costs, its line break included.
    tokens: u64,
}

/// A sentence as a line of the section, with who said it unless it was the user.
fn line(source: &Source, spans: &[(usize, usize)], width: Width) -> String {
    let is_task = source.found[0].kind == Kind::Task && source.rank == Rank::Decided && !source.must;
    let head = match source.speaker {
        _ if is_task => OPEN,
        Speaker::User => "",
        // Where so much is to stay, that it was said matters more than who said it.
        _ if width == Width::Least => "",
        Speaker::Assistant => ASSISTANT,
        Speaker::Tool => TOOL,
    };
    format!("- {head}{}", clause(&source.text, spans, width))
}

#[cfg(test)]
mod tests;
