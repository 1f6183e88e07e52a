//! Steps: what should happen next in a loop, once the step at hand is over.
//!
//! A step never calls another. It says which ones follow ([`Workspace::then`]), and the kernel takes them, each to its
//! end and with all that follows from it, in the order in which they were said.

use super::{commands::Caller, hooks::Subject, workspace::Workspace};
use crate::{
    context::{Context, RequestCount},
    hook::HookFault,
};
use reseed_protocol::{CallId, command::Command};
use std::sync::Arc;

/// Something that should happen next.
#[derive(Debug)]
pub(super) enum Step {
    /// Take what the tree calls for: a compaction that was ordered, the next request, the next input.
    Proceed,
    /// Send the next request, unless a compaction that was begun for it holds it up.
    Send(Box<Counted>),
    /// Prepare a compaction while nothing is running, if one is due soon.
    PrepareIdle,
    /// Ask the hooks of this subject's point.
    Ask(Subject),
    /// All hooks of a point were asked: go on with what they made of it.
    Hooked(Subject),
    /// A hook's time is over.
    HookLate {
        /// Which call.
        call_id: CallId,
        /// The call has left: it is withdrawn.
        is_sent: bool,
        /// Why it failed.
        fault: HookFault,
    },
    /// An input was accepted, refused or withdrawn: what waited for it may begin.
    AfterInput,
    /// Take the next command that waited behind an input.
    NextInLine,
    /// Take a command that waited.
    Command(Caller, Box<Command>),
    /// The time of the compaction at work may be over.
    CompactionTick,
    /// The time of tool calls may be over.
    ToolsTick,
}

/// The next request as it was counted.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) context: Arc<Context>,
    pub(super) count: RequestCount,
    /// It is above the trigger: what is held is committed if nothing better could be made.
    pub(super) is_due: bool,
}

impl Workspace {
    /// Says what happens next, behind what was said before in the same step.
    pub(super) fn then(&mut self, step: Step) {
        self.next.push(step);
    }
}
