//! A connection's timer. It rings after a period of silence, or to check for text that did not wake the connection.
//!
//! Each connection has one timer. It is reset only after it has rung, or to ring earlier. A stream of deltas wakes the
//! connection a hundred times a second, and resetting a timer each time would cost as much as the delta.

use std::{pin::Pin, time::Duration};
use tokio::time::{Instant, Sleep, sleep_until};

/// The reason why the timer rang.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ring {
    /// It is time to check.
    Look,
    /// The requested time has come.
    Due,
}

#[derive(Debug)]
pub(super) struct Alarm {
    sleep: Pin<Box<Sleep>>,
    look_at: Option<Instant>,
}

impl Alarm {
    /// Creates a timer that rings at `first`, or earlier on request.
    pub(super) fn new(first: Instant) -> Self {
        Self { sleep: Box::pin(sleep_until(first)), look_at: None }
    }

    /// Rings after `pause`, replacing an earlier request.
    pub(super) fn look_in(&mut self, pause: Duration) {
        self.look_at = Some(Instant::now() + pause);
    }

    /// Waits until `due`, or until it is time to check. Cancel safe.
    pub(super) async fn ring(&mut self, due: Instant) -> Ring {
        loop {
            let next = self.look_at.map_or(due, |look| look.min(due));
            if next < self.sleep.deadline() || self.sleep.is_elapsed() {
                self.sleep.as_mut().reset(next);
            }
            // The deadline may have moved since the timer was set. In that case it is reset.
            self.sleep.as_mut().await;
            let now = Instant::now();
            if self.look_at.is_some_and(|look| look <= now) {
                self.look_at = None;
                return Ring::Look;
            }
            if due <= now {
                return Ring::Due;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_rings_when_it_was_last_asked_to() {
        let start = Instant::now();
        let (ms, hour) = (Duration::from_millis, Duration::from_secs(3600));
        let mut alarm = Alarm::new(start + ms(1));
        alarm.look_in(ms(25));
        tokio::time::advance(ms(20)).await;
        alarm.look_in(ms(25));
        assert_eq!(alarm.ring(start + hour).await, Ring::Look);
        assert!((ms(45)..ms(48)).contains(&start.elapsed()), "{:?}", start.elapsed());
        assert_eq!(alarm.ring(start + hour).await, Ring::Due);
        assert!(start.elapsed() >= hour);
        assert_eq!(alarm.ring(start + 2 * hour).await, Ring::Due);
        assert!(start.elapsed() >= 2 * hour);
    }
}
