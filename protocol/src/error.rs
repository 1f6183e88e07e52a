//! Error codes and close codes, each declared once with cause and remedy.

use crate::ids::CommandId;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

pub mod unknown;

macro_rules! codes {
    ($($variant:ident $name:literal retriable: $retriable:literal, $cause:literal, $remedy:literal;)*) => {
        /// The code of an error. Clients handle unknown codes by `retriable`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
        pub enum ErrorCode {
            $(#[doc = $cause] #[cfg_attr(feature = "codegen", schemars(rename = $name), ts(rename = $name))] $variant,)*
            /// A code of a newer version. `retriable`, beside it, says what to do.
            #[cfg_attr(feature = "codegen", schemars(skip), ts(skip))]
            Unknown(unknown::Name),
        }

        impl ErrorCode {
            /// Every code that this version knows, in the order of this file.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the code as it appears on the wire.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                    Self::Unknown(name) => name.as_str(),
                }
            }

            /// Returns true if the same command, sent again unchanged, may succeed.
            #[must_use]
            pub fn is_retriable(self) -> bool {
                match self {
                    $(Self::$variant => $retriable,)*
                    Self::Unknown(_) => false,
                }
            }

            /// Returns its cause.
            #[must_use]
            pub fn cause(self) -> &'static str {
                match self {
                    $(Self::$variant => $cause,)*
                    Self::Unknown(_) => "An error that this version does not know.",
                }
            }

            /// Returns what to do about it.
            #[must_use]
            pub fn remedy(self) -> &'static str {
                match self {
                    $(Self::$variant => $remedy,)*
                    Self::Unknown(_) => "Read the message, or update this program.",
                }
            }
        }

        impl From<&str> for ErrorCode {
            fn from(name: &str) -> Self {
                match name {
                    $($name => Self::$variant,)*
                    _ => Self::Unknown(unknown::Name::of(name)),
                }
            }
        }
    };
}

codes! {
    // Frames
    InvalidJson "invalid_json" retriable: false, "The frame is not JSON.", "Send one JSON object per text frame.";
    InvalidFrame "invalid_frame" retriable: false,
        "The frame is not of the form `{ id, type, sessionId?, payload? }`.",
        "Send an object with `id` and `type` as strings.";
    InvalidId "invalid_id" retriable: false,
        "The frame's `id` is invalid: writing commands need 16 to 64 characters of `A-Za-z0-9._:-`, others 1 to 64; \
         the prefix `s_` is reserved for the server.",
        "Use a UUID.";
    UnknownCommand "unknown_command" retriable: false,
        "There is no command with this `type`.", "Check `welcome.features` and the spelling of the command.";
    UnknownField "unknown_field" retriable: false,
        "The command has no such field.", "Remove it or correct its spelling; `details.field` names it.";
    MissingField "missing_field" retriable: false, "A required field is missing.", "Send it; `details.field` names it.";
    InvalidField "invalid_field" retriable: false,
        "A field's value has the wrong type or is not allowed.",
        "Send a value that the schema allows; `details.field` names the field.";
    DuplicateKey "duplicate_key" retriable: false, "An object has the same key twice.", "Send each key once.";
    TooDeep "too_deep" retriable: false,
        "Arrays and objects are nested too deeply.", "Send a flatter value; `welcome.limits.depthMax` is the limit.";
    BinaryFrame "binary_frame" retriable: false, "The frame is binary.", "Send text frames.";
    RateLimited "rate_limited" retriable: true, "The client exceeded its rate limit.", "Wait `retryAfterMs`.";
    // Handshake and sessions
    UnsupportedVersion "unsupported_version" retriable: false,
        "`protocolVersion` is not 2.", "Use version 2, or v1 without `hello`.";
    AlreadyGreeted "already_greeted" retriable: false,
        "`hello` was already sent on this connection, or it already uses v1.", "Send `hello` once, first.";
    NotGreeted "not_greeted" retriable: false,
        "v2 was negotiated and the first frame was not `hello`.", "Send `hello` first.";
    Unauthenticated "unauthenticated" retriable: false,
        "The credentials are missing, wrong or expired.", "Get a new ticket or token.";
    Forbidden "forbidden" retriable: false,
        "These credentials do not allow that: tokens of operators and services open no sessions, and a ticket may be \
         bound to one session.",
        "Use other credentials; the message says what these are for.";
    NoSession "no_session" retriable: false,
        "This connection is not subscribed to the session.", "Send `open_session` first.";
    SessionAlreadyOpen "session_already_open" retriable: false,
        "This connection is already subscribed to the session.", "Send `close_session` first.";
    TooManySubscriptions "too_many_subscriptions" retriable: false,
        "This connection is subscribed to the maximum number of sessions.",
        "Close one of them; `welcome.limits.subscriptionsMax` is the limit.";
    SessionNotFound "session_not_found" retriable: false, "You have no such session.", "Check `list_sessions`.";
    ReadOnly "read_only" retriable: false, "Observers may only read.", "Open the session as writer.";
    NothingOffered "nothing_offered" retriable: false,
        "This connection has offered no tools and no hooks, so it cannot host the session.",
        "Send `register_tools` or `register_hooks` first.";
    IdempotencyConflict "idempotency_conflict" retriable: false,
        "This `id` was already used with other content.", "Use a new `id` for every new command.";
    EntryNotFound "entry_not_found" retriable: false, "There is no such entry in this session.", "Check `get_entries`.";
    SessionDamaged "session_damaged" retriable: false,
        "A stored record of this session does not read back as it was written, so it is read-only.",
        "Read the rest with `get_entries` without `path`, which skips damaged records and lists them; the operator \
         must restore the database from a backup.";
    LeafMoved "leaf_moved" retriable: false,
        "A message was appended after the entry in `ifLeaf`.", "Read the new messages, then send the input again.";
    NavigationCancelled "navigation_cancelled" retriable: true,
        "The summary of the abandoned branch was cancelled, or a hook refused the move; the session has not moved.",
        "Navigate again, or without `summarize`; the message names the hook.";
    // Turns
    EmptyInput "empty_input" retriable: false, "The input has no text and no image.", "Send text or an image.";
    InputTooLarge "input_too_large" retriable: false,
        "The input does not fit into the model's window together with the system prompt, the tools and the tokens \
         reserved for the answer.",
        "Shorten the input, or choose a model with a larger window.";
    QueueFull "queue_full" retriable: true, "The queue of inputs is full.", "Wait for a turn to finish.";
    InputCancelled "input_cancelled" retriable: true,
        "`cancel_turn` withdrew the input while hooks were checking it; nothing was stored.",
        "Send it again if you still want it.";
    NotQueued "not_queued" retriable: false,
        "No input with this id is queued.", "Look for its `queue_item_removed`, which says what happened to it.";
    TurnRunning "turn_running" retriable: true, "A turn is running.", "Wait for `turn_finished`, or cancel it.";
    NoTurn "no_turn" retriable: false, "No such turn is running.", "No action is needed.";
    NothingToRetry "nothing_to_retry" retriable: false,
        "The last turn ended with an answer, or there is no turn.", "Send new input.";
    UnknownCall "unknown_call" retriable: false,
        "This session never made such a call, or it does not wait for this connection's answer.",
        "Use the `toolCallId` of a `tool_call` event or the `hookCallId` of a `hook_call`.";
    TooLate "too_late" retriable: false,
        "The call has ended: it already has a different answer, it timed out, or what it was made for is over.",
        "No action is needed; nothing was stored. `details.outcome` says how the call ended.";
    NoPendingApproval "no_pending_approval" retriable: false,
        "No such approval is pending.",
        "Use the `approvalId` of an `approval_request`; look at `session_opened.approvals` for those that are open.";
    TurnTimeout "turn_timeout" retriable: true,
        "The turn took longer than the server allows.", "Send `retry_turn`, or ask for less at once.";
    InvalidPolicy "invalid_policy" retriable: false,
        "A rule of the approval policy is not valid.", "Correct the rule named in `details.field`.";
    InvalidTools "invalid_tools" retriable: false,
        "A tool's name or schema, or the number of tools, is not allowed.", "Correct the tool named in `details`.";
    TooManyToolRounds "too_many_tool_rounds" retriable: true,
        "The model kept calling tools without answering.", "Retry, or rephrase the input.";
    Interrupted "interrupted" retriable: true, "The server stopped during the turn.", "Send `retry_turn`.";
    // Context
    ContextOverflow "context_overflow" retriable: false,
        "The request exceeds the model's window.",
        "Send `start_compaction`, then `retry_turn`; or choose a model with a larger window.";
    NothingToCompact "nothing_to_compact" retriable: false,
        "Compaction would save too little.", "Continue; there is room.";
    CompactionRunning "compaction_running" retriable: true,
        "The session is being compacted.", "Wait for `context_compacted` or `compaction_failed`.";
    NoCompaction "no_compaction" retriable: false, "No such compaction is running.", "No action is needed.";
    CompactionCancelled "compaction_cancelled" retriable: true,
        "The compaction was cancelled; the context is unchanged.", "No action is needed.";
    CompactionVoid "compaction_void" retriable: true,
        "The context changed while the compaction was made: the branch was left, a compaction was undone, or another \
         strategy or model was chosen.",
        "No action is needed; a new compaction is made when due.";
    PreviewNotFound "preview_not_found" retriable: false,
        "There is no such preview: it expired, was replaced by another one, or the session was reopened.",
        "Send `preview_compaction` again.";
    HistoryMoved "history_moved" retriable: false,
        "The context has changed since the preview.", "Send `preview_compaction` again.";
    NothingToUndo "nothing_to_undo" retriable: false,
        "No compaction is in effect on this branch, or the named one is already undone.",
        "Check the compactions in `get_entries`.";
    TooManyPins "too_many_pins" retriable: false,
        "The limit of pinned entries is reached.", "Send `unpin_entry` for a less important one.";
    UnknownStrategy "unknown_strategy" retriable: false, "There is no such strategy.", "Use one listed in the message.";
    UnknownModel "unknown_model" retriable: false,
        "The window of this model is unknown, or the server does not allow it.",
        "Choose another, or set MODEL_WINDOWS or MODELS_ALLOWED on the server.";
    // Hooks
    InvalidHooks "invalid_hooks" retriable: false,
        "A hook's name or point, or the number of hooks, is not allowed.", "Correct the hook named in `details`.";
    InvalidPatch "invalid_patch" retriable: false,
        "A patch has an op that is unknown, not allowed here, or invalidates the provider's cache without a reason.",
        "Correct the op that the message names by its index in the patch, from 0, and its name.";
    HookFailed "hook_failed" retriable: true,
        "A hook failed or returned an invalid answer.", "Retry; the message names the hook, whose owner must check it.";
    HookTimeout "hook_timeout" retriable: true,
        "A hook did not answer in time.", "Retry; increase the hook's `timeoutMs` or let it send `call_progress`.";
    HookUnavailable "hook_unavailable" retriable: true,
        "The client that hosts a required hook is not connected.", "Connect it, then retry.";
    // The model's server
    UpstreamUnreachable "upstream_unreachable" retriable: true,
        "The model server could not be reached.", "Retry; check the model server's address in the server's settings.";
    UpstreamTimeout "upstream_timeout" retriable: true,
        "The model server sent nothing for too long.", "Retry; see UPSTREAM_FIRST_EVENT_TIMEOUT_SECS.";
    UpstreamAuth "upstream_auth" retriable: false,
        "The model server rejected the API key.", "Check the API key in the server's settings.";
    UpstreamQuota "upstream_quota" retriable: false, "Your provider account is out of quota.", "Check its billing.";
    UpstreamRateLimited "upstream_rate_limited" retriable: true,
        "The model provider's rate limit was exceeded.", "Wait `retryAfterMs`, then retry.";
    UpstreamOverloaded "upstream_overloaded" retriable: true, "The model server is overloaded.", "Retry later.";
    UpstreamNotFound "upstream_not_found" retriable: false,
        "The model server does not know this model or address.",
        "Check the model, address and API in the server's settings.";
    UpstreamRejected "upstream_rejected" retriable: false,
        "The model server rejected the request as invalid.", "Check the options, tools and model.";
    UpstreamError "upstream_error" retriable: true, "The model server failed.", "Retry.";
    UpstreamTruncated "upstream_truncated" retriable: true, "The answer was cut off.", "Retry.";
    UpstreamEmpty "upstream_empty" retriable: true, "The model server returned an empty answer.", "Retry.";
    UpstreamMalformed "upstream_malformed" retriable: true,
        "The model server returned an invalid response.", "Check the address and API in the server's settings.";
    ContentFiltered "content_filtered" retriable: false,
        "The provider's filter refused the request or the answer.", "Rephrase the input.";
    BudgetExhausted "budget_exhausted" retriable: false,
        "A budget of the user, the session or the server is used up.",
        "Wait until it is filled again: `retryAfterMs`, and the time in the message.";
    // The server
    StoreFailed "store_failed" retriable: true,
        "The store failed, or the session was closed before it answered. The command may have been stored anyway.",
        "Open the session again, and send the command again unchanged: with the same `id` it is executed once. If the \
         error persists, the operator must check the store and the log.";
    LimitReached "limit_reached" retriable: true,
        "A limit on what one client may use is reached.",
        "The message says which and what to do; `details.limit` has its name and `details.max` its value.";
    Overloaded "overloaded" retriable: true,
        "The server's limit of connections or sessions is reached, or another server has the session open.",
        "Try again later.";
    ShuttingDown "shutting_down" retriable: true,
        "The server is stopping. The command may have been stored anyway.",
        "Reconnect and resume, and send the command again unchanged: with the same `id` it is executed once.";
    Internal "internal" retriable: true, "An internal error.", "Report it with the server's log of that time.";
}

impl Serialize for ErrorCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for ErrorCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Ok(Self::from(&*name))
    }
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

open! {
    /// Payload of `error`, and of `turn_finished.error`.
    struct ErrorBody {
        /// The error code, for programs.
        code: ErrorCode,
        /// The error, with the value and the remedy, for people.
        message: String,
        /// True if the same command, sent again unchanged, may succeed.
        retriable: bool,
        /// The time to wait before sending it again.
        retry_after_ms?: u64,
        /// Further data for programs: the offending `field`, the running `jobId`.
        #[cfg_attr(feature = "codegen", ts(type = "Record<string, unknown>"))]
        details?: Value,
    }
}

impl ErrorBody {
    /// Creates an error with this code.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retriable: code.is_retriable(), retry_after_ms: None, details: None }
    }

    /// Returns the error for a command whose `id` was used with other content.
    #[must_use]
    pub fn id_reused(id: &CommandId) -> Self {
        let message = format!("the id `{id}` was already used with other content; use a new one");
        Self::new(ErrorCode::IdempotencyConflict, message).with_field("id")
    }

    /// Returns the error for the answer to an approval: approvals do not exist yet.
    #[must_use]
    pub fn no_pending_approval() -> Self {
        Self::new(ErrorCode::NoPendingApproval, "no approval is pending")
    }

    /// Adds the offending field.
    #[must_use]
    pub fn with_field(mut self, field: impl Into<String>) -> Self {
        self.details = Some(serde_json::json!({ "field": field.into() }));
        self
    }

    /// Sets the details.
    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// Sets how long to wait.
    #[must_use]
    pub fn with_retry_after_ms(mut self, millis: u64) -> Self {
        self.retry_after_ms = Some(millis);
        self
    }
}

open! {
    /// `details` of a v1 error.
    struct ErrorDetails {
        /// The error code, for programs.
        code: ErrorCode,
        /// True if the same command, sent again unchanged, may succeed.
        retriable: bool,
        /// The offending field.
        field?: String,
        /// The time to wait before.
        retry_after_ms?: u64,
    }
}

/// The reason the server closes a socket. 44xx: do not reconnect automatically. 45xx and 1011 to 1014: reconnect and
/// resume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum CloseCode {
    /// Normal closure.
    Normal = 1000,
    /// The client violated RFC 6455.
    Protocol = 1002,
    /// A text frame was not UTF-8.
    InvalidUtf8 = 1007,
    /// A message was larger than `MESSAGE_BYTES_MAX`.
    TooLarge = 1009,
    /// An internal error.
    Internal = 1011,
    /// The server is restarting: reconnect and resume.
    Restarting = 1012,
    /// Too many connections: reconnect later.
    Overloaded = 1013,
    /// Too many bad frames in a row.
    BadFrames = 4400,
    /// The credentials are missing, wrong or expired: get new ones.
    Credentials = 4401,
    /// The grant was revoked: do not reconnect.
    Revoked = 4403,
    /// v1: the session was deleted. In v2 `session_closed` says so.
    NoSuchSession = 4404,
    /// No `hello` arrived in time.
    NoHello = 4408,
    /// Rate limit.
    RateLimit = 4429,
    /// The client reads too slowly, or the server lost changes of the list that it watches: reconnect and resume.
    SlowReader = 4504,
    /// No pong: reconnect and resume.
    NoPong = 4508,
}

impl CloseCode {
    /// Every close code, in numerical order.
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
        Self::Revoked,
        Self::NoSuchSession,
        Self::NoHello,
        Self::RateLimit,
        Self::SlowReader,
        Self::NoPong,
    ];

    /// Returns the number on the wire.
    #[must_use]
    pub fn code(self) -> u16 {
        self as u16
    }
}
