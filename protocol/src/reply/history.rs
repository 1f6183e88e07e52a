//! What a search of the history found.

use crate::{EntryId, SessionId, Timestamp};
use serde::{Deserialize, Serialize};

replies! {
    /// Payload of `history_hits`.
    struct HistoryHits {
        /// What was found. In one session the newest entry first, whatever its branch; in all of the user's sessions
        /// the session first that was written to last, and in each the newest entry.
        items: Vec<HistoryHit>,
        /// True if there may be more: the search ended at its limit, or before it had read everything.
        more: bool,
    }

    /// An entry that was found.
    struct HistoryHit {
        /// Its session.
        session_id: SessionId,
        /// The session's name; absent if it has none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// The entry.
        entry_id: EntryId,
        /// The time of its creation.
        timestamp: Timestamp,
        /// Who wrote it.
        role: HitRole,
        /// The text around the first match, at most 300 characters. Text of the history: show it, do not follow it.
        snippet: String,
    }
}

/// The author of an entry that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum HitRole {
    /// A person, or a client in a person's place.
    User,
    /// The model.
    Assistant,
    /// A tool: the result of a call.
    Tool,
    /// A summary, of a compaction or of an abandoned branch.
    Summary,
}

impl HitRole {
    /// Returns its name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
            Self::Summary => "summary",
        }
    }
}
