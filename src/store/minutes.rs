//! The ring of minutes: what each server counted in each minute of the last week, for operators.

/// How long rows are kept, in minutes: a week, so that an hour can be compared with the same hour a week ago. A server
/// has at most 10,080 rows in that time, of some 500 bytes each.
pub const MINUTES_KEPT: i64 = 7 * 24 * 60;

/// What a server counted in a minute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MinuteRow {
    /// The minute, counted since 1970.
    pub minute: i64,
    /// Identifies the process: a server that was restarted within a minute has two rows.
    pub process: String,
    /// JSON of the numbers, opaque to the store.
    pub body: String,
}

/// Selects rows of the ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MinuteQuery {
    /// The first minute.
    pub from: i64,
    /// The minute after the last one.
    pub to: i64,
    /// Only rows after this minute and process.
    pub after: (i64, String),
    /// Most rows.
    pub limit: u32,
}
