//! The stage of a loop: its current activity.
//!
//! Nobody writes the stage. It follows from the machines: each says if the session is waiting for it.

use super::AgentLoop;

/// A loop's current activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
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
    /// The running compaction is waited for.
    Compacting,
    /// The model is summarising the branch that the session leaves.
    Leaving,
    /// The next loop is being seeded; this one does nothing more.
    Done,
}

impl AgentLoop {
    /// Returns the loop's current stage.
    ///
    /// Invariant: the session waits for one machine at a time.
    pub(super) fn stage(&self) -> Stage {
        if self.ws.is_over() {
            return Stage::Done;
        }
        let waits_for = [
            self.turn.stage(),
            self.compaction.is_awaited().then_some(Stage::Compacting),
            self.hooks.are_awaited().then_some(Stage::Hooking),
            self.navigation.is_leaving().then_some(Stage::Leaving),
        ];
        debug_assert!(waits_for.iter().flatten().count() <= 1, "the session waits for {waits_for:?} at the same time");
        waits_for.into_iter().flatten().next().unwrap_or(Stage::Idle)
    }
}
