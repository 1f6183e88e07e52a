//! Races: what happens during a background compaction. Each runs for many seeds, which decide who is connected, how
//! much is said and when things happen; then every guarantee is checked, and what the race is about.
//!
//! The model holds its summaries back until the race is over, so a compaction runs as long as needed.

mod steps;

use crate::{
    checks::seen_in_the_end,
    history::What,
    script::{send, tool_result},
};
use reseed_protocol::{
    EntryData, EntryId, ErrorCode,
    compaction::CompactionTrigger,
    event::{EphemeralEvent, Event},
    turn::TurnStatus,
};
use serde_json::json;
use std::time::Duration;
use steps::{
    WRITER, at_work, came_to_nothing, commit, ensure, failed, fill, finish, gather, input, made,
    only_in_the_background, quiet, race, tell, tokens, until,
};

#[test]
fn crossing_with_many_items_gives_one_compaction() {
    race(
        async |world| {
            gather(world).await;
            while tokens(world).await < 850 {
                let words = world.wire.rng.usize(20..40);
                input(world, words).await;
                quiet(world).await;
            }
            let held = world.wire.rng.bool();
            world.script.hold_summaries(held);
            // One turn with several calls, and a full queue behind it, all arriving at once.
            let calls = world.wire.rng.usize(3..6);
            world.script.call_next(calls);
            input(world, 10).await;
            until(world, "the calls are made", async |world| world.clients[WRITER].view.pending.len() == calls).await;
            for _ in 0..world.wire.rng.usize(2..5) {
                input(world, 4).await;
            }
            for call in world.clients[WRITER].view.pending.clone() {
                let words = world.wire.rng.usize(8..14);
                send(world, WRITER, tool_result(&call, &"found ".repeat(words), false)).await;
            }
            let millis = world.wire.rng.u64(1..100);
            world.pass(Duration::from_millis(millis)).await;
            commit(world).await;
        },
        |(), history| {
            let began = history.given.iter().filter(|given| {
                given.client == 0 && matches!(&given.what, What::Ephemeral(EphemeralEvent::CompactionStarted(_)))
            });
            let (made, began) = (made(history), began.count());
            ensure(made.len() == 1 && began == 1, || format!("{began} began, made were {made:?}"))
        },
    );
}

#[test]
fn input_during_a_background_compaction() {
    race(
        async |world| {
            let job = fill(world).await;
            for _ in 0..world.wire.rng.usize(1..4) {
                let words = world.wire.rng.usize(1..6);
                input(world, words).await;
                if world.wire.rng.bool() {
                    quiet(world).await;
                }
            }
            // The turns end although no summary has arrived.
            quiet(world).await;
            let still = at_work(world).await;
            commit(world).await;
            (job, still)
        },
        |(job, still), history| {
            ensure(still.as_ref() == Some(job), || format!("not `{job}` but {still:?} was at work after the turns"))?;
            only_in_the_background(job, history)
        },
    );
}

#[test]
fn cancel_during_a_background_compaction() {
    race(
        async |world| {
            let job = fill(world).await;
            let named = if world.wire.rng.bool() { json!({ "jobId": job }) } else { json!({}) };
            tell(world, "cancel_compaction", named).await;
            if world.wire.rng.bool() {
                // The summary arrives at this very moment.
                world.script.hold_summaries(false);
            }
            finish(world).await;
            job
        },
        |job, history| came_to_nothing(job, history, ErrorCode::CompactionCancelled),
    );
}

#[test]
fn a_turn_that_is_cancelled_leaves_a_background_compaction_alone() {
    race(
        async |world| {
            let job = fill(world).await;
            world.script.call_next(1);
            input(world, 2).await;
            until(world, "a call is made", async |world| !world.clients[WRITER].view.pending.is_empty()).await;
            tell(world, "cancel_turn", json!({})).await;
            if world.wire.rng.bool() {
                quiet(world).await;
            }
            commit(world).await;
            job
        },
        |job, history| {
            let cancelled =
                |event: &Event| matches!(event, Event::TurnFinished(end) if end.status == TurnStatus::Cancelled);
            ensure(history.events.iter().any(cancelled), || "no turn was cancelled".to_owned())?;
            only_in_the_background(job, history)
        },
    );
}

#[test]
fn disconnect_during_a_background_compaction() {
    race(
        async |world| {
            let job = fill(world).await;
            for client in &mut world.clients {
                client.cut(&mut world.wire);
            }
            let (before, after) = (world.wire.rng.u64(1..25), world.wire.rng.u64(0..25));
            tokio::time::sleep(Duration::from_secs(before)).await;
            world.script.hold_summaries(false);
            tokio::time::sleep(Duration::from_secs(after)).await;
            gather(world).await;
            commit(world).await;
            job
        },
        only_in_the_background,
    );
}

#[test]
fn navigate_during_a_background_compaction() {
    race(
        async |world| {
            let job = fill(world).await;
            let early: EntryId = world.clients[WRITER].view.path()[1].entry_id.clone();
            let summarize = world.wire.rng.bool();
            tell(world, "navigate", json!({ "entryId": early, "position": "at", "summarize": summarize })).await;
            if world.wire.rng.bool() {
                world.pass(Duration::from_millis(10)).await;
            }
            finish(world).await;
            job
        },
        |job, history| came_to_nothing(job, history, ErrorCode::CompactionVoid),
    );
}

#[test]
fn manual_during_a_background_compaction() {
    race(
        async |world| {
            let job = fill(world).await;
            let asked = world.script.summaries();
            let instructions = if world.wire.rng.bool() { json!({ "instructions": "Mind it." }) } else { json!({}) };
            tell(world, "start_compaction", instructions).await;
            if world.wire.rng.bool() {
                until(world, "its summary is asked for", async |world| world.script.summaries() > asked).await;
                input(world, 3).await;
            }
            finish(world).await;
            job
        },
        |job, history| {
            let (made, failed) = (made(history), failed(history, job));
            ensure(failed == Some(ErrorCode::CompactionVoid), || format!("`{job}` ended with {failed:?}"))?;
            let right = match made.as_slice() {
                [made] => made.trigger == CompactionTrigger::Manual && made.command_id.is_some(),
                _ => false,
            };
            ensure(right, || format!("not the one that was asked for: {made:?}"))
        },
    );
}

#[test]
fn undo_during_a_background_compaction() {
    race(
        async |world| {
            let _ = fill(world).await;
            commit(world).await;
            let job = fill(world).await;
            tell(world, "undo_compaction", json!({})).await;
            if world.wire.rng.bool() {
                world.script.hold_summaries(false);
            }
            finish(world).await;
            job
        },
        |job, history| {
            let (made, failed) = (made(history), failed(history, job));
            ensure(made.len() == 1, || format!("{made:?}"))?;
            ensure(failed == Some(ErrorCode::CompactionVoid), || format!("`{job}` ended with {failed:?}"))?;
            let undone = history.events.iter().filter(|event| matches!(event, Event::CompactionUndone(_))).count();
            ensure(undone == 1, || format!("{undone} compactions were undone"))?;
            let said = history.events.iter().filter_map(|event| match event {
                Event::EntryAppended(appended) if matches!(appended.entry.data, EntryData::Message(_)) => {
                    Some(&appended.entry.entry_id)
                }
                _ => None,
            });
            let (said, seen): (Vec<_>, _) = (said.collect(), seen_in_the_end(&history.events));
            ensure(seen.iter().eq(said.iter().copied()), || format!("said was {said:?}, seen is {seen:?}"))
        },
    );
}

#[test]
fn crash_during_a_background_compaction() {
    race(
        async |world| {
            let _ = fill(world).await;
            if world.wire.rng.bool() {
                world.script.hold_summaries(false);
                for _ in 0..world.wire.rng.usize(0..30) {
                    tokio::task::yield_now().await;
                }
            }
            world.crash().await;
            world.start();
            world.script.hold_summaries(false);
            gather(world).await;
            quiet(world).await;
            input(world, 3).await;
            commit(world).await;
        },
        |(), history| {
            let made = made(history);
            ensure(made.len() == 1, || format!("not one compaction but {made:?}"))
        },
    );
}

#[test]
fn what_is_held_outlives_a_crash() {
    race(
        async |world| {
            let job = fill(world).await;
            finish(world).await;
            let is_held = at_work(world).await.is_none();
            world.crash().await;
            world.start();
            gather(world).await;
            quiet(world).await;
            commit(world).await;
            is_held.then_some(job)
        },
        |job, history| match job {
            Some(job) => only_in_the_background(job, history),
            None => Err("a compaction is still at work".to_owned()),
        },
    );
}

#[test]
fn a_preview_that_is_asked_for_again_on_another_connection_is_answered_there() {
    race(
        async |world| {
            gather(world).await;
            while tokens(world).await < 850 {
                let words = world.wire.rng.usize(20..40);
                input(world, words).await;
                quiet(world).await;
            }
            world.script.hold_summaries(true);
            tell(world, "preview_compaction", json!({})).await;
            until(world, "its summary is asked for", async |world| world.script.summaries() > 0).await;
            let (id, command) = world.clients[WRITER].unanswered[0].clone();
            world.clients[WRITER].cut(&mut world.wire);
            gather(world).await;
            world.clients[WRITER].send(&mut world.wire, id, command).await;
            let millis = world.wire.rng.u64(0..20);
            world.pass(Duration::from_millis(millis)).await;
            world.script.hold_summaries(false);
            quiet(world).await;
            world.clients[WRITER].preview.is_some()
        },
        |shown, history| {
            ensure(*shown, || "no preview was shown".to_owned())?;
            ensure(made(history).is_empty(), || "a preview was applied".to_owned())
        },
    );
}

#[test]
fn a_preview_of_open_calls_is_not_applied_over_their_results() {
    race(
        async |world| {
            gather(world).await;
            while tokens(world).await < 700 {
                let words = world.wire.rng.usize(20..40);
                input(world, words).await;
                quiet(world).await;
            }
            world.script.call_next(2);
            input(world, 2).await;
            until(world, "the calls are made", async |world| world.clients[WRITER].view.pending.len() == 2).await;
            let strategy = ["threshold", "sliding_window", "truncate", "importance"][world.wire.rng.usize(..4)];
            tell(world, "preview_compaction", json!({ "strategy": strategy })).await;
            until(world, "it is answered", async |world| world.clients[WRITER].unanswered.is_empty()).await;
            let Some(preview) = world.clients[WRITER].preview.clone() else { return };
            let early = world.wire.rng.bool();
            if early {
                tell(world, "start_compaction", json!({ "previewId": preview })).await;
            }
            for call in world.clients[WRITER].view.pending.clone() {
                send(world, WRITER, tool_result(&call, "found it", false)).await;
            }
            quiet(world).await;
            if !early {
                tell(world, "start_compaction", json!({ "previewId": preview })).await;
                quiet(world).await;
            }
        },
        // A loss is detected by what every request must contain.
        |(), _| Ok(()),
    );
}

#[test]
fn what_is_pinned_while_a_move_waits_for_its_summary_stays_in_every_compaction() {
    race(
        async |world| {
            gather(world).await;
            for _ in 0..4 {
                let words = world.wire.rng.usize(10..30);
                input(world, words).await;
                quiet(world).await;
            }
            world.script.hold_summaries(true);
            let path: Vec<EntryId> =
                world.clients[WRITER].view.path().iter().map(|entry| entry.entry_id.clone()).collect();
            tell(world, "navigate", json!({ "entryId": path[3], "position": "at", "summarize": true })).await;
            until(world, "its summary is asked for", async |world| world.script.summaries() > 0).await;
            tell(world, "pin_entry", json!({ "entryId": path[0] })).await;
            world.pass(Duration::from_millis(5)).await;
            finish(world).await;
            let job = fill(world).await;
            commit(world).await;
            (job, path[0].clone())
        },
        |(job, pinned), history| {
            only_in_the_background(job, history)?;
            let kept = made(history).iter().any(|made| made.kept_entry_ids.contains(pinned));
            ensure(kept, || format!("`{pinned}` was pinned and is not kept"))
        },
    );
}
