//! Answers that are being streamed.

use crate::ids::{EntryId, TurnId};
use serde::{Deserialize, Serialize};

open! {
    /// A turn that is running.
    struct RunningTurn {
        /// The turn.
        turn_id: TurnId,
        /// Its items that are not entries yet.
        items: Vec<RunningItem>,
    }

    /// An item being streamed.
    struct RunningItem {
        /// The id that its entry will have.
        item_id: EntryId,
        /// Its parts so far.
        parts: Vec<RunningPart>,
    }
}

/// A part of an answer that is being streamed. A tool call has no id yet: the durable event `tool_call` names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum RunningPart {
    /// Plain text.
    Text {
        /// The text so far.
        text: String,
    },
    /// The model's reasoning before it answered.
    Reasoning {
        /// The text so far.
        text: String,
    },
    /// A tool call.
    ToolCall {
        /// The tool's name.
        name: String,
        /// The arguments so far: the beginning of a JSON text.
        arguments: String,
        /// True if the call is complete.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "codegen", ts(optional, as = "Option<bool>"))]
        finished: bool,
    },
}

impl RunningPart {
    /// Returns its text so far; for a tool call, its arguments.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Text { text } | Self::Reasoning { text } => text,
            Self::ToolCall { arguments, .. } => arguments,
        }
    }
}

open! {
    /// Payload of `item_started`.
    struct ItemStarted {
        /// The id that its entry will have.
        item_id: EntryId,
        /// Its turn.
        turn_id: TurnId,
        /// The kind of item.
        kind: ItemKind,
        /// The part of the item that starts; on tool calls.
        part?: u32,
        /// The tool's name; on tool calls.
        name?: String,
    }

    /// Payload of `item_delta`.
    struct ItemDelta {
        /// The item.
        item_id: EntryId,
        /// The part of the item.
        part: u32,
        /// The position of the text, in UTF-16 code units from the start of the part.
        offset: u64,
        /// The kind of part; absent for text.
        kind?: DeltaKind,
        /// The text.
        text: String,
    }

    /// Payload of `item_finished`.
    struct ItemFinished {
        /// The item.
        item_id: EntryId,
        /// The tool call in it that is complete; absent if the whole item is.
        part?: u32,
    }

    /// Payload of `item_aborted`.
    struct ItemAborted {
        /// The item.
        item_id: EntryId,
        /// An error code.
        reason: String,
    }
}

words! {
    /// The kind of item that starts streaming.
    enum ItemKind {
        /// An answer.
        Message,
        /// A tool call in an answer.
        ToolCall,
    }

    /// The kind of text in a delta.
    enum DeltaKind {
        /// Text.
        Text,
        /// Reasoning.
        Reasoning,
        /// The arguments of a tool call.
        Arguments,
    }
}
