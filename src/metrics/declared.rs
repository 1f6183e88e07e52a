//! Every metric there is, each declared once: kind, name, labels, unit, help.

use ::metrics::{Counter, Gauge, Histogram, Label, Unit};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

/// Upper bounds, in seconds, for what takes from the blink of a model without delay to a long chain of tools.
const LONG_SECONDS: &[f64] = &[0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];

/// Upper bounds, in seconds, for a commit: a fast disk syncs in half a millisecond, a tired one in a second.
const COMMIT_SECONDS: &[f64] = &[0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0];

/// Upper bounds, in seconds, for what a user waits: nothing, what nobody notices, and the time of a summary.
const PAUSE_SECONDS: &[f64] = &[0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];

/// Upper bounds for a share.
const SHARES: &[f64] = &[0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];

/// Upper bounds for the distance from a point: fine around it.
const TRIGGER_SHARES: &[f64] = &[0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5];

/// What a metric is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Counter,
    Gauge,
    /// With the upper bounds of its buckets.
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

    /// Adds the bounds of its buckets, where it has any.
    fn shape(&self, builder: PrometheusBuilder) -> PrometheusBuilder {
        let Kind::Histogram(bounds) = self.kind else { return builder };
        builder
            .set_buckets_for_metric(Matcher::Full(self.name.to_owned()), bounds)
            .expect("the constants above hold bounds")
    }

    /// Makes its series that can be named beforehand, at zero.
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

    /// Tells the recorder its unit and help.
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

        /// The buckets of every metric.
        pub(super) fn shaped(builder: PrometheusBuilder) -> PrometheusBuilder {
            $(let builder = $NAME.shape(builder);)*
            builder
        }

        /// Describes every metric to the recorder in charge.
        pub(super) fn describe_all() {
            $($NAME.describe();)*
        }

        /// Makes the series of every metric that can be named beforehand.
        pub(super) fn zero_all() {
            $($NAME.zero();)*
        }

        /// The name and the labels of every metric.
        #[cfg(test)]
        pub(super) const DECLARED: &[(&str, &[&str])] = &[$(($name, &$labels),)*];
    };
}

/// How many labels a metric has; arrays of none have no type of their own to take it from.
const fn count_labels(labels: &[&str]) -> usize {
    labels.len()
}

metrics! {
    BUILD_INFO = Kind::Gauge, "reseed_build_info" ["version"], Count,
        "Always 1; which version this is.";
    CONNECTIONS = Kind::Gauge, "reseed_connections" ["dialect"], Count,
        "Connections now, by the dialect they speak; `none` has not said anything yet.";
    CONNECTIONS_TOTAL = Kind::Counter, "reseed_connections_total" [], Count,
        "Connections taken since the start.";
    CLOSES_TOTAL = Kind::Counter, "reseed_closes_total" ["code"], Count,
        "Connections that the server closed, by close code.";
    FRAMES_REFUSED_TOTAL = Kind::Counter, "reseed_frames_refused_total" ["code"], Count,
        "Frames answered with an error, by its code.";
    COMMANDS_TOTAL = Kind::Counter, "reseed_commands_total" ["type", "outcome"], Count,
        "Commands answered, by type; outcome is `ok` or the error's code.";
    SESSIONS_OPEN = Kind::Gauge, "reseed_sessions_open" [], Count,
        "Sessions in memory now.";
    TURNS_TOTAL = Kind::Counter, "reseed_turns_total" ["status"], Count,
        "Turns that ended, by how.";
    TURN_SECONDS = Kind::Histogram(LONG_SECONDS), "reseed_turn_duration_seconds" [], Seconds,
        "From the start of a turn to its end.";
    FIRST_DELTA_SECONDS = Kind::Histogram(LONG_SECONDS), "reseed_first_delta_seconds" [], Seconds,
        "From the start of a turn to the first piece of its answer.";
    TOKENS_TOTAL = Kind::Counter, "reseed_tokens_total" ["purpose", "kind"], Count,
        "Tokens that the model server reported, for turns and for summaries; `cached` and `cache_write` are parts of `input`, \
        `reasoning` of `output`.";
    MODEL_REQUESTS_TOTAL = Kind::Counter, "reseed_model_requests_total" ["purpose", "outcome"], Count,
        "Requests to the model, by what for; outcome is `ok`, `cancelled` or the error's code.";
    MODEL_COST_NANO_USD_TOTAL = Kind::Counter, "reseed_model_cost_nano_usd_total" ["purpose"], Count,
        "What answers have cost, in billionths of a US dollar, by what for; only of models in MODEL_PRICES.";
    MODEL_UNPRICED_REQUESTS_TOTAL = Kind::Counter, "reseed_model_unpriced_requests_total" ["purpose"], Count,
        "Requests that were answered and whose cost is not known: the model has no price, or its server reported nothing.";
    PREFIX_TOKENS_TOTAL = Kind::Counter, "reseed_prefix_tokens_total" [], Count,
        "Tokens with which requests for turns began as their session's request before them: what a provider could have \
        had in its cache.";
    PREFIX_BREAKS_TOTAL = Kind::Counter, "reseed_prefix_breaks_total" ["reason"], Count,
        "Requests for turns that do not begin with all of their session's request before them, by why.";
    PREFIX_TOKENS_LOST_TOTAL = Kind::Counter, "reseed_prefix_tokens_lost_total" ["reason"], Count,
        "Tokens of the requests before that those do not begin with, by why.";
    COMPACTIONS_TOTAL = Kind::Counter, "reseed_compactions_total" ["trigger", "rung", "outcome", "mode"], Count,
        "Compactions that ended, by what asked for them, how room was made (`none` where it was not), how \
        they ended, and whether they were begun in the background.";
    COMPACTIONS_PREPARED_TOTAL = Kind::Counter, "reseed_compactions_prepared_total" [], Count,
        "Compactions that were prepared in the background and held until they were due.";
    HELD_TOKENS_UNUSED_TOTAL = Kind::Counter, "reseed_held_tokens_unused_total" ["kind"], Count,
        "Tokens that the model reported for compactions that were held and never used, `input` and `output`.";
    COMPACTION_RUNGS_FAILED_TOTAL = Kind::Counter, "reseed_compaction_rungs_failed_total" ["rung", "reason"], Count,
        "Ways of making room that did not do, also in compactions that another way committed.";
    COMPACTION_SECONDS = Kind::Histogram(LONG_SECONDS), "reseed_compaction_duration_seconds" ["mode"], Seconds,
        "From the start of a compaction to its end.";
    COMPACTION_PAUSED_SECONDS = Kind::Histogram(PAUSE_SECONDS), "reseed_compaction_paused_seconds" [], Seconds,
        "How long a user waited for a compaction; 0 where nobody did.";
    COMPACTION_REDUCTION = Kind::Histogram(SHARES), "reseed_compaction_reduction_ratio" [], Count,
        "By which share of itself a compaction made the next request smaller.";
    COMPACTION_TRIGGER_RATIO = Kind::Histogram(TRIGGER_SHARES), "reseed_compaction_trigger_ratio" [], Count,
        "Tokens of the next request when an automatic compaction was committed, as a share of those at which it is due.";
    COMPACTION_TOKENS_SAVED_TOTAL = Kind::Counter, "reseed_compaction_tokens_saved_total" [], Count,
        "Tokens that contexts became smaller by compaction.";
    COMPACTION_CACHED_TOKENS_LOST_TOTAL = Kind::Counter, "reseed_compaction_cached_tokens_lost_total" [], Count,
        "Tokens that a provider had in its cache for a context that was then compacted.";
    COMPACTION_PREVIEWS_TOTAL = Kind::Counter, "reseed_compaction_previews_total" ["outcome"], Count,
        "Previews of compactions, `shown` and then `applied`.";
    COMPACTIONS_UNDONE_TOTAL = Kind::Counter, "reseed_compactions_undone_total" [], Count,
        "Compactions that were taken back.";
    SUMMARY_FACTS_CHECKED_TOTAL = Kind::Counter, "reseed_summary_facts_checked_total" [], Count,
        "Exact facts (paths, addresses, numbers, names, open tasks) that were looked for in summaries.";
    SUMMARY_FACTS_RESTORED_TOTAL = Kind::Counter, "reseed_summary_facts_restored_total" [], Count,
        "Of these, those that a summary had lost and that were put back word for word.";
    BREAKERS_OPEN = Kind::Gauge, "reseed_breakers_open" ["reason"], Count,
        "Sessions in memory whose automatic compaction was made to rest and has not gained since, by why.";
    BREAKERS_OPENED_TOTAL = Kind::Counter, "reseed_breakers_opened_total" ["reason"], Count,
        "How often automatic compaction of a session was made to rest by failures, or by too little gain.";
    HOOK_CALLS_TOTAL = Kind::Counter, "reseed_hook_calls_total" ["kind", "event", "outcome"], Count,
        "Hooks that were asked, by who (`rust`, `webhook`, `client`) and for what; outcome is `ok`, `cancelled`, \
        `passed_over` (too many observers were being told already) or the error's code.";
    HOOK_SECONDS = Kind::Histogram(PAUSE_SECONDS), "reseed_hook_duration_seconds" ["kind", "event"], Seconds,
        "What a hook took to answer, or to be given up.";
    STORE_COMMITS_TOTAL = Kind::Counter, "reseed_store_commits_total" ["outcome"], Count,
        "Commits of the store, each of one or more appends, by outcome `ok` or `failed`.";
    STORE_COMMIT_SECONDS = Kind::Histogram(COMMIT_SECONDS), "reseed_store_commit_seconds" [], Seconds,
        "What a commit of the store took, the disk's sync included.";
    STORE_RECORDS_TOTAL = Kind::Counter, "reseed_store_records_total" [], Count,
        "Records made durable.";
}
