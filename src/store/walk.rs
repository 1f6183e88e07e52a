//! Queries that follow the tree, shared by all stores: the subtree below an entry, its newest leaf, its children, and
//! the path between two entries.
//! An entry whose parent is not in the session counts as a root. Entries that are each other's ancestors (possible in
//! an imported file) have no root; a walk that meets such a cycle visits each entry once.

use super::{
    StoredNode, StoredRecord,
    page::{EntriesPage, Filling},
};
use reseed_protocol::EntryId;
use std::collections::{HashSet, VecDeque};

/// Selects the part of a tree to read, breadth first: an entry or the roots, then their children, and so on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubtreeQuery {
    /// The root of the subtree; `None` for all roots of the session.
    pub root: Option<EntryId>,
    /// Levels below the root; 0 for the root alone.
    pub depth: u32,
    /// The most nodes to return. Child counts show what was left out.
    pub limit: u32,
    /// No node is added once the bodies read reach this many bytes, so that a tree of large entries is never held in
    /// memory as a whole.
    pub bytes_max: usize,
}

/// An entry found by a walk.
pub(super) struct Found {
    pub(super) entry: EntryId,
    pub(super) record: StoredRecord,
}

/// Access to one session's entries; children come in log order.
pub(super) trait Links {
    type Error;

    /// Returns the entry if it exists.
    fn find(&self, entry: &EntryId) -> Result<Option<Found>, Self::Error>;

    /// Returns the parent of an entry, read without its body; `None` if the entry does not exist.
    fn parent(&self, entry: &EntryId) -> Result<Option<Option<EntryId>>, Self::Error>;

    /// Checks that an entry may have a parent that does not exist; an error means that the parent was lost.
    fn check_orphan(&self, entry: &EntryId) -> Result<(), Self::Error>;

    /// Returns the `seq` of at most `limit` children with a larger one; with `None`, of the roots.
    fn places(&self, of: Option<&EntryId>, after_seq: u64, limit: u32) -> Result<Vec<u64>, Self::Error>;

    /// Reads the entry at a `seq` that [`Self::places`] returned for this parent.
    fn at(&self, seq: u64, parent: Option<&EntryId>) -> Result<Found, Self::Error>;

    /// Returns the number of children of an entry.
    fn child_count(&self, of: &EntryId) -> Result<u64, Self::Error>;

    /// Returns all children of an entry with their `seq`, without reading their records.
    fn child_links(&self, of: &EntryId) -> Result<Vec<(u64, EntryId)>, Self::Error>;
}

/// Reads the subtree that `query` selects; empty if its root does not exist.
pub(super) fn subtree<L: Links>(links: &L, query: &SubtreeQuery) -> Result<Vec<StoredNode>, L::Error> {
    let mut part =
        Part { links, room: query.limit, bytes_left: query.bytes_max, seen: HashSet::new(), nodes: Vec::new() };
    match &query.root {
        Some(root) if !part.is_full() => links.find(root)?.into_iter().for_each(|root| part.add(0, root)),
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

/// The part of a tree that has been read so far.
struct Part<'a, L> {
    links: &'a L,
    room: u32,
    bytes_left: usize,
    seen: HashSet<u64>,
    /// Nodes with their level.
    nodes: Vec<(u32, Found)>,
}

impl<L: Links> Part<'_, L> {
    fn is_full(&self) -> bool {
        self.room == 0 || self.bytes_left == 0
    }

    fn add(&mut self, level: u32, node: Found) {
        self.seen.insert(node.record.seq);
        self.room -= 1;
        self.bytes_left = self.bytes_left.saturating_sub(node.record.body.len());
        self.nodes.push((level, node));
    }

    fn add_children(&mut self, level: u32, of: Option<&EntryId>) -> Result<(), L::Error> {
        let mut after_seq = 0;
        while !self.is_full() {
            let asked = self.room;
            let places = self.links.places(of, after_seq, asked)?;
            for seq in &places {
                if !self.is_full() && !self.seen.contains(seq) {
                    self.add(level, self.links.at(*seq, of)?);
                }
            }
            match places.last() {
                Some(last) if places.len() >= asked as usize => after_seq = *last,
                _ => break,
            }
        }
        Ok(())
    }
}

/// Reads children of an entry, or roots, in log order.
pub(super) fn children<L: Links>(
    links: &L,
    of: Option<&EntryId>,
    after_seq: u64,
    limit: u32,
    bytes_max: usize,
) -> Result<EntriesPage, L::Error> {
    let mut page = Filling::new(bytes_max);
    for seq in links.places(of, after_seq, limit)? {
        if !page.add(|| Ok(links.at(seq, of)?.record))? {
            break;
        }
    }
    Ok(page.done())
}

/// Reads the path from `after`, which is left out, to `to`; see [`super::EntryQuery::PathAfter`].
pub(super) fn path_after<L: Links>(
    links: &L,
    (after, to): (&EntryId, &EntryId),
    steps: u32,
    limit: u32,
    bytes_max: usize,
) -> Result<EntriesPage, L::Error> {
    let mut page = Filling::new(bytes_max);
    for entry in &ids_after(links, (after, to), steps, limit)? {
        let Some(found) = links.find(entry)? else { break };
        if !page.add(|| Ok(found.record))? {
            break;
        }
    }
    Ok(page.done())
}

/// Returns the first ids of the path after `after`, found by walking back from `to`.
fn ids_after<L: Links>(
    links: &L,
    (after, to): (&EntryId, &EntryId),
    steps: u32,
    limit: u32,
) -> Result<VecDeque<EntryId>, L::Error> {
    let mut ids = VecDeque::new();
    let mut at = to.clone();
    for _ in 0..steps {
        if at == *after {
            return Ok(ids);
        }
        match links.parent(&at)? {
            Some(Some(parent)) => {
                ids.push_front(std::mem::replace(&mut at, parent));
                ids.truncate(limit as usize);
            }
            // The path ends here. Reading this entry, or checking the one that names it, shows whether the cause is
            // damage.
            Some(None) => {
                links.find(&at)?;
                break;
            }
            None => {
                ids.front().map(|below| links.check_orphan(below)).transpose()?;
                break;
            }
        }
    }
    Ok(VecDeque::new())
}

/// Returns the newest entry without children at or below `below`. It walks everything below, reading only links.
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
