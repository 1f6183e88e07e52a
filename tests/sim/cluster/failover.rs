//! A standby that is behind takes over: the end of what was acknowledged is lost. Exactly that may be missing, nothing
//! may occur twice, and no client continues as if nothing had happened.

use super::{ROOM, STEPS_FAILOVER, checks, run_until};
use crate::{
    Failure, Tally,
    broken::Broken,
    check_found,
    checks::{self as promises, Check},
    history::{Failover, History, What, Written},
    many, number,
    world::World,
};
use reseed_protocol::command::Command;
use std::collections::BTreeMap;

/// Seeds of the normal run.
const SEEDS: u64 = 30;

/// The guarantees of one server that are about the log that remains, or about where clients end.
const OF_WHAT_REMAINS: &[&str] = &[
    "nothing panics",
    "the log is what was written",
    "the tree is well formed",
    "every turn ends once",
    "the queue keeps its order",
    "one writer, one live loop",
    "clients that were cut off end like the one that was not",
    "every command is answered once",
    "a repeated command is answered as before",
    "nothing acknowledged is lost or doubled",
    "the session comes to rest",
    "a session is opened again as it was left",
];

const CHECKS: &[(&str, Check)] = &[
    ("a log that has lost its end has another epoch", a_shorter_log_is_another_one),
    ("clients are given what the log of their epoch says, or take a snapshot", given_what_the_log_says),
    ("what was lost is not there twice", what_was_lost_is_not_doubled),
];

impl World {
    /// Lets the standby fall behind some steps before it takes over.
    pub(super) fn standby_step(&mut self, step: usize, over_at: Option<usize>) {
        let Some(over_at) = over_at else { return };
        if step + STEPS_FAILOVER == over_at.max(STEPS_FAILOVER) {
            self.wire.disk.hold_back();
            // Often there is a node that the standby does not know.
            if self.wire.rng.bool() {
                self.start_node();
            }
        }
        if step == over_at {
            // Connections to the previous database are useless.
            let millis = self.wire.rng.u64(50..2_000);
            self.fleet.iter().for_each(|fleet| fleet.outage(std::time::Duration::from_millis(millis)));
            self.wire.history.failover = self.wire.disk.fail_over(self.wire.history.given.len());
        }
    }
}

/// Returns the end of the clients' log that is lost.
fn lost<'a>(history: &'a History, failover: &'a Failover) -> &'a [Written] {
    history.session.as_ref().and_then(|session| failover.lost.get(session)).map_or(&[], Vec::as_slice)
}

/// Returns the history without the commands of the lost records. Their effects are lost as well, or happen again.
fn without_lost(history: &History, failover: &Failover) -> History {
    let lost = lost(history, failover);
    let is_lost = |id: &str| failover.marks.contains(id) || lost.iter().any(|record| record.body.contains(id));
    let keeps = |command: &Command| match command {
        Command::ToolResult(result) => !is_lost(result.call_id.as_str()),
        _ => true,
    };
    History {
        session: history.session.clone(),
        events: history.events.clone(),
        ends: history.ends.clone(),
        sent: history.sent.iter().filter(|sent| !is_lost(sent.id.as_str()) && keeps(&sent.command)).cloned().collect(),
        given: history.given.clone(),
        hooks: history.hooks,
        ..History::default()
    }
}

/// A client that had seen lost records receives the whole state, of a log with another epoch.
fn a_shorter_log_is_another_one(history: &History) -> Result<(), String> {
    let Some(failover) = &history.failover else { return Ok(()) };
    let mut epochs: BTreeMap<usize, &str> = BTreeMap::new();
    let mut old: Option<&str> = None;
    for (at, given) in history.given.iter().enumerate() {
        let What::Opened { replay, state, .. } = &given.what else { continue };
        let client = given.client;
        if at < failover.given {
            old = Some(&state.epoch);
        }
        if *replay && epochs.get(&client).is_some_and(|epoch| *epoch != state.epoch) {
            return Err(format!("client {client} resumes in another log than it was in"));
        }
        epochs.insert(client, &state.epoch);
    }
    let end = history.views.iter().find(|view| Some(view.epoch.as_str()) == old);
    match end.filter(|_| !lost(history, failover).is_empty()) {
        Some(view) => Err(format!("a client ends in `{}`, whose end is lost", view.epoch)),
        None => Ok(()),
    }
}

/// The ends of the log that have a record, where the standby's log continues differently from the lost one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Both,
    Lost,
    Kept,
}

/// Checks that what a client receives is in the log of its epoch, without a gap. A node that stood still while others
/// took its session may continue the log that has lost their part until its next beat, so that the log has two ends. A
/// client that received something of both has a gap, and must take a snapshot later.
fn given_what_the_log_says(history: &History) -> Result<(), String> {
    let Some(failover) = &history.failover else { return Ok(()) };
    let before = history.session.as_ref().and_then(|session| failover.before.get(session));
    let before = before.map_or(&[][..], Vec::as_slice);
    let is_whole = lost(history, failover).is_empty();
    let of_old = before.last().map(|record| record.epoch.as_str());
    let mut places: BTreeMap<usize, (&str, u64, End)> = BTreeMap::new();
    let mut holes: BTreeMap<usize, u64> = BTreeMap::new();
    for given in &history.given {
        let client = given.client;
        match &given.what {
            What::Opened { from, state, replay, .. } => {
                let known = places.get(&client).filter(|_| *replay);
                let end = known.map_or(End::Both, |(_, _, end)| *end);
                if !replay {
                    holes.remove(&client);
                }
                places.insert(client, (&state.epoch, *from, end));
            }
            What::Durable { seq, body } => {
                let Some((epoch, last, end)) = places.get_mut(&client) else {
                    return Err(format!("client {client} is given {seq} before it has joined"));
                };
                if *seq != *last + 1 {
                    return Err(format!("client {client} is given {seq} after {last}"));
                }
                *last = *seq;
                let is_in = |log: &[Written]| {
                    let written = usize::try_from(*seq).ok().and_then(|seq| log.get(seq.checked_sub(1)?));
                    written.is_some_and(|written| written.body == *body)
                };
                let found = match (is_in(history.written()), Some(*epoch) == of_old && !is_whole && is_in(before)) {
                    (true, true) => End::Both,
                    (true, false) => End::Kept,
                    (false, true) => End::Lost,
                    (false, false) => {
                        return Err(format!("client {client} is given another {seq} than the log `{epoch}` has"));
                    }
                };
                if found != End::Both && Some(*epoch) == of_old {
                    if *end != End::Both && *end != found {
                        holes.insert(client, *seq);
                    }
                    *end = found;
                }
            }
            _ => {}
        }
    }
    match holes.iter().next() {
        Some((client, seq)) => Err(format!("client {client} has a hole before {seq}, and no snapshot since")),
        None => Ok(()),
    }
}

/// A command whose outcome is lost may be executed again, once.
fn what_was_lost_is_not_doubled(history: &History) -> Result<(), String> {
    let Some(failover) = &history.failover else { return Ok(()) };
    for id in &failover.marks {
        let entries = history.written().iter().filter(|record| {
            record.body.starts_with(r#"{"type":"entry_appended""#)
                && record.body.contains(r#""role":"user""#)
                && record.body.contains(&format!(r#""commandId":"{id}""#))
        });
        let found = entries.count();
        if found > 1 {
            return Err(format!("`{id}`, which was lost, is there {found} times"));
        }
    }
    Ok(())
}

/// Returns the guarantees that a run violated.
fn broken_by(history: &History) -> Vec<(&'static str, String)> {
    let of_all = |(name, check): &(&'static str, Check), history| Some((*name, check(history).err()?));
    let filtered = history.failover.as_ref().map(|failover| without_lost(history, failover));
    let remaining = promises::CHECKS.iter().filter(|(name, _)| OF_WHAT_REMAINS.contains(name));
    let mut broken: Vec<_> = remaining
        .filter_map(|check| {
            let is_about_commands = check.0.contains("repeated") || check.0.contains("acknowledged");
            of_all(check, filtered.as_ref().filter(|_| is_about_commands).unwrap_or(history))
        })
        .collect();
    broken.extend(checks::CHECKS.iter().chain(CHECKS).filter_map(|check| of_all(check, history)));
    broken
}

fn failure(seed: u64) -> Result<Tally, Failure> {
    let (history, trace) = run_until(seed, Broken::Nothing, true);
    let promises = broken_by(&history);
    if promises.is_empty() { Ok(Tally::of(&history)) } else { Err(Failure { room: ROOM, seed, promises, trace }) }
}

#[test]
fn a_standby_that_is_behind_loses_what_it_lacks_and_nothing_else() {
    if let Some(seed) = number("SEED") {
        let (history, trace) = run_until(seed, Broken::Nothing, true);
        let promises = broken_by(&history);
        assert!(promises.is_empty(), "{trace}\n{}", Failure { room: ROOM, seed, promises, trace: String::new() });
        return;
    }
    let seeds = number("SEEDS").unwrap_or(SEEDS);
    eprintln!("{seeds} seeds of failovers: {:?}", many(seeds, failure));
}

/// Faults, each with a guarantee that it breaks, and the seed that shows it.
const FAULTS: &[(Broken, &str, u64)] = &[
    (Broken::SilentFailover, "a log that has lost its end has another epoch", 1),
    (Broken::SilentFailover, "clients are given what the log of their epoch says, or take a snapshot", 8),
    (Broken::UntoldFailover, "none that trusts its lease asks the model for a session of another", 32),
];

#[test]
fn faults_of_a_failover_are_found() {
    check_found(FAULTS, |seed, fault| broken_by(&run_until(seed, fault, true).0));
}
