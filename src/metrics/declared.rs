//! All metrics, each declared once: kind, name, labels, unit, help.

use ::metrics::{Counter, Gauge, Histogram, Label, Unit};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

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

/// The kind of a metric.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Counter,
    Gauge,
    /// A histogram with the upper bounds of its buckets.
    Histogram(&'static [f64]),
}

/// A metric with `N` labels.
pub(super) struct Metric<const N: usize> {
    kind: Kind,
    name: &'static str,
    labels: [&'static str; N],
    unit: Unit,
    help: &'static str,
}

impl<const N: usize> Metric<N> {
    fn labelled(&self, values: [&'static str; N]) -> Vec<Label> {
        self.labels.into_iter().zip(values).map(|(label, value)| Label::from_static_parts(label, value)).collect()
    }

    pub(super) fn counter(&self, values: [&'static str; N]) -> Counter {
        ::metrics::counter!(self.name, self.labelled(values))
    }

    pub(super) fn gauge(&self, values: [&'static str; N]) -> Gauge {
        ::metrics::gauge!(self.name, self.labelled(values))
    }

    pub(super) fn histogram(&self, values: [&'static str; N]) -> Histogram {
        ::metrics::histogram!(self.name, self.labelled(values))
    }

    /// Sets its bucket bounds, if it is a histogram.
    fn shape(&self, builder: PrometheusBuilder) -> PrometheusBuilder {
        let Kind::Histogram(bounds) = self.kind else { return builder };
        builder
            .set_buckets_for_metric(Matcher::Full(self.name.to_owned()), bounds)
            .expect("the constants above hold bounds")
    }

    /// Creates its predictable series at zero.
    fn zero(&self) {
        for values in super::zero::series(self.name, &self.labels) {
            let Ok(values) = <[&'static str; N]>::try_from(values) else { continue };
            match self.kind {
                Kind::Counter => self.counter(values).increment(0),
                Kind::Gauge => self.gauge(values).increment(0.0),
                Kind::Histogram(_) => drop(self.histogram(values)),
            }
        }
    }

    /// Registers its unit and help with the recorder.
    fn describe(&self) {
        match self.kind {
            Kind::Counter => ::metrics::describe_counter!(self.name, self.unit, self.help),
            Kind::Gauge => ::metrics::describe_gauge!(self.name, self.unit, self.help),
            Kind::Histogram(_) => ::metrics::describe_histogram!(self.name, self.unit, self.help),
        }
    }
}

macro_rules! metrics {
    ($($NAME:ident = $kind:expr, $name:literal $labels:tt, $unit:ident, $help:literal;)*) => {
        $(pub(super) const $NAME: Metric<{ count_labels($labels.as_slice()) }> =
            Metric { kind: $kind, name: $name, labels: $labels, unit: Unit::$unit, help: $help };)*

        /// Sets the bucket bounds of every metric.
        pub(super) fn shaped(builder: PrometheusBuilder) -> PrometheusBuilder {
            $(let builder = $NAME.shape(builder);)*
            builder
        }

        /// Describes every metric to the global recorder.
        pub(super) fn describe_all() {
            $($NAME.describe();)*
        }

        /// Creates the predictable series of every metric.
        pub(super) fn zero_all() {
            $($NAME.zero();)*
        }

        /// The name and labels of every metric.
        #[cfg(test)]
        pub(super) const DECLARED: &[(&str, &[&str])] = &[$(($name, &$labels),)*];
    };
}

/// Returns the number of labels. An empty array literal has no type from which it could be inferred.
const fn count_labels(labels: &[&str]) -> usize {
    labels.len()
}

metrics! {
    BUILD_INFO = Kind::Gauge, "reseed_build_info" ["version"], Count,
        "Always 1; the label is the running version.";
    CONNECTIONS = Kind::Gauge, "reseed_connections" ["dialect"], Count,
        "Open connections, by protocol version. `none` has not sent a frame yet. `relay` carries a client's frames \
        from another node, which counts the client.";
    NODES = Kind::Gauge, "reseed_nodes" ["state"], Count,
        "Nodes of the database, as this one sees them, itself included: `living`, `draining` or `silent` for longer \
        than their lease. An address, or the name of a node without one, counts once, and as `silent` only if no \
        living node has it.";
    LEASE_AGE_RATIO = Kind::Gauge, "reseed_lease_age_ratio" [], Count,
        "Time since this node last renewed its lease, as a share of NODE_LEASE_SECS; 0 if its last attempt \
        succeeded. From 0.8 on it serves nothing.";
    LEASE_LOSSES_TOTAL = Kind::Counter, "reseed_lease_losses_total" [], Count,
        "Times this node did not renew its lease in time, so that others could take over its sessions.";
    SESSIONS_HELD = Kind::Gauge, "reseed_sessions_held" [], Count,
        "Sessions that this node holds, as of its last beat.";
    TAKEOVERS_TOTAL = Kind::Counter, "reseed_takeovers_total" ["reason"], Count,
        "Sessions that this node took over from a node that was `silent`, or `gone` without giving them up.";
    APPENDS_FENCED_TOTAL = Kind::Counter, "reseed_appends_fenced_total" [], Count,
        "Appends that the store refused because another node has opened the session since.";
    RELAYED_CONNECTIONS = Kind::Gauge, "reseed_relayed_connections" ["side"], Count,
        "Open connections to other nodes that carry a client's frames: `edge` for clients of this node, `holder` \
        for sessions of this node.";
    CONNECTIONS_TOTAL = Kind::Counter, "reseed_connections_total" [], Count,
        "Connections accepted since the start, including those relayed by other nodes.";
    CLOSES_TOTAL = Kind::Counter, "reseed_closes_total" ["code"], Count,
        "Connections that the server closed, by close code.";
    FRAMES_REFUSED_TOTAL = Kind::Counter, "reseed_frames_refused_total" ["code"], Count,
        "Frames answered with an error, by error code.";
    LIMITS_REFUSED_TOTAL = Kind::Counter, "reseed_limits_refused_total" ["limit"], Count,
        "Refusals because a limit was reached, by limit.";
    SETTINGS_RELOADS_TOTAL = Kind::Counter, "reseed_settings_reloads_total" ["outcome"], Count,
        "Reloads of the settings; a failed one changed nothing.";
    COMMANDS_TOTAL = Kind::Counter, "reseed_commands_total" ["type", "outcome"], Count,
        "Commands answered, by type; outcome is `ok` or the error code.";
    SESSIONS_OPEN = Kind::Gauge, "reseed_sessions_open" [], Count,
        "Sessions in memory.";
    MODEL_REQUESTS_WAITING = Kind::Gauge, "reseed_model_requests_waiting" [], Count,
        "Requests to the model that wait for a permit (MODEL_REQUESTS_MAX, USER_SHARE).";
    TURNS_TOTAL = Kind::Counter, "reseed_turns_total" ["status"], Count,
        "Turns ended, by status.";
    CONTEXT_WARNINGS_TOTAL = Kind::Counter, "reseed_context_warnings_total" ["code"], Count,
        "Context warnings sent to clients, by cause. With `context_truncated_upstream` the model server reads less \
        than it is sent.";
    TURN_SECONDS = Kind::Histogram(LONG_SECONDS), "reseed_turn_duration_seconds" [], Seconds,
        "Duration of a turn.";
    FIRST_DELTA_SECONDS = Kind::Histogram(LONG_SECONDS), "reseed_first_delta_seconds" [], Seconds,
        "Time from the start of a turn to the first piece of its answer.";
    TOKENS_TOTAL = Kind::Counter, "reseed_tokens_total" ["purpose", "kind"], Count,
        "Tokens reported by the model server, for turns and for summaries, failed ones, previews and branches \
        included. `cached` and `cache_write` are parts of `input`, `reasoning` of `output`.";
    MODEL_REQUESTS_TOTAL = Kind::Counter, "reseed_model_requests_total" ["purpose", "outcome"], Count,
        "Requests to the model, by purpose; outcome is `ok`, `cancelled` or the error code.";
    MODEL_COST_NANO_USD_TOTAL = Kind::Counter, "reseed_model_cost_nano_usd_total" ["purpose"], Count,
        "Cost of answers in billionths of a US dollar, by purpose; only for models in MODEL_PRICES.";
    MODEL_UNPRICED_REQUESTS_TOTAL = Kind::Counter, "reseed_model_unpriced_requests_total" ["purpose"], Count,
        "Answered requests of unknown cost: the model has no price, or its server reported no usage.";
    PREFIX_TOKENS_TOTAL = Kind::Counter, "reseed_prefix_tokens_total" [], Count,
        "Tokens that turn requests share as a prefix with their session's previous request, and that a provider \
        could therefore have cached.";
    PREFIX_BREAKS_TOTAL = Kind::Counter, "reseed_prefix_breaks_total" ["reason"], Count,
        "Turn requests that do not begin with their session's whole previous request, by reason.";
    PREFIX_TOKENS_LOST_TOTAL = Kind::Counter, "reseed_prefix_tokens_lost_total" ["reason"], Count,
        "Tokens of previous requests after the shared prefix, by reason.";
    COMPACTIONS_TOTAL = Kind::Counter, "reseed_compactions_total" ["trigger", "rung", "outcome", "mode"], Count,
        "Compactions ended, by trigger, fallback step that succeeded (or `none`), outcome, and whether turns \
        continued (`background`).";
    COMPACTIONS_PREPARED_TOTAL = Kind::Counter, "reseed_compactions_prepared_total" [], Count,
        "Compactions prepared in the background and held until due.";
    HELD_TOKENS_UNUSED_TOTAL = Kind::Counter, "reseed_held_tokens_unused_total" ["kind"], Count,
        "Tokens reported for held compactions that were never used, `input` and `output`.";
    COMPACTION_RUNGS_FAILED_TOTAL = Kind::Counter, "reseed_compaction_rungs_failed_total" ["rung", "reason"], Count,
        "Compaction steps that failed or saved too little, including those of compactions that a later step committed.";
    COMPACTION_SECONDS = Kind::Histogram(LONG_SECONDS), "reseed_compaction_duration_seconds" ["mode"], Seconds,
        "Duration of a compaction.";
    COMPACTION_PAUSED_SECONDS = Kind::Histogram(PAUSE_SECONDS), "reseed_compaction_paused_seconds" [], Seconds,
        "Time a user waited for a compaction; 0 if nobody did.";
    COMPACTION_REDUCTION = Kind::Histogram(SHARES), "reseed_compaction_reduction_ratio" [], Count,
        "Share of the next request that a compaction saved.";
    COMPACTION_TRIGGER_RATIO = Kind::Histogram(TRIGGER_SHARES), "reseed_compaction_trigger_ratio" [], Count,
        "Tokens of the next request when an automatic compaction was committed, as a share of the threshold.";
    COMPACTION_TOKENS_SAVED_TOTAL = Kind::Counter, "reseed_compaction_tokens_saved_total" [], Count,
        "Tokens that compactions save in each later request.";
    COMPACTION_CACHED_TOKENS_LOST_TOTAL = Kind::Counter, "reseed_compaction_cached_tokens_lost_total" [], Count,
        "Tokens in a provider's cache that a compaction invalidated.";
    COMPACTION_PREVIEWS_TOTAL = Kind::Counter, "reseed_compaction_previews_total" ["outcome"], Count,
        "Compaction previews, `shown` and later `applied`.";
    COMPACTIONS_UNDONE_TOTAL = Kind::Counter, "reseed_compactions_undone_total" [], Count,
        "Compactions undone.";
    BREAKERS_OPEN = Kind::Gauge, "reseed_breakers_open" ["reason"], Count,
        "Sessions in memory whose circuit breaker for automatic compaction is open, by reason.";
    BREAKERS_OPENED_TOTAL = Kind::Counter, "reseed_breakers_opened_total" ["reason"], Count,
        "Circuit breakers for automatic compaction opened after failures or too little gain.";
    HOOK_CALLS_TOTAL = Kind::Counter, "reseed_hook_calls_total" ["kind", "point", "outcome"], Count,
        "Hook calls, by kind (`rust`, `webhook`, `client`) and point; outcome is `ok`, `cancelled`, \
        `passed_over` (too many observer calls were in progress) or the error code.";
    HOOK_SECONDS = Kind::Histogram(PAUSE_SECONDS), "reseed_hook_duration_seconds" ["kind", "point"], Seconds,
        "Time until a hook answered, failed or timed out.";
    TOOL_CALLS_TOTAL = Kind::Counter, "reseed_tool_calls_total" ["tool", "outcome"], Count,
        "Tool calls, by tool; `(client)` stands for all tools of clients. Outcome is `ok`, `failed` or `cancelled` \
        (timed out, or its turn ended).";
    TOOL_SECONDS = Kind::Histogram(LONG_SECONDS), "reseed_tool_duration_seconds" ["tool"], Seconds,
        "Duration of tool calls, by tool; `(client)` stands for all tools of clients.";
    STORE_COMMITS_TOTAL = Kind::Counter, "reseed_store_commits_total" ["outcome"], Count,
        "Store commits of one or more appends, by outcome: `ok` or `failed`.";
    STORE_COMMIT_SECONDS = Kind::Histogram(COMMIT_SECONDS), "reseed_store_commit_seconds" [], Seconds,
        "Duration of a store commit, including the disk sync.";
    STORE_TIMELINE_CHANGES_TOTAL = Kind::Counter, "reseed_store_timeline_changes_total" [], Count,
        "Times PostgreSQL was found on a newer timeline: a standby took over or a backup was restored, and \
        acknowledged records may be missing.";
    STORE_READS_WAITED_TOTAL = Kind::Counter, "reseed_store_reads_waited_total" [], Count,
        "Reads of PostgreSQL that waited because all connections were in use.";
    STORE_RECORDS_TOTAL = Kind::Counter, "reseed_store_records_total" [], Count,
        "Records stored durably.";
}
