//! What a request was made of, for whoever pays for it: how much of it the provider could take from its cache, and where
//! that broke.

use serde::{Deserialize, Serialize};

/// Stands on the answer that the request got.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    /// Which request of its turn, from 1.
    pub request: u64,
    /// Its tokens, as counted before it was sent.
    pub tokens: u64,
    /// Of these, the longest beginning that it shares with the session's request before it, the last that was answered.
    pub prefix_tokens: u64,
    /// Where the two part, where the earlier one is not the beginning of this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broke: Option<PrefixBreak>,
    /// The hooks that were asked for this request, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<HookRun>>"))]
    pub hooks: Vec<HookRun>,
    /// What a stored patch asked for and could not be had: the definition of a tool that has left, for instance.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<String>>"))]
    pub notes: Vec<String>,
    /// Fingerprints of what was sent, by which the next request is compared after a restart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<SentPart>>"))]
    pub sent: Vec<SentPart>,
}

/// Where a request parts from the one before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct PrefixBreak {
    /// The first part that differs: `model`, `tools`, `system:NAME`, or `message:ID` with the entry whose message stands
    /// there now; `message` where it is none's.
    pub part: String,
    /// Why.
    pub reason: BreakReason,
    /// More about it: the patch's own reason, the hook's or the model's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Tokens of the request before that this one does not begin with.
    pub lost_tokens: u64,
}

/// Why a request does not begin as the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum BreakReason {
    /// A patch changed what was sent.
    Patch,
    /// The context was compacted.
    Compaction,
    /// A compaction was taken back.
    CompactionUndone,
    /// The session went on elsewhere in its tree.
    Navigation,
    /// Another model is asked.
    Model,
    /// Other tools are on offer.
    Tools,
    /// The instructions have changed, or a hook's system prompt for one turn.
    Instructions,
    /// What was added for one request is not sent again.
    Uncached,
    /// Another strategy was chosen.
    Strategy,
    /// An entry was pinned or let go of, and is seen again or not any more.
    Pins,
    /// None of these is known to have happened: a part of the prompt changes by itself.
    Unknown,
}

/// A hook that was asked for a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct HookRun {
    /// The hook.
    pub hook: String,
    /// What it was asked: `context:before_request`, `message` and the like.
    pub event: String,
    /// What came of it.
    pub outcome: HookOutcome,
    /// Milliseconds it took.
    pub duration_ms: u64,
    /// An error code, where it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<crate::ErrorCode>,
}

/// What came of asking a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum HookOutcome {
    /// It changed nothing.
    Unchanged,
    /// It changed something.
    Changed,
    /// It was not there and is not required.
    Skipped,
    /// It failed.
    Failed,
}

/// A part of a request with its fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct SentPart {
    /// `tools`, `system:NAME`, `messages`, or `uncached` for the messages that were sent once.
    pub part: String,
    /// Its fingerprint.
    pub hash: String,
}
