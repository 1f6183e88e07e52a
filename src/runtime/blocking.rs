//! Work that takes long, on a thread of its own.

use std::{future::pending, panic::resume_unwind};
use tokio::runtime::{Handle, RuntimeFlavor};

/// Does work that may take more than two milliseconds. The other tasks of this worker thread move to another one
/// meanwhile, if the runtime has any.
pub(crate) fn apart<T>(work: impl FnOnce() -> T) -> T {
    if has_other_workers() { tokio::task::block_in_place(work) } else { work() }
}

/// Does such work while the caller does something else, on another thread if the runtime has several. If it is dropped,
/// the work is still done.
pub(crate) async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    if !has_other_workers() {
        return work();
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The runtime ends, and this future with it.
            Err(_) => pending().await,
        },
    }
}

fn has_other_workers() -> bool {
    Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread
}
