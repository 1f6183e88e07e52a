//! Checks that every store makes before it writes. They live here so that all stores refuse the same appends. A refused
//! append writes nothing.

use super::{Append, Error, Lease};
use std::collections::HashSet;

impl Lease {
    /// Checks that an append at `first_seq` under this lease fits a log at `term` and `last_seq`. The term alone is not
    /// enough: a session that was deleted and recreated under its old id starts again at term 1, so the epoch must
    /// match too.
    pub(super) fn check(&self, first_seq: u64, epoch: &str, term: u64, last_seq: u64) -> Result<(), Error> {
        if self.epoch == epoch && self.term == term && last_seq.checked_add(1) == Some(first_seq) {
            return Ok(());
        }
        Err(Error::Fenced { session: self.session.clone(), term, last_seq, append_term: self.term, first_seq })
    }
}

impl Append {
    /// Returns the bytes of its records.
    pub(super) fn bytes(&self) -> u64 {
        self.records.iter().map(|record| record.body.len() as u64).sum()
    }

    /// Refuses an append that names the same command or entry twice.
    pub(super) fn check_distinct(&self, lease: &Lease) -> Result<(), Error> {
        let mut commands = HashSet::new();
        for mark in &self.marks {
            if !commands.insert(mark.command_id.as_str()) {
                let (session, command_id) = (lease.session.clone(), mark.command_id.clone());
                return Err(Error::DuplicateCommand { session, command_id });
            }
        }
        let mut entries = HashSet::new();
        for entry in self.records.iter().filter_map(|record| record.entry.as_ref()) {
            if !entries.insert(&entry.entry_id) {
                return Err(Error::DuplicateEntry { session: lease.session.clone(), entry: entry.entry_id.clone() });
            }
        }
        Ok(())
    }
}
