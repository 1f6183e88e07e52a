//! Held compactions that are no longer good enough when they are due: they are made again once, merged or from scratch.

use super::*;

/// Returns a session with a held compaction that will soon miss its target.
///
/// All numbers are shares of the window. The compaction is prepared at 0.60 (the soft limit is 0.7 of the trigger:
/// 0.56). It is due above 0.80, and requests wait for it above 0.99. It keeps `hello` and replaces the rest with a
/// summary of about 0.02. It is good enough while the text appended since is no larger than its summary could have
/// been. That is 1/8 for the summary, 1/12 for its files, and 0.02 (a tenth of the target) for restored facts: 0.23 in
/// total.
fn outgrown() -> World {
    let mut world = outgrowing(Vec::new());
    world.say("hello").model("hello").summary();
    assert!(world.held().is_some_and(|held| !held.remade), "{:?}", world.took());
    world
}

/// Returns the same session before the compaction is prepared.
fn outgrowing(hooks: Vec<HookSpec>) -> World {
    let mut world = World::full(hooks, "threshold", 60);
    world.agent.ledger.deployment = {
        let mut deployment = Deployment::clone(&world.agent.ledger.deployment);
        deployment.options.reserve_tokens = Some(64);
        deployment.options.target = 0.2;
        deployment.options.keep_recent_tokens = 200;
        // The sizes below are those of summaries alone.
        deployment.options.user_share = 0.0;
        deployment.options.background = 0.7;
        Arc::new(deployment)
    };
    world.restart(|_| ());
    world
}

impl World {
    /// Answers the summary request with this text in each section and reports this many input tokens.
    fn paid_summary(&mut self, text: &str, input_tokens: u64) -> &mut Self {
        let request = self.summarising.take().expect("the model is asked for a summary");
        let sections = crate::compaction::summary::SECTIONS.iter();
        let text = sections.map(|section| format!("## {section}\n- {text}\n")).collect();
        let usage = Some(crate::model::ReportedUsage { input_tokens, ..crate::model::ReportedUsage::default() });
        let answer = Answer { usage, ..Answer::new(vec![Part::Text { text }], StopReason::Stop) };
        self.tell(Input::Answered { request, answer })
    }
}

/// Returns text for this many hundredths of the window of [`outgrown`]; 60 of them are eight times sixty sentences.
fn hundredths(hundredths: usize) -> String {
    "The harbour lies to the north. ".repeat(hundredths * 8)
}

#[test]
fn one_that_would_not_reach_the_target_is_made_again_once_and_merged() {
    let mut world = outgrown();
    let first = world.held().unwrap().job_id.clone();
    let prepared = |world: &World| {
        world.emitted.iter().filter(|event| matches!(event, EphemeralEvent::CompactionPrepared(_))).count()
    };
    // At 0.75 it is not due, and more may be appended first.
    world.say(&hundredths(15)).model("so");
    assert_eq!((world.summarising, &world.held().unwrap().job_id), (None, &first));
    world.took();
    // At 0.90 it is due. With the 0.30 appended since, the context would be 0.32, above both 0.23 and the target of
    // 0.20.
    world.say(&hundredths(15)).check(&["+ user", "turn", "summary", "model"]);
    let asked = world.sent.iter().rfind(|sent| sent.purpose == Purpose::Summary).unwrap();
    let asked: Vec<String> = asked.messages().map(|message| message.message.text()).collect();
    assert!(asked.join("\n").contains("to the north"), "what was said since is summarised");
    let before = prepared(&world);
    world.model("so");
    assert_eq!(world.agent.ledger.session.state.compactions, 0, "the one that is made again is waited for");
    world.took();
    // The new one is held like any other, but not made a third time: it is committed as it is.
    world.summary().check(&["prepared", "+ compaction", "compacted model_summary", "reseed"]);
    assert_eq!((prepared(&world), world.agent.ledger.session.state.compactions), (before + 1, 1));
    assert_ne!(world.committed().job_id, first);
    let told = |event: &Event| matches!(event, Event::CompactionFailed(_));
    assert!(!world.events.iter().any(told), "the first one is part of it");
}

#[test]
fn a_turn_that_waits_for_a_merge_continues_when_the_held_one_is_dropped() {
    let mut world = outgrown();
    world.say(&hundredths(15)).model("so").took();
    // At 1.50 the next request waits: with the held compaction the context would still be 0.92, above the trigger.
    world.say(&hundredths(75)).check(&["+ user", "turn", "summary"]);
    world.command(SessionCommand::SetModel(SetModel { model: "test-2".into(), reasoning_effort: None }));
    assert_eq!(world.held(), None);
    let failed = world.took().into_iter().filter(|line| line == "compaction failed compaction_void").count();
    assert_eq!(failed, 2, "the one that was held, and the one that was made from it");
    // The other model's loop makes room itself and sends the request.
    world.summary().model("so");
    assert!(world.took().contains(&"end completed".to_owned()));
    assert_eq!(world.agent.ledger.session.state.compactions, 1);
}

#[test]
fn hooks_are_called_once_and_their_requests_apply_to_a_remade_one() {
    let mut world = outgrowing(vec![hook("one", HookPoint::BeforeCompaction)]);
    world.say("hello");
    let wishes = json!({ "model": "cheaper", "instructions": "mind the gulls", "details": { "n": 1 } });
    world.answer(wishes).model("hello").summary().took();
    // The session read back from the log does the same.
    world.restart(|_| ()).say(&hundredths(15)).model("so").took();
    world.say(&hundredths(15)).check(&["+ user", "turn", "summary", "model"]);
    let asked = world.sent.iter().rfind(|sent| sent.purpose == Purpose::Summary).unwrap();
    let text: String = asked.messages().map(|message| message.message.text()).collect();
    assert_eq!(asked.model, "cheaper");
    assert!(text.contains("mind the gulls") && text.contains("to the north"), "{text}");
    world.model("so").summary();
    assert_eq!(world.committed().rung, CompactionRung::ModelSummary);
    let EntryData::Compaction(entry) = &world.newest("compaction").data else { panic!("another entry") };
    assert_eq!((entry.hook.as_deref(), &entry.hook_details), (Some("one"), &Some(json!({ "n": 1 }))));
    // The next cycle prepares a new one.
    world.took();
    world.say(&hundredths(60)).model("so");
    assert!(world.took().contains(&"ask one before_compaction".to_owned()));
}

#[test]
fn one_that_was_free_is_made_again_once() {
    let mut world = outgrowing(Vec::new());
    world
        .say("hello")
        .model("hello")
        .summary_fails(ErrorCode::ContentFiltered)
        .summary_fails(ErrorCode::ContentFiltered);
    assert!(world.held().is_some_and(|held| held.is_free() && !held.remade), "{:?}", world.took());
    world.say(&hundredths(15)).model("so").took();
    world.say(&hundredths(15)).check(&["+ user", "turn", "summary", "model"]);
    world.summary_fails(ErrorCode::UpstreamError).check(&["compaction failed upstream_error"]);
    assert!(world.held().unwrap().remade, "it was tried");
    let told = world.model("so").took();
    assert!(told.contains(&"compacted extract".to_owned()) && !told.contains(&"summary".to_owned()), "{told:?}");
}

#[test]
fn one_that_saves_too_little_when_due_is_made_again_once() {
    // It saves about two thirds of the next request.
    let committed = ["+ user", "turn", "+ compaction", "compacted model_summary", "reseed", "model"];
    let mut world = outgrown();
    world.restart(|deployment| deployment.options.min_gain = 0.7).took();
    world.say(&hundredths(30)).check(&["+ user", "turn", "summary", "model"]);
    // A new one would save no more, so the next request uses the existing one.
    world.model("so").summary().check(&["+ assistant", "end completed", "compaction failed nothing_to_compact"]);
    assert!(world.held().is_some_and(|held| held.remade));
    world.say("and?").check(&committed);
}

#[test]
fn one_made_again_from_scratch_includes_the_cost_of_both() {
    let mut world = outgrowing(Vec::new());
    world.say("hello").model("hello").paid_summary(&"the harbour lies to the west; ".repeat(8), 1_000);
    // The long summary saves less than this, and a short one saves more.
    world.restart(|deployment| deployment.options.min_gain = 0.63).took();
    let first = world.held().unwrap().job_id.clone();
    world.say(&hundredths(30)).check(&["+ user", "turn", "summary", "model"]);
    world.model("so").paid_summary("x", 2_000);
    let committed = world.committed();
    let paid = committed.summary_usage.as_ref().map(|usage| usage.input_tokens);
    assert_eq!((committed.job_id != first, paid), (true, Some(3_000)));
}

#[test]
fn a_held_one_can_be_cancelled_by_id_while_it_is_made_again() {
    let mut world = outgrown();
    world.say(&hundredths(15)).model("so");
    world.say(&hundredths(15)).took();
    assert!(world.summarising.is_some());
    let job_id = Some(world.held().unwrap().job_id.clone());
    world.command(SessionCommand::CancelCompaction(CancelCompaction { job_id }));
    assert!(matches!(world.reply(), Reply::Ok(_)), "{:?}", world.reply());
    world.check(&["compaction failed compaction_cancelled", "hang up", "compaction failed compaction_void"]);
    assert_eq!((world.held(), world.agent.running_job()), (None, None));
    // Cancelling the second attempt keeps the first, which is not tried again.
    let mut world = outgrown();
    world.say(&hundredths(15)).model("so");
    world.say(&hundredths(15)).took();
    world.command(SessionCommand::CancelCompaction(CancelCompaction { job_id: None }));
    assert!(world.held().is_some_and(|held| held.remade));
}
