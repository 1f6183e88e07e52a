//! The stage of a loop: what it is doing, and what may follow.
//!
//! What a stage needs to know is with the machine whose stage it is. Here is the one place where the stage is written.

/// What a loop is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing.
    Idle,
    /// The model is answering.
    Asking,
    /// The answer is being stopped; what was shown of it comes back.
    Stopping,
    /// Hooks are asked before anything goes on.
    Hooking,
    /// Tools are at work: those of the state's pending calls.
    AwaitingTools,
    /// Waiting for the compaction at work.
    Compacting,
    /// The model is summarising the branch that a client leaves.
    Leaving,
    /// The next loop is being seeded; this one does nothing more.
    Done,
}

impl Stage {
    /// Returns true if a loop may go from this stage to that one.
    fn may_become(self, next: Self) -> bool {
        match (self, next) {
            // Nothing follows the end.
            (Self::Done, _) => false,
            (_, Self::Idle) => true,
            (Self::Idle, Self::Stopping) => false,
            (Self::Idle, _) => true,
            (Self::Asking, Self::Stopping) => true,
            // What somebody waits for is committed, or waited for anew.
            (Self::Compacting, Self::Compacting | Self::Done) => true,
            // A compaction that was undone or a move ends the loop.
            (from, to) => from == to,
        }
    }
}

/// The stage at which a loop is.
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

    /// Goes on to a stage that may follow this one.
    pub(super) fn enter(&mut self, next: Stage) {
        debug_assert!(self.0.may_become(next), "{:?} is followed by {next:?}", self.0);
        self.0 = next;
    }
}
