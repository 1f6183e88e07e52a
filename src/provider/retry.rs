//! Retries after transient failures.
//!
//! Invariant: once the first word of an answer has arrived, the request is not retried, because the model has done work
//! and its words may have been shown. Before that, a fault in a stream is retried like the same fault with an HTTP
//! status, and so is a broken stream. Failures that would repeat (credentials, quota, overflow, an invalid request) are
//! not retried. Neither is silence, because a server that sent nothing for minutes may still be working on the request.

use super::{Delay, DeltaSink};
use crate::core::model::ModelFault;
use reseed_protocol::ErrorCode;
use std::{num::NonZeroU32, time::Duration};

/// The number and the delays of retries of a failed request.
#[derive(Debug, Clone, Copy)]
pub struct RetryPolicy {
    /// Maximum attempts, including the first.
    pub tries_max: NonZeroU32,
    /// Upper bound of the first wait. It doubles with each failure.
    pub backoff_base: Duration,
    /// Upper bound of every wait that the upstream did not request.
    pub backoff_max: Duration,
    /// Maximum time that a request waits because its upstream asks for it, summed over all its waits. If the upstream
    /// asks for more, the fault is returned at once and includes the wait.
    pub retry_after_max: Duration,
    /// Returns a random number from 0 to 1 for each wait. It spreads the waits over their whole range, so that clients
    /// that failed together do not retry together.
    pub jitter: fn() -> f64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            tries_max: const { NonZeroU32::new(4).expect("4 is not 0") },
            backoff_base: Duration::from_millis(500),
            backoff_max: Duration::from_secs(8),
            // Most limits are per minute, and some servers add a little.
            retry_after_max: Duration::from_secs(90),
            jitter: fastrand::f64,
        }
    }
}

/// A failed attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct Failed {
    /// The reason.
    pub fault: ModelFault,
    /// True if any word of an answer had arrived.
    pub begun: bool,
}

impl RetryPolicy {
    /// Returns how long to wait before the next attempt; `None` to give up. `failures` counts the failed attempts,
    /// `waited` sums up the earlier waits, and `failed` is the last attempt.
    #[must_use]
    pub fn wait(&self, failures: u32, waited: Duration, failed: &Failed) -> Option<Duration> {
        if failed.begun || failures >= self.tries_max.get() || !is_transient(failed.fault.code) {
            return None;
        }
        // 2^16 times the base exceeds every sensible maximum, and the shift must not overflow.
        let doubled = self.backoff_base.saturating_mul(1 << failures.saturating_sub(1).min(16));
        let spread = doubled.min(self.backoff_max).mul_f64((self.jitter)().clamp(0.0, 1.0));
        let left = self.retry_after_max.saturating_sub(waited);
        match failed.fault.retry_after_ms.map(Duration::from_millis) {
            None | Some(Duration::ZERO) => Some(spread),
            Some(retry_after) if retry_after > left => None,
            Some(retry_after) => Some((retry_after + spread).min(left)),
        }
    }
}

/// The attempts of one request.
#[derive(Debug)]
pub struct Attempts<'p> {
    policy: &'p RetryPolicy,
    failures: u32,
    waited: Duration,
}

impl<'p> Attempts<'p> {
    /// Starts with no attempts made.
    #[must_use]
    pub fn new(policy: &'p RetryPolicy) -> Self {
        Self { policy, failures: 0, waited: Duration::ZERO }
    }

    /// Records a failed attempt, reports the wait, and waits until the next attempt is due.
    ///
    /// # Errors
    /// Returns the fault of that attempt if there is no further attempt.
    pub async fn after(&mut self, failed: Failed, sink: &mut dyn DeltaSink) -> Result<(), ModelFault> {
        self.failures += 1;
        match self.policy.wait(self.failures, self.waited, &failed) {
            Some(wait) => {
                self.waited += wait;
                sink.delayed(&Delay { attempt: self.failures + 1, wait, reason: failed.fault.code });
                tokio::time::sleep(wait).await;
                Ok(())
            }
            None => Err(failed.fault),
        }
    }
}

/// Returns true if a failure may be over soon.
pub(crate) fn is_transient(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::UpstreamUnreachable
            | ErrorCode::UpstreamRateLimited
            | ErrorCode::UpstreamOverloaded
            | ErrorCode::UpstreamError
            | ErrorCode::UpstreamTruncated
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::model::Delta;
    use tokio::time::Instant;

    /// The attempts and the waits before them, in milliseconds.
    #[derive(Default)]
    struct Told(Vec<(u32, u128)>);

    impl DeltaSink for Told {
        fn delta(&mut self, _: Delta<'_>) {}

        fn delayed(&mut self, delay: &Delay) {
            self.0.push((delay.attempt, delay.wait.as_millis()));
        }
    }

    fn policy() -> RetryPolicy {
        RetryPolicy { jitter: || 1.0, ..RetryPolicy::default() }
    }

    fn failed(code: ErrorCode, retry_after_ms: Option<u64>) -> Failed {
        Failed { fault: ModelFault { retry_after_ms, ..ModelFault::new(code, "x") }, begun: false }
    }

    #[test]
    fn only_what_may_pass_is_waited_for() {
        let retried = [
            ErrorCode::UpstreamUnreachable,
            ErrorCode::UpstreamRateLimited,
            ErrorCode::UpstreamOverloaded,
            ErrorCode::UpstreamError,
            ErrorCode::UpstreamTruncated,
        ];
        for &code in ErrorCode::ALL {
            assert_eq!(
                policy().wait(1, Duration::ZERO, &failed(code, None)).is_some(),
                retried.contains(&code),
                "{code}"
            );
        }
    }

    #[test]
    fn waits_double_up_to_their_bound_and_are_spread() {
        let wait = |failures, jitter: fn() -> f64| {
            let policy = RetryPolicy { jitter, tries_max: NonZeroU32::MAX, ..policy() };
            policy.wait(failures, Duration::ZERO, &failed(ErrorCode::UpstreamError, None)).unwrap().as_millis()
        };
        let full: Vec<u128> = [1, 2, 3, 5, 6, 40].into_iter().map(|n| wait(n, || 1.0)).collect();
        assert_eq!(full, [500, 1_000, 2_000, 8_000, 8_000, 8_000]);
        assert_eq!(wait(3, || 0.25), 500);
        assert_eq!(wait(3, || 0.0), 0);
    }

    #[test]
    fn the_upstreams_wish_is_honoured_up_to_its_bound() {
        for (waited, retry_after, expected) in [
            (0, 0, Some(500)),
            (0, 5_000, Some(5_500)),
            (0, 37_000, Some(37_500)),
            (0, 89_900, Some(90_000)),
            (0, 90_000, Some(90_000)),
            (0, 90_001, None),
            // All waits of a request count.
            (45_500, 44_000, Some(44_500)),
            (45_500, 44_500, Some(44_500)),
            (45_500, 45_000, None),
            (120_000, 0, Some(500)),
        ] {
            let limited = failed(ErrorCode::UpstreamRateLimited, Some(retry_after));
            let wait = policy().wait(1, Duration::from_millis(waited), &limited);
            assert_eq!(wait, expected.map(Duration::from_millis), "{waited} {retry_after}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_end_with_the_last_ones_fault() {
        let overloaded = failed(ErrorCode::UpstreamOverloaded, None);
        let begun = Failed { begun: true, ..overloaded.clone() };
        for (failures, waits) in [
            (vec![overloaded.clone(); 4], vec![(2, 500), (3, 1_000), (4, 2_000)]),
            (vec![overloaded.clone(), begun.clone()], vec![(2, 500)]),
            (vec![begun], vec![]),
            (vec![failed(ErrorCode::UpstreamAuth, None)], vec![]),
        ] {
            let (policy, mut told, start) = (policy(), Told::default(), Instant::now());
            let mut attempts = Attempts::new(&policy);
            let last = failures.last().map(|last| last.fault.clone());
            let mut outcomes = Vec::new();
            for failed in failures {
                outcomes.push(attempts.after(failed, &mut told).await);
            }
            assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), waits.len());
            assert_eq!(outcomes.pop().and_then(Result::err), last);
            assert_eq!(start.elapsed().as_millis(), waits.iter().map(|(_, wait)| wait).sum::<u128>());
            assert_eq!(told.0, waits);
        }
    }
}
