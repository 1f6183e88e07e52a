//! Held compactions: prepared early, committed at the trigger, and dropped only if something that they depend on
//! changes.

use super::*;
use crate::{
    agent_loop::Summaries,
    compaction::{Held, SummaryRequest},
};
use reseed_protocol::{
    EntryId, JobId,
    compaction::{
        CancelCompaction, CompactionRung, CompactionTrigger, ContextCompacted, PinEntry, PreviewCompaction,
        SetContextStrategy, StartCompaction, StrategySettings, UndoCompaction,
    },
    hooks::ContextReason,
    session::{RenameSession, SetInstructions, SetModel, SetOptions},
    tree::{Navigate, NavigatePosition},
};

/// Returns a session with a held compaction, at 75 % of its window; the trigger is at 80 %.
fn holding(hooks: Vec<HookSpec>) -> World {
    let mut world = World::full(hooks, "threshold", 75);
    world.say("hello").pass().model("hello").pass().summary();
    assert_eq!(world.took().last().map(String::as_str), Some("prepared"));
    world
}

/// Returns enough text to bring the session over the trigger.
fn much() -> String {
    "The harbour lies to the west. ".repeat(45)
}

impl World {
    fn held(&self) -> Option<&Held> {
        self.agent.ledger.session.held.as_deref()
    }

    /// Returns the newest committed compaction.
    fn committed(&self) -> &ContextCompacted {
        let compacted = self.events.iter().rev().find_map(|event| match event {
            Event::ContextCompacted(compacted) => Some(&**compacted),
            _ => None,
        });
        compacted.expect("it was compacted")
    }

    /// Restarts the process with other deployment settings.
    fn restart(&mut self, change: impl FnOnce(&mut Deployment)) -> &mut Self {
        let mut deployment = Deployment::clone(&self.agent.ledger.deployment);
        change(&mut deployment);
        let session = self.agent.ledger.session.clone();
        let calibration = Calibration::new(Counter::for_model("test").method());
        // A new process generates different ids.
        let ids = IdSource::seeded(9 + session.state.seq);
        let seed = Seed::new(session, Arc::new(deployment), calibration, ids);
        self.agent = AgentLoop::seeded(self.agent.generation(), seed);
        self.tell(Input::Recovered)
    }

    fn place(&self, at: usize) -> (EntryId, Destination) {
        let leaf = self.entries[at].entry_id.clone();
        let tree = self.agent.ledger.session.tree.upto(&leaf).unwrap();
        (leaf.clone(), Destination { leaf: Some(leaf), tree, ..Destination::default() })
    }

    fn go_to(&mut self, at: usize) -> &mut Self {
        let (entry_id, place) = self.place(at);
        let navigate = Navigate {
            entry_id: Some(entry_id),
            position: Some(NavigatePosition::At),
            summarize: None,
            instructions: None,
            replace_instructions: None,
            label: None,
        };
        self.command_to(SessionCommand::Navigate(navigate), Some(place))
    }

    fn set_strategy(&mut self, strategy: &str, settings: StrategySettings) -> &mut Self {
        let set = SetContextStrategy { strategy: strategy.into(), settings: Some(settings) };
        self.command(SessionCommand::SetContextStrategy(set))
    }

    fn manual(&mut self, manual: StartCompaction) -> &mut Self {
        self.command(SessionCommand::StartCompaction(manual))
    }
}

#[test]
fn it_is_prepared_below_the_trigger_and_committed_above_it_in_one_step() {
    let mut world = World::full(Vec::new(), "threshold", 75);
    world.say("hello").check(&["+ user", "turn", "summary", "model"]);
    world.model("hello").check(&["+ assistant", "end completed"]);
    world.summary().check(&["prepared"]);
    let info = world.agent.context_info();
    assert!(info.token_count < info.compact_at_tokens.unwrap(), "{info:?}");
    assert_eq!(info.compactions, 0, "nothing has changed yet");
    let Some(EphemeralEvent::CompactionPrepared(prepared)) = world.emitted.last() else { panic!("not told") };
    assert_eq!((prepared.tokens_before, prepared.compact_at_tokens), (info.token_count, info.compact_at_tokens));
    let (job, promised) = (prepared.job_id.clone(), prepared.tokens_after);
    // A turn that stays below the trigger changes nothing.
    world.say("and?").check(&["+ user", "turn", "model"]);
    world.model("so").check(&["+ assistant", "end completed"]);
    world.say(&much()).check(&["+ user", "turn", "+ compaction", "compacted model_summary", "reseed", "model"]);
    let compacted = world.committed();
    assert_eq!(
        (&compacted.job_id, compacted.trigger, compacted.background),
        (&job, CompactionTrigger::Threshold, true)
    );
    assert_eq!(compacted.paused_ms, 0);
    assert!(compacted.tokens_before > info.compact_at_tokens.unwrap(), "{compacted:?}");
    assert!(compacted.tokens_after > promised, "what was said since stays behind it");
    let sent = world.last_sent();
    assert_eq!(
        &sent[sent.len() - 5..],
        ["user hello", "assistant hello", "user and?", "assistant so", &format!("user {}", much())]
    );
    assert_eq!(world.held(), None);
}

#[test]
fn it_is_committed_as_soon_as_an_answer_passes_the_trigger() {
    let mut world = holding(Vec::new());
    world.say("more").took();
    world.model(&much()).check(&["+ assistant", "end completed", "+ compaction", "compacted model_summary", "reseed"]);
    world.check_at_rest();
}

#[test]
fn a_refusal_as_too_large_commits_the_held_compaction() {
    let mut world = holding(Vec::new());
    world.say("more").took();
    world.model_fails(ErrorCode::ContextOverflow).check(&[
        "+ compaction",
        "compacted model_summary",
        "reseed",
        "model",
    ]);
    let compacted = world.committed();
    assert_eq!((compacted.trigger, compacted.paused_ms), (CompactionTrigger::Overflow, 0));
    world.model("so").check(&["+ assistant", "end completed"]);
}

#[test]
fn a_plain_order_commits_the_held_compaction() {
    let instructions = StartCompaction { instructions: Some("mind the boats".into()), ..StartCompaction::default() };
    let own = StartCompaction { strategy: Some("threshold".into()), ..StartCompaction::default() };
    let other = StartCompaction { strategy: Some("sliding_window".into()), ..StartCompaction::default() };
    for (order, is_held) in [(StartCompaction::default(), true), (own, true), (instructions, false), (other, false)] {
        let mut world = holding(Vec::new());
        let job = world.held().unwrap().job_id.clone();
        world.manual(order.clone());
        if is_held {
            world.check(&["+ compaction", "compacted model_summary", "reseed"]);
            let compacted = world.committed();
            assert_eq!((&compacted.job_id, compacted.trigger), (&job, CompactionTrigger::Manual), "{order:?}");
            assert!(compacted.command_id.is_some());
        } else {
            world.check(&["summary"]).summary();
            // The held compaction is not used.
            let took = world.took();
            assert_eq!((&*took[0], &*took[2]), ("+ compaction", "compaction failed compaction_void"));
            assert!(took[1].starts_with("compacted ") && took[1].ends_with("_summary"), "{took:?}");
            assert_ne!(world.committed().job_id, job, "{order:?}");
        }
        assert_eq!(world.held(), None);
    }
    // A preview shows it, and is applied without another model request.
    let mut world = holding(Vec::new());
    let summary = world.held().unwrap().outcome.summary.clone();
    world.command(SessionCommand::PreviewCompaction(PreviewCompaction::default())).check(&["preview"]);
    let Reply::CompactionPreview(preview) = world.reply() else { panic!("{:?}", world.reply()) };
    assert_eq!(preview.summary, summary);
    let preview_id = Some(preview.preview_id.clone());
    world.manual(StartCompaction { preview_id, ..StartCompaction::default() });
    world.check(&["+ compaction", "compacted model_summary", "reseed"]);
}

#[test]
fn its_hooks_are_called_once_when_it_is_prepared() {
    let mut world = World::full(vec![hook("one", HookPoint::BeforeCompaction)], "threshold", 75);
    world.say("hello").check(&["+ user", "turn", "ask one before_compaction", "model"]);
    world.answer(json!({ "summary": "They met." })).check(&["prepared"]);
    world.model("hello").check(&["+ assistant", "end completed"]);
    world.restart(|_| ()).say(&much());
    world.check(&["+ user", "turn", "+ compaction", "compacted hook_summary", "reseed", "model"]);
    assert_eq!(world.committed().rung, CompactionRung::HookSummary);
}

/// What drops a held compaction, and what does not.
#[test]
fn only_a_change_of_its_input_drops_it() {
    let settings = StrategySettings::default;
    let redactor = || vec![hook("redactor", HookPoint::Context).for_reasons(&[ContextReason::BeforeRequest])];
    let patch = |world: &mut World, at: usize| {
        let entry = world.entries[at].clone();
        let message =
            json!({ "role": entry.message().unwrap().role, "content": [{ "type": "text", "text": "hidden" }] });
        let edits = json!([{ "entryId": entry.entry_id, "message": message }]);
        let patch = json!([{ "op": "messages_cached_edit", "edits": edits, "invalidateCacheReason": "redacted" }]);
        world.say("more").answer(json!({ "patch": patch })).model("on");
    };
    type Change<'a> = &'a dyn Fn(&mut World);
    let table: &[(&str, bool, Vec<HookSpec>, Change<'_>)] = &[
        ("a turn", true, Vec::new(), &|world| {
            world.say("more").model("on");
        }),
        ("a turn that is cancelled", true, Vec::new(), &|world| {
            world.say("more").cancel();
        }),
        ("a turn that fails", true, Vec::new(), &|world| {
            world.say("more").model_fails(ErrorCode::UpstreamAuth);
        }),
        ("a name", true, Vec::new(), &|world| {
            world.command(SessionCommand::RenameSession(RenameSession { name: "A name".into() }));
        }),
        ("instructions", true, Vec::new(), &|world| {
            world.command(SessionCommand::SetInstructions(SetInstructions { instructions: Some("Be kind.".into()) }));
        }),
        ("options", true, Vec::new(), &|world| {
            let set = SetOptions { temperature: Some(0.5), max_output_tokens: Some(100), ..SetOptions::default() };
            world.command(SessionCommand::SetOptions(set));
        }),
        ("tools", true, Vec::new(), &|world| {
            world.offer_tool();
        }),
        ("hooks", true, Vec::new(), &|world| {
            world.offer_hooks(json!([{ "name": "late", "point": "before_compaction" }]));
        }),
        ("a restart", true, Vec::new(), &|world| {
            world.restart(|_| ());
        }),
        ("a move behind what it takes out", true, Vec::new(), &|world| {
            world.go_to(8);
        }),
        ("a pin of what it takes out", true, Vec::new(), &|world| {
            let entry_id = world.entries[0].entry_id.clone();
            world.command(SessionCommand::PinEntry(PinEntry { entry_id }));
        }),
        ("a patch of what it keeps", true, redactor(), &|world| patch(world, 8)),
        ("when it is due", true, Vec::new(), &|world| {
            world.set_strategy("threshold", StrategySettings { threshold: Some(0.9), ..settings() });
        }),
        ("how long a summary may take", true, Vec::new(), &|world| {
            world.restart(|deployment| deployment.summaries.timeout_ms = 1);
        }),
        ("a patch of what it takes out", false, redactor(), &|world| patch(world, 0)),
        ("a move before what it takes out", false, Vec::new(), &|world| {
            world.go_to(1);
        }),
        ("another model", false, Vec::new(), &|world| {
            world.command(SessionCommand::SetModel(SetModel { model: "test-2".into(), reasoning_effort: None }));
        }),
        ("another strategy", false, Vec::new(), &|world| {
            world.set_strategy("importance", settings());
        }),
        ("what a compaction keeps", false, Vec::new(), &|world| {
            world.set_strategy("threshold", StrategySettings { keep_recent_tokens: Some(100), ..settings() });
        }),
        ("what it gets down to", false, Vec::new(), &|world| {
            world.restart(|deployment| deployment.options.target = 0.5);
        }),
        ("who summarises", false, Vec::new(), &|world| {
            world.restart(|deployment| deployment.summaries.model = Some("another".into()));
        }),
        ("where summaries are made", false, Vec::new(), &|world| {
            let change = |summaries: &mut Summaries| summaries.request = SummaryRequest::CachedPrefix;
            world.restart(|deployment| change(&mut deployment.summaries));
        }),
        ("a person who cancels it", false, Vec::new(), &|world| {
            world.command(SessionCommand::CancelCompaction(CancelCompaction { job_id: None }));
        }),
        ("another compaction", false, Vec::new(), &|world| {
            let order = StartCompaction { instructions: Some("mind the boats".into()), ..StartCompaction::default() };
            world.manual(order).summary();
        }),
    ];
    for (what, stays, hooks, change) in table {
        let mut world = holding(hooks.clone());
        let job = world.held().unwrap().job_id.clone();
        change(&mut world);
        let held = world.held().map(|held| held.job_id.clone());
        assert_eq!(held.as_ref() == Some(&job), *stays, "{what}");
        assert_eq!(
            world.agent.ledger.session.state.held.as_ref().map(|at| &at.job_id),
            held.as_ref(),
            "{what}: in the log"
        );
        let dropped = |event: &Event| matches!(event, Event::CompactionFailed(failed) if failed.job_id == job);
        let dropped = world.events.iter().any(dropped);
        assert_eq!(dropped, !stays, "{what}: whoever was told of it is told");
    }
}

#[test]
fn undoing_a_compaction_drops_the_held_one() {
    let mut world = holding(Vec::new());
    world.manual(StartCompaction::default()).took();
    while world.summarising.is_none() {
        world.say(&much()).model("so");
    }
    world.summary();
    assert!(world.held().is_some());
    world.command(SessionCommand::UndoCompaction(UndoCompaction::default()));
    assert_eq!((world.held(), world.agent.ledger.session.state.held.as_ref()), (None, None));
    // A compaction held before the pin keeps the pinned entry.
    let mut world = holding(Vec::new());
    let entry_id = world.entries[0].entry_id.clone();
    world.command(SessionCommand::PinEntry(PinEntry { entry_id: entry_id.clone() }));
    world.manual(StartCompaction::default());
    assert_eq!(world.committed().kept_entry_ids, [entry_id]);
}

#[test]
fn one_with_an_unreadable_record_is_dropped_and_made_again() {
    let mut world = holding(Vec::new());
    world.agent.ledger.session.held = None;
    world.took();
    world.restart(|_| ()).check(&["compaction failed compaction_void"]);
    assert_eq!(world.agent.ledger.session.state.held, None);
    world.say("more").check(&["+ user", "turn", "summary", "model"]);
}

#[test]
fn a_joining_client_is_shown_the_held_compaction() {
    let mut world = World::full(Vec::new(), "threshold", 75);
    assert_eq!(world.agent.snapshot().held, None);
    world.say("hello").model("hello").summary();
    let Some(EphemeralEvent::CompactionPrepared(told)) = world.emitted.last().cloned() else { panic!("not told") };
    assert_eq!(world.agent.snapshot().held, Some(*told.clone()));
    world.restart(|_| ());
    assert_eq!(world.agent.snapshot().held.map(|held| held.job_id), Some(told.job_id));
    world.command(SessionCommand::CancelCompaction(CancelCompaction { job_id: None }));
    assert_eq!(world.agent.snapshot().held, None);
}

/// Returns a `tool_results` session in which a clearing is held, at 75 % of the window. It has this many results with
/// this many sentences each.
fn with_results(results: usize, sentences: usize) -> World {
    let text = "The harbour lies to the west. ".repeat(sentences);
    let lines = (0..results).flat_map(|n| {
        [
            format!("u{n}:user {n}"),
            format!("c{n}:call k{n}"),
            format!("r{n}:result k{n} {n} {text}"),
            format!("a{n}:assistant so"),
        ]
    });
    let lines: Vec<String> = lines.collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let tokens = World::with(Vec::new(), &lines, |_, _| ()).agent.context_info().token_count;
    World::with(Vec::new(), &lines, |deployment, session| {
        session.state_mut().strategy = "tool_results".into();
        deployment.windows = Windows::new(Some(tokens * 100 / 75), Vec::new());
        deployment.summaries.model = Some("summariser".into());
    })
}

/// Returns a session with a held compaction that saves too little, the compaction's job, and the hook `one`.
fn holding_too_little() -> (World, JobId) {
    let mut world = holding(vec![hook("one", HookPoint::BeforeCompaction)]);
    let held = world.held().unwrap().job_id.clone();
    world.restart(|deployment| deployment.options.min_gain = 0.85).offer_tool().took();
    (world, held)
}

#[test]
fn one_that_would_save_too_little_when_due_stays_held_until_another_is_ready() {
    let (mut world, first) = holding_too_little();
    world.say(&much()).check(&["+ user", "turn", "ask one before_compaction", "model"]);
    assert_eq!(world.held().map(|held| &held.job_id), Some(&first));
    world.answer(json!({ "summary": "They met." })).check(&["compaction failed compaction_void", "prepared"]);
    assert_ne!(world.held().map(|held| &held.job_id), Some(&first));
    let failed = world.events.iter().rev().find_map(|event| match event {
        Event::CompactionFailed(failed) => Some(failed.job_id.clone()),
        _ => None,
    });
    assert_eq!(failed, Some(first), "whoever was told that it is held is told that it is not");
    world.model("hello").check(&["+ assistant", "end completed", "+ compaction", "compacted hook_summary", "reseed"]);
}

#[test]
fn one_that_would_save_too_little_when_due_is_committed_if_no_other_can_be_made() {
    let (mut world, first) = holding_too_little();
    world.say(&much()).pass().took();
    let request = world.summarising.take().expect("another summary is asked for");
    let fault = ModelFault::new(ErrorCode::UpstreamOverloaded, "a fault");
    world.tell(Input::Failed { request, fault, shown: Vec::new() });
    world.check(&["compaction failed upstream_overloaded"]);
    assert_eq!(world.held().map(|held| &held.job_id), Some(&first));
    world.model_calls(&[r#"{"where":"west"}"#]).took();
    world.tool("harbour").check(&["+ tool", "+ compaction", "compacted model_summary", "reseed", "model"]);
    assert_eq!((&world.committed().job_id, world.held()), (&first, None));
}

#[test]
fn one_that_would_save_too_little_is_committed_when_a_request_needs_the_room() {
    let (mut world, first) = holding_too_little();
    // With this, the request touches the room that is reserved for the answer.
    world.say(&much().repeat(2));
    world.check(&["+ user", "turn", "+ compaction", "compacted model_summary", "reseed", "model"]);
    assert_eq!((&world.committed().job_id, world.committed().paused_ms), (&first, 0));
}

#[test]
fn a_held_clearing_is_committed_without_asking_a_model() {
    // Each result has about 280 tokens.
    let mut world = with_results(20, 40);
    world.say("hello").model("hello");
    assert!(
        world.held().is_some_and(|held| held.outcome.rung == CompactionRung::ClearToolResults),
        "{:?}",
        world.took()
    );
    // Far more is appended than expected. The result is above the target, but good enough for `tool_results`.
    let window = world.agent.context_info().max_tokens;
    let much = "north ".repeat(usize::try_from(window / 8).unwrap());
    world.took();
    let took = world.say(&much).took();
    assert!(took.contains(&"compacted clear_tool_results".to_owned()), "{took:?}");
    let asked = world.sent.iter().filter(|sent| sent.purpose == Purpose::Summary).count();
    assert_eq!((asked, world.committed().summary_usage.as_ref()), (0, None));
}

#[test]
fn many_small_results_are_summarised_since_a_note_would_save_nothing() {
    // Each result has about 70 tokens, as many as the note that would replace it.
    let mut world = with_results(80, 10);
    world.say("hello").model("hello");
    assert!(world.summarising.is_some(), "{:?}", world.took());
    world.summary();
    assert_eq!(world.held().unwrap().outcome.rung, CompactionRung::ModelSummary);
}

#[test]
fn a_compaction_that_is_applied_while_a_call_it_removes_is_open_is_void_once_the_call_has_its_result() {
    let mut world = World::full(Vec::new(), "manual", 50);
    world.restart(|deployment| {
        deployment.options.target = 0.1;
        deployment.options.keep_recent_tokens = 50;
    });
    world.offer_tool().say("hello");
    let call = Part::ToolCall {
        call_id: "call_0".parse().unwrap(),
        name: "look".into(),
        arguments: r#"{"where":"left"}"#.into(),
    };
    world.model_says(vec![Part::Text { text: "The harbour lies to the north. ".repeat(90) }, call]);
    world.command(SessionCommand::PreviewCompaction(PreviewCompaction::default())).summary().took();
    let Reply::CompactionPreview(preview) = world.reply() else { panic!("{:?}", world.reply()) };
    assert_eq!(preview.first_kept_entry_id, None, "the answer with the call is removed");
    let preview_id = Some(preview.preview_id.clone());
    world.manual(StartCompaction { preview_id, ..StartCompaction::default() }).check(&[]);
    // Its summary does not contain the result, which would be lost with the call.
    world.tool("a cat");
    world.check(&["+ tool", "compaction failed compaction_void", "model"]);
    assert!(world.last_sent().last().unwrap().contains("a cat"), "{:?}", world.last_sent());
}
