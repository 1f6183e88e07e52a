//! Runs long work without blocking a worker thread.

use std::{future::pending, panic::resume_unwind, sync::LazyLock, thread};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::Semaphore,
};

/// Runs work that may take more than two milliseconds. If the runtime has other worker threads, this one's tasks move
/// to them.
pub(crate) fn apart<T>(work: impl FnOnce() -> T) -> T {
    if has_other_workers() { tokio::task::block_in_place(work) } else { work() }
}

/// Limits this work to one thread per processor. More threads would only compete with the workers.
static BESIDE: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(thread::available_parallelism().map_or(1, usize::from)));

/// Runs long work on another thread, so that the caller can continue. A runtime with one thread runs it at once. If the
/// future is dropped after the work has begun, the work still finishes.
pub(crate) async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    if !has_other_workers() {
        return work();
    }
    // The semaphore is never closed. If the caller is gone, the work keeps its permit until it is done.
    let permit = BESIDE.acquire().await.ok();
    let work = move || {
        let _permit = permit;
        work()
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The runtime is ending, and this future with it.
            Err(_) => pending().await,
        },
    }
}

fn has_other_workers() -> bool {
    Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::join_all;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn work_beside_is_done_on_other_threads_and_its_panics_are_the_callers() {
        let here = thread::current().id();
        let done = join_all((0..100).map(|n| beside(move || (n, thread::current().id() != here)))).await;
        assert_eq!(done, (0..100).map(|n| (n, true)).collect::<Vec<_>>());
        let panicked = tokio::spawn(beside(|| panic!("as planned"))).await;
        assert!(panicked.unwrap_err().is_panic());
        assert_eq!(beside(|| 1).await, 1, "and the next one is done");
    }

    #[tokio::test]
    async fn on_a_runtime_of_one_thread_it_is_done_at_once() {
        let here = thread::current().id();
        assert!(beside(move || thread::current().id() == here).await);
    }
}
