//! The sessions in memory, and the turns at opening, creating and deleting one, so that concurrent requests open it
//! once.

use crate::{
    runtime::{
        handle::SessionHandle,
        watch::{Opened, Row},
    },
    shares::turns::{Bounds, Turn, Turns},
};
use dashmap::DashMap;
use reseed_protocol::{SessionId, session::SessionState};
use std::{pin::pin, sync::Arc};
use tokio::sync::Notify;

/// The sessions in memory; clones share them.
#[derive(Clone)]
pub(super) struct OpenSessions {
    open: Arc<DashMap<SessionId, (SessionHandle, Arc<Row>)>>,
    /// Tells that a session has left memory.
    left: Arc<Notify>,
    /// The turns at each session, which sessions take instead of users.
    turns: Arc<Turns>,
}

impl Default for OpenSessions {
    fn default() -> Self {
        Self { open: Arc::default(), left: Arc::default(), turns: Turns::new(Bounds { most: 0, most_per_user: 1 }) }
    }
}

impl OpenSessions {
    /// Returns the number of sessions whose actor runs.
    pub(super) fn count(&self) -> usize {
        self.open.len()
    }

    /// Waits until nobody else opens, creates or deletes this session, and keeps others from it until the turn ends.
    pub(super) async fn lock(&self, id: &SessionId) -> Turn {
        self.turns.take(id.as_str()).await
    }

    /// Returns the session's handle, if it is open.
    pub(super) fn get(&self, id: &SessionId) -> Option<SessionHandle> {
        self.open.get(id).map(|open| open.0.clone()).filter(|handle| !handle.is_gone())
    }

    /// Returns the handles of all open sessions.
    pub(super) fn all(&self) -> Vec<SessionHandle> {
        self.open.iter().map(|open| open.0.clone()).filter(|handle| !handle.is_gone()).collect()
    }

    /// Returns the handles of one owner's open sessions.
    pub(super) fn all_of(&self, owner: &str) -> Vec<SessionHandle> {
        let own = self.open.iter().filter(|open| *open.1.owner() == *owner);
        own.map(|open| open.0.clone()).filter(|handle| !handle.is_gone()).collect()
    }

    /// Waits until no session of an owner is in memory, and what it has cost is written.
    pub(super) async fn none_of(&self, owner: &str) {
        loop {
            let mut left = pin!(self.left.notified());
            left.as_mut().enable();
            if !self.open.iter().any(|open| *open.1.owner() == *owner) {
                return;
            }
            left.await;
        }
    }

    /// Returns what a session is doing; idle if it is not open.
    pub(super) fn doing(&self, id: &SessionId) -> SessionState {
        self.open.get(id).map_or(SessionState::Idle, |open| open.1.doing())
    }

    /// Returns what operators see of a session; `None` if it is not open.
    pub(super) fn row(&self, id: &SessionId) -> Option<Opened> {
        self.open.get(id).map(|open| open.1.opened())
    }

    /// Adds a session until the result is dropped, also if its actor panics.
    pub(super) fn enter(&self, handle: SessionHandle, row: Arc<Row>) -> Entered {
        let id = handle.id.clone();
        self.open.insert(id.clone(), (handle, row.clone()));
        Entered { open: self.clone(), row, id }
    }
}

/// A session's entry among the open ones.
pub(super) struct Entered {
    open: OpenSessions,
    row: Arc<Row>,
    id: SessionId,
}

impl Drop for Entered {
    fn drop(&mut self) {
        // The session may have been opened again in the meantime.
        self.open.open.remove_if(&self.id, |_, (_, row)| Arc::ptr_eq(row, &self.row));
        self.open.left.notify_waiters();
    }
}
