//! What a v2 client sends. Each command gets exactly one reply, under the same `id`. Every command is declared once, in
//! the table below.
//!
//! Unknown commands and unknown fields are refused by name: a field that is dropped in silence can corrupt a history.

use crate::{
    CallId, CommandId, EntryId, SessionId, TurnId,
    context::ToolDefinition,
    hook::{HookOffer, HookResult},
};
use serde::{Deserialize, Deserializer, Serialize};

#[macro_use]
mod table;

pub use table::{Does, Scope, Sender, Spec};

// The table of commands. After the payload and the name, a row says: the reply, where the command is carried out
// (`Scope`), who may send it (`Sender`), and what it leaves behind (`Does`). Derived from it: the dispatch of commands
// (`Command::route`), what observers are refused, which commands are idempotent and need a long `id`, the replies in
// TypeScript, and the list of writing commands that TypeScript and the page have.
commands! {
    /// Opts into v2. Answered by `welcome`.
    Hello(Hello) = "hello" => "welcome", Connection, Anyone, Transient;
    /// Makes a session or joins one. Answered by `session_opened`.
    OpenSession(OpenSession) = "open_session" => "session_opened", Connection, Anyone, Transient;
    /// Leaves the session; it and a running turn live on. Answered by `ok`.
    CloseSession(Empty) = "close_session" => "ok", Connection, Anyone, Transient;
    /// Lists this user's sessions, newest first. Answered by `sessions`.
    ListSessions(ListSessions) = "list_sessions" => "sessions", Server, Anyone, Transient;
    /// Names a session. Answered by `ok`.
    RenameSession(RenameSession) = "rename_session" => "ok", Session, NonObserver, Writes;
    /// Deletes a session for good. Answered by `ok`.
    DeleteSession(DeleteSession) = "delete_session" => "ok", Server, NonObserver, Transient;
    /// Pages through a session's entries. Answered by `entries`.
    GetEntries(GetEntries) = "get_entries" => "entries", Server, Anyone, Transient;
    /// Asks whether this client has seen everything. Answered by `pong`.
    Ping(Ping) = "ping" => "pong", Connection, Anyone, Transient;
    /// Says something to the model. Answered by `accepted` once it is durable.
    UserInput(UserInput) = "user_input" => "accepted", Session, Owner, Writes;
    /// Stops the running turn. Answered by `ok`.
    CancelTurn(CancelTurn) = "cancel_turn" => "ok", Session, Owner, Cancels;
    /// Asks again after a turn that failed or was cancelled. Answered by `accepted`.
    RetryTurn(RetryTurn) = "retry_turn" => "accepted", Session, Owner, Writes;
    /// Takes waiting inputs out of the line, or puts them in another order. Answered by `ok`.
    EditQueue(EditQueue) = "edit_queue" => "ok", Session, Owner, Writes;
    /// A tool's answer. Answered by `ok`, also when repeated.
    ToolResult(ToolResult) = "tool_result" => "ok", Session, Owner, Ends;
    /// Says that a tool, or a hook, is still at work; resets its time limit. Answered by `ok`.
    CallProgress(CallProgress) = "call_progress" => "ok", Session, Owner, Transient;
    /// Answers an approval. Answered by `error no_pending_approval` until approvals exist.
    ApprovalResponse(ApprovalResponse) = "approval_response" => "ok", Session, Owner, Writes;
    /// Moves to another place of the tree. Answered by `navigated`, after the summary of the branch that is left.
    Navigate(Navigate) = "navigate" => "navigated", Session, Owner, Writes;
    /// Makes a session of its own out of the path to an entry. Answered by `forked`.
    ForkSession(ForkSession) = "fork_session" => "forked", Server, Owner, Writes;
    /// Shows the tree, or the part of it below an entry. Answered by `tree`.
    GetTree(GetTree) = "get_tree" => "tree", Server, Anyone, Transient;
    /// Names an entry, or takes its name away. Answered by `ok { entryId }`.
    SetLabel(SetLabel) = "set_label" => "ok", Session, Owner, Writes;
    /// Keeps data of the client's in the history; the model never sees it. Answered by `ok { entryId }`.
    AppendCustom(AppendCustom) = "append_custom" => "ok", Session, Owner, Writes;
    /// Tells the model something in the user's place, without asking for an answer. Answered by `ok { entryId }`.
    AppendCustomMessage(AppendCustomMessage) = "append_custom_message" => "ok", Session, Owner, Writes;
    /// Asks how full the window is. Answered by `context_info`.
    GetContextInfo(Empty) = "get_context_info" => "context_info", Session, Anyone, Transient;
    /// Asks for exactly what the next request would send. Answered by `context`.
    GetContext(GetContext) = "get_context" => "context", Session, Anyone, Transient;
    /// Compacts now, also where automatic compaction rests. Answered by `ok { jobId }`; the outcome is an event.
    ManualCompact(ManualCompact) = "manual_compact" => "ok", Session, Owner, Writes;
    /// Makes the compaction that `manual_compact` would make and changes nothing. Answered by `compaction_preview` once
    /// its summary is made.
    PreviewCompact(PreviewCompact) = "preview_compact" => "compaction_preview", Session, Owner, Previews;
    /// Stops a compaction; the context is as it was. Answered by `ok`.
    CancelCompaction(CancelCompaction) = "cancel_compaction" => "ok", Session, Owner, Cancels;
    /// Brings back what a compaction took out of the model's sight, with what was said since. Answered by `ok`.
    UndoCompaction(UndoCompaction) = "undo_compaction" => "ok", Session, Owner, Writes;
    /// Keeps an entry word for word through every compaction. Answered by `ok`.
    PinEntry(PinEntry) = "pin_entry" => "ok", Session, Owner, Writes;
    /// Lets a pinned entry go. Answered by `ok`.
    UnpinEntry(PinEntry) = "unpin_entry" => "ok", Session, Owner, Writes;
    /// Chooses the strategy for this session. Answered by `ok`.
    SetContextStrategy(SetContextStrategy) = "set_context_strategy" => "ok", Session, Owner, Writes;
    /// Chooses the model for this session. Answered by `ok`.
    SetModel(SetModel) = "set_model" => "ok", Session, Owner, Writes;
    /// Sets the system prompt of this session. Answered by `ok`.
    SetInstructions(SetInstructions) = "set_instructions" => "ok", Session, Owner, Writes;
    /// Sets sampling and limits of this session's requests. Answered by `ok`.
    SetOptions(SetOptions) = "set_options" => "ok", Session, Owner, Writes;
    /// Offers this client's tools to the model, in place of those it offered before. Answered by `ok`.
    RegisterTools(RegisterTools) = "register_tools" => "ok", Session, Owner, Transient;
    /// Offers this client's hooks, in place of those it offered before. Answered by `ok`.
    RegisterHooks(RegisterHooks) = "register_hooks" => "ok", Session, Owner, Transient;
    /// Answers a `hook_call`. Answered by `ok`.
    HookResult(Box<HookResult>) = "hook_result" => "ok", Session, Owner, Transient;
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
mod tree;

pub use context::{
    CancelCompaction, ContextFormat, GetContext, ManualCompact, PinEntry, PreviewCompact, SetContextStrategy,
    StrategySettings, SummaryKind, UndoCompaction,
};
pub use input::{Input, InputContent, InputItem, InputPart, UserInput, WhenBusy};
pub use tree::{
    AppendCustom, AppendCustomMessage, ForkPosition, ForkSession, GetTree, Navigate, NavigatePosition, SetLabel,
};

payloads! {
    /// Payload of `hello`.
    struct Hello {
        /// 2.
        protocol_version: u32,
        /// Stable per tab: the same one replaces its own half-open connection silently.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client_id: Option<String>,
        /// Who the client is, for the operator.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client: Option<Software>,
        /// A one-time ticket from `POST /api/tickets`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ticket: Option<String>,
        /// A token of `AUTH_TOKENS`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<String>,
    }

    /// A program and its version.
    struct Software {
        /// Its name.
        name: String,
        /// Its version.
        version: String,
    }

    /// Payload of `open_session`.
    struct OpenSession {
        /// The session to join; absent to make one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session_id: Option<SessionId>,
        /// Owner (the default) or observer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        role: Option<SessionRole>,
        /// Whether to take the session from its present owner.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        takeover: Option<bool>,
        /// Where this client left off.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resume: Option<Resume>,
        /// How many of the newest entries the reply should carry; absent: 50.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        entries: Option<u32>,
        /// Whether to send deltas (the default) or only whole entries.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deltas: Option<bool>,
        /// Tools to offer, as `register_tools` would.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tools: Option<Vec<ToolOffer>>,
        /// Hooks to offer, as `register_hooks` would.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hooks: Option<Vec<HookOffer>>,
    }

    /// A place in a session's log and in the items that were running.
    struct Resume {
        /// Names the log.
        epoch: String,
        /// The last durable event that was seen.
        seq: u64,
        /// How much was seen of each item without an entry. One of which only `item_started` came is named with part 0 and
        /// offset 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        items: Option<Vec<ResumeItem>>,
    }

    /// A place in a running item.
    struct ResumeItem {
        /// The item.
        item_id: EntryId,
        /// Its part.
        part: u32,
        /// UTF-16 code units seen of that part.
        offset: u64,
    }

    /// Payload of `list_sessions`.
    struct ListSessions {
        /// `nextCursor` of the page before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cursor: Option<String>,
        /// Most sessions to return, 1 to 200; absent: 50.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u32>,
        /// Text that the name must contain.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        search: Option<String>,
        /// Whether to send `session_changed` events from now on; `false` to stop. Absent: as it was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        watch: Option<bool>,
    }

    /// Payload of `rename_session`.
    struct RenameSession {
        /// The session; absent for the open one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session_id: Option<SessionId>,
        /// Its new name, 1 to 200 characters.
        name: String,
    }

    /// Payload of `delete_session`.
    struct DeleteSession {
        /// The session.
        session_id: SessionId,
    }

    /// Payload of `get_entries`.
    struct GetEntries {
        /// The session; absent for the open one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session_id: Option<SessionId>,
        /// Only entries older than this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<EntryId>,
        /// Only entries newer than this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<EntryId>,
        /// Most entries to return, 1 to 500; absent: 100.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u32>,
        /// Only entries on the path to the leaf.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<bool>,
    }

    /// Payload of `ping`.
    struct Ping {
        /// The last durable event this client has seen.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seq: Option<u64>,
    }

    /// Payload of `edit_queue`.
    struct EditQueue {
        /// Waiting inputs to take out, by the ids of their commands.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remove: Option<Vec<CommandId>>,
        /// The waiting inputs that are left, all of them, first in line first.
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
        call_id: CallId,
        /// The tool's answer, as text for the model.
        output: String,
        /// Whether the tool failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        is_error: Option<bool>,
    }

    /// Payload of `call_progress`.
    struct CallProgress {
        /// The call.
        call_id: CallId,
        /// What it is doing, for the user.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    }

    /// Payload of `approval_response`.
    struct ApprovalResponse {
        /// The approval.
        approval_id: String,
        /// The decision.
        review: String,
        /// What to tell the model when it is denied.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        custom_deny_message: Option<String>,
    }

    /// Payload of `set_model`.
    struct SetModel {
        /// The model's name, as the provider knows it.
        model: String,
        /// How long it should think: the provider's own word.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reasoning_effort: Option<String>,
    }

    /// Payload of `set_instructions`.
    struct SetInstructions {
        /// The system prompt; empty for none.
        instructions: String,
    }

    /// Payload of `set_options`. What is absent goes back to the provider's default.
    struct SetOptions {
        /// 0 to 2.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        temperature: Option<f64>,
        /// Most tokens an answer may have, at least 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_output_tokens: Option<u64>,
    }

    /// Payload of `register_tools`.
    struct RegisterTools {
        /// The tools; empty to offer none.
        tools: Vec<ToolOffer>,
    }

    /// Payload of `register_hooks`.
    struct RegisterHooks {
        /// The hooks, asked in this order; empty to offer none.
        hooks: Vec<HookOffer>,
    }

    /// A tool that a client offers.
    struct ToolOffer {
        /// Its name: 1 to 64 of `A-Za-z0-9_-`.
        name: String,
        /// What it does, for the model.
        description: String,
        /// JSON Schema of its arguments, an object.
        #[cfg_attr(feature = "codegen", ts(type = "Record<string, unknown>"))]
        parameters: serde_json::Value,
        /// Milliseconds a call may take; absent: the server's default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
        /// Whether a call may safely be made twice.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idempotent: Option<bool>,
    }
}

impl ToolOffer {
    /// The part of the offer that the model is told.
    #[must_use]
    pub fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: self.name.clone(),
            description: self.description.clone(),
            parameters: self.parameters.clone(),
        }
    }
}

/// A field that may be `null` and then says so, told from one that is not there.
pub(crate) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// A field that may be `null` and must be there: serde would take a missing one for `null`.
fn present_or_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Option::deserialize(deserializer)
}

/// What a connection is to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum SessionRole {
    /// May write. One a session.
    Owner,
    /// Sees the same events and may only read.
    Observer,
}
