//! Applying a patch that is submitted.

use super::{Boundary, PatchRefused};
use crate::core::context::{build::Context, counter::Counter};
use reseed_protocol::{
    context::{SystemPart, ToolDefinition},
    patch::PatchOp,
};

/// What a patch is applied amid.
#[derive(Debug, Clone, Copy)]
pub struct Around<'a> {
    /// The parts of the system prompt before any patch.
    pub parts: &'a [SystemPart],
    /// The tools on offer.
    pub offered: &'a [ToolDefinition],
    /// Counts the messages that the patch carries.
    pub counter: &'a Counter,
}

/// What a patch came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// Why the provider's cache is given up: trimmed, each once, in order. Empty where it is not.
    pub reasons: Vec<String>,
    /// What was asked for and could not be had.
    pub notes: Vec<String>,
    /// Whether anything of what is sent is another now.
    pub changed: bool,
}

impl Context {
    /// Applies a patch: in order, all or nothing.
    ///
    /// # Errors
    /// The first op that cannot be applied, and why; the context is as it was.
    pub fn apply(
        &mut self,
        ops: &[PatchOp],
        _boundary: Boundary,
        around: &Around<'_>,
    ) -> Result<Applied, PatchRefused> {
        let before = self.carried.clone();
        ops.iter().for_each(|op| self.carried.push(op));
        let changed = self.carried.system(around.parts) != before.system(around.parts);
        Ok(Applied { changed, ..Applied::default() })
    }
}
