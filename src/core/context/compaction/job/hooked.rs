//! What hooks see of a job before it begins, and what they give it.

use super::{At, Job, Outcome, Step};
use crate::core::context::{counter::Counter, cut::Cut, serialize, summary};
use reseed_protocol::{context::ContextMessage, event::CompactionRung, hook::CompactionPreparation};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What hooks give a compaction, each with the hook that gave it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Given {
    /// The summary, in place of one that is made.
    pub summary: Option<(String, String)>,
    /// What it takes out and what it keeps, where that is not what was planned.
    pub cut: Option<Cut>,
    /// What holds for whatever summary is made.
    pub wishes: Wishes,
}

/// What hooks wish of a summary that they do not give themselves, each with the hook that wished it. It is kept with a
/// compaction that is held, so that they need not be asked again where that one is made again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Wishes {
    /// What is kept with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<(String, Value)>,
    /// The model that makes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<(String, String)>,
    /// What it should dwell on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// That takes the place of the usual prompt.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub replaces: bool,
}

impl Wishes {
    /// Returns true if nothing is wished.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Job {
    /// Fills in what would be summarised and what kept, by the first step that summarises, or else by the first that
    /// takes anything out.
    pub fn describe(&self, preparation: &mut CompactionPreparation) {
        let cut = |step: &Step| match step {
            Step::Summarise(cut) => Some((true, cut.clone())),
            Step::Truncate(cut) => Some((false, cut.clone())),
            Step::Clear { .. } => None,
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

    /// What the summary should dwell on, beside or in place of what was asked for.
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

    /// Has another model summarise, whose window is so large and whose texts are counted so.
    pub fn ask_instead(&mut self, model: String, window_tokens: u64, counter: Counter) {
        self.task.model = model;
        self.task.window_tokens = window_tokens;
        self.task.counter = counter;
        // Another model has nothing of the conversation in its cache.
        self.conversation = None;
    }

    /// How many messages of the context were read.
    #[must_use]
    pub fn messages_read(&self) -> usize {
        self.messages.len()
    }

    /// Takes what hooks give. A summary is offered by the first step that summarises, or else by the first that leaves
    /// anything out; where it gains nothing, that step is taken as it would have been.
    pub fn give(&mut self, given: Given) {
        if given.summary.is_some() && self.steps.iter().any(|step| matches!(step, Step::Summarise(_))) {
            self.steps.retain(|step| !matches!(step, Step::Clear { .. }));
        }
        self.given = given;
    }

    /// The hook's summary of what the cut of this step takes out, if there is one that was not offered yet; the step is
    /// then the next one again.
    pub(super) fn given_summary(&mut self, step: &Step) -> Option<Outcome> {
        let planned = match step {
            Step::Summarise(cut) => cut,
            // A later step summarises.
            Step::Truncate(_) if self.steps.iter().any(|step| matches!(step, Step::Summarise(_))) => return None,
            Step::Truncate(cut) => cut,
            Step::Clear { .. } => return None,
        };
        let (hook, summary) = self.given.summary.take()?;
        let own = self.given.cut.take();
        let cut = own.as_ref().unwrap_or(planned);
        self.steps.push_front(step.clone());
        self.at = At::Offered(CompactionRung::HookSummary, None);
        let outcome = Outcome {
            summary: summary.trim().to_owned(),
            details: self.details(cut),
            constraints: self.with_said(cut, summary::stated),
            hook_details: self.given.wishes.details.as_ref().map(|(_, details)| details.clone()),
            ..self.outcome(cut, CompactionRung::HookSummary)
        };
        // What it keeps with its summary is kept with no other.
        self.given.wishes.details.take_if(|(by, _)| *by == hook);
        Some(Outcome { hook: Some(hook), ..outcome })
    }

    /// The hook to which a summary is owed that the hooks did not give, and what is kept with it.
    pub(super) fn owed(&self) -> (Option<String>, Option<Value>) {
        let Wishes { details, model, .. } = self.given.wishes.clone();
        let by = model.map(|(by, _)| by).or(details.as_ref().map(|(by, _)| by.clone()));
        (by, details.map(|(_, details)| details))
    }
}
