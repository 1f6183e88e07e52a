//! Checks of the log by itself, and that a session follows from it.

use crate::history::History;
use reseed_protocol::{
    ApprovalId, CallId, CommandId, EntryId, TurnId,
    command::Command,
    event::Event,
    tools::{CallOutcome, CallResolved, ToolPlace},
    turn::{EditQueue, QueueItem, QueueItemRemoved, QueueRemovalReason},
};
use std::collections::HashSet;

/// A task that panics is a bug, even if the session is reopened and nobody notices.
pub(crate) fn nothing_panics(history: &History) -> Result<(), String> {
    history.panics.first().map_or(Ok(()), |panic| Err(panic.clone()))
}

/// The server starts a call once, over all restarts, and only one that the log has as its own: a call that a person
/// must allow is there only once they have.
pub(crate) fn server_tools_run_once(history: &History) -> Result<(), String> {
    let mut started: HashSet<&CallId> = HashSet::new();
    for call_id in &history.tools {
        if !started.insert(call_id) {
            return Err(format!("`{call_id}` is started twice"));
        }
        let made = history.events.iter().position(|event| {
            matches!(event, Event::ToolCall(call) if call.call_id == *call_id && call.place == ToolPlace::Server)
        });
        let Some(made) = made else { return Err(format!("`{call_id}` is started, and the log does not have it")) };
        let asked = history.events[..made].iter().find_map(|event| match event {
            Event::ApprovalRequest(approval) if approval.call_id == *call_id => Some(&approval.approval_id),
            _ => None,
        });
        let allowed = history.events[..made].iter().any(|event| {
            matches!(event, Event::CallResolved(CallResolved { approval_id, outcome: CallOutcome::Allowed, .. })
                if approval_id.as_ref() == asked)
        });
        if asked.is_some() && !allowed {
            return Err(format!("`{call_id}` is made before it is allowed"));
        }
    }
    Ok(())
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
    let mut approvals: HashSet<&ApprovalId> = HashSet::new();
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
            Event::TurnFinished(finished) if !approvals.is_empty() => {
                return Err(format!("turn `{}` ends at {seq} with open approvals: {approvals:?}", finished.turn_id));
            }
            Event::ApprovalRequest(approval) if open != Some(&approval.turn_id) => {
                return Err(format!("the approval at {seq} belongs to turn `{}`, which is not open", approval.turn_id));
            }
            Event::ApprovalRequest(approval) if !approvals.insert(&approval.approval_id) => {
                return Err(format!("approval `{}` is requested twice, at {seq} again", approval.approval_id));
            }
            Event::CallResolved(CallResolved { approval_id: Some(decided), .. }) if !approvals.remove(decided) => {
                return Err(format!("approval `{decided}` is decided at {seq} and is not open"));
            }
            Event::CallResolved(CallResolved { approval_id: Some(_), .. }) => {}
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

/// A queued input, by the log.
#[derive(Clone, Copy)]
struct Waiting<'a> {
    item: &'a QueueItem,
    /// True while it waits for a move.
    is_held: bool,
}

/// Applies an event of the queue. Other events change nothing.
fn change<'a>(queue: &mut Vec<Waiting<'a>>, event: &'a Event) {
    match event {
        Event::QueueItemAdded(added) => {
            let at = usize::try_from(added.position).unwrap_or(usize::MAX).min(queue.len());
            queue.insert(at, Waiting { item: &added.item, is_held: added.item.after.is_some() });
        }
        Event::QueueItemRemoved(removed) => queue.retain(|waiting| waiting.item.command_id != removed.command_id),
        Event::QueueReordered(reordered) => {
            queue.sort_by_key(|waiting| reordered.order.iter().position(|id| *id == waiting.item.command_id));
        }
        Event::QueueReleased(_) => queue.iter_mut().for_each(|waiting| waiting.is_held = false),
        _ => {}
    }
}

/// Returns the inputs that are queued at the end of the log.
pub(crate) fn queued(events: &[Event]) -> Vec<&QueueItem> {
    let mut queue = Vec::new();
    events.iter().for_each(|event| change(&mut queue, event));
    queue.into_iter().map(|waiting| waiting.item).collect()
}

/// Returns the inputs that clients removed from the queue.
pub(crate) fn taken_out(events: &[Event]) -> Vec<&CommandId> {
    let taken = events.iter().filter_map(|event| match event {
        Event::QueueItemRemoved(removed) if removed.reason == QueueRemovalReason::Cancelled => {
            Some(&removed.command_id)
        }
        _ => None,
    });
    taken.collect()
}

/// Queued inputs are sent in order: steered before queued, each first in, first out, unless a client edits the queue.
/// Each is added once and removed once, and the removal states the reason.
pub(crate) fn queue_keeps_its_order(history: &History) -> Result<(), String> {
    let mut queue: Vec<Waiting> = Vec::new();
    let mut seen: HashSet<&CommandId> = HashSet::new();
    for (seq, event) in (1..).zip(&history.events) {
        match event {
            Event::QueueItemAdded(added) => {
                let (id, position) = (&added.item.command_id, added.position);
                let steered = queue.iter().take_while(|waiting| waiting.item.steer).count();
                let due = if added.item.steer { steered } else { queue.len() };
                if position != due as u64 {
                    return Err(format!("`{id}` is queued at {seq} in position {position}, not {due}"));
                }
                if !seen.insert(id) {
                    return Err(format!("`{id}` is queued twice, at {seq} again"));
                }
            }
            Event::QueueItemRemoved(removed) => {
                let id = &removed.command_id;
                let Some(at) = queue.iter().position(|waiting| waiting.item.command_id == *id) else {
                    return Err(format!("`{id}` leaves the queue at {seq} and is not in it"));
                };
                if removed.reason == QueueRemovalReason::Cancelled {
                    cancelled_as_asked(history, removed).map_err(|why| format!("{why}, at {seq}"))?;
                } else {
                    // An item that waits for a move is overtaken; steered items overtake others.
                    let overtaken = |other: &Waiting| !other.is_held && (other.item.steer || !queue[at].item.steer);
                    if queue[at].is_held || queue[..at].iter().any(overtaken) {
                        return Err(format!("`{id}` is said after {seq}, before its turn"));
                    }
                    said_as_told(&history.events[seq..], removed).map_err(|why| format!("{why}, after {seq}"))?;
                }
            }
            Event::QueueReordered(reordered) => {
                let mut ids: Vec<&CommandId> = queue.iter().map(|waiting| &waiting.item.command_id).collect();
                let mut order: Vec<&CommandId> = reordered.order.iter().collect();
                if ids == order {
                    return Err(format!("the queue is reordered at {seq} and nothing has changed"));
                }
                let asked = edits(history, reordered.command_id.as_ref())
                    .any(|edit| edit.order.as_ref() == Some(&reordered.order));
                ids.sort();
                order.sort();
                if !asked || ids != order {
                    return Err(format!("the queue changes at {seq} to {:?}, which nobody asked for", reordered.order));
                }
            }
            Event::QueueReleased(_) if !queue.iter().any(|waiting| waiting.is_held) => {
                return Err(format!("the queue is released at {seq} and nothing has changed"));
            }
            _ => {}
        }
        change(&mut queue, event);
    }
    Ok(())
}

/// Returns the edits of the queue that were sent under this id.
fn edits<'a>(history: &'a History, id: Option<&'a CommandId>) -> impl Iterator<Item = &'a EditQueue> {
    history.sent.iter().filter_map(move |sent| match &sent.command {
        Command::EditQueue(edit) if Some(&sent.id) == id => Some(edit),
        _ => None,
    })
}

fn cancelled_as_asked(history: &History, removed: &QueueItemRemoved) -> Result<(), String> {
    let id = &removed.command_id;
    let asked =
        edits(history, removed.cancelled_by.as_ref()).any(|edit| edit.remove.iter().flatten().any(|it| it == id));
    if !asked || removed.entry_id.is_some() || removed.turn_id.is_some() {
        return Err(format!("{removed:?} is not what a client asked for"));
    }
    Ok(())
}

/// Checks that the entry that a removal names follows, in the turn that it names.
fn said_as_told(next: &[Event], removed: &QueueItemRemoved) -> Result<(), String> {
    let mut next = next.iter().skip_while(|event| matches!(event, Event::QueueItemRemoved(_)));
    let entry = next.find_map(|event| match event {
        Event::EntryAppended(appended) if Some(&appended.entry.entry_id) == removed.entry_id.as_ref() => Some(appended),
        _ => None,
    });
    let told = entry.is_some_and(|appended| {
        appended.command_id.as_ref() == Some(&removed.command_id) && appended.turn_id == removed.turn_id
    });
    let starts = match next.next() {
        Some(Event::TurnStarted(started)) => removed.turn_id.as_ref() == Some(&started.turn_id),
        _ => false,
    };
    let is_right = match removed.reason {
        QueueRemovalReason::Started => starts,
        QueueRemovalReason::Steered => !starts && removed.turn_id.is_some(),
        QueueRemovalReason::Appended | QueueRemovalReason::Cancelled => removed.turn_id.is_none(),
    };
    if told && is_right { Ok(()) } else { Err(format!("{removed:?} is not what came of it")) }
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
