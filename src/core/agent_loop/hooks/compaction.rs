//! Hooks before a compaction: not at all, another summary, another model.

use super::{
    super::{
        AgentLoop, Stage,
        compact::{Running, Use},
    },
    Subject,
};
use crate::core::{
    context::{compaction::Given, counter::Counter, summary::INSTRUCTIONS_BYTES_MAX},
    hook::HookFault,
};
use reseed_protocol::{
    ErrorBody, ErrorCode, Timestamp,
    hook::{CompactionPreparation, CompactionSettings, HookAnswer, HookEvent, HookPoint},
};

/// Bytes that a hook's summary, and what it keeps with it, may have.
const SUMMARY_BYTES_MAX: usize = 256 * 1024;

/// What hooks want of a compaction so far.
#[derive(Debug, Default)]
pub(in crate::core::agent_loop) struct Decision {
    /// The hook that does not want it.
    cancelled_by: Option<String>,
    given: Given,
    model: Option<String>,
    instructions: Option<String>,
}

impl Decision {
    pub(super) fn take(&mut self, hook: &str, answer: HookAnswer) -> Result<bool, HookFault> {
        if answer.cancel == Some(true) {
            self.cancelled_by = Some(hook.to_owned());
            return Ok(true);
        }
        let HookAnswer { summary, details, model, instructions, .. } = answer;
        let changed = summary.is_some() || details.is_some() || model.is_some() || instructions.is_some();
        let by = || hook.to_owned();
        self.given.summary = summary.map(|summary| (by(), summary)).or(self.given.summary.take());
        self.given.details = details.map(|details| (by(), details)).or(self.given.details.take());
        self.given.model_by = model.as_ref().map(|_| by()).or(self.given.model_by.take());
        self.model = model.or(self.model.take());
        self.instructions = instructions.or(self.instructions.take());
        Ok(changed)
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled_by.is_some()
    }
}

/// Whether a hook's summary, with what comes with it, has a form and a size that can be kept.
pub(super) fn check_summary(
    summary: Option<&str>,
    details: Option<&serde_json::Value>,
    instructions: Option<&str>,
) -> Result<(), HookFault> {
    if summary.is_some_and(|summary| summary.trim().is_empty()) {
        return Err(HookFault::failed("its summary is blank; leave the field out to have one made"));
    }
    let sizes = [
        ("summary", summary.map_or(0, str::len), SUMMARY_BYTES_MAX),
        ("details", details.map_or(0, |details| details.to_string().len()), SUMMARY_BYTES_MAX),
        ("instructions", instructions.map_or(0, str::len), INSTRUCTIONS_BYTES_MAX),
    ];
    match sizes.into_iter().find(|(_, bytes, max)| bytes > max) {
        Some((what, bytes, max)) => {
            Err(HookFault::failed(format!("its `{what}` has {bytes} bytes, it may have {max}")))
        }
        None => Ok(()),
    }
}

impl AgentLoop {
    /// Asks the hooks before a compaction that is staged. Hands it back where none is waited for.
    pub(in crate::core::agent_loop) fn before_compaction(
        &mut self,
        now: Timestamp,
        running: Running,
    ) -> Option<Running> {
        if !self.has_hooks(HookPoint::BeforeCompact, None) {
            return Some(running);
        }
        if !running.background && !matches!(self.stage, Stage::Done) {
            self.stage = Stage::Compacting;
        }
        self.running = Some(running);
        let waits = self.all_hooks().any(|(_, spec)| spec.point == HookPoint::BeforeCompact && !spec.observe);
        if waits {
            self.ask_hooks(now, Subject::Compaction(Decision::default()));
            return None;
        }
        self.tell_hooks(now, &Subject::Compaction(Decision::default()));
        self.running.take()
    }

    pub(super) fn compaction_event(&self, decision: &Decision) -> HookEvent {
        let window_tokens = self.window_tokens();
        let mut preparation = CompactionPreparation {
            job_id: "none".parse().expect("a word is an id"),
            trigger: reseed_protocol::event::CompactionTrigger::Manual,
            background: false,
            preview: false,
            custom_instructions: None,
            messages: Vec::new(),
            turn_prefix: Vec::new(),
            previous_summary: None,
            summary: decision.given.summary.as_ref().map(|(_, summary)| summary.clone()),
            files: reseed_protocol::entry::CompactionDetails::default(),
            tokens_before: self.count(&self.context()).tokens,
            first_kept_entry_id: None,
            kept_entry_ids: Vec::new(),
            settings: CompactionSettings {
                strategy: self.manager.name().to_owned(),
                model: decision.model.clone().unwrap_or_else(|| self.summariser().0),
                window_tokens,
                reserve_tokens: self.manager.reserved_tokens(window_tokens),
                keep_recent_tokens: self.manager.keep_tokens(window_tokens),
                target_tokens: self.manager.target_tokens(window_tokens),
            },
            branch_entries: self.session.tree.path().iter().map(|node| node.entry.clone()).collect(),
        };
        if let Some(running) = &self.running {
            let order = &running.job.order;
            preparation.job_id = order.job_id.clone();
            preparation.trigger = order.trigger;
            preparation.background = running.background;
            preparation.preview = matches!(running.use_, Use::Preview(_));
            preparation.custom_instructions = decision.instructions.clone().or(order.instructions.clone());
            if let Some(strategy) = order.strategy {
                strategy.clone_into(&mut preparation.settings.strategy);
            }
            running.job.describe(&mut preparation);
        }
        HookEvent::BeforeCompact(Box::new(preparation))
    }

    pub(super) fn take_decision(
        &self,
        decision: &mut Decision,
        hook: &str,
        answer: HookAnswer,
    ) -> Result<bool, HookFault> {
        if let Some(model) = &answer.model
            && !self.deployment.windows.knows(model)
        {
            let message = "the window of the model that it names is not known; set CONTEXT_WINDOW on the server";
            return Err(HookFault::failed(message));
        }
        check_summary(answer.summary.as_deref(), answer.details.as_ref(), answer.instructions.as_deref())?;
        if let Some(message) = answer.instructions.as_deref().and_then(|text| self.too_long(text)) {
            return Err(HookFault::failed(format!("its {message}")));
        }
        decision.take(hook, answer)
    }

    /// The hooks before a compaction were asked: it begins as they wish.
    pub(super) fn compaction_decided(&mut self, now: Timestamp, decision: Decision) {
        let Some(mut running) = self.running.take() else { return };
        let advanced = if let Some(hook) = decision.cancelled_by {
            let tokens = self.count(&self.context()).tokens;
            self.guards.declined(tokens);
            let message = format!("the hook `{hook}` is against the compaction; the context is as it was");
            self.fail(running, ErrorBody::new(ErrorCode::CompactionCancelled, message))
        } else {
            if let Some(instructions) = decision.instructions {
                running.job.focus(instructions);
            }
            if let Some(model) = decision.model.filter(|model| model != running.job.model()) {
                let own = model == self.session.state.model;
                let counter = if own { self.counter } else { Counter::chosen(self.deployment.estimator, &model) };
                let window_tokens = self.deployment.windows.tokens(&model);
                let window_tokens = if own { self.in_estimates(self.window_tokens()) } else { window_tokens };
                running.job.ask_instead(model, window_tokens, counter);
            }
            running.job.give(decision.given);
            self.advance(now, running)
        };
        self.after(now, advanced);
    }

    /// The compaction at work ends: its hooks are asked no more.
    pub(in crate::core::agent_loop) fn cancel_compaction_hooks(&mut self) {
        let _ = self.cancel_hooks(|subject| matches!(subject, Subject::Compaction(_)));
    }
}
