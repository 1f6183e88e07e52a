//! The compaction in progress: one at a time.
//!
//! A preview is in progress while it is made. Once it is shown, it is only kept (`CompactionMemory::preview`): its
//! client may apply it later, and other compactions may run meanwhile.

use crate::agent_loop::{io::Caller, io::RequestId};
use crate::compaction::{Basis, Job, Order, Outcome};
use crate::usage_row::UsagePurpose;
use reseed_protocol::{
    CommandId, ErrorBody, JobId, Timestamp, Usage,
    compaction::{CompactionTrigger, FailedRung},
};

/// The compaction in progress: at most one is running or ready.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// A compaction or a preview that is running, waited for or not.
    pub(crate) running: Option<Box<Running>>,
    /// A compaction that is finished and waits for a point between two requests.
    pub(crate) ready: Option<Box<Ready>>,
    /// A compaction that was ordered and has not started. It starts after the other one.
    pub(crate) ordered: Option<Order>,
}

impl Work {
    /// Takes the running job.
    pub(crate) fn take_running(&mut self) -> Option<Running> {
        self.running.take().map(|running| *running)
    }

    /// Takes the ready compaction.
    pub(crate) fn take_ready(&mut self) -> Option<Ready> {
        self.ready.take().map(|ready| *ready)
    }

    /// Takes the ready compaction if this job made it.
    pub(crate) fn take_ready_of(&mut self, job: &JobId) -> Option<Ready> {
        self.ready.take_if(|ready| ready.basis.order.job_id == *job).map(|ready| *ready)
    }

    /// Sets the running job; an order waits behind it.
    pub(crate) fn run(&mut self, running: Running) {
        debug_assert!(self.ready.is_none() && self.running.is_none(), "one compaction is under way at a time");
        self.running = Some(Box::new(running));
    }

    /// Sets the ready compaction; an order waits behind it.
    pub(crate) fn wait(&mut self, ready: Ready) {
        debug_assert!(self.ready.is_none() && self.running.is_none(), "one compaction is under way at a time");
        self.ready = Some(Box::new(ready));
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

    /// Returns what the job's requests are recorded for.
    pub(crate) fn spent_on(&self) -> UsagePurpose {
        match self.purpose {
            JobPurpose::Preview(_) => UsagePurpose::Preview,
            JobPurpose::Commit { .. } => UsagePurpose::Summary,
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
