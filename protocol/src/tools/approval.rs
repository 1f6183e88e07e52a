//! Approvals: a person decides before a tool runs.
//!
//! One record serves every dialect: v1's `approval_request`, v2's events, and others that agree in kind. The answer is
//! about the exact call in the record, and nothing else runs on it.

use super::offer::ToolPlace;
use crate::{
    ids::{ApprovalId, CallId, TurnId},
    time::Timestamp,
};
use std::collections::BTreeMap;

closed! {
    /// Payload of `approval_response`.
    struct ApprovalResponse {
        /// The approval.
        approval_id: ApprovalId,
        /// The decision.
        review: Decision,
        /// The hash of the call that was shown. The answer is refused if the approval is about another one.
        arguments_hash?: String,
        /// The message to the model if it is denied.
        custom_deny_message?: String,
    }
}

words! {
    /// A decision on an approval: one of the four options, or v1's word for one.
    enum Decision {
        /// Run this call.
        #[serde(alias = "yes")]
        AllowOnce,
        /// Run this call and every later identical one.
        #[serde(alias = "always")]
        AllowAlways,
        /// Do not run this call. The turn continues, and the model reads the reason.
        #[serde(alias = "no-continue")]
        RejectOnce,
        /// Do not run this call or any later identical one.
        RejectAlways,
        /// Do not run this call, and end the turn.
        #[serde(alias = "no-exit")]
        RejectAndStop,
    }
}

impl Decision {
    /// Returns the option that the approval is answered with.
    #[must_use]
    pub fn option(self) -> ApprovalOption {
        match self {
            Self::AllowOnce => ApprovalOption::AllowOnce,
            Self::AllowAlways => ApprovalOption::AllowAlways,
            Self::RejectOnce | Self::RejectAndStop => ApprovalOption::RejectOnce,
            Self::RejectAlways => ApprovalOption::RejectAlways,
        }
    }
}

closed! {
    /// Payload of `withdraw_approval`.
    struct WithdrawApproval {
        /// The approval that got the lasting answer.
        approval_id: ApprovalId,
    }
}

words! {
    /// An answer to an approval.
    #[derive(PartialOrd, Ord)]
    enum ApprovalOption {
        /// Run this call.
        AllowOnce,
        /// Run this call, and every later call of this tool with exactly these arguments in this session.
        AllowAlways,
        /// Do not run this call.
        RejectOnce,
        /// Do not run this call, or any later call of this tool with exactly these arguments in this session.
        RejectAlways,
    }
}

impl ApprovalOption {
    /// All options, in the order in which people see them.
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

words! {
    /// Says whether a tool's calls run without asking, only after a person allows them, or never.
    #[derive(PartialOrd, Ord)]
    enum ApprovalDecision {
        /// They run without asking.
        Auto,
        /// A person must allow them.
        Ask,
        /// They never run.
        Deny,
    }
}

open! {
    /// Payload of `approval_request`: a call that a person must allow.
    struct Approval {
        /// The approval.
        approval_id: ApprovalId,
        /// The call.
        #[serde(rename = "toolCallId")]
        call_id: CallId,
        /// Its turn.
        turn_id: TurnId,
        /// The tool.
        name: String,
        /// The arguments that it would get, as JSON text.
        arguments: String,
        /// SHA-256 of where the call runs, the tool's name and these arguments, in hexadecimal.
        arguments_hash: String,
        /// The arguments for people: invisible and direction-changing characters are written as `⟨U+202E⟩`.
        display: String,
        /// The arguments as the model wrote them, if a hook has changed them.
        proposed_arguments?: String,
        /// The side that would run it.
        #[serde(default, skip_serializing_if = "ToolPlace::is_client")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<ToolPlace>"))]
        place: ToolPlace,
        /// The reason why a person must decide.
        reason: String,
        /// The possible answers.
        options: Vec<ApprovalOption>,
        /// The loop's generation.
        generation: u64,
        /// The time from which a missing answer counts as a refusal.
        expires_at: Timestamp,
    }

    /// A lasting answer: it decides every later call of this tool with exactly these arguments in this session.
    #[derive(Eq)]
    struct StandingApproval {
        /// The approval that was answered.
        approval_id: ApprovalId,
        /// The tool.
        name: String,
        /// The hash of the call, as in the approval.
        arguments_hash: String,
        /// The arguments for people, as in the approval; a long text is cut.
        display: String,
        /// `allow_always` or `reject_always`.
        option: ApprovalOption,
        /// The time of the answer.
        since: Timestamp,
        /// Who answered.
        by?: String,
    }
}

closed! {
    /// Rules for a session's tools. The first rule that matches a call decides; without one, a tool that the server
    /// runs is `auto` if it is read-only and `ask` otherwise, and a tool of the client's is `auto`.
    #[derive(Default, Eq)]
    struct ApprovalPolicy {
        /// The rules: at most 64.
        rules: Vec<ApprovalRule>,
    }

    /// A rule of an approval policy.
    #[derive(Eq)]
    struct ApprovalRule {
        /// The tools: a name, in which `*` matches any characters.
        tool: String,
        /// Patterns of arguments: from a JSON Pointer to a regular expression that must match the whole value. A value
        /// that is not a text is compared as JSON. All of them must match; a missing argument does not match.
        #[cfg_attr(feature = "codegen", ts(type = "Record<string, string>"))]
        arguments?: BTreeMap<String, String>,
        /// The decision.
        policy: ApprovalDecision,
    }
}
