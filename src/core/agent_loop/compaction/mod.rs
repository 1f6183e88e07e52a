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
pub(super) mod instructions;
pub(super) mod job;
mod keep;
mod plan;
mod preview;
mod weight;

pub use instructions::INSTRUCTIONS_WINDOW_PART;
pub use keep::{PINS_MAX, pins_without, undo_target};

use crate::context::{compaction::Order, guards::Guards};
use job::{Ready, Running};
use preview::Prepared;

/// The compaction at work, and what is known of compactions.
#[derive(Debug)]
pub(in crate::agent_loop) struct Compactor {
    pub(in crate::agent_loop) carried: Carried,
    /// The job at work, whether anybody waits for it or not.
    pub(in crate::agent_loop) running: Option<Running>,
    /// A compaction that is made and waits for a place between two requests.
    pub(in crate::agent_loop) ready: Option<Box<Ready>>,
    /// A compaction failed in this turn: it is not tried again before the turn is over, so that a summary that always
    /// fails is not asked for before every round of tools.
    pub(in crate::agent_loop) gave_up: bool,
}

/// What goes from one loop to the next.
#[derive(Debug, Default)]
pub(in crate::agent_loop) struct Carried {
    /// A compaction that was asked for and not yet begun.
    pub(in crate::agent_loop) ordered: Option<Order>,
    /// What was seen of the model's window.
    pub(in crate::agent_loop) seen: Seen,
    /// How automatic compaction went.
    pub(in crate::agent_loop) guards: Guards,
    /// A compaction that was previewed and may be applied.
    pub(in crate::agent_loop) preview: Option<Box<Prepared>>,
}

/// What requests of a session showed of its model's window, as long as the session stays in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::agent_loop) struct Seen {
    /// The largest count that was answered.
    pub(in crate::agent_loop) answered_tokens_max: u64,
    /// The count of a request that ended without a word and is being compacted for.
    pub(in crate::agent_loop) empty_tokens: Option<u64>,
    /// The count of the last such request whose question was answered once it was smaller.
    pub(in crate::agent_loop) too_large_tokens: Option<u64>,
}

impl Compactor {
    pub(in crate::agent_loop) fn new(carried: Carried) -> Self {
        Self { carried, running: None, ready: None, gave_up: false }
    }
}
