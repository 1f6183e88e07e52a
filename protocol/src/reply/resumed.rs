//! What came of a `resume`.

use serde::{Deserialize, Serialize};

/// The result of a `resume`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum Resumed {
    /// Every missed durable event follows, in order.
    Replay,
    /// Too much was missed or the position is unknown: this is the full state.
    Snapshot,
}
