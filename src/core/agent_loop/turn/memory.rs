//! The turn state that the next loop inherits: the progress of its hooks, and evidence about the model's window.

use crate::session::SessionState;
use reseed_protocol::{Timestamp, TurnId, Usage, receipt::HookRun};

/// The parts that are passed from one loop to the next.
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

    /// Notes whether the running turn is active or waits for approvals, so that its time is counted correctly.
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

    /// Returns when the running turn will reach this limit, unless it waits for approvals.
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

/// The running turn's progress with its hooks. It is passed from loop to loop, so that a compaction in between does not
/// call a hook twice.
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
    /// True if the last answer has calls whose results come with the next input. Not durable: after a restart, it
    /// follows from the approvals that the turn still waits for.
    pub(super) leaves_calls: bool,
    /// The hooks that were called for the upcoming request.
    pub(super) runs: Vec<HookRun>,
    /// The time that the turn has taken, in milliseconds, up to `runs_since`. Time spent waiting for approvals is not
    /// counted.
    pub(super) spent_ms: u64,
    /// The time since which it runs; `None` while it waits for approvals.
    pub(super) runs_since: Option<Timestamp>,
}

/// Evidence from a session's requests about its model's window. Kept while the session is in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WindowEvidence {
    /// The largest count of an answered request.
    answered_tokens_max: u64,
    /// The count of a request that ended without output and is being compacted.
    empty_tokens: Option<u64>,
    /// The count of the last such request that was answered after it was made smaller.
    too_large_tokens: Option<u64>,
    /// The most tokens that the server reported as read, or that we counted if it reports none.
    read_tokens_max: u64,
    /// The last request whose report matched its size: our own estimate, made without reports, and the report.
    anchor: Option<(u64, u64)>,
    /// The number of consecutive reports that did not follow the growth of their requests.
    flat_reports: u32,
    /// The number of answers since the window was learned, or was last tried larger.
    answers_since_learnt: u32,
    /// True if the last request was refused as too large although a larger one had been answered.
    is_contradicted: bool,
    /// True once the evidence from an earlier run of this server was used, or must not be.
    has_recalled: bool,
}

/// The plausibility of a reported request size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReportVerdict {
    /// It follows the size of the request, or too little was added to tell.
    Plausible,
    /// It does not follow the size. A single case may be chance.
    Flat,
    /// It failed to follow the size twice in a row: the server reads no more than this.
    Cut(u64),
}

/// The smallest growth of a request that its report must show, in tokens. In a large request, it is one part in
/// `GROWTH_PART`.
const GROWTH_TOKENS_MIN: u64 = 256;
const GROWTH_PART: u64 = 20;
/// The report must show one part in this many of the growth, because our estimate may be several times too high.
const SHOWN_PART: u64 = 4;
/// The number of answers after which a quarter more than a learned window is tried: servers are restarted with other
/// windows, and routers choose other servers. If that is still too large, one request is refused, at a time when a
/// compaction is due anyway.
const ANSWERS_PER_TRIAL: u32 = 50;

impl WindowEvidence {
    /// Returns no evidence, and none from earlier runs of this server either.
    pub(crate) fn anew() -> Self {
        Self { has_recalled: true, ..Self::default() }
    }

    /// Uses, once, the tokens that the model's last stored answer read: this server may have been restarted since.
    pub(crate) fn recall(&mut self, read_tokens: impl FnOnce() -> Option<u64>) {
        if std::mem::replace(&mut self.has_recalled, true) || self.has_answer() {
            return;
        }
        let tokens = read_tokens().unwrap_or(0);
        self.read_tokens_max = self.read_tokens_max.max(tokens);
        self.answered_tokens_max = tokens;
    }

    /// Notes that a request of this token count was answered. If this shows that the window is smaller than assumed,
    /// returns that window: a smaller request of the same turn was answered where a larger one ended empty. A single
    /// case may be chance; two show that size was the cause.
    pub(crate) fn answered(&mut self, tokens: u64) -> Option<u64> {
        self.answered_tokens_max = self.answered_tokens_max.max(tokens);
        self.is_contradicted = false;
        let empty = self.empty_tokens.take().filter(|empty| tokens < *empty)?;
        let earlier = self.too_large_tokens.replace(empty)?;
        Some(empty.max(earlier).saturating_sub(1))
    }

    /// Compares a report with that of an earlier request. `estimate` is our own count, made without reports.
    ///
    /// Servers that silently cut a request report what was left of it: the window, or the half of it that they keep. A
    /// report far below that omits tokens that came from a cache, and says nothing.
    pub(crate) fn reported(&mut self, estimate: u64, reported: u64) -> ReportVerdict {
        self.read_tokens_max = self.read_tokens_max.max(reported);
        let here = Some((estimate, reported));
        let Some((from, read)) = self.anchor else {
            self.anchor = here;
            return ReportVerdict::Plausible;
        };
        let growth = estimate.saturating_sub(from);
        let is_excluded = reported < self.read_tokens_max / 8 * 3;
        if estimate < from || reported >= read + growth / SHOWN_PART || is_excluded {
            self.flat_reports = 0;
            self.anchor = here;
            return ReportVerdict::Plausible;
        }
        if growth < GROWTH_TOKENS_MIN.max(from / GROWTH_PART) {
            return ReportVerdict::Plausible;
        }
        self.flat_reports += 1;
        if self.flat_reports < 2 {
            return ReportVerdict::Flat;
        }
        self.flat_reports = 0;
        self.anchor = here;
        ReportVerdict::Cut(self.read_tokens_max)
    }

    /// Notes that a request of this many tokens was refused as too large. If a larger one was answered before, the
    /// refusal may be a server error. If it happens twice without an answer in between, the server was restarted with a
    /// smaller window, and earlier answers no longer count.
    pub(crate) fn refused(&mut self, tokens: u64) {
        let contradicts = tokens <= self.read_tokens_max;
        if contradicts && self.is_contradicted {
            *self = Self::anew();
        }
        self.is_contradicted = contradicts;
    }

    /// Returns the most tokens that were answered; the window cannot be smaller.
    pub(crate) fn window_tokens_min(&self) -> u64 {
        self.read_tokens_max
    }

    /// Notes that a window was learned.
    pub(crate) fn window_learnt(&mut self) {
        self.answers_since_learnt = 0;
    }

    /// Returns the window that replaces this learned one, if any: one no smaller than what was answered, or a larger
    /// one after many answers.
    pub(crate) fn reviewed(&mut self, learnt_tokens: u64) -> Option<u64> {
        if self.read_tokens_max > learnt_tokens {
            return Some(self.read_tokens_max);
        }
        self.answers_since_learnt += 1;
        if self.answers_since_learnt < ANSWERS_PER_TRIAL {
            return None;
        }
        self.answers_since_learnt = 0;
        Some(learnt_tokens.saturating_add(learnt_tokens / 4))
    }

    /// Returns true if any request was answered.
    pub(crate) fn has_answer(&self) -> bool {
        self.answered_tokens_max > 0
    }

    /// Notes that a request of this token count failed. Returns true if it may have been too large: `is_suspect` says
    /// that it ended without output and is large enough, and none as large was ever answered.
    pub(crate) fn failed(&mut self, tokens: u64, is_suspect: bool) -> bool {
        let suspect = is_suspect && tokens > self.answered_tokens_max;
        self.empty_tokens = suspect.then_some(tokens);
        suspect
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ReportVerdict::{Cut, Flat, Plausible};

    #[test]
    fn a_report_must_follow_the_growth_of_its_request() {
        for (reports, expected) in [
            // The columns are the estimate and the report.
            (&[(1_000, 1_100), (2_000, 2_150), (3_000, 3_100)][..], vec![Plausible; 3]),
            (
                &[(3_000, 3_100), (4_000, 4_096), (5_000, 4_096), (6_000, 4_096)],
                vec![Plausible, Plausible, Flat, Cut(4_096)],
            ),
            (&[(3_900, 3_900), (5_000, 2_048), (6_000, 2_048)], vec![Plausible, Flat, Cut(3_900)]),
            (
                &[(5_000, 4_096), (5_100, 4_096), (5_200, 4_096), (5_300, 4_096)],
                vec![Plausible, Plausible, Plausible, Flat],
            ),
            // The reports omit cached tokens.
            (&[(5_000, 5_000), (6_000, 1_000), (7_000, 1_000)], vec![Plausible; 3]),
            // The estimate is twice too high.
            (&[(2_000, 1_000), (4_000, 2_000), (8_000, 4_000)], vec![Plausible; 3]),
            // There is a compaction in between.
            (
                &[(5_000, 4_096), (6_000, 4_096), (900, 800), (2_000, 1_900)],
                vec![Plausible, Flat, Plausible, Plausible],
            ),
        ] {
            let mut seen = WindowEvidence::default();
            let found: Vec<_> = reports.iter().map(|&(estimate, report)| seen.reported(estimate, report)).collect();
            assert_eq!(found, expected, "{reports:?}");
        }
    }

    #[test]
    fn answers_bound_a_window_until_two_smaller_requests_are_refused() {
        for (steps, bound) in [
            // The numbers are the tokens of refused requests; 0 stands for a small request that was answered.
            (&[9_500][..], 9_000),
            (&[5_000], 9_000),
            (&[5_000, 0, 5_000], 9_000),
            (&[9_500, 5_000], 9_000),
            (&[5_000, 4_000], 0),
        ] {
            let mut seen = WindowEvidence::default();
            let _ = seen.reported(8_000, 9_000);
            for &tokens in steps {
                if tokens == 0 {
                    let _ = seen.answered(1_000);
                } else {
                    seen.refused(tokens);
                }
            }
            assert_eq!(seen.window_tokens_min(), bound, "{steps:?}");
        }
    }

    #[test]
    fn a_learnt_window_grows_again() {
        let mut seen = WindowEvidence::default();
        let _ = seen.reported(900, 1_000);
        assert_eq!(seen.reviewed(800), Some(1_000), "so much was answered");
        let trials: Vec<_> = (0..ANSWERS_PER_TRIAL).filter_map(|_| seen.reviewed(4_000)).collect();
        assert_eq!(trials, [5_000]);
        seen.window_learnt();
        assert_eq!(seen.reviewed(4_000), None);
    }
}
