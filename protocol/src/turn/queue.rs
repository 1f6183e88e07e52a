//! The queue of inputs. Its events together are its history: each input is added once and removed once, and the removal
//! says what became of it.

use crate::{
    content::Part,
    ids::{CommandId, EntryId, TurnId},
};
use serde::{Deserialize, Serialize};

closed! {
    /// Payload of `edit_queue`.
    struct EditQueue {
        /// Queued inputs to remove, by the ids of their commands.
        remove?: Vec<CommandId>,
        /// All remaining queued inputs, in the new order.
        order?: Vec<CommandId>,
    }
}

open! {
    /// A queued input.
    struct QueueItem {
        /// The command that sent it.
        command_id: CommandId,
        /// Its content.
        content: Vec<Part>,
        /// If true, it is sent with the next request of the running turn, before other queued inputs.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<bool>"))]
        steer: bool,
        /// Set for a client's message (`append_custom_message`), which requests no answer.
        custom?: QueuedCustom,
        /// The `navigate` during which it was sent; the input is for the target of that move. If the move fails, the
        /// input stays in the queue until another move completes or `edit_queue` releases it.
        after?: CommandId,
        /// The id that its entry will have; absent for a client's message, and for inputs queued by older versions.
        entry_id?: EntryId,
        /// Data for programs that came with the input; absent for a client's message.
        #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
        details?: Box<serde_json::Value>,
    }

    /// The further fields of a client's queued message.
    struct QueuedCustom {
        /// The id that its entry will have.
        entry_id: EntryId,
        /// The kind of message, chosen by the client.
        custom_type: String,
        /// True if it should be shown to people.
        display: bool,
        /// Further data for programs; never sent to the model.
        #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
        details?: serde_json::Value,
    }

    /// Payload of `queue_item_added`.
    struct QueueItemAdded {
        /// Its position in the queue; 0 is the first.
        position: u64,
        /// The input.
        item: QueueItem,
    }

    /// Payload of `queue_item_removed`.
    #[derive(Eq)]
    struct QueueItemRemoved {
        /// The command that sent the input.
        command_id: CommandId,
        /// The reason.
        reason: QueueRemovalReason,
        /// The turn that it started or joined.
        turn_id?: TurnId,
        /// The entry that holds it now, appended by one of the next events. Absent if it was cancelled.
        entry_id?: EntryId,
        /// The `edit_queue` that cancelled it.
        cancelled_by?: CommandId,
    }
}

words! {
    /// The reason an input left the queue.
    enum QueueRemovalReason {
        /// It started a turn.
        Started,
        /// It goes to the model with the next request of the running turn.
        Steered,
        /// It is a client's message, appended while no turn was running.
        Appended,
        /// A client removed it with `edit_queue`.
        Cancelled,
    }
}

open! {
    /// Payload of `queue_reordered`.
    #[derive(Eq)]
    struct QueueReordered {
        /// The commands that sent the queued inputs, the next one first.
        order: Vec<CommandId>,
        /// The command that caused it.
        command_id?: CommandId,
    }

    /// Payload of `queue_released`: no queued input has `after` any more.
    #[derive(Eq)]
    struct QueueReleased {
        /// The command that caused it: the move, or `edit_queue`.
        command_id?: CommandId,
    }
}

/// The whole queue, as older versions stored it. Never sent to a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueueChanged {
    /// The queued inputs, the next one first.
    pub items: Vec<QueueItem>,
}
