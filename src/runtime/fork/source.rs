//! Reads the path to an entry of the forked session, piece by piece.

use super::PIECE_ENTRIES_MAX;
use crate::{
    runtime::{errors::store_error, load::entry, registry::Registry},
    store::EntryQuery,
};
use reseed_protocol::{Entry, EntryData, EntryId, ErrorBody, ErrorCode, SessionId};
use std::collections::BTreeSet;

/// The target size of a piece in bytes. One large entry, or a few between small ones, may exceed it.
const PIECE_BYTES: usize = 512 * 1024;

/// The session being forked.
pub(super) struct ForkSource<'a> {
    pub(super) registry: &'a Registry,
    pub(super) id: &'a SessionId,
    pub(super) last_seq: u64,
}

/// The pieces of a path, so that it can be read from the root without holding it in memory.
#[derive(Debug, Default)]
pub(super) struct Path {
    /// The newest entry of each piece and its number of entries. The piece at the root comes last.
    pub(super) pieces: Vec<(EntryId, u32)>,
    /// The `seq` of each entry, in order. This takes 8 bytes for an entry of any size.
    seqs: Vec<u64>,
    /// Bytes of the entries since the newest compaction. An open session with this path holds about this much in
    /// memory.
    pub(super) visible_bytes: usize,
}

impl ForkSource<'_> {
    pub(super) async fn read(&self, query: EntryQuery) -> Result<Vec<(u64, Entry, usize)>, ErrorBody> {
        let records = self.registry.store().entries(self.id, query).await.map_err(|error| store_error(&error))?;
        let mut entries = Vec::with_capacity(records.len());
        for record in records {
            if let Some(entry) = entry(self.id, &record).map_err(|error| store_error(&error))? {
                entries.push((record.seq, entry, record.body.len()));
            }
        }
        Ok(entries)
    }

    pub(super) async fn entry(&self, id: &EntryId) -> Result<Entry, ErrorBody> {
        let found = self.read(EntryQuery::Path { from: id.clone(), limit: 1 }).await?.pop();
        found.map(|(_, entry, _)| entry).ok_or_else(|| {
            let message = format!("there is no entry `{id}` in this session");
            ErrorBody::new(ErrorCode::EntryNotFound, message).with_field("entryId")
        })
    }

    /// Walks from an entry to its root. The compactions in `undone` hide nothing.
    pub(super) async fn survey(&self, end: Option<EntryId>, undone: &[EntryId]) -> Result<Path, ErrorBody> {
        let (mut path, mut next, mut limit, mut is_visible) = (Path::default(), end, 16, true);
        while let Some(from) = next.take() {
            self.registry.check_running()?;
            let piece = self.read(EntryQuery::Path { from: from.clone(), limit }).await?;
            let count = u32::try_from(piece.len()).unwrap_or(limit);
            if count == limit {
                next = piece.last().and_then(|(_, entry, _)| entry.parent_id.clone());
            }
            if count > 0 {
                path.pieces.push((from, count));
            }
            for (seq, entry, bytes) in &piece {
                path.seqs.push(*seq);
                path.visible_bytes += if is_visible { *bytes } else { 0 };
                is_visible &= !matches!(entry.data, EntryData::Compaction(_)) || undone.contains(&entry.entry_id);
            }
            if path.seqs.len() as u64 > self.last_seq {
                let message = "the path to this entry is a cycle without a root; fork elsewhere";
                return Err(ErrorBody::new(ErrorCode::SessionDamaged, message).with_field("entryId"));
            }
            // The size of this piece determines the next limit: few large entries, or many small ones.
            let bytes: usize = piece.iter().map(|(_, _, bytes)| bytes).sum();
            limit = if bytes > PIECE_BYTES { (limit / 4).max(1) } else { (limit * 2).min(PIECE_ENTRIES_MAX) };
        }
        path.seqs.sort_unstable();
        Ok(path)
    }

    /// Returns which of these entries are on the path.
    pub(super) async fn on_path(&self, path: &Path, ids: Vec<EntryId>) -> Result<BTreeSet<EntryId>, ErrorBody> {
        let mut there = BTreeSet::new();
        for id in ids {
            let seq = self.registry.store().entry_seq(self.id, &id).await.map_err(|error| store_error(&error))?;
            if seq.is_some_and(|seq| path.seqs.binary_search(&seq).is_ok()) {
                there.insert(id);
            }
        }
        Ok(there)
    }
}
