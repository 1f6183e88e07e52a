//! The parts of a compaction that hooks supply.

use crate::compaction::cut::Cut;
use serde::{Deserialize, Serialize};
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

/// Requests of hooks for a summary that they do not supply themselves, each with the hook's name. They are stored with
/// a held compaction, so that the hooks are not called again if it is remade.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HookRequests {
    /// Details to store with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<(String, Value)>,
    /// The model to use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<(String, String)>,
    /// Instructions on what it should focus on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// True if these instructions replace the usual prompt.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub replaces: bool,
}

impl HookRequests {
    /// Returns true if nothing was requested.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
