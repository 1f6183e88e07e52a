//! Checks of compactions: each is one entry, keeps what must stay, and leaves nothing if it was not committed.

use super::context::Log;
use crate::history::History;
use reseed_protocol::{CommandId, Entry, EntryData, EntryId, JobId, Role, compaction::CompactionTrigger, event::Event};
use std::collections::BTreeSet;

/// A compaction is one entry and one event, once for its job and its command; and between two automatic ones something
/// changed that may have made the second necessary. One that was held was made when it began to be held.
pub(crate) fn made_once(history: &History) -> Result<(), String> {
    let mut jobs: BTreeSet<&JobId> = BTreeSet::new();
    let mut commands: BTreeSet<&CommandId> = BTreeSet::new();
    let mut entry: Option<&EntryId> = None;
    let mut made_by_itself = false;
    // The job of the compaction that is held, and whether nothing has changed since.
    let mut held: Option<(&JobId, bool)> = None;
    for (seq, event) in (1..).zip(&history.events) {
        match event {
            Event::EntryAppended(appended) if matches!(appended.entry.data, EntryData::Compaction(_)) => {
                if let Some(entry) = entry.replace(&appended.entry.entry_id) {
                    return Err(format!("the compaction `{entry}` is told of nowhere before {seq}"));
                }
            }
            Event::ContextCompacted(compacted) => {
                if entry.take() != Some(&compacted.entry_id) {
                    return Err(format!("a compaction is told of at {seq} whose entry is not the one before"));
                }
                if !jobs.insert(&compacted.job_id) {
                    return Err(format!("job `{}` is committed twice, at {seq} again", compacted.job_id));
                }
                if compacted.command_id.as_ref().is_some_and(|id| !commands.insert(id)) {
                    return Err(format!("the command of the compaction at {seq} was obeyed before"));
                }
                let by_itself = matches!(compacted.trigger, CompactionTrigger::Threshold | CompactionTrigger::Strategy);
                if made_by_itself && by_itself {
                    let (rung, was, is) = (compacted.rung, compacted.tokens_before, compacted.tokens_after);
                    return Err(format!(
                        "the compaction at {seq} ({rung:?}, {was} to {is} tokens) follows another one, and nothing was \
                         said between"
                    ));
                }
                let is_stale = held.take().is_some_and(|(job, is_new)| *job == compacted.job_id && !is_new);
                made_by_itself = by_itself && !is_stale;
            }
            Event::SessionUpdated(updated) if updated.held.is_some() => {
                held = updated.held.as_ref().map(|held| (&held.job_id, true));
            }
            Event::EntryAppended(_)
            | Event::SessionUpdated(_)
            | Event::CompactionUndone(_)
            | Event::TurnFinished(_) => {
                made_by_itself = false;
                held.iter_mut().for_each(|(_, is_new)| *is_new = false);
            }
            _ => {}
        }
    }
    match entry {
        Some(entry) => Err(format!("the compaction `{entry}` is told of nowhere")),
        None => Ok(()),
    }
}

/// A held compaction is committed without a pause, or dropped; one that was dropped or replaced is never committed.
pub(crate) fn what_is_held_is_committed_or_dropped(history: &History) -> Result<(), String> {
    let mut held: Option<&JobId> = None;
    let mut gone: BTreeSet<&JobId> = BTreeSet::new();
    for (seq, event) in (1..).zip(&history.events) {
        match event {
            Event::SessionUpdated(updated) => {
                let Some(now) = &updated.held else { continue };
                let now = Some(&now.job_id);
                gone.extend(std::mem::replace(&mut held, now).filter(|was| Some(*was) != now));
            }
            Event::CompactionFailed(failed) => {
                gone.extend(held.take_if(|held| **held == failed.job_id));
            }
            Event::ContextCompacted(compacted) => {
                let job = &compacted.job_id;
                if gone.contains(job) {
                    return Err(format!("job `{job}` was dropped, and is committed at {seq}"));
                }
                let was_held = held.take() == Some(job);
                if was_held && (compacted.paused_ms > 0 || !compacted.background) {
                    return Err(format!("job `{job}` was held, and somebody waited for it at {seq}"));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Nothing is written of a compaction that failed, was cancelled or became void.
pub(crate) fn nothing_is_left_of_what_failed(history: &History) -> Result<(), String> {
    let made: BTreeSet<&JobId> = history
        .events
        .iter()
        .filter_map(|event| match event {
            Event::ContextCompacted(compacted) => Some(&compacted.job_id),
            _ => None,
        })
        .collect();
    for event in &history.events {
        if let Event::CompactionFailed(failed) = event
            && made.contains(&failed.job_id)
        {
            let (job, code) = (&failed.job_id, failed.error.code);
            return Err(format!("job `{job}` came to nothing ({code}), and it is written"));
        }
    }
    Ok(())
}

/// Each compaction keeps pinned entries and the user's last message verbatim.
pub(crate) fn keep_what_must_stay(history: &History) -> Result<(), String> {
    let log = Log::read(&history.events);
    for (seq, event) in (1..).zip(&history.events) {
        let Event::EntryAppended(appended) = event else { continue };
        if !matches!(appended.entry.data, EntryData::Compaction(_)) {
            continue;
        }
        let (before, after) = (log.seen(seq - 1), log.seen(seq));
        let marks = log.marks(seq - 1);
        let is_there = |entry: &Entry| after.entries.iter().any(|other| other.entry_id == entry.entry_id);
        let pinned = before.entries.iter().filter(|entry| marks.is_pinned(&entry.entry_id));
        let last = before.entries.iter().rfind(|entry| is_input(entry));
        for (entry, what) in pinned.map(|entry| (entry, "pinned")).chain(last.map(|entry| (entry, "the last input"))) {
            let id = &entry.entry_id;
            if !is_there(entry) {
                return Err(format!("the compaction at {seq} takes out `{id}`, which is {what}"));
            }
            if after.cleared.contains(id) && !before.cleared.contains(id) {
                return Err(format!("the compaction at {seq} cuts `{id}`, which is {what}"));
            }
        }
    }
    Ok(())
}

fn is_input(entry: &Entry) -> bool {
    matches!(&entry.data, EntryData::Message(message) if message.role == Role::User)
}
