//! The forms in which a hook may answer with an op, for the schema and the TypeScript types: as the server stores it,
//! or as in the proposal that these ops follow (pull request 383 of pi-mono). The server converts the second to the
//! first when it parses an answer.

use super::PatchOp;
use crate::{
    content::{Part, Role},
    context::envelope::{SystemPart, ToolDefinition},
    ids::EntryId,
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::Serialize;
use ts_rs::TS;

/// An op in a hook's answer.
#[derive(Serialize, JsonSchema, TS)]
#[serde(untagged)]
pub enum SubmittedOp {
    /// In the stored form.
    Stored(PatchOp),
    /// In the proposal's form.
    Proposed(ProposedOp),
}

/// An op in the proposal's form: it may have a scope, and its messages may be bare, with a plain string as content.
#[derive(Serialize, JsonSchema, TS)]
#[serde(tag = "op", rename_all = "snake_case", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum ProposedOp {
    /// As in `PatchOp`.
    SystemPartSet {
        /// The scope of the op.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        scope: Option<Cached>,
        /// The part.
        part_name: String,
        /// Its text.
        text: String,
        /// The reason for invalidating the provider's cache.
        invalidate_cache_reason: String,
    },
    /// As in `PatchOp`.
    SystemPartRemove {
        /// The scope of the op.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        scope: Option<Cached>,
        /// The part.
        part_name: String,
        /// The reason for invalidating the provider's cache.
        invalidate_cache_reason: String,
    },
    /// As in `PatchOp`.
    SystemPartsReplace {
        /// The scope of the op.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        scope: Option<Cached>,
        /// The parts, in order.
        parts: Vec<SystemPart>,
        /// The reason for invalidating the provider's cache.
        invalidate_cache_reason: String,
    },
    /// As in `PatchOp`.
    ToolsReplace {
        /// The scope of the op.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        scope: Option<Cached>,
        /// The definitions, in order.
        tools: Vec<ToolDefinition>,
        /// The reason for invalidating the provider's cache.
        invalidate_cache_reason: String,
    },
    /// As in `PatchOp`.
    ToolsRemove {
        /// The scope of the op.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        scope: Option<Cached>,
        /// The tools' names.
        tool_names: Vec<String>,
        /// The reason for invalidating the provider's cache.
        invalidate_cache_reason: String,
    },
    /// As in `PatchOp`.
    MessagesCachedReplace {
        /// The scope of the op.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        scope: Option<Cached>,
        /// The messages, in order.
        messages: Vec<ProposedItem>,
        /// The reason for invalidating the provider's cache.
        invalidate_cache_reason: String,
    },
    /// As in `PatchOp`.
    MessagesCachedEdit {
        /// The scope of the op.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        scope: Option<Cached>,
        /// The changes.
        edits: Vec<ProposedEdit>,
        /// The reason for invalidating the provider's cache.
        invalidate_cache_reason: String,
    },
    /// As in `PatchOp`.
    MessagesUncachedAppend {
        /// The scope of the op.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        scope: Option<Uncached>,
        /// The messages.
        messages: Vec<ProposedMessage>,
    },
    /// As in `PatchOp`.
    OptionsSet {
        /// The scope of the op.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        scope: Option<Cached>,
        /// 0 to 2.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        temperature: Option<f64>,
        /// The same as `maxOutputTokens`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        max_tokens: Option<u64>,
        /// The same as `reasoningEffort`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        reasoning: Option<String>,
        /// The reason for invalidating the provider's cache.
        invalidate_cache_reason: String,
    },
    /// As in `PatchOp`.
    CompactionApply {
        /// The scope of the op.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        scope: Option<Cached>,
        /// The summary.
        summary: String,
        /// The first kept entry; absent if none is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        first_kept_entry_id: Option<EntryId>,
        /// Older kept entries, between the summary and the first kept one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        kept_entry_ids: Option<Vec<EntryId>>,
        /// The time of its creation.
        timestamp: Timestamp,
        /// Tokens of the request before it.
        tokens_before: u64,
        /// The reason for invalidating the provider's cache.
        invalidate_cache_reason: String,
    },
}

/// The scope of an op on cacheable content.
#[derive(Serialize, JsonSchema, TS)]
#[serde(rename_all = "snake_case")]
pub enum Cached {
    /// Cacheable content.
    Cached,
}

/// The scope of an op on messages of one request.
#[derive(Serialize, JsonSchema, TS)]
#[serde(rename_all = "snake_case")]
pub enum Uncached {
    /// Messages of one request.
    Uncached,
}

/// A message of a replacement.
#[derive(Serialize, JsonSchema, TS)]
#[serde(untagged)]
pub enum ProposedItem {
    /// An entry, a message in its place, or a message without an entry.
    Named(ProposedNamed),
    /// A message without an entry.
    Bare(ProposedMessage),
}

/// A message of a replacement, named.
#[derive(Serialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[ts(optional_fields)]
pub struct ProposedNamed {
    /// The entry it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry_id: Option<EntryId>,
    /// Its content; absent to use the entry's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<ProposedMessage>,
}

/// A change of one cached message.
#[derive(Serialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[ts(optional_fields)]
pub struct ProposedEdit {
    /// The entry of the message.
    pub entry_id: EntryId,
    /// The new message; absent to remove it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<ProposedMessage>,
}

/// A message of a patch; its other fields are ignored.
#[derive(Serialize, JsonSchema, TS)]
pub struct ProposedMessage {
    /// Its author.
    pub role: Role,
    /// Its content: a text, or parts.
    pub content: ProposedContent,
}

/// The content of a message in a patch.
#[derive(Serialize, JsonSchema, TS)]
#[serde(untagged)]
pub enum ProposedContent {
    /// A text.
    Text(String),
    /// Parts.
    Parts(Vec<Part>),
}
