//! The stage of a loop: its current activity, and which stages may follow.
//!
//! The data of a stage is with its machine. This file is the only place that writes the stage.

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

impl Stage {
    /// Returns true if a loop may go from this stage to that one.
    fn may_become(self, next: Self) -> bool {
        match (self, next) {
            // Nothing follows the last stage.
            (Self::Done, _) => false,
            (_, Self::Idle) => true,
            (Self::Idle, Self::Stopping) => false,
            (Self::Idle, _) => true,
            (Self::Asking, Self::Stopping) => true,
            // A compaction that is waited for is committed, or waited for again.
            (Self::Compacting, Self::Compacting | Self::Done) => true,
            // Entering the stage that the loop is in changes nothing.
            (from, to) => from == to,
        }
    }
}

/// The loop's current stage.
#[derive(Debug)]
pub(super) struct Current(Stage);

impl Current {
    pub(super) fn new() -> Self {
        Self(Stage::Idle)
    }

    pub(super) fn get(&self) -> Stage {
        self.0
    }

    /// Returns true if the loop is at this stage.
    pub(super) fn is(&self, stage: Stage) -> bool {
        self.0 == stage
    }

    /// Enters a stage that may follow this one.
    pub(super) fn enter(&mut self, next: Stage) {
        debug_assert!(self.0.may_become(next), "{:?} is followed by {next:?}", self.0);
        self.0 = next;
    }
}
