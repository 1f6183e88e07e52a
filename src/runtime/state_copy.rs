//! The copy of a session's state that is stored with its log, and when it is stored.
//!
//! Invariant: the size of what one append stores besides its own records is bounded. A small copy is stored with every
//! append, so that a session is opened without reading its log. A large one (long instructions, many pins) is stored at
//! the end of a turn. The records after it are applied when the session is opened.

use super::{load::stored_state, stored_calibration::StoredCalibration};
use crate::core::{
    context::counter::Calibration,
    session::{
        SessionState,
        state::{STATE_BYTES_MAX, UNSTORED_RECORDS_MAX},
    },
};
use reseed_protocol::event::Event;
use std::sync::Arc;

/// The fold of the records that the store has acknowledged.
pub(super) struct StateCopy {
    state: Arc<SessionState>,
    /// The sequence number up to which the stored copy reaches.
    stored_seq: u64,
    /// The calibration of the session's model; `None` before anything is learned.
    learnt: Option<Learnt>,
}

/// A calibration and its model.
struct Learnt {
    model: String,
    calibration: Calibration,
}

impl StateCopy {
    /// Returns the copy of a session that was created or loaded; `stored_seq` is 0 if nothing usable is stored.
    pub(super) fn new(state: Arc<SessionState>, stored_seq: u64) -> Self {
        Self { state, stored_seq, learnt: None }
    }

    pub(super) fn state(&self) -> &SessionState {
        &self.state
    }

    /// Applies an event that is about to be appended.
    pub(super) fn apply(&mut self, event: &Event) {
        Arc::make_mut(&mut self.state).apply(event);
    }

    /// Returns the calibration of the session's model.
    pub(super) fn calibration(&self) -> Option<&Calibration> {
        self.learnt.as_ref().filter(|learnt| learnt.model == self.state.model).map(|learnt| &learnt.calibration)
    }

    /// Takes a new calibration of the session's model, which is stored with the next append.
    pub(super) fn calibrate(&mut self, calibration: Calibration) {
        let model = self.state.model.clone();
        self.learnt = (calibration.reports() > 0).then_some(Learnt { model, calibration });
    }

    /// Shares the loop's state if both have applied the same events. This saves an idle session a second copy.
    pub(super) fn share(&mut self, state: &Arc<SessionState>) {
        if !Arc::ptr_eq(&self.state, state) && self.state == *state {
            self.state = state.clone();
        }
    }

    /// Returns what to store with these applied events; `None` leaves the stored copy unchanged.
    pub(super) fn take_due(&mut self, events: &[Event]) -> Option<Arc<str>> {
        if events.is_empty() {
            return None;
        }
        let ends_turn = events.iter().any(|event| matches!(event, Event::TurnFinished(_)));
        let is_due = ends_turn || self.state.seq - self.stored_seq >= UNSTORED_RECORDS_MAX;
        let learnt = self.calibration().and_then(|known| StoredCalibration::of(&self.state.model, known));
        let copy = stored_state(&self.state, learnt.as_ref());
        let of_state = copy.len() - learnt.as_ref().map_or(0, StoredCalibration::bytes);
        if !is_due && of_state >= STATE_BYTES_MAX {
            return None;
        }
        self.stored_seq = self.state.seq;
        Some(copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reseed_protocol::{
        session::{SessionSettings, SessionUpdated},
        turn::TurnFinished,
    };

    fn renamed(name: &str) -> Event {
        Event::SessionUpdated(Box::new(SessionUpdated { name: Some(name.into()), ..SessionUpdated::default() }))
    }

    fn instructed(bytes: usize) -> Event {
        let settings = SessionSettings { instructions: Some("x".repeat(bytes)), ..SessionSettings::default() };
        Event::SessionUpdated(Box::new(SessionUpdated { settings: Some(settings), ..SessionUpdated::default() }))
    }

    fn turn_finished() -> Event {
        let example = include_str!("../../protocol/examples/v2/events/turn_finished.json");
        let frame: serde_json::Value = serde_json::from_str(example).expect("an example is JSON");
        let finished: TurnFinished = serde_json::from_value(frame["payload"].clone()).expect("the end of a turn");
        Event::TurnFinished(Box::new(finished))
    }

    /// Appends these events one by one. Returns the appends that stored a copy, by `seq`.
    fn stored(copy: &mut StateCopy, events: &[Event]) -> Vec<u64> {
        let mut stored = Vec::new();
        for event in events {
            copy.apply(event);
            if copy.take_due(std::slice::from_ref(event)).is_some() {
                stored.push(copy.state().seq);
            }
        }
        stored
    }

    #[test]
    fn a_small_copy_is_stored_with_every_append_and_a_large_one_at_the_end_of_a_turn() {
        let table: [(Vec<Event>, &[u64]); 5] = [
            (vec![renamed("a"), renamed("b"), turn_finished()], &[1, 2, 3]),
            (vec![renamed("a"), instructed(10_000), renamed("b")], &[1]),
            (vec![renamed("a"), instructed(10_000), turn_finished(), renamed("b")], &[1, 3]),
            (vec![instructed(10_000), renamed("b"), instructed(10), renamed("c")], &[3, 4]),
            (vec![instructed(STATE_BYTES_MAX), turn_finished(), turn_finished()], &[2, 3]),
        ];
        for (events, expected) in table {
            let mut copy = StateCopy::new(Arc::default(), 0);
            assert_eq!(stored(&mut copy, &events), expected, "{events:?}");
            assert_eq!(copy.take_due(&[]), None, "nothing has changed");
        }
    }

    #[test]
    fn the_copy_is_one_with_the_loops_state_while_the_two_are_equal() {
        let of_loop = Arc::new(SessionState::default());
        let mut copy = StateCopy::new(of_loop.clone(), 0);
        copy.apply(&renamed("a"));
        assert_eq!((of_loop.name.as_str(), copy.state().name.as_str()), ("", "a"), "each changes its own");
        copy.share(&of_loop);
        assert_eq!(copy.state().name, "a", "the loop is behind");

        let mut of_loop = of_loop;
        Arc::make_mut(&mut of_loop).apply(&renamed("a"));
        copy.share(&of_loop);
        assert!(std::ptr::eq(copy.state(), &raw const *of_loop));
    }

    #[test]
    fn a_large_copy_is_stored_before_too_many_records_follow_the_stored_one() {
        let mut copy = StateCopy::new(Arc::default(), 0);
        let mut events = vec![renamed("a"), instructed(10_000)];
        events.extend((0..2_500).map(|n| renamed(&n.to_string())));
        assert_eq!(stored(&mut copy, &events), [1, 1 + UNSTORED_RECORDS_MAX, 1 + 2 * UNSTORED_RECORDS_MAX]);
        // This session was folded anew, because its copy was of another version.
        let state = SessionState { seq: 5_000, ..SessionState::default() };
        let mut copy = StateCopy::new(state.into(), 0);
        assert_eq!(stored(&mut copy, &[instructed(10_000), renamed("a")]), [5_001]);
    }
}
