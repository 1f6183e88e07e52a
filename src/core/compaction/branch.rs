//! Selects the content for the summary of an abandoned branch.

use super::{cut::Cut, summary};
use crate::context::{
    counter::Counter,
    messages::{Context, Kind},
    node::Node,
    replay::raw_context,
};
use crate::text::files::FileTools;
use reseed_protocol::{Entry, EntryData, Part, compaction::CompactionDetails};
use std::{collections::HashSet, sync::Arc};

/// Bytes of text examined per token of the budget. It is more than a token has in any script, and keeps a long branch
/// from being counted as a whole just to summarise its end.
const BYTES_PER_TOKEN_MAX: u64 = 16;

/// Selects what a branch summary covers: the newest messages that fit a budget of estimated tokens, and the branch's
/// own summary if it was compacted. Returns `None` if the branch has no messages.
///
/// `left` is the branch, newest first, without the part that both branches share.
#[must_use]
pub fn to_summarise(left: &[Entry], budget_tokens: u64, counter: &Counter) -> Option<(Context, Cut)> {
    let context = raw_context(&path_of(left, budget_tokens, counter));
    let previous = context.messages.first().filter(|first| first.kind == Kind::Summary).map(|_| 0);
    let body = previous.map_or(0, |at| at + 1)..context.messages.len();
    let mut tokens = previous.map_or(0, |at: usize| context.messages[at].tokens.total());
    let mut summarised = Vec::new();
    for at in body.rev() {
        tokens += context.messages[at].tokens.total();
        // The newest message is always included; the summariser's own limits cut it if it is too long for one request.
        if tokens > budget_tokens && !summarised.is_empty() {
            break;
        }
        summarised.push(at);
    }
    summarised.reverse();
    if summarised.is_empty() && previous.is_none() {
        return None;
    }
    let cut = Cut {
        summarised,
        turn_prefix: None,
        previous,
        first_kept: None,
        kept: Vec::new(),
        dropped_tokens: tokens,
        kept_tokens: 0,
    };
    Some((context, cut))
}

/// Returns the branch, oldest first, without entries far beyond the budget. If the newest compaction keeps entries from
/// before the branch, it keeps everything on the branch that precedes it.
fn path_of(left: &[Entry], budget_tokens: u64, counter: &Counter) -> Vec<Arc<Node>> {
    let mut bytes_left = budget_tokens.saturating_mul(BYTES_PER_TOKEN_MAX);
    let near = left.iter().take_while(|entry| {
        let fits = bytes_left > 0;
        bytes_left = bytes_left.saturating_sub(text_bytes(entry));
        fits
    });
    let near = near.count();
    let is_compaction = |entry: &&Entry| matches!(entry.data, EntryData::Compaction(_));
    let beyond = left[near..].iter().find(is_compaction).filter(|_| !left[..near].iter().any(|e| is_compaction(&e)));
    let mut path: Vec<Entry> = beyond.into_iter().chain(left[..near].iter().rev()).cloned().collect();
    let ids: HashSet<_> = path.iter().map(|entry| entry.entry_id.clone()).collect();
    let oldest = path.first().map(|entry| entry.entry_id.clone());
    for entry in &mut path {
        if let EntryData::Compaction(compaction) = &mut entry.data
            && compaction.first_kept_entry_id.as_ref().is_some_and(|first| !ids.contains(first))
        {
            compaction.first_kept_entry_id.clone_from(&oldest);
        }
    }
    path.into_iter().map(|entry| Arc::new(Node::counted(entry, counter))).collect()
}

fn text_bytes(entry: &Entry) -> u64 {
    let part = |part: &Part| match part {
        Part::Text { text } | Part::Reasoning { text, .. } => text.len(),
        Part::ToolCall { arguments, .. } => arguments.len(),
        Part::ToolResult { output, .. } => output.len(),
        Part::Image { .. } => 0,
    };
    let bytes = match &entry.data {
        EntryData::Message(message) => message.content.iter().map(part).sum(),
        EntryData::CustomMessage(custom) => custom.content.iter().map(part).sum(),
        EntryData::Compaction(compaction) => compaction.summary.len(),
        EntryData::BranchSummary(branch) => branch.summary.len(),
        _ => 0,
    };
    bytes as u64
}

/// Returns the files that a branch touched: those named in any of its calls, including calls too old to be summarised,
/// and those recorded by its compactions and branch summaries.
#[must_use]
pub fn files(left: &[Entry], tools: &FileTools) -> CompactionDetails {
    let mut noted = CompactionDetails::default();
    for entry in left {
        if let Some(details) = entry.data.details() {
            noted.read_files.extend_from_slice(&details.read_files);
            noted.modified_files.extend_from_slice(&details.modified_files);
        }
    }
    summary::file_operations(left.iter().filter_map(Entry::message), Some(&noted), tools)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::testing::path;

    #[test]
    fn the_newest_messages_that_fit_and_the_preceding_summary_are_selected() {
        let big = "apple ".repeat(200);
        /// Lines of the branch, the budget, the indexes that are summarised, and the index of the preceding summary.
        type Case<'a> = (&'a [&'a str], u64, Option<(&'a [usize], Option<usize>)>);
        let table: &[Case<'_>] = &[
            (&[], 1_000, None),
            (&["a:user one", "b:assistant two"], 1_000, Some((&[0, 1], None))),
            (&["a:user BIG", "b:assistant BIG", "c:user BIG"], 450, Some((&[1, 2], None))),
            (&["a:user BIG"], 10, Some((&[0], None))),
            // The entries of this branch that the compaction keeps are included, even if it also keeps entries from
            // before the branch.
            (&["a:user one", "b:compaction S first=zz", "c:user two"], 1_000, Some((&[1, 2], Some(0)))),
            (&["a:user BIG", "b:compaction S first=b", "c:user BIG"], 300, Some((&[1], Some(0)))),
            // The call of this result is on the shared path.
            (&["a:result x seen", "b:assistant done"], 1_000, Some((&[0, 1], None))),
        ];
        for (lines, budget, expected) in table {
            let lines: Vec<String> = lines.iter().map(|line| line.replace("BIG", &big)).collect();
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let counter = Counter::for_model("test");
            let left: Vec<Entry> = path(&lines, &counter).iter().rev().map(|node| node.entry.clone()).collect();
            let found = to_summarise(&left, *budget, &counter);
            let found = found.as_ref().map(|(_, cut)| (cut.summarised.as_slice(), cut.previous));
            assert_eq!(found, *expected, "{lines:?} within {budget}");
        }
    }
}
