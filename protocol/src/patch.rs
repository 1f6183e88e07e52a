//! Changes of the context envelope, as data: applied in order, all or nothing, and replayed without asking anybody again.

use crate::{EntryId, Message, Timestamp, context::SystemPart, context::ToolDefinition};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;

#[cfg(feature = "codegen")]
pub mod proposed;

/// The version of the patches that this server writes.
pub const PATCH_VERSION: u32 = 1;

/// A change to the context envelope. All but `messages_uncached_append` touch what a provider may have in its cache, and
/// say why: `invalidateCacheReason` must not be blank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", schemars(transform = with_required_reasons))]
#[serde(tag = "op", rename_all = "snake_case", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum PatchOp {
    /// Gives a part of the system prompt this text: in its place where there is one, otherwise at the end.
    SystemPartSet {
        /// The part.
        part_name: String,
        /// Its text.
        text: String,
        /// Why the provider's cache is given up.
        #[serde(default)]
        invalidate_cache_reason: String,
    },
    /// Takes every part of this name out; does nothing where there is none.
    SystemPartRemove {
        /// The part.
        part_name: String,
        /// Why the provider's cache is given up.
        #[serde(default)]
        invalidate_cache_reason: String,
    },
    /// Puts these parts in the place of all.
    SystemPartsReplace {
        /// The parts, in order.
        parts: Vec<SystemPart>,
        /// Why the provider's cache is given up.
        #[serde(default)]
        invalidate_cache_reason: String,
    },
    /// Puts these definitions in the place of all; each must be of a tool that is on offer.
    ToolsReplace {
        /// The definitions, in order.
        tools: Vec<ToolDefinition>,
        /// Why the provider's cache is given up.
        #[serde(default)]
        invalidate_cache_reason: String,
    },
    /// Takes definitions out; a name that is not there does nothing.
    ToolsRemove {
        /// The tools' names.
        tool_names: Vec<String>,
        /// Why the provider's cache is given up.
        #[serde(default)]
        invalidate_cache_reason: String,
    },
    /// Puts these messages in the place of all cached ones. What it does not name, the model does not see any more.
    MessagesCachedReplace {
        /// The messages, in the order in which the model is to see them: entries, and whole messages between them.
        messages: Vec<PatchMessage>,
        /// Why the provider's cache is given up.
        #[serde(default)]
        invalidate_cache_reason: String,
    },
    /// Changes single cached messages, or takes them out. What it does not name stays, and so does what comes later.
    MessagesCachedEdit {
        /// The changes.
        edits: Vec<MessageEdit>,
        /// Why the provider's cache is given up.
        #[serde(default)]
        invalidate_cache_reason: String,
    },
    /// Adds messages behind all others, for one request.
    MessagesUncachedAppend {
        /// The messages.
        messages: Vec<Message>,
    },
    /// Sets options of the request; what is absent stays as it is.
    OptionsSet {
        /// 0 to 2.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "codegen", ts(optional))]
        temperature: Option<f64>,
        /// Most tokens the answer may have.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "codegen", ts(optional))]
        max_output_tokens: Option<u64>,
        /// How long the model should think: the provider's own word.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "codegen", ts(optional))]
        reasoning_effort: Option<String>,
        /// Why the provider's cache is given up.
        #[serde(default)]
        invalidate_cache_reason: String,
    },
    /// Puts a summary in the place of the cached messages before the first kept one. For one request only: what is to
    /// last is stored as a compaction, which is applied as this.
    CompactionApply {
        /// The summary.
        summary: String,
        /// The first entry that is kept; absent when none is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "codegen", ts(optional))]
        first_kept_entry_id: Option<EntryId>,
        /// Older entries that are kept, between the summary and the first kept one.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(optional, as = "Option<Vec<EntryId>>"))]
        kept_entry_ids: Vec<EntryId>,
        /// When it was made.
        timestamp: Timestamp,
        /// Tokens of the request before.
        tokens_before: u64,
        /// Why the provider's cache is given up.
        #[serde(default)]
        invalidate_cache_reason: String,
    },
}

/// A message of a replacement: an entry as the model sees it, another message in that entry's place, or a message that no
/// entry holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PatchMessage {
    /// The entry that it stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry_id: Option<EntryId>,
    /// What it says; absent for what the entry says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Message>,
}

/// A change of one cached message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MessageEdit {
    /// The entry whose message it is.
    pub entry_id: EntryId,
    /// What it says now; absent to take it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Message>,
}

impl PatchOp {
    /// The op's name on the wire.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::SystemPartSet { .. } => "system_part_set",
            Self::SystemPartRemove { .. } => "system_part_remove",
            Self::SystemPartsReplace { .. } => "system_parts_replace",
            Self::ToolsReplace { .. } => "tools_replace",
            Self::ToolsRemove { .. } => "tools_remove",
            Self::MessagesCachedReplace { .. } => "messages_cached_replace",
            Self::MessagesCachedEdit { .. } => "messages_cached_edit",
            Self::MessagesUncachedAppend { .. } => "messages_uncached_append",
            Self::OptionsSet { .. } => "options_set",
            Self::CompactionApply { .. } => "compaction_apply",
        }
    }

    /// Whether it changes messages.
    #[must_use]
    pub fn is_on_messages(&self) -> bool {
        match self {
            Self::MessagesCachedReplace { .. }
            | Self::MessagesCachedEdit { .. }
            | Self::MessagesUncachedAppend { .. }
            | Self::CompactionApply { .. } => true,
            Self::SystemPartSet { .. }
            | Self::SystemPartRemove { .. }
            | Self::SystemPartsReplace { .. }
            | Self::ToolsReplace { .. }
            | Self::ToolsRemove { .. }
            | Self::OptionsSet { .. } => false,
        }
    }

    /// Why the provider's cache is given up; `None` for an op that touches nothing cached.
    #[must_use]
    pub fn invalidate_cache_reason(&self) -> Option<&str> {
        match self {
            Self::SystemPartSet { invalidate_cache_reason, .. }
            | Self::SystemPartRemove { invalidate_cache_reason, .. }
            | Self::SystemPartsReplace { invalidate_cache_reason, .. }
            | Self::ToolsReplace { invalidate_cache_reason, .. }
            | Self::ToolsRemove { invalidate_cache_reason, .. }
            | Self::MessagesCachedReplace { invalidate_cache_reason, .. }
            | Self::MessagesCachedEdit { invalidate_cache_reason, .. }
            | Self::OptionsSet { invalidate_cache_reason, .. }
            | Self::CompactionApply { invalidate_cache_reason, .. } => Some(invalidate_cache_reason),
            Self::MessagesUncachedAppend { .. } => None,
        }
    }
    /// The same, to be changed.
    #[must_use]
    pub fn invalidate_cache_reason_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::SystemPartSet { invalidate_cache_reason, .. }
            | Self::SystemPartRemove { invalidate_cache_reason, .. }
            | Self::SystemPartsReplace { invalidate_cache_reason, .. }
            | Self::ToolsReplace { invalidate_cache_reason, .. }
            | Self::ToolsRemove { invalidate_cache_reason, .. }
            | Self::MessagesCachedReplace { invalidate_cache_reason, .. }
            | Self::MessagesCachedEdit { invalidate_cache_reason, .. }
            | Self::OptionsSet { invalidate_cache_reason, .. }
            | Self::CompactionApply { invalidate_cache_reason, .. } => Some(invalidate_cache_reason),
            Self::MessagesUncachedAppend { .. } => None,
        }
    }
}

/// A reason that is missing is read as a blank one, and refused with the op's index and name by who applies it. The
/// schema says at once that it must be there.
#[cfg(feature = "codegen")]
fn with_required_reasons(schema: &mut schemars::Schema) {
    const REASON: &str = "invalidateCacheReason";
    let ops = schema.get_mut("oneOf").and_then(Value::as_array_mut).expect("an enum has a schema per variant");
    for op in ops {
        let Some(reason) = op["properties"].get_mut(REASON).and_then(Value::as_object_mut) else { continue };
        reason.remove("default");
        reason.insert("pattern".to_owned(), r"\S".into());
        let required = op["required"].as_array_mut().expect("`op` is required");
        if !required.contains(&REASON.into()) {
            required.push(REASON.into());
        }
    }
}

/// A patch that every later request on this branch is made with, at its place. What is of another version, or has a field
/// that this one does not know, is not read as one: half of a patch is another patch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContextTransform {
    /// The version of the patch's form: 1.
    #[serde(deserialize_with = "this_version")]
    pub schema_version: u32,
    /// Who made it.
    pub transformer_name: String,
    /// The changes, in order.
    pub patch: Vec<PatchOp>,
    /// How it is shown to people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display: Option<TransformDisplay>,
}

fn this_version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let version = u32::deserialize(deserializer)?;
    if version == PATCH_VERSION {
        Ok(version)
    } else {
        Err(D::Error::custom(format!("patches of version {version} are not known, only those of {PATCH_VERSION}")))
    }
}

/// How a transform is shown to people. Means nothing to the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TransformDisplay {
    /// A heading.
    pub title: String,
    /// A sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// More to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub markdown: Option<String>,
    /// What a client draws it with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renderer_id: Option<String>,
    /// What it is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
    pub renderer_props: Option<Value>,
    /// Whether it stands in the chat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub show_in_chat: Option<bool>,
}

/// What one request was made with beyond what the session's history says. Logged, never replayed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EphemeralChange {
    /// The hook that made it.
    pub transformer_name: String,
    /// The changes, in order.
    pub patch: Vec<PatchOp>,
}
