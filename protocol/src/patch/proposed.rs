//! The forms in which a hook may answer an op, for the schema and the TypeScript types: as the server stores it, or as the
//! proposal writes it that these ops follow (pull request 383 of pi-mono). The server brings the second to the first
//! when it reads an answer.

use super::PatchOp;
use crate::{EntryId, Part, Role, Timestamp, context::SystemPart, context::ToolDefinition};
use schemars::JsonSchema;
use serde::Serialize;
use ts_rs::TS;

/// An op as a hook may answer it.
#[derive(Serialize, JsonSchema, TS)]
#[serde(untagged)]
pub enum SubmittedOp {
    /// As it is stored.
    Stored(PatchOp),
    /// As the proposal writes it.
    Proposed(ProposedOp),
}

/// An op as the proposal writes it: it may say its scope, and its messages may be bare, with a plain string as content.
#[derive(Serialize, JsonSchema, TS)]
#[serde(tag = "op", rename_all = "snake_case", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum ProposedOp {
    /// As in `PatchOp`.
    SystemPartSet {
        /// What it touches.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        scope: Option<Cached>,
        /// The part.
        part_name: String,
        /// Its text.
        text: String,
        /// Why the provider's cache is given up.
        invalidate_cache_reason: String,
    },
    /// As in `PatchOp`.
    SystemPartRemove {
        /// What it touches.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        scope: Option<Cached>,
        /// The part.
        part_name: String,
        /// Why the provider's cache is given up.
        invalidate_cache_reason: String,
    },
    /// As in `PatchOp`.
    SystemPartsReplace {
        /// What it touches.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        scope: Option<Cached>,
        /// The parts, in order.
        parts: Vec<SystemPart>,
        /// Why the provider's cache is given up.
        invalidate_cache_reason: String,
    },
    /// As in `PatchOp`.
    ToolsReplace {
        /// What it touches.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        scope: Option<Cached>,
        /// The definitions, in order.
        tools: Vec<ToolDefinition>,
        /// Why the provider's cache is given up.
        invalidate_cache_reason: String,
    },
    /// As in `PatchOp`.
    ToolsRemove {
        /// What it touches.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        scope: Option<Cached>,
        /// The tools' names.
        tool_names: Vec<String>,
        /// Why the provider's cache is given up.
        invalidate_cache_reason: String,
    },
    /// As in `PatchOp`.
    MessagesCachedReplace {
        /// What it touches.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        scope: Option<Cached>,
        /// The messages, in order.
        messages: Vec<ProposedItem>,
        /// Why the provider's cache is given up.
        invalidate_cache_reason: String,
    },
    /// As in `PatchOp`.
    MessagesCachedEdit {
        /// What it touches.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        scope: Option<Cached>,
        /// The changes.
        edits: Vec<ProposedEdit>,
        /// Why the provider's cache is given up.
        invalidate_cache_reason: String,
    },
    /// As in `PatchOp`.
    MessagesUncachedAppend {
        /// What it touches.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        scope: Option<Uncached>,
        /// The messages.
        messages: Vec<ProposedMessage>,
    },
    /// As in `PatchOp`.
    OptionsSet {
        /// What it touches.
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
        /// Why the provider's cache is given up.
        invalidate_cache_reason: String,
    },
    /// As in `PatchOp`.
    CompactionApply {
        /// What it touches.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        scope: Option<Cached>,
        /// The summary.
        summary: String,
        /// The first entry that is kept; absent when none is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        first_kept_entry_id: Option<EntryId>,
        /// Older entries that are kept, between the summary and the first kept one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        kept_entry_ids: Option<Vec<EntryId>>,
        /// When it was made.
        timestamp: Timestamp,
        /// Tokens of the request before.
        tokens_before: u64,
        /// Why the provider's cache is given up.
        invalidate_cache_reason: String,
    },
}

/// The scope of an op on what a provider can cache.
#[derive(Serialize, JsonSchema, TS)]
#[serde(rename_all = "snake_case")]
pub enum Cached {
    /// What a provider can cache.
    Cached,
}

/// The scope of an op on one request's own messages.
#[derive(Serialize, JsonSchema, TS)]
#[serde(rename_all = "snake_case")]
pub enum Uncached {
    /// What one request alone is sent.
    Uncached,
}

/// A message of a replacement.
#[derive(Serialize, JsonSchema, TS)]
#[serde(untagged)]
pub enum ProposedItem {
    /// An entry, or a message in its place, or one that no entry holds.
    Named(ProposedNamed),
    /// A message that no entry holds.
    Bare(ProposedMessage),
}

/// A message of a replacement, named.
#[derive(Serialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[ts(optional_fields)]
pub struct ProposedNamed {
    /// The entry that it stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry_id: Option<EntryId>,
    /// What it says; absent for what the entry says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<ProposedMessage>,
}

/// A change of one cached message.
#[derive(Serialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[ts(optional_fields)]
pub struct ProposedEdit {
    /// The entry whose message it is.
    pub entry_id: EntryId,
    /// What it says now; absent to take it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<ProposedMessage>,
}

/// A message of a patch; its other fields are ignored.
#[derive(Serialize, JsonSchema, TS)]
pub struct ProposedMessage {
    /// Who says it.
    pub role: Role,
    /// What is said: a text, or parts.
    pub content: ProposedContent,
}

/// What a message of a patch says.
#[derive(Serialize, JsonSchema, TS)]
#[serde(untagged)]
pub enum ProposedContent {
    /// A text.
    Text(String),
    /// Parts.
    Parts(Vec<Part>),
}
