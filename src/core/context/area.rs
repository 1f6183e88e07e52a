//! The parts of a request that a patch can change.

use crate::context::prefix::Divergence;
use reseed_protocol::context::PatchOp;

/// A part of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Area {
    /// The tools.
    Tools,
    /// The named part of the system prompt; `None` for any.
    System(Option<String>),
    /// The messages.
    Messages,
}

impl Area {
    /// Returns the part of a request that an op changes; `None` if caches do not read that part.
    #[must_use]
    pub fn of(op: &PatchOp) -> Option<Self> {
        match op {
            PatchOp::SystemPartSet { part_name, .. } | PatchOp::SystemPartRemove { part_name, .. } => {
                Some(Self::System(Some(part_name.clone())))
            }
            PatchOp::SystemPartsReplace { .. } => Some(Self::System(None)),
            PatchOp::ToolsReplace { .. } | PatchOp::ToolsRemove { .. } => Some(Self::Tools),
            PatchOp::MessagesCachedReplace { .. }
            | PatchOp::MessagesCachedEdit { .. }
            | PatchOp::CompactionApply { .. } => Some(Self::Messages),
            PatchOp::MessagesUncachedAppend { .. } | PatchOp::OptionsSet { .. } => None,
        }
    }

    /// Returns the ops that change something, without their content: enough to explain later what they changed, and
    /// why.
    #[must_use]
    pub fn bare(patch: Vec<PatchOp>) -> Vec<PatchOp> {
        let mut patch: Vec<PatchOp> = patch.into_iter().filter(|op| Self::of(op).is_some()).collect();
        for op in &mut patch {
            match op {
                PatchOp::SystemPartSet { text, .. } => *text = String::new(),
                PatchOp::SystemPartsReplace { parts, .. } => *parts = Vec::new(),
                PatchOp::ToolsReplace { tools, .. } => *tools = Vec::new(),
                PatchOp::MessagesCachedReplace { messages, .. } => *messages = Vec::new(),
                PatchOp::MessagesCachedEdit { edits, .. } => *edits = Vec::new(),
                PatchOp::CompactionApply { summary, .. } => *summary = String::new(),
                PatchOp::SystemPartRemove { .. }
                | PatchOp::ToolsRemove { .. }
                | PatchOp::MessagesUncachedAppend { .. }
                | PatchOp::OptionsSet { .. } => {}
            }
        }
        patch
    }

    /// Returns true if this position of a request lies in the area.
    #[must_use]
    pub fn holds(&self, place: &Divergence) -> bool {
        match (self, place) {
            (Self::Tools, Divergence::Tools) | (Self::Messages, Divergence::Message(_)) => true,
            (Self::System(changed), Divergence::System(name)) => changed.as_ref().is_none_or(|changed| changed == name),
            _ => false,
        }
    }
}
