//! Work that takes long, on a thread of its own.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Does work that may take more than two milliseconds. The other tasks of this worker thread move to another one
/// meanwhile, if the runtime has any.
pub(crate) fn apart<T>(work: impl FnOnce() -> T) -> T {
    let has_other_workers = Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
    if has_other_workers { tokio::task::block_in_place(work) } else { work() }
}
