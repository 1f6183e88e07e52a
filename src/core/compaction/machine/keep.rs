//! Pins, and undoing a compaction.

use crate::{
    agent_loop::{
        io::Caller,
        ledger::Ledger,
        records::{done, session_updated},
    },
    compaction::machine::{Compacting, Compactor, plan::Planner, plan::compaction_in},
};
use crate::{
    compaction::structure::Structure,
    context::node::Node,
    session::{Lookup, state::rest_after_undo},
};
use reseed_protocol::{
    EntryData, EntryId, ErrorBody, ErrorCode,
    compaction::{CompactionUndone, Pin, PinEntry, UndoCompaction},
    context::ContextInfo,
    event::Event,
};
use std::sync::Arc;

/// Maximum number of pinned entries in a session, because each is in every later request.
pub const PINS_MAX: usize = 200;

impl Compacting<'_> {
    /// Undoes a compaction. The session must be idle.
    pub(crate) fn on_undo_compaction(
        &mut self,
        caller: &Caller,
        undo: &UndoCompaction,
        lookup: Option<Lookup>,
    ) -> Result<(), ErrorBody> {
        let found = undo_target(self.ledger.path(), undo.entry_id.as_ref())?.clone();
        self.void_running("a compaction was undone");
        if let Some(tree) = lookup.and_then(Lookup::path) {
            self.ledger.session.tree = tree;
        }
        let pins = pins_without(&found, &self.ledger.state().pins, self.ledger.path());
        let mark = caller.mark(done(Some(self.ledger.state().seq)));
        let mut state = (*self.ledger.session.state).clone();
        state.undone.push(found.clone());
        self.ledger.session.tree.mark(&state);
        let undone = CompactionUndone {
            entry_id: found,
            command_id: Some(caller.id.clone()),
            generation: self.ledger.generation + 1,
            context_info: self.compaction.context_info_undone(self.planner()),
        };
        let mut events = Vec::new();
        if pins != self.ledger.state().pins {
            events.push(session_updated(|updated| updated.pins = Some(pins)));
        }
        events.push(Event::CompactionUndone(Box::new(undone)));
        self.ledger.append(events, vec![mark]);
        self.ledger.hand_over();
        Ok(())
    }
}

impl Compactor {
    /// Returns how full the window is after the undo, for the next generation. Automatic compaction is suspended until
    /// more is said.
    fn context_info_undone(&self, planner: Planner<'_>) -> ContextInfo {
        let info = self.context_info(planner);
        let rest = rest_after_undo(&info);
        let breaker = self.carried.breaker.state(planner.ledger.now, info.token_count, Some(rest));
        ContextInfo { generation: planner.ledger.generation + 1, breaker, ..info }
    }
}

/// Pins an entry and the entries of its unit.
pub(crate) fn pin(
    ledger: &mut Ledger,
    caller: &Caller,
    command: &PinEntry,
    lookup: Option<Lookup>,
) -> Result<(), ErrorBody> {
    let id = &command.entry_id;
    // The runtime read this tree to find an entry that is on the path but not visible: see `Lookup`.
    let under = compaction_in(ledger.path()).map(|(id, _)| id.clone()).filter(|_| lookup.is_some());
    let tree = lookup.and_then(Lookup::path);
    let path = tree.as_ref().unwrap_or(&ledger.session.tree).path();
    let node = path.iter().find(|node| node.id() == id);
    let node = node.ok_or_else(|| {
        let message = format!("entry `{id}` is not on the session's branch; navigate there first");
        ErrorBody::new(ErrorCode::InvalidField, message).with_field("entryId")
    })?;
    if !may_pin(node) {
        let message = format!("a {} is not something said, so there is nothing to keep", node.entry.type_name());
        return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("entryId"));
    }
    let mut pins = ledger.state().pins.clone();
    let unit = unit_of(path, id);
    // Entries of one unit are pinned through one of them, and unpinned together.
    let before = pins.iter().find(|pin| unit.contains(&pin.entry_id));
    let root = before.map_or(id, |pin| pin.with.as_ref().unwrap_or(&pin.entry_id)).clone();
    for entry_id in unit {
        let with = (entry_id != root).then(|| root.clone());
        if !pins.iter().any(|pin| pin.entry_id == entry_id) {
            pins.push(Pin { entry_id, with, under: under.clone() });
        }
    }
    if pins.len() > PINS_MAX {
        let message = format!("at most {PINS_MAX} entries may be pinned; this would make {}", pins.len());
        return Err(ErrorBody::new(ErrorCode::TooManyPins, message));
    }
    if let Some(mut tree) = tree {
        // The store's reader counted the path with the session's current model.
        tree.recount(ledger.counter());
        ledger.session.tree = tree;
    }
    ledger.update(caller, Vec::new(), |updated| updated.pins = Some(pins));
    Ok(())
}

/// Unpins an entry and the entries of its unit.
pub(crate) fn unpin(ledger: &mut Ledger, caller: &Caller, command: &PinEntry) -> Result<(), ErrorBody> {
    let id = &command.entry_id;
    let mut pins = ledger.state().pins.clone();
    let Some(found) = pins.iter().find(|pin| pin.entry_id == *id) else {
        let message = format!("entry `{id}` is not pinned");
        return Err(ErrorBody::new(ErrorCode::EntryNotFound, message).with_field("entryId"));
    };
    let pinned = found.with.clone().unwrap_or_else(|| id.clone());
    pins.retain(|pin| pin.entry_id != pinned && pin.with.as_ref() != Some(&pinned));
    ledger.update(caller, Vec::new(), |updated| updated.pins = Some(pins));
    Ok(())
}

/// Returns the compaction to undo: the named one, or the one in effect.
///
/// # Errors
/// `nothing_to_undo`.
pub fn undo_target<'a>(path: &'a [Arc<Node>], named: Option<&EntryId>) -> Result<&'a EntryId, ErrorBody> {
    let found = path.iter().rev().find(|node| node.compaction().is_some());
    match (found, named) {
        (Some(found), None) => Ok(found.id()),
        (Some(found), Some(named)) if found.id() == named => Ok(found.id()),
        (Some(found), Some(named)) => {
            let message = format!(
                "`{named}` is not the compaction in effect on this branch, `{}` is; compactions are undone \
                 newest first",
                found.id()
            );
            Err(ErrorBody::new(ErrorCode::NothingToUndo, message).with_field("entryId"))
        }
        (None, _) => Err(ErrorBody::new(ErrorCode::NothingToUndo, "no compaction is in effect on this branch")),
    }
}

/// Returns the pins after this compaction is undone. An entry that it had hidden when it was pinned may still be hidden
/// by the newest older compaction on this path, unless the entry follows that compaction.
#[must_use]
pub fn pins_without(undone: &EntryId, pins: &[Pin], path: &[Arc<Node>]) -> Vec<Pin> {
    let older = path.iter().rposition(|node| node.compaction().is_some() && node.id() != undone);
    let follows = |id: &EntryId, older: usize| path[older..].iter().any(|node| node.id() == id);
    let under = |id: &EntryId| older.filter(|older| !follows(id, *older)).map(|older| path[older].id().clone());
    let retarget = |pin: &Pin| match &pin.under {
        Some(was) if was == undone => Pin { under: under(&pin.entry_id), ..pin.clone() },
        _ => pin.clone(),
    };
    pins.iter().map(retarget).collect()
}

fn may_pin(node: &Node) -> bool {
    node.message.is_some() && !matches!(node.entry.data, EntryData::Compaction(_))
}

/// Returns the entries that stay or are removed together with this one: a call and all its results.
fn unit_of(path: &[Arc<Node>], id: &EntryId) -> Vec<EntryId> {
    let context = crate::context::build_context(path);
    let place = context.messages.iter().position(|counted| counted.entry_id.as_ref() == Some(id));
    let structure = Structure::of(&context);
    let unit = place.and_then(|at| structure.units.iter().find(|unit| unit.messages.contains(&at)));
    match unit {
        Some(unit) => {
            context.messages[unit.messages.clone()].iter().filter_map(|counted| counted.entry_id.clone()).collect()
        }
        None => vec![id.clone()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{counter::Counter, testing::path};

    #[test]
    fn a_pin_moves_to_an_older_compaction_only_if_that_one_hides_its_entry() {
        let lines = [
            "before:user a",
            "older:compaction SUMMARY first=kept",
            "kept:user b",
            "after:user c",
            "newest:compaction SUMMARY first=last",
            "last:user d",
        ];
        let id = |name: &str| -> EntryId { name.parse().unwrap() };
        let pin = |entry: &str, under: Option<&str>| Pin { entry_id: id(entry), with: None, under: under.map(id) };
        let path = path(&lines, &Counter::by_characters());
        let table = [
            (pin("before", Some("newest")), pin("before", Some("older"))),
            (pin("after", Some("newest")), pin("after", None)),
            (pin("before", Some("older")), pin("before", Some("older"))),
            (pin("last", None), pin("last", None)),
            // The entry was not read back, so it is hidden or on another branch.
            (pin("unread", Some("newest")), pin("unread", Some("older"))),
        ];
        for (before, expected) in table {
            assert_eq!(pins_without(&id("newest"), &[before], &path), [expected]);
        }
    }
}
