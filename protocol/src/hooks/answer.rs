//! The answers of hooks.

use super::answered;
use crate::{
    content::{InputContent, Message},
    context::{PatchOp, TransformDisplay},
    ids::{CallId, EntryId},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

macro_rules! answers {
    ($($(#[$attr:meta])* $field:ident = $name:literal: $ty:ty,)*) => {
        /// A hook's answer; the response body of a webhook. Each point allows some of the fields, and what is absent
        /// stays unchanged.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
        #[cfg_attr(feature = "codegen", ts(optional_fields))]
        #[serde(deny_unknown_fields)]
        pub struct HookAnswer {
            $(
                $(#[$attr])*
                #[serde(rename = $name, default, skip_serializing_if = "Option::is_none")]
                pub $field: Option<$ty>,
            )*
        }

        /// Payload of `hook_result`: the answer to a `hook_call`. Each point allows some of the fields, and what is
        /// absent stays unchanged.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
        #[cfg_attr(feature = "codegen", ts(optional_fields))]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub struct HookResult {
            /// The call.
            #[serde(rename = "hookCallId")]
            pub call_id: CallId,
            $(
                $(#[$attr])*
                #[serde(rename = $name, default, skip_serializing_if = "Option::is_none")]
                pub $field: Option<$ty>,
            )*
        }

        impl HookAnswer {
            /// Returns the fields that are present, by their names on the wire.
            #[must_use]
            pub fn fields(&self) -> Vec<&'static str> {
                let mut fields = Vec::new();
                $(if self.$field.is_some() { fields.push($name); })*
                fields
            }
        }

        impl HookResult {
            /// Creates the answer to a call.
            #[must_use]
            pub fn new(call_id: CallId, answer: HookAnswer) -> Self {
                Self { call_id, $($field: answer.$field,)* }
            }

            /// Returns the call and its answer.
            #[must_use]
            pub fn into_answer(self) -> (CallId, HookAnswer) {
                (self.call_id, HookAnswer { $($field: self.$field,)* })
            }
        }
    };
}

answers! {
    /// The hook failed; a sentence that says why.
    error = "error": String,
    /// `context`: changes to the envelope, in order.
    #[cfg_attr(
        feature = "codegen",
        schemars(with = "Option<Vec<crate::context::patch::proposed::SubmittedOp>>"),
        ts(as = "Option<Vec<crate::context::patch::proposed::SubmittedOp>>")
    )]
    patch = "patch": Vec<Value>,
    /// `context`: the author of the patch; if absent, the hook's name.
    transformer_name = "transformerName": String,
    /// `context`: how the patch is shown to people.
    display = "display": TransformDisplay,
    /// `message`: the replacement message, with the same role and the same tool calls. Only its role and content
    /// matter.
    #[serde(deserialize_with = "answered::message")]
    #[cfg_attr(feature = "codegen", schemars(with = "Option<answered::AnsweredMessage>"))]
    message = "message": Message,
    /// `before_agent_start`: the system prompt for this turn.
    system_prompt = "systemPrompt": String,
    /// `before_agent_start`: a message to store and send in the user's role.
    custom_message = "customMessage": HookMessage,
    /// `before_agent_start`: data to store; the model never sees it.
    entries = "entries": Vec<HookEntry>,
    /// `before_compaction`, `before_navigate`: cancels it.
    cancel = "cancel": bool,
    /// `before_compaction`, `before_navigate`: the summary; the model is not used.
    summary = "summary": String,
    /// `before_compaction`, with a `summary`: the first entry kept verbatim, if other than the one in the call. The
    /// model must see it, and it must not be between a call and its result.
    first_kept_entry_id = "firstKeptEntryId": EntryId,
    /// `before_compaction`, `before_navigate`: further data for programs, stored with the summary.
    #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
    details = "details": Value,
    /// `before_compaction`: the model that summarises.
    model = "model": String,
    /// `before_compaction`, `before_navigate`: instructions for the summary.
    instructions = "instructions": String,
    /// `before_compaction`, `before_navigate`: true if these replace the usual instructions.
    replace_instructions = "replaceInstructions": bool,
    /// `before_navigate`: a label for the target.
    label = "label": String,
    /// `tool_call`: blocks the call, and tells the model.
    block = "block": bool,
    /// `tool_call`: the reason, for the model.
    reason = "reason": String,
    /// `tool_call`: other arguments, JSON text that the tool's schema accepts.
    arguments = "arguments": String,
    /// `tool_result`: the tool's output.
    output = "output": String,
    /// `tool_result`: true if the tool failed.
    is_error = "isError": bool,
}

impl HookAnswer {
    /// Answers `context` with these changes to the envelope, in order.
    #[must_use]
    pub fn patch(ops: Vec<PatchOp>) -> Self {
        let ops = ops.iter().map(|op| serde_json::to_value(op).expect("ops have text keys"));
        Self { patch: Some(ops.collect()), ..Self::default() }
    }

    /// Answers `message` with a replacement.
    #[must_use]
    pub fn message(message: Message) -> Self {
        Self { message: Some(message), ..Self::default() }
    }

    /// Answers `before_compaction` or `before_navigate` with a summary; the model is not used.
    #[must_use]
    pub fn summary(summary: impl Into<String>) -> Self {
        Self { summary: Some(summary.into()), ..Self::default() }
    }

    /// Answers `before_compaction` or `before_navigate` with a cancellation.
    #[must_use]
    pub fn cancel() -> Self {
        Self { cancel: Some(true), ..Self::default() }
    }

    /// Blocks a `tool_call` with a reason for the model.
    #[must_use]
    pub fn block(reason: impl Into<String>) -> Self {
        Self { block: Some(true), reason: Some(reason.into()), ..Self::default() }
    }
}

closed! {
    /// A message that a hook adds.
    struct HookMessage {
        /// The kind of message, chosen by the hook: 1 to 200 characters.
        custom_type: String,
        /// Its content.
        content: InputContent,
        /// True if it should be shown to people.
        display: bool,
    }

    /// Data that a hook stores.
    struct HookEntry {
        /// The kind of data, chosen by the hook: 1 to 200 characters.
        custom_type: String,
        /// The data, any JSON.
        #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
        data: Value,
    }
}
