//! Calls of hooks and tools. Each is counted once, by its outcome, and as cancelled if it is dropped without one. The
//! server's tools are counted by name, and those of clients together.

use super::{Outcome, declared::*, interned};
use reseed_protocol::hooks::HookPoint;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

/// Maximum number of tools that have their own series, which exceeds what a deployment may offer at one time. An MCP
/// server that keeps renaming its tools adds no more.
const TOOLS_MAX: usize = 1_000;

/// The label of all tools of clients, whose names come from users. No tool can have this name.
pub(super) const OF_CLIENT: &str = "(client)";

/// The kind of a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HookKind {
    /// Code in this process.
    Rust,
    /// An external server.
    Webhook,
    /// The owner's client.
    Client,
}

impl HookKind {
    fn label(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Webhook => "webhook",
            Self::Client => "client",
        }
    }
}

/// A hook call in progress.
#[derive(Debug)]
pub(crate) struct HookCallMeter {
    kind: HookKind,
    point: HookPoint,
    began: Instant,
    ended: AtomicBool,
}

impl HookCallMeter {
    /// Starts a call.
    #[must_use]
    pub(crate) fn new(kind: HookKind, point: HookPoint) -> Self {
        Self { kind, point, began: Instant::now(), ended: AtomicBool::new(false) }
    }

    /// Ends the call. Only the first outcome counts.
    pub(crate) fn ended(&self, outcome: Outcome) {
        if !self.ended.swap(true, Ordering::Relaxed) {
            let (kind, point) = (self.kind.label(), self.point.as_str());
            HOOK_CALLS_TOTAL.add([kind, point, outcome.label()], 1);
            HOOK_SECONDS.record([kind, point], self.began.elapsed());
        }
    }
}

impl Drop for HookCallMeter {
    fn drop(&mut self) {
        self.ended(Outcome::Cancelled);
    }
}

/// Records that an observing hook was not called, because too many such calls are in progress.
pub(crate) fn hook_skipped(kind: HookKind, point: HookPoint) {
    HOOK_CALLS_TOTAL.add([kind.label(), point.as_str(), "passed_over"], 1);
}

/// A tool call in progress.
#[derive(Debug)]
pub(crate) struct ToolCallMeter {
    tool: &'static str,
    began: Instant,
    outcome: &'static str,
}

impl ToolCallMeter {
    /// Starts a call of one of the server's tools. Their names come from the deployment and its MCP servers, never from
    /// users.
    #[must_use]
    pub(crate) fn new(tool: &str) -> Self {
        Self { tool: interned(tool, TOOLS_MAX), began: Instant::now(), outcome: "cancelled" }
    }

    /// Starts a call of a client's tool.
    #[must_use]
    pub(crate) fn of_client() -> Self {
        Self { tool: OF_CLIENT, began: Instant::now(), outcome: "cancelled" }
    }

    /// Restarts the measurement, because the call has waited for others until now.
    pub(crate) fn starts(&mut self) {
        self.began = Instant::now();
    }

    /// Ends the call.
    pub(crate) fn ended(mut self, failed: bool) {
        self.outcome = if failed { "failed" } else { "ok" };
    }
}

impl Drop for ToolCallMeter {
    fn drop(&mut self) {
        TOOL_CALLS_TOTAL.add([self.tool, self.outcome], 1);
        TOOL_SECONDS.record([self.tool], self.began.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::rendered;
    use reseed_protocol::ErrorCode;

    #[test]
    fn a_call_is_counted_once_by_its_first_word_and_as_cancelled_without_one() {
        let text = rendered(|| {
            let meter = HookCallMeter::new(HookKind::Webhook, HookPoint::Message);
            meter.ended(Outcome::Error(ErrorCode::HookTimeout));
            meter.ended(Outcome::Ok);
            drop(meter);
            drop(HookCallMeter::new(HookKind::Client, HookPoint::Context));
            hook_skipped(HookKind::Rust, HookPoint::ToolResult);
        });
        let counted: Vec<&str> = text.lines().filter(|line| line.starts_with("reseed_hook_calls_total")).collect();
        assert_eq!(counted.len(), 3, "{text}");
        for line in [
            r#"reseed_hook_calls_total{kind="webhook",point="message",outcome="hook_timeout"} 1"#,
            r#"reseed_hook_calls_total{kind="client",point="context",outcome="cancelled"} 1"#,
            r#"reseed_hook_calls_total{kind="rust",point="tool_result",outcome="passed_over"} 1"#,
            r#"reseed_hook_duration_seconds_count{kind="webhook",point="message"} 1"#,
        ] {
            assert!(text.lines().any(|rendered| rendered == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn a_call_is_counted_by_its_tool_and_once() {
        let text = rendered(|| {
            ToolCallMeter::new("shell").ended(false);
            ToolCallMeter::new("shell").ended(true);
            drop(ToolCallMeter::new("shell"));
            ToolCallMeter::of_client().ended(true);
        });
        for line in [
            r#"reseed_tool_calls_total{tool="shell",outcome="ok"} 1"#,
            r#"reseed_tool_calls_total{tool="shell",outcome="failed"} 1"#,
            r#"reseed_tool_calls_total{tool="shell",outcome="cancelled"} 1"#,
            r#"reseed_tool_duration_seconds_count{tool="shell"} 3"#,
            r#"reseed_tool_calls_total{tool="(client)",outcome="failed"} 1"#,
            r#"reseed_tool_duration_seconds_count{tool="(client)"} 1"#,
        ] {
            assert!(text.lines().any(|rendered| rendered == line), "{line} is not in\n{text}");
        }
    }
}
