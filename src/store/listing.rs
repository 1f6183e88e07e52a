//! Lists of sessions.

use crate::SessionHead;
use reseed_protocol::{SessionId, Timestamp};

/// Selects the sessions to list, newest `updated_at` first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// Only this owner's sessions; `None` for all (operators).
    pub owner: Option<String>,
    /// Only sessions whose name contains this text, ignoring case.
    pub search: Option<String>,
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
