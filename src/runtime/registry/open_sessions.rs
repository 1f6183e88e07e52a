//! The sessions in memory. Each has a slot, which is locked while the session is opened, created or deleted, so that
//! concurrent requests open it once.

use crate::runtime::{
    handle::SessionHandle,
    watch::{Compactions, Row},
};
use dashmap::DashMap;
use reseed_protocol::{SessionId, session::SessionState};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use tokio::sync::{Mutex, OwnedMutexGuard};

type Slots = DashMap<SessionId, Arc<Mutex<Option<SessionHandle>>>>;

/// The sessions in memory; clones share them.
#[derive(Clone, Default)]
pub(super) struct OpenSessions {
    slots: Arc<Slots>,
    /// The states of open sessions.
    rows: Arc<DashMap<SessionId, Arc<Row>>>,
    count: Arc<AtomicUsize>,
}

impl OpenSessions {
    /// Returns the number of sessions whose actor runs.
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Locks a session's slot, which nobody else can open meanwhile.
    pub(super) async fn lock(&self, id: &SessionId) -> Slot {
        let slot = self.slots.entry(id.clone()).or_default().clone();
        Slot { id: id.clone(), slots: self.slots.clone(), handle: Some(slot.lock_owned().await) }
    }

    /// Returns the session's handle, unless it is not open or just being opened.
    pub(super) fn get(&self, id: &SessionId) -> Option<SessionHandle> {
        let slot = self.slots.get(id)?.clone();
        let handle = slot.try_lock().ok()?;
        handle.as_ref().filter(|handle| !handle.is_gone()).cloned()
    }

    /// Returns the handles of all open sessions. Sessions that are just being opened are waited for.
    pub(super) async fn all(&self) -> Vec<SessionHandle> {
        let slots: Vec<_> = self.slots.iter().map(|slot| slot.value().clone()).collect();
        let mut open = Vec::new();
        for slot in slots {
            open.extend(slot.lock().await.as_ref().filter(|handle| !handle.is_gone()).cloned());
        }
        open
    }

    /// Returns what a session is doing; idle if it is not open.
    pub(super) fn doing(&self, id: &SessionId) -> SessionState {
        self.rows.get(id).map_or(SessionState::Idle, |row| row.doing())
    }

    /// Returns the compactions of a session; `None` if it is not open.
    pub(super) fn compactions(&self, id: &SessionId) -> Option<Compactions> {
        self.rows.get(id).map(|row| row.compactions())
    }

    /// Counts and lists a session until the result is dropped, also if its actor panics.
    pub(super) fn enter(&self, id: SessionId, row: Arc<Row>) -> Entered {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.rows.insert(id.clone(), row.clone());
        Entered { open: self.clone(), row, id }
    }
}

/// A locked slot. When it is dropped, the slot of a session that has left memory is removed, so that there are as many
/// slots as open sessions, not as many as ever existed.
pub(super) struct Slot {
    id: SessionId,
    slots: Arc<Slots>,
    /// `None` only while the slot is dropped.
    handle: Option<OwnedMutexGuard<Option<SessionHandle>>>,
}

impl Slot {
    /// Returns the handle of the session, if it is open.
    pub(super) fn open(&self) -> Option<&SessionHandle> {
        self.handle.as_ref().and_then(|handle| handle.as_ref()).filter(|handle| !handle.is_gone())
    }

    /// Puts an open session into the slot.
    pub(super) fn put(&mut self, opened: SessionHandle) {
        if let Some(handle) = &mut self.handle {
            **handle = Some(opened);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        drop(self.handle.take());
        forget(&self.slots, &self.id);
    }
}

/// An open session's place in the count and the list.
pub(super) struct Entered {
    open: OpenSessions,
    row: Arc<Row>,
    id: SessionId,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.open.count.fetch_sub(1, Ordering::Relaxed);
        // The session may have been opened again in the meantime.
        self.open.rows.remove_if(&self.id, |_, row| Arc::ptr_eq(row, &self.row));
        forget(&self.open.slots, &self.id);
    }
}

/// Removes the slot of a session that has left memory, unless it is about to be opened again.
fn forget(slots: &Slots, id: &SessionId) {
    slots.remove_if(id, |_, slot| match slot.try_lock() {
        Ok(handle) => Arc::strong_count(slot) == 1 && handle.as_ref().is_none_or(SessionHandle::is_gone),
        Err(_) => false,
    });
}
