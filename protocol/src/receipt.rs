//! Receipts: cache diagnostics for one request, for whoever pays for it: how much of it the provider could read from
//! its cache, and where the prefix broke.

use serde::{Deserialize, Serialize};

/// Stored with the answer to the request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    /// The number of the request within its turn, from 1.
    pub request: u64,
    /// Its tokens, as counted before it was sent.
    pub tokens: u64,
    /// The tokens of the longest prefix shared with the session's previous answered request.
    pub prefix_tokens: u64,
    /// The first difference, if the earlier one is not a prefix of this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broke: Option<PrefixBreak>,
    /// The hooks called for this request, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<HookRun>>"))]
    pub hooks: Vec<HookRun>,
    /// Names that a stored patch required but are unavailable, such as a tool that is gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<String>>"))]
    pub notes: Vec<String>,
    /// The parts that the server refuses, by name: they were left out of this request or written in another way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<String>>"))]
    pub adapted: Vec<String>,
    /// Fingerprints of what was sent, with which the next request is compared after a restart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<SentPart>>"))]
    pub sent: Vec<SentPart>,
}

/// The first difference between a request and the previous one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct PrefixBreak {
    /// The first part that differs: `model`, `tools`, `system:NAME`, or `message:ID` with the entry whose message is
    /// now there; `message` if it has no entry.
    pub part: String,
    /// The reason.
    pub reason: BreakReason,
    /// Further detail: the patch's own reason, the hook's or the model's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Tokens of the previous request that this one does not start with.
    pub lost_tokens: u64,
}

/// The reason a request does not start with the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum BreakReason {
    /// A patch changed what was sent.
    Patch,
    /// The context was compacted.
    Compaction,
    /// A compaction was undone.
    CompactionUndone,
    /// The session moved in its tree.
    Navigation,
    /// Another model is used.
    Model,
    /// Other tools are offered.
    Tools,
    /// The instructions changed, or a hook's system prompt for one turn.
    Instructions,
    /// Messages added for one request are not sent again.
    Uncached,
    /// Another strategy was chosen.
    Strategy,
    /// An entry was pinned or unpinned, and became visible or invisible.
    Pins,
    /// No known reason: a part of the prompt changes by itself.
    Unknown,
}

/// A hook called for a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct HookRun {
    /// The hook.
    pub hook: String,
    /// The point at which it was called: `context:before_request`, `message` and the like.
    #[serde(alias = "event")]
    pub point: String,
    /// The outcome.
    pub outcome: HookOutcome,
    /// Its duration in milliseconds.
    pub duration_ms: u64,
    /// An error code, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<crate::error::ErrorCode>,
}

/// The outcome of a hook call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum HookOutcome {
    /// It changed nothing.
    Unchanged,
    /// It changed something.
    Changed,
    /// It was not connected and is not required.
    Skipped,
    /// It failed.
    Failed,
}

/// A part of a request with its fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct SentPart {
    /// `tools`, `system:NAME`, `messages`, or `uncached` for messages sent once.
    pub part: String,
    /// Its fingerprint.
    pub hash: String,
}
