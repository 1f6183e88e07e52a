//! The content of entries that belong to no other subject.

use crate::{
    compaction::CompactionDetails,
    content::{Part, Usage},
    ids::EntryId,
};
use serde_json::{Map, Value};

open! {
    /// A summary of an abandoned branch.
    #[derive(Default, Eq)]
    struct BranchSummary {
        /// The entry from which the session continued; `null` for before the first.
        #[cfg_attr(feature = "codegen", ts(optional = false))]
        from_id: Option<EntryId>,
        /// The leaf of the abandoned branch.
        left_leaf_id?: EntryId,
        /// The summary, as the model will read it.
        summary: String,
        /// Files that the abandoned branch read and modified; absent in histories made elsewhere.
        details?: CompactionDetails,
        /// The usage of the summary requests; absent if no model was used.
        #[serde(default, alias = "usage", skip_serializing_if = "Option::is_none")]
        summary_usage: Option<Usage>,
        /// The hook that provided the summary.
        hook?: String,
        /// Data that the hook stores with it.
        #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
        hook_details?: Value,
    }

    /// A client's data, never sent to the model.
    #[derive(Eq)]
    struct Custom {
        /// The kind of data, chosen by the client.
        custom_type: String,
        /// The data, any JSON.
        #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
        data?: Value,
    }

    /// A client's message, sent to the model in the user's role.
    #[derive(Eq)]
    struct CustomMessage {
        /// The kind of message, chosen by the client.
        custom_type: String,
        /// Its content for the model.
        content: Vec<Part>,
        /// True if it should be shown to people.
        display: bool,
        /// Further data for programs; never sent to the model.
        #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
        details?: Value,
    }

    /// A change of the model.
    #[derive(Eq)]
    struct ModelChange {
        /// The provider, in histories made elsewhere.
        provider?: String,
        /// The model's name.
        model: String,
    }

    /// A change of the reasoning effort.
    #[derive(Eq)]
    struct ThinkingLevelChange {
        /// The effort in the provider's own terms; `default` leaves it to the provider.
        thinking_level: String,
    }

    /// A label for another entry.
    #[derive(Eq)]
    struct Label {
        /// The labelled entry.
        target_id: EntryId,
        /// The label; absent to remove it.
        label?: String,
    }

    /// The session's name.
    #[derive(Eq)]
    struct SessionInfo {
        /// The name.
        name: String,
    }

    /// An entry of a type unknown to this version.
    #[derive(Eq)]
    struct Foreign {
        /// Its type in the imported file.
        foreign_type: String,
        /// Its other fields.
        #[cfg_attr(feature = "codegen", ts(type = "Record<string, unknown>"))]
        data: Map<String, Value>,
    }
}
