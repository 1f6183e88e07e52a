//! The navigation machine: moves to another entry of the tree, with or without a summary of the abandoned branch,
//! optionally starting a turn there.
//!
//! Inputs: the model's summary of the abandoned branch or its failure; the command `navigate`, and `user_input` or
//! `retry_turn` that continues from another entry; the decision of `before_navigate` hooks; a cancel.
//!
//! Outputs: the effects that call the model and cancel the call, and `Reseed` after a move; the move with its summary,
//! label and turn as one append, or an error as the reply; the steps `Ask` (the hooks) and `Proceed`.
//!
//! A move is one durable step and, like a compaction, ends this loop: the next one is seeded from the new leaf. Until
//! that step is written, the session has not moved, so a crash, a cancel or a failure leaves everything unchanged.

use crate::agent_loop::io::{Caller, Effect, RequestId};
use crate::agent_loop::subject::navigation::{Ask, ProposedMove, unwritten};
use crate::agent_loop::{
    ledger::Ledger, prompt::Prompt, records::appended, records::session_updated, roster::Roster, step::Step,
    turn::appended_input,
};
use crate::usage_row::UsagePurpose;
use crate::{
    compaction::machine::{
        plan::Planner,
        running::{ask_for_summary, summary_failed},
    },
    compaction::{Job, Next, Order, Outcome, branch},
    model::{Answer, ModelFault},
    session::{Destination, input::name_from},
};
use reseed_protocol::{
    EntryData, ErrorBody, ErrorCode, JobId,
    compaction::{CompactionFailed, CompactionTrigger},
    event::Event,
    reply::Reply,
    tree::{BranchSummary, Label, Navigate, Navigated},
    turn::{Accepted, TurnStarted},
};

/// The phase of a job that summarises a branch.
pub(crate) const PHASE: &str = "summarising_branch";

/// The move in progress.
#[derive(Debug, Default)]
pub(crate) struct Navigation {
    leaving: Option<Box<Leaving>>,
}

/// A move that waits for the summary of the abandoned branch.
#[derive(Debug)]
struct Leaving {
    request: RequestId,
    job: Job,
    proposed: ProposedMove,
}

/// Plans a move: returns the job that summarises the abandoned branch first; `None` if the session can move at once.
///
/// # Errors
/// `missing_field`, `invalid_field`: the instructions or the label cannot be used.
pub(crate) fn plan(
    ledger: &mut Ledger,
    prompt: &Prompt,
    proposed: &mut ProposedMove,
) -> Result<Option<Job>, ErrorBody> {
    let Navigate { instructions, replace_instructions, summarize, .. } = proposed.navigate.clone();
    let (instructions, free_form) = Planner { ledger, prompt }.wanted(instructions, replace_instructions)?;
    let left = std::mem::take(&mut proposed.to.left);
    if let Some(given) = &mut proposed.summary {
        given.summary = given.summary.trim().to_owned();
        given.details = Some(branch::files(&left, &ledger.deployment.file_tools));
        return Ok(None);
    }
    let window = ledger.window_tokens();
    let budget = prompt.in_estimates(window.saturating_sub(prompt.manager().reserved_tokens(window)));
    let wanted = summarize == Some(true);
    let Some((context, cut)) = wanted.then(|| branch::to_summarise(&left, budget, ledger.counter())).flatten() else {
        if proposed.label.is_some() && proposed.target.is_none() {
            let message = "there is no entry to label before the first one; leave the label out";
            return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("label"));
        }
        return Ok(None);
    };
    let order = Order {
        command_id: Some(proposed.caller.id.clone()),
        free_form,
        instructions,
        ..Order::automatic(ledger.new_id(), CompactionTrigger::Manual)
    };
    let files = branch::files(&left, &ledger.deployment.file_tools);
    let delimiter = ledger.new_text();
    Ok(Some(Planner { ledger, prompt }.branch_job(order, &context, cut, files, delimiter)))
}

impl Navigation {
    /// Returns true if this request is for the summary of the abandoned branch.
    pub(crate) fn asks(&self, request: RequestId) -> bool {
        self.leaving.as_ref().is_some_and(|leaving| leaving.request == request)
    }

    /// Returns the move that waits for the summary of the abandoned branch.
    pub(crate) fn proposed_move(&self) -> Option<&ProposedMove> {
        self.leaving.as_ref().map(|leaving| &leaving.proposed)
    }

    /// Returns the sender of the move that waits for a summary. Later commands may be answered first.
    pub(crate) fn caller(&mut self) -> Option<&mut Caller> {
        self.leaving.as_mut().map(|leaving| &mut leaving.proposed.caller)
    }

    /// Returns the job that summarises the abandoned branch.
    pub(crate) fn job_id(&self) -> Option<&JobId> {
        self.leaving.as_ref().map(|leaving| &leaving.job.order.job_id)
    }

    /// Requests the next summary of the abandoned branch. Returns the move once the summary is complete.
    pub(crate) fn leave(
        &mut self,
        ledger: &mut Ledger,
        mut job: Job,
        mut proposed: ProposedMove,
    ) -> Option<ProposedMove> {
        match job.advance() {
            Next::Ask(body) => {
                let request = ask_for_summary(ledger, &job, *body, PHASE, false, UsagePurpose::Branch);
                self.leaving = Some(Box::new(Leaving { request, job, proposed }));
                return None;
            }
            Next::Offer(outcome) => {
                let Outcome { summary, details, usage, .. } = *outcome;
                let details = Some(details);
                proposed.summary = Some(BranchSummary { summary, details, summary_usage: usage, ..unwritten() });
            }
            // Unreachable in practice: a summary step always offers an outcome.
            Next::Exhausted => {}
        }
        Some(proposed)
    }

    /// Handles the model's answer to a request for the branch summary. Returns the move once that is complete.
    pub(crate) fn on_branch_summary(&mut self, ledger: &mut Ledger, answer: &Answer) -> Option<ProposedMove> {
        let Leaving { mut job, proposed, .. } = *self.leaving.take()?;
        job.take(answer);
        self.leave(ledger, job, proposed)
    }

    /// Handles a failed request for the branch summary: repeats the request, or continues with a smaller one or an
    /// extract, or refuses the move.
    pub(crate) fn on_branch_summary_fault(&mut self, ledger: &mut Ledger, fault: &ModelFault) -> Option<ProposedMove> {
        let mut leaving = *self.leaving.take()?;
        if summary_failed(ledger, &mut leaving.job, fault) {
            return self.leave(ledger, leaving.job, leaving.proposed);
        }
        let message = format!("the branch could not be summarised, and nothing has moved: {}", fault.message);
        let mut error = ErrorBody::new(fault.code, message);
        error.retry_after_ms = fault.retry_after_ms;
        stay(ledger, &leaving, error);
        ledger.then(Step::Proceed);
        None
    }

    /// Appends the move in one step, with the turn that starts there, and ends this loop.
    pub(crate) fn arrive(ledger: &mut Ledger, roster: &mut Roster, proposed: ProposedMove) {
        let ProposedMove { caller, to, target, label, ask, summary, .. } = proposed;
        let as_of_seq = ledger.state().seq;
        let left_leaf_id = ledger.state().leaf.clone();
        let Destination { leaf, tree, input, .. } = to;
        let (generation, command_id) = (ledger.generation + 1, Some(caller.id.clone()));
        let unnamed = ask.as_ref().and_then(|ask| ask.said.as_ref()).filter(|_| ledger.state().name.is_empty());
        let name = unnamed.map(|said| name_from(said.first_of_user())).filter(|name| !name.is_empty());
        let moved = session_updated(|updated| {
            updated.leaf_id = Some(leaf.clone());
            updated.generation = Some(generation);
            updated.name = name;
            updated.command_id.clone_from(&command_id);
        });
        let mut events = vec![moved];
        let mut parent = leaf.clone();
        let mut hang = |ledger: &mut Ledger, data: EntryData| {
            let id = ledger.new_id();
            let mut entry = ledger.entry(id, data);
            entry.parent_id = parent.replace(entry.entry_id.clone());
            let id = entry.entry_id.clone();
            events.push(appended(entry, None, command_id.clone()));
            id
        };
        let branch_summary_entry_id = summary.map(|summary| {
            hang(ledger, EntryData::BranchSummary(BranchSummary { from_id: leaf, left_leaf_id, ..summary }))
        });
        let named = branch_summary_entry_id.clone().or(target);
        if let (Some(label), Some(target_id)) = (label, named) {
            hang(ledger, EntryData::Label(Label { target_id, label: Some(label) }));
        }
        let leaf_id = parent;
        let hooks = if ask.is_some() { roster.hooks_to_keep(ledger.state()) } else { None };
        let reply = match ask {
            None => Reply::Navigated(Navigated { leaf_id, input, branch_summary_entry_id, as_of_seq, duplicate: None }),
            Some(Ask { turn_id, said }) => {
                let entries = said.map(|said| said.into_entries(ledger, leaf_id)).unwrap_or_default();
                let entry_id = entries.last().map(|entry| entry.entry_id.clone());
                events.extend(appended_input(entries, &turn_id, command_id.as_ref()));
                let command_ids = vec![caller.id.clone()];
                let started = TurnStarted { turn_id: turn_id.clone(), command_ids, generation };
                events.push(Event::TurnStarted(started));
                let turn_id = Some(turn_id);
                Reply::Accepted(Accepted { entry_id, turn_id, queued: false, as_of_seq, duplicate: None })
            }
        };
        events.extend(ledger.released(&caller.id));
        ledger.session.tree = tree;
        // The tree was read before the summary was made, so entries pinned meanwhile are marked there now.
        ledger.session.tree.mark(&ledger.session.state);
        ledger.append_work(events, hooks, vec![caller.mark(reply)]);
        ledger.hand_over();
    }

    /// Cancels the branch summary; the session stays where it is.
    pub(crate) fn cancel_move(&mut self, ledger: &mut Ledger) {
        let Some(leaving) = self.leaving.take() else { return };
        ledger.push(Effect::CancelModel(leaving.request));
        let message = "the branch summary was cancelled; the session has not moved";
        stay(ledger, &leaving, ErrorBody::new(ErrorCode::NavigationCancelled, message));
    }
}

/// Cancels a move whose hooks have not answered, because it was cancelled or the server is stopping. The session has
/// not moved.
pub(crate) fn stay_here(ledger: &mut Ledger, proposed: &ProposedMove) {
    let message = "the move was cancelled before its hooks had answered; the session has not moved";
    ledger.reply(&proposed.caller, ledger.ending_or(ErrorBody::new(ErrorCode::NavigationCancelled, message)));
}

fn stay(ledger: &mut Ledger, leaving: &Leaving, error: ErrorBody) {
    let failed = CompactionFailed {
        job_id: leaving.job.order.job_id.clone(),
        command_id: Some(leaving.proposed.caller.id.clone()),
        trigger: None,
        background: false,
        failed_rungs: leaving.job.failed().to_vec(),
        duration_ms: ledger.now.millis_since(leaving.job.started_at),
        paused_ms: 0,
        summary_usage: None,
        error: error.clone(),
    };
    ledger.append(vec![Event::CompactionFailed(Box::new(failed))], Vec::new());
    ledger.reply(&leaving.proposed.caller, ledger.ending_or(error));
}
