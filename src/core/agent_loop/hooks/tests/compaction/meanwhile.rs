//! Compactions whose hooks answer late: meanwhile a turn continues, the compaction is stopped, or a limit passes.

use super::*;

#[test]
fn a_preview_calls_its_hooks_and_applying_it_does_not() {
    let mut world = long(before(&["one"]));
    world
        .command(SessionCommand::PreviewCompaction(PreviewCompaction::default()))
        .check(&["ask one before_compaction"]);
    assert_eq!((&world.asked_for()["preview"], &world.asked_for()["background"]), (&json!(true), &json!(true)));
    world.answer(json!({ "summary": "They met." })).check(&["preview"]);
    let preview = world.previewed().clone();
    assert_eq!((preview.summary.as_str(), preview.rung), ("They met.", CompactionRung::HookSummary));
    let preview_id = Some(preview.preview_id);
    world.command(SessionCommand::StartCompaction(StartCompaction { preview_id, ..StartCompaction::default() }));
    world.check(&["+ compaction", "compacted hook_summary", "reseed"]);
    assert_eq!(world.compacted().1.hook.as_deref(), Some("one"));

    let mut world = long(before(&["one"]));
    world.command(SessionCommand::PreviewCompaction(PreviewCompaction::default())).took();
    world.answer(json!({ "cancel": true })).check(&["error compaction_cancelled"]);
    world.check_at_rest();
    // A turn does not wait for a preview, and needs a compaction of its own.
    let mut world = long(before(&["one"]));
    world.command(SessionCommand::PreviewCompaction(PreviewCompaction::default())).took();
    world.say("hello").check(&["+ user", "turn", "model"]);
    world.model("hello").check(&["+ assistant", "end completed"]);
    world.answer(json!({ "summary": "They met." })).check(&["preview"]);
}

#[test]
fn a_background_compaction_calls_its_hooks_during_the_turn() {
    let mut world = filling(before(&["one"]));
    world.say("hello");
    let took = world.took();
    assert_eq!(took, ["+ user", "turn", "ask one before_compaction", "model"]);
    assert_eq!(world.asked_for()["background"], json!(true));
    world.model("hello").check(&["+ assistant", "end completed"]);
    world.answer(json!({ "summary": "They met." })).check(&["prepared"]);
    world.check_at_rest();
    // If the hook answers during a request, the compaction is held.
    let mut world = filling(before(&["one"]));
    world.say("hello").took();
    world.answer(json!({ "summary": "They met." })).check(&["prepared"]);
    world.model("hello").check(&["+ assistant", "end completed"]);
    world.check_at_rest();
}

#[test]
fn a_stopped_compaction_calls_no_more_hooks() {
    let stop = |world: &mut World| {
        world.command(SessionCommand::CancelCompaction(CancelCompaction { job_id: None }));
    };
    let mut world = long(before(&["one"]));
    world.compact().took();
    stop(&mut world);
    world.check(&["drop one", "compaction failed compaction_cancelled"]).check_at_rest();
    let mut world = crowded(before(&["one"]));
    world.say("hello").took();
    stop(&mut world);
    world.check(&["drop one", "compaction failed compaction_cancelled", "model"]);
    // It is cancelled with its turn.
    let mut world = crowded(before(&["one"]));
    world.say("hello").took();
    world.cancel();
    // Once the turn is over, the compaction that it waited for runs in the background.
    let ends = ["drop one", "compaction failed compaction_cancelled", "end cancelled", "ask one before_compaction"];
    world.check(&ends);
    // It is cancelled when the server stops.
    let mut world = long(before(&["one"]));
    world.compact().took();
    world
        .tell(Input::Stop(Box::new(stopping())))
        .check(&["drop one", "compaction failed compaction_cancelled"])
        .check_at_rest();
}

#[test]
fn a_compactions_time_limit_starts_after_its_hooks() {
    let slow = vec![hook("one", HookPoint::BeforeCompaction).within(600_000)];
    let mut world = crowded(slow.clone());
    world.say("hello").took();
    world.wait(599_000).check(&[]);
    world.answer(json!({})).check(&["summary"]);
    world.wait(179_000).check(&[]);
    // A waiting turn falls back to a step without the model.
    world.wait(1_000);
    let took = world.took();
    assert!(took.contains(&"compacted extract".to_owned()), "{took:?}");
    let mut world = filling(slow);
    world.say("hello").model("hello").took();
    world.wait(180_000).check(&[]);
    world.wait(420_000).check(&["drop one", "one failed hook_timeout", "compaction failed hook_timeout"]);
    world.check_at_rest();
}

#[test]
fn a_hook_that_cancels_every_compaction_does_not_open_the_breaker() {
    let mut world = crowded(before(&["one"]));
    for _ in 0..4 {
        world.say("hello");
        while !world.open.is_empty() {
            world.answer(json!({ "cancel": true }));
        }
        world.model("hello");
    }
    let refused = |line: &&String| *line == "compaction failed compaction_cancelled";
    assert!(world.took().iter().filter(refused).count() > 3);
    assert_eq!(world.agent.context_info().breaker, None);
}
