//! Planning: when and how to compact, by the strategy, the circuit breaker and the window.

use crate::compaction::machine::work::{JobPurpose, Need};
use crate::compaction::segments::Room;
use crate::{
    agent_loop::{ledger::Ledger, prompt::Prompt},
    compaction::machine::Compacting,
};
use crate::{
    compaction::{
        Decision, Job, Order, SummaryRequest, Surroundings, Writing,
        breaker::Permit,
        cut::Cut,
        cut_rules::Ordered,
        strategy::{ContextManager, FallbackStep},
        summary_tokens_max,
    },
    context::{Context, RequestCount, counter::Counter, node::Node},
    model::{ModelRequest, Purpose},
};
use reseed_protocol::{
    EntryData, EntryId, ErrorBody, ErrorCode, Message, Part, UsageSource,
    compaction::{Compaction, CompactionDetails, CompactionTrigger},
};
use std::sync::Arc;

impl Compacting<'_> {
    /// Prepares a compaction before a request that is near the trigger, unless one is held or in progress, or the
    /// breaker is open.
    pub(crate) fn prepare(&mut self, count: &RequestCount) {
        self.check_held();
        if self.ledger.session.held.is_none() {
            self.prepare_another(count);
        }
    }

    /// Prepares a compaction before a request above the trigger, even if one is held: that one was not good enough.
    pub(crate) fn prepare_another(&mut self, count: &RequestCount) {
        let work = &self.compaction.work;
        if work.running.is_some()
            || work.ready.is_some()
            || work.ordered.is_some()
            || self.ledger.is_holding()
            || self.compaction.gave_up
        {
            return;
        }
        if self.permit(count.tokens, false) != Permit::Full {
            return;
        }
        let order = Order::automatic(self.ledger.new_id(), self.prompt.manager().trigger());
        // If nothing can be cut yet, there is nothing to prepare.
        let _ = self.start_job(order, JobPurpose::Commit { background: true }, true);
    }

    /// Prepares a compaction while nothing is running, as the user reads or types. Commits the held one if the next
    /// request is already above the trigger.
    pub(crate) fn prepare_idle(&mut self) {
        if !self.is_idle() || self.ledger.state().turn.is_some() {
            return;
        }
        if self.prompt.manager().options().background >= 1.0 {
            return;
        }
        let count = self.prompt.count_now(self.ledger);
        match self.prompt.manager().before_request(&count, self.ledger.window_tokens()) {
            Decision::Ready | Decision::Warn => {}
            Decision::Prepare => self.prepare(&count),
            Decision::Due | Decision::Compact => {
                if !self.commit_held(Need::Due) {
                    self.prepare_another(&count);
                }
            }
        }
    }

    /// Stages a compaction and takes its first step.
    ///
    /// # Errors
    /// `nothing_to_compact`, `unknown_strategy`; nothing has changed then.
    pub(crate) fn start_job(&mut self, order: Order, purpose: JobPurpose, asks_model: bool) -> Result<(), ErrorBody> {
        let context = self.ledger.context();
        let steps = self.planner().steps(&context, &order)?;
        if steps.is_empty() {
            return Err(self.planner().nothing_to_compact(&order));
        }
        let delimiter = self.ledger.new_text();
        let job = self.planner().stage_job(order, &context, steps, asks_model, delimiter);
        let _ = self.begin(Box::new(job), purpose);
        Ok(())
    }
}

/// Plans compactions: reads the session and its next request, and changes neither.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Planner<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) prompt: &'a Prompt,
}

impl Planner<'_> {
    /// Returns the error for an order that no step of its strategy could carry out, with the strategy's reason.
    pub(crate) fn nothing_to_compact(&self, order: &Order) -> ErrorBody {
        let tokens = self.prompt.count_now(self.ledger).tokens;
        let other = self.ordered_strategy(order).ok().flatten();
        let manager: &dyn ContextManager = other.as_deref().unwrap_or(self.prompt.manager());
        let (name, target) = (manager.name(), manager.target_tokens(self.ledger.window_tokens()));
        let why = if manager.summarises() {
            "too few of them are older than the last turn".to_owned()
        } else if tokens <= target {
            format!("the strategy `{name}` removes nothing from a request within its target of {target}")
        } else {
            format!("the strategy `{name}` may remove none of them")
        };
        let message = format!("the next request has about {tokens} tokens, and {why}");
        ErrorBody::new(ErrorCode::NothingToCompact, message)
    }

    /// Checks that an order has something to do.
    ///
    /// # Errors
    /// `nothing_to_compact`, `unknown_strategy`.
    pub(crate) fn check_worth(&self, order: &Order) -> Result<(), ErrorBody> {
        let steps = self.steps(&self.ledger.context(), order)?;
        if steps.is_empty() { Err(self.nothing_to_compact(order)) } else { Ok(()) }
    }

    /// Returns the strategy that an order names.
    ///
    /// # Errors
    /// `unknown_strategy`.
    fn ordered_strategy(&self, order: &Order) -> Result<Option<Box<dyn ContextManager>>, ErrorBody> {
        let settings = self.ledger.state().settings.strategy_settings.as_ref();
        let make = |name| self.ledger.deployment.strategies.make(name, settings, &self.ledger.strategy_options());
        order.strategy.map(make).transpose()
    }

    /// Returns the fallback steps by which a compaction could make room now; none if there is nothing to gain.
    ///
    /// # Errors
    /// `unknown_strategy`.
    pub(crate) fn steps(&self, context: &Context, order: &Order) -> Result<Vec<FallbackStep>, ErrorBody> {
        let other = self.ordered_strategy(order)?;
        let manager: &dyn ContextManager = other.as_deref().unwrap_or(self.prompt.manager());
        let tokens = self.prompt.count(self.ledger, context).tokens;
        let planned_window = self.planning_window(order.trigger, || tokens);
        Ok(self.ledger.deployment.cut_rules.steps(&Ordered {
            manager,
            names_strategy: order.strategy.is_some(),
            trigger: order.trigger,
            is_rebuild: order.rebuild.is_some(),
            path: self.ledger.path(),
            context,
            tokens,
            window_tokens: self.ledger.window_tokens(),
            planned_window_tokens: planned_window,
            fixed_tokens: self.prompt.fixed().total(),
            summary_tokens: self.summary_room(planned_window).expected(context),
            calibration: self.prompt.calibration(),
        }))
    }

    /// Returns the window for which a compaction is planned. A request that the provider refused as too large, or that
    /// ended without output, filled the whole window by itself, whatever our count says.
    pub(crate) fn planning_window(&self, trigger: CompactionTrigger, tokens: impl FnOnce() -> u64) -> u64 {
        let window = self.ledger.window_tokens();
        if trigger == CompactionTrigger::Overflow { window.min(tokens().max(1)) } else { window }
    }

    /// Stages the summary of a branch that the session is leaving.
    pub(crate) fn branch_job(
        &self,
        order: Order,
        context: &Context,
        cut: Cut,
        files: CompactionDetails,
        delimiter: String,
    ) -> Job {
        let summariser = self.summariser();
        let around = Surroundings { details: Some(files), ..self.surroundings(&summariser, delimiter) };
        // The user's words on an abandoned branch are summarised like anything else.
        let around = Surroundings { room: around.room.with_words(false), ..around };
        Job::stage(order, None, context, |_| None, vec![FallbackStep::Summarise(cut)], around)
    }

    fn stage_job(
        &self,
        order: Order,
        context: &Context,
        steps: Vec<FallbackStep>,
        asks_model: bool,
        delimiter: String,
    ) -> Job {
        let (path, summariser) = (self.ledger.path(), self.summariser());
        let earlier = compaction_in(path);
        let base = earlier.map(|(id, _)| id.clone());
        let said = |node: &Arc<Node>| node.entry.shared_message().cloned();
        let originals =
            |id: &EntryId| -> Option<Arc<Message>> { path.iter().find(|node| node.id() == id).and_then(said) };
        let window = self.planning_window(order.trigger, || self.prompt.count(self.ledger, context).tokens);
        let around = Surroundings {
            room: self.summary_room(window),
            earlier: earlier.map(|(_, compaction)| compaction),
            details: Some(noted_in(path)),
            asks_model,
            conversation: self.conversation(context),
            native: self.native(context),
            ..self.surroundings(&summariser, delimiter)
        };
        Job::stage(order, base, context, originals, steps, around)
    }

    /// Returns the surroundings that all jobs of this session share, for a context that was not compacted before and
    /// with the model available.
    fn surroundings<'a>(&self, summariser: &'a (String, u64, Counter), delimiter: String) -> Surroundings<'a> {
        let (model, window_tokens, counter) = summariser;
        let summaries = &self.ledger.deployment.summaries;
        Surroundings {
            model,
            window_tokens: *window_tokens,
            counter: *counter,
            reasons: reasons(self.ledger.path(), model),
            earlier: None,
            details: None,
            file_tools: self.ledger.deployment.file_tools.clone(),
            now: self.ledger.now,
            deadline: self.ledger.now.plus_millis(summaries.timeout_ms),
            delimiter,
            asks_model: true,
            room: self.summary_room(self.ledger.window_tokens()),
            conversation: None,
            native: None,
            prices: self.ledger.deployment.prices.clone(),
            writing: self.writing(),
        }
    }

    /// Returns the summarising model, its window in estimated tokens, and its counter.
    pub(crate) fn summariser(&self) -> (String, u64, Counter) {
        let own = &self.ledger.state().model;
        match self.ledger.deployment.summaries.model.as_ref().filter(|model| *model != own) {
            Some(model) => {
                let counter = self.ledger.deployment.counter(model);
                (model.clone(), self.ledger.deployment.windows.tokens(model), counter)
            }
            None => (own.clone(), self.prompt.in_estimates(self.ledger.window_tokens()), *self.ledger.counter()),
        }
    }

    /// Returns the room of each part of a summary in this window, in estimated tokens.
    fn summary_room(&self, window: u64) -> Room {
        let (_, summariser_window, _) = self.summariser();
        let options = self.prompt.manager().options();
        let target = self.prompt.in_estimates(self.prompt.manager().target_tokens(window));
        // Tools and the system prompt need room too, but the user's words keep some of it in any case.
        let target = target.saturating_sub(self.prompt.fixed().total()).max(target / 4);
        let most = self.prompt.in_estimates(summary_tokens_max(window.min(summariser_window)));
        let keeps_words = self.ledger.deployment.cut_rules.keeps_words();
        Room::of(target, most, options.user_share, options.summary_mode)
            .with_words(keeps_words)
            .with_ids(self.prompt.searches_once_compacted(self.ledger))
    }

    /// Returns the conversation's own request, if its model writes the summary as a continuation of it.
    fn conversation(&self, context: &Context) -> Option<ModelRequest> {
        let summaries = &self.ledger.deployment.summaries;
        let own = summaries.model.as_ref().is_none_or(|model| *model == self.ledger.state().model);
        let rides = match summaries.request {
            SummaryRequest::Auto | SummaryRequest::ProviderNative => {
                was_cached(self.ledger.path(), &self.ledger.state().model)
            }
            SummaryRequest::CachedPrefix => true,
            SummaryRequest::Quoted => false,
        };
        (own && rides).then(|| self.next_request(context))
    }

    /// Returns the conversation's own request, if its provider is to compact it.
    fn native(&self, context: &Context) -> Option<ModelRequest> {
        let is_chosen = self.ledger.deployment.summaries.request == SummaryRequest::ProviderNative;
        is_chosen.then(|| self.next_request(context))
    }

    fn next_request(&self, context: &Context) -> ModelRequest {
        ModelRequest {
            model: self.ledger.state().model.clone(),
            envelope: self.prompt.envelope(self.ledger, context, self.prompt.estimate(context), 0),
            purpose: Purpose::Turn,
            compared_with: None,
            compacts: None,
        }
    }

    /// Returns how this session's summaries are written.
    pub(crate) fn writing(&self) -> Writing {
        Writing {
            kind: self.prompt.manager().options().summary_kind,
            ..self.ledger.deployment.summaries.writing.clone()
        }
    }
}

/// Returns the compaction that determines what the model sees of this path.
pub(crate) fn compaction_in(path: &[Arc<Node>]) -> Option<(&EntryId, &Compaction)> {
    path.iter().rev().find_map(|node| node.compaction().map(|compaction| (node.id(), compaction)))
}

/// Returns the files noted by the newest compaction of a path and by the branch summaries since.
fn noted_in(path: &[Arc<Node>]) -> CompactionDetails {
    let mut noted = CompactionDetails::default();
    for node in path.iter().rev() {
        let is_compaction = matches!(node.entry.data, EntryData::Compaction(_));
        if is_compaction && node.undone {
            continue;
        }
        if let Some(details) = node.entry.data.details() {
            noted.read_files.extend_from_slice(&details.read_files);
            noted.modified_files.extend_from_slice(&details.modified_files);
        }
        // It includes the files that earlier compactions noted.
        if is_compaction {
            break;
        }
    }
    noted
}

/// Returns true if the provider reported cached tokens for an answer of this model on this path.
fn was_cached(path: &[Arc<Node>], model: &str) -> bool {
    path.iter().rev().filter_map(|node| node.entry.message()).any(|message| {
        let cached = message
            .usage
            .as_ref()
            .is_some_and(|usage| usage.source == UsageSource::Reported && usage.cached_tokens > 0);
        cached && message.model.as_deref() == Some(model)
    })
}

/// Returns true if this model has reasoned in an answer on this path.
fn reasons(path: &[Arc<Node>], model: &str) -> bool {
    path.iter().rev().filter_map(|node| node.entry.message()).any(|message| {
        let counted = message.usage.as_ref().and_then(|usage| usage.reasoning_tokens).is_some_and(|tokens| tokens > 0);
        let shown = || message.content.iter().any(|part| matches!(part, Part::Reasoning { .. }));
        message.model.as_deref() == Some(model) && (counted || shown())
    })
}
