//! The user's input, and the reply to it.

use crate::{
    content::{Input, Message},
    ids::{EntryId, TurnId},
};

closed! {
    /// Payload of `user_input`.
    struct UserInput {
        /// The input. It may be empty (no items) if the last message of `history` has the role `user` or `tool`: that
        /// message is then the input.
        input: Input,
        /// Messages that come before the input, such as the results of calls that ended the last turn (`endsTurn`), or
        /// a conversation from elsewhere: at most 10,000. They are stored together with the input. Only `role` and
        /// `content` are taken. A result must be that of a call of the last answer, or of one in this list. Refused
        /// with `turn_running` while a turn is running.
        history?: Vec<Message>,
        /// Data for programs, stored with the message of the input: at most 64 KiB. Never sent to the model.
        #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
        details?: serde_json::Value,
        /// False to only store the input, without asking the model: the next input continues after it. Not together
        /// with `parentId`, and refused with `turn_running` while a turn is running.
        generate?: bool,
        /// The handling while a turn is running; absent: `queue`.
        when_busy?: WhenBusy,
        /// The entry to continue from; absent for the leaf. The move and the input are stored together.
        #[serde(default, with = "crate::leaf::optional", skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "codegen", schemars(with = "Option<crate::leaf::LeafId>"))]
        #[cfg_attr(feature = "codegen", ts(as = "Option<crate::leaf::LeafId>"))]
        parent_id: Option<Option<EntryId>>,
        /// Refuses with `leaf_moved` if a message was appended after this entry.
        #[serde(default, with = "crate::leaf::optional", skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "codegen", schemars(with = "Option<crate::leaf::LeafId>"))]
        #[cfg_attr(feature = "codegen", ts(as = "Option<crate::leaf::LeafId>"))]
        if_leaf: Option<Option<EntryId>>,
        /// With `parentId`: summarises the abandoned branch at the new position, before the input; `accepted` then
        /// comes once the summary is ready.
        summarize?: bool,
        /// The focus of that summary.
        instructions?: String,
        /// Replaces the server's own instructions with `instructions` instead of adding to them.
        replace_instructions?: bool,
    }
}

impl UserInput {
    /// Returns input without options: it is added at the leaf, and queued.
    #[must_use]
    pub fn plain(input: Input) -> Self {
        Self {
            input,
            history: None,
            details: None,
            generate: None,
            when_busy: None,
            parent_id: None,
            if_leaf: None,
            summarize: None,
            instructions: None,
            replace_instructions: None,
        }
    }
}

words! {
    /// The handling of input that arrives while a turn is running.
    enum WhenBusy {
        /// Queues it.
        Queue,
        /// Sends it with the next request of the running turn; if there is none, queues it.
        Steer,
        /// Refuses it with `turn_running`.
        Reject,
    }
}

open! {
    /// Payload of `accepted`.
    struct Accepted {
        /// The entry that was written; absent while the input is queued.
        entry_id?: EntryId,
        /// The turn that was started; absent while the input is queued.
        turn_id?: TurnId,
        /// True if the input is queued.
        queued: bool,
        /// This reply covers everything up to this durable event; what the command caused follows.
        as_of_seq: u64,
        /// True if the command had been executed before; this is its first reply.
        duplicate?: bool,
    }
}
