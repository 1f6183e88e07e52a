//! Commands that move about in a session's tree, or write into it what is not said.

use super::{InputContent, present_or_null};
use crate::EntryId;
use serde::{Deserialize, Serialize};

payloads! {
    /// Payload of `navigate`.
    struct Navigate {
        /// The entry to move to; `null` for before the first.
        #[serde(deserialize_with = "present_or_null")]
        #[cfg_attr(feature = "codegen", schemars(required), ts(optional = false))]
        entry_id: Option<EntryId>,
        /// Where at it; absent: `at`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        position: Option<NavigatePosition>,
        /// Whether the branch that is left should be summarised where the session goes on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summarize: Option<bool>,
        /// What the summary should dwell on. At most 16 KiB, and at most a quarter of the window of the model that
        /// summarises; more is refused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instructions: Option<String>,
        /// Whether `instructions` take the place of the server's own rather than being added to them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replace_instructions: Option<bool>,
        /// A name for the summary, or, without one, for the entry that is moved to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<String>,
    }

    /// Payload of `fork_session`.
    struct ForkSession {
        /// The entry at which the new session ends.
        entry_id: EntryId,
        /// Whether with it (`at`) or before it, its input handed back for editing (`before`).
        position: ForkPosition,
    }

    /// Payload of `get_tree`.
    struct GetTree {
        /// Only what is below this entry, itself included; absent for the whole tree.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        root_id: Option<EntryId>,
        /// How many levels, the first included, at least 1; absent: as many as fit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        depth: Option<u32>,
    }

    /// Payload of `set_label`.
    struct SetLabel {
        /// The entry.
        entry_id: EntryId,
        /// Its name, 1 to 200 characters; absent to take it away.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<String>,
    }

    /// Payload of `append_custom`.
    struct AppendCustom {
        /// What kind of data, 1 to 200 characters of the client's own choice.
        custom_type: String,
        /// The data, any JSON.
        #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
        data: serde_json::Value,
    }

    /// Payload of `append_custom_message`.
    struct AppendCustomMessage {
        /// What kind of message, 1 to 200 characters of the client's own choice.
        custom_type: String,
        /// What it says.
        content: InputContent,
        /// Whether it should be shown to people.
        display: bool,
        /// More for programs, any JSON; kept with it, and never sent to the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
        details: Option<serde_json::Value>,
    }
}

/// Where at an entry a session goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum NavigatePosition {
    /// From the entry before it; its input is handed back for editing.
    Before,
    /// From it.
    At,
    /// From the newest leaf below it.
    Tip,
}

/// Where a fork ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum ForkPosition {
    /// Before the entry.
    Before,
    /// With the entry.
    At,
}
