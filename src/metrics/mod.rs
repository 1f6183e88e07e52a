//! The server's metrics, for Prometheus.
//!
//! - Each metric is declared once, in `declared.rs`.
//! - Metrics are recorded only through the typed functions here. Label values are `&'static str`s from closed sets, so
//!   user text, ids and addresses cannot become labels, and the number of series is bounded. The operator chooses the
//!   names of the server's tools, and their number is bounded too (`tools.rs`).
//! - Recording does nothing until [`install`] is called.
//!
//! Gauges are guards: they release what they count on drop, on every code path.

pub(crate) mod compaction;
mod declared;
#[cfg(test)]
mod document;
pub(crate) mod hooks;
pub(crate) mod limits;
pub(crate) mod tools;
mod zero;

use declared::*;

use crate::core::model::{Purpose, ReportedUsage};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use reseed_protocol::{
    CloseCode, ErrorCode,
    event::{ContextWarningCode, TurnStatus},
    receipt::{BreakReason, Receipt},
};
use std::{sync::OnceLock, thread, time::Duration};

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
            zero::begin();
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

/// The protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// No frame has been received yet.
    Undecided,
    /// Version 1.
    V1,
    /// Version 2.
    V2,
    /// A relayed client. The server to which it is connected counts it.
    Relay,
}

impl Dialect {
    fn label(self) -> &'static str {
        match self {
            Self::Undecided => "none",
            Self::V1 => "v1",
            Self::V2 => "v2",
            Self::Relay => "relay",
        }
    }
}

/// An open connection, counted until dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    dialect: Dialect,
}

impl OpenConnection {
    /// Counts a new connection.
    #[must_use]
    pub(crate) fn new() -> Self {
        CONNECTIONS_TOTAL.counter([]).increment(1);
        CONNECTIONS.gauge([Dialect::Undecided.label()]).increment(1.0);
        Self { dialect: Dialect::Undecided }
    }

    /// Counts the connection under its protocol.
    pub(crate) fn speaks(&mut self, dialect: Dialect) {
        CONNECTIONS.gauge([self.dialect.label()]).decrement(1.0);
        CONNECTIONS.gauge([dialect.label()]).increment(1.0);
        self.dialect = dialect;
    }
}

impl Default for OpenConnection {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        CONNECTIONS.gauge([self.dialect.label()]).decrement(1.0);
    }
}

/// The node that counts a relayed connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The node to which the client is connected.
    Edge,
    /// The node that holds the session.
    Holder,
}

impl Side {
    fn label(self) -> &'static str {
        match self {
            Self::Edge => "edge",
            Self::Holder => "holder",
        }
    }
}

/// A connection between two nodes, counted until dropped.
#[derive(Debug)]
pub(crate) struct RelayedConnection(Side);

impl RelayedConnection {
    /// Counts a new connection.
    #[must_use]
    pub(crate) fn new(side: Side) -> Self {
        RELAYED_CONNECTIONS.gauge([side.label()]).increment(1.0);
        Self(side)
    }
}

impl Drop for RelayedConnection {
    fn drop(&mut self) {
        RELAYED_CONNECTIONS.gauge([self.0.label()]).decrement(1.0);
    }
}

/// Sets the numbers of nodes in each state, and of the sessions that this node holds.
pub(crate) fn nodes(living: usize, draining: usize, silent: usize, held: u64) {
    for (state, count) in [("living", living), ("draining", draining), ("silent", silent)] {
        NODES.gauge([state]).set(count as f64);
    }
    SESSIONS_HELD.gauge([]).set(held as f64);
}

/// Records how long ago this server renewed its lease, as a fraction of the lease.
pub(crate) fn lease_renewed(ago: f64) {
    LEASE_AGE_RATIO.gauge([]).set(ago);
}

/// Counts a lease that was not renewed in time.
pub(crate) fn lease_lost() {
    LEASE_LOSSES_TOTAL.counter([]).increment(1);
}

/// Counts a session taken over from a node that is silent or gone.
pub(crate) fn taken_over(is_silent: bool) {
    TAKEOVERS_TOTAL.counter([if is_silent { "silent" } else { "gone" }]).increment(1);
}

/// Counts an append that was refused because another node has opened the session.
pub(crate) fn append_fenced() {
    APPENDS_FENCED_TOTAL.counter([]).increment(1);
}

/// A session in memory, counted until dropped.
#[derive(Debug)]
pub(crate) struct OpenSession(());

impl OpenSession {
    /// Counts an opened session.
    #[must_use]
    pub(crate) fn new() -> Self {
        SESSIONS_OPEN.gauge([]).increment(1.0);
        Self(())
    }
}

impl Default for OpenSession {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        SESSIONS_OPEN.gauge([]).decrement(1.0);
    }
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

/// Records that the server closes a connection.
pub(crate) fn closed(code: CloseCode) {
    CLOSES_TOTAL.counter([close_label(code)]).increment(1);
}

/// Returns the label of a close code.
fn close_label(code: CloseCode) -> &'static str {
    match code {
        CloseCode::Normal => "1000",
        CloseCode::Protocol => "1002",
        CloseCode::InvalidUtf8 => "1007",
        CloseCode::TooLarge => "1009",
        CloseCode::Internal => "1011",
        CloseCode::Restarting => "1012",
        CloseCode::Overloaded => "1013",
        CloseCode::BadFrames => "4400",
        CloseCode::Credentials => "4401",
        CloseCode::Revoked => "4403",
        CloseCode::NoSuchSession => "4404",
        CloseCode::NoHello => "4408",
        CloseCode::RateLimit => "4429",
        CloseCode::SlowReader => "4504",
        CloseCode::NoPong => "4508",
    }
}

/// Records that a frame was answered with an error.
pub(crate) fn frame_refused(code: ErrorCode) {
    FRAMES_REFUSED_TOTAL.counter([code.as_str()]).increment(1);
}

/// Records that a command was answered. `name` is its type, as in [`reseed_protocol::command::Command::name`], or v1's
/// equivalent.
pub(crate) fn command_answered(name: &'static str, outcome: Outcome) {
    COMMANDS_TOTAL.counter([name, outcome.label()]).increment(1);
}

/// Records a warning about the context.
pub(crate) fn warned(code: ContextWarningCode) {
    let label = match code {
        ContextWarningCode::NearlyFull => "nearly_full",
        ContextWarningCode::WindowUnknown => "window_unknown",
        ContextWarningCode::ContextTruncatedUpstream => "context_truncated_upstream",
    };
    CONTEXT_WARNINGS_TOTAL.counter([label]).increment(1);
}

/// Records the end of a turn, `duration` after it started.
pub(crate) fn turn_finished(status: TurnStatus, duration: Duration) {
    let label = match status {
        TurnStatus::Completed => "completed",
        TurnStatus::Failed => "failed",
        TurnStatus::Cancelled => "cancelled",
        TurnStatus::Interrupted => "interrupted",
    };
    TURNS_TOTAL.counter([label]).increment(1);
    TURN_SECONDS.histogram([]).record(duration);
}

/// Records the first piece of a turn's answer, `duration` after the turn started.
pub(crate) fn first_delta(duration: Duration) {
    FIRST_DELTA_SECONDS.histogram([]).record(duration);
}

fn purpose_label(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Turn => "turn",
        Purpose::Summary => "summary",
    }
}

/// Records the end of a request to the model. `usage` is the model server's report, if there is one.
pub(crate) fn model_request_finished(purpose: Purpose, outcome: Outcome, usage: Option<ReportedUsage>) {
    let label = purpose_label(purpose);
    MODEL_REQUESTS_TOTAL.counter([label, outcome.label()]).increment(1);
    let Some(usage) = usage else { return };
    for (kind, tokens) in [
        ("input", usage.input_tokens),
        ("cached", usage.cached_tokens.unwrap_or(0)),
        ("cache_write", usage.cache_write_tokens.unwrap_or(0)),
        ("output", usage.output_tokens),
        ("reasoning", usage.reasoning_tokens.unwrap_or(0)),
    ] {
        TOKENS_TOTAL.counter([label, kind]).increment(tokens);
    }
}

/// Records the cost of an answer in billionths of a US dollar, or that it is unknown.
pub(crate) fn model_answer_paid(purpose: Purpose, cost_nano_usd: Option<u64>) {
    let label = purpose_label(purpose);
    match cost_nano_usd {
        Some(cost) => MODEL_COST_NANO_USD_TOTAL.counter([label]).increment(cost),
        None => MODEL_UNPRICED_REQUESTS_TOTAL.counter([label]).increment(1),
    }
}

/// Records how much of its prefix an answered request shares with the previous one.
pub(crate) fn request_shared(receipt: &Receipt) {
    PREFIX_TOKENS_TOTAL.counter([]).increment(receipt.prefix_tokens);
    let Some(broke) = &receipt.broke else { return };
    let reason = break_reason(broke.reason);
    PREFIX_BREAKS_TOTAL.counter([reason]).increment(1);
    PREFIX_TOKENS_LOST_TOTAL.counter([reason]).increment(broke.lost_tokens);
}

/// Returns the label value for the reason why a request does not start with the previous one, as on the wire.
#[must_use]
pub(crate) fn break_reason(reason: BreakReason) -> &'static str {
    match reason {
        BreakReason::Patch => "patch",
        BreakReason::Compaction => "compaction",
        BreakReason::CompactionUndone => "compaction_undone",
        BreakReason::Navigation => "navigation",
        BreakReason::Model => "model",
        BreakReason::Tools => "tools",
        BreakReason::Instructions => "instructions",
        BreakReason::Uncached => "uncached",
        BreakReason::Strategy => "strategy",
        BreakReason::Pins => "pins",
        BreakReason::Unknown => "unknown",
    }
}

/// Records that the store committed `records`.
pub(crate) fn store_committed(records: u64, duration: Duration) {
    STORE_COMMITS_TOTAL.counter(["ok"]).increment(1);
    STORE_COMMIT_SECONDS.histogram([]).record(duration);
    STORE_RECORDS_TOTAL.counter([]).increment(records);
}

/// Records that the settings were read again.
pub(crate) fn settings_reloaded(is_taken_up: bool) {
    SETTINGS_RELOADS_TOTAL.counter([if is_taken_up { "ok" } else { "failed" }]).increment(1);
}

/// Records that a store commit failed, so that nothing in it was acknowledged.
pub(crate) fn store_commit_failed() {
    STORE_COMMITS_TOTAL.counter(["failed"]).increment(1);
}

#[cfg(test)]
pub(crate) mod tests;
