//! The commands of a v2 client. Each command gets exactly one reply, under the same `id`. Every command is declared
//! once, in the table below.
//!
//! Unknown commands and unknown fields are refused by name: silently ignoring a field can corrupt a history.

use crate::{
    compaction::{CancelCompaction, PinEntry, PreviewCompaction, SetContextStrategy, StartCompaction, UndoCompaction},
    context::GetContext,
    hooks::{HookResult, RegisterHooks},
    ids::SessionId,
    session::{
        Authenticate, Hello, ListSessions, OpenSession, Ping, RenameSession, SetInstructions, SetModel, SetOptions,
    },
    tools::{ApprovalResponse, CallProgress, RegisterTools, SetTools, ToolResult, WithdrawApproval},
    tree::{AppendCustom, AppendCustomMessage, ForkSession, GetEntries, GetTree, Navigate, SearchHistory, SetLabel},
    turn::{CancelTurn, EditQueue, RetryTurn, UserInput},
};
use serde::{Deserialize, Serialize};

#[macro_use]
mod table;
pub mod outcomes;

pub use table::{Address, Does, OTHER_NAMES, Scope, Sender, Spec};

// The table of commands. To add one, add a row; its payload is declared in the file of its subject. `command/table.rs`
// has the values of each column. The tests ask for what the compiler does not: "Answered by …" in the doc comment, an
// example in `protocol/examples/v2`, and the generated files.
//
// After the payload and the name, a row states:
// - the reply. A reply of its own is a variant in `reply.rs`;
// - `Scope`: where the command is executed, and so where the compiler asks for its arm. `Session`: in the agent loop,
//   `src/core/agent_loop/kernel/commands.rs`. `Hosting`: in its actor, `src/runtime/actor/hosting.rs`. `Connection` and
//   `Server`: in `src/server/commands.rs`;
// - `Address`: whether its envelope names a session;
// - `Sender`: who may send it. `Writer` for what changes a session (in the scope `Server` this refuses only observers),
//   `Anyone` for what only reads;
// - `Does`: what it leaves behind. `Writes` if it must happen once for each `id`, `Transient` if a copy does no harm;
// - in braces, its outcomes; any of them may be left out. `events`: those that report what the command itself did.
//   `work`: what it starts or continues, whose events follow. `errors`: those specific to it; not those that follow
//   from a column (`Spec::refusals`) or that any command can get (`outcomes::OF_ANY`). `groups`: further groups of
//   errors.
//
// Derived from it: the dispatch of commands (`Command::route`), what observers are refused, which commands are
// idempotent and need a long `id`, which may be sent again (`Spec::is_query`), which need a subscription
// (`Spec::needs_subscription`), the lists and replies that both clients and the page have, and the table in README.md.
commands! {
    /// Opts into v2. Answered by `welcome`.
    Hello(Hello) = "hello" => "welcome", Connection, None, Anyone, Transient {
        errors: UnsupportedVersion AlreadyGreeted Unauthenticated;
    }
    /// Renews this connection's credentials before they expire. Answered by `ok`.
    Authenticate(Authenticate) = "authenticate" => "ok", Connection, None, Anyone, Transient {
        events: "token_expiring";
        errors: Unauthenticated;
    }
    /// Subscribes to the session that it names, or creates one. Answered by `session_opened`.
    OpenSession(OpenSession) = "open_session" => "session_opened", Connection, Optional, Anyone, Creates {
        events: "presence_changed" "host_changed" "session_changed" "run_tool" "item_aborted";
        work: Turn Compaction Hooks;
        errors: SessionAlreadyOpen TooManySubscriptions SessionDamaged InvalidTools InvalidHooks ReadOnly;
    }
    /// Unsubscribes from a session, which continues with its running turn. Answered by `ok`.
    CloseSession(Empty) = "close_session" => "ok", Connection, Required, Anyone, Transient {
        events: "presence_changed" "host_changed";
        work: Hooks;
    }
    /// Lists this user's sessions, newest first. Answered by `sessions`.
    ListSessions(ListSessions) = "list_sessions" => "sessions", Server, None, Anyone, Transient {
        events: "session_changed";
    }
    /// Lists the models that a session may choose. Answered by `models`.
    ListModels(Empty) = "list_models" => "models", Server, None, Anyone, Transient {}
    /// Renames a session. Answered by `ok`.
    RenameSession(RenameSession) = "rename_session" => "ok", Session, Required, NonObserver, Writes {
        events: "entry_appended" "session_updated" "session_changed";
    }
    /// Deletes a session permanently. Answered by `ok`.
    DeleteSession(Empty) = "delete_session" => "ok", Server, Required, NonObserver, Transient {
        events: "session_closed" "session_changed";
    }
    /// Pages through a session's entries. Answered by `entries`.
    GetEntries(GetEntries) = "get_entries" => "entries", Server, Required, Anyone, Transient {
        errors: EntryNotFound SessionDamaged;
    }
    /// Searches what was said in a session or, if it names none, in all of this user's. Answered by `history_hits`.
    SearchHistory(SearchHistory) = "search_history" => "history_hits", Server, Optional, Anyone, Transient {
        errors: SessionDamaged;
    }
    /// Checks the connection and, if it names one, a session for events that were missed. Answered by `pong`.
    Ping(Ping) = "ping" => "pong", Connection, Optional, Anyone, Transient {}
    /// Sends input to the model. Answered by `accepted` once it is durable.
    UserInput(UserInput) = "user_input" => "accepted", Session, Required, Writer, Writes {
        events: "entry_appended" "session_updated" "queue_item_added" "compaction_progress" "compaction_failed"
            "session_changed";
        work: Turn Compaction Hooks;
        errors: EmptyInput InputTooLarge UnknownCall QueueFull TurnRunning CompactionRunning LeafMoved EntryNotFound
            InputCancelled NavigationCancelled;
        groups: OF_HOOKS OF_THE_MODEL;
    }
    /// Cancels the running turn. Answered by `ok`.
    CancelTurn(CancelTurn) = "cancel_turn" => "ok", Session, Required, Writer, Cancels {
        events: "entry_appended";
        work: Turn Compaction Hooks;
        errors: NoTurn;
    }
    /// Retries a turn that failed or was cancelled. Answered by `accepted`.
    RetryTurn(RetryTurn) = "retry_turn" => "accepted", Session, Required, Writer, Writes {
        events: "session_updated";
        work: Turn Compaction Hooks;
        errors: NothingToRetry TurnRunning CompactionRunning NavigationCancelled;
        groups: OF_HOOKS;
    }
    /// Removes queued inputs, or reorders them. Answered by `ok`.
    EditQueue(EditQueue) = "edit_queue" => "ok", Session, Required, Writer, Writes {
        events: "queue_item_removed" "queue_reordered" "queue_released";
        work: Turn Compaction Hooks;
        errors: NotQueued;
    }
    /// Returns a tool's result. Answered by `ok`, with `duplicate: true` when repeated, or `error too_late`.
    ToolResult(ToolResult) = "tool_result" => "ok", Session, Required, Writer, Ends {
        events: "entry_appended" "call_resolved";
        work: Turn Compaction Hooks;
        errors: UnknownCall TooLate;
    }
    /// Reports that a tool, or a hook, is still running; restarts its timeout. Answered by `ok`.
    CallProgress(CallProgress) = "call_progress" => "ok", Session, Required, Writer, Transient {
        events: "call_progressed";
        errors: UnknownCall TooLate;
    }
    /// Decides on a tool call that a person must allow. Answered by `ok`, or `error too_late` if someone else did.
    ApprovalResponse(ApprovalResponse) = "approval_response" => "ok", Session, Required, Writer, Writes {
        work: Turn;
        errors: NoPendingApproval TooLate;
    }
    /// Moves to another entry of the tree. Answered by `navigated`, after the summary of the abandoned branch.
    Navigate(Navigate) = "navigate" => "navigated", Session, Required, Writer, Writes {
        events: "session_updated" "entry_appended" "compaction_progress" "compaction_failed";
        work: Turn Compaction Hooks;
        errors: EntryNotFound TurnRunning CompactionRunning NavigationCancelled;
        groups: OF_HOOKS OF_THE_MODEL;
    }
    /// Creates a new session from the path to an entry. Answered by `forked`.
    ForkSession(ForkSession) = "fork_session" => "forked", Server, Required, Writer, Writes {
        events: "session_changed";
        errors: EntryNotFound SessionNotFound;
    }
    /// Returns the tree, or the part below an entry. Answered by `tree`.
    GetTree(GetTree) = "get_tree" => "tree", Server, Required, Anyone, Transient {
        errors: EntryNotFound SessionDamaged;
    }
    /// Sets or removes an entry's label. Answered by `ok { entryId }`.
    SetLabel(SetLabel) = "set_label" => "ok", Session, Required, Writer, Writes {
        events: "entry_appended" "session_changed";
        errors: EntryNotFound;
    }
    /// Stores the client's data in the history; the model never sees it. Answered by `ok { entryId }`.
    AppendCustom(AppendCustom) = "append_custom" => "ok", Session, Required, Writer, Writes {
        events: "entry_appended" "session_changed";
    }
    /// Adds a message in the user's role, without starting a turn. Answered by `ok { entryId }`.
    AppendCustomMessage(AppendCustomMessage) = "append_custom_message" => "ok", Session, Required, Writer, Writes {
        events: "entry_appended" "queue_item_added" "queue_item_removed" "session_changed";
        work: Hooks;
        errors: EmptyInput InputTooLarge QueueFull InputCancelled;
        groups: OF_HOOKS;
    }
    /// Returns how full the window is. Answered by `context_info`.
    GetContextInfo(Empty) = "get_context_info" => "context_info", Session, Required, Anyone, Transient {}
    /// Returns exactly what the next request would send. Answered by `context`.
    GetContext(GetContext) = "get_context" => "context", Session, Required, Anyone, Transient {}
    /// Compacts now, even while the circuit breaker is open. `manual_compact` is an alias. Answered by `ok { jobId }`;
    /// the outcome is an event.
    StartCompaction(StartCompaction) = "start_compaction" => "ok", Session, Required, Writer, Writes {
        work: Compaction Hooks;
        errors: CompactionRunning NothingToCompact UnknownStrategy PreviewNotFound HistoryMoved;
    }
    /// Computes the compaction that `start_compaction` would make, without changes. Answered by `compaction_preview`
    /// once its summary is ready.
    PreviewCompaction(PreviewCompaction) =
        "preview_compaction" => "compaction_preview", Session, Required, Writer, Previews {
        events: "compaction_progress" "compaction_failed";
        work: Hooks;
        errors: CompactionRunning NothingToCompact UnknownStrategy CompactionCancelled CompactionVoid;
        groups: OF_HOOKS;
    }
    /// Cancels a compaction; the context is unchanged. Answered by `ok`.
    CancelCompaction(CancelCompaction) = "cancel_compaction" => "ok", Session, Required, Writer, Cancels {
        events: "compaction_failed";
        work: Turn Hooks;
        errors: NoCompaction;
    }
    /// Restores what a compaction removed from the context, and keeps everything said since. Answered by `ok`.
    UndoCompaction(UndoCompaction) = "undo_compaction" => "ok", Session, Required, Writer, Writes {
        events: "compaction_undone" "session_updated" "compaction_failed";
        errors: NothingToUndo TurnRunning CompactionRunning;
    }
    /// Keeps an entry verbatim through every compaction. Answered by `ok`.
    PinEntry(PinEntry) = "pin_entry" => "ok", Session, Required, Writer, Writes {
        events: "session_updated" "compaction_failed";
        errors: EntryNotFound TooManyPins;
    }
    /// Unpins an entry. Answered by `ok`.
    UnpinEntry(PinEntry) = "unpin_entry" => "ok", Session, Required, Writer, Writes {
        events: "session_updated" "compaction_failed";
        errors: EntryNotFound;
    }
    /// Sets the strategy of this session. Answered by `ok`.
    SetContextStrategy(SetContextStrategy) = "set_context_strategy" => "ok", Session, Required, Writer, Writes {
        events: "session_updated" "compaction_failed";
        work: Compaction;
        errors: UnknownStrategy;
    }
    /// Sets the model of this session. Answered by `ok`.
    SetModel(SetModel) = "set_model" => "ok", Session, Required, Writer, Writes {
        events: "entry_appended" "session_updated" "context_warning" "compaction_failed";
        work: Compaction;
        errors: UnknownModel;
    }
    /// Sets the system prompt of this session. Answered by `ok`.
    SetInstructions(SetInstructions) = "set_instructions" => "ok", Session, Required, Writer, Writes {
        events: "session_updated";
    }
    /// Lists this session's tools, including those that are switched off. Answered by `tools`.
    ListTools(Empty) = "list_tools" => "tools", Session, Required, Anyone, Transient {}
    /// Switches tools of this session off or on, and sets its approval policy. Answered by `ok`.
    SetTools(SetTools) = "set_tools" => "ok", Session, Required, Writer, Writes {
        events: "session_updated";
        errors: InvalidPolicy;
    }
    /// Withdraws a standing approval: the next such call needs a decision again. Answered by `ok`.
    WithdrawApproval(WithdrawApproval) = "withdraw_approval" => "ok", Session, Required, Writer, Writes {
        events: "session_updated";
        errors: NoPendingApproval;
    }
    /// Sets the sampling and the limits of this session's requests. Answered by `ok`.
    SetOptions(SetOptions) = "set_options" => "ok", Session, Required, Writer, Writes { events: "session_updated"; }
    /// Offers tools, replacing those that this connection offered before. Answered by `ok`, with `standby: true` if
    /// another connection hosts the session.
    RegisterTools(RegisterTools) = "register_tools" => "ok", Hosting, Required, Writer, Transient {
        events: "presence_changed" "host_changed" "run_tool";
        errors: InvalidTools;
    }
    /// Offers hooks, replacing those that this connection offered before. Answered by `ok`, with `standby: true` if
    /// another connection hosts the session.
    RegisterHooks(RegisterHooks) = "register_hooks" => "ok", Hosting, Required, Writer, Transient {
        events: "presence_changed" "host_changed";
        work: Hooks;
        errors: InvalidHooks;
    }
    /// Makes this connection, which must have offered tools or hooks, the host. Answered by `ok`.
    TakeOverHost(Empty) = "take_over_host" => "ok", Hosting, Required, Writer, Transient {
        events: "host_changed" "run_tool";
        work: Hooks;
        errors: NothingOffered;
    }
    /// Answers a `hook_call`. Answered by `ok`, with `duplicate: true` when repeated, or `error too_late`.
    HookResult(Box<HookResult>) = "hook_result" => "ok", Session, Required, Writer, Transient {
        work: Turn Compaction Hooks;
        errors: UnknownCall TooLate;
    }
}

/// No payload, or `{}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(type = "Record<string, never>"))]
#[serde(deny_unknown_fields)]
pub struct Empty {}

impl Command {
    /// Returns the row of the command named `name`, or `None` if there is no such command.
    #[must_use]
    pub fn spec_of(name: &str) -> Option<&'static Spec> {
        let name = Self::name_in_table(name);
        Self::TABLE.iter().find(|spec| spec.name == name)
    }

    /// Returns the name that a command has in the table, for any of its names.
    #[must_use]
    pub fn name_in_table(name: &str) -> &str {
        OTHER_NAMES.into_iter().find(|(other, _)| *other == name).map_or(name, |(_, name)| name)
    }

    /// Returns the command's `type`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.spec().name
    }

    /// Returns true if the command, with this session in its envelope, creates one.
    #[must_use]
    pub fn creates(&self, session: Option<&SessionId>) -> bool {
        self.spec().does == Does::Creates && session.is_none()
    }

    /// Returns true if the command changes a session, and so is idempotent by its `id`.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.spec().does.writes()
    }
}
