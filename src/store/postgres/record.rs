//! One stored record: its columns and its checksum, as in SQLite.

use super::fault::Fault;
use crate::store::{Error, Part, StoredRecord, checksum, upgrade};
use reseed_protocol::SessionId;
use tokio_postgres::Row;

/// The format version of records written now.
pub(super) const VERSION: i16 = upgrade::RECORD_VERSION as i16;

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

/// Reads a row of [`COLUMNS`] and verifies it.
pub(super) fn decode(session: &SessionId, row: &Row) -> Result<StoredRecord, Fault> {
    let seq = row.try_get::<_, i64>(0)?.cast_unsigned();
    let damaged = |reason| damaged(session, seq, reason);
    let text = |column| row.try_get::<_, Option<&str>>(column).map(|text| text.map(str::as_bytes));
    let (version, stored): (i16, i64) = (row.try_get(1)?, row.try_get(2)?);
    let body: &[u8] = row.try_get(6)?;
    let want = checksum::record_of(session, seq, [text(ENTRY)?, text(PARENT)?, text(5)?], body);
    if stored != i64::from(want) {
        return Err(damaged("checksum mismatch"));
    }
    let body = str::from_utf8(body).map_err(|_| damaged("its body is not UTF-8"))?;
    let body = match version {
        VERSION => body.into(),
        _ => upgrade::upgraded(version.into(), body).ok_or_else(|| damaged("unknown format version"))?.into(),
    };
    Ok(StoredRecord { seq, body })
}
