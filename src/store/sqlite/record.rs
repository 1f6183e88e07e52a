//! One stored record: its columns, its format version and its checksum.
//!
//! SQLite does not verify what it reads from the disk, so each record carries a CRC-32 of its whole content. A read
//! detects a flipped bit in a body, and also one in a parent, which would lead a path astray.

use super::Fault;
use crate::store::{EntryColumns, Error, Part, StoredRecord, upgrade};
use reseed_protocol::SessionId;
use rusqlite::{Row, types::ValueRef};

/// The format version of records written now.
pub(super) const VERSION: i64 = upgrade::RECORD_VERSION;

/// The columns that [`decode`] expects, in this order.
pub(super) const COLUMNS: &str = "seq, version, checksum, entry, parent, kind, body";

/// Index of the entry in [`COLUMNS`].
pub(super) const ENTRY: usize = 3;

/// Index of the parent in [`COLUMNS`].
pub(super) const PARENT: usize = 4;

/// Returns the checksum of a record, the same in all versions: CRC-32 (IEEE) over the session's id and a zero byte;
/// `seq` as 8 little-endian bytes; entry, parent and kind, each followed by a zero byte, or by a one byte if it is
/// missing; and the body.
pub(super) fn checksum(session: &SessionId, seq: u64, entry: Option<&EntryColumns>, body: &str) -> u32 {
    let columns = [
        entry.map(|entry| entry.entry_id.as_str().as_bytes()),
        entry.and_then(|entry| entry.parent_id.as_ref()).map(|parent| parent.as_str().as_bytes()),
        entry.map(|entry| entry.kind.as_bytes()),
    ];
    checksum_of(session, seq, columns, body.as_bytes())
}

fn checksum_of(session: &SessionId, seq: u64, columns: [Option<&[u8]>; 3], body: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(session.as_str().as_bytes());
    crc.update(&[0]);
    crc.update(&seq.to_le_bytes());
    for column in columns {
        crc.update(column.unwrap_or_default());
        crc.update(&[u8::from(column.is_none())]);
    }
    crc.update(body);
    crc.finalize()
}

/// Returns the error for a record that does not read back as it was written.
pub(super) fn damaged(session: &SessionId, seq: u64, reason: &'static str) -> Fault {
    Error::Damaged { session: session.clone(), part: Part::Record(seq), reason }.into()
}

/// Reads a row of [`COLUMNS`] and verifies it.
pub(super) fn decode(session: &SessionId, row: &Row<'_>) -> Result<StoredRecord, Fault> {
    let seq = row.get::<_, i64>(0)?.cast_unsigned();
    let damaged = |reason| damaged(session, seq, reason);
    let text = |column| match row.get_ref(column)? {
        ValueRef::Text(bytes) => Ok(Some(bytes)),
        ValueRef::Null => Ok(None),
        _ => Err(damaged("a column is not text")),
    };
    let ValueRef::Integer(version) = row.get_ref(1)? else { return Err(damaged("unknown format version")) };
    let body = text(6)?.ok_or_else(|| damaged("it has no body"))?;
    let want = checksum_of(session, seq, [text(ENTRY)?, text(PARENT)?, text(5)?], body);
    if row.get_ref(2)? != ValueRef::Integer(want.into()) {
        return Err(damaged("checksum mismatch"));
    }
    let body = str::from_utf8(body).map_err(|_| damaged("its body is not UTF-8"))?;
    let body = match version {
        VERSION => body.into(),
        _ => upgrade::upgraded(version, body).ok_or_else(|| damaged("unknown format version"))?.into(),
    };
    Ok(StoredRecord { seq, body })
}
