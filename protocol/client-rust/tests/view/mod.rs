//! What two snapshots of a session must have in common, as `protocol/client/vectors/README.md` compares them.

use reseed_client::fold::Snapshot;
use reseed_protocol::{Entry, compaction::CompactionPrepared};
use std::{collections::BTreeMap, fmt::Debug};

/// The part of two snapshots that is compared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Compared<'a> {
    /// No event is on its way, so that what only ephemeral events tell is compared too.
    pub(crate) settled: bool,
    /// Nobody comes or goes meanwhile: compares `host` and `presence`.
    pub(crate) people: bool,
    /// Fields that no event has told.
    pub(crate) unknown: &'a [String],
}

/// Returns the fields in which a snapshot differs from what the server says, each with the place where it does.
pub(crate) fn differences(snapshot: &Snapshot, said: &Snapshot, compared: Compared<'_>) -> Vec<String> {
    let (told, said) = (view(snapshot, compared), view(said, compared));
    let differing = said.iter().filter(|(field, said)| told[*field] != **said);
    differing.map(|(field, said)| format!("`{field}`: {}", first_difference(&told[field], said))).collect()
}

/// Returns the first lines that differ, with some before and after them.
fn first_difference(told: &str, said: &str) -> String {
    let (told, said): (Vec<&str>, Vec<&str>) = (told.lines().collect(), said.lines().collect());
    let at = told.iter().zip(&said).take_while(|(told, said)| told == said).count();
    let around = |lines: &[&str]| lines[at.saturating_sub(6)..lines.len().min(at + 6)].join("\n");
    format!("line {at} of\n{}\nshould be as in\n{}", around(&told), around(&said))
}

/// Returns the compared fields by their names on the wire, each printed.
fn view(snapshot: &Snapshot, compared: Compared<'_>) -> BTreeMap<&'static str, String> {
    let mut view = BTreeMap::new();
    let mut add = |field: &'static str, value: &dyn Debug| {
        if !compared.unknown.iter().any(|unknown| unknown == field) {
            view.insert(field, format!("{value:#?}"));
        }
    };
    add("sessionId", &snapshot.session_id);
    add("epoch", &snapshot.epoch);
    add("seq", &snapshot.seq);
    add("leafId", &snapshot.leaf_id);
    add("name", &snapshot.name);
    add("model", &snapshot.model);
    add("strategy", &snapshot.strategy);
    add("settings", &snapshot.settings);
    add("generation", &snapshot.generation);
    add("path", &snapshot.path.iter().map(|entry| &**entry).collect::<Vec<&Entry>>());
    add("more", &snapshot.path.more());
    add("turn", &snapshot.turn.as_ref().map(|turn| &turn.turn_id));
    add("lastTurn", &snapshot.last_turn);
    add("unansweredTurns", &snapshot.unanswered_turns);
    add("failedCompactions", &snapshot.failed_compactions);
    add("queue", &snapshot.queue);
    add("pins", &snapshot.pins);
    add("undone", &snapshot.undone);
    add("approvals", &snapshot.approvals);
    add("standingApprovals", &snapshot.standing_approvals);
    let calls = snapshot.pending.iter().map(|call| (&call.call_id, &call.turn_id, &call.name, &call.arguments));
    add("pending", &calls.collect::<Vec<_>>());
    if compared.settled {
        add("state", &snapshot.state);
        let valid = snapshot.items.iter().filter(|item| item.aborted().is_none());
        add("items", &valid.map(|item| (item.item_id(), item.turn_id(), item.parts())).collect::<Vec<_>>());
        let job = snapshot.compaction.as_ref();
        add("compaction", &job.map(|job| (&job.job_id, &job.phase, job.background)));
        let held = snapshot.held.clone().map(|held| {
            let sizes = (held.tokens_before, held.tokens_after);
            (CompactionPrepared { tokens_before: 0, tokens_after: 0, ..held }, sizes)
        });
        add("held", &held.as_ref().map(|(held, _)| held));
        // A fresh `session_opened` says what committing it would do now, after what was said since.
        add("heldSizes", &held.as_ref().map(|(_, sizes)| sizes));
        add("contextInfo", &(&snapshot.context_info, &snapshot.warning));
        add("deadlines", &snapshot.pending.iter().map(|call| call.deadline).collect::<Vec<_>>());
    }
    if compared.people {
        add("host", &snapshot.host);
        add("presence", &snapshot.presence);
    }
    view
}
