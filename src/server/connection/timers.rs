//! A connection's timers: one table of deadlines, and one timer of the runtime.
//!
//! The runtime's timer is reset only after it has rung, or to ring earlier. A stream of deltas wakes the connection a
//! hundred times a second, and resetting it each time would cost as much as the delta.

use std::pin::Pin;
use tokio::time::{Instant, Sleep, sleep_until};

/// The times that a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Timer {
    /// The client has not sent `hello` in time.
    Hello,
    /// The next ping is due.
    Beat,
    /// The client's credentials expire, or it must be warned that they will.
    Expiry,
    /// The server is stopping, and the connection checks whether it may close.
    Leave,
    /// A feed may have text that did not wake the connection.
    Look,
}

const TIMERS: [Timer; 5] = [Timer::Hello, Timer::Expiry, Timer::Leave, Timer::Beat, Timer::Look];

#[derive(Debug)]
pub(in crate::server) struct Timers {
    due: [Option<Instant>; TIMERS.len()],
    sleep: Pin<Box<Sleep>>,
}

impl Timers {
    /// Creates the table; nothing will be due before `first`, unless it is set.
    pub(in crate::server) fn new(first: Instant) -> Self {
        Self { due: [None; TIMERS.len()], sleep: Box::pin(sleep_until(first)) }
    }

    /// Sets a deadline, replacing an earlier one. `None` removes it.
    pub(in crate::server) fn set(&mut self, timer: Timer, at: Option<Instant>) {
        self.due[timer as usize] = at;
    }

    /// Waits until a deadline has passed, and removes it. Cancel safe.
    pub(in crate::server) async fn ring(&mut self) -> Timer {
        loop {
            let Some(next) = self.due.iter().flatten().min().copied() else { std::future::pending().await };
            if next < self.sleep.deadline() || self.sleep.is_elapsed() {
                self.sleep.as_mut().reset(next);
            }
            // The deadline may have moved since the timer was set. In that case it is reset.
            self.sleep.as_mut().await;
            let now = Instant::now();
            let is_due = |timer: &Timer| self.due[*timer as usize].is_some_and(|at| at <= now);
            if let Some(timer) = TIMERS.into_iter().find(is_due) {
                self.set(timer, None);
                return timer;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn each_deadline_rings_once_when_it_was_last_set() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut timers = Timers::new(start + ms(1));
        timers.set(Timer::Look, Some(start + ms(25)));
        timers.set(Timer::Beat, Some(start + ms(3_600)));
        tokio::time::advance(ms(20)).await;
        timers.set(Timer::Look, Some(start + ms(45)));
        assert_eq!(timers.ring().await, Timer::Look);
        assert!((ms(45)..ms(48)).contains(&start.elapsed()), "{:?}", start.elapsed());
        timers.set(Timer::Leave, Some(start + ms(50)));
        timers.set(Timer::Leave, None);
        assert_eq!(timers.ring().await, Timer::Beat);
        assert!(start.elapsed() >= ms(3_600));
        timers.set(Timer::Beat, Some(start));
        timers.set(Timer::Hello, Some(start));
        assert_eq!((timers.ring().await, timers.ring().await), (Timer::Hello, Timer::Beat), "the order of the table");
    }
}
