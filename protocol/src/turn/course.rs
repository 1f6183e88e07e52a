//! The course of a turn, from its start to its end.

use crate::{
    content::{StopReason, Usage},
    context::ContextInfo,
    error::{ErrorBody, ErrorCode},
    ids::{CommandId, EntryId, TurnId},
    time::Timestamp,
};

closed! {
    /// Payload of `cancel_turn`.
    struct CancelTurn {
        /// The turn; absent for the running one.
        turn_id?: TurnId,
    }

    /// Payload of `retry_turn`.
    struct RetryTurn {
        /// The turn; absent for the last one.
        turn_id?: TurnId,
    }
}

open! {
    /// A turn that ended without an answer; the fields are those of `turn_finished`.
    struct EndedTurn {
        /// The turn.
        turn_id: TurnId,
        /// Its status.
        status: TurnStatus,
        /// The error, on `failed`.
        error?: ErrorBody,
    }

    /// A turn that ended without an answer, with its position in the history.
    struct UnansweredTurn {
        /// The turn.
        turn_id: TurnId,
        /// Its status.
        status: TurnStatus,
        /// The error, on `failed`.
        error?: ErrorBody,
        /// The newest entry when it ended.
        #[serde(with = "crate::leaf")]
        #[cfg_attr(feature = "codegen", schemars(with = "crate::leaf::LeafId"), ts(as = "crate::leaf::LeafId"))]
        leaf_id: Option<EntryId>,
    }

    /// Payload of `turn_started`.
    struct TurnStarted {
        /// The turn.
        turn_id: TurnId,
        /// The commands whose input it answers.
        command_ids: Vec<CommandId>,
        /// The loop's generation.
        generation: u64,
    }

    /// Payload of `request_delayed`. The wait is over when the answer starts, the turn ends, or another wait begins.
    #[derive(Eq)]
    struct RequestDelayed {
        /// The running turn.
        turn_id: TurnId,
        /// The attempt that follows the wait: 2 after the first one has failed.
        attempt: u32,
        /// The length of the wait, in milliseconds.
        wait_ms: u64,
        /// The error of the last attempt: `upstream_rate_limited`, `upstream_overloaded`, `upstream_unreachable`,
        /// `upstream_error` or `upstream_truncated`.
        reason: ErrorCode,
    }

    /// Payload of `budget_notice`. At 100 percent, requests to the model are refused with `budget_exhausted` until the
    /// budget is filled again.
    #[derive(Eq)]
    struct BudgetNotice {
        /// Whose budget it is: `user`, `session` or `deployment`.
        budget: String,
        /// The time for which it is meant: `day`, `month` or `session`.
        per: String,
        /// The share that is used: 80 or 100.
        percent: u64,
        /// When it is filled again; absent if it never is.
        refills_at?: Timestamp,
    }

    /// Payload of `turn_finished`.
    struct TurnFinished {
        /// The turn.
        turn_id: TurnId,
        /// Its status.
        status: TurnStatus,
        /// The reason the last answer ended.
        finish_reason?: StopReason,
        /// The error, on `failed`.
        error?: ErrorBody,
        /// The usage of the turn's requests together.
        usage?: Usage,
        /// The part of `usage` for an answer that was not stored, because a hook that had to check it failed.
        withheld_usage?: Usage,
        /// The size of the context.
        context_info: ContextInfo,
    }
}

words! {
    /// The end of a turn.
    enum TurnStatus {
        /// Completed with an answer.
        Completed,
        /// Failed with an error; `error.retriable` says whether it can be retried.
        Failed,
        /// Cancelled by the user.
        Cancelled,
        /// The server stopped during the turn.
        Interrupted,
    }
}
