//! Lets guests take turns on the runtime's threads.
//!
//! A task that is ready waits behind all that were ready before, and a turn of a conversation is some ten tasks one
//! after the other: when hundreds of connections arrive in the same moment, it waits that often behind all of them. So
//! of the connections whose client is not known only a few run before everybody else who is ready has run, too; the
//! others wait here, in the order in which they came. Accepting waits with them: connections that nobody has time for
//! stay in the kernel's queue.

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
    /// Makes turns for a runtime with so many threads. Half of them may serve guests, and at least one.
    pub(in crate::server) fn new(threads: usize) -> Self {
        Self(Arc::new(Semaphore::new((threads / 2).max(1))))
    }

    /// Wraps what is done for a guest: each step of it waits for its turn.
    pub(in crate::server) fn wait<F: Future>(&self, work: F) -> Turned<F> {
        Turned { turns: PollSemaphore::new(self.0.clone()), work: Box::pin(work) }
    }
}

/// A guest's work that takes its turns. It runs in a task of the runtime.
pub(in crate::server) struct Turned<F> {
    turns: PollSemaphore,
    work: Pin<Box<F>>,
}

impl<F: Future> Future for Turned<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // The semaphore is never closed. If it were, steps would only not wait for each other.
        let turn = ready!(self.turns.poll_acquire(cx));
        let done = self.work.as_mut().poll(cx);
        // The next guest's turn is when all have run that are ready now.
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

    /// The runtime has one thread, on which tasks run in the order in which they became ready.
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
