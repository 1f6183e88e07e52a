//! The promises that every effect of the loop must keep.

use super::World;
use crate::{
    agent_loop::{Append, CallModel},
    model::Purpose,
};
use reseed_protocol::{
    CallId, CommandId, EntryData, EntryId, Message, Part, Role, context::ContextMessage, event::Event, reply::Reply,
    turn::QueueRemovalReason,
};
use std::collections::{BTreeMap, HashSet};

impl World {
    /// Checks that the loop in memory would send what the log says.
    pub(super) fn check_seen(&self) {
        let live = crate::context::build_context(self.agent.ledger.session.tree.path()).to_messages();
        let read = crate::context::build_context(self.read_back().tree.path()).to_messages();
        assert_eq!(live, read, "seed {}: what is in memory differs from what the log says", self.seed);
        let read = self.read_back().held;
        assert_eq!(
            self.agent.ledger.session.held, read,
            "seed {}: what is held differs from what the log says",
            self.seed
        );
        if let Some(held) = read {
            let context = crate::context::build_context(self.agent.ledger.session.tree.path());
            assert!(held.still_reads(&context), "seed {}: what is held is of another history", self.seed);
        }
    }

    /// Checks that after this compaction the model still sees, verbatim, the pinned messages that it saw before and the
    /// user's last message.
    fn check_kept(&self, compaction: &EntryId) {
        let state = self.folded();
        let before = self.entries[compaction].parent_id.clone();
        let seen = |leaf: Option<&EntryId>| -> Vec<(EntryId, Message)> {
            let context = crate::context::build_context(self.path_in(&state, leaf).path());
            let seen = context.messages.iter();
            seen.filter_map(|seen| Some((seen.entry_id.clone()?, Message::clone(&seen.message)))).collect()
        };
        let (before, after) = (seen(before.as_ref()), seen(Some(compaction)));
        let said =
            |(id, message): &&(EntryId, Message)| message.role == Role::User && self.entries[id].message().is_some();
        let pinned = |(id, _): &&(EntryId, Message)| state.pins.iter().any(|pin| pin.entry_id == *id);
        for kept in before.iter().rev().find(said).into_iter().chain(before.iter().filter(pinned)) {
            assert!(after.contains(kept), "seed {}: {} is not kept word for word", self.seed, kept.0);
        }
    }

    pub(super) fn append(&mut self, append: Append) {
        let mut compacted_now = None;
        // Inputs that left the queue, by the entry that must hold them; that entry is in the same append.
        let mut delivered: BTreeMap<EntryId, CommandId> = BTreeMap::new();
        for event in append.events {
            match &event {
                Event::EntryAppended(appended) => {
                    let entry = &appended.entry;
                    self.overlaid |= matches!(entry.data, EntryData::Ephemeral(_));
                    let known = entry.parent_id.as_ref().is_none_or(|parent| self.entries.contains_key(parent));
                    assert!(known, "seed {}: entry {} hangs from nothing", self.seed, entry.entry_id);
                    let before = self.entries.insert(entry.entry_id.clone(), entry.clone());
                    assert!(before.is_none(), "seed {}: entry id used twice", self.seed);
                    if let Some(id) = &appended.command_id
                        && crate::session::input::is_message(entry)
                        && entry.message().is_none_or(|message| message.role == Role::User)
                    {
                        if let Some(queued) = delivered.remove(&entry.entry_id) {
                            assert_eq!(queued, *id, "seed {}: an entry of another queued input", self.seed);
                        }
                        assert!(!self.waiting.contains(id), "seed {}: {id} is said and still waits", self.seed);
                        *self.said.entry(id.clone()).or_default() += 1;
                    }
                }
                Event::TurnStarted(_) => {
                    assert!(!self.open_turn, "seed {}: a turn began in a turn", self.seed);
                    self.open_turn = true;
                }
                Event::TurnFinished(finished) => {
                    assert!(self.open_turn, "seed {}: a turn ended twice", self.seed);
                    self.open_turn = false;
                    let info = &finished.context_info;
                    assert_eq!(info.breakdown.total(), info.token_count, "seed {}", self.seed);
                    assert!(info.usage_ratio.is_finite() && info.usage_ratio >= 0.0, "seed {}", self.seed);
                }
                Event::QueueItemAdded(added) => {
                    let is_new = self.waiting.insert(added.item.command_id.clone());
                    assert!(is_new, "seed {}: an input waits twice", self.seed);
                }
                Event::QueueItemRemoved(removed) => {
                    let id = &removed.command_id;
                    assert!(self.waiting.remove(id), "seed {}: {id} leaves the queue and is not in it", self.seed);
                    let is_said = removed.reason != QueueRemovalReason::Cancelled;
                    assert_eq!(is_said, removed.entry_id.is_some(), "seed {}: {removed:?}", self.seed);
                    assert_ne!(is_said, removed.cancelled_by.is_some(), "seed {}: {removed:?}", self.seed);
                    delivered.extend(removed.entry_id.clone().map(|entry| (entry, id.clone())));
                }
                Event::ToolCall(call) => self.calls.push(call.call_id.clone()),
                Event::ContextCompacted(compacted) => {
                    assert!(compacted.tokens_after > 0 && compacted.tokens_after < compacted.tokens_before);
                    assert_eq!(compacted.breakdown.after.total(), compacted.tokens_after, "seed {}", self.seed);
                    compacted_now = Some(compacted.entry_id.clone());
                    if self.held.take().is_some_and(|held| held == compacted.job_id) {
                        self.of_held += 1;
                        self.of_held_after_crash += usize::from(self.crashed_since_held);
                        assert_eq!(compacted.paused_ms, 0, "seed {}: somebody waited for what was held", self.seed);
                    }
                }
                Event::CompactionUndone(_) => self.undone += 1,
                Event::SessionUpdated(updated) if updated.held.is_some() => {
                    self.held = updated.held.clone().map(|held| held.job_id);
                    self.crashed_since_held = false;
                }
                Event::CompactionFailed(failed) => drop(self.held.take_if(|held| *held == failed.job_id)),
                _ => {}
            }
            self.log.push(event);
        }
        assert!(delivered.is_empty(), "seed {}: no entries for {delivered:?}, which left the queue", self.seed);
        if let Some(compaction) = compacted_now {
            self.check_kept(&compaction);
        }
        for mark in append.marks {
            self.replied(mark.id, &mark.reply);
        }
    }

    pub(super) fn replied(&mut self, id: CommandId, reply: &Reply) {
        assert!(self.replies.insert(id.clone()), "seed {}: {id} was answered twice", self.seed);
        if let Reply::Accepted(accepted) = reply
            && (accepted.queued || accepted.entry_id.is_some())
        {
            let kept = self.waiting.contains(&id) || self.said.contains_key(&id);
            assert!(kept, "seed {}: {id} was accepted and is nowhere", self.seed);
        }
        self.check_hook_reply(reply);
        if let Reply::Navigated(navigated) = reply {
            assert_eq!(navigated.leaf_id, self.agent.ledger.session.state.leaf, "seed {}", self.seed);
        }
        if let Reply::Accepted(accepted) = reply
            && let Some(entry) = &accepted.entry_id
        {
            assert!(
                self.entries.contains_key(entry),
                "seed {}: {entry} was announced before it was durable",
                self.seed
            );
        }
    }

    pub(super) fn call(&mut self, call: &CallModel) {
        let alike = self.asked.values().filter(|purpose| **purpose == call.body.purpose).count();
        assert!(alike == 0, "seed {}: two requests of one kind at once", self.seed);
        self.asked.insert(call.request, call.body.purpose);
        let sent: Vec<&EntryId> = call.body.messages().filter_map(|message| message.entry_id.as_ref()).collect();
        let all = sent.iter().all(|id| self.entries.contains_key(*id));
        assert!(all, "seed {}: a request holds an entry that is not durable", self.seed);
        check_pairs(self.seed, call.body.messages());
        if call.body.purpose == Purpose::Turn {
            assert!(self.open_turn, "seed {}: the model was asked without a turn", self.seed);
            let read = crate::context::build_context(self.read_back().tree.path());
            let again: Vec<_> = read.to_messages().cached;
            let live = call.body.envelope.messages.cached.clone();
            let uncached = &call.body.envelope.messages.uncached;
            let overlaid = std::mem::take(&mut self.overlaid);
            assert!(overlaid || uncached.is_empty(), "seed {}: what is not logged was sent", self.seed);
            assert!(overlaid || live == again, "seed {}: the request differs from what the log says", self.seed);
        }
    }
}

pub(super) fn check_pairs<'a>(seed: u64, messages: impl Iterator<Item = &'a ContextMessage>) {
    let mut open: HashSet<CallId> = HashSet::new();
    let messages: Vec<&Message> = messages.map(|message| &*message.message).collect();
    assert!(!messages.is_empty(), "seed {seed}: an empty request");
    for message in messages {
        if message.role != Role::Tool {
            assert!(open.is_empty(), "seed {seed}: a call without its result in a request");
        }
        for part in &message.content {
            match part {
                Part::ToolCall { call_id, .. } => assert!(open.insert(call_id.clone()), "seed {seed}: a call id twice"),
                Part::ToolResult { call_id, .. } => {
                    assert!(open.remove(call_id), "seed {seed}: a result without its call")
                }
                _ => {}
            }
        }
    }
    assert!(open.is_empty(), "seed {seed}: a call without its result at the end of a request");
}
