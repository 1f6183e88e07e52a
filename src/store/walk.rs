//! Questions that follow the tree from parent to child, asked alike of every store: what is below an entry, and where its
//! newest branch ends.
//!
//! An entry whose parent is not in the session hangs from nothing and counts as a root. Entries that name each other
//! as parents in a circle (an imported file may) have no root; a walk that meets them visits each once.

use super::{StoredNode, StoredRecord};
use reseed_protocol::EntryId;
use std::collections::HashSet;

/// Which part of a tree to read, breadth first: an entry or the roots, then their children, then theirs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubtreeQuery {
    /// Where to begin; the session's roots where there is none.
    pub root: Option<EntryId>,
    /// How many levels below those; 0 for them alone.
    pub depth: u32,
    /// Most nodes. What is left out shows by the counts of children.
    pub limit: u32,
}

/// An entry as a walk sees it.
pub(super) struct Found {
    pub(super) entry: EntryId,
    pub(super) record: StoredRecord,
}

/// A session's entries as a store finds them, children in the order of the log.
pub(super) trait Links {
    type Error;

    /// The entry, if it is there.
    fn find(&self, entry: &EntryId) -> Result<Option<Found>, Self::Error>;

    /// Children after a place in the log, at most `limit`; of no entry, the roots.
    fn children(&self, of: Option<&EntryId>, after_seq: u64, limit: u32) -> Result<Vec<Found>, Self::Error>;

    /// How many children an entry has.
    fn child_count(&self, of: &EntryId) -> Result<u64, Self::Error>;

    /// All children of an entry with their `seq`, without their records.
    fn child_links(&self, of: &EntryId) -> Result<Vec<(u64, EntryId)>, Self::Error>;
}

/// What [`SubtreeQuery`] asks for; nothing where its root is not there.
pub(super) fn subtree<L: Links>(links: &L, query: &SubtreeQuery) -> Result<Vec<StoredNode>, L::Error> {
    let first = match &query.root {
        Some(root) if query.limit > 0 => links.find(root)?.into_iter().collect(),
        Some(_) => Vec::new(),
        None => links.children(None, 0, query.limit)?,
    };
    let mut seen: HashSet<u64> = first.iter().map(|found| found.record.seq).collect();
    let mut level_of: Vec<(u32, Found)> = first.into_iter().map(|found| (0, found)).collect();
    let mut at = 0;
    while let Some((level, found)) = level_of.get(at) {
        let level = *level;
        let room = query.limit.saturating_sub(u32::try_from(level_of.len()).unwrap_or(u32::MAX));
        if level < query.depth && room > 0 {
            let children = links.children(Some(&found.entry), 0, room)?;
            let new = children.into_iter().filter(|child| seen.insert(child.record.seq));
            level_of.extend(new.map(|child| (level + 1, child)));
        }
        at += 1;
    }
    let node = |(_, found): (u32, Found)| {
        Ok(StoredNode { child_count: links.child_count(&found.entry)?, record: found.record })
    };
    level_of.into_iter().map(node).collect()
}

/// The newest entry without children at or below `below`. It looks at all that is below, at links only.
pub(super) fn newest_leaf<L: Links>(links: &L, below: &EntryId) -> Result<Option<StoredRecord>, L::Error> {
    let Some(top) = links.find(below)? else { return Ok(None) };
    let mut seen = HashSet::from([top.record.seq]);
    let mut waiting = vec![(top.record.seq, top.entry)];
    let mut newest: Option<(u64, EntryId)> = None;
    while let Some((seq, entry)) = waiting.pop() {
        let children = links.child_links(&entry)?;
        if children.is_empty() && newest.as_ref().is_none_or(|(newest, _)| *newest < seq) {
            newest = Some((seq, entry));
        }
        waiting.extend(children.into_iter().filter(|(seq, _)| seen.insert(*seq)));
    }
    match newest {
        Some((_, leaf)) => Ok(links.find(&leaf)?.map(|found| found.record)),
        None => Ok(Some(top.record)),
    }
}
