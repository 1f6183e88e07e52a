//! A move in the tree, before it is made.

use crate::agent_loop::checks::{check_name, check_replaced, check_summary, refused};
use crate::agent_loop::{io::Caller, subject::input::Said};
use crate::{hook::HookFault, session::Destination};
use reseed_protocol::{
    EntryId, TurnId,
    hooks::{HookAnswer, HookEvent, NavigationPreparation},
    tree::{BranchSummary, Navigate, NavigatePosition},
};

/// A move that a client requested, as changed by hooks so far. It is made once it needs no summary, or has one.
#[derive(Debug)]
pub(crate) struct ProposedMove {
    pub(crate) caller: Caller,
    pub(crate) navigate: Navigate,
    pub(crate) to: Destination,
    pub(crate) target: Option<EntryId>,
    pub(crate) label: Option<String>,
    /// The summary of the branch that the session leaves, by a hook or by the model.
    pub(crate) summary: Option<BranchSummary>,
    /// The turn that starts at the destination.
    pub(crate) ask: Option<Ask>,
    pub(crate) cancelled_by: Option<String>,
}

/// A turn that starts at a move's destination.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) turn_id: TurnId,
    /// The input; absent if the question at the destination is answered again.
    pub(crate) said: Option<Said>,
}

impl ProposedMove {
    pub(crate) fn new(
        caller: Caller,
        navigate: Navigate,
        to: Destination,
        target: Option<EntryId>,
        label: Option<String>,
    ) -> Self {
        Self { caller, navigate, to, target, label, summary: None, ask: None, cancelled_by: None }
    }

    pub(crate) fn event(&self, old_leaf_id: Option<EntryId>) -> HookEvent {
        HookEvent::BeforeNavigate(Box::new(NavigationPreparation {
            target_id: self.target.clone(),
            position: self.navigate.position.unwrap_or(NavigatePosition::At),
            new_leaf_id: self.to.leaf.clone(),
            old_leaf_id,
            common_ancestor_id: self.to.common.clone(),
            entries_to_summarize: self.to.left.iter().rev().cloned().collect(),
            user_wants_summary: self.navigate.summarize == Some(true),
            custom_instructions: self.navigate.instructions.clone(),
            replace_instructions: self.navigate.replace_instructions == Some(true),
            label: self.label.clone(),
            summary: self.summary.as_ref().map(|given| given.summary.clone()),
        }))
    }

    pub(crate) fn take(&mut self, hook: &str, answer: HookAnswer) -> Result<bool, HookFault> {
        check_summary(answer.summary.as_deref(), answer.details.as_ref(), answer.instructions.as_deref())?;
        if answer.cancel == Some(true) {
            self.cancelled_by = Some(hook.to_owned());
            return Ok(true);
        }
        let label = answer.label.map(|label| check_name("label", &label)).transpose().map_err(refused)?;
        let wants_summary = self.navigate.summarize == Some(true);
        if label.is_some() && self.target.is_none() && (!wants_summary || self.to.left.is_empty()) {
            return Err(HookFault::failed("there is no entry to label before the first one"));
        }
        let mut navigate = self.navigate.clone();
        navigate.instructions = answer.instructions.or(navigate.instructions);
        navigate.replace_instructions = answer.replace_instructions.or(navigate.replace_instructions);
        check_replaced(navigate.instructions.as_deref(), navigate.replace_instructions).map_err(refused)?;
        let mut changed = label.as_ref().is_some_and(|label| Some(label) != self.label.as_ref());
        changed |= navigate != self.navigate;
        self.navigate = navigate;
        self.label = label.or(self.label.take());
        // Without this check the model would get a summary that nobody requested.
        if let Some(summary) = answer.summary.filter(|_| wants_summary) {
            let hook = Some(hook.to_owned());
            self.summary = Some(BranchSummary { summary, hook, hook_details: answer.details, ..unwritten() });
            changed = true;
        }
        Ok(changed)
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled_by.is_some()
    }

    /// Returns true if new input is meant for the move's destination. Input is not tied to a retried turn's move,
    /// because that turn continues at the same position.
    pub(crate) fn takes_input_along(&self) -> bool {
        self.ask.as_ref().is_none_or(|ask| ask.said.is_some())
    }
}

/// Returns a branch summary without text. The branches that it names are known once the session moves.
pub(crate) fn unwritten() -> BranchSummary {
    BranchSummary {
        from_id: None,
        left_leaf_id: None,
        summary: String::new(),
        details: None,
        summary_usage: None,
        hook: None,
        hook_details: None,
    }
}
