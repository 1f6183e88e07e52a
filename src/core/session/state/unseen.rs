//! Changes that no entry shows. They are remembered until the answers after them, so that a receipt can explain them
//! even after a restart.

use reseed_protocol::EntryData;
use serde::{Deserialize, Serialize};

/// A change that may show in the next request, but in no entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnseenChange {
    /// The change.
    pub what: Unseen,
    /// True if the next answer shows the change. If a change happens in a running turn, the next answer's request may
    /// have been sent before it, so the change is kept until the answer after that.
    pub answered: bool,
}

/// The kinds of changes that no entry shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Unseen {
    /// The pinned entries.
    Pins,
    /// The strategy changed to the one with this name.
    Strategy(String),
    /// The session moved to another point of its tree. The newest answer on its path may be older than a change that
    /// was already shown by answers on the abandoned branch.
    Navigation,
}

/// Remembers a change, made during a turn or between turns. Only the newest of each kind is kept, so there are at most
/// three.
pub(super) fn changed(unseen: &mut Vec<UnseenChange>, what: Unseen, in_turn: bool) {
    unseen.retain(|change| std::mem::discriminant(&change.what) != std::mem::discriminant(&what));
    unseen.push(UnseenChange { what, answered: !in_turn });
}

/// Forgets the changes that the newest answers have shown, after an entry is appended.
pub(super) fn answered(unseen: &mut Vec<UnseenChange>, appended: &EntryData) {
    if !matches!(appended, EntryData::Message(message) if message.receipt.is_some()) {
        return;
    }
    unseen.retain(|change| !change.answered);
    unseen.iter_mut().for_each(|change| change.answered = true);
}

#[cfg(test)]
mod tests {
    use super::super::SessionState;
    use super::*;
    use crate::context::{counter::Counter, testing::path};
    use reseed_protocol::{event::Event, session::SessionUpdated, tree::EntryAppended, turn::TurnStarted};
    use std::sync::Arc;

    #[test]
    fn a_change_without_an_entry_is_remembered_until_an_answer_shows_it() {
        let updated = |change: fn(&mut SessionUpdated)| {
            let mut updated = SessionUpdated::default();
            change(&mut updated);
            Event::SessionUpdated(Box::new(updated))
        };
        let (pins, manual) = (
            updated(|updated| updated.pins = Some(Vec::new())),
            updated(|updated| updated.strategy = Some("manual".to_owned())),
        );
        let said = |receipt| {
            let mut entry = path(&["a:assistant yes"], &Counter::for_model("test"))[0].entry.clone();
            let EntryData::Message(message) = &mut entry.data else { panic!("another entry") };
            Arc::make_mut(message).receipt = receipt;
            Event::EntryAppended(Box::new(EntryAppended { entry, turn_id: None, command_id: None }))
        };
        let (answer, copied) = (said(Some(Box::default())), said(None));
        let strategy = || Unseen::Strategy("manual".to_owned());
        let moved = &updated(|updated| updated.leaf_id = Some(Some("b".parse().unwrap())));
        let turn =
            &Event::TurnStarted(TurnStarted { turn_id: "t".parse().unwrap(), command_ids: Vec::new(), generation: 1 });
        let table: [(&[&Event], &[Unseen]); 10] = [
            (&[&pins], &[Unseen::Pins]),
            (&[&pins, &pins], &[Unseen::Pins]),
            (&[&manual, &pins], &[strategy(), Unseen::Pins]),
            (&[&manual, &manual, &copied, &copied], &[strategy()]),
            (&[&pins, &answer], &[]),
            (&[turn, &pins, &answer], &[Unseen::Pins]),
            (&[turn, &pins, &answer, &manual, &answer], &[strategy()]),
            (&[turn, &pins, &answer, &answer], &[]),
            (&[moved, &answer], &[]),
            (&[&pins, &copied, moved], &[Unseen::Pins, Unseen::Navigation]),
        ];
        for (events, expected) in table {
            let mut state = SessionState { strategy: "threshold".to_owned(), ..SessionState::default() };
            for event in events {
                let mut event = (*event).clone();
                if let Event::EntryAppended(appended) = &mut event {
                    appended.entry.parent_id.clone_from(&state.leaf);
                }
                state.apply(&event);
            }
            let unseen: Vec<Unseen> = state.unseen.iter().map(|change| change.what.clone()).collect();
            assert_eq!(unseen, expected, "{events:?}");
        }
    }
}
