//! A session in memory.

use crate::{
    Append, CommandMark, EMPTY_SEQ_MAX, EntryColumns, EntryQuery, Error, Head, Lease, NewRecord, NodeId, SessionHead,
    StoredRecord, Usage,
    page::{EntriesPage, Filling},
    walk::{self, Candidates, Link, Links, run_of},
};
use reseed_core::usage_row::UsageRow;
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

    /// Appends. Returns the rows of the operator's account, which do not belong to the session.
    pub(super) fn append(&mut self, lease: &Lease, first_seq: u64, append: Append) -> Result<Vec<UsageRow>, Error> {
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
        Ok(append.usage)
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

    pub(super) fn entries(&self, id: &SessionId, query: &EntryQuery, bytes_max: usize) -> Result<EntriesPage, Error> {
        match query {
            EntryQuery::Log { before_seq, after_seq, limit } => {
                let entries = self
                    .between(after_seq.unwrap_or(0), before_seq.unwrap_or(u64::MAX))
                    .filter(|(_, record)| record.entry.is_some());
                if after_seq.is_some() {
                    return Ok(filled(entries.take(*limit as usize), bytes_max));
                }
                let mut newest = filled(entries.rev().take(*limit as usize), bytes_max);
                newest.records.reverse();
                Ok(newest)
            }
            EntryQuery::Kind { kind, after_seq, limit } => {
                let of_kind = |record: &NewRecord| record.entry.as_ref().is_some_and(|entry| entry.kind == *kind);
                let records = self.between(*after_seq, u64::MAX).filter(|(_, record)| of_kind(record));
                Ok(filled(records.take(*limit as usize), bytes_max))
            }
            _ => {
                let links = SessionLinks { id, session: self };
                Ok(walk::immediate(walk::entries(&links, query, bytes_max))?.unwrap_or_default())
            }
        }
    }
}

/// The entries of a session. None is marked as following its parent: all are indexed.
pub(super) struct SessionLinks<'a> {
    pub(super) id: &'a SessionId,
    pub(super) session: &'a Session,
}

fn link((seq, record): (u64, &NewRecord)) -> Option<Link> {
    let EntryColumns { entry_id, parent_id, .. } = record.entry.as_ref()?;
    let (entry, parent) = (entry_id.to_string(), parent_id.as_ref().map(EntryId::to_string));
    Some(Link { seq, entry, parent, body_bytes: record.body.len(), follows: false })
}

impl SessionLinks<'_> {
    fn after(&self, seq: u64) -> impl Iterator<Item = Link> {
        self.session.between(seq, u64::MAX).filter_map(link)
    }

    fn at(&self, seq: &u64) -> Option<(u64, &NewRecord)> {
        self.session.between(seq.saturating_sub(1), seq.saturating_add(1)).next()
    }

    fn children(&self, of: &str) -> Vec<Link> {
        let seqs = of.parse().ok().and_then(|of: EntryId| self.session.children.get(&of));
        seqs.into_iter().flatten().filter_map(|seq| link(self.at(seq)?)).collect()
    }

    fn run(&self, entry: &str, limit: usize) -> Result<Vec<Link>, Error> {
        let seq = entry.parse().ok().and_then(|entry: EntryId| self.session.seq_of_entry.get(&entry));
        let Some(seq) = seq else { return Ok(Vec::new()) };
        let links = self.session.between(0, seq + 1).rev().filter_map(link);
        run_of(self.id, entry, links.take(limit).map(Ok))
    }
}

impl Links for SessionLinks<'_> {
    type Error = Error;

    fn session(&self) -> &SessionId {
        self.id
    }

    async fn run(&self, entry: &str, limit: usize) -> Result<Vec<Link>, Error> {
        Self::run(self, entry, limit)
    }

    async fn after(&self, seq: u64, limit: usize) -> Result<Vec<Link>, Error> {
        Ok(Self::after(self, seq).take(limit).collect())
    }

    async fn candidates(&self, parents: &[(u64, &str)]) -> Result<Vec<Candidates>, Error> {
        Ok(parents.iter().map(|(_, entry)| (self.children(entry), None)).collect())
    }

    async fn roots(&self) -> Result<Vec<Link>, Error> {
        let is_there =
            |parent: &str| parent.parse().is_ok_and(|parent| self.session.seq_of_entry.contains_key(&parent));
        Ok(Self::after(self, 0).filter(|link| !link.parent.as_deref().is_some_and(is_there)).collect())
    }

    async fn records(&self, links: &[Link]) -> Result<Vec<StoredRecord>, Error> {
        Ok(links.iter().filter_map(|link| self.at(&link.seq)).map(stored).collect())
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
