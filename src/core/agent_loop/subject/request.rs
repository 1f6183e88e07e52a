//! A request: at the start of its turn, on the envelope before it is sent, and at the end of its turn.

use crate::context::Context;
use reseed_protocol::{EntryData, Part, StopReason, hook::HookEvent, patch::EphemeralChange};
use std::sync::Arc;

/// The start of a turn, as changed by hooks so far.
#[derive(Debug)]
pub(in crate::agent_loop) struct Start {
    pub(in crate::agent_loop) system_prompt: String,
    pub(in crate::agent_loop) input: Vec<Part>,
    /// The last hook that changed the system prompt.
    pub(in crate::agent_loop) prompt_by: Option<String>,
    pub(in crate::agent_loop) adds: Vec<EntryData>,
}

impl Start {
    pub(in crate::agent_loop) fn event(&self) -> HookEvent {
        HookEvent::BeforeAgentStart { system_prompt: self.system_prompt.clone(), input: self.input.clone() }
    }
}

/// The context of one request, with what hooks add for it alone.
#[derive(Debug)]
pub(in crate::agent_loop) struct Overlay {
    pub(in crate::agent_loop) context: Context,
    pub(in crate::agent_loop) changes: Vec<EphemeralChange>,
    /// The context without those additions.
    pub(in crate::agent_loop) base: Arc<Context>,
}

/// A turn whose answer is complete.
#[derive(Debug)]
pub(in crate::agent_loop) struct Ended {
    pub(in crate::agent_loop) finish_reason: StopReason,
}
