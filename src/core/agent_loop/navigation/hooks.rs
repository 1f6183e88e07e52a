//! Hooks before a move in the tree.

use crate::agent_loop::{AgentLoop, step::Step, subject::navigation::ProposedMove, workspace::Workspace};
use reseed_protocol::{ErrorBody, ErrorCode, hook::HookPoint, reply::Reply};

impl AgentLoop {
    /// Returns true if hooks are asked before a move. The abandoned branch is then read even if no summary is
    /// requested.
    #[must_use]
    pub fn asks_before_navigate(&self) -> bool {
        self.ws.has_hooks(HookPoint::BeforeNavigate, None)
    }

    /// Moves as the hooks changed the move, or refuses it if a hook cancelled it.
    pub(in crate::agent_loop) fn move_as_proposed(&mut self, proposed: ProposedMove) {
        let caller = proposed.caller.clone();
        let gone = match &proposed.cancelled_by {
            Some(hook) => {
                let message = format!("the hook `{hook}` cancelled the move; the session has not moved");
                Err(ErrorBody::new(ErrorCode::NavigationCancelled, message))
            }
            None => self.go(proposed),
        };
        if let Err(error) = gone {
            self.ws.reply(&caller, Reply::Error(error));
            self.ws.then(Step::Proceed);
        }
    }
}

impl Workspace {
    /// Cancels a move whose hooks have not answered, because it was cancelled or the server stops. Nothing has moved.
    pub(in crate::agent_loop) fn stay_here(&mut self, proposed: &ProposedMove) {
        let message = "the move was cancelled before its hooks had answered; the session has not moved";
        self.reply(&proposed.caller, self.ending_or(ErrorBody::new(ErrorCode::NavigationCancelled, message)));
    }
}
