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
    /// The most tokens that the server reported to have read, or that we counted where it reports none.
    read_tokens_max: u64,
    /// The last request whose report followed its size: our estimate of it, made without reports, and the report.
    anchor: Option<(u64, u64)>,
    /// Reports in a row that did not follow the growth of their requests.
    flat_reports: u32,
    /// Answers since the window was learnt, or last tried larger.
    answers_since_learnt: u32,
    /// True if the last request was refused as too large although a larger one had been answered.
    is_contradicted: bool,
    /// True once what an earlier run of this server stored was looked at, or is not to be.
    has_recalled: bool,
}

/// What a report of a request's tokens says about the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReportVerdict {
    /// It follows the size of the request, or too little was added to say.
    Plausible,
    /// It does not follow. Once may be chance.
    Flat,
    /// It did not follow twice in a row: the server reads no more than this.
    Cut(u64),
}

/// Growth of a request, in tokens and as a part of it, from which its report must show it.
const GROWTH_TOKENS_MIN: u64 = 256;
const GROWTH_PART: u64 = 20;
/// The part of the growth that a report must show: our estimate may be several times too high.
const SHOWN_PART: u64 = 4;
/// Answers after which a learnt window is tried a quarter larger: servers are started again with other windows, and
/// routers choose other servers. If it is too large still, one request is refused, when a compaction is due anyway.
const ANSWERS_PER_TRIAL: u32 = 50;

impl WindowEvidence {
    /// Returns no evidence, also none from earlier runs of this server.
    pub(crate) fn anew() -> Self {
        Self { has_recalled: true, ..Self::default() }
    }

    /// Notes, once, the tokens that the model's last stored answer read: this server may have been started since.
    pub(crate) fn recall(&mut self, read_tokens: impl FnOnce() -> Option<u64>) {
        if std::mem::replace(&mut self.has_recalled, true) || self.has_answer() {
            return;
        }
        let tokens = read_tokens().unwrap_or(0);
        self.read_tokens_max = self.read_tokens_max.max(tokens);
        self.answered_tokens_max = tokens;
    }

    /// Notes that a request of this token count was answered. Returns the window if this shows it to be smaller than
    /// assumed: a smaller request for the same turn was answered where a larger one ended empty. Once may be chance;
    /// twice means that size was the cause.
    pub(crate) fn answered(&mut self, tokens: u64) -> Option<u64> {
        self.answered_tokens_max = self.answered_tokens_max.max(tokens);
        self.is_contradicted = false;
        let empty = self.empty_tokens.take().filter(|empty| tokens < *empty)?;
        let earlier = self.too_large_tokens.replace(empty)?;
        Some(empty.max(earlier).saturating_sub(1))
    }

    /// Compares a report with that of an earlier request. `estimate` is our own count, made without reports.
    ///
    /// Servers that cut a request silently report what was left of it: the window, or the half of it that they keep. A
    /// report far below that is one without the tokens that came from a cache, and says nothing.
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

    /// Notes that a request of this many tokens was refused as too large. If a larger one was answered before, that may
    /// be a mistake of the server's; if it happens twice without an answer in between, the server was started again
    /// with a smaller window, and what was answered before says nothing more.
    pub(crate) fn refused(&mut self, tokens: u64) {
        let contradicts = tokens <= self.read_tokens_max;
        if contradicts && self.is_contradicted {
            *self = Self::anew();
        }
        self.is_contradicted = contradicts;
    }

    /// Returns the most tokens that were answered: no window is smaller.
    pub(crate) fn window_tokens_min(&self) -> u64 {
        self.read_tokens_max
    }

    /// Notes that a window was learnt.
    pub(crate) fn window_learnt(&mut self) {
        self.answers_since_learnt = 0;
    }

    /// Returns the window to assume from now on in place of this learnt one, if another: no smaller one than was
    /// answered, and a larger one after many answers.
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

    /// Notes that a request of this token count failed. Returns true if it may have been too large: it ended without
    /// output, is large enough for that (both are `is_suspect`), and none as large was ever answered.
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
            // estimate, report
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
            // Without what came from a cache.
            (&[(5_000, 5_000), (6_000, 1_000), (7_000, 1_000)], vec![Plausible; 3]),
            // Twice too high an estimate.
            (&[(2_000, 1_000), (4_000, 2_000), (8_000, 4_000)], vec![Plausible; 3]),
            // A compaction in between.
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
    fn what_was_answered_bounds_a_window_until_two_smaller_requests_are_refused() {
        for (steps, bound) in [
            // The tokens of each refused request; 0 stands for a small one that was answered.
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
