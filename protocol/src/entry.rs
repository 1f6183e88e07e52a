//! Entries: the immutable nodes of a session's tree. The wire form is the stored form.

use crate::{
    EntryId, Message, Part, Timestamp, Usage,
    event::{CompactionRung, CompactionTrigger, FailedRung, Retained},
    patch::{ContextTransform, EphemeralChange, PatchOp},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One node of the tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Names the entry within its session.
    pub entry_id: EntryId,
    /// The entry this one hangs from; `null` for a root.
    pub parent_id: Option<EntryId>,
    /// When it was made.
    pub timestamp: Timestamp,
    /// What the file it was imported from says beyond this, given back on export. Means nothing to a client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "codegen", ts(optional, type = "Record<string, unknown>"))]
    pub imported: Option<Box<Map<String, Value>>>,
    /// What it holds, told apart by `type`.
    #[serde(flatten)]
    pub data: EntryData,
}

/// What an entry holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EntryData {
    /// Something said: by the user, the model or a tool.
    Message(Message),
    /// A summary that stands for everything on the path before its first kept entry.
    Compaction(Compaction),
    /// A summary of a branch that was left.
    BranchSummary(BranchSummary),
    /// A patch to the context envelope, replayed at its place.
    ContextTransform(Box<Kept<ContextTransform>>),
    /// What one request alone was made with.
    Ephemeral(Box<Kept<EphemeralChange>>),
    /// Data of a client's, never sent to the model.
    Custom(Custom),
    /// A message of a client's, sent to the model in the user's place.
    CustomMessage(CustomMessage),
    /// The model changes here. A record: the session's model does not follow the branch.
    ModelChange(ModelChange),
    /// The reasoning level changes here. A record, as that of the model.
    ThinkingLevelChange(ThinkingLevelChange),
    /// A name for another entry; the newest of the log counts, whatever its branch.
    Label(Label),
    /// The session's name; the newest of the log counts, whatever its branch.
    SessionInfo(SessionInfo),
    /// Of a type that this version does not know, from an imported file: kept, never sent to the model.
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
    /// Data of a client's, never sent to the model.
    struct Custom {
        /// What kind of data, in the client's own words.
        custom_type: String,
        /// The data, any JSON.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
        data: Option<Value>,
    }

    /// A message of a client's, sent to the model in the user's place.
    struct CustomMessage {
        /// What kind of message, in the client's own words.
        custom_type: String,
        /// What it says to the model.
        content: Vec<Part>,
        /// Whether it should be shown to people.
        display: bool,
        /// More for programs; never sent to the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
        details: Option<Value>,
    }

    /// The model changes here.
    struct ModelChange {
        /// The provider, in histories made elsewhere.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        provider: Option<String>,
        /// The model's name.
        model: String,
    }

    /// The reasoning level changes here.
    struct ThinkingLevelChange {
        /// The provider's own word; `default` for leaving it to the provider.
        thinking_level: String,
    }

    /// A name for another entry.
    struct Label {
        /// The entry that is named.
        target_id: EntryId,
        /// The name; absent to take it away.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<String>,
    }

    /// The session's name.
    struct SessionInfo {
        /// The name.
        name: String,
    }

    /// An entry of a type that this version does not know.
    struct Foreign {
        /// Its type in the file that it came from.
        foreign_type: String,
        /// Its other fields.
        #[cfg_attr(feature = "codegen", ts(type = "Record<string, unknown>"))]
        data: Map<String, Value>,
    }
}

/// A compaction: nothing is deleted, this summary takes the older entries' place in what the model sees.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct Compaction {
    /// The summary, as the model will read it; empty where nothing was summarised.
    pub summary: String,
    /// The first entry that is kept word for word; absent when none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_kept_entry_id: Option<EntryId>,
    /// Older entries kept word for word, placed between the summary and the first kept entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<EntryId>>"))]
    pub kept_entry_ids: Vec<EntryId>,
    /// Entries from then on whose tool results are shown as a short note.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<EntryId>>"))]
    pub cleared_entry_ids: Vec<EntryId>,
    /// Tokens of the next request before this compaction.
    pub tokens_before: u64,
    /// Tokens of the same request after it; absent in histories made elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_after: Option<u64>,
    /// Why it was done; absent in histories made elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<CompactionTrigger>,
    /// Milliseconds it took; absent in histories made elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Files the summarised part read and modified, as tools named them; accumulates over compactions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<CompactionDetails>,
    /// What the patches before this compaction make of the system prompt, the tools and the options, so that they need
    /// not be looked for beyond it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<PatchOp>>"))]
    pub carried_patch: Vec<PatchOp>,
    /// The form of the summary; absent where none was made, where a hook made it, and in older entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<SummaryForm>,
    /// What the user said must or must not be, word for word, carried from one compaction to the next; absent in older
    /// entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<String>>"))]
    pub constraints: Vec<String>,
    /// The hook whose summary this is, or that named the model which made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<String>,
    /// What that hook keeps with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
    pub hook_details: Option<Value>,
    /// The step that made room; absent in histories made elsewhere or before this was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rung: Option<CompactionRung>,
    /// The steps before it that failed or saved too little.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<FailedRung>>"))]
    pub failed_rungs: Vec<FailedRung>,
    /// How well the summary kept what is exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retained: Option<Retained>,
    /// What the requests for the summary cost together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary_usage: Option<Usage>,
}

/// The form of a summary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum SummaryForm {
    /// The sections Goal, Constraints & Preferences, Progress, Key Decisions, Next Steps and Critical Context.
    #[default]
    Sections,
    /// A form of the model's own, or the one that instructions asked for.
    Free,
}

/// Files that the summarised part touched.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct CompactionDetails {
    /// Files read and not modified, sorted.
    pub read_files: Vec<String>,
    /// Files written or edited, sorted.
    pub modified_files: Vec<String>,
}

/// A summary of the branch that was left.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct BranchSummary {
    /// The entry from which the session went on; `null` for before the first.
    #[cfg_attr(feature = "codegen", ts(optional = false))]
    pub from_id: Option<EntryId>,
    /// The leaf that was left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_leaf_id: Option<EntryId>,
    /// The summary, as the model will read it.
    pub summary: String,
    /// Files that the branch which was left read and modified; absent in histories made elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<CompactionDetails>,
    /// What making it cost; absent where no model was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The hook whose summary this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<String>,
    /// What that hook keeps with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
    pub hook_details: Option<Value>,
}

/// Data of an entry, as this version knows it, or as another wrote it: carried along without looking inside. For a
/// client: a field may be missing or mean something else; look before you use it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(untagged)]
pub enum Kept<T> {
    /// Of this version's form.
    Known(T),
    /// Of another: from an imported file, or written by a newer version.
    Other(#[cfg_attr(feature = "codegen", ts(type = "Partial<T>"))] Opaque),
}

impl<T> Kept<T> {
    /// The data, where it is of this version's form.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(data) => Some(data),
            Self::Other(_) => None,
        }
    }
}

/// Data of an entry type that this version carries along without looking inside.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema))]
pub struct Opaque {
    /// The fields of the entry, as they came.
    #[serde(flatten)]
    pub fields: serde_json::Map<String, serde_json::Value>,
}

impl EntryData {
    /// The files that a compaction or the summary of a branch notes.
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
    /// The message that this entry holds, if it holds one.
    #[must_use]
    pub fn message(&self) -> Option<&Message> {
        match &self.data {
            EntryData::Message(message) => Some(message),
            _ => None,
        }
    }

    /// The entry's `type` on the wire and in the store.
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
