//! Replies: the one reply to a command, under the command's own `id`.

use crate::{
    compaction::CompactionPreview,
    context::{Context, ContextInfo},
    error::ErrorBody,
    ids::{EntryId, JobId},
    session::{Models, Pong, SessionOpened, Sessions, Welcome},
    tools::{Tools, UncheckedPattern},
    tree::{Entries, Forked, HistoryHits, Navigated, Tree},
    turn::Accepted,
};

messages! {
    /// A reply with its payload.
    pub enum Reply {
        /// To `hello`.
        Welcome(Box<Welcome>) = "welcome",
        /// To `open_session`.
        SessionOpened(Box<SessionOpened>) = "session_opened",
        /// To `list_sessions`.
        Sessions(Sessions) = "sessions",
        /// To `list_models`.
        Models(Models) = "models",
        /// To `get_entries`.
        Entries(Entries) = "entries",
        /// To `ping`.
        Pong(Pong) = "pong",
        /// To `user_input` and `retry_turn`, once their entries are durable.
        Accepted(Accepted) = "accepted",
        /// To every command without a reply of its own.
        Ok(Done) = "ok",
        /// To `get_context_info`.
        ContextInfo(Box<ContextInfo>) = "context_info",
        /// To `get_context`.
        Context(Box<Context>) = "context",
        /// To `list_tools`.
        Tools(Tools) = "tools",
        /// The reply to `preview_compaction`, once its summary is made.
        CompactionPreview(Box<CompactionPreview>) = "compaction_preview",
        /// To `navigate`.
        Navigated(Navigated) = "navigated",
        /// To `fork_session`.
        Forked(Forked) = "forked",
        /// To `get_tree`.
        Tree(Tree) = "tree",
        /// To `search_history`.
        HistoryHits(HistoryHits) = "history_hits",
        /// The reply to a refused command. Nothing was changed, unless the cause of its `code` says otherwise.
        Error(ErrorBody) = "error",
    }
}

open! {
    /// Payload of `ok`.
    #[derive(Default)]
    struct Done {
        /// The compaction that was started.
        job_id?: JobId,
        /// True if another connection hosts the session's tools and hooks, and this offer is on standby.
        standby?: bool,
        /// Patterns in the offered tools' schemas that arguments are not checked against: the first 32.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<UncheckedPattern>>"))]
        unchecked_patterns: Vec<UncheckedPattern>,
        /// The entry that was written, or will be before the next request.
        entry_id?: EntryId,
        /// This reply covers everything up to this durable event; what the command caused follows.
        as_of_seq?: u64,
        /// True if the command had been executed before; this is its first reply.
        duplicate?: bool,
    }
}

impl Reply {
    /// Returns the mark of a reply to a repeated command. `None` for replies without one: those to commands that do not
    /// write, and errors.
    pub fn duplicate_mut(&mut self) -> Option<&mut Option<bool>> {
        match self {
            Self::Accepted(accepted) => Some(&mut accepted.duplicate),
            Self::Ok(done) => Some(&mut done.duplicate),
            Self::Navigated(navigated) => Some(&mut navigated.duplicate),
            Self::Forked(forked) => Some(&mut forked.duplicate),
            Self::Welcome(_)
            | Self::SessionOpened(_)
            | Self::Sessions(_)
            | Self::Models(_)
            | Self::Entries(_)
            | Self::Pong(_)
            | Self::ContextInfo(_)
            | Self::Context(_)
            | Self::Tools(_)
            | Self::CompactionPreview(_)
            | Self::Tree(_)
            | Self::HistoryHits(_)
            | Self::Error(_)
            | Self::Unknown(_) => None,
        }
    }
}
