//! Strategies: when to compact, and how much to keep.

use crate::core::context::{RequestCount, manual::Manual, threshold::Threshold};
use reseed_protocol::{ErrorBody, ErrorCode, command::StrategySettings};

/// What a strategy decides about the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It may go out as it is.
    Ready,
    /// It may go out, but the user should know that the window is nearly full.
    Warn,
    /// Summarise first, keeping about so many of the newest tokens.
    Compact {
        /// Tokens to keep word for word.
        keep_tokens: u64,
    },
}

/// Decides before every request, also between tool rounds. Pure; asked with the exact count of the request.
pub trait ContextManager: Send + std::fmt::Debug {
    /// The short name, as settings and the wire have it.
    fn name(&self) -> &'static str;

    /// What to do about the next request, in a window of so many tokens.
    fn before_request(&self, count: &RequestCount, window_tokens: u64) -> Decision;

    /// From which count on it compacts by itself; `None` where it never does.
    fn compact_at_tokens(&self, window_tokens: u64) -> Option<u64>;

    /// Tokens it leaves free for the answer.
    fn reserved_tokens(&self, window_tokens: u64) -> u64;

    /// Tokens that a compaction keeps word for word.
    fn keep_tokens(&self, window_tokens: u64) -> u64;

    /// Whether a refusal of the provider as too large may be answered by compacting.
    fn compacts_on_overflow(&self) -> bool;
}

/// The deployment's settings, under which a session's stand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Defaults {
    /// Compact when more than this share of the window is used; above 0, at most 1.
    pub threshold: f64,
    /// Compact when less than this many tokens are free.
    pub reserve_tokens: u64,
    /// About how many recent tokens stay word for word.
    pub keep_recent_tokens: u64,
}

impl Default for Defaults {
    fn default() -> Self {
        Self { threshold: 0.8, reserve_tokens: 16_384, keep_recent_tokens: 20_000 }
    }
}

/// The strategies by short name.
pub const NAMES: [&str; 2] = ["threshold", "manual"];

/// The short name of a strategy, its aliases resolved; `None` when there is no such strategy.
#[must_use]
pub fn resolve(name: &str) -> Option<&'static str> {
    match name {
        "threshold" => Some("threshold"),
        "manual" | "dummy" | "none" => Some("manual"),
        _ => None,
    }
}

/// Makes a strategy from its name and settings.
///
/// # Errors
/// `unknown_strategy`, listing those there are; `invalid_field`, naming the setting and what is allowed.
pub fn strategy(
    name: &str,
    settings: Option<&StrategySettings>,
    defaults: Defaults,
) -> Result<Box<dyn ContextManager>, ErrorBody> {
    let resolved = resolve(name).ok_or_else(|| {
        let shown: String = name.chars().take(40).collect();
        ErrorBody::new(
            ErrorCode::UnknownStrategy,
            format!("there is no strategy `{shown}`; there are threshold and manual (also called dummy or none)"),
        )
        .with_field("strategy")
    })?;
    let limits = limits(settings, defaults)?;
    Ok(match resolved {
        "manual" => Box::new(Manual::new(limits)),
        _ => Box::new(Threshold::new(limits)),
    })
}

fn limits(settings: Option<&StrategySettings>, defaults: Defaults) -> Result<Defaults, ErrorBody> {
    let Some(settings) = settings else { return Ok(defaults) };
    let invalid = |field: &str, message: String| {
        Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field(format!("settings.{field}")))
    };
    let threshold = settings.threshold.unwrap_or(defaults.threshold);
    if !(threshold > 0.0 && threshold <= 1.0) {
        return invalid("threshold", format!("the threshold is above 0 and at most 1, not {threshold}"));
    }
    let keep_recent_tokens = settings.keep_recent_tokens.unwrap_or(defaults.keep_recent_tokens);
    if keep_recent_tokens == 0 {
        return invalid("keepRecentTokens", "keepRecentTokens is at least 1, not 0".to_owned());
    }
    Ok(Defaults {
        threshold,
        reserve_tokens: settings.reserve_tokens.unwrap_or(defaults.reserve_tokens),
        keep_recent_tokens,
    })
}

impl Defaults {
    /// The reserve in a window: at most 20 % of it, so that a small window is not all reserve.
    #[must_use]
    pub fn reserve_in(&self, window_tokens: u64) -> u64 {
        self.reserve_tokens.min(window_tokens / 5)
    }

    /// What is kept in a window: at most 25 % of it, so that a compaction always gets well below the trigger.
    #[must_use]
    pub fn keep_in(&self, window_tokens: u64) -> u64 {
        self.keep_recent_tokens.min(window_tokens / 4).max(1)
    }
}
