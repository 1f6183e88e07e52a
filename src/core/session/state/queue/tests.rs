//! Tests of the queue: folded from its records, and read back from the stored copy.

use super::super::{STATE_BYTES_MAX, SessionState, StoredState};
use super::*;
use fastrand::Rng;
use reseed_protocol::{
    Part,
    turn::{QueueChanged, QueueItemAdded, QueueItemRemoved, QueueReleased, QueueRemovalReason},
};

const FULL: usize = 32;

fn item(n: usize, text: String) -> QueueItem {
    QueueItem {
        command_id: format!("command-{n:08}").parse().unwrap(),
        content: vec![Part::Text { text }],
        steer: false,
        custom: None,
        after: None,
        entry_id: None,
        details: None,
    }
}

fn added(position: usize, item: QueueItem) -> Event {
    Event::QueueItemAdded(Box::new(QueueItemAdded { position: position as u64, item }))
}

fn removed(command_id: CommandId) -> Event {
    let (reason, turn_id, entry_id, cancelled_by) = (QueueRemovalReason::Cancelled, None, None, None);
    Event::QueueItemRemoved(QueueItemRemoved { command_id, reason, turn_id, entry_id, cancelled_by })
}

fn fold(log: &[Event]) -> SessionState {
    let mut state = SessionState::default();
    log.iter().for_each(|event| state.apply(event));
    state
}

/// Returns the state as it is read back from its stored copy and the log.
fn read_back(state: &SessionState, log: &[Event]) -> SessionState {
    let stored = StoredState::read(&serde_json::to_string(state).unwrap()).unwrap();
    let record = |at: &QueuedAt| &log[usize::try_from(at.seq).unwrap() - 1];
    let queue = stored.queue().iter().map(|at| Queued::read_back(at.clone(), record(at)).unwrap()).collect();
    stored.with_queue(queue)
}

#[test]
fn the_stored_state_of_a_full_queue_is_small_whatever_the_inputs_hold() {
    let log: Vec<Event> = (0..FULL).map(|n| added(n, item(n, "x".repeat(1024 * 1024)))).collect();
    let state = fold(&log);
    let stored = serde_json::to_string(&state).unwrap();
    assert!(stored.len() < STATE_BYTES_MAX, "{} bytes: {stored}", stored.len());
    assert_eq!(state.queue.len(), FULL);
    assert_eq!(read_back(&state, &log), state);
}

#[test]
fn a_queue_is_read_back_from_its_records_whatever_happened_to_it() {
    let (mut reordered, mut released, mut whole) = (0, 0, 0);
    for seed in 0..200 {
        let mut rng = Rng::with_seed(seed);
        let mut log: Vec<Event> = Vec::new();
        let mut expected: Vec<QueueItem> = Vec::new();
        for n in 0..40 {
            let ids: Vec<CommandId> = expected.iter().map(|item| item.command_id.clone()).collect();
            log.push(match rng.u8(..8) {
                0 if !ids.is_empty() => {
                    let gone = expected.remove(rng.usize(..expected.len()));
                    removed(gone.command_id)
                }
                1 => {
                    let mut order = ids;
                    rng.shuffle(&mut order);
                    let place = |item: &QueueItem| order.iter().position(|id| *id == item.command_id);
                    expected.sort_by_key(place);
                    reordered += 1;
                    Event::QueueReordered(QueueReordered { order, command_id: None })
                }
                2 => {
                    expected.iter_mut().for_each(|item| item.after = None);
                    released += 1;
                    Event::QueueReleased(QueueReleased { command_id: None })
                }
                // Older versions stored it like this.
                3 => {
                    expected.truncate(rng.usize(..5));
                    expected.push(item(n, format!("old {n}")));
                    whole += 1;
                    Event::QueueChanged(QueueChanged { items: expected.clone() })
                }
                _ => {
                    let at = rng.usize(..=expected.len());
                    let after = rng.bool().then(|| "the-move-00000001".parse().unwrap());
                    let new = QueueItem { after, ..item(n, format!("new {n}")) };
                    expected.insert(at, new.clone());
                    added(at, new)
                }
            });
            let state = fold(&log);
            let queue: Vec<QueueItem> = state.queue.iter().map(|queued| queued.item().clone()).collect();
            assert_eq!(queue, expected, "seed {seed}: {:?}", log.last());
            assert_eq!(read_back(&state, &log), state, "seed {seed}: {:?}", log.last());
        }
    }
    assert!(reordered > 100 && released > 100 && whole > 100);
}

#[test]
fn a_record_that_does_not_hold_the_input_is_noticed() {
    let at = |index| QueuedAt { seq: 1, index, released: false };
    let (one, none) = (added(0, item(0, "one".into())), removed("command-00000000".parse().unwrap()));
    let whole = Event::QueueChanged(QueueChanged { items: vec![item(0, "one".into())] });
    for (at, record, holds) in [
        (at(0), &one, true),
        (at(1), &one, false),
        (at(0), &none, false),
        (at(0), &whole, true),
        (at(1), &whole, false),
    ] {
        assert_eq!(Queued::read_back(at.clone(), record).is_some(), holds, "{at:?} {record:?}");
    }
}

#[test]
fn a_copy_of_another_version_is_not_read() {
    let stored = serde_json::to_value(SessionState::default()).unwrap();
    let mut older = stored.clone();
    older["version"] = 5.into();
    let mut torn = stored.clone();
    torn.as_object_mut().unwrap().remove("queue");
    for (json, reads) in
        [(stored.to_string(), true), (older.to_string(), false), (torn.to_string(), false), (String::new(), false)]
    {
        assert_eq!(StoredState::read(&json).is_some(), reads, "{json}");
    }
}
