//! The meter, the context report and the snapshot, all derived from one count.

use crate::{
    agent_loop::{AgentLoop, compaction::Compactor, stage::Stage, workspace::Workspace},
    context::{RequestCount, strategies::manual::WARN_PERCENT},
};
use reseed_protocol::{
    EntryId, TurnId,
    context::{BreakerReason, ContextInfo},
    event::CompactionPrepared,
    reply::{
        EndedTurn, FailedCompaction, PendingCall, Pin, QueueItem, RunningCompaction, SessionSettings, SessionState,
        UnansweredTurn,
    },
};

/// The state of a session, for a client that joins it.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// Sequence number of the newest event included.
    pub seq: u64,
    /// The entry that the session continues from.
    pub leaf: Option<EntryId>,
    /// Its activity.
    pub state: SessionState,
    /// Number of times its loop was seeded.
    pub generation: u64,
    /// Its name; empty if it has none.
    pub name: String,
    /// Its model.
    pub model: String,
    /// Its strategy's short name.
    pub strategy: String,
    /// Its other settings.
    pub settings: SessionSettings,
    /// The window's usage.
    pub context_info: ContextInfo,
    /// The running turn.
    pub turn: Option<TurnId>,
    /// The last turn, if it can be retried.
    pub last_turn: Option<EndedTurn>,
    /// The newest turns that ended without an answer.
    pub unanswered_turns: Vec<UnansweredTurn>,
    /// The newest compactions that failed.
    pub failed_compactions: Vec<FailedCompaction>,
    /// The running compaction.
    pub compaction: Option<RunningCompaction>,
    /// The compaction that is held until it is due.
    pub held: Option<CompactionPrepared>,
    /// Queued inputs.
    pub queue: Vec<QueueItem>,
    /// Tool calls without an answer.
    pub pending: Vec<PendingCall>,
    /// Entries that every compaction keeps.
    pub pins: Vec<Pin>,
    /// Compactions that were undone.
    pub undone: Vec<EntryId>,
}

impl AgentLoop {
    /// Returns how full the window is, counted over the next request.
    #[must_use]
    pub fn context_info(&self) -> ContextInfo {
        self.compaction.context_info(&self.ws)
    }

    /// Returns why automatic compaction is suspended, until a compaction saves enough again. This is for operators, who
    /// look at many sessions and not at the cost of one session's next request.
    #[must_use]
    pub fn tripped(&self) -> Option<BreakerReason> {
        self.compaction.tripped().or(self.ws.session.state.rest_tokens.map(|_| BreakerReason::Undone))
    }

    /// Returns the session's activity.
    #[must_use]
    pub fn doing(&self) -> SessionState {
        let compacts = matches!(self.stage(), Stage::Compacting | Stage::Leaving) || self.compaction.is_ordered();
        match self.ws.session.state.turn {
            Some(_) => SessionState::Running,
            None if compacts => SessionState::Compacting,
            None => SessionState::Idle,
        }
    }

    /// Returns the session's state.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let state = &self.ws.session.state;
        let compaction = match self.navigation.job_id() {
            Some(job_id) => Some(RunningCompaction {
                job_id: job_id.clone(),
                phase: super::super::navigation::PHASE.to_owned(),
                background: false,
            }),
            None => self.compaction.shown_compaction(),
        };
        Snapshot {
            seq: state.seq,
            leaf: state.leaf.clone(),
            state: self.doing(),
            generation: self.ws.generation,
            name: state.name.clone(),
            model: state.model.clone(),
            strategy: state.strategy.clone(),
            settings: state.settings.clone(),
            context_info: self.compaction.context_info(&self.ws),
            turn: state.turn.as_ref().map(|turn| turn.turn_id.clone()),
            last_turn: state.last_turn.clone(),
            unanswered_turns: state.unanswered_turns.clone(),
            failed_compactions: state.failed_compactions.clone(),
            compaction,
            held: self.ws.shown_held(),
            queue: state.queue.iter().map(|queued| queued.item().clone()).collect(),
            pending: state.pending.clone(),
            pins: state.pins.clone(),
            undone: state.undone.clone(),
        }
    }
}

impl Compactor {
    /// Returns how full the window is, counted over the next request.
    #[must_use]
    pub(crate) fn context_info(&self, ws: &Workspace) -> ContextInfo {
        let count = ws.count(&ws.context());
        self.context_info_of(ws, &count, ws.window_tokens())
    }

    pub(in crate::agent_loop) fn context_info_of(
        &self,
        ws: &Workspace,
        count: &RequestCount,
        window: u64,
    ) -> ContextInfo {
        let compact_at_tokens = ws.manager().compact_at_tokens(window);
        ContextInfo {
            token_count: count.tokens,
            transcript_length: count.messages,
            max_tokens: window,
            strategy: ws.manager().name().to_owned(),
            warning: warning(count.tokens, window, compact_at_tokens),
            usage_ratio: usage_ratio(count.tokens, window),
            source: count.source,
            usage_tokens: count.usage_tokens,
            trailing_tokens: count.trailing_tokens,
            last_usage_entry_id: count.last_usage_entry_id.clone(),
            error_bound_tokens: count.error_bound_tokens,
            reserved_tokens: ws.manager().reserved_tokens(window),
            compact_at_tokens,
            compact_at_rule: ws.manager().compact_at_rule(window),
            prepare_at_tokens: ws.manager().prepare_at_tokens(window),
            cached_tokens: count.cached_tokens,
            generation: ws.generation,
            compactions: ws.session.state.compactions,
            session_id: ws.session.id.clone(),
            leaf_id: ws.session.state.leaf.clone(),
            breaker: self.breaker(ws, count.tokens),
            breakdown: count.breakdown,
        }
    }
}

/// Returns `tokens / window`, rounded to four decimals and not clamped.
#[must_use]
pub fn usage_ratio(tokens: u64, window: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a ratio of token counts, shown to four decimals")]
    let ratio = tokens as f64 / window.max(1) as f64;
    (ratio * 10_000.0).round() / 10_000.0
}

/// Returns the same in percent, clamped to 0 to 100, for people.
#[must_use]
pub fn usage_percent(tokens: u64, window: u64) -> f64 {
    ((usage_ratio(tokens, window) * 10_000.0).round() / 100.0).clamp(0.0, 100.0)
}

fn warning(tokens: u64, window: u64, compact_at: Option<u64>) -> Option<String> {
    if tokens.saturating_mul(100) < window.saturating_mul(WARN_PERCENT) {
        return None;
    }
    let percent = tokens.saturating_mul(100) / window.max(1);
    let next = match compact_at {
        Some(limit) if tokens > limit => "it is compacted before the next request".to_owned(),
        Some(limit) => format!("it is compacted before the first request above {limit} tokens"),
        None => "compact it to make room".to_owned(),
    };
    Some(format!("{percent} % of the model's window is used; {next}"))
}
