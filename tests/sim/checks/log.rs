//! Checks of the log by itself, and that a session follows from it.

use crate::history::History;
use reseed_protocol::{
    CallId, CommandId, EntryId, TurnId,
    command::Command,
    event::{Event, QueueChanged},
    reply::QueueItem,
};
use std::collections::HashSet;

/// A task that panics is a bug, even if the session is reopened and nobody notices.
pub(crate) fn nothing_panics(history: &History) -> Result<(), String> {
    history.panics.first().map_or(Ok(()), |panic| Err(panic.clone()))
}

/// The store returns what it accepted, and each record is an event.
pub(crate) fn what_was_written(history: &History) -> Result<(), String> {
    let written: Vec<&str> = history.written().iter().map(|record| &*record.body).collect();
    let log: Vec<&str> = history.log.iter().map(|record| &*record.body).collect();
    if written != log {
        return Err(format!("{} records were written, {} are read", written.len(), log.len()));
    }
    match history.events.len() {
        events if events == log.len() => Ok(()),
        events => Err(format!("of {} records {events} are events", log.len())),
    }
}

/// A parent is in the log before its child, an id identifies one entry, and the leaf is an entry.
pub(crate) fn tree_is_well_formed(history: &History) -> Result<(), String> {
    well_formed(&history.events)?;
    history.forks.iter().try_for_each(|(fork, events)| well_formed(events).map_err(|why| format!("fork {fork}: {why}")))
}

fn well_formed(events: &[Event]) -> Result<(), String> {
    let mut entries: HashSet<&EntryId> = HashSet::new();
    for (seq, event) in (1..).zip(events) {
        match event {
            Event::EntryAppended(appended) => {
                let (id, parent) = (&appended.entry.entry_id, appended.entry.parent_id.as_ref());
                if let Some(parent) = parent.filter(|parent| !entries.contains(parent)) {
                    return Err(format!("entry `{id}` at {seq} hangs from `{parent}`, which is not there"));
                }
                if !entries.insert(id) {
                    return Err(format!("entry `{id}` at {seq} is there already"));
                }
            }
            Event::SessionUpdated(updated) => {
                if let Some(leaf) = updated.leaf_id.iter().flatten().find(|leaf| !entries.contains(leaf)) {
                    return Err(format!("the leaf at {seq} is `{leaf}`, which is not there"));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Turns do not overlap, end once each, and none remains open. What belongs to a turn is within it, and each of its
/// calls is resolved once before it ends.
pub(crate) fn turns_end_once(history: &History) -> Result<(), String> {
    let mut seen: HashSet<&TurnId> = HashSet::new();
    let mut open: Option<&TurnId> = None;
    // The entry that a turn answers is just before its start.
    let mut asked: Option<&TurnId> = None;
    let mut calls: HashSet<&CallId> = HashSet::new();
    for (seq, event) in (1..).zip(&history.events) {
        match event {
            Event::TurnStarted(started) => {
                if let Some(open) = open {
                    return Err(format!("a turn begins at {seq} while `{open}` is open"));
                }
                if !seen.insert(&started.turn_id) {
                    return Err(format!("turn `{}` begins twice, at {seq} again", started.turn_id));
                }
                if let Some(asked) = asked.take().filter(|asked| **asked != started.turn_id) {
                    return Err(format!("turn `{asked}` was asked for and did not begin at {seq}"));
                }
                open = Some(&started.turn_id);
            }
            Event::TurnFinished(finished) if open.take() != Some(&finished.turn_id) => {
                return Err(format!("turn `{}` ends at {seq} and is not open", finished.turn_id));
            }
            Event::EntryAppended(appended) => {
                let Some(turn) = &appended.turn_id else { continue };
                match open {
                    Some(open) if open == turn => {}
                    None if asked.is_none() && !seen.contains(turn) => asked = Some(turn),
                    _ => return Err(format!("the entry at {seq} belongs to turn `{turn}`, which is not open")),
                }
            }
            Event::TurnFinished(finished) if !calls.is_empty() => {
                return Err(format!("turn `{}` ends at {seq} with open calls: {calls:?}", finished.turn_id));
            }
            Event::CallResolved(resolved) if !calls.remove(&resolved.call_id) => {
                return Err(format!("call `{}` is resolved at {seq} and is not open", resolved.call_id));
            }
            Event::ToolCall(call) if open != Some(&call.turn_id) => {
                return Err(format!("the call at {seq} belongs to turn `{}`, which is not open", call.turn_id));
            }
            Event::ToolCall(call) if !calls.insert(&call.call_id) => {
                return Err(format!("call `{}` is made twice, at {seq} again", call.call_id));
            }
            _ => {}
        }
    }
    match open.or(asked) {
        Some(open) if history.restless.is_none() => Err(format!("turn `{open}` never ended")),
        _ => Ok(()),
    }
}

/// A change of the queue.
enum Change<'a> {
    /// This item was queued.
    Added(&'a QueueItem),
    /// These items left the queue and were sent.
    Said(Vec<&'a QueueItem>),
    /// Inputs that waited for a move no longer wait for it.
    Released,
    /// A client removed items or reordered them.
    Edited { removed: Vec<&'a CommandId>, order: Vec<&'a CommandId> },
}

fn ids(items: &[QueueItem]) -> Vec<&CommandId> {
    items.iter().map(|item| &item.command_id).collect()
}

/// Returns the changes of the queue: the position in the log, the queue before and after, and the change.
fn changes(events: &[Event]) -> impl Iterator<Item = (usize, &[QueueItem], &[QueueItem], Change<'_>)> {
    let mut queue: &[QueueItem] = &[];
    (1..).zip(events).filter_map(move |(seq, event)| {
        let Event::QueueChanged(QueueChanged { items }) = event else { return None };
        let before = std::mem::replace(&mut queue, items);
        let (old, new) = (ids(before), ids(items));
        let gone: Vec<&QueueItem> = before.iter().filter(|item| !new.contains(&&item.command_id)).collect();
        let said = events[seq..].iter().map_while(|event| match event {
            Event::EntryAppended(appended) => appended.command_id.as_ref(),
            _ => None,
        });
        let added = items.iter().find(|item| !old.contains(&&item.command_id));
        let change = match added {
            Some(added) => Change::Added(added),
            None if old == new => Change::Released,
            None if !gone.is_empty() && said.take(gone.len()).eq(gone.iter().map(|item| &item.command_id)) => {
                Change::Said(gone)
            }
            None => Change::Edited { removed: gone.iter().map(|item| &item.command_id).collect(), order: new },
        };
        Some((seq, before, items.as_slice(), change))
    })
}

/// Returns the inputs that clients removed from the queue.
pub(crate) fn taken_out(events: &[Event]) -> Vec<&CommandId> {
    let edits = changes(events).filter_map(|(_, _, _, change)| match change {
        Change::Edited { removed, .. } => Some(removed),
        _ => None,
    });
    edits.flatten().collect()
}

/// Queued inputs are sent in order: steered before queued, each first in, first out, unless a client edits the queue.
pub(crate) fn queue_keeps_its_order(history: &History) -> Result<(), String> {
    for (seq, before, items, change) in changes(&history.events) {
        match change {
            Change::Added(item) => {
                let steered = before.iter().take_while(|item| item.steer).count();
                let mut due = ids(before);
                due.insert(if item.steer { steered } else { before.len() }, &item.command_id);
                if due != ids(items) {
                    return Err(format!("`{}` is put in line at {seq} where it does not belong", item.command_id));
                }
            }
            Change::Said(said) => {
                let left: Vec<&QueueItem> = before.iter().filter(|item| !said.contains(item)).collect();
                let place = |item: &QueueItem| before.iter().position(|other| other.command_id == item.command_id);
                // An item that waits for a move is overtaken; steered items overtake others.
                let longer = |item: &&QueueItem, other: &&&QueueItem| {
                    place(other) < place(item) && other.after.is_none() && (other.steer || !item.steer)
                };
                let overtaken = said.iter().find(|item| left.iter().any(|other| longer(item, &other)));
                if let Some(item) = overtaken.or(said.iter().find(|item| item.after.is_some())) {
                    return Err(format!("`{}` is said after {seq}, before its turn", item.command_id));
                }
                if ids(items) != left.iter().map(|item| &item.command_id).collect::<Vec<_>>() {
                    return Err(format!("the rest of the queue is in another order at {seq}"));
                }
            }
            Change::Released => {
                if items.iter().any(|item| item.after.is_some()) {
                    return Err(format!("the queue is written at {seq} and nothing has changed"));
                }
            }
            Change::Edited { removed, order } => {
                let asked = history.sent.iter().any(|sent| match &sent.command {
                    Command::EditQueue(edit) => {
                        let remove: Vec<&CommandId> = edit.remove.iter().flatten().collect();
                        let wanted: Option<Vec<&CommandId>> = edit.order.as_ref().map(|order| order.iter().collect());
                        remove.len() == removed.len()
                            && removed.iter().all(|id| remove.contains(id))
                            && wanted.is_none_or(|wanted| wanted == order)
                    }
                    _ => false,
                });
                if !asked {
                    return Err(format!(
                        "the queue changes at {seq} to {order:?} without {removed:?}, which nobody asked for"
                    ));
                }
            }
        }
    }
    Ok(())
}

/// A turn that a hook ended names the hook.
pub(crate) fn hooks_are_named(history: &History) -> Result<(), String> {
    for (seq, event) in (1..).zip(&history.events) {
        let Event::TurnFinished(finished) = event else { continue };
        let Some(error) = finished.error.as_ref().filter(|error| crate::is_of_hook(error.code)) else { continue };
        let named = error.details.as_ref().and_then(|details| details["hook"].as_str());
        if !named.is_some_and(|name| error.message.contains(&format!("the hook `{name}` at `"))) {
            return Err(format!("the turn that ends at {seq} names no hook: {error:?}"));
        }
    }
    Ok(())
}

/// One turn request at a time on each server, and one summary in parallel; only the newest writer writes; generations
/// grow by one.
pub(crate) fn one_live_loop(history: &History) -> Result<(), String> {
    if let Some(asked) = history.asked.iter().find(|asked| asked.overlaps) {
        let purpose = asked.request.purpose;
        return Err(format!("server {} asked twice at once for a {purpose:?}, as of {}", asked.node, asked.as_of));
    }
    for (seq, record) in (1..).zip(history.written()) {
        let (term, newest) = (record.term, record.newest_term);
        if term != newest {
            return Err(format!("server {} wrote record {seq} under term {term}, not {newest}", record.node));
        }
    }
    let mut generation = 0;
    for (seq, event) in (1..).zip(&history.events) {
        let (told, grows) = match event {
            Event::TurnStarted(started) => (Some(started.generation), false),
            Event::SessionUpdated(updated) => (updated.generation, true),
            Event::ContextCompacted(compacted) => (Some(compacted.generation), true),
            Event::CompactionUndone(undone) => (Some(undone.generation), true),
            _ => (None, false),
        };
        let Some(told) = told else { continue };
        let right = if grows { told == generation + 1 } else { told == generation };
        if !right {
            return Err(format!("the loop is of generation {told} at {seq}, after {generation}"));
        }
        generation = told;
    }
    Ok(())
}

/// Once faults stop, whatever was running ends.
pub(crate) fn comes_to_rest(history: &History) -> Result<(), String> {
    history.restless.clone().map_or(Ok(()), Err)
}

/// A new server reads the session from the log in the state in which the old one left it.
pub(crate) fn opened_as_it_was_left(history: &History) -> Result<(), String> {
    let Some((left, opened)) = &history.ends else { return Err("it could not be looked at".to_owned()) };
    // Counts are estimates, and a server that was up for a while estimates better.
    let mut opened = opened.clone();
    opened.context_info = left.context_info.clone();
    if let (Some(opened), Some(left)) = (&mut opened.held, &left.held) {
        (opened.tokens_before, opened.tokens_after) = (left.tokens_before, left.tokens_after);
    }
    if *left == opened { Ok(()) } else { Err(format!("left {left:?}, opened {opened:?}")) }
}
