//! What of an offered tool's schema the server does not check.

use serde::{Deserialize, Serialize};

replies! {
    /// A pattern in a tool's schema that the arguments of its calls are not checked against. The tool can be used all
    /// the same; it should check them itself.
    struct UncheckedPattern {
        /// The tool.
        tool: String,
        /// Where the pattern stands in the tool's parameters: a JSON Pointer.
        at: String,
        /// Why.
        reason: UncheckedReason,
    }
}

/// Why a pattern is not checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum UncheckedReason {
    /// It has what an engine of linear time cannot do, such as lookaheads and backreferences, or is not valid.
    Unsupported,
    /// It is too large when compiled, by itself or together with the other patterns of the offer.
    TooLarge,
}
