//! Reads records as PostgreSQL stores them.

use super::fault::Fault;
pub(super) use crate::record::{COLUMNS, ENTRY, PARENT};
use crate::{
    StoredRecord,
    record::{self, RecordRow},
};
use reseed_protocol::SessionId;
use tokio_postgres::Row;

/// Returns the error for a record that does not read back as it was written.
pub(super) fn damaged(session: &SessionId, seq: u64, reason: &'static str) -> Fault {
    record::damaged(session, seq, reason).into()
}

/// Reads a row of [`COLUMNS`], verifies it and translates it to the current form.
pub(super) fn decode(session: &SessionId, row: &Row) -> Result<StoredRecord, Fault> {
    let text = |column| Ok::<_, Fault>(row.try_get::<_, Option<&str>>(column)?.map(str::as_bytes));
    let row = RecordRow {
        seq: row.try_get::<_, i64>(0)?.cast_unsigned(),
        version: Some(row.try_get::<_, i16>(1)?.into()),
        checksum: Some(row.try_get(2)?),
        columns: [text(ENTRY)?, text(PARENT)?, text(5)?],
        body: row.try_get(6)?,
    };
    Ok(row.decode(session)?)
}
