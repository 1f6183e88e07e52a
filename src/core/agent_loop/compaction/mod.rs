//! Compactions of a session: whether one is due, making it, holding it until it is due, and committing it.
//!
//! - `plan`: whether and how to compact
//! - `job`: a compaction at work, in the background or waited for
//! - `held`: keeping one that is made until it is due; `commit`: writing what it came to; `fail`: one that comes to
//!   nothing
//! - `preview`: looking at one first; `keep`: pins, and taking a compaction back
//! - `instructions`: what summaries are asked to focus on; `weight`: which inputs take long

mod commit;
pub(super) mod fail;
pub(super) mod held;
pub(super) mod hooks;
pub(super) mod instructions;
pub(super) mod job;
mod keep;
mod plan;
mod preview;
mod weight;
mod work;

pub use instructions::INSTRUCTIONS_WINDOW_PART;
pub use keep::{PINS_MAX, pins_without, undo_target};

use super::workspace::Workspace;
use crate::context::{
    compaction::Order,
    guards::{Guards, Leave},
};
use job::Ready;
use preview::Prepared;
use reseed_protocol::{
    EntryId, Timestamp,
    context::{Breaker, BreakerReason},
};
use work::Work;

/// The compaction at work, and what is known of compactions.
#[derive(Debug)]
pub(in crate::agent_loop) struct Compactor {
    carried: Carried,
    work: Work,
    /// A compaction failed in this turn: it is not tried again before the turn is over, so that a summary that always
    /// fails is not asked for before every round of tools.
    gave_up: bool,
}

/// What goes from one loop to the next.
#[derive(Debug, Default)]
pub(in crate::agent_loop) struct Carried {
    /// A compaction that was asked for and not begun yet, while no loop has it.
    ordered: Option<Order>,
    /// What was seen of the model's window.
    seen: Seen,
    /// How automatic compaction went.
    guards: Guards,
    /// A compaction that was previewed and may be applied.
    preview: Option<Box<Prepared>>,
}

/// What requests of a session showed of its model's window, as long as the session stays in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::agent_loop) struct Seen {
    /// The largest count that was answered.
    answered_tokens_max: u64,
    /// The count of a request that ended without a word and is being compacted for.
    empty_tokens: Option<u64>,
    /// The count of the last such request whose question was answered once it was smaller.
    too_large_tokens: Option<u64>,
}

impl Compactor {
    pub(in crate::agent_loop) fn new(mut carried: Carried) -> Self {
        Self { work: Work::of(carried.ordered.take()), carried, gave_up: false }
    }

    /// Returns what goes to the next loop.
    pub(in crate::agent_loop) fn into_carried(mut self) -> Carried {
        self.carried.ordered = self.work.take_ordered();
        self.carried
    }

    /// Returns true if a job is at work, waited for or not.
    pub(in crate::agent_loop) fn is_at_work(&self) -> bool {
        self.work.running().is_some()
    }

    /// Returns true if a compaction was asked for and is not begun yet.
    pub(in crate::agent_loop) fn is_ordered(&self) -> bool {
        self.work.ordered().is_some()
    }

    /// Returns the name of the preview that may be applied.
    #[cfg(test)]
    pub(in crate::agent_loop) fn preview_id(&self) -> Option<&reseed_protocol::JobId> {
        self.carried.preview.as_ref().map(|preview| preview.id())
    }

    /// Returns true if a compaction failed in this turn.
    pub(in crate::agent_loop) fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// The turn is over: the next one may compact again.
    pub(in crate::agent_loop) fn turn_over(&mut self) {
        self.gave_up = false;
    }

    /// A person or a hook did not want a compaction of so many tokens.
    pub(in crate::agent_loop) fn declined(&mut self, tokens: u64) {
        self.carried.guards.declined(tokens);
    }

    /// Returns whether a compaction may begin for a request that the provider refused.
    pub(in crate::agent_loop) fn leave_after_refusal(&self, now: Timestamp, tokens: u64) -> Leave {
        self.carried.guards.leave(now, tokens, None, true)
    }

    /// Drops a compaction that is ready if it is the one that is held: whoever ordered it in the running turn finds it
    /// still held.
    pub(in crate::agent_loop) fn leave_held(&mut self, ws: &Workspace) {
        self.work.take_ready_if(|ready| ws.is_held(&ready.basis.order.job_id));
    }

    /// Returns true if the job at work was begun while turns went on.
    pub(in crate::agent_loop) fn is_in_background(&self) -> bool {
        self.work.running().is_some_and(|running| running.background)
    }

    /// Hands over the compaction that waits for a place between two requests.
    pub(in crate::agent_loop) fn take_ready(&mut self) -> Option<Ready> {
        self.work.take_ready()
    }

    /// Hands over the compaction that was asked for.
    pub(in crate::agent_loop) fn take_ordered(&mut self) -> Option<Order> {
        self.work.take_ordered()
    }

    /// Forgets a preview that has read what is changed now. Returns true if what is under way has read it, too.
    pub(in crate::agent_loop) fn has_read(&mut self, is_read: impl Fn(Option<&EntryId>) -> bool) -> bool {
        let _ = self.carried.preview.take_if(|preview| is_read(preview.basis().last_read.as_ref()));
        let at_work = self.work.running().map(|running| running.job.last_read());
        at_work.or(self.work.ready().map(|ready| ready.basis.last_read.as_ref())).is_some_and(is_read)
    }

    /// Returns how the circuit breaker stands for a request of so many tokens.
    pub(in crate::agent_loop) fn breaker(&self, ws: &Workspace, tokens: u64) -> Option<Breaker> {
        self.carried.guards.breaker(ws.now, tokens, ws.session.state.rest_tokens)
    }

    /// Another strategy was chosen: what was learnt of automatic compaction says nothing of it.
    pub(in crate::agent_loop) fn forget_guards(&mut self) {
        self.carried.guards.reset();
    }

    /// Another model was chosen: what was seen of the window says nothing of its.
    pub(in crate::agent_loop) fn forget_window(&mut self) {
        self.carried.seen = Seen::default();
    }

    /// Returns why automatic compaction was made to rest, if it was.
    pub(in crate::agent_loop) fn tripped(&self) -> Option<BreakerReason> {
        self.carried.guards.tripped()
    }

    /// A request of so many tokens was answered. Returns the window that this shows, if it is smaller than was thought:
    /// the same question in a smaller request has an answer. Once that can be chance, twice it was the size.
    pub(in crate::agent_loop) fn answered(&mut self, tokens: u64) -> Option<u64> {
        let seen = &mut self.carried.seen;
        seen.answered_tokens_max = seen.answered_tokens_max.max(tokens);
        let empty = seen.empty_tokens.take().filter(|empty| tokens < *empty)?;
        let earlier = seen.too_large_tokens.replace(empty)?;
        Some(empty.max(earlier).saturating_sub(1))
    }

    /// A request of so many tokens failed. Returns true if it may have been too large: it ended without a word, is large
    /// enough for that (both `is_suspect`), and none as large was ever answered.
    pub(in crate::agent_loop) fn failed(&mut self, tokens: u64, is_suspect: bool) -> bool {
        let suspect = is_suspect && tokens > self.carried.seen.answered_tokens_max;
        self.carried.seen.empty_tokens = suspect.then_some(tokens);
        suspect
    }
}
