//! Checksums of records, heads, states and marks, the same in every database.
//!
//! Each is a CRC-32 (IEEE) over the session's id and the row's values: texts as their bytes followed by a zero byte,
//! numbers as 8 little-endian bytes. A read detects a flipped bit in a body, and also one in a parent, which would lead
//! a path astray.

use super::{CommandMark, EntryColumns, SessionHead};
use reseed_protocol::SessionId;

/// Converts to the signed integer of a database. Larger values saturate.
pub(super) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

struct Crc(crc32fast::Hasher);

impl Crc {
    fn of(session: &SessionId) -> Self {
        Self(crc32fast::Hasher::new()).text(session.as_str())
    }

    fn text(mut self, text: &str) -> Self {
        self.0.update(text.as_bytes());
        self.0.update(&[0]);
        self
    }

    fn number(mut self, number: i64) -> Self {
        self.0.update(&number.to_le_bytes());
        self
    }

    fn end(self) -> u32 {
        self.0.finalize()
    }
}

/// Returns the checksum of a session's row: everything except its number and the folded name, which only search uses.
pub(super) fn head(found: &SessionHead, term: u64, last_entry: Option<&str>) -> u32 {
    let head = &found.head;
    let crc = Crc::of(&found.session).text(&found.owner).text(&found.epoch).text(&head.name);
    let crc = crc.text(last_entry.unwrap_or_default());
    let counts = [term, found.last_seq, head.entries, head.token_count, head.window_tokens];
    let crc = counts.into_iter().fold(crc, |crc, count| crc.number(int(count)));
    let crc = crc.number(head.created_at.0).number(head.updated_at.0).number(head.running.into());
    if head.cost_nano_usd.is_none() && head.unpriced_requests == 0 {
        // This is the checksum from before costs were stored.
        return crc.end();
    }
    let cost = head.cost_nano_usd.map_or(-1, int);
    crc.number(cost).number(int(head.unpriced_requests)).end()
}

/// Returns the checksum of a session's stored state.
pub(super) fn state(session: &SessionId, state: &str) -> u32 {
    Crc::of(session).text(state).end()
}

/// Returns the checksum of a command's mark.
pub(super) fn mark(session: &SessionId, mark: &CommandMark) -> u32 {
    Crc::of(session).text(&mark.command_id).number(mark.fingerprint.cast_signed()).text(&mark.reply).end()
}

/// Returns the checksum of a record, the same in all versions: CRC-32 (IEEE) over the session's id and a zero byte;
/// `seq` as 8 little-endian bytes; entry, parent and kind, each followed by a zero byte, or replaced by a one byte if
/// missing; and the body.
pub(super) fn record(session: &SessionId, seq: u64, entry: Option<&EntryColumns>, body: &str) -> u32 {
    let columns = [
        entry.map(|entry| entry.entry_id.as_str().as_bytes()),
        entry.and_then(|entry| entry.parent_id.as_ref()).map(|parent| parent.as_str().as_bytes()),
        entry.map(|entry| entry.kind.as_bytes()),
    ];
    record_of(session, seq, columns, body.as_bytes())
}

/// Returns the checksum of a record from its columns entry, parent and kind.
pub(super) fn record_of(session: &SessionId, seq: u64, columns: [Option<&[u8]>; 3], body: &[u8]) -> u32 {
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

/// Returns the checksum of a session's owner, where it is not in the head's.
#[cfg(feature = "postgres")]
pub(super) fn owner(session: &SessionId, owner: &str) -> u32 {
    Crc::of(session).text(owner).end()
}
