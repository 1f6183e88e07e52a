//! The compaction in progress: one at a time.
//!
//! A preview is in progress while it is made. Once it is shown, it is only kept (`CompactionMemory::preview`): its
//! client may apply it later, and other compactions may be in progress meanwhile.

use crate::{
    agent_loop::compaction::running::{Ready, Running},
    context::compaction::Order,
};

/// The compaction in progress. An order that arrives during another one starts after it.
#[derive(Debug, Default)]
pub(super) enum Work {
    /// No compaction is in progress.
    #[default]
    Nothing,
    /// A compaction was ordered and has not started.
    Ordered(Order),
    /// A compaction or a preview is running, waited for or not.
    Running { running: Box<Running>, then: Option<Order> },
    /// A compaction is finished and waits for a point between two requests.
    Ready { ready: Box<Ready>, then: Option<Order> },
}

impl Work {
    pub(super) fn running(&self) -> Option<&Running> {
        match self {
            Self::Running { running, .. } => Some(running),
            _ => None,
        }
    }

    pub(super) fn running_mut(&mut self) -> Option<&mut Running> {
        match self {
            Self::Running { running, .. } => Some(running),
            _ => None,
        }
    }

    pub(super) fn ready(&self) -> Option<&Ready> {
        match self {
            Self::Ready { ready, .. } => Some(ready),
            _ => None,
        }
    }

    pub(super) fn ordered(&self) -> Option<&Order> {
        match self {
            Self::Nothing => None,
            Self::Ordered(order) => Some(order),
            Self::Running { then, .. } | Self::Ready { then, .. } => then.as_ref(),
        }
    }

    /// Takes the running job.
    pub(super) fn take_running(&mut self) -> Option<Running> {
        match std::mem::take(self) {
            Self::Running { running, then } => {
                *self = Self::of(then);
                Some(*running)
            }
            other => {
                *self = other;
                None
            }
        }
    }

    /// Takes the ready compaction.
    pub(super) fn take_ready(&mut self) -> Option<Ready> {
        self.take_ready_if(|_| true)
    }

    /// Takes the ready compaction if it matches.
    pub(super) fn take_ready_if(&mut self, is_such: impl Fn(&Ready) -> bool) -> Option<Ready> {
        match std::mem::take(self) {
            Self::Ready { ready, then } if is_such(&ready) => {
                *self = Self::of(then);
                Some(*ready)
            }
            other => {
                *self = other;
                None
            }
        }
    }

    pub(super) fn take_ordered(&mut self) -> Option<Order> {
        match self {
            Self::Nothing => None,
            Self::Ordered(_) => match std::mem::take(self) {
                Self::Ordered(order) => Some(order),
                _ => None,
            },
            Self::Running { then, .. } | Self::Ready { then, .. } => then.take(),
        }
    }

    /// Sets the running job; an order waits behind it.
    pub(super) fn run(&mut self, running: Running) {
        debug_assert!(self.ready().is_none() && self.running().is_none(), "one compaction is under way at a time");
        *self = Self::Running { running: Box::new(running), then: self.take_ordered() };
    }

    /// Sets the ready compaction; an order waits behind it.
    pub(super) fn wait(&mut self, ready: Ready) {
        debug_assert!(self.ready().is_none() && self.running().is_none(), "one compaction is under way at a time");
        *self = Self::Ready { ready: Box::new(ready), then: self.take_ordered() };
    }

    /// Orders a compaction, replacing an earlier order.
    pub(super) fn order(&mut self, order: Order) {
        match self {
            Self::Nothing | Self::Ordered(_) => *self = Self::Ordered(order),
            Self::Running { then, .. } | Self::Ready { then, .. } => *then = Some(order),
        }
    }

    pub(super) fn of(ordered: Option<Order>) -> Self {
        ordered.map_or(Self::Nothing, Self::Ordered)
    }
}
