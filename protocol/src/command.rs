//! The commands of a v2 client. Each command gets exactly one reply, under the same `id`. Every command is declared
//! once, in the table below; [`outcomes`] adds the events and errors of each.
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
// has the values of each column. The tests ask for what the compiler does not: "Answered by …" in the doc comment, a
// row in `outcomes.rs`, an example in `protocol/examples/v2`, the generated files, and the list of writing commands in
// protocol/README.md.
//
// After the payload and the name, a row states:
// - the reply. A reply of its own is a variant in `reply.rs`, and an arm in `reply/duplicate.rs`;
// - `Scope`: where the command is executed, and so where the compiler asks for its arm. `Session`: in the agent loop,
//   `src/core/agent_loop/kernel/commands.rs`. `Hosting`: in its actor, `src/runtime/actor/hosting.rs`. `Connection` and
//   `Server`: in `src/server/commands.rs`;
// - `Address`: whether its envelope names a session;
// - `Sender`: who may send it. `Writer` for what changes a session (in the scope `Server` this refuses only observers),
//   `Anyone` for what only reads;
// - `Does`: what it leaves behind. `Writes` if it must happen once for each `id`, `Transient` if a copy does no harm.
//
// Derived from it: the dispatch of commands (`Command::route`), what observers are refused, which commands are
// idempotent and need a long `id`, the replies in TypeScript, and the list of writing commands that TypeScript and the
// page have.
commands! {
    /// Opts into v2. Answered by `welcome`.
    Hello(Hello) = "hello" => "welcome", Connection, None, Anyone, Transient;
    /// Renews this connection's credentials before they expire. Answered by `ok`.
    Authenticate(Authenticate) = "authenticate" => "ok", Connection, None, Anyone, Transient;
    /// Subscribes to the session that it names, or creates one. Answered by `session_opened`.
    OpenSession(OpenSession) = "open_session" => "session_opened", Connection, Optional, Anyone, Creates;
    /// Unsubscribes from a session, which continues with its running turn. Answered by `ok`.
    CloseSession(Empty) = "close_session" => "ok", Connection, Required, Anyone, Transient;
    /// Lists this user's sessions, newest first. Answered by `sessions`.
    ListSessions(ListSessions) = "list_sessions" => "sessions", Server, None, Anyone, Transient;
    /// Lists the models that a session may choose. Answered by `models`.
    ListModels(Empty) = "list_models" => "models", Server, None, Anyone, Transient;
    /// Renames a session. Answered by `ok`.
    RenameSession(RenameSession) = "rename_session" => "ok", Session, Required, NonObserver, Writes;
    /// Deletes a session permanently. Answered by `ok`.
    DeleteSession(Empty) = "delete_session" => "ok", Server, Required, NonObserver, Transient;
    /// Pages through a session's entries. Answered by `entries`.
    GetEntries(GetEntries) = "get_entries" => "entries", Server, Required, Anyone, Transient;
    /// Searches what was said in a session or, if it names none, in all of this user's. Answered by `history_hits`.
    SearchHistory(SearchHistory) = "search_history" => "history_hits", Server, Optional, Anyone, Transient;
    /// Checks the connection and, if it names one, a session for events that were missed. Answered by `pong`.
    Ping(Ping) = "ping" => "pong", Connection, Optional, Anyone, Transient;
    /// Sends input to the model. Answered by `accepted` once it is durable.
    UserInput(UserInput) = "user_input" => "accepted", Session, Required, Writer, Writes;
    /// Cancels the running turn. Answered by `ok`.
    CancelTurn(CancelTurn) = "cancel_turn" => "ok", Session, Required, Writer, Cancels;
    /// Retries a turn that failed or was cancelled. Answered by `accepted`.
    RetryTurn(RetryTurn) = "retry_turn" => "accepted", Session, Required, Writer, Writes;
    /// Removes queued inputs, or reorders them. Answered by `ok`.
    EditQueue(EditQueue) = "edit_queue" => "ok", Session, Required, Writer, Writes;
    /// Returns a tool's result. Answered by `ok`, with `duplicate: true` when repeated, or `error too_late`.
    ToolResult(ToolResult) = "tool_result" => "ok", Session, Required, Writer, Ends;
    /// Reports that a tool, or a hook, is still running; restarts its timeout. Answered by `ok`.
    CallProgress(CallProgress) = "call_progress" => "ok", Session, Required, Writer, Transient;
    /// Decides on a tool call that a person must allow. Answered by `ok`, or `error too_late` if someone else did.
    ApprovalResponse(ApprovalResponse) = "approval_response" => "ok", Session, Required, Writer, Writes;
    /// Moves to another entry of the tree. Answered by `navigated`, after the summary of the abandoned branch.
    Navigate(Navigate) = "navigate" => "navigated", Session, Required, Writer, Writes;
    /// Creates a new session from the path to an entry. Answered by `forked`.
    ForkSession(ForkSession) = "fork_session" => "forked", Server, Required, Writer, Writes;
    /// Returns the tree, or the part below an entry. Answered by `tree`.
    GetTree(GetTree) = "get_tree" => "tree", Server, Required, Anyone, Transient;
    /// Sets or removes an entry's label. Answered by `ok { entryId }`.
    SetLabel(SetLabel) = "set_label" => "ok", Session, Required, Writer, Writes;
    /// Stores the client's data in the history; the model never sees it. Answered by `ok { entryId }`.
    AppendCustom(AppendCustom) = "append_custom" => "ok", Session, Required, Writer, Writes;
    /// Adds a message in the user's role, without starting a turn. Answered by `ok { entryId }`.
    AppendCustomMessage(AppendCustomMessage) = "append_custom_message" => "ok", Session, Required, Writer, Writes;
    /// Returns how full the window is. Answered by `context_info`.
    GetContextInfo(Empty) = "get_context_info" => "context_info", Session, Required, Anyone, Transient;
    /// Returns exactly what the next request would send. Answered by `context`.
    GetContext(GetContext) = "get_context" => "context", Session, Required, Anyone, Transient;
    /// Compacts now, even while the circuit breaker is open. `manual_compact` is another name of it.
    /// Answered by `ok { jobId }`; the outcome is an event.
    StartCompaction(StartCompaction) = "start_compaction" => "ok", Session, Required, Writer, Writes;
    /// Computes the compaction that `start_compaction` would make, without changes. Answered by `compaction_preview`
    /// once its summary is ready.
    PreviewCompaction(PreviewCompaction) =
        "preview_compaction" => "compaction_preview", Session, Required, Writer, Previews;
    /// Cancels a compaction; the context is unchanged. Answered by `ok`.
    CancelCompaction(CancelCompaction) = "cancel_compaction" => "ok", Session, Required, Writer, Cancels;
    /// Restores what a compaction removed from the context, with everything said since. Answered by `ok`.
    UndoCompaction(UndoCompaction) = "undo_compaction" => "ok", Session, Required, Writer, Writes;
    /// Keeps an entry verbatim through every compaction. Answered by `ok`.
    PinEntry(PinEntry) = "pin_entry" => "ok", Session, Required, Writer, Writes;
    /// Unpins an entry. Answered by `ok`.
    UnpinEntry(PinEntry) = "unpin_entry" => "ok", Session, Required, Writer, Writes;
    /// Sets the strategy of this session. Answered by `ok`.
    SetContextStrategy(SetContextStrategy) = "set_context_strategy" => "ok", Session, Required, Writer, Writes;
    /// Sets the model of this session. Answered by `ok`.
    SetModel(SetModel) = "set_model" => "ok", Session, Required, Writer, Writes;
    /// Sets the system prompt of this session. Answered by `ok`.
    SetInstructions(SetInstructions) = "set_instructions" => "ok", Session, Required, Writer, Writes;
    /// Lists the tools that this session has, those that are switched off included. Answered by `tools`.
    ListTools(Empty) = "list_tools" => "tools", Session, Required, Anyone, Transient;
    /// Switches tools of this session off or on, and sets its approval policy. Answered by `ok`.
    SetTools(SetTools) = "set_tools" => "ok", Session, Required, Writer, Writes;
    /// Withdraws a lasting answer to an approval: the next such call is asked about again. Answered by `ok`.
    WithdrawApproval(WithdrawApproval) = "withdraw_approval" => "ok", Session, Required, Writer, Writes;
    /// Sets the sampling and the limits of this session's requests. Answered by `ok`.
    SetOptions(SetOptions) = "set_options" => "ok", Session, Required, Writer, Writes;
    /// Offers tools, replacing those that this connection offered before. Answered by `ok`, with `standby: true` if
    /// another connection hosts the session.
    RegisterTools(RegisterTools) = "register_tools" => "ok", Hosting, Required, Writer, Transient;
    /// Offers hooks, replacing those that this connection offered before. Answered by `ok`, with `standby: true` if
    /// another connection hosts the session.
    RegisterHooks(RegisterHooks) = "register_hooks" => "ok", Hosting, Required, Writer, Transient;
    /// Makes this connection, which must have offered tools or hooks, the host. Answered by `ok`.
    TakeOverHost(Empty) = "take_over_host" => "ok", Hosting, Required, Writer, Transient;
    /// Answers a `hook_call`. Answered by `ok`, with `duplicate: true` when repeated, or `error too_late`.
    HookResult(Box<HookResult>) = "hook_result" => "ok", Session, Required, Writer, Transient;
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
