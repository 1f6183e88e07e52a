//! A session in memory.

use crate::{
    Append, CommandMark, EMPTY_SEQ_MAX, EntryQuery, Error, Head, Lease, NewRecord, NodeId, SessionHead, StoredRecord,
    Usage,
    page::{EntriesPage, Filling},
    walk::{self, Found, Links},
};
use reseed_protocol::{EntryId, SessionId};
use std::{collections::HashMap, convert::Infallible};

#[derive(Debug, Clone)]
pub(super) struct Session {
    pub(super) number: i64,
    pub(super) owner: String,
    pub(super) epoch: String,
    /// The timeline on which it was created or last opened.
    pub(super) timeline: u64,
    pub(super) term: u64,
    pub(super) holder: Option<NodeId>,
    /// The record with `seq` n is at index n - 1.
    pub(super) records: Vec<NewRecord>,
    pub(super) seq_of_entry: HashMap<EntryId, u64>,
    /// The `seq` of the children of each named parent, in order. The parent itself may be missing.
    pub(super) children: HashMap<EntryId, Vec<u64>>,
    pub(super) marks: HashMap<String, CommandMark>,
    pub(super) head: Head,
    /// The bytes of its records.
    pub(super) bytes: u64,
}

impl Session {
    pub(super) fn last_seq(&self) -> u64 {
        self.records.len() as u64
    }

    /// Returns the session's share of its owner's usage.
    pub(super) fn usage(&self) -> Usage {
        Usage { sessions: 1, empty: u64::from(self.last_seq() <= EMPTY_SEQ_MAX), bytes: self.bytes }
    }

    pub(super) fn lease(&self, id: &SessionId) -> Lease {
        Lease { session: id.clone(), term: self.term, next_seq: self.last_seq() + 1, epoch: self.epoch.clone() }
    }

    pub(super) fn session_head(&self, id: &SessionId) -> SessionHead {
        SessionHead {
            session: id.clone(),
            owner: self.owner.clone(),
            epoch: self.epoch.clone(),
            last_seq: self.last_seq(),
            term: self.term,
            holder: self.holder,
            head: self.head.clone(),
        }
    }

    pub(super) fn append(&mut self, lease: &Lease, first_seq: u64, append: Append) -> Result<(), Error> {
        lease.check(first_seq, &self.epoch, self.term, self.last_seq())?;
        append.check_distinct(lease)?;
        if let Some(mark) = append.marks.iter().find(|mark| self.marks.contains_key(&mark.command_id)) {
            let (session, command_id) = (lease.session.clone(), mark.command_id.clone());
            return Err(Error::DuplicateCommand { session, command_id });
        }
        let mut entries = append.records.iter().filter_map(|record| record.entry.as_ref());
        if let Some(entry) = entries.find(|entry| self.seq_of_entry.contains_key(&entry.entry_id)) {
            return Err(Error::DuplicateEntry { session: lease.session.clone(), entry: entry.entry_id.clone() });
        }
        self.bytes += append.bytes();
        for record in append.records {
            self.records.push(record);
            let seq = self.records.len() as u64;
            if let Some(entry) = self.records.last().and_then(|record| record.entry.as_ref()) {
                self.seq_of_entry.insert(entry.entry_id.clone(), seq);
                if let Some(parent) = &entry.parent_id {
                    self.children.entry(parent.clone()).or_default().push(seq);
                }
            }
        }
        self.marks.extend(append.marks.into_iter().map(|mark| (mark.command_id.clone(), mark)));
        let stored = self.head.state.take();
        self.head = append.head;
        self.head.state = self.head.state.take().or(stored);
        Ok(())
    }

    /// Returns records with `after_seq < seq < before_seq`, oldest first.
    pub(super) fn between(
        &self,
        after_seq: u64,
        before_seq: u64,
    ) -> impl DoubleEndedIterator<Item = (u64, &NewRecord)> {
        let start = usize::try_from(after_seq).unwrap_or(usize::MAX);
        let end = usize::try_from(before_seq.saturating_sub(1)).unwrap_or(usize::MAX).min(self.records.len());
        let records = self.records.get(start..end).unwrap_or_default();
        records.iter().enumerate().map(move |(i, record)| ((start + i) as u64 + 1, record))
    }

    /// Returns the records from an entry back to its root.
    fn path<'a>(&'a self, from: &'a EntryId) -> impl Iterator<Item = (u64, &'a NewRecord)> {
        let mut next = Some(from);
        std::iter::from_fn(move || {
            let seq = *self.seq_of_entry.get(next?)?;
            let record = self.records.get(usize::try_from(seq).ok()?.checked_sub(1)?)?;
            next = record.entry.as_ref().and_then(|entry| entry.parent_id.as_ref());
            Some((seq, record))
        })
    }

    pub(super) fn entries(&self, query: &EntryQuery, bytes_max: usize) -> EntriesPage {
        match query {
            EntryQuery::Path { from, limit } => filled(self.path(from).take(*limit as usize), bytes_max),
            EntryQuery::PathAfter { after, to, steps, limit } => {
                let Ok(page) = walk::path_after(self, (after, to), *steps, *limit, bytes_max);
                page
            }
            EntryQuery::Log { before_seq, after_seq, limit } => {
                let entries = self
                    .between(after_seq.unwrap_or(0), before_seq.unwrap_or(u64::MAX))
                    .filter(|(_, record)| record.entry.is_some());
                if after_seq.is_some() {
                    return filled(entries.take(*limit as usize), bytes_max);
                }
                let mut newest = filled(entries.rev().take(*limit as usize), bytes_max);
                newest.records.reverse();
                newest
            }
            EntryQuery::Children { of, after_seq, limit } => {
                let Ok(page) = walk::children(self, of.as_ref(), *after_seq, *limit, bytes_max);
                page
            }
            EntryQuery::Kind { kind, after_seq, limit } => {
                let of_kind = |record: &NewRecord| record.entry.as_ref().is_some_and(|entry| entry.kind == *kind);
                let records = self.between(*after_seq, u64::MAX).filter(|(_, record)| of_kind(record));
                filled(records.take(*limit as usize), bytes_max)
            }
            EntryQuery::NewestLeaf { below } => {
                let Ok(leaf) = walk::newest_leaf(self, below);
                EntriesPage { records: leaf.into_iter().collect(), cut: false }
            }
        }
    }

    /// Returns the entry at `seq`, if that record holds one.
    fn found(&self, seq: u64) -> Option<Found> {
        let record = self.records.get(usize::try_from(seq).ok()?.checked_sub(1)?)?;
        Some(Found { entry: record.entry.as_ref()?.entry_id.clone(), record: stored((seq, record)) })
    }

    fn is_root(&self, record: &NewRecord) -> bool {
        let parent = record.entry.as_ref().map(|entry| entry.parent_id.as_ref());
        parent.is_some_and(|parent| parent.is_none_or(|parent| !self.seq_of_entry.contains_key(parent)))
    }
}

impl Links for Session {
    type Error = Infallible;

    fn find(&self, entry: &EntryId) -> Result<Option<Found>, Infallible> {
        Ok(self.seq_of_entry.get(entry).and_then(|seq| self.found(*seq)))
    }

    fn parent(&self, entry: &EntryId) -> Result<Option<Option<EntryId>>, Infallible> {
        let record = self.path(entry).next().and_then(|(_, record)| record.entry.as_ref());
        Ok(record.map(|entry| entry.parent_id.clone()))
    }

    fn check_orphan(&self, _: &EntryId) -> Result<(), Infallible> {
        Ok(())
    }

    fn places(&self, of: Option<&EntryId>, after_seq: u64, limit: u32) -> Result<Vec<u64>, Infallible> {
        let seqs: Vec<u64> = match of {
            Some(parent) => self.children.get(parent).cloned().unwrap_or_default(),
            None => {
                let records = self.between(after_seq, u64::MAX).filter(|(_, record)| self.is_root(record));
                records.map(|(seq, _)| seq).take(limit as usize).collect()
            }
        };
        Ok(seqs.into_iter().filter(|seq| *seq > after_seq).take(limit as usize).collect())
    }

    fn at(&self, seq: u64, _parent: Option<&EntryId>) -> Result<Found, Infallible> {
        Ok(self.found(seq).expect("a place was found under the same lock"))
    }

    fn child_count(&self, of: &EntryId) -> Result<u64, Infallible> {
        Ok(self.children.get(of).map_or(0, |children| children.len() as u64))
    }

    fn child_links(&self, of: &EntryId) -> Result<Vec<(u64, EntryId)>, Infallible> {
        let children = self.children.get(of).into_iter().flatten();
        Ok(children.filter_map(|seq| self.found(*seq).map(|found| (*seq, found.entry))).collect())
    }
}

/// Returns a page filled from these records.
fn filled<'a>(records: impl Iterator<Item = (u64, &'a NewRecord)>, bytes_max: usize) -> EntriesPage {
    let mut page = Filling::new(bytes_max);
    for record in records {
        let Ok(has_room) = page.add(|| Ok::<_, Infallible>(stored(record)));
        if !has_room {
            break;
        }
    }
    page.done()
}

pub(super) fn stored((seq, record): (u64, &NewRecord)) -> StoredRecord {
    StoredRecord { seq, body: record.body.clone() }
}
