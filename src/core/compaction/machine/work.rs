//! The compaction in progress: one at a time.
//!
//! A preview is in progress while it is made. Once it is shown, it is only kept (`CompactionMemory::preview`): its
//! client may apply it later, and other compactions may run meanwhile.

use crate::agent_loop::{io::Caller, io::RequestId};
use crate::compaction::{Basis, Job, Order, Outcome};
use reseed_protocol::{
    CommandId, ErrorBody, Timestamp, Usage,
    compaction::{CompactionTrigger, FailedRung},
};

/// The compaction in progress. An order that arrives during another one starts after it.
#[derive(Debug, Default)]
pub(crate) enum Work {
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
    pub(crate) fn running(&self) -> Option<&Running> {
        match self {
            Self::Running { running, .. } => Some(running),
            _ => None,
        }
    }

    pub(crate) fn running_mut(&mut self) -> Option<&mut Running> {
        match self {
            Self::Running { running, .. } => Some(running),
            _ => None,
        }
    }

    pub(crate) fn ready(&self) -> Option<&Ready> {
        match self {
            Self::Ready { ready, .. } => Some(ready),
            _ => None,
        }
    }

    pub(crate) fn ordered(&self) -> Option<&Order> {
        match self {
            Self::Nothing => None,
            Self::Ordered(order) => Some(order),
            Self::Running { then, .. } | Self::Ready { then, .. } => then.as_ref(),
        }
    }

    /// Takes the running job.
    pub(crate) fn take_running(&mut self) -> Option<Running> {
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
    pub(crate) fn take_ready(&mut self) -> Option<Ready> {
        self.take_ready_if(|_| true)
    }

    /// Takes the ready compaction if it matches.
    pub(crate) fn take_ready_if(&mut self, is_such: impl Fn(&Ready) -> bool) -> Option<Ready> {
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

    pub(crate) fn take_ordered(&mut self) -> Option<Order> {
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
    pub(crate) fn run(&mut self, running: Running) {
        debug_assert!(self.ready().is_none() && self.running().is_none(), "one compaction is under way at a time");
        *self = Self::Running { running: Box::new(running), then: self.take_ordered() };
    }

    /// Sets the ready compaction; an order waits behind it.
    pub(crate) fn wait(&mut self, ready: Ready) {
        debug_assert!(self.ready().is_none() && self.running().is_none(), "one compaction is under way at a time");
        *self = Self::Ready { ready: Box::new(ready), then: self.take_ordered() };
    }

    /// Orders a compaction, replacing an earlier order.
    pub(crate) fn order(&mut self, order: Order) {
        match self {
            Self::Nothing | Self::Ordered(_) => *self = Self::Ordered(order),
            Self::Running { then, .. } | Self::Ready { then, .. } => *then = Some(order),
        }
    }

    pub(crate) fn of(ordered: Option<Order>) -> Self {
        ordered.map_or(Self::Nothing, Self::Ordered)
    }
}

/// The phase of a job that summarises for a compaction.
pub(crate) const PHASE: &str = "summarising";

/// The purpose of a job.
#[derive(Debug, Clone)]
pub(crate) enum JobPurpose {
    /// The outcome is committed. In the background, turns continue meanwhile.
    Commit { background: bool },
    /// The outcome is shown to this client.
    Preview(Caller),
}

/// A running job.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) request: RequestId,
    pub(crate) job: Box<Job>,
    pub(crate) purpose: JobPurpose,
    /// The time since which it is awaited.
    pub(crate) waited_since: Option<Timestamp>,
    /// True while its request yields to others.
    pub(crate) makes_way: bool,
}

/// A finished compaction.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) basis: Basis,
    pub(crate) outcome: Box<Outcome>,
    pub(crate) background: bool,
    pub(crate) waited_since: Option<Timestamp>,
}

/// The state of a job after `advance`.
pub(crate) enum Advanced {
    /// A model request was sent.
    Asked,
    /// The job is over and nothing is left to do: its outcome was committed, held or shown, or waits for a point
    /// between two requests. A preview is also over once its client has received the error.
    Over,
    /// The job failed. Clients were notified; a turn that waits for the job was not.
    Failed(CompactionTrigger, ErrorBody),
}

impl Running {
    /// Returns true if turns continue while the job runs, unless it is awaited. This holds for every preview.
    pub(crate) fn is_in_background(&self) -> bool {
        !matches!(self.purpose, JobPurpose::Commit { background: false })
    }

    /// Returns the command that requested this job as a preview.
    pub(crate) fn preview_of(&self) -> Option<CommandId> {
        match &self.purpose {
            JobPurpose::Preview(caller) => Some(caller.id.clone()),
            JobPurpose::Commit { .. } => None,
        }
    }

    /// Returns true if the job can be repeated later: it was started in the background, and nothing has waited for it
    /// since. A preview cannot be: its client waits, and it must show what an order would do.
    pub(crate) fn can_wait(&self) -> bool {
        matches!(self.purpose, JobPurpose::Commit { background: true }) && self.waited_since.is_none()
    }
}

/// The reason to commit a held compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// The next request is above the trigger.
    Due,
    /// The next request is above the hard limit too.
    Room,
    /// The provider refused the request as too large.
    Refused,
}

/// The cost of a failed compaction.
#[derive(Debug, Default)]
pub(crate) struct Spent {
    pub(crate) background: bool,
    pub(crate) duration_ms: u64,
    pub(crate) paused_ms: u64,
    pub(crate) failed: Vec<FailedRung>,
    /// The usage of a held compaction's summary.
    pub(crate) unused: Option<Usage>,
}

impl Spent {
    /// Returns the cost of a compaction so far.
    pub(crate) fn of(basis: &Basis, now: Timestamp, background: bool, waited_since: Option<Timestamp>) -> Self {
        Self {
            background,
            duration_ms: basis.duration_ms(now),
            paused_ms: waited_since.map_or(0, |since| now.millis_since(since)),
            failed: basis.failed.clone(),
            unused: None,
        }
    }
}
