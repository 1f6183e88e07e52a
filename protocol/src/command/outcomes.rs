//! The errors and events that rows of the table of commands share.

use crate::ErrorCode;

/// Lists error codes by their variants.
macro_rules! codes {
    ($($code:ident)*) => { &[$(ErrorCode::$code),*] };
}

/// The errors of a frame that is refused before its command is known.
pub const OF_A_FRAME: &[ErrorCode] = codes! {
    InvalidJson InvalidFrame InvalidId UnknownCommand DuplicateKey TooDeep BinaryFrame NotGreeted
};

/// The errors that any command can get, whatever it asks for.
pub const OF_ANY: &[ErrorCode] = codes! {
    UnknownField MissingField InvalidField Forbidden RateLimited LimitReached Overloaded ShuttingDown StoreFailed
    Internal
};

/// The errors of a command that waits for a required hook.
pub const OF_HOOKS: &[ErrorCode] = codes! { HookFailed HookTimeout HookUnavailable };

/// The errors of a command that is answered only after the model was asked for a summary. One that the model declines
/// to give is replaced by an extract, so those codes are not among them.
pub const OF_THE_MODEL: &[ErrorCode] = codes! {
    UpstreamUnreachable UpstreamTimeout UpstreamAuth UpstreamQuota UpstreamRateLimited UpstreamOverloaded
    UpstreamNotFound UpstreamRejected UpstreamError UpstreamTruncated UpstreamMalformed
};

/// The error codes that refuse no v2 command, each with the place where it occurs instead, in Markdown.
pub const NEVER_REPLIED: &[(ErrorCode, &str)] = &[
    (ErrorCode::TooManyToolRounds, "`turn_finished.error`"),
    (ErrorCode::TurnTimeout, "`turn_finished.error`"),
    (ErrorCode::UpstreamEmpty, "`turn_finished.error`"),
    (ErrorCode::ContentFiltered, "`turn_finished.error`"),
    (ErrorCode::BudgetExhausted, "`turn_finished.error`"),
    (ErrorCode::ContextOverflow, "`turn_finished.error`"),
    (ErrorCode::Interrupted, "`turn_finished.error` and `item_aborted.reason`, after the server stopped during a turn"),
    (ErrorCode::InvalidPatch, "`hook_failed.error`, and `turn_finished.error` if the hook is required"),
];

/// Work that a command starts or continues, with events of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// A turn: requests to the model, its answers and tool calls.
    Turn,
    /// A compaction, in the foreground or the background.
    Compaction,
    /// Hooks, wherever the session offers them.
    Hooks,
}

impl Work {
    /// Every kind of work.
    pub const ALL: &'static [Self] = &[Self::Turn, Self::Compaction, Self::Hooks];

    /// Returns its name in the table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Compaction => "compaction",
            Self::Hooks => "hooks",
        }
    }

    /// Returns the events that it consists of.
    #[must_use]
    pub const fn events(self) -> &'static [&'static str] {
        match self {
            Self::Turn => &[
                "turn_started",
                "request_delayed",
                "item_started",
                "item_delta",
                "item_finished",
                "item_aborted",
                "entry_appended",
                "tool_call",
                "approval_request",
                "call_progressed",
                "run_tool",
                "tool_cancelled",
                "call_resolved",
                "context_updated",
                "context_warning",
                "budget_notice",
                "session_updated",
                "queue_item_removed",
                "turn_finished",
            ],
            Self::Compaction => &[
                "compaction_started",
                "compaction_progress",
                "compaction_prepared",
                "entry_appended",
                "session_updated",
                "context_compacted",
                "compaction_failed",
                "context_warning",
                "budget_notice",
            ],
            Self::Hooks => &["hook_call", "hook_cancelled", "hook_failed", "entry_appended", "session_updated"],
        }
    }
}
