//! Compaction metrics, and their label values, which the log also uses.

use super::{declared::*, word};
use reseed_protocol::{
    ErrorCode,
    compaction::{CompactionFailed, CompactionTrigger, ContextCompacted, FailedRung},
    context::BreakerReason,
};
use std::time::Duration;

/// The outcome of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CompactionOutcome {
    /// The context became smaller.
    Committed,
    /// The context is unchanged because something failed.
    Failed,
    /// The context is unchanged because no step saved enough.
    NoGain,
    /// Cancelled by a person or program.
    Cancelled,
    /// It was discarded, because the model no longer sees the entries that it had read.
    Void,
}

impl CompactionOutcome {
    /// Returns the outcome of a compaction that ended with this error code.
    #[must_use]
    pub(crate) fn of(code: ErrorCode) -> Self {
        match code {
            ErrorCode::NothingToCompact => Self::NoGain,
            ErrorCode::CompactionCancelled => Self::Cancelled,
            ErrorCode::CompactionVoid => Self::Void,
            _ => Self::Failed,
        }
    }

    /// Returns the label value.
    #[must_use]
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Failed => "failed",
            Self::NoGain => "no_gain",
            Self::Cancelled => "cancelled",
            Self::Void => "void",
        }
    }
}

/// Returns the label value for whether turns continued during the compaction.
#[must_use]
pub(crate) fn mode(background: bool) -> &'static str {
    if background { "background" } else { "foreground" }
}

/// Returns the label value for the reason why a fallback step failed, from a closed set; `other` if it is unknown.
#[must_use]
pub(crate) fn reason(reason: &str) -> &'static str {
    reasons().find(|known| *known == reason).unwrap_or("other")
}

/// Returns the known reasons.
pub(super) fn reasons() -> impl Iterator<Item = &'static str> {
    REASONS.iter().copied().chain(FAULTS.iter().map(|code| code.as_str()))
}

/// Reasons that are not errors of a model.
const REASONS: &[&str] =
    &["too_little", "not_smaller", "empty", "truncated", "continued", "refused", "malformed", "timeout"];

/// Errors of a model, each of which is a reason.
const FAULTS: &[ErrorCode] = &[
    ErrorCode::ContextOverflow,
    ErrorCode::UpstreamUnreachable,
    ErrorCode::UpstreamTimeout,
    ErrorCode::UpstreamAuth,
    ErrorCode::UpstreamQuota,
    ErrorCode::UpstreamRateLimited,
    ErrorCode::UpstreamOverloaded,
    ErrorCode::UpstreamNotFound,
    ErrorCode::UpstreamRejected,
    ErrorCode::UpstreamError,
    ErrorCode::UpstreamTruncated,
    ErrorCode::UpstreamMalformed,
];

/// Records a committed compaction.
pub(crate) fn compaction_committed(event: &ContextCompacted) {
    ended(event.trigger, word(event.rung), CompactionOutcome::Committed, event.background);
    took(event.background, event.duration_ms, event.paused_ms, &event.failed_rungs);
    let saved = event.tokens_before.saturating_sub(event.tokens_after);
    #[expect(clippy::cast_precision_loss, reason = "a share, for buckets of a twentieth")]
    let share = saved as f64 / event.tokens_before.max(1) as f64;
    COMPACTION_REDUCTION.record([], share);
    if let Some(due) = event.compact_at_tokens.filter(|due| *due > 0 && event.trigger != CompactionTrigger::Manual) {
        #[expect(clippy::cast_precision_loss, reason = "a share, for buckets of a twentieth")]
        let share = event.tokens_before as f64 / due as f64;
        COMPACTION_TRIGGER_RATIO.record([], share);
    }
    COMPACTION_TOKENS_SAVED_TOTAL.add([], saved);
    COMPACTION_CACHED_TOKENS_LOST_TOTAL.add([], event.cached_tokens_lost);
}

/// Records a compaction that was not committed. The summary of an abandoned branch is not a compaction. It has no
/// trigger and is not counted.
pub(crate) fn compaction_failed(event: &CompactionFailed) {
    let Some(trigger) = event.trigger else { return };
    ended(trigger, "none", CompactionOutcome::of(event.error.code), event.background);
    took(event.background, event.duration_ms, event.paused_ms, &event.failed_rungs);
    if let Some(usage) = &event.summary_usage {
        for (kind, tokens) in [("input", usage.input_tokens), ("output", usage.output_tokens)] {
            HELD_TOKENS_UNUSED_TOTAL.add([kind], tokens);
        }
    }
}

fn ended(asked: CompactionTrigger, rung: &'static str, outcome: CompactionOutcome, background: bool) {
    COMPACTIONS_TOTAL.add([word(asked), rung, outcome.word(), mode(background)], 1);
}

fn took(background: bool, duration_ms: u64, paused_ms: u64, failed: &[FailedRung]) {
    COMPACTION_SECONDS.record([mode(background)], Duration::from_millis(duration_ms));
    COMPACTION_PAUSED_SECONDS.record([], Duration::from_millis(paused_ms));
    for failed in failed {
        COMPACTION_RUNGS_FAILED_TOTAL.add([word(failed.rung), reason(&failed.reason)], 1);
    }
}

/// Counts a session in memory whose circuit breaker for automatic compaction opens, until the guard is dropped.
#[must_use]
pub(crate) fn breaker_opened(reason: BreakerReason) -> Held {
    if reason != BreakerReason::Undone {
        // This reason is read from the log, so it recurs each time the session is opened.
        BREAKERS_OPENED_TOTAL.add([word(reason)], 1);
    }
    BREAKERS_OPEN.hold([word(reason)])
}

#[cfg(test)]
pub(super) mod tests {
    use super::{super::tests::rendered, *};
    use reseed_protocol::{ErrorBody, Usage, UsageSource, compaction::CompactionRung};
    use serde_json::{Value, json};

    /// Returns a compaction from 1,000 tokens to 400, with `change` applied.
    pub(crate) fn committed(change: impl FnOnce(&mut ContextCompacted)) -> ContextCompacted {
        let breakdown: Value = serde_json::to_value(reseed_protocol::context::Breakdown::default()).unwrap();
        let mut event: ContextCompacted = serde_json::from_value(json!({
            "tokensBefore": 1_000, "tokensAfter": 400, "reductionPercent": 60.0, "strategy": "threshold",
            "jobId": "job1", "entryId": "entry1", "keptEntryIds": [], "trigger": "threshold", "rung": "model_summary",
            "summary": "secret words", "generation": 2, "durationMs": 700, "pausedMs": 0, "cachedTokensLost": 0,
            "breakdown": { "before": breakdown, "after": breakdown },
        }))
        .unwrap();
        change(&mut event);
        event
    }

    pub(crate) fn failed(code: ErrorCode, change: impl FnOnce(&mut CompactionFailed)) -> CompactionFailed {
        let mut event = CompactionFailed {
            job_id: "job1".parse().unwrap(),
            command_id: None,
            trigger: Some(CompactionTrigger::Threshold),
            background: false,
            failed_rungs: Vec::new(),
            duration_ms: 20,
            paused_ms: 0,
            summary_usage: None,
            error: ErrorBody::new(code, "secret words"),
        };
        change(&mut event);
        event
    }

    /// Returns the usage of a summary that was never used.
    pub(crate) fn usage() -> Usage {
        Usage {
            input_tokens: 900,
            cached_tokens: 0,
            cache_write_tokens: None,
            cache_write_hour_tokens: None,
            output_tokens: 80,
            reasoning_tokens: None,
            prefix_tokens: None,
            further: None,
            cost_nano_usd: None,
            source: UsageSource::Reported,
        }
    }

    #[test]
    fn what_was_held_and_never_used_is_counted_by_its_tokens() {
        check(
            || {
                COMPACTIONS_PREPARED_TOTAL.add([], 1);
                compaction_failed(&failed(ErrorCode::CompactionVoid, |event| event.summary_usage = Some(usage())));
            },
            &[
                r#"compaction_duration_seconds_count{mode="foreground"} 1"#,
                r#"compaction_duration_seconds_sum{mode="foreground"} 0.02"#,
                r#"compaction_paused_seconds_count 1"#,
                r#"compactions_prepared_total 1"#,
                r#"compactions_total{trigger="threshold",rung="none",outcome="void",mode="foreground"} 1"#,
                r#"held_tokens_unused_total{kind="input"} 900"#,
                r#"held_tokens_unused_total{kind="output"} 80"#,
            ],
        );
    }

    fn rungs(table: &[(CompactionRung, &str)]) -> Vec<FailedRung> {
        table.iter().map(|(rung, reason)| FailedRung { rung: *rung, reason: (*reason).to_owned() }).collect()
    }

    /// Returns every non-zero sample, without the buckets.
    fn samples(record: impl FnOnce()) -> Vec<String> {
        let text = rendered(record);
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.contains("_bucket"));
        let lines = lines.filter_map(|line| line.strip_prefix("reseed_")).filter(|line| !line.ends_with(" 0"));
        let mut samples: Vec<String> = lines.filter(|line| !line.is_empty()).map(str::to_owned).collect();
        samples.sort();
        samples
    }

    #[track_caller]
    fn check(record: impl FnOnce(), expected: &[&str]) {
        let found = samples(record);
        assert_eq!(found, expected, "{found:#?}");
    }

    #[test]
    fn a_committed_compaction_is_counted_with_all_it_took() {
        check(
            || {
                compaction_committed(&committed(|event| {
                    event.background = true;
                    event.rung = CompactionRung::Extract;
                    event.failed_rungs = rungs(&[
                        (CompactionRung::ModelSummary, "context_overflow"),
                        (CompactionRung::ChunkedSummary, "upstream_rate_limited"),
                        (CompactionRung::ChunkedSummary, "words of somebody's own"),
                    ]);
                    event.paused_ms = 250;
                    event.cached_tokens_lost = 900;
                }));
            },
            &[
                r#"compaction_cached_tokens_lost_total 900"#,
                r#"compaction_duration_seconds_count{mode="background"} 1"#,
                r#"compaction_duration_seconds_sum{mode="background"} 0.7"#,
                r#"compaction_paused_seconds_count 1"#,
                r#"compaction_paused_seconds_sum 0.25"#,
                r#"compaction_reduction_ratio_count 1"#,
                r#"compaction_reduction_ratio_sum 0.6"#,
                r#"compaction_rungs_failed_total{rung="chunked_summary",reason="other"} 1"#,
                r#"compaction_rungs_failed_total{rung="chunked_summary",reason="upstream_rate_limited"} 1"#,
                r#"compaction_rungs_failed_total{rung="model_summary",reason="context_overflow"} 1"#,
                r#"compaction_tokens_saved_total 600"#,
                r#"compactions_total{trigger="threshold",rung="extract",outcome="committed",mode="background"} 1"#,
            ],
        );
    }

    #[test]
    fn what_comes_to_nothing_is_counted_by_how() {
        for (code, outcome) in [
            (ErrorCode::CompactionCancelled, "cancelled"),
            (ErrorCode::CompactionVoid, "void"),
            (ErrorCode::NothingToCompact, "no_gain"),
            (ErrorCode::UpstreamTimeout, "failed"),
            (ErrorCode::Internal, "failed"),
        ] {
            let counted = format!(
                r#"compactions_total{{trigger="threshold",rung="none",outcome="{outcome}",mode="foreground"}} 1"#
            );
            check(
                || {
                    compaction_failed(&failed(code, |event| {
                        event.failed_rungs = rungs(&[(CompactionRung::Truncate, "too_little")]);
                    }));
                },
                &[
                    r#"compaction_duration_seconds_count{mode="foreground"} 1"#,
                    r#"compaction_duration_seconds_sum{mode="foreground"} 0.02"#,
                    r#"compaction_paused_seconds_count 1"#,
                    r#"compaction_rungs_failed_total{rung="truncate",reason="too_little"} 1"#,
                    &counted,
                ],
            );
        }
        // The summary of a branch is not a compaction.
        check(|| compaction_failed(&failed(ErrorCode::NavigationCancelled, |event| event.trigger = None)), &[]);
    }

    #[test]
    fn a_session_that_rests_is_counted_until_it_does_not() {
        check(
            || {
                let first = breaker_opened(BreakerReason::Failures);
                drop(breaker_opened(BreakerReason::NoGain));
                std::mem::forget((first, breaker_opened(BreakerReason::Undone)));
            },
            &[
                r#"breakers_opened_total{reason="failures"} 1"#,
                r#"breakers_opened_total{reason="no_gain"} 1"#,
                r#"breakers_open{reason="failures"} 1"#,
                r#"breakers_open{reason="undone"} 1"#,
            ],
        );
    }

    #[test]
    fn every_reason_that_a_step_gives_is_known_or_other() {
        for known in ["too_little", "timeout", "upstream_error", "context_overflow"] {
            assert_eq!(reason(known), known);
        }
        for unknown in ["", "Too_Little", "queue_full", "my secret"] {
            assert_eq!(reason(unknown), "other");
        }
    }
}
