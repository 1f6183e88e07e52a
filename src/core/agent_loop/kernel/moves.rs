//! Moves in the tree: hooks are called first, and a move voids the running compaction.

use crate::agent_loop::{
    AgentLoop, checks::check_name, io::Caller, navigation, navigation::Navigation, step::Step, subject::Subject,
    subject::navigation::Ask, subject::navigation::ProposedMove,
};
use crate::session::{Destination, Lookup};
use reseed_protocol::{
    CommandId, ErrorBody, ErrorCode,
    hooks::HookPoint,
    reply::Reply,
    tree::{Navigate, NavigatePosition},
};

impl AgentLoop {
    pub(super) fn on_navigate(
        &mut self,
        caller: &Caller,
        navigate: Navigate,
        lookup: Option<Lookup>,
    ) -> Result<(), ErrorBody> {
        if self.is_busy() {
            return Err(self.busy("the session cannot move"));
        }
        let label = navigate.label.as_ref().map(|label| check_name("label", label)).transpose()?;
        let to = lookup.and_then(Lookup::destination).unwrap_or_default();
        let target = match navigate.position {
            Some(NavigatePosition::Tip) => to.leaf.clone(),
            _ => navigate.entry_id.clone(),
        };
        let proposed = ProposedMove::new(caller.clone(), navigate, to, target, label);
        self.planner().wanted(proposed.navigate.instructions.clone(), proposed.navigate.replace_instructions)?;
        self.propose_move(proposed)
    }

    /// Moves to an entry and starts a turn there, in one step.
    pub(super) fn move_and_ask(
        &mut self,
        caller: &Caller,
        navigate: Navigate,
        to: Destination,
        ask: Ask,
    ) -> Result<(), ErrorBody> {
        let target = to.leaf.clone();
        let proposed = ProposedMove { ask: Some(ask), ..ProposedMove::new(caller.clone(), navigate, to, target, None) };
        self.propose_move(proposed)
    }

    /// Calls the hooks before a move, or moves at once if there are none.
    fn propose_move(&mut self, proposed: ProposedMove) -> Result<(), ErrorBody> {
        if self.asks_before_navigate() {
            self.ledger.then(Step::Ask(Subject::Navigation(Box::new(proposed))));
            return Ok(());
        }
        self.go(proposed)
    }

    /// Moves, or requests a summary of the abandoned branch first.
    fn go(&mut self, mut proposed: ProposedMove) -> Result<(), ErrorBody> {
        let arrival = match navigation::plan(&mut self.ledger, &self.prompt, &mut proposed)? {
            None => Some(proposed),
            Some(job) => {
                self.compacting().void_running("the session is moving to another place");
                self.navigation.leave(&mut self.ledger, job, proposed)
            }
        };
        self.arrive(arrival);
        Ok(())
    }

    /// Arrives, unless the move still waits for a summary.
    pub(in crate::agent_loop) fn arrive(&mut self, arrival: Option<ProposedMove>) {
        if let Some(arrival) = arrival {
            self.compacting().void_running("the session moved to another place");
            Navigation::arrive(&mut self.ledger, &mut self.roster, arrival);
        }
    }

    /// Moves as the hooks changed the move, or refuses it if a hook cancelled it.
    pub(super) fn move_as_proposed(&mut self, proposed: ProposedMove) {
        let caller = proposed.caller.clone();
        let gone = match &proposed.cancelled_by {
            Some(hook) => {
                let message = format!("the hook `{hook}` cancelled the move; the session has not moved");
                Err(ErrorBody::new(ErrorCode::NavigationCancelled, message))
            }
            None => self.go(proposed),
        };
        if let Err(error) = gone {
            self.ledger.reply(&caller, Reply::Error(error));
            self.ledger.then(Step::Proceed);
        }
    }

    /// Returns the move that new input waits for, because it belongs to the move's destination.
    pub(super) fn meant_for(&self) -> Option<CommandId> {
        self.moving().filter(|proposed| proposed.takes_input_along()).map(|proposed| proposed.caller.id.clone())
    }

    /// Returns the command of the move that waits for a summary or for hooks.
    #[must_use]
    pub fn leaving_by(&self) -> Option<CommandId> {
        self.moving().map(|proposed| proposed.caller.id.clone())
    }

    fn moving(&self) -> Option<&ProposedMove> {
        self.navigation.proposed_move().or_else(|| self.hooks.proposed_move())
    }

    /// Returns true if hooks are called before a move. The abandoned branch is then read even if no summary is
    /// requested.
    #[must_use]
    pub fn asks_before_navigate(&self) -> bool {
        self.roster.has_hooks(&self.ledger, HookPoint::BeforeNavigate, None)
    }
}
