//! Reads all links of a tree in one pass, for queries that visit much of it.
//!
//! Finding the children of one entry takes several statements. For a tree of a thousand entries that adds up to half a
//! second of CPU time; reading the links of the whole log takes a few milliseconds.

use super::{AFTER, ORPHANED, Tree};
use crate::{
    sqlite::Fault,
    walk::{Found, Links},
};
use reseed_protocol::EntryId;
use std::{
    cell::{Cell, OnceCell},
    collections::HashMap,
};

/// The number of entries whose children are found one by one before all links are read. Most requested trees are small.
const ONE_BY_ONE: u32 = 32;

/// The most links of a log that are read per requested entry; above that, single statements are faster.
const LINKS_FOR_EACH: u32 = 128;

/// A tree that reads all links once it has looked up the children of several entries.
pub(in crate::sqlite) struct Linked<'a> {
    tree: Tree<'a>,
    looks: Cell<u32>,
    links_max: u32,
    /// `None` if the log is too long.
    all: OnceCell<Option<All>>,
}

#[derive(Default)]
struct All {
    /// The `seq` of each entry's children, in order.
    children: HashMap<String, Vec<u64>>,
    /// Entries that precede an orphan: the entry between them is gone.
    orphaned: HashMap<String, u64>,
}

impl<'a> Linked<'a> {
    /// Creates the tree for a query of at most this many entries.
    pub(in crate::sqlite) fn new(tree: Tree<'a>, limit: u32) -> Self {
        Self { tree, looks: Cell::new(0), links_max: limit.saturating_mul(LINKS_FOR_EACH), all: OnceCell::new() }
    }

    /// Returns the children of an entry; `None` if they must be found one by one.
    fn children(&self, of: &EntryId) -> Result<Option<&[u64]>, Fault> {
        self.looks.set(self.looks.get().saturating_add(1));
        if self.looks.get() <= ONE_BY_ONE {
            return Ok(None);
        }
        if self.all.get().is_none() {
            let all = self.read()?;
            // Only this call sets it.
            let _ = self.all.set(all);
        }
        let Some(Some(all)) = self.all.get() else { return Ok(None) };
        match all.orphaned.get(of.as_str()) {
            Some(seq) => Err(self.tree.damaged(*seq, ORPHANED)),
            None => Ok(Some(all.children.get(of.as_str()).map_or(&[], Vec::as_slice))),
        }
    }

    fn read(&self) -> Result<Option<All>, Fault> {
        let mut all = All::default();
        let mut statement = self.tree.db.prepare_cached(AFTER)?;
        let mut rows = statement.query((self.tree.number, 0, i64::from(self.links_max) + 1))?;
        let (mut before, mut count) = (String::new(), 0);
        while let Some(row) = rows.next()? {
            count += 1;
            if count > self.links_max {
                return Ok(None);
            }
            let seq = row.get::<_, i64>(0)?.cast_unsigned();
            let parent = row.get_ref(2)?.as_str_or_null().ok().flatten();
            if row.get::<_, Option<i64>>(3)? == Some(1) && parent != Some(before.as_str()) {
                all.orphaned.insert(before, seq);
            } else if let Some(parent) = parent {
                all.children.entry(parent.to_owned()).or_default().push(seq);
            }
            before = row.get(1)?;
        }
        Ok(Some(all))
    }
}

impl Links for Linked<'_> {
    type Error = Fault;

    fn find(&self, entry: &EntryId) -> Result<Option<Found>, Fault> {
        self.tree.find(entry)
    }

    fn parent(&self, entry: &EntryId) -> Result<Option<Option<EntryId>>, Fault> {
        self.tree.parent(entry)
    }

    fn check_orphan(&self, entry: &EntryId) -> Result<(), Fault> {
        self.tree.check_orphan(entry)
    }

    fn places(&self, of: Option<&EntryId>, after_seq: u64, limit: u32) -> Result<Vec<u64>, Fault> {
        let known = of.map(|of| self.children(of)).transpose()?.flatten();
        let Some(known) = known else { return self.tree.places(of, after_seq, limit) };
        Ok(known.iter().copied().filter(|seq| *seq > after_seq).take(limit as usize).collect())
    }

    fn at(&self, seq: u64, parent: Option<&EntryId>) -> Result<Found, Fault> {
        self.tree.at(seq, parent)
    }

    fn child_count(&self, of: &EntryId) -> Result<u64, Fault> {
        match self.children(of)? {
            Some(known) => Ok(known.len() as u64),
            None => self.tree.child_count(of),
        }
    }

    fn child_links(&self, of: &EntryId) -> Result<Vec<(u64, EntryId)>, Fault> {
        self.tree.child_links(of)
    }
}
