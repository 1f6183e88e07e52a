//! Entries: the immutable nodes of a session's tree. The wire form is the stored form.

use super::records::{
    BranchSummary, Custom, CustomMessage, Foreign, Label, ModelChange, SessionInfo, ThinkingLevelChange,
};
use crate::{
    compaction::{Compaction, CompactionDetails},
    content::{Cut, Message},
    context::{ContextTransform, EphemeralChange},
    ids::EntryId,
    time::Timestamp,
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
