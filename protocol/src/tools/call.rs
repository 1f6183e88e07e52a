//! Calls of tools: made, running, answered.

use super::{approval::ApprovalOption, offer::ToolPlace};
use crate::{
    ids::{ApprovalId, CallId, TurnId},
    time::Timestamp,
};

closed! {
    /// Payload of `tool_result`.
    struct ToolResult {
        /// The call.
        #[serde(rename = "toolCallId")]
        call_id: CallId,
        /// The tool's result, as text for the model.
        output: String,
        /// True if the tool failed.
        is_error?: bool,
    }

    /// Payload of `call_progress`.
    struct CallProgress {
        /// The tool call; absent if a hook reports.
        tool_call_id?: CallId,
        /// The hook call; absent if a tool reports.
        hook_call_id?: CallId,
        /// Its current activity, for the user.
        message?: String,
    }
}

open! {
    /// An unanswered tool call.
    struct PendingCall {
        /// The call.
        #[serde(rename = "toolCallId")]
        call_id: CallId,
        /// Its turn.
        turn_id: TurnId,
        /// The tool.
        name: String,
        /// The arguments, JSON text.
        arguments: String,
        /// Its deadline: without an answer, it then fails.
        deadline: Timestamp,
        /// The side that runs it.
        #[serde(default, skip_serializing_if = "ToolPlace::is_client")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<ToolPlace>"))]
        place: ToolPlace,
    }

    /// Payload of `tool_call`.
    struct ToolCall {
        /// The call; delivered at least once.
        #[serde(rename = "toolCallId")]
        call_id: CallId,
        /// Its turn.
        turn_id: TurnId,
        /// The tool.
        name: String,
        /// The arguments, JSON text that the tool's schema accepts.
        arguments: String,
        /// Its deadline: without an answer, it then fails.
        deadline: Timestamp,
        /// The side that runs it.
        #[serde(default, skip_serializing_if = "ToolPlace::is_client")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<ToolPlace>"))]
        place: ToolPlace,
    }

    /// Payload of `run_tool`. The call itself is the durable event `tool_call`, which comes first.
    #[derive(Eq)]
    struct RunTool {
        /// The call.
        tool_call_id: CallId,
        /// True if this client was already asked on an earlier connection. It ignores this event if the tool is still
        /// running.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<bool>"))]
        again: bool,
    }

    /// Payload of `call_progressed`.
    struct CallProgressed {
        /// The tool call, if a tool reported.
        tool_call_id?: CallId,
        /// The hook call, if a hook reported.
        hook_call_id?: CallId,
        /// The current activity.
        message?: String,
        /// Its new deadline: without an answer, it then fails.
        deadline: Timestamp,
    }

    /// Payload of `tool_cancelled`: the answer is no longer awaited. The durable event is `call_resolved`.
    struct ToolCancelled {
        /// The call.
        #[serde(rename = "toolCallId")]
        call_id: CallId,
        /// The tool.
        name: String,
        /// The turn that made it.
        turn_id: TurnId,
        /// `timed_out`, or `dropped` if its turn ended.
        outcome: CallOutcome,
    }

    /// Payload of `call_resolved`.
    struct CallResolved {
        /// The call.
        #[serde(rename = "toolCallId")]
        call_id: CallId,
        /// Its outcome.
        outcome: CallOutcome,
        /// The approval that was decided; absent if the call itself has ended.
        approval_id?: ApprovalId,
        /// The answer; absent if there was none.
        option?: ApprovalOption,
        /// The client that answered.
        by?: String,
    }
}

impl CallResolved {
    /// Returns the end of a call.
    #[must_use]
    pub fn over(call_id: CallId, outcome: CallOutcome) -> Self {
        Self { call_id, outcome, approval_id: None, option: None, by: None }
    }
}

words! {
    /// The outcome of a tool call.
    enum CallOutcome {
        /// The tool answered.
        Answered,
        /// The tool reported a failure.
        Failed,
        /// No answer arrived in time.
        TimedOut,
        /// Its turn ended first.
        Dropped,
        /// A person allowed it: it runs now.
        Allowed,
        /// A person rejected it: it does not run.
        Rejected,
        /// Nobody decided in time: it does not run.
        Expired,
    }
}
