//! Error codes and close codes, each declared once with cause and remedy.

use serde::{Deserialize, Serialize};
use serde_json::Value;

macro_rules! codes {
    ($($variant:ident $name:literal retriable: $retriable:literal, $cause:literal, $remedy:literal;)*) => {
        /// What went wrong. Clients treat codes they do not know by `retriable`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
        pub enum ErrorCode {
            $(#[doc = $cause] #[serde(rename = $name)] $variant,)*
        }

        impl ErrorCode {
            /// Every code, in the order of this file.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The code as it stands on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Whether the same command, sent again unchanged, may succeed.
            #[must_use]
            pub fn is_retriable(self) -> bool {
                match self { $(Self::$variant => $retriable,)* }
            }

            /// What causes it.
            #[must_use]
            pub fn cause(self) -> &'static str {
                match self { $(Self::$variant => $cause,)* }
            }

            /// What to do about it.
            #[must_use]
            pub fn remedy(self) -> &'static str {
                match self { $(Self::$variant => $remedy,)* }
            }
        }
    };
}

codes! {
    // Frames
    InvalidJson "invalid_json" retriable: false, "The frame is not JSON.", "Send one JSON object a text frame.";
    InvalidFrame "invalid_frame" retriable: false, "The frame is JSON of another shape than `{ id, type, payload?, seq? }`.", "Send an object with the texts `id` and `type`.";
    InvalidId "invalid_id" retriable: false, "The frame's `id` is not one: writing commands need 16 to 64 of `A-Za-z0-9._:-`, others 1 to 64, and `s_` is the server's.", "Use a UUID.";
    UnknownCommand "unknown_command" retriable: false, "There is no command of this `type`.", "Look at `welcome.features` and the command's spelling.";
    UnknownField "unknown_field" retriable: false, "The command has no such field.", "Leave it out, or mend its spelling; `details.field` names it.";
    MissingField "missing_field" retriable: false, "A field that the command needs is not there.", "Send it; `details.field` names it.";
    InvalidField "invalid_field" retriable: false, "A field's value is of the wrong type or not allowed.", "Send what the schema allows; `details.field` names the field.";
    DuplicateKey "duplicate_key" retriable: false, "An object has the same key twice.", "Send each key once.";
    TooDeep "too_deep" retriable: false, "Arrays and objects are nested too deeply.", "Send a flatter value; `welcome.limits.depthMax` is the limit.";
    BinaryFrame "binary_frame" retriable: false, "The frame is binary.", "Send text frames.";
    RateLimited "rate_limited" retriable: true, "This client sends more commands a minute than it may.", "Wait `retryAfterMs`.";
    // Handshake and sessions
    UnsupportedVersion "unsupported_version" retriable: false, "`protocolVersion` is not 2.", "Speak version 2, or v1 without `hello`.";
    AlreadyGreeted "already_greeted" retriable: false, "This connection has said `hello` before, or has begun to speak v1.", "Send `hello` once, first.";
    NotGreeted "not_greeted" retriable: false, "v2 was negotiated and the first frame was not `hello`.", "Send `hello` first.";
    Unauthenticated "unauthenticated" retriable: false, "The credentials are missing, wrong or used up.", "Get a new ticket, or send a token of `AUTH_TOKENS`.";
    Forbidden "forbidden" retriable: false, "These credentials do not allow this.", "Use others.";
    NoSession "no_session" retriable: false, "This connection has no open session.", "Send `open_session` first, or name a session.";
    SessionAlreadyOpen "session_already_open" retriable: false, "This connection has an open session.", "Send `close_session` first, or use another connection.";
    SessionNotFound "session_not_found" retriable: false, "There is no such session among yours.", "Look at `list_sessions`.";
    SessionOwned "session_owned" retriable: false, "Another connection owns this session.", "Join as observer, or send `takeover: true`.";
    ReadOnly "read_only" retriable: false, "Observers may only read.", "Open the session as owner.";
    IdempotencyConflict "idempotency_conflict" retriable: false, "This `id` was used before with other content.", "Use a new `id` for every new command.";
    NotSupported "not_supported" retriable: false, "This server cannot do that yet.", "Look at `welcome.features`.";
    EntryNotFound "entry_not_found" retriable: false, "There is no such entry in this session.", "Look at `get_entries`.";
    SessionDamaged "session_damaged" retriable: false, "A stored record of this session does not read back as it was written, so it is read-only.", "Read the rest with `get_entries` without `path`, which passes over what is damaged and names it; the operator restores the database from a backup.";
    LeafMoved "leaf_moved" retriable: false, "A message was appended after the entry that `ifLeaf` names.", "Look at what was said, then send the input again.";
    NavigationCancelled "navigation_cancelled" retriable: true, "The summary of the branch that is left was cancelled, or a hook is against the move; the session stands where it stood.", "Navigate again, or without `summarize`; the message names the hook.";
    // Turns
    EmptyInput "empty_input" retriable: false, "The input has no text and no picture.", "Say something.";
    InputTooLarge "input_too_large" retriable: false, "The input alone does not fit into the model's window.", "Send less, or choose a model with a larger window.";
    QueueFull "queue_full" retriable: true, "Too many inputs are waiting already.", "Wait for a turn to finish.";
    InputCancelled "input_cancelled" retriable: true, "`cancel_turn` withdrew the input while hooks looked \
    at it; nothing of it is stored.", "Send it again if it is still wanted.";
    NotQueued "not_queued" retriable: false, "No input of this id is waiting.", "Look at `queue_changed`; it may have been taken already.";
    TurnRunning "turn_running" retriable: true, "A turn is running.", "Wait for `turn_finished`, or cancel it.";
    NoTurn "no_turn" retriable: false, "No such turn is running.", "Nothing needs to be done.";
    NothingToRetry "nothing_to_retry" retriable: false, "The last turn ended with an answer, or there is none.", "Send new input.";
    UnknownCall "unknown_call" retriable: false, "There is no such tool call in this session.", "Answer calls by the `callId` of `tool_call`.";
    NoPendingApproval "no_pending_approval" retriable: false, "No approval is waiting for an answer.", "Nothing needs to be done.";
    InvalidTools "invalid_tools" retriable: false, "A tool's name, schema or number is not allowed.", "Mend the tool that `details` names.";
    TooManyToolRounds "too_many_tool_rounds" retriable: true, "The model kept calling tools without answering.", "Retry, or ask differently.";
    Interrupted "interrupted" retriable: true, "The server stopped in the middle of the turn.", "Send `retry_turn`.";
    // Context
    ContextOverflow "context_overflow" retriable: false, "The request does not fit into the model's window.", "Send `manual_compact`, then `retry_turn`; or choose a larger model.";
    NothingToCompact "nothing_to_compact" retriable: false, "What could be compacted is too little to gain anything.", "Go on; there is room.";
    CompactionRunning "compaction_running" retriable: true, "The session is being compacted.", "Wait for `context_compacted` or `compaction_failed`.";
    NoCompaction "no_compaction" retriable: false, "No such compaction is running.", "Nothing needs to be done.";
    CompactionFailed "compaction_failed" retriable: true, "The context could not be compacted; it is as it was.", "Try again, or see the message for the reason.";
    CompactionCancelled "compaction_cancelled" retriable: true, "The compaction was cancelled; the context is as it was.", "Nothing needs to be done.";
    CompactionVoid "compaction_void" retriable: true, "What the compaction had read is no longer what the model sees: the branch was left, a compaction was undone, or another strategy or model was chosen.", "Nothing needs to be done; a new one is made when it is due.";
    PreviewNotFound "preview_not_found" retriable: false, "There is no such preview: it has expired, another one took its place, or the session was reopened since.", "Send `preview_compact` again.";
    HistoryMoved "history_moved" retriable: false, "What the preview shows is no longer what the model sees.", "Send `preview_compact` again.";
    NothingToUndo "nothing_to_undo" retriable: false, "There is no compaction on this branch that is in effect, or the one that was named is undone already.", "Look at the compactions among `get_entries`.";
    TooManyPins "too_many_pins" retriable: false, "As many entries are pinned as may be.", "Send `unpin_entry` for one that matters less.";
    UnknownStrategy "unknown_strategy" retriable: false, "There is no such strategy.", "Use one that the message lists.";
    UnknownModel "unknown_model" retriable: false, "The window of this model is not known.", "Set CONTEXT_WINDOW on the server, or choose a model that it knows.";
    // Hooks
    InvalidHooks "invalid_hooks" retriable: false, "A hook's name, event or number is not allowed.", "Mend the hook that `details` names.";
    InvalidPatch "invalid_patch" retriable: false, "A patch has an op that is unknown, not allowed here, or gives up the provider's cache without saying why.", "Mend the op that the message names, by its place in the patch, from 0, and its name.";
    HookFailed "hook_failed" retriable: true, "A hook failed, or answered what is not allowed.", "Retry; whoever runs the hook that the message names must look at it.";
    HookTimeout "hook_timeout" retriable: true, "A hook did not answer in time.", "Retry; give the hook more time (`timeoutMs`) or let it send `call_progress`.";
    HookUnavailable "hook_unavailable" retriable: true, "The client whose hook is required is not connected.", "Connect it, then retry.";
    // The model's server
    UpstreamUnreachable "upstream_unreachable" retriable: true, "The model's server could not be reached.", "Retry; check OPENAI_BASE_URL.";
    UpstreamTimeout "upstream_timeout" retriable: true, "The model's server said nothing for too long.", "Retry; see UPSTREAM_FIRST_EVENT_TIMEOUT_SECS and UPSTREAM_IDLE_TIMEOUT_SECS.";
    UpstreamAuth "upstream_auth" retriable: false, "The model's server refused our credentials.", "Check OPENAI_API_KEY on the server.";
    UpstreamQuota "upstream_quota" retriable: false, "The account at the model's provider has no quota left.", "See to the account.";
    UpstreamRateLimited "upstream_rate_limited" retriable: true, "The model's provider limits the rate.", "Wait `retryAfterMs`, then retry.";
    UpstreamOverloaded "upstream_overloaded" retriable: true, "The model's server is overloaded.", "Retry later.";
    UpstreamNotFound "upstream_not_found" retriable: false, "The model's server does not know this model or address.", "Check MODEL, OPENAI_BASE_URL and OPENAI_API.";
    UpstreamRejected "upstream_rejected" retriable: false, "The model's server refused the request as wrong.", "Check the options, tools and model.";
    UpstreamError "upstream_error" retriable: true, "The model's server failed.", "Retry.";
    UpstreamTruncated "upstream_truncated" retriable: true, "The answer stopped in the middle.", "Retry.";
    UpstreamEmpty "upstream_empty" retriable: true, "The model's server ended its answer without saying anything.", "Retry.";
    UpstreamMalformed "upstream_malformed" retriable: true, "The model's server answered what is not of its protocol.", "Check OPENAI_BASE_URL and OPENAI_API.";
    ContentFiltered "content_filtered" retriable: false, "The provider's filter refused the request or the answer.", "Ask differently.";
    // The server
    StoreFailed "store_failed" retriable: true, "The store could not write; nothing was acknowledged.", "Reopen the session; the operator must look at disk and log.";
    Overloaded "overloaded" retriable: true, "The server has as many connections or sessions as it may.", "Try again later.";
    ShuttingDown "shutting_down" retriable: true, "The server is stopping.", "Reconnect and resume.";
    Internal "internal" retriable: true, "A fault of ours.", "Report it with the server's log of that time.";
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Payload of `error`, and of `turn_finished.error`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct ErrorBody {
    /// What went wrong, for programs.
    pub code: ErrorCode,
    /// What went wrong, with which value, and what to do about it, for people.
    pub message: String,
    /// Whether the same command, sent again unchanged, may succeed.
    pub retriable: bool,
    /// How long to wait before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// More for programs: the offending `field`, the running `jobId`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "codegen", ts(type = "Record<string, unknown>"))]
    pub details: Option<Value>,
}

impl ErrorBody {
    /// An error of this code.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retriable: code.is_retriable(), retry_after_ms: None, details: None }
    }

    /// The same error, naming the offending field.
    #[must_use]
    pub fn with_field(mut self, field: impl Into<String>) -> Self {
        self.details = Some(serde_json::json!({ "field": field.into() }));
        self
    }

    /// The same error with these details.
    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// The same error, naming how long to wait.
    #[must_use]
    pub fn with_retry_after_ms(mut self, millis: u64) -> Self {
        self.retry_after_ms = Some(millis);
        self
    }
}

/// `details` of a v1 error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct ErrorDetails {
    /// What went wrong, for programs.
    pub code: ErrorCode,
    /// Whether the same command, sent again unchanged, may succeed.
    pub retriable: bool,
    /// The offending field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// How long to wait before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

/// Why the server closes a socket. 44xx: do not blindly reconnect. 45xx and 1011 to 1014: reconnect and resume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum CloseCode {
    /// Done.
    Normal = 1000,
    /// The client broke RFC 6455.
    Protocol = 1002,
    /// A text frame was not UTF-8.
    InvalidUtf8 = 1007,
    /// A message was larger than `MESSAGE_BYTES_MAX`.
    TooLarge = 1009,
    /// A fault of ours.
    Internal = 1011,
    /// The server restarts: reconnect and resume.
    Restarting = 1012,
    /// Too many connections: come back later.
    Overloaded = 1013,
    /// Too many bad frames in a row.
    BadFrames = 4400,
    /// Credentials: get a new ticket.
    Credentials = 4401,
    /// Not allowed.
    Forbidden = 4403,
    /// The session was deleted.
    NoSuchSession = 4404,
    /// No `hello` in time.
    NoHello = 4408,
    /// Another owner took over.
    TakenOver = 4409,
    /// Rate limit.
    RateLimit = 4429,
    /// A reader that is too slow: reconnect and resume.
    SlowReader = 4504,
    /// No pong: reconnect and resume.
    NoPong = 4508,
}

impl CloseCode {
    /// Every close code, in the order of their numbers.
    pub const ALL: &'static [Self] = &[
        Self::Normal,
        Self::Protocol,
        Self::InvalidUtf8,
        Self::TooLarge,
        Self::Internal,
        Self::Restarting,
        Self::Overloaded,
        Self::BadFrames,
        Self::Credentials,
        Self::Forbidden,
        Self::NoSuchSession,
        Self::NoHello,
        Self::TakenOver,
        Self::RateLimit,
        Self::SlowReader,
        Self::NoPong,
    ];

    /// The number on the wire.
    #[must_use]
    pub fn code(self) -> u16 {
        self as u16
    }
}
