//! Every series that can be named beforehand is there from the start, at zero. Without that an alert on an increase misses
//! the first one: a series that appears with the value 1 has not increased.
//!
//! Commands and hooks are told by type and by error code; those products have thousands of members, of which a server sees
//! a few. Of them the series of successes are there from the start, and each code appears with its first error.

use super::{
    compaction,
    declared::{BUILD_INFO, zero_all},
};
use reseed_protocol::{ErrorCode, command::Command, hook::HookPoint};

/// The values that a metric's label can have from the start.
fn values(metric: &str, label: &str) -> Vec<&'static str> {
    let codes = || ErrorCode::ALL.iter().map(|code| code.as_str());
    match (metric, label) {
        (_, "dialect") => vec!["none", "v1", "v2"],
        ("reseed_closes_total", "code") => {
            let mut values =
                vec!["1000", "1002", "1007", "1009", "1011", "1012", "1013", "4400", "4401", "4403", "4404", "4408"];
            values.extend(["4409", "4429", "4504", "4508"]);
            values
        }
        ("reseed_frames_refused_total", "code") => codes().collect(),
        ("reseed_commands_total", "type") => Command::NAMES.to_vec(),
        ("reseed_commands_total", "outcome") | ("reseed_hook_calls_total", "outcome") => vec!["ok"],
        ("reseed_turns_total", "status") => vec!["completed", "failed", "cancelled", "interrupted"],
        (_, "purpose") => vec!["turn", "summary"],
        ("reseed_held_tokens_unused_total", "kind") => vec!["input", "output"],
        ("reseed_tokens_total", "kind") => vec!["input", "cached", "cache_write", "output", "reasoning"],
        ("reseed_model_requests_total", "outcome") => {
            ["ok", "cancelled"].into_iter().chain(codes().filter(|code| of_a_model(code))).collect()
        }
        ("reseed_prefix_breaks_total" | "reseed_prefix_tokens_lost_total", "reason") => {
            let mut values = vec!["patch", "compaction", "compaction_undone", "navigation", "model", "tools"];
            values.extend(["instructions", "uncached", "strategy", "pins", "unknown"]);
            values
        }
        (_, "trigger") => vec!["manual", "threshold", "overflow", "strategy"],
        ("reseed_compactions_total", "rung") => [&["none"][..], RUNGS].concat(),
        (_, "rung") => RUNGS.to_vec(),
        ("reseed_compactions_total", "outcome") => vec!["committed", "failed", "no_gain", "cancelled", "void"],
        ("reseed_compaction_rungs_failed_total", "reason") => [compaction::REASONS, &["other"]].concat(),
        ("reseed_compaction_previews_total", "outcome") => vec!["shown", "applied"],
        (_, "mode") => vec!["background", "foreground"],
        ("reseed_breakers_open" | "reseed_breakers_opened_total", "reason") => vec!["failures", "no_gain", "undone"],
        ("reseed_hook_calls_total" | "reseed_hook_duration_seconds", "kind") => vec!["rust", "webhook", "client"],
        ("reseed_hook_calls_total" | "reseed_hook_duration_seconds", "event") => {
            HookPoint::ALL.iter().map(|point| point.as_str()).collect()
        }
        ("reseed_store_commits_total", "outcome") => vec!["ok", "failed"],
        ("reseed_build_info", "version") => vec![env!("CARGO_PKG_VERSION")],
        _ => Vec::new(),
    }
}

const RUNGS: &[&str] =
    &["clear_tool_results", "model_summary", "chunked_summary", "extract", "truncate", "hook_summary"];

/// Whether requests to a model can end with this code.
fn of_a_model(code: &str) -> bool {
    code.starts_with("upstream_") || matches!(code, "context_overflow" | "content_filtered" | "internal")
}

/// Every way to choose a value for each of these labels.
pub(super) fn series(metric: &str, labels: &[&str]) -> Vec<Vec<&'static str>> {
    let mut all = vec![Vec::new()];
    for label in labels {
        let values = values(metric, label);
        all = all.iter().flat_map(|one| values.iter().map(move |value| [one.as_slice(), &[*value]].concat())).collect();
    }
    all.retain(|one| is_possible(metric, one));
    all
}

/// Leaves out what cannot happen: a compaction has made room where it was committed, and nowhere else.
fn is_possible(metric: &str, values: &[&str]) -> bool {
    match (metric, values) {
        ("reseed_compactions_total", [_, rung, outcome, _]) => (*rung == "none") == (*outcome != "committed"),
        _ => true,
    }
}

/// Makes every such series, and tells which program this is.
pub(super) fn begin() {
    zero_all();
    BUILD_INFO.gauge([env!("CARGO_PKG_VERSION")]).set(1.0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{declared::DECLARED, tests::rendered};

    /// How many members of a product of labels there may be.
    const SERIES_MAX: usize = 1_000;

    #[test]
    fn every_declared_metric_has_a_sample_before_anything_has_happened() {
        let text = rendered(begin);
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
        for (name, labels) in DECLARED {
            let series = series(name, labels).len();
            assert!((1..=SERIES_MAX).contains(&series), "{name}: {series} series; add its labels' values to zero.rs");
            let is_of = |line: &&&str| {
                let rest = line.strip_prefix(name).unwrap_or_default();
                ["{", " ", "_bucket{", "_sum", "_count"].iter().any(|next| rest.starts_with(next))
            };
            let found: Vec<&&str> = samples.iter().filter(is_of).collect();
            assert!(found.len() >= series, "{name} has {} samples of {series}", found.len());
            let value = if *name == "reseed_build_info" { " 1" } else { " 0" };
            assert!(found.iter().all(|line| line.ends_with(value)), "{name}: {found:?}");
        }
        assert!(samples.len() < 5_000, "{} samples are too many to read every few seconds", samples.len());
        let build = format!("reseed_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
        assert!(samples.contains(&build.as_str()), "{build}");
    }

    #[test]
    fn the_values_are_those_that_are_recorded() {
        let text = rendered(crate::metrics::tests::record_all);
        // Errors of commands and hooks, and what this module's head says of them.
        let is_error = |line: &str| {
            (line.starts_with("reseed_commands_total") || line.starts_with("reseed_hook_calls_total"))
                && !line.contains("outcome=\"ok\"")
        };
        let zero = rendered(begin);
        let named: std::collections::BTreeSet<&str> =
            zero.lines().filter_map(|line| line.rsplit_once(' ')).map(|(series, _)| series).collect();
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty() && !is_error(line)) {
            let (series, _) = line.rsplit_once(' ').unwrap();
            assert!(named.contains(series), "{series} is not there from the start");
        }
    }
}
