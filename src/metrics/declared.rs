//! All metrics, each declared once: kind, name, labels with their predictable values, help.
//!
//! Every predictable series exists at zero from the start. Otherwise an alert on an increase misses the first one,
//! because a series that appears with the value 1 has not increased. Commands and error codes have thousands of
//! combinations, and a server sees few of them: a command starts with its success, the errors that any command
//! can return, and those in its row of [`Command::TABLE`]. Others appear on first use.

use super::{OTHER, PREWARM, calls::OF_CLIENT, compaction::reasons, limits::Limit, word};
use ::metrics::Label;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use reseed_protocol::{
    CloseCode, ErrorCode,
    command::{Command, Spec, outcomes::OF_ANY},
    hooks::HookPoint,
};

/// Upper bounds, in seconds, for durations from an immediate answer to a long chain of tool calls.
const LONG_SECONDS: &[f64] = &[0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];

/// Upper bounds, in seconds, for a commit. A fast disk syncs in half a millisecond, and a slow one in a second.
const COMMIT_SECONDS: &[f64] =
    &[0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// Upper bounds, in seconds, for a user's wait, from none to the time of a summary.
const PAUSE_SECONDS: &[f64] = &[0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];

/// Upper bounds for a ratio.
const SHARES: &[f64] = &[0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];

/// Upper bounds for a ratio to a threshold, with fine steps around 1.
const TRIGGER_SHARES: &[f64] = &[0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5];

/// Upper bounds, in seconds, that the GenAI conventions give for requests to a model.
const INFERENCE_SECONDS: &[f64] =
    &[0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];

/// Upper bounds that the GenAI conventions give for the tokens of a request.
const INFERENCE_TOKENS: &[f64] = &[
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

/// The providers of the GenAI metrics.
const PROVIDERS: [&str; 3] = ["openai", "anthropic", "offline"];

const RUNGS: [&str; 7] = [
    "clear_tool_results",
    "model_summary",
    "chunked_summary",
    "extract",
    "truncate",
    "hook_summary",
    "provider_native",
];

const BREAKS: [&str; 11] = [
    "patch",
    "compaction",
    "compaction_undone",
    "navigation",
    "model",
    "tools",
    "instructions",
    "uncached",
    "strategy",
    "pins",
    "unknown",
];

/// What requests to the model are for.
pub(super) const PURPOSES: [&str; 3] = ["turn", "summary", PREWARM];

/// The parts that a provider's verdict can name.
const VERDICT_PARTS: [&str; 7] = ["none", "model", "tools", "system", "messages", "input", "options"];

/// The kind of a metric.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
    /// A histogram with the upper bounds of its buckets.
    Histogram(&'static [f64]),
}

/// A row of the table.
pub(super) struct Row {
    kind: Kind,
    pub(super) name: &'static str,
    pub(super) labels: &'static [&'static str],
    /// For each label, its predictable values.
    values: fn() -> Vec<Vec<&'static str>>,
    help: &'static str,
}

/// A metric with `N` labels. Their values are static, so user text, ids and addresses cannot become labels.
pub(crate) struct Metric<const N: usize> {
    name: &'static str,
    labels: [&'static str; N],
}

impl<const N: usize> Metric<N> {
    fn labelled(&self, values: [&'static str; N]) -> Vec<Label> {
        labelled(&self.labels, &values)
    }

    /// Adds to a counter.
    pub(crate) fn add(&self, values: [&'static str; N], count: u64) {
        ::metrics::counter!(self.name, self.labelled(values)).increment(count);
    }

    /// Sets a gauge.
    pub(crate) fn set(&self, values: [&'static str; N], value: f64) {
        ::metrics::gauge!(self.name, self.labelled(values)).set(value);
    }

    /// Adds one to a gauge until the guard is dropped.
    #[must_use]
    pub(crate) fn hold(&self, values: [&'static str; N]) -> Held {
        let gauge = ::metrics::gauge!(self.name, self.labelled(values));
        gauge.increment(1.0);
        Held(gauge)
    }

    /// Adds a sample to a histogram.
    pub(crate) fn record(&self, values: [&'static str; N], value: impl ::metrics::IntoF64) {
        ::metrics::histogram!(self.name, self.labelled(values)).record(value);
    }
}

/// One unit of a gauge, counted until dropped.
pub(crate) struct Held(::metrics::Gauge);

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Held")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

fn labelled(labels: &[&'static str], values: &[&'static str]) -> Vec<Label> {
    labels.iter().zip(values).map(|(label, value)| Label::from_static_parts(label, value)).collect()
}

/// Sets the bucket bounds of every histogram.
pub(super) fn shaped(mut builder: PrometheusBuilder) -> PrometheusBuilder {
    for row in DECLARED {
        if let Kind::Histogram(bounds) = row.kind {
            let matcher = Matcher::Full(row.name.to_owned());
            builder = builder.set_buckets_for_metric(matcher, bounds).expect("the constants above hold bounds");
        }
    }
    builder
}

/// Describes every metric to the global recorder.
pub(super) fn describe_all() {
    for row in DECLARED {
        match row.kind {
            Kind::Counter => ::metrics::describe_counter!(row.name, row.help),
            Kind::Gauge => ::metrics::describe_gauge!(row.name, row.help),
            Kind::Histogram(_) => ::metrics::describe_histogram!(row.name, row.help),
        }
    }
}

/// Creates every predictable series at zero, and sets the version.
pub(super) fn begin() {
    for row in DECLARED {
        for values in row.series() {
            let labels = labelled(row.labels, &values);
            match row.kind {
                Kind::Counter => ::metrics::counter!(row.name, labels).increment(0),
                Kind::Gauge => ::metrics::gauge!(row.name, labels).increment(0.0),
                Kind::Histogram(_) => drop(::metrics::histogram!(row.name, labels)),
            }
        }
    }
    BUILD_INFO.set([env!("CARGO_PKG_VERSION")], 1.0);
}

impl Row {
    /// Returns every possible combination of the labels' values.
    pub(super) fn series(&self) -> Vec<Vec<&'static str>> {
        let mut all = vec![Vec::new()];
        for values in (self.values)() {
            let one_more = |one: &Vec<_>| values.iter().map(|value| [one, &[*value][..]].concat()).collect::<Vec<_>>();
            all = all.iter().flat_map(one_more).collect();
        }
        all.retain(|one| is_expected(self.name, one));
        all
    }
}

/// Excludes impossible and unlikely combinations.
fn is_expected(metric: &str, values: &[&str]) -> bool {
    match (metric, values) {
        // A compaction has a successful step if and only if it was committed.
        ("reseed_compactions_total", [_, rung, outcome, _]) => (*rung == "none") == (*outcome != "committed"),
        ("reseed_commands_total", [command, outcome]) => {
            let own = Command::spec_of(command).map(Spec::own_errors).unwrap_or_default();
            *outcome == "ok" || own.iter().chain(OF_ANY).any(|code| code.as_str() == *outcome)
        }
        // Receipts do not compare options, and all other parts.
        ("reseed_cache_verdicts_total", ["unknown", part]) => matches!(*part, "none" | "options"),
        ("reseed_cache_verdicts_total", [_, part]) => *part != "options",
        ("reseed_budget_refusals_total", [budget, per]) => (*budget == "session") == (*per == "session"),
        ("reseed_hook_calls_total", [kind, _, outcome]) => !(*kind == "rust" && *outcome == "hook_unavailable"),
        _ => true,
    }
}

/// Returns the errors with which a model request can end.
fn model_faults() -> impl Iterator<Item = &'static str> {
    let faults = ErrorCode::ALL.iter().map(|code| code.as_str());
    faults.filter(|code| {
        code.starts_with("upstream_") || matches!(*code, "context_overflow" | "content_filtered" | "internal")
    })
}

macro_rules! metrics {
    ($($NAME:ident: $kind:expr, $name:literal { $($label:ident: $values:expr),* $(,)? }, $help:literal;)*) => {
        $(
            #[doc = $help]
            pub(crate) const $NAME: Metric<{ <[&str]>::len(&[$(stringify!($label)),*]) }> =
                Metric { name: $name, labels: [$(stringify!($label)),*] };
        )*

        /// Every metric.
        pub(super) const DECLARED: &[Row] = &[$(Row {
            kind: $kind,
            name: $name,
            labels: &[$(stringify!($label)),*],
            values: || vec![$($values.into_iter().collect()),*],
            help: $help,
        },)*];
    };
}

use Kind::{Counter, Gauge, Histogram};

metrics! {
    BUILD_INFO: Gauge, "reseed_build_info" { version: [env!("CARGO_PKG_VERSION")] },
        "Always 1; the label is the running version.";
    CONNECTIONS: Gauge, "reseed_connections" {
        dialect: ["none", "v1", "v2", "responses", "chat_completions", "ai_sdk", "operator"]
    },
        "Open connections, by protocol. `none` has not sent a frame yet. `relay` carries a client's frames \
        from another node, which counts the client.";
    NODES: Gauge, "reseed_nodes" { state: ["living", "draining", "silent"] },
        "Nodes of the database, as this one sees them, itself included: `living`, `draining` or `silent` for longer \
        than their lease. An address, or the name of a node without one, counts once, and as `silent` only if no \
        living node has it.";
    LEASE_AGE_RATIO: Gauge, "reseed_lease_age_ratio" {},
        "Time since this node last renewed its lease, as a share of NODE_LEASE_SECS; 0 if its last attempt \
        succeeded. From 0.8 on it serves nothing.";
    LEASE_LOSSES_TOTAL: Counter, "reseed_lease_losses_total" {},
        "Times this node did not renew its lease in time, so that others could take over its sessions.";
    SESSIONS_HELD: Gauge, "reseed_sessions_held" {},
        "Sessions that this node holds, as of its last beat.";
    TAKEOVERS_TOTAL: Counter, "reseed_takeovers_total" { reason: ["silent", "gone"] },
        "Sessions that this node took over from a node that was `silent`, or `gone` without giving them up.";
    APPENDS_FENCED_TOTAL: Counter, "reseed_appends_fenced_total" {},
        "Appends that the store refused because another node has opened the session since.";
    RELAYED_CONNECTIONS: Gauge, "reseed_relayed_connections" { side: ["edge", "holder"] },
        "Open connections to other nodes that carry a client's frames: `edge` for clients of this node, `holder` \
        for sessions of this node.";
    CONNECTIONS_TOTAL: Counter, "reseed_connections_total" {},
        "Connections accepted since the start, including those relayed by other nodes.";
    CLOSES_TOTAL: Counter, "reseed_closes_total" { code: CloseCode::ALL.iter().map(|code| word(code.code())) },
        "Connections that the server closed, by close code.";
    FRAMES_REFUSED_TOTAL: Counter, "reseed_frames_refused_total" {
        code: ErrorCode::ALL.iter().map(|code| code.as_str()),
    },
        "Frames answered with an error, by error code.";
    LIMITS_REFUSED_TOTAL: Counter, "reseed_limits_refused_total" {
        limit: Limit::ALL.iter().map(|limit| limit.as_str()),
    },
        "Refusals because a limit was reached, by limit.";
    SETTINGS_RELOADS_TOTAL: Counter, "reseed_settings_reloads_total" { outcome: ["ok", "failed"] },
        "Reloads of the settings; a failed one changed nothing.";
    AUDIT_LINES_TOTAL: Counter, "reseed_audit_lines_total" { outcome: ["written", "lost"] },
        "Lines for AUDIT_FILE. While they are `lost` because it cannot be written, deletions and acts of operators are \
        refused.";
    COMMANDS_TOTAL: Counter, "reseed_commands_total" {
        type: Command::NAMES.iter().copied(),
        outcome: ["ok"].into_iter().chain(ErrorCode::ALL.iter().map(|code| code.as_str())),
    },
        "Commands answered, by type; outcome is `ok` or the error code.";
    SESSIONS_OPEN: Gauge, "reseed_sessions_open" {},
        "Sessions in memory.";
    MODEL_REQUESTS_WAITING: Gauge, "reseed_model_requests_waiting" {},
        "Requests to the model that wait for a permit (MODEL_REQUESTS_MAX, USER_SHARE).";
    TURNS_TOTAL: Counter, "reseed_turns_total" { status: ["completed", "failed", "cancelled", "interrupted"] },
        "Turns ended, by status.";
    CONTEXT_WARNINGS_TOTAL: Counter, "reseed_context_warnings_total" {
        code: ["nearly_full", "window_unknown", "context_truncated_upstream"],
    },
        "Context warnings sent to clients, by cause. With `context_truncated_upstream` the model server reads less \
        than it is sent.";
    TURN_SECONDS: Histogram(LONG_SECONDS), "reseed_turn_duration_seconds" {},
        "Duration of a turn.";
    FIRST_DELTA_SECONDS: Histogram(LONG_SECONDS), "reseed_first_delta_seconds" {},
        "Time from the start of a turn to the first piece of its answer.";
    TOKENS_TOTAL: Counter, "reseed_tokens_total" {
        purpose: PURPOSES,
        model: [OTHER],
        kind: ["input", "cached", "cache_write", "cache_write_hour", "output", "reasoning"],
    },
        "Tokens reported by the model server, for turns and for summaries, failed ones, previews and branches \
        included. `cached` and `cache_write` are parts of `input`, `cache_write_hour` of `cache_write`, \
        `reasoning` of `output`. `model` is a model that the settings name, or `other`.";
    MODEL_REQUESTS_TOTAL: Counter, "reseed_model_requests_total" {
        purpose: PURPOSES,
        outcome: ["ok", "cancelled"].into_iter().chain(model_faults()),
    },
        "Requests to the model, by purpose; outcome is `ok`, `cancelled` or the error code.";
    MODEL_COST_NANO_USD_TOTAL: Counter, "reseed_model_cost_nano_usd_total" { purpose: PURPOSES, model: [OTHER] },
        "Cost of answers in billionths of a US dollar, by purpose; only for models in MODEL_PRICES.";
    MODEL_UNPRICED_REQUESTS_TOTAL: Counter, "reseed_model_unpriced_requests_total" {
        purpose: PURPOSES,
        model: [OTHER],
    },
        "Answered requests of unknown cost: the model has no price, or its server reported no usage.";
    // The metrics of the GenAI conventions. `trace/series.rs` has their names there.
    INFERENCE_DURATION: Histogram(INFERENCE_SECONDS), "gen_ai_client_inference_duration_seconds" {
        gen_ai_operation_name: ["chat"], gen_ai_provider_name: PROVIDERS, gen_ai_request_model: [OTHER],
        error_type: [""],
    },
        "Duration of a request to a model, from sending it to the end of its answer, by error code if it failed.";
    INFERENCE_FIRST_CHUNK: Histogram(INFERENCE_SECONDS), "gen_ai_client_inference_time_to_first_chunk_seconds" {
        gen_ai_operation_name: ["chat"], gen_ai_provider_name: PROVIDERS, gen_ai_request_model: [OTHER],
    },
        "Time from sending a request to a model to the first piece of its answer.";
    INFERENCE_INPUT_TOKENS: Histogram(INFERENCE_TOKENS), "gen_ai_client_inference_operation_input_tokens" {
        gen_ai_operation_name: ["chat"], gen_ai_provider_name: PROVIDERS, gen_ai_request_model: [OTHER],
    },
        "Input tokens of a request, as the model server reported them.";
    INFERENCE_OUTPUT_TOKENS: Histogram(INFERENCE_TOKENS), "gen_ai_client_inference_operation_output_tokens" {
        gen_ai_operation_name: ["chat"], gen_ai_provider_name: PROVIDERS, gen_ai_request_model: [OTHER],
    },
        "Output tokens of a request, as the model server reported them.";
    INFERENCE_INPUT_TOKENS_TOTAL: Counter, "gen_ai_client_inference_usage_input_tokens_total" {
        gen_ai_operation_name: ["chat"], gen_ai_provider_name: PROVIDERS, gen_ai_request_model: [OTHER],
    },
        "Input tokens that the model server reported, including cached ones.";
    INFERENCE_OUTPUT_TOKENS_TOTAL: Counter, "gen_ai_client_inference_usage_output_tokens_total" {
        gen_ai_operation_name: ["chat"], gen_ai_provider_name: PROVIDERS, gen_ai_request_model: [OTHER],
    },
        "Output tokens that the model server reported, including reasoning.";
    INFERENCE_CACHE_READ_TOKENS_TOTAL: Counter, "gen_ai_client_inference_usage_cache_read_input_tokens_total" {
        gen_ai_operation_name: ["chat"], gen_ai_provider_name: PROVIDERS, gen_ai_request_model: [OTHER],
    },
        "Input tokens read from the provider's cache.";
    INFERENCE_CACHE_WRITE_TOKENS_TOTAL: Counter, "gen_ai_client_inference_usage_cache_write_input_tokens_total" {
        gen_ai_operation_name: ["chat"], gen_ai_provider_name: PROVIDERS, gen_ai_request_model: [OTHER],
    },
        "Input tokens written to the provider's cache.";
    INFERENCE_REASONING_TOKENS_TOTAL: Counter, "gen_ai_client_inference_usage_reasoning_output_tokens_total" {
        gen_ai_operation_name: ["chat"], gen_ai_provider_name: PROVIDERS, gen_ai_request_model: [OTHER],
    },
        "Output tokens used for reasoning.";
    BUDGET_REFUSALS_TOTAL: Counter, "reseed_budget_refusals_total" {
        budget: ["user", "session", "deployment"],
        per: ["day", "month", "session"],
    },
        "Requests to the model that were refused because a budget is used up, by whose it is and its period.";
    BUDGET_NOTICES_TOTAL: Counter, "reseed_budget_notices_total" {
        budget: ["user", "session", "deployment"],
        percent: ["80", "100"],
    },
        "Times that a budget reached a share of its limit, by whose it is.";
    BUDGET_USED_RATIO: Gauge, "reseed_budget_used_ratio" { per: ["day", "month"] },
        "Share of the deployment's budget that is used, as this server knows it; 0 without one.";
    PREFIX_TOKENS_TOTAL: Counter, "reseed_prefix_tokens_total" {},
        "Tokens that turn requests share as a prefix with their session's previous request, and that a provider \
        could therefore have cached.";
    PREFIX_BREAKS_TOTAL: Counter, "reseed_prefix_breaks_total" { reason: BREAKS },
        "Turn requests that do not begin with their session's whole previous request, by reason.";
    PREFIX_TOKENS_LOST_TOTAL: Counter, "reseed_prefix_tokens_lost_total" { reason: BREAKS },
        "Tokens of previous requests after the shared prefix, by reason.";
    CACHE_VERDICTS_TOTAL: Counter, "reseed_cache_verdicts_total" {
        receipt: ["agrees", "disagrees", "unknown"],
        part: VERDICT_PARTS,
    },
        "Providers' verdicts on turn requests, by whether the receipt agrees, and the part that differs for the \
        provider, or `none`.";
    PREWARM_SAVED_NANO_USD_TOTAL: Counter, "reseed_prewarm_saved_nano_usd_total" {},
        "What turns did not have to write to the provider's cache again because it was refreshed while the user was \
        away, in billionths of a US dollar, as an estimate. What that cost is the purpose `prewarm`.";
    COMPACTIONS_TOTAL: Counter, "reseed_compactions_total" {
        trigger: ["manual", "threshold", "overflow", "strategy"],
        rung: RUNGS.into_iter().chain(["none"]),
        outcome: ["committed", "failed", "no_gain", "cancelled", "void"],
        mode: ["background", "foreground"],
    },
        "Compactions ended, by trigger, fallback step that succeeded (or `none`), outcome, and whether turns \
        continued (`background`).";
    COMPACTIONS_PREPARED_TOTAL: Counter, "reseed_compactions_prepared_total" {},
        "Compactions prepared in the background and held until due.";
    HELD_TOKENS_UNUSED_TOTAL: Counter, "reseed_held_tokens_unused_total" { kind: ["input", "output"] },
        "Tokens reported for held compactions that were never used, `input` and `output`.";
    COMPACTION_RUNGS_FAILED_TOTAL: Counter, "reseed_compaction_rungs_failed_total" {
        rung: RUNGS,
        reason: reasons().chain(["other"]),
    },
        "Compaction steps that failed or saved too little, including those of compactions that a later step committed.";
    COMPACTION_SECONDS: Histogram(LONG_SECONDS), "reseed_compaction_duration_seconds" {
        mode: ["background", "foreground"],
    },
        "Duration of a compaction.";
    COMPACTION_PAUSED_SECONDS: Histogram(PAUSE_SECONDS), "reseed_compaction_paused_seconds" {},
        "Time a user waited for a compaction; 0 if nobody did.";
    COMPACTION_REDUCTION: Histogram(SHARES), "reseed_compaction_reduction_ratio" {},
        "Share of the next request that a compaction saved.";
    COMPACTION_TRIGGER_RATIO: Histogram(TRIGGER_SHARES), "reseed_compaction_trigger_ratio" {},
        "Tokens of the next request when an automatic compaction was committed, as a share of the threshold.";
    COMPACTION_TOKENS_SAVED_TOTAL: Counter, "reseed_compaction_tokens_saved_total" {},
        "Tokens that compactions save in each later request.";
    COMPACTION_CACHED_TOKENS_LOST_TOTAL: Counter, "reseed_compaction_cached_tokens_lost_total" {},
        "Tokens in a provider's cache that a compaction invalidated.";
    COMPACTION_PREVIEWS_TOTAL: Counter, "reseed_compaction_previews_total" { outcome: ["shown", "applied"] },
        "Compaction previews, `shown` and later `applied`.";
    COMPACTIONS_UNDONE_TOTAL: Counter, "reseed_compactions_undone_total" {},
        "Compactions undone.";
    BREAKERS_OPEN: Gauge, "reseed_breakers_open" { reason: ["failures", "no_gain", "undone"] },
        "Sessions in memory whose circuit breaker for automatic compaction is open, by reason.";
    BREAKERS_OPENED_TOTAL: Counter, "reseed_breakers_opened_total" { reason: ["failures", "no_gain", "undone"] },
        "Circuit breakers for automatic compaction opened after failures or too little gain.";
    HOOK_CALLS_TOTAL: Counter, "reseed_hook_calls_total" {
        kind: ["rust", "webhook", "client"],
        point: HookPoint::ALL.iter().map(|point| point.as_str()),
        outcome: ["ok", "cancelled", "passed_over", "hook_failed", "hook_timeout", "hook_unavailable"],
    },
        "Hook calls, by kind (`rust`, `webhook`, `client`) and point; outcome is `ok`, `cancelled`, \
        `passed_over` (too many observer calls were in progress) or the error code.";
    HOOK_SECONDS: Histogram(PAUSE_SECONDS), "reseed_hook_duration_seconds" {
        kind: ["rust", "webhook", "client"],
        point: HookPoint::ALL.iter().map(|point| point.as_str()),
    },
        "Time until a hook answered, failed or timed out.";
    TOOL_CALLS_TOTAL: Counter, "reseed_tool_calls_total" {
        tool: ["history_search", "history_read", OF_CLIENT],
        outcome: ["ok", "failed", "cancelled"],
    },
        "Tool calls, by tool; `(client)` stands for all tools of clients. Outcome is `ok`, `failed` or `cancelled` \
        (timed out, or its turn ended).";
    TOOL_SECONDS: Histogram(LONG_SECONDS), "reseed_tool_duration_seconds" {
        tool: ["history_search", "history_read", OF_CLIENT],
    },
        "Duration of tool calls, by tool; `(client)` stands for all tools of clients.";
    TRACE_SPANS_TOTAL: Counter, "reseed_trace_spans_total" { outcome: ["sent", "lost"] },
        "Spans of traces that were `sent` to the collector, or `lost` because it did not take them.";
    STORE_COMMITS_TOTAL: Counter, "reseed_store_commits_total" { outcome: ["ok", "failed"] },
        "Store commits of one or more appends, by outcome: `ok` or `failed`.";
    STORE_COMMIT_SECONDS: Histogram(COMMIT_SECONDS), "reseed_store_commit_seconds" {},
        "Duration of a store commit, including the disk sync.";
    // The store records these two itself, by their names.
    _STORE_TIMELINE_CHANGES_TOTAL: Counter, "reseed_store_timeline_changes_total" {},
        "Times PostgreSQL was found on a newer timeline: a standby took over or a backup was restored, and \
        acknowledged records may be missing.";
    _STORE_READS_WAITED_TOTAL: Counter, "reseed_store_reads_waited_total" {},
        "Reads of PostgreSQL that waited because all connections were in use.";
    STORE_RECORDS_TOTAL: Counter, "reseed_store_records_total" {},
        "Records stored durably.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::rendered;

    /// Upper limit for the product of a metric's labels.
    const SERIES_MAX: usize = 1_000;

    #[test]
    fn every_declared_metric_has_a_sample_before_anything_has_happened() {
        let text = rendered(begin);
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
        for row in DECLARED {
            let (name, series) = (row.name, row.series().len());
            assert!((1..=SERIES_MAX).contains(&series), "{name}: {series} series");
            let is_of = |line: &&&str| {
                let rest = line.strip_prefix(name).unwrap_or_default();
                ["{", " ", "_bucket{", "_sum", "_count"].iter().any(|next| rest.starts_with(next))
            };
            let found: Vec<&&str> = samples.iter().filter(is_of).collect();
            assert!(found.len() >= series, "{name} has {} samples of {series}", found.len());
            let value = if name == "reseed_build_info" { " 1" } else { " 0" };
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
