//! The queue: inputs that arrive while a turn is running, in order, durable and visible to clients.
//!
//! Each input is added by one record and removed by one, which states the reason; neither repeats another input.
//!
//! Steered items come before the others. They go with the next request of the running turn; if the turn ends without
//! another request, they start the next turns. Input sent while the session is moving is meant for the move's
//! destination. If the move fails, the input stays queued until another move succeeds or someone edits the queue.

use crate::agent_loop::{io::Caller, ledger::Ledger, records::done, roster::Roster, step::Step};
use crate::session::{Queued, input::is_message};
use reseed_protocol::{
    CommandId, EntryData, EntryId, ErrorBody, ErrorCode, Message, Part, Role, TurnId,
    event::Event,
    reply::Reply,
    tree::{CustomMessage, EntryAppended},
    turn::{
        EditQueue, QueueItem, QueueItemAdded, QueueItemRemoved, QueueReleased, QueueRemovalReason, QueueReordered,
        QueuedCustom,
    },
};
use std::collections::BTreeSet;

/// Maximum total bytes of a session's queue. It is held in memory, and `session_opened` carries all of it.
const QUEUE_BYTES_MAX: usize = 4 * 1024 * 1024;

fn part_bytes(part: &Part) -> usize {
    match part {
        Part::Text { text } => text.len(),
        Part::Image { url, .. } => url.len(),
        // Users cannot send these parts.
        Part::Reasoning { .. } | Part::ToolCall { .. } | Part::ToolResult { .. } => 0,
    }
}

/// Returns the event for a queued input that this entry now holds.
fn removed(reason: QueueRemovalReason, appended: &EntryAppended) -> Event {
    Event::QueueItemRemoved(QueueItemRemoved {
        command_id: appended.command_id.clone().expect("an entry of a queued input names its command"),
        reason,
        turn_id: appended.turn_id.clone(),
        entry_id: Some(appended.entry.entry_id.clone()),
        cancelled_by: None,
    })
}

fn not_queued(id: &CommandId, field: &str) -> ErrorBody {
    ErrorBody::new(ErrorCode::NotQueued, format!("no input `{id}` is waiting")).with_field(field)
}

fn leaf_moved(what: String) -> ErrorBody {
    ErrorBody::new(ErrorCode::LeafMoved, format!("{what}; look at it, then send the input again")).with_field("ifLeaf")
}

/// Queues an item: a steered one after the other steered items, any other one at the end.
pub(crate) fn enqueue(
    ledger: &mut Ledger,
    roster: &mut Roster,
    caller: &Caller,
    item: QueueItem,
    reply: Reply,
) -> Result<(), ErrorBody> {
    let queue = &ledger.state().queue;
    let max = ledger.deployment.queue_items_max;
    if queue.len() >= max {
        let message = format!("the queue is full ({max} inputs)");
        return Err(ErrorBody::new(ErrorCode::QueueFull, message));
    }
    let position = if item.steer { queue.iter().take_while(|item| item.steer).count() } else { queue.len() };
    let parts = queue.iter().flat_map(|item| &item.content).chain(&item.content);
    let bytes: usize = parts.map(part_bytes).sum();
    if bytes > QUEUE_BYTES_MAX {
        let message = format!("the queued inputs would have {bytes} bytes in total; the limit is {QUEUE_BYTES_MAX}");
        return Err(ErrorBody::new(ErrorCode::QueueFull, message));
    }
    let added = QueueItemAdded { position: position as u64, item };
    let events = vec![Event::QueueItemAdded(Box::new(added))];
    ledger.append_work(events, roster.hooks_to_keep(ledger.state()), vec![caller.mark(reply)]);
    Ok(())
}

/// Removes and reorders queued inputs. Inputs that wait for a move (`is_moving`) keep waiting for it.
pub(crate) fn edit_queue(
    ledger: &mut Ledger,
    caller: &Caller,
    edit: EditQueue,
    is_moving: bool,
) -> Result<(), ErrorBody> {
    let mut items: Vec<&QueueItem> = ledger.state().queue.iter().map(Queued::item).collect();
    let mut events = Vec::new();
    for id in edit.remove.iter().flatten() {
        let at = items.iter().position(|item| item.command_id == *id).ok_or_else(|| not_queued(id, "remove"))?;
        items.remove(at);
        events.push(Event::QueueItemRemoved(QueueItemRemoved {
            command_id: id.clone(),
            reason: QueueRemovalReason::Cancelled,
            turn_id: None,
            entry_id: None,
            cancelled_by: Some(caller.id.clone()),
        }));
    }
    if let Some(order) = edit.order {
        let wanted: BTreeSet<_> = order.iter().collect();
        if wanted.len() != order.len() || order.len() != items.len() {
            let message = format!("`order` names {} inputs, {} are waiting; name each once", order.len(), items.len());
            return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("order"));
        }
        let before = items.clone();
        let mut ordered = Vec::with_capacity(items.len());
        for id in &order {
            let at = items.iter().position(|item| item.command_id == *id).ok_or_else(|| not_queued(id, "order"))?;
            ordered.push(items.remove(at));
        }
        if !ordered.is_sorted_by_key(|item| !item.steer) {
            let message = "steered inputs must come before the others: they go with the running turn";
            return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("order"));
        }
        if ordered != before {
            let command_id = Some(caller.id.clone());
            events.push(Event::QueueReordered(QueueReordered { order, command_id }));
        }
        items = ordered;
    }
    // Inputs that waited for a failed move have been reviewed, so they no longer wait.
    if !is_moving && items.iter().any(|item| item.after.is_some()) {
        events.push(Event::QueueReleased(QueueReleased { command_id: Some(caller.id.clone()) }));
    }
    let mark = caller.mark(done(Some(ledger.state().seq)));
    ledger.append(events, vec![mark]);
    Ok(())
}

/// Refuses input whose sender has not seen the latest messages.
pub(crate) fn check_leaf(ledger: &Ledger, expected: Option<&EntryId>) -> Result<(), ErrorBody> {
    let path = ledger.path();
    let said_since = match expected {
        None => path,
        Some(expected) => match path.iter().rposition(|node| node.id() == expected) {
            Some(at) => &path[at + 1..],
            None => return Err(leaf_moved(format!("`{expected}` is not on the session's path"))),
        },
    };
    match said_since.iter().rev().find(|node| is_message(&node.entry)) {
        None => Ok(()),
        Some(node) => Err(leaf_moved(format!("message `{}` was appended meanwhile", node.id()))),
    }
}

/// Converts an item to an entry.
pub(crate) fn delivered(
    ledger: &mut Ledger,
    item: QueueItem,
    turn_id: Option<TurnId>,
    parent_id: Option<EntryId>,
) -> EntryAppended {
    let (entry_id, data) = match item.custom {
        None => {
            let entry_id = item.entry_id.unwrap_or_else(|| ledger.new_id());
            let details = item.details;
            (entry_id, EntryData::message(Message { details, ..Message::new(Role::User, item.content) }))
        }
        Some(QueuedCustom { entry_id, custom_type, display, details }) => {
            let content = item.content;
            (entry_id, EntryData::CustomMessage(CustomMessage { custom_type, content, display, details }))
        }
    };
    let mut entry = ledger.entry(entry_id, data);
    entry.parent_id = parent_id;
    EntryAppended { entry, turn_id, command_id: Some(item.command_id) }
}

/// Delivers steered items with the next request of the running turn.
pub(crate) fn deliver_steered(ledger: &mut Ledger) {
    let turn_id = ledger.turn_id();
    let due = ledger.state().queue.iter().filter(|item| item.steer && item.after.is_none()).count();
    deliver(ledger, turn_id, due);
}

/// Appends queued custom messages outside a turn, up to the first queued input.
pub(crate) fn deliver_custom(ledger: &mut Ledger) {
    let ready = ledger.state().queue.iter().filter(|item| item.after.is_none());
    let due = ready.take_while(|item| item.custom.is_some()).count();
    deliver(ledger, None, due);
}

/// Appends the first `due` items that do not wait for a move. One append writes the entries and the removals from the
/// queue, so that no item is in both or in neither.
fn deliver(ledger: &mut Ledger, turn_id: Option<TurnId>, due: usize) {
    let ready = ledger.state().queue.iter().filter(|item| item.after.is_none());
    let ready: Vec<QueueItem> = ready.take(due).map(|queued| queued.item().clone()).collect();
    if ready.is_empty() {
        return;
    }
    let reason = if turn_id.is_some() { QueueRemovalReason::Steered } else { QueueRemovalReason::Appended };
    let mut parent = ledger.state().leaf.clone();
    let mut entries = Vec::with_capacity(ready.len());
    for item in ready {
        let entry = delivered(ledger, item, turn_id.clone(), parent);
        parent = Some(entry.entry.entry_id.clone());
        entries.push(entry);
    }
    let removals: Vec<Event> = entries.iter().map(|entry| removed(reason, entry)).collect();
    let entries = entries.into_iter().map(|entry| Event::EntryAppended(Box::new(entry)));
    ledger.append(removals.into_iter().chain(entries).collect(), Vec::new());
}

/// Starts a turn on the first queued input that does not wait for a move, if there is one.
pub(crate) fn start_queued(ledger: &mut Ledger, roster: &mut Roster) {
    let mut queue = ledger.state().queue.iter();
    let Some(first) = queue.find(|item| item.after.is_none()).map(|queued| queued.item().clone()) else { return };
    let turn_id: TurnId = ledger.new_id();
    let command_id = first.command_id.clone();
    let entry = delivered(ledger, first, Some(turn_id.clone()), ledger.state().leaf.clone());
    let removal = removed(QueueRemovalReason::Started, &entry);
    let started = ledger.turn_started(turn_id, vec![command_id]);
    let events = vec![removal, Event::EntryAppended(Box::new(entry)), started];
    ledger.append_work(events, roster.hooks_to_keep(ledger.state()), Vec::new());
    ledger.then(Step::Proceed);
}
