//! Makes strategies from their names. A new one is a file beside this one and a line in [`strategy`].

use crate::core::context::{
    ContextManager, manual::Manual, strategy::Defaults, threshold::Threshold, window::TOKENS_MAX,
};
use reseed_protocol::{ErrorBody, ErrorCode, command::StrategySettings};

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
    for (field, tokens) in
        [("reserveTokens", settings.reserve_tokens), ("keepRecentTokens", settings.keep_recent_tokens)]
    {
        if let Some(tokens) = tokens.filter(|tokens| *tokens > TOKENS_MAX) {
            return invalid(field, format!("{field} is at most {TOKENS_MAX}, not {tokens}"));
        }
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
