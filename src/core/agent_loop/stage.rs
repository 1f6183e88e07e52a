//! The stage of a loop: its current activity.
//!
//! The stage is not stored. The kernel derives it from the machines (`AgentLoop::stage`): each reports whether the
//! session is waiting for it.

/// A loop's current activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nothing is running.
    Idle,
    /// The model is answering.
    Asking,
    /// The answer is being stopped; the part shown so far is awaited.
    Stopping,
    /// Hooks must answer before anything continues.
    Hooking,
    /// Tools are running: the pending calls in the session's state.
    AwaitingTools,
    /// The session waits for the running compaction.
    Compacting,
    /// The model is summarising the branch that the session is leaving.
    Leaving,
    /// The next loop is being seeded; this one does nothing more.
    Done,
}
