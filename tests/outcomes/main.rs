//! The table of commands, and what real servers did during the tests of `it`: each reply, event and error of each row
//! was seen, or the list below says why no test can see it.
//!
//! The comparison reads the notes of a whole run of `it`. It is ignored unless asked for, so that nothing depends on
//! the order in which cargo runs its test binaries. `tests/run` asks for it after cargo's tests.
#![allow(clippy::unwrap_used, reason = "the settings of clippy exempt tests, and what they call is as much a test")]

#[allow(dead_code, reason = "`it` writes the notes and this binary reads them")]
#[path = "../support/notes.rs"]
mod notes;
mod unreached;

use notes::{Kind, NONE, is_whole, line};
use reseed_protocol::command::{
    Command,
    outcomes::{NEVER_REPLIED, OF_A_FRAME, OF_ANY},
};
use std::collections::BTreeSet;
use unreached::UNREACHED;

/// Returns what the table claims, as lines of notes: of each command its reply, its own events and errors; of all
/// commands together the errors that any may get, and the events of the work that they start; of each error that
/// refuses no command, the events that carry it.
fn claimed() -> BTreeSet<String> {
    let replies = Command::TABLE.iter().map(|spec| line(spec.name, Kind::Reply, spec.reply));
    let errors = Command::TABLE
        .iter()
        .flat_map(|spec| spec.own_errors().into_iter().map(|code| line(spec.name, Kind::Error, code.as_str())));
    let events =
        Command::TABLE.iter().flat_map(|spec| spec.events.iter().map(|event| line(spec.name, Kind::Event, event)));
    let of_any = OF_A_FRAME.iter().chain(OF_ANY).map(|code| line(NONE, Kind::Error, code.as_str()));
    let carried = NEVER_REPLIED.iter().flat_map(|(code, place)| {
        let events = place.split('`').filter_map(|word| word.split_once('.'));
        events.map(|(event, _)| line(event, Kind::Carried, code.as_str()))
    });
    let work = Command::TABLE.iter().flat_map(|spec| spec.work).flat_map(|work| work.events());
    let work = work.map(|event| line(NONE, Kind::Event, event));
    replies.chain(errors).chain(events).chain(of_any).chain(carried).chain(work).collect()
}

/// Returns the notes, with those of each command also as notes of no command in particular.
fn reached() -> Result<BTreeSet<String>, String> {
    let notes = notes::read()?;
    let whats = notes.iter().filter_map(|note| note.split_once(' '));
    let of_any: Vec<String> = whats.map(|(_, what)| format!("{NONE} {what}")).collect();
    Ok(notes.into_iter().chain(of_any).collect())
}

#[test]
#[ignore = "reads the notes of a whole run of `it`: run `cargo test --test it` first"]
fn every_row_of_the_table_is_reached() {
    let reached = reached().unwrap_or_else(|what_to_do| panic!("{what_to_do}"));
    let claimed = claimed();
    let excused: BTreeSet<String> = UNREACHED.iter().map(|row| line(row.command, row.kind, row.what)).collect();
    let missing: Vec<&String> = claimed.difference(&reached).filter(|claim| !excused.contains(*claim)).collect();
    let stale: Vec<&String> = excused.intersection(&reached).collect();
    assert!(
        missing.is_empty() && stale.is_empty(),
        "no test of `it` reaches {missing:#?}: write one, or say in tests/outcomes/unreached.rs why none can; \
         reached although tests/outcomes/unreached.rs says that they cannot be: {stale:#?}"
    );
}

#[test]
fn what_is_not_reached_is_claimed_by_the_table() {
    let claimed = claimed();
    for row in UNREACHED {
        let excuse = line(row.command, row.kind, row.what);
        assert!(claimed.contains(&excuse), "the table does not claim `{excuse}`, excused by `{}`: remove it", row.why);
    }
}

#[test]
fn a_run_is_whole_unless_its_arguments_choose_tests() {
    let table: &[(&[&str], bool)] = &[
        (&[], true),
        (&["--nocapture", "-q", "--test-threads", "2"], true),
        (&["--test-threads=2", "--format", "pretty"], true),
        (&["--include-ignored"], true),
        (&["compaction::"], false),
        (&["--nocapture", "compaction::"], false),
        (&["--skip", "real"], false),
        (&["--skip=real"], false),
        (&["--exact", "commands::table"], false),
        (&["--ignored"], false),
        (&["--list"], false),
    ];
    for (arguments, whole) in table {
        assert_eq!(is_whole(arguments.iter().map(ToString::to_string)), *whole, "{arguments:?}");
    }
}
