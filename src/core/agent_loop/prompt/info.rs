//! The context meter and the context report, both derived from one count.

use super::Prompt;
use crate::agent_loop::ledger::Ledger;
use crate::{compaction::strategies::manual::WARN_PERCENT, context::RequestCount};
use reseed_protocol::context::{Breaker, ContextInfo};

impl Prompt {
    /// Returns how full the window is, given this count of the next request and this state of the circuit breaker.
    pub(crate) fn context_info_of(
        &self,
        ledger: &Ledger,
        count: &RequestCount,
        window: u64,
        breaker: Option<Breaker>,
    ) -> ContextInfo {
        let compact_at_tokens = self.manager().compact_at_tokens(window);
        ContextInfo {
            token_count: count.tokens,
            transcript_length: count.messages,
            max_tokens: window,
            learned_window_tokens: ledger
                .session
                .state
                .settings
                .learned_window_tokens
                .filter(|learned| *learned == window),
            strategy: self.manager().name().to_owned(),
            warning: warning(count.tokens, window, compact_at_tokens),
            usage_ratio: usage_ratio(count.tokens, window),
            source: count.source,
            usage_tokens: count.usage_tokens,
            trailing_tokens: count.trailing_tokens,
            last_usage_entry_id: count.last_usage_entry_id.clone(),
            error_bound_tokens: count.error_bound_tokens,
            reserved_tokens: self.manager().reserved_tokens(window),
            compact_at_tokens,
            compact_at_rule: self.manager().compact_at_rule(window),
            prepare_at_tokens: self.manager().prepare_at_tokens(window),
            cached_tokens: count.cached_tokens,
            generation: ledger.generation,
            compactions: ledger.state().compactions,
            session_id: ledger.session.id.clone(),
            leaf_id: ledger.state().leaf.clone(),
            breaker,
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
