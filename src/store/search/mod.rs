//! Search in the text of entries: which text is searched, queries, hits, and the search with and without an index.
//!
//! A store may find entries by an index, but [`Query`] decides what matches: every hit is compared with the entry's
//! text before it is returned. So even if the index is behind, damaged or missing, no answer is wrong.

mod document;
pub(super) mod index;
mod query;
pub(super) mod range;
mod scan;
mod words;

pub(super) use document::Document;
pub use document::HISTORY_TOOLS;
pub use query::{Query, TERMS_MAX};
use scan::Scan;
pub(super) use scan::scan;

use reseed_core::session::preview::{SummaryLine, summary_line};
use reseed_protocol::{EntryId, SessionId, Timestamp, tree::HitRole};
use std::{borrow::Cow, ops::Range};

/// The most hits that a search returns.
pub const HITS_MAX: u32 = 100;

/// The most sessions of an owner that a search covers; those written to last are chosen. Listing 100,000 takes about a
/// second. A search that stops there reports that there may be more.
pub(super) const SESSIONS_MAX: u32 = 100_000;

/// The most sessions that are searched individually. A search begins with the newest ones, and skips others that cannot
/// match according to the index.
pub(super) const SEARCHED_MAX: u32 = 1_000;

/// The most characters of a snippet, and the most of them before the match.
const SNIPPET_CHARS: usize = 300;
const SNIPPET_BEFORE: usize = 100;

/// The sessions to search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SearchScope {
    /// One session.
    Session(SessionId),
    /// All sessions of an owner that lists show, newest first.
    Owner(String),
}

/// Selects the entries to find, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchQuery {
    /// The terms that their text must contain. Without a term, nothing is found.
    pub query: Query,
    /// The sessions to search.
    pub scope: SearchScope,
    /// The most hits; capped at [`HITS_MAX`].
    pub limit: u32,
    /// Only entries with this author.
    pub role: Option<HitRole>,
    /// Only entries on the path to this one; ignored when all of an owner's sessions are searched.
    pub on_path_to: Option<EntryId>,
    /// Only entries whose `seq` is smaller.
    pub before_seq: Option<u64>,
    /// Finds entries that contain some of the terms. Entries that match more of the rare terms come first, then newer
    /// ones.
    pub any: bool,
}

impl SearchQuery {
    /// Returns the query for a text in one session, without further conditions.
    #[must_use]
    pub fn in_session(session: &SessionId, text: &str, limit: u32) -> Self {
        Self {
            query: Query::parse(text),
            scope: SearchScope::Session(session.clone()),
            limit,
            role: None,
            on_path_to: None,
            before_seq: None,
            any: false,
        }
    }

    /// Returns the query for a text in all sessions of an owner.
    #[must_use]
    pub fn of_owner(owner: &str, text: &str, limit: u32) -> Self {
        let query = Query::parse(text);
        let scope = SearchScope::Owner(owner.to_owned());
        Self { query, scope, limit, role: None, on_path_to: None, before_seq: None, any: false }
    }

    /// Returns true if nothing can be found.
    pub(super) fn is_empty(&self) -> bool {
        self.query.is_empty() || self.hits_max() == 0
    }

    pub(super) fn hits_max(&self) -> usize {
        self.limit.min(HITS_MAX) as usize
    }

    /// Returns the hit if the entry matches, and which of the terms it contains.
    pub(super) fn hit(&self, session: &SessionId, seq: u64, document: &Document) -> Option<(Hit, Vec<bool>)> {
        if self.role.is_some_and(|role| role != document.role) || self.before_seq.is_some_and(|before| seq >= before) {
            return None;
        }
        let places = self.query.places(&document.text);
        let found: Vec<bool> = places.iter().map(Option::is_some).collect();
        let fits = if self.any { found.contains(&true) } else { !found.contains(&false) };
        let first = places.into_iter().flatten().min_by_key(|place| place.start).filter(|_| fits)?;
        let hit = Hit {
            session: session.clone(),
            seq,
            entry: document.entry.clone(),
            timestamp: document.timestamp,
            role: document.role,
            snippet: snippet(&document.text, first, document.role == HitRole::Summary),
        };
        Some((hit, found))
    }
}

/// An entry that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// Its session.
    pub session: SessionId,
    /// The `seq` of its record.
    pub seq: u64,
    /// The entry.
    pub entry: EntryId,
    /// The time of its creation.
    pub timestamp: Timestamp,
    /// Its author.
    pub role: HitRole,
    /// The text around the first match, on one line; `…` stands for omitted text.
    pub snippet: String,
}

/// The outcome of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hits {
    /// The hits.
    pub items: Vec<Hit>,
    /// True if there may be more: the search reached its limit, or stopped before it had read everything.
    pub more: bool,
}

impl Hits {
    /// Returns the first `limit` of these hits.
    pub(super) fn first(mut items: Vec<Hit>, limit: usize, is_partial: bool) -> Self {
        let more = is_partial || items.len() > limit;
        items.truncate(limit);
        Self { items, more }
    }
}

/// Sorts hits as [`SearchQuery::any`] describes. Each hit comes with a flag per term that says whether it contains the
/// term. A term weighs more the fewer hits contain it.
pub(super) fn rank<T>(hits: &mut [(T, Vec<bool>)], terms: usize, newest: impl Fn(&T) -> u64) {
    let counts: Vec<usize> =
        (0..terms).map(|term| hits.iter().filter(|(_, found)| found.get(term) == Some(&true)).count()).collect();
    let weight = |found: &[bool]| -> f64 {
        let found = found.iter().zip(&counts).filter(|(is_found, _)| **is_found);
        found.map(|(_, count)| 1.0 / (1.0 + *count as f64).log2()).sum()
    };
    hits.sort_by(|(a, found_a), (b, found_b)| {
        weight(found_b).total_cmp(&weight(found_a)).then_with(|| newest(b).cmp(&newest(a)))
    });
}

/// Returns the text around a match, on one line; a summary's markup is removed.
fn snippet(text: &str, place: Range<usize>, is_summary: bool) -> String {
    let before = text[..place.start].char_indices().rev().take(SNIPPET_BEFORE).last();
    let start = before.map_or(place.start, |(at, _)| at);
    let end = text[start..].char_indices().nth(SNIPPET_CHARS - 2).map_or(text.len(), |(at, _)| start + at);
    let mut snippet = String::new();
    if start > 0 {
        snippet.push('…');
    }
    let mut was_space = false;
    let shown = &text[start..end];
    let shown = if is_summary { Cow::Owned(unmarked(shown)) } else { Cow::Borrowed(shown) };
    for c in shown.chars() {
        let is_space = c.is_whitespace() || c.is_control();
        if !is_space {
            snippet.push(c);
        } else if !was_space {
            snippet.push(' ');
        }
        was_space = is_space;
    }
    if end < text.len() {
        snippet.push('…');
    }
    snippet
}

/// Returns a part of a summary with headings written as `Goal:` and without tags.
fn unmarked(summary: &str) -> String {
    let mut lines = String::with_capacity(summary.len());
    for line in summary.lines() {
        match summary_line(line) {
            SummaryLine::Heading(heading) => lines.extend([heading, ":\n"]),
            SummaryLine::Text(text) => lines.extend([text, "\n"]),
            SummaryLine::Tag => {}
        }
    }
    lines.truncate(lines.trim_end().len());
    lines
}

#[cfg(test)]
mod tests {
    use super::snippet;

    #[test]
    fn a_snippet_is_bounded_and_ends_between_characters() {
        assert_eq!(snippet("a short\n\ttext", 2..7, false), "a short text");
        let long = format!("{} needle {}", "é".repeat(500), "🦀".repeat(500));
        let found = snippet(&long, 1001..1007, false);
        assert!(found.starts_with("…é") && found.ends_with("🦀…") && found.contains(" needle "), "{found}");
        assert!(found.chars().count() <= 300);
    }

    #[test]
    fn the_snippet_of_a_summary_has_no_marks() {
        let summary = "<summary>\n## Goal\nFeed #1.\n\n### Done\n- none\n</summary>";
        assert_eq!(snippet(summary, 18..22, true), "Goal: Feed #1. Done: - none");
        assert_eq!(snippet(summary, 18..22, false), summary.split_whitespace().collect::<Vec<_>>().join(" "));
    }
}
