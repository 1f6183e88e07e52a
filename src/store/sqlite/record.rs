//! Reads records as SQLite stores them. SQLite does not verify what it reads from the disk, so each record carries a
//! CRC-32 of its whole content.

use super::Fault;
pub(super) use crate::record::{COLUMNS, ENTRY, PARENT};
use crate::{
    StoredRecord,
    record::{self, RecordRow},
};
use reseed_protocol::SessionId;
use rusqlite::{Row, types::ValueRef};

/// Returns the error for a record that does not read back as it was written.
pub(super) fn damaged(session: &SessionId, seq: u64, reason: &'static str) -> Fault {
    record::damaged(session, seq, reason).into()
}

/// Reads a row of [`COLUMNS`], verifies it and translates it to the current form.
pub(super) fn decode(session: &SessionId, row: &Row<'_>) -> Result<StoredRecord, Fault> {
    let seq = row.get::<_, i64>(0)?.cast_unsigned();
    let number = |column| Ok::<_, rusqlite::Error>(row.get_ref(column)?.as_i64().ok());
    let text = |column| match row.get_ref(column)? {
        ValueRef::Text(bytes) => Ok(Some(bytes)),
        ValueRef::Null => Ok(None),
        _ => Err(damaged(session, seq, "a column is not text")),
    };
    let body = text(6)?.ok_or_else(|| damaged(session, seq, "it has no body"))?;
    let columns = [text(ENTRY)?, text(PARENT)?, text(5)?];
    let row = RecordRow { seq, version: number(1)?, checksum: number(2)?, columns, body };
    Ok(row.decode(session)?)
}
