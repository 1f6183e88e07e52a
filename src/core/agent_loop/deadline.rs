//! The deadline of a tool or hook call.

use reseed_protocol::Timestamp;

/// The deadline of a tool or hook call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    pub(crate) at: Timestamp,
    /// Progress cannot extend the deadline beyond this.
    pub(crate) at_most: Timestamp,
    pub(crate) timeout_ms: u64,
}

impl Deadline {
    /// Upper bound on how far progress may extend a deadline, in multiples of the tool's time limit.
    const STRETCH_MAX: u64 = 10;

    pub(crate) fn after(now: Timestamp, timeout_ms: u64) -> Self {
        let at_most = now.plus_millis(timeout_ms.saturating_mul(Self::STRETCH_MAX));
        Self { at: now.plus_millis(timeout_ms), at_most, timeout_ms }
    }

    pub(crate) fn moved(self, now: Timestamp) -> Self {
        Self { at: now.plus_millis(self.timeout_ms).min(self.at_most), ..self }
    }

    /// Returns the deadline postponed by the time for which it was paused.
    pub(crate) fn later(self, millis: u64) -> Self {
        Self { at: self.at.plus_millis(millis), at_most: self.at_most.plus_millis(millis), ..self }
    }
}
