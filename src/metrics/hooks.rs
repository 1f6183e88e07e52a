//! Hook metrics.

use super::{Outcome, declared::*};
use reseed_protocol::hooks::HookPoint;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

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

/// A hook call in progress. It is counted once, by its outcome. If it is dropped without an outcome, it counts as
/// cancelled.
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
            let (kind, event) = (self.kind.label(), self.point.as_str());
            HOOK_CALLS_TOTAL.counter([kind, event, outcome.label()]).increment(1);
            HOOK_SECONDS.histogram([kind, event]).record(self.began.elapsed());
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
    HOOK_CALLS_TOTAL.counter([kind.label(), point.as_str(), "passed_over"]).increment(1);
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
}
