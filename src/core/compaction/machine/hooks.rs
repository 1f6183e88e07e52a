//! Hooks before a compaction: they may cancel it, supply a summary, or choose another model.

use crate::agent_loop::checks::{check_replaced, check_summary, refused};
use crate::compaction::machine::work::{JobPurpose, Running};
use crate::{
    agent_loop::{
        step::Step,
        subject::{Subject, compaction::ProposedCompaction},
    },
    compaction::machine::{Compacting, Compactor, plan::Planner},
};
use crate::{
    compaction::{
        HookRequests, HookSupply,
        cut::{Cut, cut_from},
        structure::Structure,
    },
    context::Context,
    hook::HookFault,
};
use reseed_protocol::{
    EntryId, ErrorBody, ErrorCode,
    hooks::{CompactionPreparation, CompactionSettings, HookAnswer, HookEvent, HookPoint},
};

impl Compacting<'_> {
    /// Voids the running or previewed compaction if the patch changes what it has read. Otherwise its summary would
    /// contain what the model must no longer see.
    pub(crate) fn void_what_read(&mut self, patched: &Context) {
        let before = self.ledger.context();
        let parts = before.messages.iter().zip(&patched.messages);
        let same = parts.take_while(|(a, b)| a.entry_id == b.entry_id && a.hash == b.hash).map(|(a, _)| a);
        let is_read =
            |last: Option<&EntryId>| last.is_some() && !same.clone().any(|counted| counted.entry_id.as_ref() == last);
        self.compaction.drop_preview_if(is_read);
        if self.compaction.has_read(is_read) {
            self.void_running("a hook changed what it had read");
        }
    }

    /// Starts the compaction as its hooks changed it, or ends it if a hook cancelled it.
    pub(crate) fn compact_as_decided(&mut self, decision: ProposedCompaction) {
        let Some(mut running) = self.compaction.work.take_running() else { return };
        let advanced = if let Some(hook) = decision.cancelled_by {
            let tokens = self.prompt.count_now(self.ledger).tokens;
            self.compaction.carried.breaker.declined(tokens);
            let message = format!("the hook `{hook}` cancelled the compaction; the context is unchanged");
            self.compaction.fail(self.ledger, running, ErrorBody::new(ErrorCode::CompactionCancelled, message))
        } else {
            self.planner().follow(&mut running, decision.given);
            // The compaction's time limit starts now, because hooks have their own limits.
            let hooks_took_ms = self.ledger.now.millis_since(running.job.started_at);
            running.job.deadline = running.job.deadline.plus_millis(hooks_took_ms);
            self.advance(running)
        };
        self.continue_if_failed(advanced);
    }

    /// Fails the compaction because a required hook could not inspect it.
    pub(crate) fn compaction_not_inspected(&mut self, error: ErrorBody) {
        let Some(running) = self.compaction.work.take_running() else { return };
        let advanced = self.compaction.fail(self.ledger, running, error);
        self.continue_if_failed(advanced);
    }

    /// Calls the hooks before a prepared compaction. Returns it if no answer is awaited.
    pub(crate) fn before_compaction(&mut self, running: Running) -> Option<Running> {
        if !self.roster.has_hooks(self.ledger, HookPoint::BeforeCompaction, None) {
            return Some(running);
        }
        let is_waited_for = !running.is_in_background() && !self.ledger.is_over();
        self.compaction.work.run(running);
        if self.roster.awaits_hooks(self.ledger, HookPoint::BeforeCompaction) {
            self.compaction.awaited |= is_waited_for;
            self.ledger.then(Step::Ask(Subject::Compaction(ProposedCompaction::default())));
            return None;
        }
        let decision = ProposedCompaction::default();
        let event = self.compaction.compaction_event(self.planner(), &decision);
        self.roster.tell(self.ledger, &Subject::Compaction(decision), &event);
        self.compaction.work.take_running()
    }
}

impl Compactor {
    pub(crate) fn compaction_event(&self, planner: Planner<'_>, decision: &ProposedCompaction) -> HookEvent {
        let window_tokens = planner.ledger.window_tokens();
        let wishes = &decision.given.wishes;
        let mut preparation = CompactionPreparation {
            job_id: "none".parse().expect("a word is an id"),
            trigger: reseed_protocol::compaction::CompactionTrigger::Manual,
            background: false,
            preview: false,
            custom_instructions: None,
            messages: Vec::new(),
            turn_prefix: Vec::new(),
            conversation: String::new(),
            previous_summary: None,
            summary: decision.given.summary.as_ref().map(|(_, summary)| summary.clone()),
            files: reseed_protocol::compaction::CompactionDetails::default(),
            tokens_before: planner.prompt.count_now(planner.ledger).tokens,
            first_kept_entry_id: None,
            kept_entry_ids: Vec::new(),
            settings: CompactionSettings {
                strategy: planner.prompt.manager().name().to_owned(),
                model: wishes.model.as_ref().map_or_else(|| planner.summariser().0, |(_, model)| model.clone()),
                window_tokens,
                reserve_tokens: planner.prompt.manager().reserved_tokens(window_tokens),
                keep_recent_tokens: planner.prompt.manager().keep_tokens(window_tokens),
                target_tokens: planner.prompt.manager().target_tokens(window_tokens),
            },
            branch_entries: planner.ledger.path().iter().map(|node| node.entry.clone()).collect(),
            leaf_id: planner.ledger.state().leaf.clone(),
        };
        if let Some(running) = self.work.running.as_deref() {
            let order = &running.job.order;
            preparation.job_id = order.job_id.clone();
            preparation.trigger = order.trigger;
            preparation.background = running.is_in_background();
            preparation.preview = matches!(running.purpose, JobPurpose::Preview(_));
            preparation.custom_instructions = wishes.instructions.clone().or(order.instructions.clone());
            if let Some(strategy) = order.strategy {
                strategy.clone_into(&mut preparation.settings.strategy);
            }
            running.job.describe(&mut preparation);
        }
        HookEvent::BeforeCompaction(Box::new(preparation))
    }

    pub(crate) fn take_decision(
        &self,
        planner: Planner<'_>,
        decision: &mut ProposedCompaction,
        hook: &str,
        answer: HookAnswer,
    ) -> Result<bool, HookFault> {
        if let Some(model) = &answer.model
            && !planner.ledger.deployment.windows.knows(model)
        {
            let message = "the context window of the model that it names is unknown; set CONTEXT_WINDOW on the server";
            return Err(HookFault::failed(message));
        }
        check_summary(answer.summary.as_deref(), answer.details.as_ref(), answer.instructions.as_deref())?;
        if let Some(message) = answer.instructions.as_deref().and_then(|text| planner.too_long(text)) {
            return Err(HookFault::failed(format!("its {message}")));
        }
        let instructions = answer.instructions.as_ref().or(decision.given.wishes.instructions.as_ref());
        check_replaced(instructions.map(String::as_str), answer.replace_instructions).map_err(refused)?;
        let first_kept = answer.first_kept_entry_id.as_ref().filter(|_| answer.cancel != Some(true));
        let has_summary = answer.summary.is_some() || decision.given.summary.is_some();
        let cut = first_kept.map(|id| self.cut_at(&planner.ledger.context(), id, has_summary)).transpose()?;
        decision.take(hook, answer, cut)
    }

    /// Returns the running compaction's cut whose tail starts with this entry.
    fn cut_at(&self, context: &Context, first_kept: &EntryId, has_summary: bool) -> Result<Cut, HookFault> {
        if !has_summary {
            return Err(HookFault::failed("its `firstKeptEntryId` needs a `summary` of what comes before that entry"));
        }
        let structure = Structure::of(context);
        let known = self.work.running.as_ref().map_or(0, |running| running.job.messages_read());
        let is_it = |at: usize| context.messages[at].entry_id.as_ref() == Some(first_kept);
        let unit = structure.units.iter().position(|unit| unit.messages.clone().any(is_it));
        let Some((unit, at)) = unit.map(|at| (&structure.units[at], at)) else {
            let message = format!("its `firstKeptEntryId`, `{first_kept}`, is no message that the model sees");
            return Err(HookFault::failed(message));
        };
        if !is_it(unit.messages.start) || !unit.may_begin_tail {
            let message = format!("the kept part cannot start at `{first_kept}`: a call and its results stay together");
            return Err(HookFault::failed(message));
        }
        if unit.messages.start >= known {
            let message = format!("`{first_kept}` was appended after the compaction started; it is kept in any case");
            return Err(HookFault::failed(message));
        }
        cut_from(context, &structure, at)
            .ok_or_else(|| HookFault::failed(format!("too little precedes `{first_kept}` to be worth a summary")))
    }
}

impl Planner<'_> {
    /// Configures a compaction as its hooks decided.
    fn follow(&self, running: &mut Running, given: HookSupply) {
        let HookRequests { model, instructions, replaces, details: _ } = given.wishes.clone();
        if let Some(instructions) = instructions {
            running.job.focus(instructions, replaces);
        }
        let other = model.map(|(_, model)| model).filter(|model| model != running.job.model());
        if let Some(model) = other {
            let own = model == self.ledger.state().model;
            let counter = if own { *self.ledger.counter() } else { self.ledger.deployment.counter(&model) };
            let window_tokens = self.ledger.deployment.windows.tokens(&model);
            let window_tokens = if own { self.prompt.in_estimates(self.ledger.window_tokens()) } else { window_tokens };
            running.job.ask_instead(model, window_tokens, counter);
        }
        running.job.give(given);
    }
}
