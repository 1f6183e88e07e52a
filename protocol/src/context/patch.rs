//! Changes to the context envelope, as data: applied in order, atomically, and replayed without calling anybody again.

use super::envelope::{SystemPart, ToolDefinition};
use crate::{content::Message, ids::EntryId, time::Timestamp};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;

#[cfg(feature = "codegen")]
pub mod proposed;

/// The version of the patches written by this server.
pub const PATCH_VERSION: u32 = 1;

/// A change to the context envelope. All but `messages_uncached_append` affect what a provider may have cached, and
/// give a reason: `invalidateCacheReason` must not be blank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", schemars(transform = with_required_reasons))]
#[serde(tag = "op", rename_all = "snake_case", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum PatchOp {
    /// Sets the text of a part of the system prompt: in place if it exists, otherwise at the end.
    SystemPartSet {
        /// The part.
        part_name: String,
        /// Its text.
        text: String,
        /// The reason for invalidating the provider's cache.
        #[serde(default)]
        invalidate_cache_reason: String,
    },
    /// Removes every part with this name; does nothing if there is none.
    SystemPartRemove {
        /// The part.
        part_name: String,
        /// The reason for invalidating the provider's cache.
        #[serde(default)]
        invalidate_cache_reason: String,
    },
    /// Replaces all parts.
    SystemPartsReplace {
        /// The parts, in order.
        parts: Vec<SystemPart>,
        /// The reason for invalidating the provider's cache.
        #[serde(default)]
        invalidate_cache_reason: String,
    },
    /// Replaces all tool definitions; each must be of an offered tool.
    ToolsReplace {
        /// The definitions, in order.
        tools: Vec<ToolDefinition>,
        /// The reason for invalidating the provider's cache.
        #[serde(default)]
        invalidate_cache_reason: String,
    },
    /// Removes tool definitions; an unknown name does nothing.
    ToolsRemove {
        /// The tools' names.
        tool_names: Vec<String>,
        /// The reason for invalidating the provider's cache.
        #[serde(default)]
        invalidate_cache_reason: String,
    },
    /// Replaces all cached messages. The model no longer sees what is not listed.
    MessagesCachedReplace {
        /// The messages, in the order in which the model sees them: entries, and complete messages between them.
        messages: Vec<PatchMessage>,
        /// The reason for invalidating the provider's cache.
        #[serde(default)]
        invalidate_cache_reason: String,
    },
    /// Changes or removes single cached messages. What is not listed stays, and so do later messages.
    MessagesCachedEdit {
        /// The changes.
        edits: Vec<MessageEdit>,
        /// The reason for invalidating the provider's cache.
        #[serde(default)]
        invalidate_cache_reason: String,
    },
    /// Appends messages for one request.
    MessagesUncachedAppend {
        /// The messages.
        messages: Vec<Message>,
    },
    /// Sets options of the request; absent ones stay unchanged.
    OptionsSet {
        /// 0 to 2.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "codegen", ts(optional))]
        temperature: Option<f64>,
        /// The maximum number of tokens in the answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "codegen", ts(optional))]
        max_output_tokens: Option<u64>,
        /// The reasoning effort, in the provider's own terms.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "codegen", ts(optional))]
        reasoning_effort: Option<String>,
        /// The reason for invalidating the provider's cache.
        #[serde(default)]
        invalidate_cache_reason: String,
    },
    /// Replaces the cached messages before the first kept one by a summary. For one request only: a lasting one is
    /// stored as a compaction, which is applied like this.
    CompactionApply {
        /// The summary.
        summary: String,
        /// The first kept entry; absent if none is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "codegen", ts(optional))]
        first_kept_entry_id: Option<EntryId>,
        /// Older kept entries, between the summary and the first kept one.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(optional, as = "Option<Vec<EntryId>>"))]
        kept_entry_ids: Vec<EntryId>,
        /// The time of its creation.
        timestamp: Timestamp,
        /// Tokens of the request before it.
        tokens_before: u64,
        /// The reason for invalidating the provider's cache.
        #[serde(default)]
        invalidate_cache_reason: String,
    },
}

impl PatchOp {
    /// Returns the op's name on the wire.
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

    /// Returns true if it changes messages.
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

    /// Returns why the provider's cache is invalidated; `None` for an op that affects nothing cached.
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
    /// Returns the same reason, mutable.
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

closed! {
    /// A message of a replacement: an entry as the model sees it, another message in that entry's place, or a message
    /// without an entry.
    #[derive(Eq)]
    struct PatchMessage {
        /// The entry it comes from.
        entry_id?: EntryId,
        /// Its content; absent to use the entry's.
        message?: Message,
    }

    /// A change of one cached message.
    #[derive(Eq)]
    struct MessageEdit {
        /// The entry of the message.
        entry_id: EntryId,
        /// The new message; absent to remove it.
        message?: Message,
    }
}

/// Makes the schema require the reason. A missing one is parsed as a blank one, which is refused with the op's index
/// and name when the patch is applied.
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

closed! {
    /// A patch that applies to every later request on this branch, at its position. Data of another version, or with an
    /// unknown field, is not parsed as one: half of a patch is a different patch.
    struct ContextTransform {
        /// The version of the patch's form: 1.
        #[serde(deserialize_with = "this_version")]
        schema_version: u32,
        /// Its author.
        transformer_name: String,
        /// The changes, in order.
        patch: Vec<PatchOp>,
        /// Its presentation to users.
        display?: TransformDisplay,
    }
}

fn this_version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let version = u32::deserialize(deserializer)?;
    if version == PATCH_VERSION {
        Ok(version)
    } else {
        Err(D::Error::custom(format!("patches of version {version} are not known, only those of {PATCH_VERSION}")))
    }
}

closed! {
    /// The presentation of a transform to users. Has no meaning for the server.
    #[derive(Eq)]
    struct TransformDisplay {
        /// A heading.
        title: String,
        /// A sentence.
        summary?: String,
        /// Longer text.
        markdown?: String,
        /// The renderer that a client uses.
        renderer_id?: String,
        /// The renderer's properties.
        #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
        renderer_props?: Value,
        /// True if it is shown in the chat.
        show_in_chat?: bool,
    }

    /// Changes to one request beyond the session's history. Logged, never replayed.
    struct EphemeralChange {
        /// The hook that made them.
        transformer_name: String,
        /// The changes, in order.
        patch: Vec<PatchOp>,
    }
}
