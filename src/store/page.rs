//! Paging of entries, and paging and searching of session lists, the same in every store.

use super::{Error, SessionHead, StoredRecord};
use reseed_protocol::{SessionId, Timestamp};
use std::{fmt, str::FromStr};

/// The most characters of an invalid cursor that the error repeats. Clients choose the text, so it must be bounded.
const ECHO_CHARS_MAX: usize = 64;

/// A page of records that append entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EntriesPage {
    /// The records, in the order of the query.
    pub records: Vec<StoredRecord>,
    /// True if a further record is within the query's limit but did not fit into the bytes.
    pub cut: bool,
}

/// A page that takes records until the next one does not fit.
pub(super) struct Filling {
    page: EntriesPage,
    bytes_left: usize,
}

impl Filling {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { page: EntriesPage { records: Vec::new(), cut: false }, bytes_left: bytes_max }
    }

    /// Reads the next record and adds it if it fits; the first always fits. Returns false if the page is complete. A
    /// page whose bytes are used up does not even read the record.
    pub(super) fn add<E>(&mut self, read: impl FnOnce() -> Result<StoredRecord, E>) -> Result<bool, E> {
        let is_first = self.page.records.is_empty();
        if self.bytes_left == 0 && !is_first {
            self.page.cut = true;
            return Ok(false);
        }
        let record = read()?;
        self.page.cut = record.body.len() > self.bytes_left && !is_first;
        if !self.page.cut {
            self.bytes_left = self.bytes_left.saturating_sub(record.body.len());
            self.page.records.push(record);
        }
        Ok(!self.page.cut)
    }

    pub(super) fn done(self) -> EntriesPage {
        self.page
    }
}

/// Selects the sessions to list, newest `updated_at` first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// Only this owner's sessions; `None` for all (operators).
    pub owner: Option<String>,
    /// Only sessions whose name contains this text, ignoring case.
    pub search: Option<String>,
    /// Only sessions that have not changed since this time.
    pub changed_before: Option<Timestamp>,
    /// Starts after the page that ended with this cursor.
    pub cursor: Option<String>,
    /// The most sessions to return.
    pub limit: u32,
    /// Returns only sessions that are still being created.
    pub unfinished: bool,
}

/// An `updated_at` that marks a session as still being created, by more than one append. Lists leave such a session
/// out. The last append sets a real time, which completes the session.
pub const UNFINISHED: Timestamp = Timestamp(i64::MIN);

/// A page of sessions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ListPage {
    /// The sessions.
    pub items: Vec<SessionHead>,
    /// The start of the next page; absent on the last.
    pub next_cursor: Option<String>,
    /// Sessions on this page whose head is damaged, so that nothing is known about them, not even their owner. They are
    /// reported only if the list covers all owners. The page then has that many fewer items.
    pub damaged: Vec<SessionId>,
}

/// A position in the list of sessions, which is ordered newest `updated_at` first, then newest created first.
/// Its text is opaque to clients: `updated_at` in milliseconds, a dot, the session's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cursor {
    pub(super) updated_at: i64,
    /// The number that the store assigned to the session; never reused.
    pub(super) number: i64,
}

impl Cursor {
    /// The position before the first session.
    pub(super) const START: Self = Self { updated_at: i64::MAX, number: i64::MAX };
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.updated_at, self.number)
    }
}

impl FromStr for Cursor {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let parse = || {
            let (updated_at, number) = text.split_once('.')?;
            Some(Self { updated_at: updated_at.parse().ok()?, number: number.parse().ok()? })
        };
        parse().ok_or_else(|| Error::Cursor(text.chars().take(ECHO_CHARS_MAX).collect()))
    }
}

/// Returns the position after which a page starts.
pub(super) fn start(query: &ListQuery) -> Result<Cursor, Error> {
    let before = query.changed_before.map(|before| Cursor { updated_at: before.0, number: i64::MIN });
    query.cursor.as_deref().map_or(Ok(before.unwrap_or(Cursor::START)), str::parse)
}

/// Folds text for searching names. `str::to_lowercase` looks at the letters around a sigma, so a folded name might not
/// contain a folded part of itself. This folds character by character instead. It goes through upper case, which has
/// one form where lower case has two (`ς` and `σ`).
pub(super) fn fold(text: &str) -> String {
    text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::{Cursor, Error, fold};

    #[test]
    fn a_cursor_reads_back_as_it_was_written() {
        for (updated_at, number) in [(0, 1), (1_795_243_504_123, 42), (-5, i64::MAX)] {
            let cursor = Cursor { updated_at, number };
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
    }

    #[test]
    fn any_other_text_is_refused_and_repeated_only_in_part() {
        for text in ["", ".", "7", "7.", ".7", "a.b", "1.2.3", "9223372036854775808.1"] {
            assert_eq!(text.parse::<Cursor>(), Err(Error::Cursor(text.to_owned())));
        }
        assert_eq!("é".repeat(1_000_000).parse::<Cursor>(), Err(Error::Cursor("é".repeat(64))));
    }

    #[test]
    fn a_part_of_a_name_is_found_whatever_its_case() {
        for (name, part) in
            [("Ünïcode", "ÜNÏ"), ("ΟΔΟΣ", "οδος"), ("ΟΔΟΣ ΜΟΥ", "οδος"), ("Straße", "STRASSE"), ("A b", "A B")]
        {
            assert!(fold(name).contains(&fold(part)), "{name} {part}");
        }
    }
}
