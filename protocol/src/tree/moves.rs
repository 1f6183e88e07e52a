//! Moves in the tree, forks, and entries that are not messages of a turn.

use crate::{
    content::{InputContent, Part},
    ids::{EntryId, SessionId},
};

closed! {
    /// Payload of `navigate`.
    struct Navigate {
        /// The entry to move to.
        #[serde(with = "crate::leaf::required")]
        #[cfg_attr(feature = "codegen", schemars(with = "crate::leaf::LeafId"), ts(as = "crate::leaf::LeafId"))]
        entry_id: Option<EntryId>,
        /// The position at the entry; absent: `at`.
        position?: NavigatePosition,
        /// Summarises the abandoned branch at the new position.
        summarize?: bool,
        /// The focus of the summary. At most 16 KiB, and at most a quarter of the summary model's window; more is
        /// refused.
        instructions?: String,
        /// Replaces the server's own instructions with `instructions` instead of adding to them.
        replace_instructions?: bool,
        /// A label for the summary or, without a summary, for the target entry.
        label?: String,
    }
}

words! {
    /// The position at an entry from which a session continues.
    enum NavigatePosition {
        /// From the entry before it; its input is returned for editing.
        Before,
        /// From it.
        At,
        /// From the newest leaf below it.
        Tip,
    }
}

open! {
    /// Payload of `navigated`.
    struct Navigated {
        /// The session's leaf, from which it continues.
        #[serde(with = "crate::leaf")]
        #[cfg_attr(feature = "codegen", schemars(with = "crate::leaf::LeafId"), ts(as = "crate::leaf::LeafId"))]
        leaf_id: Option<EntryId>,
        /// The input to edit, if the move was to before it.
        input?: Vec<Part>,
        /// The summary of the abandoned branch.
        branch_summary_entry_id?: EntryId,
        /// This reply covers everything up to this durable event; what the command caused follows.
        as_of_seq: u64,
        /// True if the command had been executed before; this is its first reply.
        duplicate?: bool,
    }
}

closed! {
    /// Payload of `fork_session`.
    struct ForkSession {
        /// The entry at which the new session ends.
        entry_id: EntryId,
        /// With the entry (`at`), or before it, returning its input for editing (`before`).
        position: ForkPosition,
        /// `false` keeps the new session in the server's memory only, as with `open_session`. A copy of a session that
        /// is not stored is not stored either.
        store?: bool,
    }
}

words! {
    /// The end of a fork.
    enum ForkPosition {
        /// Before the entry.
        Before,
        /// With the entry.
        At,
    }
}

open! {
    /// Payload of `forked`.
    struct Forked {
        /// The new session; open it like any other.
        session_id: SessionId,
        /// The input to edit, if the fork was before it.
        input?: Vec<Part>,
        /// True if the command had been executed before; this is its first reply.
        duplicate?: bool,
    }
}

closed! {
    /// Payload of `set_label`.
    struct SetLabel {
        /// The entry.
        entry_id: EntryId,
        /// Its label, 1 to 200 characters; absent to remove it.
        label?: String,
    }

    /// Payload of `append_custom`.
    struct AppendCustom {
        /// The kind of data, chosen by the client: 1 to 200 characters.
        custom_type: String,
        /// The data, any JSON.
        #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
        data: serde_json::Value,
    }

    /// Payload of `append_custom_message`.
    struct AppendCustomMessage {
        /// The kind of message, chosen by the client: 1 to 200 characters.
        custom_type: String,
        /// The content.
        content: InputContent,
        /// True if it should be shown to users.
        display: bool,
        /// Additional data for programs, any JSON; stored with it, and never sent to the model.
        #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
        details?: serde_json::Value,
    }
}
