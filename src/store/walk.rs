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
    /// No node is added once the bodies have so many bytes together, so that a tree of large entries is not held in memory
    /// whole.
    pub bytes_max: usize,
}

/// Children read at once: what is read beyond `bytes_max` is less than so many bodies.
const CHILDREN_PAGE: u32 = 16;

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
    let mut part =
        Part { links, room: query.limit, bytes_left: query.bytes_max, seen: HashSet::new(), nodes: Vec::new() };
    match &query.root {
        Some(root) if query.limit > 0 => part.add(0, links.find(root)?.into_iter().collect()),
        Some(_) => {}
        None => part.add_children(0, None)?,
    }
    let mut at = 0;
    while let Some((level, found)) = part.nodes.get(at) {
        if *level < query.depth && !part.is_full() {
            let (level, entry) = (level + 1, found.entry.clone());
            part.add_children(level, Some(&entry))?;
        }
        at += 1;
    }
    let node = |(_, found): (u32, Found)| {
        Ok(StoredNode { child_count: links.child_count(&found.entry)?, record: found.record })
    };
    part.nodes.into_iter().map(node).collect()
}

/// The part of a tree that was read so far.
struct Part<'a, L> {
    links: &'a L,
    room: u32,
    bytes_left: usize,
    seen: HashSet<u64>,
    /// Each with its level.
    nodes: Vec<(u32, Found)>,
}

impl<L: Links> Part<'_, L> {
    fn is_full(&self) -> bool {
        self.room == 0 || self.bytes_left == 0
    }

    fn add(&mut self, level: u32, found: Vec<Found>) {
        for node in found {
            if !self.is_full() && self.seen.insert(node.record.seq) {
                self.room -= 1;
                self.bytes_left = self.bytes_left.saturating_sub(node.record.body.len());
                self.nodes.push((level, node));
            }
        }
    }

    fn add_children(&mut self, level: u32, of: Option<&EntryId>) -> Result<(), L::Error> {
        let mut after_seq = 0;
        while !self.is_full() {
            // Roots are looked for in the whole session: once.
            let page = if of.is_some() { self.room.min(CHILDREN_PAGE) } else { self.room };
            let children = self.links.children(of, after_seq, page)?;
            let last = children.last().map(|child| child.record.seq);
            let all = children.len() < page as usize;
            self.add(level, children);
            match last {
                Some(last) if !all => after_seq = last,
                _ => break,
            }
        }
        Ok(())
    }
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
