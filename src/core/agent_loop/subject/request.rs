//! The subjects around a request: the start of its turn, the envelope before it is sent, and the end of its turn.

use crate::context::Context;
use reseed_protocol::{EntryData, Part, StopReason, context::EphemeralChange, hooks::HookEvent};
use std::sync::Arc;

/// The start of a turn, as changed by hooks so far.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) system_prompt: String,
    pub(crate) input: Vec<Part>,
    /// The last hook that changed the system prompt.
    pub(crate) prompt_by: Option<String>,
    pub(crate) adds: Vec<EntryData>,
}

impl Start {
    pub(crate) fn event(&self) -> HookEvent {
        HookEvent::BeforeAgentStart { system_prompt: self.system_prompt.clone(), input: self.input.clone() }
    }
}

/// The context of one request, with the additions of hooks for it alone.
#[derive(Debug)]
pub(crate) struct Overlay {
    pub(crate) context: Context,
    pub(crate) changes: Vec<EphemeralChange>,
    /// The context without those additions.
    pub(crate) base: Arc<Context>,
}

/// A turn whose answer is complete.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) finish_reason: StopReason,
}
