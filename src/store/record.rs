//! One stored record: its columns, its format version and its checksum, the same in every database.

use super::{Error, Part, StoredRecord, checksum, upgrade};
use reseed_protocol::SessionId;

/// The columns of a record that reads select, in this order.
pub(crate) const COLUMNS: &str = "seq, version, checksum, entry, parent, kind, body";

/// Index of the entry in [`COLUMNS`].
pub(crate) const ENTRY: usize = 3;

/// Index of the parent in [`COLUMNS`].
pub(crate) const PARENT: usize = 4;

/// Returns the error for a record that does not read back as it was written.
pub(crate) fn damaged(session: &SessionId, seq: u64, reason: &'static str) -> Error {
    Error::Damaged { session: session.clone(), part: Part::Record(seq), reason }
}

/// A row of [`COLUMNS`].
pub(crate) struct RecordRow<'a> {
    pub(crate) seq: u64,
    /// `None` if it is no number.
    pub(crate) version: Option<i64>,
    /// `None` if it is no number.
    pub(crate) checksum: Option<i64>,
    /// Entry, parent and kind.
    pub(crate) columns: [Option<&'a [u8]>; 3],
    pub(crate) body: &'a [u8],
}

impl RecordRow<'_> {
    /// Verifies the record and translates it to the current form.
    pub(crate) fn decode(&self, session: &SessionId) -> Result<StoredRecord, Error> {
        let damaged = |reason| damaged(session, self.seq, reason);
        let version = self.version.ok_or_else(|| damaged("unknown format version"))?;
        let checksum = checksum::record_of(session, self.seq, self.columns, self.body);
        if self.checksum != Some(checksum.into()) {
            return Err(damaged("checksum mismatch"));
        }
        let body = str::from_utf8(self.body).map_err(|_| damaged("its body is not UTF-8"))?;
        let body = match version {
            upgrade::RECORD_VERSION => body.into(),
            _ => upgrade::upgraded(version, body).ok_or_else(|| damaged("unknown format version"))?.into(),
        };
        Ok(StoredRecord { seq: self.seq, body })
    }
}

/// Fails if one of `wanted` records after `after_seq` is not there. A log has no gaps, so a missing record was lost.
pub(crate) fn check_complete(
    session: &SessionId,
    records: &[StoredRecord],
    after_seq: u64,
    wanted: u64,
) -> Result<(), Error> {
    let wanted = (after_seq.saturating_add(1)..).take(usize::try_from(wanted).unwrap_or(usize::MAX));
    for (at, seq) in wanted.enumerate() {
        if records.get(at).is_none_or(|record| record.seq != seq) {
            return Err(damaged(session, seq, "it is missing"));
        }
    }
    Ok(())
}
