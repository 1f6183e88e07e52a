//! Makes strategies from their names. A new one is a file in `strategies/` and a line of [`STRATEGIES`].

use crate::core::context::{
    ContextManager,
    strategies::{
        importance::Importance, manual::Manual, pipeline::Pipeline, sliding_window::SlidingWindow,
        threshold::Threshold, tool_results::ToolResults, truncate::Truncate,
    },
    strategy::Options,
    window::TOKENS_MAX,
};
use reseed_protocol::{ErrorBody, ErrorCode, command::StrategySettings};

/// A strategy: its short name, its other names, and how it is made.
struct Entry {
    name: &'static str,
    aliases: &'static [&'static str],
    make: fn(Options) -> Box<dyn ContextManager>,
}

const STRATEGIES: &[Entry] = &[
    Entry { name: "threshold", aliases: &[], make: |options| Box::new(Threshold::new(options)) },
    Entry { name: "manual", aliases: &["dummy", "none"], make: |options| Box::new(Manual::new(options)) },
    Entry { name: "sliding_window", aliases: &[], make: |options| Box::new(SlidingWindow::new(options)) },
    Entry { name: "tool_results", aliases: &[], make: |options| Box::new(ToolResults::new(options)) },
    Entry { name: "truncate", aliases: &[], make: |options| Box::new(Truncate::new(options)) },
    Entry { name: "importance", aliases: &[], make: |options| Box::new(Importance::new(options)) },
    Entry { name: "pipeline", aliases: &[], make: |options| Box::new(Pipeline::new(options.clone(), parts(&options))) },
];

/// All names by which strategies are known.
#[must_use]
pub fn all_names() -> Vec<&'static str> {
    STRATEGIES.iter().flat_map(|entry| std::iter::once(entry.name).chain(entry.aliases.iter().copied())).collect()
}

/// The short name of a strategy, its aliases resolved; `None` when there is no such strategy.
#[must_use]
pub fn resolve(name: &str) -> Option<&'static str> {
    find(name).map(|entry| entry.name)
}

fn find(name: &str) -> Option<&'static Entry> {
    STRATEGIES.iter().find(|entry| entry.name == name || entry.aliases.contains(&name))
}

/// Makes a strategy from its name and settings.
///
/// # Errors
/// `unknown_strategy`, listing those there are; `invalid_field`, naming the setting and what is allowed.
pub fn strategy(
    name: &str,
    settings: Option<&StrategySettings>,
    defaults: &Options,
) -> Result<Box<dyn ContextManager>, ErrorBody> {
    let found = find(name).ok_or_else(|| unknown(name, "strategy"))?;
    Ok((found.make)(options(settings, defaults)?))
}

/// The strategies of a pipeline with its settings.
fn parts(options: &Options) -> Vec<Box<dyn ContextManager>> {
    options.steps.iter().filter_map(|name| find(name)).map(|part| (part.make)(options.clone())).collect()
}

/// The refusal of a name that no strategy has.
#[must_use]
pub fn unknown(name: &str, field: &str) -> ErrorBody {
    let shown: String = name.chars().take(40).collect();
    let names: Vec<String> = STRATEGIES
        .iter()
        .map(|entry| match entry.aliases {
            [] => entry.name.to_owned(),
            aliases => format!("{} (also called {})", entry.name, aliases.join(" or ")),
        })
        .collect();
    let message = format!("there is no strategy `{shown}`; there are {}", names.join(", "));
    ErrorBody::new(ErrorCode::UnknownStrategy, message).with_field(field)
}

/// A session's settings over the deployment's.
///
/// # Errors
/// `invalid_field` and `unknown_strategy`, as [`strategy`].
pub fn options(settings: Option<&StrategySettings>, defaults: &Options) -> Result<Options, ErrorBody> {
    let mut options = defaults.clone();
    let Some(settings) = settings else { return Ok(options) };
    let invalid = |field: &str, message: String| {
        Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field(format!("settings.{field}")))
    };
    if let Some(threshold) = settings.threshold {
        if !(threshold > 0.0 && threshold <= 1.0) {
            return invalid("threshold", format!("the threshold is above 0 and at most 1, not {threshold}"));
        }
        options.threshold = threshold;
    }
    if let Some(target) = settings.target {
        if !(target > 0.0 && target < options.threshold) {
            let message =
                format!("the target is above 0 and below the threshold of {}, not {target}", options.threshold);
            return invalid("target", message);
        }
        options.target = target;
    }
    if let Some(background) = settings.background {
        if !(background > 0.0 && background <= 1.0) {
            return invalid("background", format!("background is above 0 and at most 1, not {background}"));
        }
        options.background = background;
    }
    if let Some(min_gain) = settings.min_gain {
        if !(0.0..=0.9).contains(&min_gain) {
            return invalid("minGain", format!("minGain is 0 to 0.9, not {min_gain}"));
        }
        options.min_gain = min_gain;
    }
    let counts: [(&str, Option<u64>, u64, &mut u64); 4] = [
        ("reserveTokens", settings.reserve_tokens, 0, &mut options.reserve_tokens),
        ("keepRecentTokens", settings.keep_recent_tokens, 1, &mut options.keep_recent_tokens),
        ("keepTurns", settings.keep_turns, 1, &mut options.keep_turns),
        ("keepToolResults", settings.keep_tool_results, 0, &mut options.keep_tool_results),
    ];
    for (field, given, least, option) in counts {
        let Some(given) = given else { continue };
        if !(least..=TOKENS_MAX).contains(&given) {
            return invalid(field, format!("{field} is {least} to {TOKENS_MAX}, not {given}"));
        }
        *option = given;
    }
    options.summarise = settings.summarise.unwrap_or(options.summarise);
    if let Some(steps) = &settings.steps {
        options.steps = check_steps(steps.iter().map(String::as_str))?;
    }
    Ok(options)
}

/// Strategies of a pipeline as it may have them: each once, none that never compacts, no pipeline.
///
/// # Errors
/// `unknown_strategy` and `invalid_field`, naming the step.
pub fn check_steps<'a>(steps: impl Iterator<Item = &'a str>) -> Result<Vec<&'static str>, ErrorBody> {
    let mut checked = Vec::new();
    for step in steps {
        let name = resolve(step).ok_or_else(|| unknown(step, "settings.steps"))?;
        if matches!(name, "manual" | "pipeline") || checked.contains(&name) {
            let message = format!("a pipeline has each strategy once, and neither manual nor pipeline: `{name}`");
            return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("settings.steps"));
        }
        checked.push(name);
    }
    if checked.is_empty() {
        let message = "a pipeline has at least one step";
        return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("settings.steps"));
    }
    Ok(checked)
}
