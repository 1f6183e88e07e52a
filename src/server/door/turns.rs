//! Lets guests take turns on the runtime's threads.
//!
//! A ready task waits behind all tasks that were ready before it. A conversation's turn consists of about ten tasks
//! that run one after another. If hundreds of connections arrived at once, each of these tasks would wait behind all of
//! them. So only a few guests run before every other ready task has had its chance. The other guests wait here, in
//! order of arrival. Accepting waits with them, so the kernel's queue holds the connections that the server has no time
//! for.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::sync::Semaphore;
use tokio_util::sync::PollSemaphore;

/// The turns of all guests.
#[derive(Debug, Clone)]
pub(in crate::server) struct Turns(Arc<Semaphore>);

impl Turns {
    /// Creates the turns for a runtime with this many threads. Half of them may serve guests, and at least one.
    pub(in crate::server) fn new(threads: usize) -> Self {
        Self(Arc::new(Semaphore::new((threads / 2).max(1))))
    }

    /// Wraps a guest's work, so that each step of it waits for its turn.
    pub(in crate::server) fn wait<F: Future>(&self, work: F) -> Turned<F> {
        Turned { turns: PollSemaphore::new(self.0.clone()), work: Box::pin(work) }
    }
}

/// A guest's work that takes turns. It runs in a task of the runtime.
pub(in crate::server) struct Turned<F> {
    turns: PollSemaphore,
    work: Pin<Box<F>>,
}

impl<F: Future> Future for Turned<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // The semaphore is never closed. If it were, steps would run without waiting for each other.
        let turn = ready!(self.turns.poll_acquire(cx));
        let done = self.work.as_mut().poll(cx);
        // The turn ends once all tasks that are ready now have run.
        tokio::spawn(async {
            tokio::task::yield_now().await;
            drop(turn);
        });
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// The runtime has one thread, which runs tasks in the order in which they became ready.
    #[tokio::test]
    async fn who_is_known_does_not_wait_for_a_crowd() {
        let turns = Turns::new(1);
        let done = Arc::new(AtomicUsize::new(0));
        let crowd: Vec<_> = (0..100)
            .map(|_| {
                let done = done.clone();
                tokio::spawn(turns.wait(async move {
                    done.fetch_add(1, Ordering::Relaxed);
                }))
            })
            .collect();
        let done_before = tokio::spawn({
            let done = done.clone();
            async move { done.load(Ordering::Relaxed) }
        });
        let done_before = done_before.await.unwrap();
        assert!(done_before <= 5, "{done_before} of the crowd came first");
        for guest in crowd {
            guest.await.unwrap();
        }
        assert_eq!(done.load(Ordering::Relaxed), 100, "everybody has a turn");
    }

    #[tokio::test]
    async fn one_who_has_left_keeps_no_turn() {
        let turns = Turns::new(1);
        let held = turns.0.clone().acquire_owned().await.unwrap();
        let mut waiting = turns.wait(std::future::ready(()));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        drop(waiting);
        drop(held);
        turns.wait(std::future::ready(())).await;
    }
}
