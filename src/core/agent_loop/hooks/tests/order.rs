//! The order of hook calls, and which of them are not waited for.

use super::*;
use reseed_protocol::{hooks::ContextReason, session::SetModel, turn::WhenBusy};

/// Returns a hook at every point around a turn.
fn all() -> Vec<HookSpec> {
    vec![
        hook("end", HookPoint::Context).for_reasons(&[ContextReason::TurnEnd]),
        hook("result", HookPoint::ToolResult),
        hook("call", HookPoint::ToolCall),
        hook("said", HookPoint::Message),
        hook("every", HookPoint::Context).for_reasons(&[ContextReason::BeforeRequest]),
        hook("once", HookPoint::Context).for_reasons(&[ContextReason::Ephemeral]),
        hook("start", HookPoint::BeforeAgentStart),
        hook("compact", HookPoint::BeforeCompaction),
    ]
}

#[test]
fn a_turn_calls_its_hooks_in_this_order() {
    let mut world = World::new(all());
    world.offer_tool().say("hello").check(&["ask said message:user"]);
    world.answer(json!({}));
    let mut steps: Vec<&dyn Fn(&mut World)> = Vec::new();
    let pass = |world: &mut World| {
        world.answer(json!({}));
    };
    let calls = |world: &mut World| {
        world.model_calls(&[r#"{"where":"left"}"#, r#"{"where":"right"}"#]);
    };
    let tool = |world: &mut World| {
        world.tool("a cat");
    };
    let done = |world: &mut World| {
        world.model("it is a cat");
    };
    steps.extend([&pass as &dyn Fn(&mut World), &pass, &pass, &calls, &pass, &pass, &pass, &tool, &tool]);
    steps.extend([&pass as &dyn Fn(&mut World), &pass, &pass, &pass, &pass, &pass, &done, &pass, &pass]);
    let mut took = vec![world.took()];
    for step in steps {
        step(&mut world);
        took.push(world.took());
    }
    let expected: Vec<Vec<&str>> = vec![
        vec!["+ user", "turn", "ask start before_agent_start"],
        vec!["ask every context:before_request"],
        vec!["ask once context:ephemeral"],
        vec!["model withheld"],
        vec!["ask said message:assistant"],
        vec!["+ assistant", "ask call tool_call"],
        vec!["ask call tool_call"],
        vec![r#"call look {"where":"left"}"#, r#"call look {"where":"right"}"#],
        // Tools answer independently, so hooks inspect both answers at once.
        vec!["ask result tool_result"],
        vec!["ask result tool_result"],
        vec!["ask said message:tool"],
        vec!["ask said message:tool"],
        vec!["+ tool"],
        vec!["+ tool", "ask every context:before_request"],
        vec!["ask once context:ephemeral"],
        vec!["model withheld"],
        vec!["ask said message:assistant"],
        vec!["+ assistant", "ask end context:turn_end"],
        vec!["end completed"],
    ];
    assert_eq!(took, expected);
    world.check_at_rest();
}

/// Returns a session that a threshold compacts before its next request.
fn full(hooks: Vec<HookSpec>) -> World {
    World::full(hooks, "threshold", 92)
}

#[test]
fn a_compaction_before_the_request_calls_no_hook_twice() {
    let mut world = full(all());
    world.say("hello").check(&["ask said message:user"]);
    world.answer(json!({})).check(&["+ user", "turn", "ask start before_agent_start"]);
    world.answer(json!({})).check(&["ask every context:before_request"]);
    world.answer(json!({})).check(&["ask compact before_compaction"]);
    world.answer(json!({})).check(&["summary"]);
    world.summary().check(&["+ compaction", "compacted chunked_summary", "reseed", "ask once context:ephemeral"]);
    world.answer(json!({})).check(&["model withheld"]);
    world.model("hello").pass();
    world.say("again").check(&[
        "ask said message:assistant",
        "+ assistant",
        "ask end context:turn_end",
        "end completed",
        "ask said message:user",
    ]);
    world.answer(json!({})).check(&["+ user", "turn", "ask start before_agent_start"]);
}

#[test]
fn a_request_repeated_after_an_overflow_calls_its_hooks_again() {
    let mut world = full(all());
    world.say("hello").pass().summary().pass().took();
    world.model_fails(ErrorCode::ContextOverflow).check(&["ask compact before_compaction"]);
    world.answer(json!({ "summary": "They met." }));
    world.check(&["+ compaction", "compacted hook_summary", "reseed", "ask every context:before_request"]);
    world.pass().check(&["ask once context:ephemeral", "model withheld"]);
}

#[test]
fn steered_input_is_inspected_before_it_is_queued() {
    let mut world = World::new(all());
    world.offer_tool().say("hello").pass();
    let mut steered = UserInput::plain(Said::Text("and mind the dog".into()));
    steered.when_busy = Some(WhenBusy::Steer);
    world.took();
    world.command(SessionCommand::UserInput(steered)).check(&["ask said message:user"]);
    let told = world.asked_for();
    assert_eq!(told["message"]["content"][0]["text"], "and mind the dog");
    assert_eq!(told.get("turnId"), None, "it is not of the turn that is running");
    world.answer(instead("user", "and mind the pet")).check(&["queue 1"]);
    world.model_calls(&[r#"{"where":"left"}"#]).pass().took();
    world.tool("a cat").pass();
    let took = world.took();
    assert_eq!(took[2..5], ["+ tool", "queue 0", "+ user"], "{took:?}");
    assert_eq!(world.newest("user").entry_id.as_str(), told["entryId"], "the entry that was named");
    assert_eq!(world.said("user"), "and mind the pet");
}

#[test]
fn server_hooks_come_before_client_hooks_in_order_of_registration() {
    let mut world = World::new(vec![
        hook("b", HookPoint::Message),
        hook("watches", HookPoint::Message).observing(),
        hook("a", HookPoint::Message),
    ]);
    world.offer_hooks(json!([
        { "name": "d", "point": "message" },
        { "name": "looks", "point": "message", "observe": true },
        { "point": "message" },
    ]));
    world.say("hello").pass();
    world.check(&[
        "ask b message:user",
        "tell watches message:user",
        "ask a message:user",
        "ask d message:user",
        "tell looks message:user",
        "ask client message:user",
        "+ user",
        "turn",
        "model withheld",
    ]);
}

#[test]
fn a_context_hook_is_called_for_its_reasons_or_for_all() {
    use ContextReason::{BeforeRequest, Ephemeral, TurnEnd};
    let table: &[(&[ContextReason], &[&str])] = &[
        (&[], &["before_request", "ephemeral", "turn_end"]),
        (&[BeforeRequest], &["before_request"]),
        (&[Ephemeral], &["ephemeral"]),
        (&[TurnEnd], &["turn_end"]),
        (&[TurnEnd, BeforeRequest], &["before_request", "turn_end"]),
    ];
    for (reasons, expected) in table {
        let mut world = World::new(vec![hook("h", HookPoint::Context).for_reasons(reasons)]);
        world.say("hello").pass().model("hello").pass();
        let took = world.took();
        let asked: Vec<&str> = took.iter().filter_map(|line| line.strip_prefix("ask h context:")).collect();
        assert_eq!(asked, *expected, "{reasons:?}");
        world.check_at_rest();
    }
}

#[test]
fn observers_are_notified_and_not_waited_for() {
    let observers: Vec<HookSpec> = all().into_iter().map(HookSpec::observing).collect();
    let run = |hooks: Vec<HookSpec>| {
        let mut world = full(hooks);
        world.offer_tool().say("hello").summary();
        world.model_calls(&[r#"{"where":"left"}"#]).tool("a cat").model("a cat it is").check_at_rest();
        world.took()
    };
    let (told, alone) = (run(observers), run(Vec::new()));
    let (tells, rest): (Vec<String>, Vec<String>) = told.into_iter().partition(|line| line.starts_with("tell "));
    assert_eq!(rest, alone, "the same is done in the same order");
    assert_eq!(
        tells,
        [
            "tell said message:user",
            "tell start before_agent_start",
            "tell every context:before_request",
            "tell compact before_compaction",
            "tell once context:ephemeral",
            "tell said message:assistant",
            "tell call tool_call",
            "tell result tool_result",
            "tell said message:tool",
            "tell every context:before_request",
            "tell once context:ephemeral",
            "tell said message:assistant",
            "tell end context:turn_end",
        ]
    );
}

#[test]
fn an_answer_is_withheld_only_from_a_hook_that_may_change_it() {
    let message = |name: &str| hook(name, HookPoint::Message);
    let table: Vec<(Vec<HookSpec>, Value, &str)> = vec![
        (vec![], json!([]), "model"),
        (vec![message("a").observing()], json!([]), "model"),
        (vec![message("a")], json!([]), "model withheld"),
        (vec![message("a").observing(), message("b")], json!([]), "model withheld"),
        (vec![hook("a", HookPoint::ToolCall)], json!([]), "model"),
        (vec![], json!([{ "point": "message", "observe": true }]), "model"),
        (vec![], json!([{ "point": "message" }]), "model withheld"),
    ];
    for (hooks, offers, expected) in table {
        let mut world = World::new(hooks);
        world.offer_hooks(offers.clone()).say("hello").pass();
        assert_eq!(world.took().last().unwrap(), expected, "{offers}");
    }
}

#[test]
fn a_model_change_during_hooks_repeats_only_the_hooks_of_the_single_request() {
    let other = || SessionCommand::SetModel(SetModel { model: "other".into(), reasoning_effort: None });
    let mut world = World::new(all());
    world.say("hello").answer(json!({})).answer(json!({}));
    world.command(other()).took();
    world.answer(json!({})).check(&["reseed", "ask once context:ephemeral"]);
    world.command(other());
    world.answer(json!({})).check(&["reseed", "ask once context:ephemeral"]);
    world.answer(json!({})).check(&["model withheld"]);
    assert_eq!(world.sent[0].model, "other");
}

#[test]
fn a_retried_turn_calls_its_hooks_again() {
    let mut world = World::new(all());
    world.say("hello").pass().took();
    world.model_fails(ErrorCode::UpstreamError).check(&["end failed upstream_error"]);
    world.command(SessionCommand::RetryTurn(reseed_protocol::turn::RetryTurn { turn_id: None }));
    world.pass().check(&[
        "turn",
        "ask start before_agent_start",
        "ask every context:before_request",
        "ask once context:ephemeral",
        "model withheld",
    ]);
}

#[test]
fn a_hook_offered_during_an_answer_is_called_from_the_next_one_on() {
    let mut world = World::new(vec![hook("watches", HookPoint::Message).observing()]);
    world.say("hello").check(&["tell watches message:user", "+ user", "turn", "model"]);
    world.offer_hooks(json!([{ "point": "message" }])).model("shown to all");
    world.check(&["tell watches message:assistant", "+ assistant", "end completed"]);
    world.say("again").pass().took();
    world.model("seen by nobody").check(&["tell watches message:assistant", "ask client message:assistant"]);
}
