//! The description of a job for hooks before it starts, and the parts that they supply.

use super::{FallbackStep, HookRequests, HookSupply, Job, Outcome, State};
use crate::{
    compaction::{cut::Cut, serialize},
    context::counter::Counter,
};
use reseed_protocol::{compaction::CompactionRung, context::ContextMessage, hooks::CompactionPreparation};
use serde_json::Value;

impl Job {
    /// Fills in what would be summarised and kept, according to the first step that summarises, or otherwise the first
    /// that removes anything.
    pub fn describe(&self, preparation: &mut CompactionPreparation) {
        let cut = |step: &FallbackStep| match step {
            FallbackStep::Summarise(cut) => Some((true, cut.clone())),
            FallbackStep::Truncate(cut) => Some((false, cut.clone())),
            FallbackStep::Clear { .. } => None,
        };
        let cuts: Vec<(bool, Cut)> = self.steps.iter().filter_map(cut).collect();
        let Some((_, cut)) = cuts.iter().find(|(summarises, _)| *summarises).or(cuts.first()) else { return };
        let shown = |at: &usize| {
            let (entry_id, message) = &self.messages[*at];
            ContextMessage { entry_id: entry_id.clone(), message: message.clone() }
        };
        let prefix = cut.turn_prefix.unwrap_or(usize::MAX);
        let goes = || cut.summarised.iter();
        preparation.messages = goes().filter(|at| **at < prefix).map(shown).collect();
        preparation.turn_prefix = goes().filter(|at| **at >= prefix).map(shown).collect();
        let said = preparation.messages.iter().chain(&preparation.turn_prefix);
        preparation.conversation =
            said.flat_map(|said| serialize::blocks(&said.message)).collect::<Vec<_>>().join("\n\n");
        preparation.previous_summary = self.previous(cut);
        preparation.files = self.details(cut);
        preparation.first_kept_entry_id.clone_from(&cut.first_kept);
        preparation.kept_entry_ids.clone_from(&cut.kept);
    }

    /// Sets the focus of the summary, in addition to or instead of the requested one.
    pub fn focus(&mut self, instructions: String, replaces: bool) {
        if replaces {
            (self.order.free_form, self.task.is_clients, self.task.instructions) = (true, true, None);
        }
        if self.order.free_form {
            self.task.prompt = Some(instructions.as_str().into());
        } else {
            self.task.instructions = Some(instructions.clone());
        }
        self.order.instructions = Some(instructions);
    }

    /// Selects another model as the summariser, with its window and counter.
    pub fn ask_instead(&mut self, model: String, window_tokens: u64, counter: Counter) {
        self.task.model = model;
        self.task.window_tokens = window_tokens;
        self.task.counter = counter;
        // Another model has none of the conversation in its cache, and its own compaction would be of no use.
        (self.conversation, self.native) = (None, None);
    }

    /// Returns the number of messages that were read.
    #[must_use]
    pub fn messages_read(&self) -> usize {
        self.messages.len()
    }

    /// Takes the parts that hooks supply. A summary is offered at the first step that summarises, or otherwise at the
    /// first that removes anything. If it gains nothing, that step runs as planned.
    pub fn give(&mut self, given: HookSupply) {
        if given.summary.is_some() && self.steps.iter().any(|step| matches!(step, FallbackStep::Summarise(_))) {
            self.steps.retain(|step| !matches!(step, FallbackStep::Clear { .. }));
        }
        self.given = given;
    }

    /// Returns the hook's summary for this step's cut, unless it was already offered; the step is then repeated.
    pub(super) fn given_summary(&mut self, step: &FallbackStep) -> Option<Outcome> {
        let planned = match step {
            FallbackStep::Summarise(cut) => cut,
            // A later step summarises.
            FallbackStep::Truncate(_) if self.steps.iter().any(|step| matches!(step, FallbackStep::Summarise(_))) => {
                return None;
            }
            FallbackStep::Truncate(cut) => cut,
            FallbackStep::Clear { .. } => return None,
        };
        let (hook, summary) = self.given.summary.take()?;
        let own = self.given.cut.take();
        let cut = own.as_ref().unwrap_or(planned);
        self.steps.push_front(step.clone());
        self.at = State::Offered(CompactionRung::HookSummary, None);
        let outcome = Outcome {
            summary: summary.trim().to_owned(),
            details: self.details(cut),
            hook_details: self.given.wishes.details.as_ref().map(|(_, details)| details.clone()),
            ..self.outcome(cut, CompactionRung::HookSummary)
        };
        // Details that the hook stores with its own summary are not stored with another.
        self.given.wishes.details.take_if(|(by, _)| *by == hook);
        Some(Outcome { hook: Some(hook), ..outcome })
    }

    /// Returns the hook to credit for a summary that a hook influenced but did not supply, and the details to store
    /// with it.
    pub(super) fn owed(&self) -> (Option<String>, Option<Value>) {
        let HookRequests { details, model, .. } = self.given.wishes.clone();
        let by = model.map(|(by, _)| by).or(details.as_ref().map(|(by, _)| by.clone()));
        (by, details.map(|(_, details)| details))
    }
}
