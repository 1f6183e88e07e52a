//! Opening a session: its whole state, and the end of the subscription.

use super::{
    list::SessionState,
    presence::{Host, Participant, SessionRole},
    settings::SessionSettings,
};
use crate::{
    compaction::{CompactionPrepared, FailedCompaction, Pin, RunningCompaction},
    context::ContextInfo,
    error::ErrorBody,
    hooks::HookOffer,
    ids::{EntryId, SessionId},
    tools::{Approval, PendingCall, StandingApproval, ToolOffer, UncheckedPattern},
    tree::Entry,
    turn::{EndedTurn, QueueItem, RunningTurn, UnansweredTurn},
};

closed! {
    /// Payload of `open_session`.
    struct OpenSession {
        /// Writer (the default) or observer.
        role?: SessionRole,
        /// The position at which this client left off.
        resume?: Resume,
        /// The number of newest entries in the reply; absent: 50.
        entries?: u32,
        /// Sends deltas (the default), or only whole entries.
        deltas?: bool,
        /// `false` keeps a new session in the server's memory only, until nobody has used it for an hour or the server
        /// ends. Lists do not show it.
        store?: bool,
        /// Tools to offer, as with `register_tools`.
        tools?: Vec<ToolOffer>,
        /// Hooks to offer, as with `register_hooks`.
        hooks?: Vec<HookOffer>,
    }

    /// A position in a session's log and in the items that were running.
    struct Resume {
        /// Identifies the log.
        epoch: String,
        /// The last durable event received.
        seq: u64,
        /// The position in each item that has no entry yet. If only `item_started` has arrived, part and offset are 0.
        items?: Vec<ResumeItem>,
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
}

open! {
    /// Payload of `session_opened`: the whole state as of `asOfSeq`.
    struct SessionOpened {
        /// The session.
        session_id: SessionId,
        /// This connection's role.
        role: SessionRole,
        /// The connection that hosts the tools and hooks; absent if none does.
        host?: Host,
        /// Patterns, in the tools that this command offered, that arguments are not checked against: the first 32.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<UncheckedPattern>>"))]
        unchecked_patterns: Vec<UncheckedPattern>,
        /// The connections that are subscribed to the session, including this one, in order of arrival.
        #[serde(default)]
        presence: Vec<Participant>,
        /// Identifies the log; with `seq`, a position to resume from.
        epoch: String,
        /// This reply covers everything up to this durable event; live events follow.
        as_of_seq: u64,
        /// The session's leaf, from which it continues.
        #[serde(with = "crate::leaf")]
        #[cfg_attr(feature = "codegen", schemars(with = "crate::leaf::LeafId"), ts(as = "crate::leaf::LeafId"))]
        leaf_id: Option<EntryId>,
        /// The session's state.
        state: SessionState,
        /// The number of times that the loop was seeded.
        generation: u64,
        /// The session's name.
        name?: String,
        /// The model.
        model: String,
        /// The strategy's short name.
        strategy: String,
        /// The other settings.
        settings: SessionSettings,
        /// The size of the context.
        context_info: ContextInfo,
        /// The result of a `resume`; absent if none was requested.
        resumed?: Resumed,
        /// The newest entries on the path, oldest first; absent after a `replay`.
        entries?: Vec<Entry>,
        /// True if there are older entries on the path than these.
        more?: bool,
        /// The running turn.
        turn?: RunningTurn,
        /// The last turn, if it ended without an answer and nothing was said since. `retry_turn` would retry it.
        last_turn?: EndedTurn,
        /// The newest turns that ended without an answer, oldest first, each with its position in the history,
        /// including `lastTurn`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<UnansweredTurn>>"))]
        unanswered_turns: Vec<UnansweredTurn>,
        /// The newest failed compactions that a user waited for, oldest first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<FailedCompaction>>"))]
        failed_compactions: Vec<FailedCompaction>,
        /// The running compaction.
        compaction?: RunningCompaction,
        /// The prepared compaction that is held until due, with current counts.
        held?: CompactionPrepared,
        /// Queued inputs.
        queue: Vec<QueueItem>,
        /// Unanswered tool calls.
        pending: Vec<PendingCall>,
        /// Calls that a person must allow first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<Approval>>"))]
        approvals: Vec<Approval>,
        /// Lasting answers to approvals.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<StandingApproval>>"))]
        standing_approvals: Vec<StandingApproval>,
        /// The entries that every compaction keeps verbatim.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<Pin>>"))]
        pins: Vec<Pin>,
        /// The compactions that were undone.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<EntryId>>"))]
        undone: Vec<EntryId>,
    }
}

words! {
    /// The result of a `resume`.
    enum Resumed {
        /// Every missed durable event follows, in order.
        Replay,
        /// Too much was missed or the position is unknown: this is the full state.
        Snapshot,
    }
}

open! {
    /// Payload of `session_closed`.
    struct SessionClosed {
        /// The reason, for programs.
        code: SubscriptionEnd,
        /// The reason, for people.
        message: String,
        /// True if `open_session` with `resume` may succeed.
        retriable: bool,
        /// The underlying error, if it is known.
        error?: ErrorBody,
    }
}

words! {
    /// The reason why a subscription ended.
    enum SubscriptionEnd {
        /// The session was deleted.
        Deleted,
        /// The session left memory: after an internal error, a failure of the store, or because an operator closed it.
        /// Nothing acknowledged is lost.
        Failed,
        /// The session is open on another server of the cluster, or may be soon: this server has lost contact with the
        /// database, or with the server that held the session. Nothing acknowledged is lost.
        Moved,
    }
}
