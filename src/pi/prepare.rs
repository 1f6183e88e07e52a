//! Chooses what pi summarises when it compacts a path.

use super::{
    cut::{CutPoint, find_cut_point},
    files::Files,
    json::Object,
    message,
};

/// The plan of a compaction as pi would make it. Indexes refer to the path.
#[derive(Debug, Clone, PartialEq)]
pub struct Preparation {
    /// The cut point.
    pub cut: CutPoint,
    /// The entries whose messages are summarised.
    pub summarised: Vec<usize>,
    /// The entries of the split turn that lie before the cut.
    pub turn_prefix: Vec<usize>,
    /// The summary of the previous compaction.
    pub previous_summary: Option<String>,
    /// Files touched so far.
    pub files: Files,
}

/// Plans the compaction of a path, given as pi's lines from the root to the leaf. Returns `None` if the path is empty
/// or ends in a compaction.
#[must_use]
pub fn prepare(path: &[Object], keep_tokens: u64) -> Option<Preparation> {
    let is_compaction = |line: &Object| line.text("type") == Some("compaction");
    if path.last().is_none_or(is_compaction) {
        return None;
    }
    let previous = path.iter().rposition(is_compaction);
    let start = previous.map_or(0, |at| {
        let first_kept = path[at].text("firstKeptEntryId");
        let place = first_kept.and_then(|id| path.iter().position(|line| line.text("id") == Some(id)));
        place.unwrap_or(at + 1)
    });
    let cut = find_cut_point(path, start, path.len(), keep_tokens);
    path.get(cut.first_kept)?;
    let history_end = cut.turn_start.unwrap_or(cut.first_kept);
    let said = |range: std::ops::Range<usize>| -> Vec<usize> {
        range.filter(|at| !is_compaction(&path[*at]) && message::of_line(&path[*at], 0).is_some()).collect()
    };
    let summarised = said(start..history_end.max(start));
    let turn_prefix = cut.turn_start.map(|from| said(from..cut.first_kept)).unwrap_or_default();
    let mut files = Files::default();
    if let Some(at) = previous {
        files.add_noted(&path[at]);
    }
    for at in summarised.iter().chain(&turn_prefix) {
        if let Some(message) = message::of_line(&path[*at], 0) {
            files.add_calls(&message);
        }
    }
    let previous_summary = previous.and_then(|at| path[at].text("summary")).map(str::to_owned);
    Some(Preparation { cut, summarised, turn_prefix, previous_summary, files })
}
