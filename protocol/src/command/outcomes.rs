//! The outcomes of each command: the events that follow it, and the errors that can refuse it.
//!
//! The second half of the table of commands. Its rows are in the order of [`Command::TABLE`], which `tests/outcomes.rs`
//! checks. Errors that follow from a column of that table ([`Outcome::refusals`]), and those that any command can
//! get ([`OF_ANY`]), are not repeated in the rows.

use super::{Address, Command, Does, Scope, Sender, Spec};
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
            ],
            Self::Hooks => &["hook_call", "hook_cancelled", "hook_failed", "entry_appended", "session_updated"],
        }
    }
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    /// The command's `type`.
    pub command: &'static str,
    /// The events that report what the command itself did.
    pub events: &'static [&'static str],
    /// The work that it starts or continues, whose events follow.
    pub work: &'static [Work],
    /// The errors specific to it.
    pub errors: &'static [ErrorCode],
    /// Further groups of errors: [`OF_HOOKS`], [`OF_THE_MODEL`].
    pub groups: &'static [&'static [ErrorCode]],
}

/// Declares the rows, from `"command" { events…; work…; errors…; groups… }`.
macro_rules! outcomes {
    ($($command:literal {
        $($event:literal)*; $($work:ident)*; $($error:ident)*; $($group:ident)*
    })*) => {
        /// Every command's row, in the order of [`Command::TABLE`].
        pub const OUTCOMES: &[Outcome] = &[$(Outcome {
            command: $command,
            events: &[$($event),*],
            work: &[$(Work::$work),*],
            errors: codes! { $($error)* },
            groups: &[$($group),*],
        }),*];
    };
}

outcomes! {
    "hello" { ; ; UnsupportedVersion AlreadyGreeted Unauthenticated; }
    "authenticate" { "token_expiring"; ; Unauthenticated; }
    "open_session" {
        "presence_changed" "host_changed" "session_changed" "run_tool" "item_aborted"; Turn Compaction Hooks;
        SessionAlreadyOpen TooManySubscriptions SessionDamaged InvalidTools InvalidHooks ReadOnly;
    }
    "close_session" { "presence_changed" "host_changed"; Hooks; ; }
    "list_sessions" { "session_changed"; ; ; }
    "list_models" { ; ; ; }
    "rename_session" { "entry_appended" "session_updated" "session_changed"; ; ; }
    "delete_session" { "session_closed" "session_changed"; ; ; }
    "get_entries" { ; ; EntryNotFound SessionDamaged; }
    "search_history" { ; ; SessionDamaged; }
    "ping" { ; ; ; }
    "user_input" {
        "entry_appended" "session_updated" "queue_item_added" "compaction_progress" "compaction_failed"
        "session_changed";
        Turn Compaction Hooks;
        EmptyInput InputTooLarge QueueFull TurnRunning CompactionRunning LeafMoved EntryNotFound InputCancelled
        NavigationCancelled;
        OF_HOOKS OF_THE_MODEL
    }
    "cancel_turn" { "entry_appended"; Turn Compaction Hooks; NoTurn; }
    "retry_turn" {
        "session_updated"; Turn Compaction Hooks;
        NothingToRetry TurnRunning CompactionRunning NavigationCancelled; OF_HOOKS
    }
    "edit_queue" {
        "queue_item_removed" "queue_reordered" "queue_released"; Turn Compaction Hooks; NotQueued;
    }
    "tool_result" {
        "entry_appended" "call_resolved"; Turn Compaction Hooks; UnknownCall TooLate;
    }
    "call_progress" { "call_progressed"; ; UnknownCall TooLate; }
    "approval_response" { ; Turn; NoPendingApproval TooLate; }
    "navigate" {
        "session_updated" "entry_appended" "compaction_progress" "compaction_failed"; Turn Compaction Hooks;
        EntryNotFound TurnRunning CompactionRunning NavigationCancelled; OF_HOOKS OF_THE_MODEL
    }
    "fork_session" { "session_changed"; ; EntryNotFound SessionNotFound; }
    "get_tree" { ; ; EntryNotFound SessionDamaged; }
    "set_label" { "entry_appended" "session_changed"; ; EntryNotFound; }
    "append_custom" { "entry_appended" "session_changed"; ; ; }
    "append_custom_message" {
        "entry_appended" "queue_item_added" "queue_item_removed" "session_changed"; Hooks;
        EmptyInput InputTooLarge QueueFull InputCancelled; OF_HOOKS
    }
    "get_context_info" { ; ; ; }
    "get_context" { ; ; ; }
    "start_compaction" {
        ; Compaction Hooks; CompactionRunning NothingToCompact UnknownStrategy PreviewNotFound HistoryMoved;
    }
    "preview_compaction" {
        "compaction_progress" "compaction_failed"; Hooks;
        CompactionRunning NothingToCompact UnknownStrategy CompactionCancelled CompactionVoid; OF_HOOKS
    }
    "cancel_compaction" { "compaction_failed" "session_updated"; Turn Hooks; NoCompaction; }
    "undo_compaction" {
        "compaction_undone" "session_updated" "compaction_failed"; ; NothingToUndo TurnRunning CompactionRunning;
    }
    "pin_entry" { "session_updated" "compaction_failed"; ; EntryNotFound TooManyPins; }
    "unpin_entry" { "session_updated" "compaction_failed"; ; EntryNotFound; }
    "set_context_strategy" { "session_updated" "compaction_failed"; Compaction; UnknownStrategy; }
    "set_model" {
        "entry_appended" "session_updated" "context_warning" "compaction_failed"; Compaction; UnknownModel;
    }
    "set_instructions" { "session_updated"; ; ; }
    "list_tools" { ; ; ; }
    "set_tools" { "session_updated"; ; InvalidPolicy; }
    "withdraw_approval" { "session_updated"; ; NoPendingApproval; }
    "set_options" { "session_updated"; ; ; }
    "register_tools" { "presence_changed" "host_changed" "run_tool"; ; InvalidTools; }
    "register_hooks" { "presence_changed" "host_changed"; Hooks; InvalidHooks; }
    "take_over_host" { "host_changed" "run_tool"; Hooks; NothingOffered; }
    "hook_result" { ; Turn Compaction Hooks; UnknownCall TooLate; }
}

impl Outcome {
    /// Returns the errors that follow from the command's row in [`Command::TABLE`].
    #[must_use]
    pub fn refusals(spec: &Spec) -> Vec<ErrorCode> {
        let mut codes = Vec::new();
        if spec.needs_subscription() {
            codes.push(ErrorCode::NoSession);
        }
        // Also if it is deleted while the command waits. A connection answers its own commands at once, from what it is
        // subscribed to.
        let is_looked_up = spec.scope != Scope::Connection || spec.does == Does::Creates;
        if spec.address != Address::None && is_looked_up {
            codes.push(ErrorCode::SessionNotFound);
        }
        if spec.sender != Sender::Anyone {
            codes.push(ErrorCode::ReadOnly);
        }
        if spec.does.writes() {
            codes.push(ErrorCode::IdempotencyConflict);
        }
        if spec.does == Does::Writes {
            codes.push(ErrorCode::SessionDamaged);
        }
        codes
    }

    /// Returns the command's row in [`Command::TABLE`].
    #[must_use]
    pub fn spec(&self) -> &'static Spec {
        Command::spec_of(self.command).expect("every row of the outcomes is about a command of the table")
    }

    /// Returns every error that can refuse the command, besides those of [`OF_A_FRAME`] and [`OF_ANY`].
    #[must_use]
    pub fn own_errors(&self) -> Vec<ErrorCode> {
        let groups = self.groups.iter().copied().flatten().copied();
        let all = self.errors.iter().copied().chain(groups).chain(Self::refusals(self.spec()));
        let mut codes = Vec::new();
        for code in all {
            if !codes.contains(&code) {
                codes.push(code);
            }
        }
        codes
    }
}

impl Spec {
    /// Returns true if the command acts only on a session that its connection is subscribed to. Others act on any
    /// session of the user, or on none.
    #[must_use]
    pub fn needs_subscription(&self) -> bool {
        let of_any_session = self.does == Does::Creates
            || self.sender == Sender::NonObserver
            || (self.scope == Scope::Server && self.sender == Sender::Anyone);
        self.address != Address::None && !of_any_session
    }
}
