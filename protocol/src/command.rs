//! The commands of a v2 client. Each command gets exactly one reply, under the same `id`. Every command is declared
//! once, in the table below; [`outcomes`] adds the events and errors of each.
//!
//! Unknown commands and unknown fields are refused by name: silently ignoring a field can corrupt a history.

use crate::{
    ApprovalId, CallId, CommandId, EntryId, TurnId,
    approval::ApprovalPolicy,
    hook::{HookOffer, HookResult},
};
use serde::{Deserialize, Serialize};

#[macro_use]
mod table;
pub mod outcomes;

pub use table::{Address, Does, OTHER_NAMES, Scope, Sender, Spec};

// The table of commands. To add one, add a row; its payload is declared below or in a file of `command/`. `table.rs`
// has the values of each column. The tests ask for what the compiler does not: "Answered by …" in the doc comment, a
// row in `outcomes.rs`, an example in `protocol/examples/v2`, the generated files, and the list of writing commands in
// protocol/README.md.
//
// After the payload and the name, a row states:
// - the reply. A reply of its own is a variant in `reply.rs`, and an arm in `reply/duplicate.rs`;
// - `Scope`: where the command is executed, and so where the compiler asks for its arm. `Session`: in the agent loop,
//   `src/core/agent_loop/kernel/commands.rs`. `Hosting`: in its actor, `src/runtime/actor/hosting.rs`. `Connection` and
//   `Server`: in `src/server/v2.rs`;
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

macro_rules! payloads {
    ($($(#[$doc:meta])* struct $name:ident { $($(#[$attr:meta])* $field:ident: $ty:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
            #[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
            #[cfg_attr(feature = "codegen", ts(optional_fields))]
            #[serde(rename_all = "camelCase", deny_unknown_fields)]
            pub struct $name { $($(#[$attr])* pub $field: $ty,)* }
        )*
    };
}

mod context;
mod input;
mod tool;
mod tree;

pub use context::{
    CancelCompaction, ContextFormat, GetContext, PinEntry, PreviewCompaction, SetContextStrategy, StartCompaction,
    StrategySettings, SummaryKind, SummaryMode, UndoCompaction,
};
pub use input::{Input, InputContent, InputItem, InputPart, UserInput, WhenBusy};
pub use tool::{Decision, ToolAnnotations, ToolOffer};
pub use tree::{
    AppendCustom, AppendCustomMessage, ForkPosition, ForkSession, GetTree, Navigate, NavigatePosition, SetLabel,
};

payloads! {
    /// Payload of `hello`.
    struct Hello {
        /// 2.
        protocol_version: u32,
        /// Stable per tab, and different in every tab: a newer connection of the same client hosts the tools and hooks
        /// that the older one hosted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client_id: Option<String>,
        /// The client program, for the operator.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client: Option<Software>,
        /// A one-time ticket from `POST /api/tickets`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ticket: Option<String>,
        /// A token from `AUTH_TOKENS`, or a signed one (JWT).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<String>,
    }

    /// Payload of `authenticate`: one of its fields.
    struct Authenticate {
        /// A one-time ticket from `POST /api/tickets`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ticket: Option<String>,
        /// A token from `AUTH_TOKENS`, or a signed one (JWT).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<String>,
    }

    /// A program and its version.
    #[derive(Eq, Hash)]
    struct Software {
        /// Its name.
        name: String,
        /// Its version.
        version: String,
    }

    /// Payload of `open_session`.
    struct OpenSession {
        /// Writer (the default) or observer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        role: Option<SessionRole>,
        /// The position at which this client left off.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resume: Option<Resume>,
        /// The number of newest entries in the reply; absent: 50.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        entries: Option<u32>,
        /// Sends deltas (the default), or only whole entries.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deltas: Option<bool>,
        /// Tools to offer, as with `register_tools`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tools: Option<Vec<ToolOffer>>,
        /// Hooks to offer, as with `register_hooks`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hooks: Option<Vec<HookOffer>>,
    }

    /// A position in a session's log and in the items that were running.
    struct Resume {
        /// Identifies the log.
        epoch: String,
        /// The last durable event received.
        seq: u64,
        /// The position in each item without an entry. An item of which only `item_started` came has part 0 and offset
        /// 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        items: Option<Vec<ResumeItem>>,
    }

    /// A position in a running item.
    struct ResumeItem {
        /// The item.
        item_id: EntryId,
        /// Its part.
        part: u32,
        /// The UTF-16 code units received of that part.
        offset: u64,
    }

    /// Payload of `list_sessions`.
    struct ListSessions {
        /// `nextCursor` of the previous page.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cursor: Option<String>,
        /// The maximum number of sessions, 1 to 200; absent: 50.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u32>,
        /// Text that the name must contain.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        search: Option<String>,
        /// Sends `session_changed` events from now on; `false` stops them; absent: unchanged.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        watch: Option<bool>,
    }

    /// Payload of `rename_session`.
    struct RenameSession {
        /// Its new name, 1 to 200 characters.
        name: String,
    }

    /// Payload of `get_entries`.
    struct GetEntries {
        /// Only entries older than this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<EntryId>,
        /// Only entries newer than this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<EntryId>,
        /// The maximum number of entries, 1 to 500; absent: 100.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u32>,
        /// Only entries on the path to the leaf.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<bool>,
        /// Only this entry. If its tool result was cut, `cut.whole` has all of it. One entry a command: a result is
        /// at most as long as the frame that brought it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        entry_id: Option<EntryId>,
    }

    /// Payload of `search_history`.
    struct SearchHistory {
        /// Words, phrases in quotes, and beginnings of words with a star, all of which an entry must have: 1 to 1,000
        /// characters. A word with punctuation in it, such as a path, is a phrase.
        query: String,
        /// The maximum number of hits, 1 to 100; absent: 20.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u32>,
    }

    /// Payload of `ping`.
    struct Ping {
        /// The last durable event that this client received.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seq: Option<u64>,
    }

    /// Payload of `edit_queue`.
    struct EditQueue {
        /// Queued inputs to remove, by the ids of their commands.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remove: Option<Vec<CommandId>>,
        /// All remaining queued inputs, in the new order.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        order: Option<Vec<CommandId>>,
    }

    /// Payload of `cancel_turn`.
    struct CancelTurn {
        /// The turn; absent for the running one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn_id: Option<TurnId>,
    }

    /// Payload of `retry_turn`.
    struct RetryTurn {
        /// The turn; absent for the last one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn_id: Option<TurnId>,
    }

    /// Payload of `tool_result`.
    struct ToolResult {
        /// The call.
        #[serde(rename = "toolCallId")]
        call_id: CallId,
        /// The tool's result, as text for the model.
        output: String,
        /// True if the tool failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        is_error: Option<bool>,
    }

    /// Payload of `call_progress`.
    struct CallProgress {
        /// The tool call; absent if a hook is at work.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool_call_id: Option<CallId>,
        /// The hook call; absent if a tool is at work.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hook_call_id: Option<CallId>,
        /// Its current activity, for the user.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    }

    /// Payload of `approval_response`.
    struct ApprovalResponse {
        /// The approval.
        approval_id: ApprovalId,
        /// The decision.
        review: Decision,
        /// The hash of the call that was shown. The answer is refused if the approval is about another one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments_hash: Option<String>,
        /// The message to the model if it is denied.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        custom_deny_message: Option<String>,
    }

    /// Payload of `set_tools`. Absent fields do not change.
    struct SetTools {
        /// The names of the tools that are switched off: at most 256.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        off: Option<Vec<String>>,
        /// The session's own approval policy; without rules to remove it. It can only be stricter than the
        /// deployment's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approvals: Option<ApprovalPolicy>,
    }

    /// Payload of `withdraw_approval`.
    struct WithdrawApproval {
        /// The approval that got the lasting answer.
        approval_id: ApprovalId,
    }

    /// Payload of `set_model`.
    struct SetModel {
        /// The model's name, as used by the provider.
        model: String,
        /// The reasoning effort, in the provider's terms.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reasoning_effort: Option<String>,
    }

    /// Payload of `set_instructions`.
    struct SetInstructions {
        /// The system prompt; empty for none, absent for the deployment's own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instructions: Option<String>,
    }

    /// Payload of `set_options`. Absent fields return to the provider's default.
    struct SetOptions {
        /// 0 to 2.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        temperature: Option<f64>,
        /// The maximum number of tokens of an answer, at least 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_output_tokens: Option<u64>,
    }

    /// Payload of `register_tools`.
    struct RegisterTools {
        /// The tools; empty for none.
        tools: Vec<ToolOffer>,
    }

    /// Payload of `register_hooks`.
    struct RegisterHooks {
        /// The hooks, called in this order; empty for none.
        hooks: Vec<HookOffer>,
    }
}

/// The role of a connection in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum SessionRole {
    /// May write. Any number of connections may.
    Writer,
    /// Receives the same events and may only read.
    Observer,
}
