//! Moving about in the tree: to another entry, with or without a summary of the branch that is left, or to ask again
//! from an earlier one.
//!
//! A move is one durable step, and like a compaction it ends this loop: the next is seeded from where the session now
//! stands. Until that step is written nothing has moved, so a crash, a cancel or a failure leaves everything as it was.

use super::{
    AgentLoop, CallModel, Effect, RequestId, Stage, annotate::check_name, commands::Caller, info, turn::appended,
};
use crate::core::{
    context::{
        branch,
        compaction::{Job, Order, Surroundings},
    },
    model::{Answer, ModelFault},
    session::{Place, input::name_from},
};
use reseed_protocol::{
    EntryData, EntryId, ErrorBody, ErrorCode, Message, Part, Role, Timestamp, TurnId,
    command::Navigate,
    entry::{BranchSummary, Label},
    event::{CompactionFailed, CompactionProgress, CompactionTrigger, EphemeralEvent},
    reply::{Accepted, Navigated, Reply},
};

/// The phase of a job that summarises a branch.
pub(super) const PHASE: &str = "summarising_branch";

/// A move that waits for the summary of the branch that it leaves.
#[derive(Debug)]
pub(super) struct Move {
    pub(super) caller: Caller,
    pub(super) job: Job,
    place: Place,
    target: Option<EntryId>,
    label: Option<String>,
}

impl AgentLoop {
    pub(super) fn on_navigate(
        &mut self,
        now: Timestamp,
        caller: &Caller,
        navigate: Navigate,
        place: Option<Place>,
    ) -> Result<(), ErrorBody> {
        if let Stage::Leaving { leaving, .. } = &mut self.stage
            && leaving.caller.id == caller.id
        {
            // Sent again after a lost connection: whoever sent it last is answered.
            leaving.caller = caller.clone();
            return Ok(());
        }
        self.check_movable()?;
        let label = navigate.label.map(|label| check_name("label", &label)).transpose()?;
        let place = place.unwrap_or_default();
        let target = navigate.entry_id;
        if navigate.summarize != Some(true) {
            self.arrive(now, caller, place, target, label, None);
            return Ok(());
        }
        let instructions = navigate.instructions.filter(|text| !text.trim().is_empty());
        let order = Order {
            job_id: self.ids.next_id(),
            trigger: CompactionTrigger::Manual,
            command_id: Some(caller.id.clone()),
            free_form: navigate.replace_instructions == Some(true) && instructions.is_some(),
            instructions,
        };
        let window = self.window_tokens();
        let budget = self.in_estimates(window.saturating_sub(self.manager.reserved_tokens(window)));
        let Some((context, cut)) = branch::to_summarise(&place.left, budget, &self.counter) else {
            self.arrive(now, caller, place, target, label, None);
            return Ok(());
        };
        let around = Surroundings {
            model: &self.session.state.model,
            window_tokens: window,
            counter: &self.counter,
            calibration: &self.calibration,
            details: Some(branch::files(&place.left)),
            now,
            delimiter: self.ids.next_text(),
        };
        let job = Job::stage(order, &context, cut, around);
        let leaving = Box::new(Move { caller: caller.clone(), job, place, target, label });
        self.next_branch_summary(now, leaving);
        Ok(())
    }

    /// Refuses to move while something is at work on the place where the session stands.
    fn check_movable(&self) -> Result<(), ErrorBody> {
        if let Some(job) = self.running_job() {
            let message = format!("compaction `{job}` is at work; wait for it, or send cancel_compaction");
            let error = ErrorBody::new(ErrorCode::CompactionRunning, message);
            return Err(error.with_details(serde_json::json!({ "jobId": job })));
        }
        if self.is_busy() {
            let message = "the session is busy; wait for the end of its turn, or cancel it";
            return Err(ErrorBody::new(ErrorCode::TurnRunning, message));
        }
        Ok(())
    }

    /// Asks for the next summary of the branch that is left, or moves when none is left to ask for.
    fn next_branch_summary(&mut self, now: Timestamp, leaving: Box<Move>) {
        let (done, total) = leaving.job.progress();
        let Some(body) = leaving.job.next_request() else {
            let Move { caller, job, place, target, label } = *leaving;
            self.arrive(now, &caller, place, target, label, job.outcome());
            return;
        };
        self.out.push(Effect::Emit(EphemeralEvent::CompactionProgress(CompactionProgress {
            job_id: leaving.job.order.job_id.clone(),
            phase: PHASE.to_owned(),
            done,
            total,
        })));
        let request = self.next_request_id();
        self.out.push(Effect::CallModel(Box::new(CallModel { request, body, shown_as: None })));
        self.stage = Stage::Leaving { request, leaving };
    }

    pub(super) fn on_branch_summary(&mut self, now: Timestamp, answer: &Answer) {
        let Stage::Leaving { mut leaving, .. } = std::mem::replace(&mut self.stage, Stage::Idle) else { return };
        leaving.job.take(answer);
        self.next_branch_summary(now, leaving);
    }

    pub(super) fn on_branch_summary_fault(&mut self, now: Timestamp, fault: &ModelFault) {
        let Stage::Leaving { mut leaving, .. } = std::mem::replace(&mut self.stage, Stage::Idle) else { return };
        if let Some(told) = fault.overflow.window_tokens {
            self.remember_window(told);
        }
        if matches!(fault.code, ErrorCode::ContextOverflow | ErrorCode::UpstreamEmpty | ErrorCode::ContentFiltered) {
            leaving.job.fall_back();
            self.next_branch_summary(now, leaving);
            return;
        }
        let message = format!("the branch could not be summarised, and nothing has moved: {}", fault.message);
        let mut error = ErrorBody::new(fault.code, message);
        error.retry_after_ms = fault.retry_after_ms;
        self.stay(&leaving, error);
        self.proceed(now);
    }

    /// The summary of the branch is stopped; the session stays where it is.
    pub(super) fn cancel_move(&mut self, request: RequestId, leaving: &Move) {
        self.out.push(Effect::CancelModel(request));
        let message = "the summary of the branch was cancelled; the session stands where it stood";
        self.stay(leaving, ErrorBody::new(ErrorCode::NavigationCancelled, message));
    }

    fn stay(&mut self, leaving: &Move, error: ErrorBody) {
        self.out.push(Effect::Emit(EphemeralEvent::CompactionFailed(CompactionFailed {
            job_id: leaving.job.order.job_id.clone(),
            command_id: Some(leaving.caller.id.clone()),
            code: error.code,
            message: error.message.clone(),
        })));
        self.reply(&leaving.caller, Reply::Error(error));
    }

    /// Writes the move in one step, and ends this loop.
    fn arrive(
        &mut self,
        now: Timestamp,
        caller: &Caller,
        place: Place,
        target: Option<EntryId>,
        label: Option<String>,
        summary: Option<crate::core::context::compaction::Outcome>,
    ) {
        let as_of_seq = self.session.state.seq;
        let left_leaf_id = self.session.state.leaf.clone();
        let Place { leaf, tree, input, .. } = place;
        let (generation, command_id) = (self.generation + 1, Some(caller.id.clone()));
        let moved = info::session_updated(|updated| {
            updated.leaf_id = Some(leaf.clone());
            updated.generation = Some(generation);
            updated.command_id.clone_from(&command_id);
        });
        let mut events = vec![moved];
        let mut parent = leaf.clone();
        let mut hang = |this: &mut Self, data: EntryData| {
            let id = this.ids.next_id();
            let mut entry = this.entry(now, id, data);
            entry.parent_id = parent.replace(entry.entry_id.clone());
            let id = entry.entry_id.clone();
            events.push(appended(entry, None, command_id.clone()));
            id
        };
        let branch_summary_entry_id = summary.map(|outcome| {
            let (summary, details) = (outcome.summary, Some(outcome.details));
            let data = EntryData::BranchSummary(BranchSummary { from_id: leaf, left_leaf_id, summary, details });
            hang(self, data)
        });
        let named = branch_summary_entry_id.clone().or(target);
        if let (Some(label), Some(target_id)) = (label, named) {
            hang(self, EntryData::Label(Label { target_id, label: Some(label) }));
        }
        let leaf_id = parent;
        let reply = Reply::Navigated(Navigated { leaf_id, input, branch_summary_entry_id, as_of_seq, duplicate: None });
        self.session.tree = tree;
        self.append(events, vec![caller.mark(reply)]);
        self.out.push(Effect::Reseed);
        self.stage = Stage::Done;
    }

    /// Moves to an entry and asks from there, in one step.
    pub(super) fn start_branch(&mut self, now: Timestamp, caller: Caller, parts: Vec<Part>, place: Place) {
        let turn_id: TurnId = self.ids.next_id();
        let as_of_seq = self.session.state.seq;
        let name = self.session.state.name.is_empty().then(|| name_from(&parts)).filter(|name| !name.is_empty());
        let generation = self.generation + 1;
        let mut entry = self.message_entry(now, Message::new(Role::User, parts));
        entry.parent_id.clone_from(&place.leaf);
        let reply = Reply::Accepted(Accepted {
            entry_id: Some(entry.entry_id.clone()),
            turn_id: Some(turn_id.clone()),
            queued: false,
            as_of_seq,
            duplicate: None,
        });
        let moved = info::session_updated(|updated| {
            updated.leaf_id = Some(place.leaf.clone());
            updated.generation = Some(generation);
            updated.name = name;
            updated.command_id = Some(caller.id.clone());
        });
        let mut started = self.turn_started(turn_id.clone(), vec![caller.id.clone()]);
        if let reseed_protocol::event::Event::TurnStarted(started) = &mut started {
            started.generation = generation;
        }
        self.session.tree = place.tree;
        let asked = appended(entry, Some(turn_id), Some(caller.id.clone()));
        self.append(vec![moved, asked, started], vec![caller.mark(reply)]);
        self.out.push(Effect::Reseed);
        self.stage = Stage::Done;
    }
}
