//! Deliberate faults, each injected between the server and the disk or between the server and a client. A suite that
//! misses them could not find the server's own.

use crate::disk::Road;
use reseed::{
    internals::{Frame, LeftOff},
    store::{Append, Error, Lease, SessionHead},
};
use std::time::Duration;

/// The injected fault of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// None: the unmodified server.
    Nothing,
    /// Appends are acknowledged before they are synced: a crash loses the newest.
    AckBeforeSync,
    /// Appends are acknowledged, and so published, some time before they are written.
    PublishBeforeWrite,
    /// A stale writer may write.
    IgnoreTerm,
    /// The database of a cluster grants a term that was granted before.
    TermTwice,
    /// A standby that is behind takes over, and nothing shows that it is another copy.
    SilentFailover,
    /// Nodes do not learn of a failover. Sessions still get new epochs when they are opened.
    UntoldFailover,
    /// Nodes of a cluster judge by their time of day which others are alive.
    WallClockLease,
    /// Nodes of a cluster judge another one silent as soon as it has missed a beat.
    ShortLease,
    /// A node that asks which sessions it has lost meanwhile gets the answer that it has lost none.
    NothingLost,
    /// A node does not learn from the database's clock that its own stood still.
    AgeUnknown,
    /// A reopened session has no queue.
    LoseQueue,
    /// A resuming client is treated as if it had seen nothing of the running answer.
    LoseOffset,
    /// An event is lost on its way to a client.
    DropEvent,
    /// An event is delivered twice.
    RepeatEvent,
    /// Two events are delivered in the wrong order.
    SwapEvents,
    /// The text of an event differs from the stored one.
    ChangeEvent,
}

/// The delay of an append that is acknowledged before it is written.
const LATE: Duration = Duration::from_millis(5);

impl Broken {
    /// Returns the lease that a server uses on the disk.
    pub(crate) fn claimed(self, lease: &Lease, newest_term: u64) -> Lease {
        let is_any = matches!(self, Self::IgnoreTerm | Self::TermTwice);
        let term = if is_any { newest_term } else { lease.term };
        Lease { term, ..lease.clone() }
    }

    /// Returns the lease that the database grants.
    pub(crate) fn granted(self, lease: Lease) -> Lease {
        let term = if self == Self::TermTwice { lease.term - 1 } else { lease.term };
        Lease { term, ..lease }
    }

    /// Acknowledges an append without executing it properly.
    pub(crate) async fn append(
        self,
        road: &Road,
        lease: &Lease,
        first_seq: u64,
        append: &Append,
    ) -> Option<Result<(), Error>> {
        if self != Self::PublishBeforeWrite {
            return None;
        }
        let disk = road.disk.clone();
        disk.lock().late.push_back((road.node, lease.clone(), first_seq, append.clone()));
        tokio::spawn(async move {
            tokio::time::sleep(LATE).await;
            let late = disk.lock().late.pop_front();
            if let Some((node, lease, first_seq, append)) = late {
                drop(disk.append(node, &lease, first_seq, append).await);
            }
        });
        Some(Ok(()))
    }

    /// Modifies what a server reads when it opens a session.
    pub(crate) fn opened(self, mut head: SessionHead) -> SessionHead {
        if self == Self::LoseQueue
            && let Some(state) = &head.head.state
        {
            let mut state: serde_json::Value = serde_json::from_str(state).expect("a state is JSON");
            state["queue"] = serde_json::json!([]);
            head.head.state = Some(state.to_string().into());
        }
        head
    }

    /// Returns how many of the newest appends a crash loses.
    pub(crate) fn lost_in_a_crash(self, rng: &mut fastrand::Rng) -> usize {
        if self == Self::AckBeforeSync { rng.usize(1..4) } else { 0 }
    }

    /// Modifies a client's position when it resumes.
    pub(crate) fn left_off(self, left_off: LeftOff) -> LeftOff {
        if self == Self::LoseOffset { LeftOff { items: Vec::new(), ..left_off } } else { left_off }
    }

    /// Modifies frames on their way to a client.
    pub(crate) fn frames(self, mut frames: Vec<Frame>, rng: &mut fastrand::Rng) -> Vec<Frame> {
        let durable: Vec<usize> = (0..frames.len()).filter(|at| matches!(frames[*at], Frame::Durable(..))).collect();
        let Some(at) = rng.choice(&durable).copied().filter(|_| rng.u8(..8) == 0) else { return frames };
        match self {
            Self::DropEvent => drop(frames.remove(at)),
            Self::RepeatEvent => frames.insert(at, frames[at].clone()),
            Self::SwapEvents if durable.len() > 1 => frames.swap(durable[0], durable[1]),
            Self::ChangeEvent => {
                if let Frame::Durable(_, frame) = &mut frames[at] {
                    *frame = frame.replace("word", "sword").into();
                }
            }
            _ => {}
        }
        frames
    }
}
