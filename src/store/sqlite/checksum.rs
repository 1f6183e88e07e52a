//! Checksums of heads, states and marks. (A record has its own, see `record.rs`.)
//!
//! Each is a CRC-32 (IEEE) over the session's id and the row's values: texts as their bytes followed by a zero byte,
//! numbers as 8 little-endian bytes. A row without a checksum was written by version 1 of the tables, which had none;
//! it is accepted as it is until it is written again.

use crate::store::{CommandMark, SessionHead};
use reseed_protocol::SessionId;
use rusqlite::types::ValueRef;

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
    let crc = counts.into_iter().fold(crc, |crc, count| crc.number(super::read::int(count)));
    let crc = crc.number(head.created_at.0).number(head.updated_at.0).number(head.running.into());
    if head.cost_nano_usd.is_none() && head.unpriced_requests == 0 {
        // The checksum from before costs were stored.
        return crc.end();
    }
    let cost = head.cost_nano_usd.map_or(-1, super::read::int);
    crc.number(cost).number(super::read::int(head.unpriced_requests)).end()
}

/// Returns the checksum of a session's stored state.
pub(super) fn state(session: &SessionId, state: &str) -> u32 {
    Crc::of(session).text(state).end()
}

/// Returns the checksum of a command's mark.
pub(super) fn mark(session: &SessionId, mark: &CommandMark) -> u32 {
    Crc::of(session).text(&mark.command_id).number(mark.fingerprint.cast_signed()).text(&mark.reply).end()
}

/// Returns true if the stored checksum equals `want` or is missing (an older row).
pub(super) fn fits(stored: ValueRef<'_>, want: u32) -> bool {
    stored == ValueRef::Null || stored == ValueRef::Integer(want.into())
}
