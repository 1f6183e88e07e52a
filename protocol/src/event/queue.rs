//! The payloads of the queue's events. Together they are the queue's history: each input is added once and removed
//! once, and the removal says what became of it.

use crate::{CommandId, EntryId, TurnId, reply::QueueItem};
use serde::{Deserialize, Serialize};

/// Payload of `queue_item_added`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct QueueItemAdded {
    /// Its position in the queue; 0 is the first.
    pub position: u64,
    /// The input.
    pub item: QueueItem,
}

/// Payload of `queue_item_removed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct QueueItemRemoved {
    /// The command that sent the input.
    pub command_id: CommandId,
    /// The reason.
    pub reason: QueueRemovalReason,
    /// The turn that it started or joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// The entry that holds it now, appended by one of the next events. Absent if it was cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry_id: Option<EntryId>,
    /// The `edit_queue` that cancelled it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_by: Option<CommandId>,
}

/// The reason an input left the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum QueueRemovalReason {
    /// It started a turn.
    Started,
    /// It goes to the model with the next request of the running turn.
    Steered,
    /// It is a client's message, appended while no turn was running.
    Appended,
    /// A client removed it with `edit_queue`.
    Cancelled,
}

/// Payload of `queue_reordered`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct QueueReordered {
    /// The commands that sent the queued inputs, first in line first.
    pub order: Vec<CommandId>,
    /// The command that caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_id: Option<CommandId>,
}

/// Payload of `queue_released`: no queued input has `after` any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct QueueReleased {
    /// The command that caused it: the move, or `edit_queue`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_id: Option<CommandId>,
}

/// The whole queue, as servers stored it before each input had records of its own. Never sent to a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueueChanged {
    /// The queued inputs, first in line first.
    pub items: Vec<QueueItem>,
}
