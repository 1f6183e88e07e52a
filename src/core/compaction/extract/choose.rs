//! Chooses the items of a summary that stay when there is no room for all.

use super::fact::Weight;
use crate::core::text::{clip::prefix, slot::Slot};
use std::collections::{BTreeMap, btree_map};

/// An item is truncated to fit its section, instead of dropped, if at least this many characters remain.
const ITEM_CHARS_MIN: usize = 24;

/// Each section's share of the room in percent; unused room goes to the others in this order.
const SHARES: [(Slot, usize); 9] = [
    (Slot::Context, 42),
    (Slot::Constraints, 14),
    (Slot::Decisions, 10),
    (Slot::Goal, 12),
    (Slot::Done, 8),
    (Slot::NextSteps, 6),
    (Slot::Blocked, 4),
    (Slot::InProgress, 4),
    // Restored facts go into Critical Context.
    (Slot::Restored, 0),
];

/// A line of a summary.
pub(super) struct SummaryItem {
    /// Its text, on one line.
    pub(super) text: String,
    /// Its weight.
    pub(super) weight: Weight,
}

impl SummaryItem {
    /// Returns the characters of its line.
    fn cost(&self) -> usize {
        self.text.chars().count() + "\n- ".len()
    }
}

/// Distributes the room, in characters, among the sections.
pub(super) fn rooms(places: &BTreeMap<Slot, Vec<SummaryItem>>, room: usize) -> BTreeMap<Slot, usize> {
    let need = |slot: Slot| places[&slot].iter().map(SummaryItem::cost).sum::<usize>();
    let share = |percent: usize| room.saturating_mul(percent) / 100;
    let mut rooms: BTreeMap<Slot, usize> =
        SHARES.into_iter().map(|(slot, percent)| (slot, share(percent).min(need(slot)))).collect();
    let mut left = room.saturating_sub(rooms.values().sum());
    for (slot, _) in SHARES {
        if let btree_map::Entry::Occupied(mut given) = rooms.entry(slot) {
            let more = (need(slot) - given.get()).min(left);
            *given.get_mut() += more;
            left -= more;
        }
    }
    rooms
}

/// Returns the items that fit, in their order. The heaviest are chosen first; among equals the oldest and the newest
/// alternate.
pub(super) fn chosen(items: Vec<SummaryItem>, room: usize) -> Vec<String> {
    let mut by_weight: BTreeMap<Weight, Vec<usize>> = BTreeMap::new();
    for (at, item) in items.iter().enumerate() {
        by_weight.entry(item.weight).or_default().push(at);
    }
    let mut left = room;
    let mut kept: BTreeMap<usize, String> = BTreeMap::new();
    for equals in by_weight.into_values().rev() {
        for turn in 0..equals.len() {
            let at = if turn % 2 == 0 { equals[turn / 2] } else { equals[equals.len() - 1 - turn / 2] };
            let cost = items[at].cost();
            if cost <= left {
                left -= cost;
                kept.insert(at, items[at].text.clone());
            } else if kept.is_empty() && left >= ITEM_CHARS_MIN {
                let text = prefix(&items[at].text, left - "\n- …".chars().count());
                kept.insert(at, format!("{text}…"));
                left = 0;
            }
        }
    }
    kept.into_values().collect()
}
