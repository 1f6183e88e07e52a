//! One stored record: its columns, its format version and its checksum. SQLite does not verify what it reads from the
//! disk, so each record carries a CRC-32 of its whole content.

use super::Fault;
use crate::{Error, Part, StoredRecord, checksum, upgrade};
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

/// Returns the error for a record that does not read back as it was written.
pub(super) fn damaged(session: &SessionId, seq: u64, reason: &'static str) -> Fault {
    Error::Damaged { session: session.clone(), part: Part::Record(seq), reason }.into()
}

/// A row of [`COLUMNS`], verified.
pub(super) struct Verified<'a> {
    pub(super) seq: u64,
    pub(super) version: i64,
    pub(super) checksum: u32,
    /// Entry, parent and kind.
    pub(super) columns: [Option<&'a [u8]>; 3],
    /// The body as it was written in that version.
    pub(super) body: &'a str,
}

/// Reads a row of [`COLUMNS`] and verifies it.
pub(super) fn verify<'a>(session: &SessionId, row: &'a Row<'_>) -> Result<Verified<'a>, Fault> {
    let seq = row.get::<_, i64>(0)?.cast_unsigned();
    let damaged = |reason| damaged(session, seq, reason);
    let text = |column| match row.get_ref(column)? {
        ValueRef::Text(bytes) => Ok(Some(bytes)),
        ValueRef::Null => Ok(None),
        _ => Err(damaged("a column is not text")),
    };
    let ValueRef::Integer(version) = row.get_ref(1)? else { return Err(damaged("unknown format version")) };
    let body = text(6)?.ok_or_else(|| damaged("it has no body"))?;
    let columns = [text(ENTRY)?, text(PARENT)?, text(5)?];
    let checksum = checksum::record_of(session, seq, columns, body);
    if row.get_ref(2)? != ValueRef::Integer(checksum.into()) {
        return Err(damaged("checksum mismatch"));
    }
    let body = str::from_utf8(body).map_err(|_| damaged("its body is not UTF-8"))?;
    Ok(Verified { seq, version, checksum, columns, body })
}

/// Reads a row of [`COLUMNS`], verifies it and translates it to the current form.
pub(super) fn decode(session: &SessionId, row: &Row<'_>) -> Result<StoredRecord, Fault> {
    let Verified { seq, version, body, .. } = verify(session, row)?;
    let damaged = || damaged(session, seq, "unknown format version");
    let body = match version {
        VERSION => body.into(),
        _ => upgrade::upgraded(version, body).ok_or_else(damaged)?.into(),
    };
    Ok(StoredRecord { seq, body })
}
