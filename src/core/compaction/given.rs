//! The parts of a compaction that hooks supply.

use crate::compaction::cut::Cut;
use serde_json::Value;

/// The parts of a compaction that hooks supply, each with the hook's name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HookSupply {
    /// A summary that replaces a generated one.
    pub summary: Option<(String, String)>,
    /// A cut that replaces the planned one.
    pub cut: Option<Cut>,
    /// Requests that apply to any summary.
    pub wishes: HookRequests,
}

/// Requests of hooks for a summary that they do not supply themselves, each with the hook's name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HookRequests {
    /// Details to store with it.
    pub details: Option<(String, Value)>,
    /// The model to use.
    pub model: Option<(String, String)>,
    /// Instructions on what it should focus on.
    pub instructions: Option<String>,
    /// True if these instructions replace the usual prompt.
    pub replaces: bool,
}
