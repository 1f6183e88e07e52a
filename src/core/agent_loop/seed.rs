//! The seed of a loop.

use crate::{
    agent_loop::{
        causes::Causes, deployment::Deployment, hooks::chain::InputChains, late::EndedCalls, prompt::PromptMemory,
        roster::Roster, turn::memory::TurnMemory,
    },
    compaction::machine::memory::CompactionMemory,
};
use crate::{
    context::counter::Calibration,
    session::{IdSource, Session},
};
use std::sync::Arc;

/// The state that one loop passes to the next: the session according to its log, and state that is not in the log.
#[derive(Debug)]
pub struct Seed {
    /// The session.
    pub session: Session,
    /// The deployment's settings.
    pub deployment: Arc<Deployment>,
    /// The calibration of this model's token estimates.
    pub calibration: Calibration,
    /// The id of the next request, so that no later loop reuses an earlier one.
    pub next_request: u64,
    /// True if no turn may start: the server is stopping, or nobody is connected.
    pub holding: bool,
    pub(crate) ids: IdSource,
    pub(crate) causes: Causes,
    pub(crate) prompt: PromptMemory,
    pub(crate) roster: Roster,
    pub(crate) ended: EndedCalls,
    pub(crate) turn: TurnMemory,
    pub(crate) compaction: CompactionMemory,
    pub(crate) hooks: InputChains,
}

impl Seed {
    /// Returns the first seed of a session.
    #[must_use]
    pub fn new(session: Session, deployment: Arc<Deployment>, calibration: Calibration, ids: IdSource) -> Self {
        let causes = Causes::read(session.tree.path(), &session.state.unseen);
        let prompt = PromptMemory::read(&session);
        Self {
            session,
            deployment,
            calibration,
            next_request: 1,
            holding: false,
            ids,
            causes,
            prompt,
            roster: Roster::default(),
            ended: EndedCalls::default(),
            turn: TurnMemory::default(),
            compaction: CompactionMemory::default(),
            hooks: InputChains::default(),
        }
    }
}
