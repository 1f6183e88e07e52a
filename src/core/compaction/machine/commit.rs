//! Committing a compaction: one appended entry, if everything that the compaction has read is still in effect. The
//! entry replaces exactly what was read and keeps everything appended since.

use crate::{
    agent_loop::{ledger::Ledger, prompt::Prompt, records::appended},
    compaction::machine::{
        Compactor,
        fail::{unused, void},
        plan::{Planner, compaction_in},
        work::Ready,
    },
};
use crate::{
    compaction::{Basis, Outcome},
    context::{RequestCount, build::remaining, node::Node},
    session::{SessionTree, carry::carried_patch},
};
use reseed_protocol::{
    Entry, EntryData, EntryId, ErrorBody, ErrorCode, Role,
    compaction::{BreakdownChange, Compaction, ContextCompacted},
    event::Event,
};
use std::sync::Arc;

impl Compactor {
    /// Appends the compaction's single entry and ends this loop.
    ///
    /// # Errors
    /// The reason for the failure; the clients were notified.
    pub(crate) fn commit(&mut self, ledger: &mut Ledger, prompt: &Prompt, ready: Ready) -> Result<(), ErrorBody> {
        if !still_holds(ledger.path(), &ready.basis, &ready.outcome) {
            return Err(self.unusable(ledger, &ready, void()));
        }
        let mut ready = ready;
        keep_what_came(ledger.path(), &ready.basis, &mut ready.outcome);
        // It is counted now, because instructions, tools, settings and messages may have changed since the job started.
        let before = prompt.count_now(ledger);
        let entry_id: EntryId = ledger.new_id();
        let (entry, after) =
            Planner { ledger, prompt }.would_be(&ready.basis, &ready.outcome, &entry_id, before.tokens);
        let is_enough = Planner { ledger, prompt }.saves_enough(&ready.basis, before.tokens, after.tokens);
        if after.tokens >= before.tokens && !(ready.basis.is_rebuild && is_enough) {
            let message = format!(
                "the summary would not be smaller than what it replaces: {} tokens before, {} after",
                before.tokens, after.tokens
            );
            return Err(self.unusable(ledger, &ready, ErrorBody::new(ErrorCode::NothingToCompact, message)));
        }
        let Ready { basis, outcome, background, waited_since } = ready;
        self.carried.breaker.gained(is_enough, after.tokens, ledger.window_tokens());
        if is_enough {
            // Below this count another compaction could not save enough, even with a threshold of 0, which every
            // request exceeds.
            let least_gain = crate::compaction::strategy::share(after.tokens, prompt.manager().options().min_gain);
            self.carried.breaker.settle(after.tokens.saturating_add(least_gain));
        }
        let turn_id = ledger.turn_id();
        #[expect(clippy::cast_precision_loss, reason = "a ratio of token counts, shown to one decimal")]
        let reduction_percent = before.tokens.saturating_sub(after.tokens) as f64 * 100.0 / before.tokens as f64;
        let Outcome { summary, form, rung, failed, first_kept, kept, cleared, usage, .. } = *outcome;
        let compacted = ContextCompacted {
            tokens_before: before.tokens,
            tokens_after: after.tokens,
            reduction_percent: (reduction_percent * 10.0).round() / 10.0,
            strategy: basis.order.strategy.unwrap_or(prompt.manager().name()).to_owned(),
            job_id: basis.order.job_id.clone(),
            command_id: basis.order.command_id.clone(),
            entry_id,
            first_kept_entry_id: first_kept,
            kept_entry_ids: kept,
            cleared_entry_ids: cleared,
            trigger: basis.order.trigger,
            background,
            rung,
            failed_rungs: failed,
            summary,
            form,
            generation: ledger.generation + 1,
            duration_ms: basis.duration_ms(ledger.now),
            paused_ms: self.paused_ms(ledger.now, waited_since),
            summary_usage: usage,
            cached_tokens_lost: before.cached_tokens,
            retained: None,
            compact_at_tokens: prompt.manager().compact_at_tokens(ledger.window_tokens()),
            breakdown: BreakdownChange { before: before.breakdown, after: after.breakdown },
        };
        let command_id = basis.order.command_id.clone();
        let passed_over = ledger.session.held.clone().filter(|held| held.job_id != basis.order.job_id);
        let events = vec![appended(entry, turn_id, command_id), Event::ContextCompacted(Box::new(compacted))];
        ledger.append(events, Vec::new());
        if let Some(held) = passed_over {
            self.tell_dropped(ledger, &held, unused("another one was committed"));
        }
        ledger.hand_over();
        Ok(())
    }
}

impl Planner<'_> {
    /// Returns the compaction's entry and the token count of the pending request with it.
    pub(crate) fn would_be(
        &self,
        basis: &Basis,
        outcome: &Outcome,
        entry_id: &EntryId,
        tokens_before: u64,
    ) -> (Entry, RequestCount) {
        let mut compaction = Compaction {
            summary: outcome.summary.clone(),
            segments: outcome.segments.clone(),
            left_out: outcome.left_out,
            first_kept_entry_id: outcome.first_kept.clone(),
            kept_entry_ids: outcome.kept.clone(),
            cleared_entry_ids: outcome.cleared.clone(),
            tokens_before: self.tokens_before(tokens_before),
            tokens_after: None,
            trigger: Some(basis.order.trigger),
            duration_ms: Some(basis.duration_ms(self.ledger.now)),
            details: Some(outcome.details.clone()),
            carried_patch: Vec::new(),
            form: outcome.form,
            constraints: Vec::new(),
            hook: outcome.hook.clone(),
            hook_details: outcome.hook_details.clone(),
            rung: Some(outcome.rung),
            failed_rungs: outcome.failed.clone(),
            retained: None,
            summary_usage: outcome.usage.clone(),
            history_tools: self.prompt.searches_once_compacted(self.ledger),
            native: outcome.native.as_deref().cloned(),
        };
        let entry = |compaction| self.ledger.entry(entry_id.clone(), EntryData::Compaction(compaction));
        let mut tree = self.with_compaction(entry(compaction.clone()), outcome);
        compaction.carried_patch = carried_patch(&self.ledger.session.tree, &tree, &compaction);
        if !compaction.carried_patch.is_empty() {
            tree = self.with_compaction(entry(compaction.clone()), outcome);
        }
        let after = self.prompt.count_compacted(self.ledger, &tree.context());
        compaction.tokens_after = Some(after.tokens);
        (entry(compaction), after)
    }

    /// Returns the token count of the pending request if this outcome were committed now.
    pub(crate) fn would_leave(&self, basis: &Basis, outcome: &Outcome, tokens_before: u64) -> u64 {
        let entry_id: EntryId = "unwritten".parse().expect("a word is an id");
        self.would_be(basis, outcome, &entry_id, tokens_before).1.tokens
    }

    /// Returns the tree with this outcome's compaction applied.
    fn with_compaction(&self, entry: Entry, outcome: &Outcome) -> SessionTree {
        let mut tree = self.ledger.session.tree.clone();
        tree.append(Arc::new(Node::counted(entry, self.ledger.counter())));
        tree.clear(&outcome.cleared, self.ledger.counter());
        tree
    }

    /// Returns the entry's `tokens_before`.
    fn tokens_before(&self, counted: u64) -> u64 {
        let remaining = remaining(self.ledger.path());
        self.ledger.counter().tokens_before(counted, &mut remaining.into_iter().map(|(_, node)| &node.entry))
    }
}

/// Returns true if the entries that a job has read still precede everything appended since.
pub(crate) fn still_holds(path: &[Arc<Node>], basis: &Basis, outcome: &Outcome) -> bool {
    let has = |id: &EntryId| path.iter().any(|node| node.id() == id);
    compaction_in(path).map(|(id, _)| id) == basis.base.as_ref()
        && outcome.first_kept.iter().chain(&outcome.kept).chain(&basis.last_read).all(has)
        && !parts_call_and_result(path, basis, outcome)
}

/// Returns true if calls that were open when the job read them, and that it removes, got results since. The summary
/// does not contain these results, so the model would never see them.
fn parts_call_and_result(path: &[Arc<Node>], basis: &Basis, outcome: &Outcome) -> bool {
    let place = |id: &EntryId| path.iter().position(|node| node.id() == id);
    let Some(read) = basis.last_read.as_ref().and_then(place) else { return false };
    let said = |node: &Arc<Node>, role: Role| node.message.as_ref().is_some_and(|message| message.role == role);
    let since = path[read + 1..].iter().take_while(|node| !said(node, Role::Assistant));
    if !since.into_iter().any(|node| said(node, Role::Tool)) {
        return false;
    }
    let Some(calls) = path[..=read].iter().rposition(|node| said(node, Role::Assistant)) else { return false };
    let in_tail = outcome.first_kept.as_ref().and_then(place).is_some_and(|first| first <= calls);
    !in_tail && !path[calls].pinned && !outcome.kept.contains(path[calls].id())
}

/// Keeps the entries that were appended or pinned while the job was running.
pub(crate) fn keep_what_came(path: &[Arc<Node>], basis: &Basis, outcome: &mut Outcome) {
    if outcome.first_kept.is_none() {
        // None of the entries that were read stays in the tail, so the tail starts with what was appended since.
        let read = basis.last_read.as_ref().and_then(|last| path.iter().rposition(|node| node.id() == last));
        outcome.first_kept = read.and_then(|at| path.get(at + 1)).map(|node| node.id().clone());
    }
    let first = outcome.first_kept.as_ref();
    let tail = first.and_then(|first| path.iter().position(|node| node.id() == first)).unwrap_or(path.len());
    let stays = |node: &&Arc<Node>| node.message.is_some() && (node.pinned || outcome.kept.contains(node.id()));
    outcome.kept = path[..tail].iter().filter(stays).map(|node| node.id().clone()).collect();
}
