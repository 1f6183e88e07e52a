//! Adds records to the index in slices.

use super::{
    Part, Range, SHARD_BYTES_MAX, SHARD_ROWS_MAX, create_shard, has_rows, is_of_shard, parts, role_word, row_of,
};
use crate::{
    Error,
    search::{CALL_STEPS_MAX, Document, KINDS, spaced},
    sqlite::{
        Fault, read,
        record::{self, COLUMNS},
        writer::Write,
    },
    whole_mark,
};
use reseed_protocol::SessionId;
use rusqlite::{Connection, OptionalExtension as _, Row};
use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

/// The most records that a slice reads, and the bytes of text after which it ends. Indexing this much takes some 20 ms.
const SLICE_RECORDS_MAX: u32 = 512;
const SLICE_BYTES_MAX: usize = 256 * 1024;

/// The most bytes of an entry's text that are indexed; the rest cannot be found. A tool can return as much as a frame
/// holds, and indexing one MiB takes some 50 ms.
pub(super) const TEXT_BYTES_MAX: usize = 1024 * 1024;

/// Indexes the first records of a session that are not indexed yet.
pub(in crate::sqlite) struct IndexSlice {
    pub(in crate::sqlite) session: SessionId,
    /// Set to the shard of the slice, so that a failed slice tells which shard could not be written.
    pub(in crate::sqlite) broken: Arc<AtomicI64>,
}

/// The outcome of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sqlite) enum Indexed {
    Part,
    All,
}

impl Write for IndexSlice {
    type Output = Indexed;

    fn write(&self, db: &Connection) -> Result<Indexed, Fault> {
        match self.index(db) {
            // An unreadable session is skipped; other reads report it.
            Err(Fault::Refused(_)) => Ok(Indexed::All),
            // The entries of all sessions can still be written.
            Err(Fault::Sqlite(error)) if is_of_shard(&error) => {
                Err(Fault::Undone(Error::Unknown(format!("index the history: {error}"))))
            }
            done => done,
        }
    }
}

impl IndexSlice {
    fn index(&self, db: &Connection) -> Result<Indexed, Fault> {
        let found = db
            .prepare_cached("SELECT number, last_seq FROM session WHERE id = ?1")?
            .query_row([self.session.as_str()], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))
            .optional()?;
        let Some((number, last_seq)) = found.filter(|(number, last_seq)| has_rows(*number, *last_seq)) else {
            return Ok(Indexed::All);
        };
        let parts = parts(db, number, last_seq)?;
        let Some(at) = parts.iter().position(|part| part.shard.is_none()) else { return Ok(Indexed::All) };
        let before = at.checked_sub(1).map(|at| parts[at]);
        let shard = self.shard(db, before)?;
        self.broken.store(shard, Ordering::Relaxed);
        let last = self.add(db, number, shard, parts[at].records)?;
        let first = parts[at].records.first;
        match before.filter(|before| before.shard == Some(shard)) {
            Some(before) => db
                .prepare_cached("UPDATE history_part SET last_seq = ?3 WHERE session = ?1 AND first_seq = ?2")?
                .execute((number, before.records.first, last))?,
            None => db
                .prepare_cached(
                    "INSERT INTO history_part (session, first_seq, last_seq, shard) VALUES (?1, ?2, ?3, ?4)",
                )?
                .execute((number, first, last, shard))?,
        };
        let is_all = last == parts[at].records.last && at + 1 == parts.len();
        Ok(if is_all { Indexed::All } else { Indexed::Part })
    }

    /// Returns the shard to add to: the shard of the preceding records, if it has room.
    fn shard(&self, db: &Connection, before: Option<Part>) -> rusqlite::Result<i64> {
        let room = format!("entries < {SHARD_ROWS_MAX} AND bytes < {SHARD_BYTES_MAX}");
        if let Some(shard) = before.and_then(|before| before.shard)
            && db
                .prepare_cached(&format!("SELECT 1 FROM history_shard WHERE shard = ?1 AND {room}"))?
                .exists([shard])?
        {
            return Ok(shard);
        }
        let newest = format!("SELECT shard FROM history_shard WHERE {room} ORDER BY shard DESC LIMIT 1");
        let newest = db.prepare_cached(&newest)?.query_row([], |row| row.get(0)).optional()?;
        newest.map_or_else(|| create_shard(db), Ok)
    }

    /// Adds records to a shard. Returns the last one read.
    fn add(&self, db: &Connection, number: i64, shard: i64, records: Range) -> Result<i64, Fault> {
        let mut insert = db.prepare_cached(&format!("INSERT INTO history_{shard} (rowid, words) VALUES (?1, ?2)"))?;
        let mut statement = db.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM record WHERE session = ?1 AND seq BETWEEN ?2 AND ?3 ORDER BY seq LIMIT ?4"
        ))?;
        let mut rows = statement.query((number, records.first, records.last, SLICE_RECORDS_MAX))?;
        let (mut last, mut count, mut entries, mut read_bytes, mut bytes) = (records.last, 0, 0, 0, 0);
        // The answers before the results, which show which tool a result comes from.
        let mut callers: Vec<Document> = Vec::new();
        while let Some(row) = rows.next()? {
            last = row.get(0)?;
            count += 1;
            if let Some(document) = document(db, &self.session, number, row)? {
                read_bytes += document.text.len();
                if document.answers.is_none() {
                    callers.clear();
                }
                if !repeats(db, &self.session, number, &document, &callers)? {
                    let words = format!("{} {}", role_word(document.role), spaced(&document.text, TEXT_BYTES_MAX));
                    insert.execute((row_of(number, last), &words))?;
                    entries += 1;
                    bytes += words.len();
                }
                if !document.calls.is_empty() {
                    callers.push(document);
                }
            }
            if read_bytes >= SLICE_BYTES_MAX {
                count = 0;
                break;
            }
        }
        // If records of the range are missing, they are lost; other reads report that.
        if count > 0 && count < SLICE_RECORDS_MAX {
            last = records.last;
        }
        // A part without entries also counts as one entry, so that the number of sessions in a shard is bounded.
        db.prepare_cached("UPDATE history_shard SET entries = entries + ?2, bytes = bytes + ?3 WHERE shard = ?1")?
            .execute((shard, entries.max(1), i64::try_from(bytes).unwrap_or(i64::MAX)))?;
        Ok(last)
    }
}

/// Returns the searched text of a row of [`COLUMNS`]; `None` if it has no text or cannot be read.
pub(super) fn document(
    db: &Connection,
    session: &SessionId,
    number: i64,
    row: &Row<'_>,
) -> Result<Option<Document>, Fault> {
    let kind = row.get_ref(KIND)?.as_str_or_null().ok().flatten();
    if kind.is_none_or(|kind| !KINDS.contains(&kind)) {
        return Ok(None);
    }
    let mut document = match record::decode(session, row) {
        Ok(record) => Document::of(&record.body),
        Err(Fault::Refused(Error::Damaged { .. })) => return Ok(None),
        Err(fault) => return Err(fault),
    };
    if let Some(document) = document.as_mut().filter(|document| document.is_cut) {
        let mut mark = db.prepare_cached("SELECT reply FROM mark WHERE session = ?1 AND command = ?2")?;
        let whole = mark.query_row((number, whole_mark(&document.entry)), |row| row.get(0)).optional()?;
        document.text = whole.unwrap_or(std::mem::take(&mut document.text));
    }
    Ok(document)
}

/// Index of the kind in [`COLUMNS`].
const KIND: usize = 5;

/// Returns true for the results of the history tools. The call is among those given, or else above the result.
pub(super) fn repeats(
    db: &Connection,
    session: &SessionId,
    number: i64,
    document: &Document,
    callers: &[Document],
) -> Result<bool, Fault> {
    let (Some(call), Some(parent)) = (&document.answers, &document.parent) else { return Ok(false) };
    if let Some(repeats) = callers.iter().find_map(|caller| caller.makes(call)) {
        return Ok(repeats);
    }
    let mut step = db.prepare_cached(&format!("SELECT {COLUMNS} FROM record WHERE session = ?1 AND entry = ?2"))?;
    let mut next = Some(parent.as_str().to_owned());
    for _ in 0..CALL_STEPS_MAX {
        let Some(entry) = next else { break };
        let mut rows = step.query((number, &entry))?;
        let Some(row) = rows.next()? else { break };
        if let Ok(record) = record::decode(session, row)
            && let Some(repeats) = Document::of(&record.body).and_then(|document| document.makes(call))
        {
            return Ok(repeats);
        }
        next = row.get(record::PARENT)?;
    }
    Ok(false)
}

/// Reads the document at a `seq`.
pub(super) fn document_at(
    db: &Connection,
    session: &SessionId,
    number: i64,
    seq: i64,
) -> Result<Option<Document>, Fault> {
    let mut statement = db.prepare_cached(&format!("SELECT {COLUMNS} FROM record WHERE session = ?1 AND seq = ?2"))?;
    let mut rows = statement.query((number, read::int(seq.cast_unsigned())))?;
    match rows.next()? {
        Some(row) => document(db, session, number, row),
        None => Ok(None),
    }
}
