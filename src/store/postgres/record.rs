//! One stored record: its columns and its checksum, as in SQLite.

use super::fault::Fault;
use crate::{Error, Part, StoredRecord, checksum, upgrade};
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

/// A row of [`COLUMNS`], verified.
pub(super) struct Verified<'a> {
    pub(super) seq: u64,
    pub(super) version: i16,
    pub(super) checksum: u32,
    /// Entry, parent and kind.
    pub(super) columns: [Option<&'a str>; 3],
    /// The body as it was written in that version.
    pub(super) body: &'a str,
}

/// Reads a row of [`COLUMNS`] and verifies it.
pub(super) fn verify<'a>(session: &SessionId, row: &'a Row) -> Result<Verified<'a>, Fault> {
    let seq = row.try_get::<_, i64>(0)?.cast_unsigned();
    let damaged = |reason| damaged(session, seq, reason);
    let columns: [Option<&str>; 3] = [row.try_get(ENTRY)?, row.try_get(PARENT)?, row.try_get(5)?];
    let (version, stored): (i16, i64) = (row.try_get(1)?, row.try_get(2)?);
    let body: &[u8] = row.try_get(6)?;
    let checksum = checksum::record_of(session, seq, columns.map(|text| text.map(str::as_bytes)), body);
    if stored != i64::from(checksum) {
        return Err(damaged("checksum mismatch"));
    }
    let body = str::from_utf8(body).map_err(|_| damaged("its body is not UTF-8"))?;
    Ok(Verified { seq, version, checksum, columns, body })
}

/// Reads a row of [`COLUMNS`], verifies it and translates it to the current form.
pub(super) fn decode(session: &SessionId, row: &Row) -> Result<StoredRecord, Fault> {
    let Verified { seq, version, body, .. } = verify(session, row)?;
    let damaged = || damaged(session, seq, "unknown format version");
    let body = match version {
        VERSION => body.into(),
        _ => upgrade::upgraded(version.into(), body).ok_or_else(damaged)?.into(),
    };
    Ok(StoredRecord { seq, body })
}
