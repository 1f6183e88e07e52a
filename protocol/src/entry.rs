//! Entries: the immutable nodes of a session's tree. The wire form is the stored form.

use crate::{
    Cut, EntryId, Message, Part, Timestamp, Usage,
    event::{CompactionRung, CompactionTrigger, FailedRung, Retained},
    patch::{ContextTransform, EphemeralChange, PatchOp},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;

mod read;

/// One node of the tree.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Identifies the entry within its session.
    pub entry_id: EntryId,
    /// Its parent; `null` for a root.
    pub parent_id: Option<EntryId>,
    /// The time of its creation.
    pub timestamp: Timestamp,
    /// Further data from the file that it was imported from, written back on export. Has no meaning for clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "codegen", ts(optional, type = "Record<string, unknown>"))]
    pub imported: Option<Box<Map<String, Value>>>,
    /// Its content, distinguished by `type`.
    #[serde(flatten)]
    pub data: EntryData,
}

/// The content of an entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "a box for every compaction would gain a few words an entry")]
pub enum EntryData {
    // Shared, so that history and requests hold its text once.
    /// A message: by the user, the model or a tool.
    Message(Arc<Message>),
    /// A summary that replaces everything on the path before its first kept entry.
    Compaction(Compaction),
    /// A summary of an abandoned branch.
    BranchSummary(BranchSummary),
    /// A patch to the context envelope, replayed at its position.
    ContextTransform(Box<Kept<ContextTransform>>),
    /// A patch for a single request.
    Ephemeral(Box<Kept<EphemeralChange>>),
    /// A client's data, never sent to the model.
    Custom(Custom),
    /// A client's message, sent to the model in the user's role.
    CustomMessage(CustomMessage),
    /// The model changes here. A record only: the session's model does not follow the branch.
    ModelChange(ModelChange),
    /// The reasoning effort changes here. A record only, like a model change.
    ThinkingLevelChange(ThinkingLevelChange),
    /// A label for another entry; the newest in the log applies, whatever its branch.
    Label(Label),
    /// The session's name; the newest in the log applies, whatever its branch.
    SessionInfo(SessionInfo),
    /// An entry from an imported file with a type unknown to this version: kept, never sent to the model.
    Foreign(Foreign),
}

macro_rules! data {
    ($($(#[$doc:meta])* struct $name:ident { $($(#[$attr:meta])* $field:ident: $ty:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
            #[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
            #[cfg_attr(feature = "codegen", ts(optional_fields))]
            #[serde(rename_all = "camelCase")]
            pub struct $name { $($(#[$attr])* pub $field: $ty,)* }
        )*
    };
}

data! {
    /// A client's data, never sent to the model.
    struct Custom {
        /// The kind of data, chosen by the client.
        custom_type: String,
        /// The data, any JSON.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
        data: Option<Value>,
    }

    /// A client's message, sent to the model in the user's role.
    struct CustomMessage {
        /// The kind of message, chosen by the client.
        custom_type: String,
        /// Its content for the model.
        content: Vec<Part>,
        /// True if it should be shown to people.
        display: bool,
        /// Further data for programs; never sent to the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
        details: Option<Value>,
    }

    /// A change of the model.
    struct ModelChange {
        /// The provider, in histories made elsewhere.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        provider: Option<String>,
        /// The model's name.
        model: String,
    }

    /// A change of the reasoning effort.
    struct ThinkingLevelChange {
        /// The effort in the provider's own terms; `default` leaves it to the provider.
        thinking_level: String,
    }

    /// A label for another entry.
    struct Label {
        /// The labelled entry.
        target_id: EntryId,
        /// The label; absent to remove it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<String>,
    }

    /// The session's name.
    struct SessionInfo {
        /// The name.
        name: String,
    }

    /// An entry of a type unknown to this version.
    struct Foreign {
        /// Its type in the imported file.
        foreign_type: String,
        /// Its other fields.
        #[cfg_attr(feature = "codegen", ts(type = "Record<string, unknown>"))]
        data: Map<String, Value>,
    }
}

/// A part of a compaction's summary: what the user said in a stretch of the session, word for word, and what the model
/// wrote about the rest of it. Later compactions keep it byte for byte until it is merged with others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct SummarySegment {
    /// Its length within `summary`, in bytes of UTF-8. Segments follow one another without gaps.
    pub bytes: u64,
    /// The user's messages in it, oldest first; its text precedes the model's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<SaidByUser>>"))]
    pub said: Vec<SaidByUser>,
}

/// A message of the user that a segment quotes word for word. A long one has a note in its middle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct SaidByUser {
    /// Its entry; absent for a constraint that an older version had recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry_id: Option<EntryId>,
    /// The length of its text, in bytes of UTF-8.
    pub bytes: u64,
}

/// A compaction: nothing is deleted; the summary replaces the older entries in what the model sees.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct Compaction {
    /// The summary, as the model will read it; empty if nothing was summarised.
    pub summary: String,
    /// The parts of the summary, oldest first; absent if it is one text that is rewritten as a whole, if a hook made
    /// it, and in older entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<SummarySegment>>"))]
    pub segments: Vec<SummarySegment>,
    /// The first entry kept verbatim; absent if none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_kept_entry_id: Option<EntryId>,
    /// Older entries kept verbatim, placed between the summary and the first kept entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<EntryId>>"))]
    pub kept_entry_ids: Vec<EntryId>,
    /// Entries whose tool results are shown as a short note from here on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<EntryId>>"))]
    pub cleared_entry_ids: Vec<EntryId>,
    /// Tokens of the next request before this compaction.
    pub tokens_before: u64,
    /// Tokens of the same request after it; absent in histories made elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_after: Option<u64>,
    /// Its trigger; absent in histories made elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<CompactionTrigger>,
    /// Its duration in milliseconds; absent in histories made elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Files that the summarised part read and modified, as named by tools; accumulates over compactions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<CompactionDetails>,
    /// The system prompt, the tools and the options after all patches before this compaction, so that earlier patches
    /// need not be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<PatchOp>>"))]
    pub carried_patch: Vec<PatchOp>,
    /// The form of the summary; absent if none was made, if a hook made it, and in older entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<SummaryForm>,
    /// The user's constraints, verbatim, as older versions recognised them. They are still sent; new ones are not
    /// looked for, because the user's messages are kept as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<String>>"))]
    pub constraints: Vec<String>,
    /// The hook that provided the summary, or named the model that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<String>,
    /// Data that the hook stores with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
    pub hook_details: Option<Value>,
    /// Characters of tool results, arguments and reasoning that no summary request contained: the conversation did not
    /// fit one request.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "codegen", ts(as = "Option<u64>"))]
    pub left_out: u64,
    /// The fallback step that succeeded; absent in older histories and in those made elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rung: Option<CompactionRung>,
    /// The steps before it that failed or saved too little.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<FailedRung>>"))]
    pub failed_rungs: Vec<FailedRung>,
    /// The retention of exact facts by the summary, in entries of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retained: Option<Retained>,
    /// The usage of the summary requests together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary_usage: Option<Usage>,
    /// True if the session offers the tools that search its history from here on: the text around the summary names
    /// them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "codegen", ts(as = "Option<bool>"))]
    pub history_tools: bool,
}

/// The form of a summary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum SummaryForm {
    /// The sections Goal, Constraints & Preferences, Progress, Key Decisions, Next Steps and Critical Context.
    #[default]
    Sections,
    /// A form of the model's own, or the one requested by instructions.
    Free,
}

/// Files used by the summarised part.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct CompactionDetails {
    /// Files read and not modified, sorted.
    pub read_files: Vec<String>,
    /// Files written or edited, sorted.
    pub modified_files: Vec<String>,
}

/// A summary of an abandoned branch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct BranchSummary {
    /// The entry from which the session continued; `null` for before the first.
    #[cfg_attr(feature = "codegen", ts(optional = false))]
    pub from_id: Option<EntryId>,
    /// The leaf of the abandoned branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_leaf_id: Option<EntryId>,
    /// The summary, as the model will read it.
    pub summary: String,
    /// Files that the abandoned branch read and modified; absent in histories made elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<CompactionDetails>,
    /// The usage of the summary requests; absent if no model was used.
    #[serde(default, alias = "usage", skip_serializing_if = "Option::is_none")]
    pub summary_usage: Option<Usage>,
    /// The hook that provided the summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<String>,
    /// Data that the hook stores with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
    pub hook_details: Option<Value>,
}

/// An entry's data in this version's form, or in another one, kept without interpretation. For clients: a field may be
/// missing or have another meaning, so check before using it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(untagged)]
pub enum Kept<T> {
    /// In this version's form.
    Known(T),
    /// In another form: from an imported file, or written by a newer version.
    Other(#[cfg_attr(feature = "codegen", ts(type = "Partial<T>"))] Opaque),
}

impl<T> Kept<T> {
    /// Returns the data if it is in this version's form.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(data) => Some(data),
            Self::Other(_) => None,
        }
    }
}

/// Data of an entry type that this version keeps without interpretation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema))]
pub struct Opaque {
    /// The fields of the entry, unchanged.
    #[serde(flatten)]
    pub fields: serde_json::Map<String, serde_json::Value>,
}

impl EntryData {
    /// Creates the data of an entry that holds a message.
    #[must_use]
    pub fn message(message: impl Into<Arc<Message>>) -> Self {
        Self::Message(message.into())
    }

    /// Returns the files that a compaction or branch summary lists.
    #[must_use]
    pub fn details(&self) -> Option<&CompactionDetails> {
        match self {
            Self::Compaction(compaction) => compaction.details.as_ref(),
            Self::BranchSummary(branch) => branch.details.as_ref(),
            _ => None,
        }
    }
}

impl Entry {
    /// Returns the message that this entry holds, if any.
    #[must_use]
    pub fn message(&self) -> Option<&Message> {
        self.shared_message().map(Arc::as_ref)
    }

    /// As [`Self::message`], to keep it without a copy.
    #[must_use]
    pub fn shared_message(&self) -> Option<&Arc<Message>> {
        match &self.data {
            EntryData::Message(message) => Some(message),
            _ => None,
        }
    }

    /// Returns what was left out of the tool result that this entry holds, if it was cut.
    pub fn cut_mut(&mut self) -> Option<&mut Cut> {
        match &mut self.data {
            // Only a message that was cut is copied if others share it.
            EntryData::Message(message) if message.cut.is_some() => Arc::make_mut(message).cut.as_deref_mut(),
            _ => None,
        }
    }

    /// Takes the whole tool result out of an entry that shows a part of it. The log has the entry without it.
    pub fn take_whole(&mut self) -> Option<String> {
        self.message()?.cut.as_ref()?.whole.as_ref()?;
        self.cut_mut()?.whole.take()
    }

    /// Returns the entry's `type` on the wire and in the store.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match &self.data {
            EntryData::Message(_) => "message",
            EntryData::Compaction(_) => "compaction",
            EntryData::BranchSummary(_) => "branch_summary",
            EntryData::ContextTransform(_) => "context_transform",
            EntryData::Ephemeral(_) => "ephemeral",
            EntryData::Custom(_) => "custom",
            EntryData::CustomMessage(_) => "custom_message",
            EntryData::ModelChange(_) => "model_change",
            EntryData::ThinkingLevelChange(_) => "thinking_level_change",
            EntryData::Label(_) => "label",
            EntryData::SessionInfo(_) => "session_info",
            EntryData::Foreign(_) => "foreign",
        }
    }
}

/// Returns true for a count that need not be written.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
