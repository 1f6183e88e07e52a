//! What a client reads of the tree: pages of entries, the tree itself, hits of a search, and each new entry.

use super::entry::Entry;
use crate::{
    ids::{CommandId, EntryId, SessionId, TurnId},
    time::Timestamp,
};

closed! {
    /// Payload of `get_entries`.
    struct GetEntries {
        /// Only entries older than this one.
        before?: EntryId,
        /// Only entries newer than this one.
        after?: EntryId,
        /// The maximum number of entries, 1 to 500; absent: 100.
        limit?: u32,
        /// Only entries on the path to the leaf.
        path?: bool,
        /// Only this entry. If its tool result was cut, `cut.whole` has all of it. One entry a command: a result is
        /// at most as long as the frame that brought it.
        entry_id?: EntryId,
    }
}

open! {
    /// Payload of `entries`.
    struct Entries {
        /// The entries, oldest first.
        items: Vec<Entry>,
        /// The session's leaf, from which it continues.
        #[serde(with = "crate::leaf")]
        #[cfg_attr(feature = "codegen", schemars(with = "crate::leaf::LeafId"), ts(as = "crate::leaf::LeafId"))]
        leaf_id: Option<EntryId>,
        /// This reply covers everything up to this durable event.
        as_of_seq: u64,
        /// True if there are more in the requested direction.
        more: bool,
        /// The `seq` of damaged records in this range; absent if there are none.
        damaged?: Vec<u64>,
    }
}

closed! {
    /// Payload of `get_tree`.
    struct GetTree {
        /// Only this entry and what is below it; absent for the whole tree.
        root_id?: EntryId,
        /// The number of levels, the first included, at least 1; absent: as many as fit.
        depth?: u32,
    }
}

open! {
    /// Payload of `tree`.
    struct Tree {
        /// The entries, parents before their children.
        nodes: Vec<TreeNode>,
        /// The session's leaf, from which it continues.
        #[serde(with = "crate::leaf")]
        #[cfg_attr(feature = "codegen", schemars(with = "crate::leaf::LeafId"), ts(as = "crate::leaf::LeafId"))]
        leaf_id: Option<EntryId>,
        /// This reply covers everything up to this durable event.
        as_of_seq: u64,
        /// True if entries were left out: those below nodes whose `childCount` is larger than their number of children
        /// here.
        more: bool,
    }

    /// An entry of the tree.
    struct TreeNode {
        /// The entry.
        entry_id: EntryId,
        /// Its parent; `null` for a root.
        #[cfg_attr(feature = "codegen", ts(optional = false))]
        parent_id: Option<EntryId>,
        /// Its type; a message's includes its role, as in `message:user`.
        #[serde(rename = "type")]
        kind: String,
        /// The start of its text, one line of at most 80 characters.
        preview: String,
        /// Its label.
        label?: String,
        /// The time of its creation.
        timestamp: Timestamp,
        /// The number of its children.
        child_count: u64,
    }
}

closed! {
    /// Payload of `search_history`.
    struct SearchHistory {
        /// Words, phrases in quotes, and beginnings of words with a star, all of which an entry must have: 1 to 1,000
        /// characters. A word with punctuation in it, such as a path, is a phrase.
        query: String,
        /// The maximum number of hits, 1 to 100; absent: 20.
        limit?: u32,
    }
}

open! {
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
        name?: String,
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

words! {
    /// The author of an entry that was found.
    enum HitRole {
        /// A person, or a client in a person's place.
        User,
        /// The model.
        Assistant,
        /// A tool: the result of a call.
        Tool,
        /// A summary, of a compaction or of an abandoned branch.
        Summary,
    }
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

open! {
    /// Payload of `entry_appended`.
    struct EntryAppended {
        /// The entry, as `get_entries` returns it.
        entry: Entry,
        /// The turn it belongs to.
        turn_id?: TurnId,
        /// The command that caused it.
        command_id?: CommandId,
    }
}
