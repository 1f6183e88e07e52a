//! The server's metrics, for Prometheus.
//!
//! - Each metric is declared once, in `declared.rs`, and recorded through its [`Metric`].
//! - Label values are `&'static str`s from closed sets, so user text, ids and addresses cannot become labels, and the
//!   number of series is bounded. The operator chooses the names of the server's tools, and their number is bounded too
//!   (`calls.rs`).
//! - Recording does nothing until [`install`] is called.
//!
//! What a gauge counts is held by a guard ([`Held`]), which releases it on every code path.

pub(crate) mod calls;
pub(crate) mod compaction;
mod declared;
#[cfg(test)]
mod document;
pub(crate) mod limits;
pub(crate) mod minute;

pub(crate) use declared::*;

use crate::core::{
    model::{ModelRequest, Purpose, ReportedUsage},
    usage_row::UsageTokens,
};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use reseed_protocol::{ErrorCode, receipt::Receipt, turn::TurnStatus};
use serde::Serialize;
use serde_json::Value;
use std::{
    collections::BTreeSet,
    sync::{Mutex, OnceLock, PoisonError},
    thread,
    time::Duration,
};

/// The interval at which histogram samples are aggregated. Until then they stay in memory, and a server that is never
/// scraped must not keep them indefinitely.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Reads the metrics of all servers in this process.
#[derive(Clone)]
pub(crate) struct Handle(PrometheusHandle);

impl Handle {
    /// Returns the response of `/metrics`: Prometheus' text format, version 0.0.4.
    #[must_use]
    pub(crate) fn render(&self) -> String {
        self.0.render()
    }
}

/// Starts recording. Further calls return the same metrics, even from another server in the same process.
pub(crate) fn install() -> Handle {
    static INSTALLED: OnceLock<Handle> = OnceLock::new();
    INSTALLED
        .get_or_init(|| {
            let recorder = recorder();
            let handle = recorder.handle();
            if ::metrics::set_global_recorder(recorder).is_err() {
                tracing::error!("another metrics recorder is already installed in this process: /metrics stays empty");
            }
            describe_all();
            begin();
            let gathered = handle.clone();
            let upkeep = move || {
                loop {
                    thread::sleep(UPKEEP_INTERVAL);
                    gathered.run_upkeep();
                }
            };
            if let Err(fault) = thread::Builder::new().name("metrics-upkeep".to_owned()).spawn(upkeep) {
                tracing::warn!(
                    %fault,
                    "start thread metrics-upkeep: samples are aggregated only when /metrics is read"
                );
            }
            Handle(handle)
        })
        .clone()
}

/// Returns a recorder with every histogram's buckets.
fn recorder() -> PrometheusRecorder {
    shaped(PrometheusBuilder::new()).build_recorder()
}

/// Sets the numbers of nodes in each state, and of the sessions that this node holds.
pub(crate) fn nodes(living: usize, draining: usize, silent: usize, held: u64) {
    for (state, count) in [("living", living), ("draining", draining), ("silent", silent)] {
        NODES.set([state], count as f64);
    }
    SESSIONS_HELD.set([], held as f64);
}

/// The outcome of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Succeeded.
    Ok,
    /// Cancelled.
    Cancelled,
    /// Failed with this error.
    Error(ErrorCode),
}

impl Outcome {
    fn label(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Cancelled => "cancelled",
            Self::Error(code) => code.as_str(),
        }
    }
}

/// Records that a command was answered. `name` is its type, as in [`reseed_protocol::command::Command::name`], or v1's
/// equivalent.
pub(crate) fn command_answered(name: &'static str, outcome: Outcome) {
    COMMANDS_TOTAL.add([name, outcome.label()], 1);
}

/// Returns the name of an enum's value on the wire as a label.
pub(crate) fn word(value: impl Serialize) -> &'static str {
    match serde_json::to_value(value) {
        Ok(Value::String(name)) => interned(&name, usize::MAX),
        Ok(Value::Number(number)) => interned(&number.to_string(), usize::MAX),
        _ => OTHER,
    }
}

/// The label of names that have no series of their own.
const OTHER: &str = "other";

/// Returns a name as a label. A new one is kept for the life of the process, if there are fewer than `names_max`.
fn interned(name: &str, names_max: usize) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return known;
    }
    if names.len() >= names_max {
        return OTHER;
    }
    let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
    names.insert(name);
    name
}

/// Records the end of a turn, `duration` after it started.
pub(crate) fn turn_finished(status: TurnStatus, duration: Duration) {
    TURNS_TOTAL.add([word(status)], 1);
    TURN_SECONDS.record([], duration);
}

/// Returns the label of what a request is for.
pub(crate) fn purpose_of(request: &ModelRequest) -> &'static str {
    match request.purpose {
        _ if request.only_fills_cache() => PREWARM,
        Purpose::Turn => "turn",
        Purpose::Summary => "summary",
    }
}

/// Maximum number of models that have their own series. Settings rarely name more than ten.
const MODELS_MAX: usize = 200;

/// Returns a model's label: its name if the settings name it, so that clients cannot add any.
pub(crate) fn model_label(model: &str, configured: &BTreeSet<&str>) -> &'static str {
    if !configured.contains(model) {
        return OTHER;
    }
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(model) {
        return known;
    }
    if names.len() >= MODELS_MAX {
        return OTHER;
    }
    let label = interned(model, usize::MAX);
    names.insert(label);
    label
}

/// Creates the series of these models at zero.
pub(crate) fn begin_models(configured: &BTreeSet<&str>) {
    for model in configured.iter().map(|model| model_label(model, configured)) {
        for purpose in PURPOSES {
            for kind in TOKEN_KINDS {
                TOKENS_TOTAL.add([purpose, model, kind], 0);
            }
            MODEL_COST_NANO_USD_TOTAL.add([purpose, model], 0);
            MODEL_UNPRICED_REQUESTS_TOTAL.add([purpose, model], 0);
        }
    }
}

/// The label of requests that only fill the provider's cache.
pub(crate) const PREWARM: &str = "prewarm";

/// Records the end of a request to the model for this purpose.
pub(crate) fn model_request_finished(label: &'static str, outcome: Outcome) {
    MODEL_REQUESTS_TOTAL.add([label, outcome.label()], 1);
}

/// The values of `kind` of the tokens' metric.
const TOKEN_KINDS: [&str; 6] = ["input", "cached", "cache_write", "cache_write_hour", "output", "reasoning"];

/// Records the tokens that a model server reported.
pub(crate) fn model_tokens(label: &'static str, model: &'static str, usage: &ReportedUsage) {
    let UsageTokens { input, cached, cache_write, cache_write_hour, output, reasoning } = UsageTokens::of(usage);
    for (kind, tokens) in TOKEN_KINDS.into_iter().zip([input, cached, cache_write, cache_write_hour, output, reasoning])
    {
        TOKENS_TOTAL.add([label, model, kind], tokens);
    }
}

/// Records the end of a request to this provider and model, for the metrics of the GenAI conventions. `error` is its
/// error code, or empty.
pub(crate) fn inference_ended(
    [provider, model, error]: [&'static str; 3],
    lasted: Duration,
    first_chunk: Option<Duration>,
    usage: Option<&ReportedUsage>,
) {
    let of = ["chat", provider, model];
    INFERENCE_DURATION.record(["chat", provider, model, error], lasted);
    first_chunk.into_iter().for_each(|first| INFERENCE_FIRST_CHUNK.record(of, first));
    let Some(tokens) = usage.map(UsageTokens::of) else { return };
    INFERENCE_INPUT_TOKENS.record(of, tokens.input as f64);
    INFERENCE_OUTPUT_TOKENS.record(of, tokens.output as f64);
    INFERENCE_INPUT_TOKENS_TOTAL.add(of, tokens.input);
    INFERENCE_OUTPUT_TOKENS_TOTAL.add(of, tokens.output);
    INFERENCE_CACHE_READ_TOKENS_TOTAL.add(of, tokens.cached);
    INFERENCE_CACHE_WRITE_TOKENS_TOTAL.add(of, tokens.cache_write);
    INFERENCE_REASONING_TOKENS_TOTAL.add(of, tokens.reasoning);
}

/// Records the cost of an answer in billionths of a US dollar, or that it is unknown.
pub(crate) fn model_answer_paid(label: &'static str, model: &'static str, cost_nano_usd: Option<u64>) {
    match cost_nano_usd {
        Some(cost) => MODEL_COST_NANO_USD_TOTAL.add([label, model], cost),
        None => MODEL_UNPRICED_REQUESTS_TOTAL.add([label, model], 1),
    }
}

/// Records how much of its prefix an answered request shares with the previous one.
pub(crate) fn request_shared(receipt: &Receipt) {
    PREFIX_TOKENS_TOTAL.add([], receipt.prefix_tokens);
    if let Some(provider) = &receipt.provider {
        let agreement = match provider.agrees {
            Some(true) => "agrees",
            Some(false) => "disagrees",
            None => "unknown",
        };
        CACHE_VERDICTS_TOTAL.add([agreement, provider.part.as_deref().map_or("none", word)], 1);
    }
    let Some(broke) = &receipt.broke else { return };
    let reason = word(broke.reason);
    PREFIX_BREAKS_TOTAL.add([reason], 1);
    PREFIX_TOKENS_LOST_TOTAL.add([reason], broke.lost_tokens);
}

/// Records that the store committed `records`.
pub(crate) fn store_committed(records: u64, duration: Duration) {
    STORE_COMMITS_TOTAL.add(["ok"], 1);
    STORE_COMMIT_SECONDS.record([], duration);
    STORE_RECORDS_TOTAL.add([], records);
}

#[cfg(test)]
pub(crate) mod tests;
