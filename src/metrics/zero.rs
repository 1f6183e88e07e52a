//! Creates every predictable series at zero from the start. Otherwise an alert on an increase misses the first one,
//! because a series that appears with the value 1 has not increased.
//!
//! Commands are labelled by type and error code. This product has thousands of members, of which a server sees a few.
//! The following exist from the start: successes, errors that any command can return, and the errors in each command's
//! row of [`OUTCOMES`]. Others appear on first use.

use super::{
    close_label, compaction,
    declared::{BUILD_INFO, zero_all},
    limits::Limit,
    tools,
};
use reseed_protocol::{
    CloseCode, ErrorCode,
    command::{
        Command,
        outcomes::{OF_ANY, OUTCOMES},
    },
    hooks::HookPoint,
};

/// Returns the predictable values of a metric's label.
fn values(metric: &str, label: &str) -> Vec<&'static str> {
    let codes = || ErrorCode::ALL.iter().map(|code| code.as_str());
    match (metric, label) {
        ("reseed_nodes", "state") => vec!["living", "draining", "silent"],
        ("reseed_takeovers_total", "reason") => vec!["silent", "gone"],
        (_, "side") => vec!["edge", "holder"],
        (_, "dialect") => vec!["none", "v1", "v2"],
        ("reseed_closes_total", "code") => CloseCode::ALL.iter().map(|code| close_label(*code)).collect(),
        ("reseed_frames_refused_total", "code") => codes().collect(),
        ("reseed_limits_refused_total", "limit") => Limit::ALL.iter().map(|limit| limit.as_str()).collect(),
        ("reseed_commands_total", "type") => Command::NAMES.to_vec(),
        ("reseed_commands_total", "outcome") => ["ok"].into_iter().chain(codes()).collect(),
        ("reseed_hook_calls_total", "outcome") => {
            vec!["ok", "cancelled", "passed_over", "hook_failed", "hook_timeout", "hook_unavailable"]
        }
        ("reseed_tool_calls_total", "outcome") => vec!["ok", "failed", "cancelled"],
        // The built-in tools. Tools of MCP servers and of programs appear with their first call.
        ("reseed_tool_calls_total" | "reseed_tool_duration_seconds", "tool") => {
            vec!["history_search", "history_read", tools::OF_CLIENT]
        }
        ("reseed_context_warnings_total", "code") => {
            vec!["nearly_full", "window_unknown", "context_truncated_upstream"]
        }
        ("reseed_turns_total", "status") => vec!["completed", "failed", "cancelled", "interrupted"],
        (_, "purpose") => vec!["turn", "summary"],
        ("reseed_held_tokens_unused_total", "kind") => vec!["input", "output"],
        ("reseed_tokens_total", "kind") => vec!["input", "cached", "cache_write", "output", "reasoning"],
        ("reseed_model_requests_total", "outcome") => {
            let of_a_model = ErrorCode::ALL.iter().filter(|code| ends_model_request(**code));
            ["ok", "cancelled"].into_iter().chain(of_a_model.map(|code| code.as_str())).collect()
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
        ("reseed_compaction_rungs_failed_total", "reason") => compaction::reasons().chain(["other"]).collect(),
        ("reseed_compaction_previews_total", "outcome") => vec!["shown", "applied"],
        (_, "mode") => vec!["background", "foreground"],
        ("reseed_breakers_open" | "reseed_breakers_opened_total", "reason") => vec!["failures", "no_gain", "undone"],
        ("reseed_hook_calls_total" | "reseed_hook_duration_seconds", "kind") => vec!["rust", "webhook", "client"],
        ("reseed_hook_calls_total" | "reseed_hook_duration_seconds", "point") => {
            HookPoint::ALL.iter().map(|point| point.as_str()).collect()
        }
        ("reseed_store_commits_total" | "reseed_settings_reloads_total", "outcome") => vec!["ok", "failed"],
        ("reseed_build_info", "version") => vec![env!("CARGO_PKG_VERSION")],
        _ => Vec::new(),
    }
}

const RUNGS: &[&str] =
    &["clear_tool_results", "model_summary", "chunked_summary", "extract", "truncate", "hook_summary"];

/// Returns true if a model request can end with this code.
fn ends_model_request(code: ErrorCode) -> bool {
    use ErrorCode::{ContentFiltered, ContextOverflow, Internal};
    code.as_str().starts_with("upstream_") || matches!(code, ContextOverflow | ContentFiltered | Internal)
}

/// Returns every combination of values for these labels.
pub(super) fn series(metric: &str, labels: &[&str]) -> Vec<Vec<&'static str>> {
    let mut all = vec![Vec::new()];
    for label in labels {
        let values = values(metric, label);
        all = all.iter().flat_map(|one| values.iter().map(move |value| [one.as_slice(), &[*value]].concat())).collect();
    }
    all.retain(|one| is_possible(metric, one));
    all
}

/// Excludes impossible or unlikely combinations. A compaction has a successful step if and only if it was committed.
fn is_possible(metric: &str, values: &[&str]) -> bool {
    match (metric, values) {
        ("reseed_compactions_total", [_, rung, outcome, _]) => (*rung == "none") == (*outcome != "committed"),
        ("reseed_commands_total", [command, outcome]) => is_expected(command, outcome),
        ("reseed_hook_calls_total", [kind, _, outcome]) => !(*kind == "rust" && *outcome == "hook_unavailable"),
        _ => true,
    }
}

/// Returns true if a command is likely to have this outcome.
fn is_expected(command: &str, outcome: &str) -> bool {
    let of_any = || OF_ANY.iter().any(|code| code.as_str() == outcome);
    let row = || OUTCOMES.iter().find(|row| row.command == command);
    let is_own = || row().is_some_and(|row| row.own_errors().iter().any(|code| code.as_str() == outcome));
    outcome == "ok" || of_any() || is_own()
}

/// Creates all of these series and sets the version.
pub(super) fn begin() {
    zero_all();
    BUILD_INFO.gauge([env!("CARGO_PKG_VERSION")]).set(1.0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{declared::DECLARED, tests::rendered};

    /// Upper limit for the product of a metric's labels.
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
    fn the_errors_of_commands_and_hooks_are_there_before_the_first_one() {
        let text = rendered(begin);
        for line in [
            r#"reseed_commands_total{type="user_input",outcome="store_failed"} 0"#,
            r#"reseed_commands_total{type="get_entries",outcome="store_failed"} 0"#,
            r#"reseed_commands_total{type="start_compaction",outcome="nothing_to_compact"} 0"#,
            r#"reseed_hook_calls_total{kind="webhook",point="context",outcome="hook_timeout"} 0"#,
            r#"reseed_hook_calls_total{kind="client",point="message",outcome="passed_over"} 0"#,
        ] {
            assert!(text.lines().any(|rendered| rendered == line), "{line} is not there");
        }
    }

    #[test]
    fn the_values_are_those_that_are_recorded() {
        let text = rendered(crate::metrics::tests::record_all);
        let zero = rendered(begin);
        let named: std::collections::BTreeSet<&str> =
            zero.lines().filter_map(|line| line.rsplit_once(' ')).map(|(series, _)| series).collect();
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let (series, _) = line.rsplit_once(' ').unwrap();
            assert!(named.contains(series), "{series} is not there from the start");
        }
    }
}
