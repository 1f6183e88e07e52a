//! The list of a user's sessions.

use crate::{ids::SessionId, time::Timestamp};

closed! {
    /// Payload of `list_sessions`.
    struct ListSessions {
        /// `nextCursor` of the previous page.
        cursor?: String,
        /// The maximum number of sessions, 1 to 200; absent: 50.
        limit?: u32,
        /// Text that the name must contain.
        search?: String,
        /// Sends `session_changed` events from now on; `false` stops them; absent: unchanged.
        watch?: bool,
    }

    /// Payload of `rename_session`.
    struct RenameSession {
        /// Its new name, 1 to 200 characters.
        name: String,
    }
}

open! {
    /// Payload of `sessions`.
    struct Sessions {
        /// The sessions, newest first.
        items: Vec<SessionItem>,
        /// The cursor for the next page; absent on the last.
        next_cursor?: String,
    }

    /// A session in a list.
    struct SessionItem {
        /// The session.
        session_id: SessionId,
        /// Its name; empty if it has none.
        name: String,
        /// The time of its creation.
        created_at: Timestamp,
        /// The time of the last write to it.
        updated_at: Timestamp,
        /// The number of entries in its tree.
        entries: u64,
        /// Tokens of its next request, as of its last finished turn or compaction.
        token_count: u64,
        /// `tokenCount` as a share of the window, not clamped.
        usage_ratio: f64,
        /// The known cost of its requests, in billionths of a US dollar; absent if no cost is known.
        cost_nano_usd?: u64,
        /// The number of its requests with an unknown cost, which `costNanoUsd` does not include. Present only beside
        /// `costNanoUsd`, and only if there are any.
        unpriced_requests?: u64,
        /// Its state.
        state: SessionState,
        /// True if it was deleted: remove it from the list. Only in `session_changed`.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<bool>"))]
        deleted: bool,
    }
}

words! {
    /// The state of a session.
    enum SessionState {
        /// Idle.
        Idle,
        /// A turn is running.
        Running,
        /// It is being compacted outside a turn, or an abandoned branch is being summarised.
        Compacting,
    }
}
