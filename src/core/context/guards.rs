//! The circuit breaker of automatic compaction: what keeps it from going round in circles. One compaction at a time is
//! the loop's business; this decides when none begins, or one without the model.
//!
//! - After [`FAILURES_MAX`] summaries in a row that the model failed to make, in the background, in the foreground or
//!   ordered by a person, the breaker opens: the model is not asked for a while that doubles each time. Room is then made
//!   by rule, and only where a request would not fit otherwise. When the time is over the breaker is half-open: the next
//!   compaction asks the model, and its summary closes the breaker.
//! - After [`FUTILE_MAX`] compactions in a row that gained too little, none begins until a tenth of the window more is
//!   said.
//! - What an undone compaction brought back is left alone until as much more is said.
//! - What a compaction has left is left alone until anything more is said, also where it is still near the limit.
//!
//! A person's `manual_compact` is never held back and asks the model while the breaker is open.

use reseed_protocol::{
    Timestamp,
    context::{Breaker, BreakerReason},
};

/// Failures in a row after which it rests: one is chance, two are bad luck.
pub const FAILURES_MAX: u32 = 3;
/// Compactions without gain in a row after which it rests.
pub const FUTILE_MAX: u32 = 2;
/// The first rest after failures, in milliseconds.
const REST_MILLIS: u64 = 60_000;
/// The longest: an hour is how long an upstream's outage may go unnoticed after its end.
const REST_MILLIS_MAX: u64 = 3_600_000;
/// By which part of the window a request must grow before a rest without gain is over.
const GROWTH_WINDOW_PART: u64 = 10;

/// What automatic compaction of a session remembers of how it went. It is kept as long as the session is in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Guards {
    failures: u32,
    futile: u32,
    rests_until: Option<Timestamp>,
    rests_below_tokens: Option<u64>,
    /// A person stopped a compaction at this count, or one has left so many: none begins by itself before more is said.
    settled_tokens: Option<u64>,
}

/// What automatic compaction may do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// Anything.
    Free,
    /// Make room without asking the model.
    ByRule,
    /// Nothing.
    Rest,
}

impl Guards {
    /// What is allowed for a request of so many tokens; `undone_rest` is up to where an undone compaction wants to be left
    /// alone. A request that must wait for room (`is_needed`) is not held back by that.
    #[must_use]
    pub fn leave(&self, now: Timestamp, tokens: u64, undone_rest: Option<u64>, is_needed: bool) -> Leave {
        if self.rests_below_tokens.is_some_and(|below| tokens <= below) {
            return Leave::Rest;
        }
        let left_alone = undone_rest.max(self.settled_tokens);
        if !is_needed && left_alone.is_some_and(|below| tokens <= below) {
            return Leave::Rest;
        }
        match self.rests_until {
            Some(until) if now < until => {
                if is_needed {
                    Leave::ByRule
                } else {
                    Leave::Rest
                }
            }
            _ => Leave::Free,
        }
    }

    /// The model was asked for a summary and made none that can be used.
    pub fn failed(&mut self, now: Timestamp) {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= FAILURES_MAX {
            let doubled = REST_MILLIS.saturating_mul(1 << (self.failures - FAILURES_MAX).min(10));
            self.rests_until = Some(now.plus_millis(doubled.min(REST_MILLIS_MAX)));
        }
    }

    /// The model made a summary: the breaker closes.
    pub fn summarised(&mut self) {
        self.failures = 0;
        self.rests_until = None;
    }

    /// A person stopped a compaction of a request of so many tokens.
    pub fn declined(&mut self, tokens: u64) {
        self.settled_tokens = Some(tokens);
    }

    /// A compaction was made, or could not be since there was nothing to gain, at so many tokens.
    pub fn gained(&mut self, is_enough: bool, tokens: u64, window_tokens: u64) {
        if is_enough {
            // What it has left is not compacted again at once, also where that is still near the limit. Whether the
            // model works, this does not show: it may have been made by rule.
            *self = Self { settled_tokens: Some(tokens), ..self.ordered() };
            return;
        }
        self.futile = self.futile.saturating_add(1);
        if self.futile >= FUTILE_MAX {
            self.rests_below_tokens = Some(tokens.saturating_add(window_tokens / GROWTH_WINDOW_PART));
        }
    }

    /// None begins by itself before a request has more tokens than this, unless it must wait for room.
    pub fn settle(&mut self, tokens: u64) {
        self.settled_tokens = Some(tokens);
    }

    /// A person orders a compaction: what earlier ones gained, and that one was stopped, no longer counts. Whether the
    /// model works, the one that is ordered will show.
    #[must_use]
    pub fn ordered(self) -> Self {
        Self { failures: self.failures, rests_until: self.rests_until, ..Self::default() }
    }

    /// A person has chosen another strategy: everything is forgotten.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Why it rested last, whether its time is over or not; `None` once a compaction has gained.
    #[must_use]
    pub fn tripped(&self) -> Option<BreakerReason> {
        let futile = self.rests_below_tokens.map(|_| BreakerReason::NoGain);
        futile.or(self.rests_until.map(|_| BreakerReason::Failures))
    }

    /// Why it rests, for a request of so many tokens; `None` where it does not.
    #[must_use]
    pub fn breaker(&self, now: Timestamp, tokens: u64, undone_rest: Option<u64>) -> Option<Breaker> {
        let (reason, failures, retry_at, retry_above_tokens, message) = if let Some(below) =
            self.rests_below_tokens.filter(|below| tokens <= *below)
        {
            let message = format!(
                "the last {} compactions gained too little; the next one is tried above {below} tokens, or when you \
                     send manual_compact",
                self.futile
            );
            (BreakerReason::NoGain, self.futile, None, Some(below), message)
        } else if let Some(until) = self.rests_until.filter(|until| now < *until) {
            let message = format!(
                "the last {} summaries failed; until {until} the model is not asked for one, unless you send \
                     manual_compact",
                self.failures
            );
            (BreakerReason::Failures, self.failures, Some(until), None, message)
        } else if let Some(below) = undone_rest.filter(|below| tokens <= *below) {
            let message = format!(
                "a compaction was undone; the next one is made above {below} tokens, or when you send manual_compact"
            );
            (BreakerReason::Undone, 0, None, Some(below), message)
        } else {
            return None;
        };
        Some(Breaker { reason, failures: u64::from(failures), retry_at, retry_above_tokens, message })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    #[test]
    fn three_failures_rest_longer_each_time_and_gain_ends_it() {
        let mut guards = Guards::default();
        for failures in 1..=12u32 {
            guards.failed(NOW);
            let rest = match failures {
                ..3 => 0,
                _ => (60_000u64 << (failures - 3)).min(3_600_000),
            };
            for (after, is_needed, expected) in [
                (0, false, if rest > 0 { Leave::Rest } else { Leave::Free }),
                (0, true, if rest > 0 { Leave::ByRule } else { Leave::Free }),
                (rest, false, Leave::Free),
            ] {
                assert_eq!(guards.leave(NOW.plus_millis(after), 1, None, is_needed), expected, "{failures} {after}");
            }
            let told = guards.breaker(NOW, 1, None).map(|breaker| (breaker.reason, breaker.failures));
            assert_eq!(told, (rest > 0).then_some((BreakerReason::Failures, u64::from(failures))));
        }
        assert_eq!(guards.breaker(NOW.plus_millis(3_600_000), 1, None), None, "its time is over");
        assert_eq!(guards.tripped(), Some(BreakerReason::Failures), "and nothing has gained yet");
        guards.gained(true, 900, 1_000);
        assert_eq!(guards.tripped(), Some(BreakerReason::Failures), "what is made by rule says nothing of the model");
        guards.summarised();
        assert_eq!(guards.tripped(), None);
        // One crossing is one compaction, unless a request has to wait for room.
        for (tokens, is_needed, expected) in
            [(900, false, Leave::Rest), (901, false, Leave::Free), (900, true, Leave::Free)]
        {
            assert_eq!(guards.leave(NOW, tokens, None, is_needed), expected, "{tokens} {is_needed}");
        }
        guards.reset();
        assert_eq!(guards, Guards::default());
    }

    #[test]
    fn without_gain_it_rests_until_more_is_said() {
        let mut guards = Guards::default();
        guards.gained(false, 900, 1_000);
        assert_eq!((guards.leave(NOW, 900, None, true), guards.tripped()), (Leave::Free, None));
        guards.gained(false, 900, 1_000);
        assert_eq!(guards.tripped(), Some(BreakerReason::NoGain));
        for (tokens, expected) in [(900, Leave::Rest), (1_000, Leave::Rest), (1_001, Leave::Free)] {
            assert_eq!(guards.leave(NOW, tokens, None, true), expected, "{tokens}");
        }
    }

    #[test]
    fn what_was_brought_back_is_left_alone_unless_it_must_shrink() {
        let guards = Guards::default();
        assert_eq!(guards.leave(NOW, 900, Some(950), false), Leave::Rest);
        assert_eq!(guards.leave(NOW, 900, Some(950), true), Leave::Free);
        assert_eq!(guards.leave(NOW, 951, Some(950), false), Leave::Free);
        assert_eq!(guards.breaker(NOW, 900, Some(950)).map(|breaker| breaker.reason), Some(BreakerReason::Undone));
    }
}
