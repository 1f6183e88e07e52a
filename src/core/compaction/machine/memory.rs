//! The state that the compaction machine passes to the next loop.

use crate::compaction::{Basis, Order, Outcome, breaker::CircuitBreaker};
use reseed_protocol::{JobId, Timestamp};

/// The parts that are passed from one loop to the next.
#[derive(Debug, Default)]
pub(crate) struct CompactionMemory {
    /// An ordered compaction that has not started, while no loop holds it.
    pub(crate) ordered: Option<Order>,
    /// The circuit breaker of automatic compaction.
    pub(crate) breaker: CircuitBreaker,
    /// A previewed compaction that may be applied.
    pub(crate) preview: Option<Box<Prepared>>,
    /// How long turns have waited behind the summary of a compaction that has not ended.
    pub(crate) waited_behind_ms: u64,
}

/// A compaction that was shown and may be applied.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) basis: Box<Basis>,
    pub(crate) outcome: Box<Outcome>,
    pub(crate) expires_at: Timestamp,
}

impl Prepared {
    /// Returns its id on the wire.
    #[must_use]
    pub(crate) fn id(&self) -> &JobId {
        &self.basis.order.job_id
    }

    pub(crate) fn basis(&self) -> &Basis {
        &self.basis
    }
}
