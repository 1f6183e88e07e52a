//! When a connection wakes by itself: because nothing was said for a while, or because text was held back for a moment.
//!
//! One timer a connection, set anew only when it has rung or must ring earlier: a stream of deltas wakes the connection
//! thousands of times, and a timer for each would cost as much as the delta.

use std::{pin::Pin, time::Duration};
use tokio::time::{Instant, Sleep, sleep_until};

/// How long after a piece of an answer the next one may be sent. A model that is slower has each of its deltas sent at
/// once; of one that is faster, what came meanwhile goes out together, in a frame instead of in hundreds.
const DELTA_PAUSE: Duration = Duration::from_millis(1);

/// Why it rang.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ring {
    /// What was held back may be sent.
    Release,
    /// The time that was asked for has come.
    Due,
}

#[derive(Debug)]
pub(super) struct Alarm {
    sleep: Pin<Box<Sleep>>,
    delta_at: Option<Instant>,
    held_until: Option<Instant>,
}

impl Alarm {
    /// One that rings at `first`, or when it is asked to.
    pub(super) fn new(first: Instant) -> Self {
        Self { sleep: Box::pin(sleep_until(first)), delta_at: None, held_until: None }
    }

    /// A piece of an answer was sent.
    pub(super) fn sent_delta(&mut self) {
        self.delta_at = Some(Instant::now());
    }

    /// There is something to send: whether it is held back, until [`Ring::Release`].
    pub(super) fn hold(&mut self) -> bool {
        self.held_until = self.delta_at.map(|at| at + DELTA_PAUSE).filter(|until| *until > Instant::now());
        self.is_holding()
    }

    pub(super) fn is_holding(&self) -> bool {
        self.held_until.is_some()
    }

    /// Waits until `due`, or until what is held back may go. Nothing is lost when this is dropped.
    pub(super) async fn ring(&mut self, due: Instant) -> Ring {
        loop {
            let next = self.held_until.map_or(due, |held| held.min(due));
            if next < self.sleep.deadline() {
                self.sleep.as_mut().reset(next);
            }
            self.sleep.as_mut().await;
            let now = Instant::now();
            if self.held_until.is_some_and(|held| held <= now) {
                self.held_until = None;
                return Ring::Release;
            }
            if due <= now {
                return Ring::Due;
            }
            // It was set for something that has passed since.
            self.sleep.as_mut().reset(self.held_until.map_or(due, |held| held.min(due)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_delta_is_held_back_only_right_after_another() {
        let start = Instant::now();
        let (micros, hour) = (Duration::from_micros, Duration::from_secs(3600));
        let mut alarm = Alarm::new(start + hour);
        assert!(!alarm.hold(), "nothing was sent yet");
        alarm.sent_delta();
        tokio::time::advance(micros(400)).await;
        assert!(alarm.hold() && alarm.is_holding());
        assert_eq!(alarm.ring(start + hour).await, Ring::Release);
        assert!(start.elapsed() >= DELTA_PAUSE && start.elapsed() < DELTA_PAUSE * 3);
        assert!(!alarm.is_holding() && !alarm.hold(), "the pause is over");
        assert_eq!(alarm.ring(start + hour).await, Ring::Due);
        assert!(start.elapsed() >= hour);
    }

    #[tokio::test(start_paused = true)]
    async fn it_rings_at_the_time_that_is_asked_for_last() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut alarm = Alarm::new(start + second);
        assert_eq!(alarm.ring(start + 5 * second).await, Ring::Due);
        assert_eq!(start.elapsed().as_secs(), 5);
        assert_eq!(alarm.ring(start + 7 * second).await, Ring::Due);
        assert_eq!(start.elapsed().as_secs(), 7);
    }
}
