//! The queue, folded from its events. The stored state references the records of the queued inputs instead of repeating
//! them, so an append with a full queue writes only what it adds.

use reseed_protocol::{
    CommandId,
    event::Event,
    turn::{QueueItem, QueueReordered},
};
use serde::{Deserialize, Serialize, Serializer};
use std::{ops::Deref, sync::Arc};

/// A queued input, and its location in the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Queued {
    at: QueuedAt,
    item: Arc<QueueItem>,
}

/// The location of a queued input in the log; this is what the session's stored state contains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueuedAt {
    /// Sequence number of the record that holds it.
    pub seq: u64,
    /// Its index among the inputs of that record. It is above 0 only in records of older versions, which hold a whole
    /// queue.
    #[serde(default, skip_serializing_if = "is_zero")]
    index: usize,
    /// True if it was sent during a move and no longer waits for one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    released: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(index: &usize) -> bool {
    *index == 0
}

impl Deref for Queued {
    type Target = QueueItem;

    fn deref(&self) -> &QueueItem {
        &self.item
    }
}

impl Queued {
    /// Returns the input.
    #[must_use]
    pub fn item(&self) -> &QueueItem {
        &self.item
    }

    fn new(seq: u64, index: usize, item: QueueItem) -> Self {
        Self { at: QueuedAt { seq, index, released: false }, item: Arc::new(item) }
    }

    /// Reads a queued input back from its record; `None` if the record does not hold it.
    #[must_use]
    pub fn read_back(at: QueuedAt, record: &Event) -> Option<Self> {
        let mut item = match record {
            Event::QueueItemAdded(added) if at.index == 0 => added.item.clone(),
            Event::QueueChanged(changed) => changed.items.get(at.index)?.clone(),
            _ => return None,
        };
        if at.released {
            item.after = None;
        }
        Some(Self { at, item: Arc::new(item) })
    }

    fn release(&mut self) {
        if self.item.after.is_some() {
            Arc::make_mut(&mut self.item).after = None;
            self.at.released = true;
        }
    }
}

/// Applies an event of the queue, stored at `seq`. Other events change nothing.
pub(super) fn apply(queue: &mut Vec<Queued>, seq: u64, event: &Event) {
    match event {
        Event::QueueItemAdded(added) => {
            let position = usize::try_from(added.position).unwrap_or(usize::MAX).min(queue.len());
            queue.insert(position, Queued::new(seq, 0, added.item.clone()));
        }
        Event::QueueItemRemoved(removed) => queue.retain(|item| item.command_id != removed.command_id),
        Event::QueueReordered(QueueReordered { order, .. }) => {
            let place = |id: &CommandId| order.iter().position(|other| other == id).unwrap_or(order.len());
            queue.sort_by_key(|item| place(&item.command_id));
        }
        Event::QueueReleased(_) => queue.iter_mut().for_each(Queued::release),
        Event::QueueChanged(changed) => {
            let items = changed.items.iter().cloned().enumerate();
            *queue = items.map(|(index, item)| Queued::new(seq, index, item)).collect();
        }
        _ => {}
    }
}

/// Serialises the location of each queued input in the log.
pub(super) fn refer<S: Serializer>(queue: &[Queued], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(queue.iter().map(|item| &item.at))
}

#[cfg(test)]
mod tests;
