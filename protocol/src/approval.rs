//! Approvals: a person is asked before a tool runs.
//!
//! One record serves every dialect: v1's `approval_request`, v2's events, and others that agree in kind. The answer is
//! about the exact call in the record, and nothing else runs on it.

use crate::{ApprovalId, CallId, Timestamp, TurnId, event::ToolPlace};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An answer to an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum ApprovalOption {
    /// Run this call.
    AllowOnce,
    /// Run this call, and in this session every later call of this tool with exactly these arguments.
    AllowAlways,
    /// Do not run this call.
    RejectOnce,
    /// Do not run this call, and in this session no later call of this tool with exactly these arguments.
    RejectAlways,
}

impl ApprovalOption {
    /// All options, in the order in which people are asked.
    pub const ALL: [Self; 4] = [Self::AllowOnce, Self::AllowAlways, Self::RejectOnce, Self::RejectAlways];

    /// Returns true if the call may run.
    #[must_use]
    pub fn allows(self) -> bool {
        matches!(self, Self::AllowOnce | Self::AllowAlways)
    }

    /// Returns true if the answer holds for later calls too.
    #[must_use]
    pub fn is_lasting(self) -> bool {
        matches!(self, Self::AllowAlways | Self::RejectAlways)
    }
}

/// Whether a tool's calls run without asking, after a person allowed them, or never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum ApprovalDecision {
    /// They run without asking.
    Auto,
    /// A person is asked.
    Ask,
    /// They never run.
    Deny,
}

/// Payload of `approval_request`: a call that a person must allow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// The approval.
    pub approval_id: ApprovalId,
    /// The call.
    #[serde(rename = "toolCallId")]
    pub call_id: CallId,
    /// Its turn.
    pub turn_id: TurnId,
    /// The tool.
    pub name: String,
    /// The arguments that it would get, JSON text.
    pub arguments: String,
    /// SHA-256 of who runs the call, the tool's name and these arguments, in hexadecimal.
    pub arguments_hash: String,
    /// The arguments for people: invisible and direction-changing characters are written as `⟨U+202E⟩`.
    pub display: String,
    /// The arguments as the model wrote them, if a hook has changed them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposed_arguments: Option<String>,
    /// Who would run it.
    #[serde(default, skip_serializing_if = "ToolPlace::is_client")]
    #[cfg_attr(feature = "codegen", ts(as = "Option<ToolPlace>"))]
    pub place: ToolPlace,
    /// Why a person is asked.
    pub reason: String,
    /// The possible answers.
    pub options: Vec<ApprovalOption>,
    /// The loop's generation.
    pub generation: u64,
    /// The time at which no answer counts as a refusal.
    pub expires_at: Timestamp,
}

/// A lasting answer: it decides every later call of this tool with exactly these arguments in this session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct StandingApproval {
    /// The approval that was answered.
    pub approval_id: ApprovalId,
    /// The tool.
    pub name: String,
    /// The hash of the call, as in the approval.
    pub arguments_hash: String,
    /// The arguments for people, as in the approval; a long text is cut.
    pub display: String,
    /// `allow_always` or `reject_always`.
    pub option: ApprovalOption,
    /// The time of the answer.
    pub since: Timestamp,
    /// Who answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// Rules for a session's tools. The first rule that fits a call decides; without one, a tool that the server runs is
/// `auto` if it is read-only and `ask` otherwise, and a tool of the client's is `auto`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApprovalPolicy {
    /// The rules: at most 64.
    pub rules: Vec<ApprovalRule>,
}

/// A rule of an approval policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApprovalRule {
    /// The tools: a name, in which `*` stands for any characters.
    pub tool: String,
    /// Patterns of arguments: from a JSON Pointer to a regular expression that must match the whole value. A value that
    /// is not a text is compared as JSON. All of them must fit; an argument that is missing does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "codegen", ts(type = "Record<string, string>"))]
    pub arguments: Option<BTreeMap<String, String>>,
    /// The decision.
    pub policy: ApprovalDecision,
}
