//! Tests which cause explains a divergence, and which events are causes.

use super::*;
use crate::context::{counter::Counter, testing::path};
use reseed_protocol::{
    EntryId,
    context::EphemeralChange,
    session::{SessionSettings, SessionUpdated},
    tree::EntryAppended,
};
use std::sync::Arc;

fn patch(ops: &[PatchOp]) -> Cause {
    let mut causes = Causes::default();
    causes.patch("redactor", ops, false);
    causes.noted.remove(0)
}

fn set(part: &str) -> PatchOp {
    PatchOp::SystemPartSet {
        part_name: part.to_owned(),
        text: "x".to_owned(),
        invalidate_cache_reason: " new policy ".to_owned(),
    }
}

fn edit() -> PatchOp {
    PatchOp::MessagesCachedEdit { edits: Vec::new(), invalidate_cache_reason: "a name".to_owned() }
}

fn tools() -> PatchOp {
    PatchOp::ToolsRemove { tool_names: Vec::new(), invalidate_cache_reason: "less".to_owned() }
}

#[test]
fn the_cause_must_be_able_to_change_the_part() {
    let message = || Divergence::Message(None);
    let system = |name: &str| Divergence::System(name.to_owned());
    let unknown = (BreakReason::Unknown, None);
    let reason = |reason| (reason, None);
    let detail = |reason, detail: &str| (reason, Some(detail.to_owned()));
    let by_patch = |detail: &str| (BreakReason::Patch, Some(format!("redactor: {detail}")));
    type Case = (Vec<Cause>, Divergence, (BreakReason, Option<String>));
    let table: Vec<Case> = vec![
        (vec![], message(), unknown.clone()),
        (vec![], Divergence::Tools, unknown.clone()),
        (vec![], system("base"), unknown.clone()),
        (vec![], Divergence::Uncached, reason(BreakReason::Uncached)),
        (vec![], Divergence::Model, detail(BreakReason::Model, "small")),
        (vec![Cause::Compaction], message(), reason(BreakReason::Compaction)),
        (vec![Cause::Tools, Cause::Compaction], Divergence::Tools, reason(BreakReason::Tools)),
        (vec![Cause::Tools], message(), unknown.clone()),
        (vec![Cause::Instructions(None)], message(), unknown.clone()),
        (vec![Cause::Instructions(None)], system("base"), reason(BreakReason::Instructions)),
        (vec![Cause::Instructions(None)], system("policy"), unknown.clone()),
        (vec![Cause::Instructions(Some("h".into()))], system("base"), detail(BreakReason::Instructions, "h")),
        (vec![patch(&[set("policy")])], system("policy"), by_patch("new policy")),
        (vec![patch(&[set("policy")])], system("base"), unknown.clone()),
        (vec![patch(&[edit()])], message(), by_patch("a name")),
        (vec![patch(&[edit()]), Cause::Compaction], message(), reason(BreakReason::Compaction)),
        (vec![patch(&[tools()]), Cause::Tools], Divergence::Tools, by_patch("less")),
        (vec![Cause::Navigation], system("policy"), reason(BreakReason::Navigation)),
        (vec![Cause::Strategy("truncate".into())], message(), detail(BreakReason::Strategy, "truncate")),
        (vec![Cause::Strategy("truncate".into())], Divergence::Tools, unknown.clone()),
        (vec![Cause::Strategy("a".into()), Cause::Pins], message(), reason(BreakReason::Pins)),
        (vec![Cause::Restart], message(), unknown.clone()),
        (vec![Cause::Restart], Divergence::Tools, reason(BreakReason::Tools)),
        (vec![Cause::Restart], system("base"), reason(BreakReason::Instructions)),
    ];
    for (noted, place, expected) in table {
        let causes = Causes { noted };
        assert_eq!(causes.of(&place, "small"), expected, "{causes:?} at {place:?}");
    }
}

#[test]
fn events_of_the_log_are_causes() {
    let path = path(&["a:user one", "b:assistant two", "c:compaction S first=b"], &Counter::for_model("test"));
    let state = SessionState { leaf: Some("b".parse().unwrap()), ..SessionState::default() };
    let appended = |parent: &str, at: usize| {
        let mut entry = path[at].entry.clone();
        entry.parent_id = Some(parent.parse().unwrap());
        Event::EntryAppended(Box::new(EntryAppended { entry, turn_id: None, command_id: None }))
    };
    let updated = |change: fn(&mut SessionUpdated)| {
        let mut updated = SessionUpdated::default();
        change(&mut updated);
        Event::SessionUpdated(Box::new(updated))
    };
    let same: fn(&mut SessionUpdated) = |updated| updated.leaf_id = Some(Some("b".parse().unwrap()));
    let table: Vec<(Event, Vec<Cause>)> = vec![
        (appended("b", 2), vec![Cause::Compaction]),
        (appended("b", 0), vec![]),
        (appended("a", 0), vec![Cause::Navigation]),
        (updated(|updated| updated.leaf_id = Some(None::<EntryId>)), vec![Cause::Navigation]),
        (updated(same), vec![]),
        (updated(|updated| updated.pins = Some(Vec::new())), vec![Cause::Pins]),
        (updated(|updated| updated.strategy = Some("manual".into())), vec![Cause::Strategy("manual".into())]),
        (updated(|updated| updated.name = Some("other".into())), vec![]),
        (updated(|updated| updated.settings = Some(SessionSettings::default())), vec![]),
        (
            updated(|updated| {
                let settings = SessionSettings { instructions: Some("Be brief.".into()), ..SessionSettings::default() };
                updated.settings = Some(settings);
            }),
            vec![Cause::Instructions(None)],
        ),
    ];
    for (event, expected) in table {
        let mut causes = Causes::default();
        causes.note(&event, &state);
        assert_eq!(causes.noted, expected, "{event:?}");
    }
}

#[test]
fn a_change_for_one_request_explains_the_next_divergence() {
    let mut causes = Causes::default();
    let change = EphemeralChange { transformer_name: "clock".to_owned(), patch: vec![set("time")] };
    causes.entry(&EntryData::Ephemeral(Box::new(Kept::Known(change))));
    causes.add(Cause::Compaction);
    let place = Divergence::System("time".to_owned());
    assert_eq!(causes.of(&place, "m"), (BreakReason::Patch, Some("clock: new policy".to_owned())));
    let mut causes = causes.past();
    assert_eq!(causes.noted, [Cause::Past(Area::System(Some("time".to_owned())))]);
    assert_eq!(causes.of(&place, "m"), (BreakReason::Uncached, None));
    causes.follow(Causes { noted: vec![Cause::Tools] });
    assert_eq!(causes.noted[0], Cause::Tools);
    assert_eq!(causes.past(), Causes::default());
}

#[test]
fn a_change_for_one_request_explains_the_next_divergence_after_a_restart() {
    let counter = Counter::for_model("test");
    let answer = |name: &str| {
        let mut entry = path(&[&format!("{name}:assistant one")], &counter)[0].entry.clone();
        let EntryData::Message(message) = &mut entry.data else { panic!("another entry") };
        Arc::make_mut(message).receipt = Some(Box::default());
        entry
    };
    let change = |part: &str| {
        let mut entry = answer(part);
        let change = EphemeralChange { transformer_name: "clock".to_owned(), patch: vec![set(part)] };
        entry.data = EntryData::Ephemeral(Box::new(Kept::Known(change)));
        entry
    };
    let entries = [change("older"), answer("a"), change("time"), answer("b"), change("newer")];
    let path: Vec<Arc<Node>> = entries.into_iter().map(|entry| Arc::new(Node::counted(entry, &counter))).collect();
    let causes = Causes::read(&path, &[]);
    let by_patch = (BreakReason::Patch, Some("clock: new policy".to_owned()));
    let table = [("older", (BreakReason::Unknown, None)), ("time", (BreakReason::Uncached, None)), ("newer", by_patch)];
    for (part, expected) in table {
        assert_eq!(causes.of(&Divergence::System(part.to_owned()), "m"), expected, "{part}");
    }
}

#[test]
fn a_change_without_an_entry_explains_the_next_request_after_a_restart() {
    let counter = Counter::for_model("test");
    let path = path(&["a:user one"], &counter);
    let change = |what| UnseenChange { what, answered: false };
    let manual = || (BreakReason::Strategy, Some("manual".to_owned()));
    let table = [
        (vec![], (BreakReason::Unknown, None)),
        (vec![change(Unseen::Pins)], (BreakReason::Pins, None)),
        (vec![change(Unseen::Strategy("manual".to_owned()))], manual()),
        (vec![change(Unseen::Navigation), change(Unseen::Pins)], (BreakReason::Navigation, None)),
    ];
    for (unseen, expected) in table {
        let causes = Causes::read(&path, &unseen);
        assert_eq!(causes.of(&Divergence::Message(None), "m"), expected, "{unseen:?}");
    }
}

#[test]
fn the_number_of_causes_is_bounded() {
    let mut causes = Causes::default();
    for n in 0..1_000 {
        causes.add(Cause::Strategy(format!("s{n}")));
        causes.add(Cause::Tools);
    }
    assert_eq!(causes.noted.len(), CAUSES_MAX);
    assert_eq!(causes.noted.iter().filter(|cause| **cause == Cause::Tools).count(), 1);
}
