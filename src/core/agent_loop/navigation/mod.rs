//! The navigation machine: moves to another entry of the tree, with or without a summary of the abandoned branch,
//! optionally starting a turn there.
//!
//! Inputs: the model's summary of the abandoned branch or its failure; the command `navigate`, and input or
//! `retry_turn` that continues from another entry; the decision of `before_navigate` hooks; a cancel.
//!
//! Outputs: the effects that call the model and cancel the call, and `Reseed` after a move; the move with its summary,
//! label and turn as one append, or an error as the reply; the steps `Ask` (the hooks) and `Proceed`.
//!
//! A move is one durable step and, like a compaction, ends this loop: the next one is seeded from the new leaf. Until
//! that step is written nothing has moved, so a crash, a cancel or a failure leaves everything as it was.

pub(super) mod hooks;

use crate::{
    agent_loop::{
        AgentLoop,
        checks::check_name,
        io::{Caller, Effect, RequestId},
        records::{appended, session_updated},
        step::Step,
        subject::{
            Subject,
            input::Said,
            navigation::{Ask, BranchGiven, ProposedMove},
        },
        workspace::Workspace,
    },
    context::{
        branch,
        compaction::{Job, Next, Order, Outcome},
    },
    model::{Answer, ModelFault},
    session::{Destination, Lookup, input::name_from},
};
use reseed_protocol::{
    CommandId, EntryData, EntryId, ErrorBody, ErrorCode, JobId, Message, Role, Usage,
    command::{Navigate, NavigatePosition},
    entry::{BranchSummary, CompactionDetails, Label},
    event::{CompactionFailed, CompactionTrigger, Event, TurnStarted},
    reply::{Accepted, Navigated, Reply},
};

/// The phase of a job that summarises a branch.
pub(in crate::agent_loop) const PHASE: &str = "summarising_branch";

/// The move in progress.
#[derive(Debug, Default)]
pub(in crate::agent_loop) struct Navigation {
    /// The move that waits for a summary of the abandoned branch, and the request for it.
    leaving: Option<(RequestId, Box<Move>)>,
    /// True if an entry was pinned after the move's destination was read: its path must be read again.
    pinned_before_move: bool,
}

/// A move that waits for the summary of the abandoned branch.
#[derive(Debug)]
pub(in crate::agent_loop) struct Move {
    pub(in crate::agent_loop) caller: Caller,
    pub(in crate::agent_loop) job: Job,
    arrival: Arrival,
}

/// The destination of a move, and what is done there in the same step.
#[derive(Debug)]
struct Arrival {
    to: Destination,
    target: Option<EntryId>,
    label: Option<String>,
    ask: Option<Ask>,
}

impl Navigation {
    /// Returns true if this request is for the summary of the abandoned branch.
    pub(in crate::agent_loop) fn asks(&self, request: RequestId) -> bool {
        self.leaving.as_ref().is_some_and(|(asked, _)| *asked == request)
    }

    /// Returns true while the abandoned branch is being summarised.
    pub(in crate::agent_loop) fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// Returns the sender of the move that waits for a summary. It is answered after later commands.
    pub(in crate::agent_loop) fn caller(&mut self) -> Option<&mut Caller> {
        self.leaving.as_mut().map(|(_, leaving)| &mut leaving.caller)
    }

    /// Notes that an entry was pinned while a move is under way.
    pub(in crate::agent_loop) fn pinned(&mut self, is_moving: bool) {
        self.pinned_before_move |= is_moving;
    }

    /// Returns true if an entry was pinned after the move's destination was read.
    pub(in crate::agent_loop) fn was_pinned_before_move(&self) -> bool {
        self.pinned_before_move
    }

    /// Returns the job that summarises the abandoned branch.
    pub(in crate::agent_loop) fn job_id(&self) -> Option<&JobId> {
        self.leaving.as_ref().map(|(_, leaving)| &leaving.job.order.job_id)
    }
}

impl AgentLoop {
    pub(in crate::agent_loop) fn on_navigate(
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
        self.ws.wanted(proposed.navigate.instructions.clone(), proposed.navigate.replace_instructions)?;
        self.propose_move(proposed)
    }

    /// Moves to a place and starts a turn there, in one step.
    pub(in crate::agent_loop) fn move_and_ask(
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

    /// Asks the hooks before a move, or moves at once if there are none.
    fn propose_move(&mut self, proposed: ProposedMove) -> Result<(), ErrorBody> {
        if self.asks_before_navigate() {
            self.ws.then(Step::Ask(Subject::Navigation(Box::new(proposed))));
            return Ok(());
        }
        self.go(proposed)
    }

    /// Moves, or has the abandoned branch summarised first.
    pub(in crate::agent_loop) fn go(&mut self, proposed: ProposedMove) -> Result<(), ErrorBody> {
        let ProposedMove { caller, navigate, mut to, target, label, given, ask, .. } = proposed;
        let caller = &caller;
        let (instructions, free_form) = self.ws.wanted(navigate.instructions, navigate.replace_instructions)?;
        if let Some(given) = given {
            let details = branch::files(&to.left, &self.ws.deployment.file_tools);
            let arrival = Arrival { to, target, label, ask };
            return self.arrive(caller, arrival, Some(BranchText::given(given, details)));
        }
        if navigate.summarize != Some(true) {
            return self.arrive(caller, Arrival { to, target, label, ask }, None);
        }
        let order = Order {
            job_id: self.ws.new_id(),
            trigger: CompactionTrigger::Manual,
            command_id: Some(caller.id.clone()),
            free_form,
            instructions,
            strategy: None,
            rebuild: None,
        };
        let window = self.ws.window_tokens();
        let budget = self.ws.prompt.in_estimates(window.saturating_sub(self.ws.manager().reserved_tokens(window)));
        let left = std::mem::take(&mut to.left);
        let Some((context, cut)) = branch::to_summarise(&left, budget, self.ws.prompt.counter()) else {
            return self.arrive(caller, Arrival { to, target, label, ask }, None);
        };
        let job = self.ws.branch_job(order, &context, cut, branch::files(&left, &self.ws.deployment.file_tools));
        self.void_running("the session is moving to another place");
        let arrival = Arrival { to, target, label, ask };
        let leaving = Box::new(Move { caller: caller.clone(), job, arrival });
        self.next_branch_summary(leaving);
        Ok(())
    }

    /// Requests the next summary of the abandoned branch, or moves if the summary is complete.
    fn next_branch_summary(&mut self, mut leaving: Box<Move>) {
        match leaving.job.advance() {
            Next::Ask(body) => {
                let request = self.ws.ask_for_summary(&leaving.job, *body, PHASE);
                self.navigation.leaving = Some((request, leaving));
            }
            Next::Offer(outcome) => {
                let Move { caller, arrival, .. } = *leaving;
                // Cannot fail: a label always has the summary to name.
                let _ = self.arrive(&caller, arrival, Some(BranchText::summarised(*outcome)));
            }
            // Unreachable in practice: a summary step always offers an outcome.
            Next::Exhausted => {
                let Move { caller, arrival, .. } = *leaving;
                let _ = self.arrive(&caller, arrival, None);
            }
        }
    }

    /// Handles the model's answer to a request for the branch summary.
    pub(in crate::agent_loop) fn on_branch_summary(&mut self, answer: &Answer) {
        let Some((_, mut leaving)) = self.navigation.leaving.take() else { return };
        leaving.job.take(answer);
        self.next_branch_summary(leaving);
    }

    /// Handles a failed request for the branch summary: goes on with a smaller request, the answer so far or an
    /// extract, or refuses the move.
    pub(in crate::agent_loop) fn on_branch_summary_fault(&mut self, fault: &ModelFault) {
        let Some((_, mut leaving)) = self.navigation.leaving.take() else { return };
        let own = *leaving.job.model() == *self.ws.session.state.model;
        if let Some(told) = fault.overflow.window_tokens.filter(|_| own) {
            self.ws.remember_window(told);
        }
        let is_answer =
            matches!(fault.code, ErrorCode::ContextOverflow | ErrorCode::UpstreamEmpty | ErrorCode::ContentFiltered);
        // Once the model has answered, the request that failed only asked it for missing sections: the move goes on
        // with that answer if it is a summary, and with an extract otherwise.
        if is_answer || leaving.job.is_completing() {
            if fault.code == ErrorCode::ContextOverflow {
                leaving.job.too_large();
            } else {
                leaving.job.fall_back(fault.code.as_str());
            }
            self.next_branch_summary(leaving);
            return;
        }
        let message = format!("the branch could not be summarised, and nothing has moved: {}", fault.message);
        let mut error = ErrorBody::new(fault.code, message);
        error.retry_after_ms = fault.retry_after_ms;
        self.ws.stay(&leaving, error);
        self.ws.then(Step::Proceed);
    }

    /// Appends the move in one step, with the turn that starts there, and ends this loop.
    fn arrive(&mut self, caller: &Caller, arrival: Arrival, summary: Option<BranchText>) -> Result<(), ErrorBody> {
        let Arrival { to, target, label, ask } = arrival;
        if label.is_some() && target.is_none() && summary.is_none() {
            let message = "before the first entry there is nothing to name; leave the label out";
            return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("label"));
        }
        self.void_running("the session moved to another place");
        let as_of_seq = self.ws.session.state.seq;
        let left_leaf_id = self.ws.session.state.leaf.clone();
        let Destination { leaf, tree, input, .. } = to;
        let (generation, command_id) = (self.ws.generation + 1, Some(caller.id.clone()));
        let unnamed = ask.as_ref().and_then(|ask| ask.said.as_ref()).filter(|_| self.ws.session.state.name.is_empty());
        let name = unnamed.map(|said| name_from(&said.parts)).filter(|name| !name.is_empty());
        let moved = session_updated(|updated| {
            updated.leaf_id = Some(leaf.clone());
            updated.generation = Some(generation);
            updated.name = name;
            updated.command_id.clone_from(&command_id);
        });
        let mut events = vec![moved];
        let mut parent = leaf.clone();
        let mut hang = |this: &mut Self, data: EntryData| {
            let id = this.ws.new_id();
            let mut entry = this.ws.entry(id, data);
            entry.parent_id = parent.replace(entry.entry_id.clone());
            let id = entry.entry_id.clone();
            events.push(appended(entry, None, command_id.clone()));
            id
        };
        let branch_summary_entry_id = summary.map(|left| {
            let BranchText { summary, details, usage, hook, hook_details } = left;
            let data = EntryData::BranchSummary(BranchSummary {
                from_id: leaf,
                left_leaf_id,
                summary,
                details: Some(details),
                summary_usage: usage,
                hook,
                hook_details,
            });
            hang(self, data)
        });
        let named = branch_summary_entry_id.clone().or(target);
        if let (Some(label), Some(target_id)) = (label, named) {
            hang(self, EntryData::Label(Label { target_id, label: Some(label) }));
        }
        let leaf_id = parent;
        let reply = match ask {
            None => Reply::Navigated(Navigated { leaf_id, input, branch_summary_entry_id, as_of_seq, duplicate: None }),
            Some(Ask { turn_id, said }) => {
                let entry_id = said.map(|Said { entry_id, parts }| {
                    let data = EntryData::Message(Message::new(Role::User, parts));
                    let mut entry = self.ws.entry(entry_id.clone(), data);
                    entry.parent_id = leaf_id;
                    events.push(appended(entry, Some(turn_id.clone()), command_id.clone()));
                    entry_id
                });
                let command_ids = vec![caller.id.clone()];
                let started = TurnStarted { turn_id: turn_id.clone(), command_ids, generation };
                events.push(Event::TurnStarted(started));
                let turn_id = Some(turn_id);
                Reply::Accepted(Accepted { entry_id, turn_id, queued: false, as_of_seq, duplicate: None })
            }
        };
        events.extend(self.ws.released(&caller.id));
        self.ws.session.tree = tree;
        // The tree was read before the summary was made: entries pinned meanwhile are pinned there too.
        self.ws.session.tree.mark(&self.ws.session.state);
        self.ws.append(events, vec![caller.mark(reply)]);
        self.ws.hand_over();
        Ok(())
    }

    /// Returns the move whose destination new input is meant for. A retried turn continues where it is, so input is not
    /// tied to its move.
    pub(in crate::agent_loop) fn meant_for(&self) -> Option<CommandId> {
        let is_retry = |ask: &Option<Ask>| ask.as_ref().is_some_and(|ask| ask.said.is_none());
        let retries = match &self.navigation.leaving {
            Some((_, leaving)) => is_retry(&leaving.arrival.ask),
            None => self.hooks.proposed_move().is_some_and(|proposed| is_retry(&proposed.ask)),
        };
        self.leaving_by().filter(|_| !retries)
    }

    /// Returns the move that waits for a summary or for hooks.
    #[must_use]
    pub fn leaving_by(&self) -> Option<CommandId> {
        match &self.navigation.leaving {
            Some((_, leaving)) => Some(leaving.caller.id.clone()),
            None => self.hooks.proposed_move().map(|proposed| proposed.caller.id.clone()),
        }
    }
}

impl Navigation {
    /// Cancels the branch summary; the session stays where it is.
    pub(in crate::agent_loop) fn cancel_move(&mut self, ws: &mut Workspace) {
        let Some((request, leaving)) = self.leaving.take() else { return };
        ws.push(Effect::CancelModel(request));
        let message = "the branch summary was cancelled; the session has not moved";
        ws.stay(&leaving, ErrorBody::new(ErrorCode::NavigationCancelled, message));
    }
}

impl Workspace {
    fn stay(&mut self, leaving: &Move, error: ErrorBody) {
        let failed = CompactionFailed {
            job_id: leaving.job.order.job_id.clone(),
            command_id: Some(leaving.caller.id.clone()),
            trigger: None,
            background: false,
            failed_rungs: leaving.job.failed().to_vec(),
            duration_ms: self.now.millis_since(leaving.job.started_at),
            paused_ms: 0,
            summary_usage: None,
            error: error.clone(),
        };
        self.append(vec![Event::CompactionFailed(Box::new(failed))], Vec::new());
        self.reply(&leaving.caller, self.ending_or(error));
    }
}

/// The summary of an abandoned branch.
struct BranchText {
    summary: String,
    details: CompactionDetails,
    usage: Option<Usage>,
    hook: Option<String>,
    hook_details: Option<serde_json::Value>,
}

impl BranchText {
    fn summarised(outcome: Outcome) -> Self {
        let Outcome { summary, details, usage, .. } = outcome;
        Self { summary, details, usage, hook: None, hook_details: None }
    }

    fn given(given: BranchGiven, details: CompactionDetails) -> Self {
        let (hook, hook_details) = (Some(given.hook), given.details);
        Self { summary: given.summary.trim().to_owned(), details, usage: None, hook, hook_details }
    }
}
