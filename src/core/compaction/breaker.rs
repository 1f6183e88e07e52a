//! The circuit breaker of automatic compaction. The agent loop ensures that only one compaction runs at a time; this
//! module decides when none may start, or only one without the model.
//!
//! - After [`FAILURES_MAX`] consecutive failed summaries, the breaker opens: the model is not asked for a time that
//!   doubles with each failure. It does not matter whether they ran in the background, in the foreground or on a
//!   person's request. Meanwhile compaction uses rules only, and only for a request that would not fit otherwise. When
//!   the time is over, the breaker is half-open: the next compaction asks the model, and its summary closes the
//!   breaker.
//! - After [`FUTILE_MAX`] consecutive compactions that gained too little, none starts until the context grows by a
//!   tenth of the window, or into its last twentieth.
//! - After an undone compaction, none starts until the context grows by a tenth of the window.
//! - After any compaction, none starts until the context grows at all, even if it is still near the limit.
//!
//! A person's `start_compaction` is never held back, and asks the model even while the breaker is open.

use reseed_protocol::{
    Timestamp,
    context::{Breaker, BreakerReason},
};

/// Consecutive failures that open the breaker. One is chance, and two are bad luck.
pub const FAILURES_MAX: u32 = 3;
/// Consecutive compactions without gain that open the breaker.
pub const FUTILE_MAX: u32 = 2;
/// Milliseconds for which the breaker stays open at first.
const OPEN_MILLIS: u64 = 60_000;
/// Maximum milliseconds for which it stays open: one hour. The end of a provider's outage may go unnoticed for that
/// long.
const OPEN_MILLIS_MAX: u64 = 3_600_000;
/// The fraction of the window by which the context must grow before compaction resumes after one without gain.
const GROWTH_WINDOW_PART: u64 = 10;

/// The last part of the window, in which it resumes anyway.
const NEAR_WINDOW_PART: u64 = 20;
/// The growth that is enough there.
const LAST_WINDOW_PART: u64 = 100;

/// The breaker's memory of a session's compactions. Kept while the session is in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CircuitBreaker {
    failures: u32,
    futile: u32,
    open_until: Option<Timestamp>,
    paused_below_tokens: Option<u64>,
    /// The count after a compaction, or when a person stopped one. No compaction starts before the context grows beyond
    /// it.
    settled_tokens: Option<u64>,
}

/// The automatic compactions that are allowed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permit {
    /// All of them.
    Full,
    /// Those by rule, without the model.
    ByRule,
    /// None.
    Denied,
}

impl CircuitBreaker {
    /// Returns what is allowed for a request of this many tokens. `undone_rest` is the count up to which compaction
    /// stays off after an undo. It does not apply to a request that cannot be sent otherwise (`is_needed`).
    #[must_use]
    pub fn permit(&self, now: Timestamp, tokens: u64, undone_rest: Option<u64>, is_needed: bool) -> Permit {
        if self.paused_below_tokens.is_some_and(|below| tokens <= below) {
            return Permit::Denied;
        }
        let left_alone = undone_rest.max(self.settled_tokens);
        if !is_needed && left_alone.is_some_and(|below| tokens <= below) {
            return Permit::Denied;
        }
        match self.open_until {
            Some(until) if now < until => {
                if is_needed {
                    Permit::ByRule
                } else {
                    Permit::Denied
                }
            }
            _ => Permit::Full,
        }
    }

    /// Records that the model was asked for a summary and did not produce a usable one.
    pub fn failed(&mut self, now: Timestamp) {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= FAILURES_MAX {
            let doubled = OPEN_MILLIS.saturating_mul(1 << (self.failures - FAILURES_MAX).min(10));
            self.open_until = Some(now.plus_millis(doubled.min(OPEN_MILLIS_MAX)));
        }
    }

    /// Records that the model produced a summary, which closes the breaker.
    pub fn summarised(&mut self) {
        self.failures = 0;
        self.open_until = None;
    }

    /// Records that a person stopped a compaction at this count.
    pub fn declined(&mut self, tokens: u64) {
        self.settled_tokens = Some(tokens);
    }

    /// Records that a compaction was made, or could not be made for lack of gain, at this count.
    pub fn gained(&mut self, is_enough: bool, tokens: u64, window_tokens: u64) {
        if is_enough {
            // The remaining context is not compacted again at once, even if it is still near the limit. This does not
            // show that the model works, because the compaction may have been made by rule.
            *self = Self { settled_tokens: Some(tokens), ..self.ordered() };
            return;
        }
        self.futile = self.futile.saturating_add(1);
        if self.futile >= FUTILE_MAX {
            let grown = tokens.saturating_add(window_tokens / GROWTH_WINDOW_PART);
            // The bound stays below the window, so that a request that only a compaction can save gets one. Near the
            // window, every bit counts.
            let near = window_tokens - window_tokens / NEAR_WINDOW_PART;
            let most = near.max(tokens.saturating_add(window_tokens / LAST_WINDOW_PART)).min(window_tokens);
            self.paused_below_tokens = Some(grown.min(most).saturating_sub(1));
        }
    }

    /// Prevents automatic compaction until a request exceeds this count, unless it cannot be sent otherwise.
    pub fn settle(&mut self, tokens: u64) {
        self.settled_tokens = Some(tokens);
    }

    /// Records that a person requested a compaction: earlier gains and stops no longer count. Failures still do,
    /// because the requested compaction will show whether the model works.
    #[must_use]
    pub fn ordered(self) -> Self {
        Self { failures: self.failures, open_until: self.open_until, ..Self::default() }
    }

    /// Forgets everything, because a person selected another strategy.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Returns why the breaker last opened, even if it is half-open now; `None` after a compaction with gain.
    #[must_use]
    pub fn tripped(&self) -> Option<BreakerReason> {
        let futile = self.paused_below_tokens.map(|_| BreakerReason::NoGain);
        futile.or(self.open_until.map(|_| BreakerReason::Failures))
    }

    /// Returns why the breaker is open for a request of this many tokens; `None` if it is closed.
    #[must_use]
    pub fn state(&self, now: Timestamp, tokens: u64, undone_rest: Option<u64>) -> Option<Breaker> {
        let (reason, failures, retry_at, retry_above_tokens, message) = if let Some(below) =
            self.paused_below_tokens.filter(|below| tokens <= *below)
        {
            let message = format!(
                "the last {} compactions saved too little; the next one starts above {below} tokens, or when you \
                 ask for one",
                self.futile
            );
            (BreakerReason::NoGain, self.futile, None, Some(below), message)
        } else if let Some(until) = self.open_until.filter(|until| now < *until) {
            let message = format!(
                "the last {} summaries failed; the model will not be asked for one until {until}, unless \
                 you ask for a compaction",
                self.failures
            );
            (BreakerReason::Failures, self.failures, Some(until), None, message)
        } else if let Some(below) = undone_rest.filter(|below| tokens <= *below) {
            let message =
                format!("a compaction was undone; the next one starts above {below} tokens, or when you ask for one");
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
    fn three_failures_open_the_breaker_for_longer_each_time_and_gain_closes_it() {
        let mut breaker = CircuitBreaker::default();
        for failures in 1..=12u32 {
            breaker.failed(NOW);
            let rest = match failures {
                ..3 => 0,
                _ => (60_000u64 << (failures - 3)).min(3_600_000),
            };
            for (after, is_needed, expected) in [
                (0, false, if rest > 0 { Permit::Denied } else { Permit::Full }),
                (0, true, if rest > 0 { Permit::ByRule } else { Permit::Full }),
                (rest, false, Permit::Full),
            ] {
                assert_eq!(breaker.permit(NOW.plus_millis(after), 1, None, is_needed), expected, "{failures} {after}");
            }
            let told = breaker.state(NOW, 1, None).map(|state| (state.reason, state.failures));
            assert_eq!(told, (rest > 0).then_some((BreakerReason::Failures, u64::from(failures))));
        }
        assert_eq!(breaker.state(NOW.plus_millis(3_600_000), 1, None), None, "its time is over");
        assert_eq!(breaker.tripped(), Some(BreakerReason::Failures), "and nothing has gained yet");
        breaker.gained(true, 900, 1_000);
        assert_eq!(breaker.tripped(), Some(BreakerReason::Failures), "what is made by rule says nothing of the model");
        breaker.summarised();
        assert_eq!(breaker.tripped(), None);
        // One crossing triggers one compaction, unless a request cannot be sent otherwise.
        for (tokens, is_needed, expected) in
            [(900, false, Permit::Denied), (901, false, Permit::Full), (900, true, Permit::Full)]
        {
            assert_eq!(breaker.permit(NOW, tokens, None, is_needed), expected, "{tokens} {is_needed}");
        }
        breaker.reset();
        assert_eq!(breaker, CircuitBreaker::default());
    }

    #[test]
    fn without_gain_it_stays_open_until_the_context_grows() {
        let mut breaker = CircuitBreaker::default();
        breaker.gained(false, 900, 1_000);
        assert_eq!((breaker.permit(NOW, 900, None, true), breaker.tripped()), (Permit::Full, None));
        breaker.gained(false, 900, 1_000);
        assert_eq!(breaker.tripped(), Some(BreakerReason::NoGain));
        for (tokens, expected) in [(900, Permit::Denied), (949, Permit::Denied), (950, Permit::Full)] {
            assert_eq!(breaker.permit(NOW, tokens, None, true), expected, "{tokens}");
        }
    }

    #[test]
    fn a_restored_context_is_left_alone_unless_it_must_shrink() {
        let breaker = CircuitBreaker::default();
        assert_eq!(breaker.permit(NOW, 900, Some(950), false), Permit::Denied);
        assert_eq!(breaker.permit(NOW, 900, Some(950), true), Permit::Full);
        assert_eq!(breaker.permit(NOW, 951, Some(950), false), Permit::Full);
        assert_eq!(breaker.state(NOW, 900, Some(950)).map(|breaker| breaker.reason), Some(BreakerReason::Undone));
    }
}
