//! The part of the fold about queued inputs. Each input is added once and removed once.

use super::Snapshot;
use reseed_protocol::turn::{QueueItemAdded, QueueItemRemoved, QueueReordered};

impl Snapshot {
    /// Applies `queue_item_added`.
    pub(super) fn queue_item_added(&mut self, added: &QueueItemAdded) {
        let place = usize::try_from(added.position).unwrap_or(usize::MAX).min(self.queue.len());
        self.queue.insert(place, added.item.clone());
    }

    /// Applies `queue_item_removed`.
    pub(super) fn queue_item_removed(&mut self, removed: &QueueItemRemoved) {
        self.queue.retain(|item| item.command_id != removed.command_id);
    }

    /// Applies `queue_reordered`. An input that the order does not name comes first.
    pub(super) fn queue_reordered(&mut self, reordered: &QueueReordered) {
        self.queue.sort_by_cached_key(|item| reordered.order.iter().position(|id| *id == item.command_id));
    }

    /// Applies `queue_released`, after which no input waits for a move.
    pub(super) fn queue_released(&mut self) {
        for item in &mut self.queue {
            item.after = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Told, snapshot};
    use serde_json::{Value, json};

    /// Returns the id of the command with this number.
    fn command(number: u8) -> String {
        format!("{number:08}-5a1c-4d7e-9b30-2f6c8e41d7aa")
    }

    fn added(position: u64, number: u8) -> (&'static str, Value) {
        let item = json!({"commandId": command(number), "content": [], "after": command(9)});
        ("queue_item_added", json!({"position": position, "item": item}))
    }

    #[test]
    fn inputs_are_added_put_in_order_released_and_removed() {
        let mut told = Told::by(snapshot());
        for ((kind, payload), order) in [
            (added(0, 1), vec![1]),
            (added(0, 2), vec![2, 1]),
            (added(1, 3), vec![2, 3, 1]),
            (added(99, 4), vec![2, 3, 1, 4]),
            (("queue_reordered", json!({"order": [command(4), command(3), command(1)]})), vec![2, 4, 3, 1]),
            (("queue_item_removed", json!({"commandId": command(3), "reason": "started"})), vec![2, 4, 1]),
            (("queue_item_removed", json!({"commandId": command(7), "reason": "started"})), vec![2, 4, 1]),
        ] {
            told.durable(kind, payload);
            let ids: Vec<&str> = told.snapshot.queue.iter().map(|item| item.command_id.as_str()).collect();
            assert_eq!(ids, order.into_iter().map(command).collect::<Vec<_>>(), "after {kind}");
        }
        assert!(told.snapshot.queue.iter().all(|item| item.after.is_some()));
        told.durable("queue_released", json!({}));
        assert!(told.snapshot.queue.iter().all(|item| item.after.is_none()));
    }
}
