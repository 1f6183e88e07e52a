//! Sessions that rest: they stay in memory for a while after their last connection has left, because many clients come
//! back soon. A client over HTTP has a connection for each request, and a page is loaded again. Opening a session takes
//! a commit, and its context is read and counted anew.

use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore, futures::Notified},
    time::timeout,
};

/// How long a session rests.
pub(super) const REST_TIME: Duration = Duration::from_secs(20);

/// Maximum sessions that rest. Each holds its active context, which may have a megabyte.
const RESTING_MAX: u32 = 64;

/// The time limit for sessions to make room. Each takes a commit.
const LEAVE_TIME: Duration = Duration::from_secs(2);
const NOTIFY_EVERY: Duration = Duration::from_millis(10);

/// The places for sessions that rest.
#[derive(Debug)]
pub(super) struct Resting {
    places: Arc<Semaphore>,
    leave: Notify,
}

/// The place of a session that rests. It is free again when this is dropped.
pub(super) type RestingPlace = OwnedSemaphorePermit;

impl Default for Resting {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(RESTING_MAX as usize)), leave: Notify::new() }
    }
}

impl Resting {
    /// Takes a place; `None` if all are taken, so the session leaves memory at once.
    pub(super) fn rest(&self) -> Option<RestingPlace> {
        self.places.clone().try_acquire_owned().ok()
    }

    /// Waits until the sessions that rest must leave.
    pub(super) fn must_leave(&self) -> Notified<'_> {
        self.leave.notified()
    }

    /// Makes all sessions that rest leave memory. Returns false if there is none, or if they take too long.
    pub(super) async fn make_room(&self) -> bool {
        if self.places.available_permits() == RESTING_MAX as usize {
            return false;
        }
        let all_left = async {
            loop {
                // This does not reach sessions that handle a message just now.
                self.leave.notify_waiters();
                if timeout(NOTIFY_EVERY, self.places.acquire_many(RESTING_MAX)).await.is_ok() {
                    return;
                }
            }
        };
        timeout(LEAVE_TIME, all_left).await.is_ok()
    }
}
