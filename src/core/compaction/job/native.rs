//! The provider's own compaction: its request, and what becomes of its answer.
//!
//! The provider gets the conversation's own request up to the tail that is kept, so that it can read most of it from
//! its cache. OpenAI's request has no tools, so its cache serves it only in sessions without them. The provider returns
//! opaque items that cover all of it. A readable text goes with them: the provider's, or else a summary that is
//! requested as usual. It covers the same as the items, so it replaces earlier segments.
//!
//! Invariant: items without an accepted text are never offered. The summary then follows as if they had not been
//! requested.

use super::{Draft, FallbackStep, Job, Next, State, SummaryAttempt};
use crate::{
    compaction::{
        ask::{REASONED_TOKENS_MAX, Why, readable, summary_tokens_max},
        cut::Cut,
        serialize::whole_blocks,
    },
    context::{counter::Counter, window::limit_answer},
    model::{Answer, Compacts, ModelRequest, Purpose},
};
use reseed_protocol::{NativeCompaction, Part, compaction::CompactionRung};
use serde_json::Value;

/// A compaction that the provider is making.
#[derive(Debug, Clone)]
pub(super) struct Native {
    /// The cut that it replaces.
    pub(super) cut: Cut,
    /// The model, which alone can read the result.
    pub(super) model: String,
}

impl Job {
    /// Returns true if the provider's own compaction was requested last.
    pub fn asks_natively(&self) -> bool {
        matches!(self.at, State::Native(_))
    }

    /// Returns the model that was asked last.
    pub(super) fn asked_model(&self) -> &str {
        match &self.at {
            State::Native(native) => &native.model,
            _ => &self.task.model,
        }
    }

    /// Returns the request for the provider's own compaction of what this cut removes; `None` if it is not wanted, or
    /// was requested before.
    pub(super) fn compact_natively(&mut self, cut: &Cut) -> Option<Box<ModelRequest>> {
        let mut request = self.native.take()?;
        if !self.asks_model || self.is_rebuild() || cut.summarised.is_empty() {
            return None;
        }
        let counter = self.task.counter;
        let kept_messages = self.messages.len() - self.tail_of(cut);
        let (messages, meta) = (&mut request.envelope.messages, &request.envelope.meta);
        let tail = messages.cached.len().checked_sub(kept_messages)?;
        let kept_tokens = messages.cached.drain(tail..).map(|kept| counter.message(&kept.message).total()).sum();
        let said = [self.task.prompt.as_deref(), self.task.instructions.as_deref()].into_iter().flatten();
        let instructions: Vec<&str> = said.collect();
        let instructions = (!instructions.is_empty()).then(|| instructions.join("\n\n"));
        messages.uncached.clear();
        let (tokens, window_tokens) = (meta.tokens.saturating_sub(kept_tokens), meta.window_tokens);
        let most = 2 * summary_tokens_max(window_tokens);
        let most = if self.task.reasons { most.max(REASONED_TOKENS_MAX) } else { most };
        (request.purpose, request.compacts) = (Purpose::Summary, Some(Compacts { instructions }));
        request.envelope.options.max_output_tokens = Some(most);
        request.envelope.meta.tokens = tokens;
        limit_answer(&mut request.envelope.options, tokens, window_tokens - window_tokens / 20);
        (!request.envelope.messages.cached.is_empty() && request.is_paired()).then(|| Box::new(request))
    }

    /// Takes the provider's answer to that request. Returns `false` if another one was sent.
    pub(super) fn take_native(&mut self, answer: &Answer) -> bool {
        if !matches!(self.at, State::Native(_)) {
            return false;
        }
        if let State::Native(Native { cut, model }) = std::mem::replace(&mut self.at, State::Between) {
            match self.made_natively(cut.clone(), model, answer) {
                Ok(state) => self.at = state,
                Err(why) => self.pass_over(cut, why),
            }
        }
        true
    }

    fn made_natively(&mut self, cut: Cut, model: String, answer: &Answer) -> Result<State, Why> {
        let made = answer.payload.as_ref().and_then(|payload| payload.compaction.as_deref()).ok_or("malformed")?;
        let written =
            answer.usage.map(|usage| usage.output_tokens + usage.further.map_or(0, |pass| pass.output_tokens));
        let counter = self.task.counter;
        let tokens = written.filter(|tokens| *tokens > 0).map(|tokens| tokens + kept_tokens(&made.items, counter));
        self.usual_room = Some(self.room);
        self.room = self.room.rewritten();
        self.task.summary_tokens_max = self.room.new_tokens;
        let mut draft = self.draft(cut);
        draft.native = Some(Box::new(NativeCompaction { model, tokens, ..made.clone() }));
        let is_blank = |part: &Part| matches!(part, Part::Text { text } if text.trim().is_empty());
        if answer.parts.iter().all(is_blank) {
            return Ok(self.write(draft));
        }
        let messages = self.messages_of(&draft.cut);
        let blocks: Vec<String> = messages.iter().flat_map(|message| whole_blocks(message)).collect();
        let read: Vec<&str> = blocks.iter().map(String::as_str).collect();
        let (text, form) = readable(answer, &self.task.delimiter, &read, !self.task.is_clients)?;
        draft.set_text(text, form);
        self.tried = Some(SummaryAttempt::Summarised);
        Ok(State::ByRule(draft))
    }

    /// Continues with the usual summary if the provider's own compaction was requested last, and failed for this
    /// reason. Returns `false` if another request was sent.
    pub fn native_failed(&mut self, why: &str) -> bool {
        if !matches!(self.at, State::Native(_)) {
            return false;
        }
        if let State::Native(Native { cut, .. }) = std::mem::replace(&mut self.at, State::Between) {
            self.pass_over(cut, why);
        }
        true
    }

    fn pass_over(&mut self, cut: Cut, why: &str) {
        self.note_failed(CompactionRung::ProviderNative, why);
        self.restore_room();
        self.steps.push_front(FallbackStep::Summarise(cut));
    }

    /// Offers the provider's own form of a summary. If it is refused, the usual summary follows.
    pub(super) fn offer_native(&mut self, draft: Draft) -> Next {
        let cut = draft.cut.clone();
        let outcome = self.drafted(draft);
        self.restore_room();
        self.steps.push_front(FallbackStep::Summarise(cut));
        self.at = State::Offered(CompactionRung::ProviderNative, None);
        Next::Offer(Box::new(outcome))
    }

    /// Returns the draft of a summary without a text as it is written without the provider's own form.
    pub(super) fn without_native(&mut self, draft: Box<Draft>, why: &str) -> Box<Draft> {
        if draft.native.is_none() {
            return draft;
        }
        self.note_failed(CompactionRung::ProviderNative, why);
        self.restore_room();
        self.draft(draft.cut)
    }

    fn restore_room(&mut self) {
        if let Some(room) = self.usual_room.take() {
            self.room = room;
            self.task.summary_tokens_max = room.new_tokens;
        }
    }
}

/// Estimates the tokens of the messages that a provider keeps beside its opaque item.
fn kept_tokens(items: &str, counter: Counter) -> u64 {
    let items: Vec<Value> = serde_json::from_str(items).unwrap_or_default();
    let kept = items.iter().filter(|item| item["type"] != "compaction");
    let texts = kept.flat_map(|item| match &item["content"] {
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        content => content.as_str().into_iter().collect::<Vec<_>>(),
    });
    texts.map(|text| counter.text(text)).sum()
}
