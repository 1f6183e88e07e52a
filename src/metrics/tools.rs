//! Metrics of tools. The server's tools are counted by name, and those of clients together.

use super::declared::*;
use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
    time::Instant,
};

/// Maximum number of tools that have their own series, which exceeds what a deployment may offer at one time. An MCP
/// server that keeps renaming its tools adds no more.
const TOOLS_MAX: usize = 1_000;

/// The label of tools that have no series of their own.
const OTHER: &str = "other";

/// The label of all tools of clients, whose names come from users. No tool can have this name.
pub(super) const OF_CLIENT: &str = "(client)";

/// A call of a tool. If it is dropped before its end, it counts as cancelled.
#[derive(Debug)]
pub(crate) struct ToolCallMeter {
    tool: &'static str,
    began: Instant,
    ended: bool,
}

impl ToolCallMeter {
    /// Starts a call of one of the server's tools.
    #[must_use]
    pub(crate) fn new(tool: &str) -> Self {
        Self { tool: label(tool), began: Instant::now(), ended: false }
    }

    /// Starts a call of a client's tool.
    #[must_use]
    pub(crate) fn of_client() -> Self {
        Self { tool: OF_CLIENT, began: Instant::now(), ended: false }
    }

    /// Restarts the measurement, because the call has waited for others until now.
    pub(crate) fn starts(&mut self) {
        self.began = Instant::now();
    }

    /// Ends the call.
    pub(crate) fn ended(mut self, failed: bool) {
        self.end(if failed { "failed" } else { "ok" });
    }

    fn end(&mut self, outcome: &'static str) {
        self.ended = true;
        TOOL_CALLS_TOTAL.counter([self.tool, outcome]).increment(1);
        TOOL_SECONDS.histogram([self.tool]).record(self.began.elapsed());
    }
}

impl Drop for ToolCallMeter {
    fn drop(&mut self) {
        if !self.ended {
            self.end("cancelled");
        }
    }
}

/// Returns a tool's name as a label. Names come from the deployment and its MCP servers, never from users. Each is kept
/// for the life of the process, up to [`TOOLS_MAX`] names.
fn label(tool: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(tool) {
        return known;
    }
    if names.len() >= TOOLS_MAX {
        return OTHER;
    }
    let name: &'static str = Box::leak(tool.to_owned().into_boxed_str());
    names.insert(name);
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::rendered;

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
