//! Steps: what should happen next in a loop, once the current step is over.
//!
//! A step never calls another. It names the ones that follow (`Workspace::then`), and the kernel takes them in that
//! order, each to completion with everything that follows from it.

use super::{commands::Caller, hooks::Subject};
use crate::{
    context::{Context, RequestCount},
    hook::HookFault,
};
use reseed_protocol::{CallId, command::Command};
use std::sync::Arc;

/// Something that should happen next.
#[derive(Debug)]
pub(super) enum Step {
    /// Take what the tree calls for: an ordered compaction, the next request, or the next input.
    Proceed,
    /// Send the next request, unless a compaction that was started for it must finish first.
    Send(Box<Counted>),
    /// Prepare a compaction while nothing is running, if one is due soon.
    PrepareIdle,
    /// Ask the hooks of this subject's point.
    Ask(Subject),
    /// All hooks of a point were asked: continue with the result.
    AfterHooks(Subject),
    /// A hook's deadline has passed or its client has gone.
    HookLate {
        /// The hook call.
        call_id: CallId,
        /// True if the call was sent and must be cancelled.
        is_sent: bool,
        /// The reason for the failure.
        fault: HookFault,
    },
    /// An input was accepted, refused or withdrawn: what waited for it may start.
    AfterInput,
    /// Take the next command in line behind an input.
    NextInLine,
    /// Handle a command that waited in line.
    Command(Caller, Box<Command>),
    /// Check the running compaction's deadline.
    CompactionTick,
    /// Check the deadlines of tool calls.
    ToolsTick,
}

/// The next request with its token count.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) context: Arc<Context>,
    pub(super) count: RequestCount,
    /// True if it is above the trigger: the held compaction is then committed if nothing better could be made.
    pub(super) is_due: bool,
}
