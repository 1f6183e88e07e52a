//! What a turn hands to the next loop: its progress with its hooks, and evidence about the model's window.

use crate::session::SessionState;
use reseed_protocol::{Timestamp, TurnId, Usage, receipt::HookRun};

/// The parts that are carried from one loop to the next.
#[derive(Debug, Default)]
pub(crate) struct TurnMemory {
    progress: TurnProgress,
    /// Evidence about the model's window.
    pub(crate) seen: WindowEvidence,
}

impl TurnMemory {
    /// Returns the running turn's progress with its hooks; discards that of an earlier turn.
    pub(super) fn progress(&mut self, state: &SessionState) -> &mut TurnProgress {
        let running = state.turn.as_ref().map(|turn| &turn.turn_id);
        if self.progress.turn.as_ref() != running {
            self.progress = TurnProgress { turn: running.cloned(), ..TurnProgress::default() };
        }
        &mut self.progress
    }

    /// Notes whether the running turn runs or waits for approvals, so that its time counts.
    pub(super) fn keep_time(&mut self, state: &SessionState, is_parked: bool, now: Timestamp) {
        if state.turn.is_none() {
            return;
        }
        let progress = self.progress(state);
        match (is_parked, progress.runs_since) {
            (false, None) => progress.runs_since = Some(now),
            (true, Some(since)) => {
                progress.spent_ms = progress.spent_ms.saturating_add(now.millis_since(since));
                progress.runs_since = None;
            }
            (false, Some(_)) | (true, None) => {}
        }
    }

    /// Returns when the running turn has taken this long, unless it waits for approvals.
    pub(super) fn over_at(&self, state: &SessionState, limit_ms: u64) -> Option<Timestamp> {
        let running = state.turn.as_ref().map(|turn| &turn.turn_id)?;
        let is_its = self.progress.turn.as_ref() == Some(running);
        let since = self.progress.runs_since.filter(|_| is_its)?;
        Some(since.plus_millis(limit_ms.saturating_sub(self.progress.spent_ms)))
    }

    /// Returns the hooks that were called for the upcoming request.
    #[cfg(test)]
    pub(super) fn runs(&self) -> &[HookRun] {
        &self.progress.runs
    }
}

/// The running turn's progress with its hooks. It is carried from loop to loop, so that a compaction in between does
/// not call a hook twice.
#[derive(Debug, Default)]
pub(super) struct TurnProgress {
    /// The turn that this describes.
    pub(super) turn: Option<TurnId>,
    /// True once the turn's start hooks were called.
    pub(super) started: bool,
    /// True once the hooks before the next request were called.
    pub(super) before_request: bool,
    /// Usage of an answer that hooks are inspecting and that is not stored yet.
    pub(super) looked_at_usage: Option<Usage>,
    /// The hooks that were called for the upcoming request.
    pub(super) runs: Vec<HookRun>,
    /// The time that the turn has taken, in milliseconds, up to `runs_since`. What it waits for approvals is not
    /// counted.
    pub(super) spent_ms: u64,
    /// Since when it runs; `None` while it waits for approvals.
    pub(super) runs_since: Option<Timestamp>,
}

/// Evidence from a session's requests about its model's window. Kept while the session is in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WindowEvidence {
    /// The largest count that was answered.
    answered_tokens_max: u64,
    /// The count of a request that ended without output and is being compacted.
    empty_tokens: Option<u64>,
    /// The count of the last such request that was answered once it was smaller.
    too_large_tokens: Option<u64>,
}

impl WindowEvidence {
    /// Notes that a request of this token count was answered. Returns the window if this shows it to be smaller than
    /// assumed: a smaller request for the same turn was answered where a larger one ended empty. Once may be chance;
    /// twice means that size was the cause.
    pub(crate) fn answered(&mut self, tokens: u64) -> Option<u64> {
        self.answered_tokens_max = self.answered_tokens_max.max(tokens);
        let empty = self.empty_tokens.take().filter(|empty| tokens < *empty)?;
        let earlier = self.too_large_tokens.replace(empty)?;
        Some(empty.max(earlier).saturating_sub(1))
    }

    /// Notes that a request of this token count failed. Returns true if it may have been too large: it ended without
    /// output, is large enough for that (both are `is_suspect`), and none as large was ever answered.
    pub(crate) fn failed(&mut self, tokens: u64, is_suspect: bool) -> bool {
        let suspect = is_suspect && tokens > self.answered_tokens_max;
        self.empty_tokens = suspect.then_some(tokens);
        suspect
    }
}
