//! Steps: what should happen next in a loop, after the current step.
//!
//! A machine does not start another machine's work by calling it. It queues a step (`Ledger::then`). The kernel takes
//! the queued steps in that order, each to completion with all its consequences.

use crate::agent_loop::{io::Caller, io::Input, subject::Subject};
use crate::{
    context::{Context, RequestCount},
    hook::HookFault,
    model::ModelFault,
};
use reseed_protocol::{
    CallId, ErrorBody, ErrorCode, StopReason, command::SessionCommand, compaction::CompactionTrigger, turn::TurnStatus,
};
use std::sync::Arc;

/// Something that should happen next.
#[derive(Debug)]
pub(crate) enum Step {
    /// Handle an input from outside the loop.
    Input(Box<Input>),
    /// Handle a command: the input's, or one that waited in line.
    Command(Caller, Box<SessionCommand>),
    /// Take the next command in line behind an input.
    NextInLine,
    /// An input was accepted, refused or withdrawn; commands that waited for it may start.
    AfterInput,

    /// Continue as the tree requires: with a ready or ordered compaction, the next request, or the next input.
    Proceed,
    /// Prepare the next request of the running turn, or make room for it first.
    Request,
    /// Send the prepared request, unless a compaction that was started for it must finish first.
    SendPrepared(Box<PreparedRequest>),
    /// The request in flight has failed: make room if it was too large, or end the turn.
    RequestFailed(Box<FailedRequest>),
    /// Send this context to the model as the next request of the running turn.
    Send(Arc<Context>),
    /// End the running turn.
    EndTurn(Box<TurnEnd>),
    /// End this loop; the next one continues.
    Reseed,

    /// Call the hooks of this subject's point.
    Ask(Subject),
    /// All hooks of a point were called: continue with the result.
    AfterHooks(Subject),
    /// A required hook has failed: end what it could not inspect.
    HookFailed {
        /// The subject that it could not inspect.
        subject: Subject,
        /// The hook's name.
        hook: String,
        /// The reason.
        fault: HookFault,
    },
    /// A hook's deadline has passed or its client has gone.
    HookLate {
        /// The hook call.
        call_id: CallId,
        /// True if the call was sent and must be cancelled.
        is_sent: bool,
        /// The reason for the failure.
        fault: HookFault,
    },

    /// Prepare a compaction while nothing is running, if one is due soon.
    PrepareIdle,
    /// The compaction that the session waited for has failed: continue without it.
    WithoutCompaction(CompactionTrigger, ErrorBody),
    /// Drop the held compaction if something that it has read has changed.
    CheckHeld,

    /// Check the running compaction's deadline.
    CompactionTick,
    /// Check the deadlines of tool calls.
    ToolsTick,
}

impl Step {
    /// Returns the step that ends the running turn with this error.
    pub(crate) fn fail_turn(error: ErrorBody) -> Self {
        Self::EndTurn(Box::new(TurnEnd { status: TurnStatus::Failed, finish_reason: None, error: Some(error) }))
    }

    /// Returns the step that ends the running turn after its answer.
    pub(crate) fn complete_turn(reason: StopReason) -> Self {
        Self::EndTurn(Box::new(TurnEnd { status: TurnStatus::Completed, finish_reason: Some(reason), error: None }))
    }

    /// Returns the step that ends the running turn early: as `cancelled`, `interrupted`, or `failed` if it took too
    /// long.
    pub(crate) fn stop_turn(status: TurnStatus) -> Self {
        Self::EndTurn(Box::new(TurnEnd::stopped(status)))
    }
}

/// The end of a turn.
#[derive(Debug)]
pub(crate) struct TurnEnd {
    pub(crate) status: TurnStatus,
    pub(crate) finish_reason: Option<StopReason>,
    pub(crate) error: Option<ErrorBody>,
}

impl TurnEnd {
    /// Returns the end of a turn that is `cancelled`, `interrupted`, or `failed` because it took too long.
    pub(crate) fn stopped(status: TurnStatus) -> Self {
        let error = match status {
            TurnStatus::Interrupted => {
                let message = "the server stopped in the middle of the turn; send retry_turn";
                Some(ErrorBody::new(ErrorCode::Interrupted, message))
            }
            TurnStatus::Failed => {
                let message = "the turn took longer than the server allows; send retry_turn, or ask for less at once";
                Some(ErrorBody::new(ErrorCode::TurnTimeout, message))
            }
            TurnStatus::Completed | TurnStatus::Cancelled => None,
        };
        let finish_reason = (status == TurnStatus::Cancelled).then_some(StopReason::Cancelled);
        Self { status, finish_reason, error }
    }
}

/// The next request with its token count.
#[derive(Debug)]
pub(crate) struct PreparedRequest {
    pub(crate) context: Arc<Context>,
    pub(crate) count: RequestCount,
    /// True if the count is above the trigger. The held compaction is then committed if nothing better could be made.
    pub(crate) is_due: bool,
}

/// A request of the turn that failed.
#[derive(Debug)]
pub(crate) struct FailedRequest {
    pub(crate) count: RequestCount,
    pub(crate) fault: ModelFault,
    /// True if a compaction may help: the request may have been too large, and it is the turn's first such failure.
    pub(crate) may_compact: bool,
}
