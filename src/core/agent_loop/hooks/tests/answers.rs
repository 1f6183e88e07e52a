//! Hook answers: which are applied, and which are refused.

use super::*;
use crate::hook::HookSpec;
use reseed_protocol::receipt::HookOutcome;

fn at(point: HookPoint) -> Vec<HookSpec> {
    vec![hook("one", point), hook("two", point)]
}

/// Returns a world at the first call to a hook of this point.
fn asked(hooks: Vec<HookSpec>) -> World {
    let point = hooks[0].point;
    let mut world = World::new(hooks);
    world.offer_tool().say("hello");
    match point {
        HookPoint::ToolCall => {
            world.model_calls(&[r#"{"where":"left"}"#]);
        }
        HookPoint::ToolResult => {
            world.model_calls(&[r#"{"where":"left"}"#]).tool("a cat");
        }
        _ => {}
    }
    world.took();
    world
}

#[test]
fn a_hook_sees_the_changes_of_earlier_hooks() {
    let mut world = asked(at(HookPoint::ToolResult));
    world.answer(json!({ "output": "a dog" }));
    let told = world.asked_for();
    assert_eq!((&told["output"], &told["isError"], &told["name"]), (&json!("a dog"), &json!(false), &json!("look")));
    world.answer(json!({ "isError": true })).check(&["ask two tool_result", "+ tool", "model"]);
    let Part::ToolResult { output, is_error, .. } = &world.newest("tool").message().unwrap().content[0] else {
        panic!("no result")
    };
    assert_eq!((output.as_str(), *is_error), ("a dog", true));

    let mut world = asked(at(HookPoint::ToolCall));
    world.answer(json!({ "arguments": r#"{"where":"up"}"# }));
    assert_eq!(world.asked_for()["arguments"], r#"{"where":"up"}"#);
    world.answer(json!({ "arguments": r#"{"where":"down"}"# }));
    world.check(&["ask two tool_call", r#"call look {"where":"down"}"#]);
    // The model sees its own call; the tool gets the hooks' version of it.
    assert!(all_of(world.newest("assistant").message().unwrap()).contains("left"));

    let mut world = asked(at(HookPoint::Message));
    world.pass().model("my secret is 4711").answer(instead("assistant", "my secret is ----"));
    assert_eq!(world.asked_for()["message"]["content"][0]["text"], "my secret is ----");
    world.answer(instead("assistant", "I have a secret"));
    assert_eq!(world.said("assistant"), "I have a secret");

    let mut world = asked(at(HookPoint::BeforeAgentStart));
    assert_eq!(world.asked_for()["systemPrompt"], "Be brief.");
    assert_eq!(world.asked_for()["input"], json!([{ "type": "text", "text": "hello" }]));
    world.answer(json!({ "systemPrompt": "Be kind." }));
    assert_eq!(world.asked_for()["systemPrompt"], "Be kind.");
    world.answer(json!({ "customMessage": { "customType": "note", "content": "It rains.", "display": true } }));
    assert_eq!(world.sent[0].envelope.system.compiled, "Be kind.");
    assert_eq!(world.last_sent(), ["user hello", "user It rains."]);
}

#[test]
fn an_empty_answer_changes_nothing() {
    let points = [
        HookPoint::BeforeAgentStart,
        HookPoint::Message,
        HookPoint::Context,
        HookPoint::ToolCall,
        HookPoint::ToolResult,
    ];
    let run = |hooks: Vec<HookSpec>| {
        let mut world = World::new(hooks);
        world.offer_tool().say("hello").pass().model_calls(&[r#"{"where":"left"}"#]).pass();
        world.tool("a cat").pass().model("it is a cat").pass();
        world.check_at_rest();
        let entries: Vec<Value> =
            world.entries.iter().filter_map(|entry| Some(json!(entry.message()?.content))).collect();
        let sent: Vec<Vec<String>> =
            world.sent.iter().map(|sent| sent.messages().map(|m| all_of(&m.message)).collect()).collect();
        let systems: Vec<String> = world.sent.iter().map(|sent| sent.envelope.system.compiled.clone()).collect();
        (entries.len(), sent, systems)
    };
    let alone = run(Vec::new());
    for point in points {
        assert_eq!(run(at(point)), alone, "{point:?}");
    }
    assert_eq!(run(points.into_iter().flat_map(at).collect()), alone);
}

/// Answers that a hook must not give at a point, and the errors for them.
#[test]
fn fields_that_a_point_does_not_allow_are_refused_by_name() {
    let long = "x".repeat(300_000);
    let huge = "x".repeat(1_100_000);
    let note = |kind: &str| json!({ "customMessage": { "customType": kind, "content": "x", "display": true } });
    let entries = |count: usize, text: &str| {
        let entry = json!({ "customType": "note", "data": text });
        json!({ "entries": vec![entry; count] })
    };
    let call = json!({ "type": "tool_call", "toolCallId": "mine", "name": "look", "arguments": "{}" });
    let image = json!({ "type": "image", "url": "https://example.org/a.png" });
    let sealed = json!({ "type": "reasoning", "text": "hm", "payload": { "id": 1 } });
    let parts = |parts: Value| json!({ "message": { "role": "assistant", "content": parts } });
    let mut table: Vec<(HookPoint, Value, &str)> = Vec::new();
    let fields = [
        ("message", instead("assistant", "x")["message"].clone()),
        ("systemPrompt", json!("x")),
        ("patch", json!([])),
        ("cancel", json!(true)),
        ("label", json!("x")),
        ("block", json!(false)),
        ("output", json!("x")),
    ];
    for (field, value) in fields {
        for (point, takes) in [
            (HookPoint::BeforeAgentStart, "systemPrompt"),
            (HookPoint::Message, "message"),
            (HookPoint::Context, "patch"),
            (HookPoint::ToolCall, "block"),
            (HookPoint::ToolResult, "output"),
        ] {
            if field != takes {
                let mut answer = json!({});
                answer[field] = value.clone();
                table.push((point, answer, "does not take the field"));
            }
        }
    }
    table.extend([
        (HookPoint::BeforeAgentStart, json!({ "error": "out of\norder" }), "it says: out oforder"),
        (HookPoint::Message, json!({ "error": "no hello" }), "it answered with an error"),
        (HookPoint::ToolResult, json!({ "error": "no cat" }), "it answered with an error"),
        (HookPoint::BeforeAgentStart, json!({ "systemPrompt": long }), "more than half of the model's window"),
        (HookPoint::BeforeAgentStart, note(" "), "`customType` must have 1 to 200 characters"),
        (HookPoint::BeforeAgentStart, entries(17, "x"), "at most 16 entries of hooks, not 17"),
        (HookPoint::BeforeAgentStart, entries(1, &long), "at most 65536 are allowed"),
        (HookPoint::ToolCall, json!({ "arguments": "{" }), "do not fit the tool's schema"),
        (HookPoint::ToolCall, json!({ "arguments": "{}" }), "do not fit the tool's schema"),
        (HookPoint::ToolCall, json!({ "arguments": long }), "at most 262144 are allowed"),
        (HookPoint::Message, parts(json!([])), "bytes of text; 1 to"),
        (HookPoint::Message, instead("assistant", &huge), "bytes of text; 1 to"),
        (HookPoint::Message, instead("user", "x"), "another role"),
        (HookPoint::Message, parts(json!([call])), "other tool calls"),
        (HookPoint::Message, parts(json!([image])), "a part that an answer cannot have"),
        (HookPoint::Message, parts(json!([sealed])), "opaque reasoning that is not the model's own"),
    ]);
    for (point, answer, why) in table {
        let mut world = asked(vec![hook("one", point)]);
        if point == HookPoint::Message {
            world.pass().model("hello").took();
        }
        let shown: String = answer.to_string().chars().take(100).collect();
        world.answer(answer);
        let failed = world.emitted.iter().find_map(|event| match event {
            EphemeralEvent::HookFailed(failed) => Some(failed.clone()),
            _ => None,
        });
        let failed = failed.unwrap_or_else(|| panic!("{point:?} takes {shown}"));
        assert_eq!(
            (failed.hook.as_str(), failed.point, failed.error.code),
            ("one", point, ErrorCode::HookFailed),
            "{shown}"
        );
        assert!(failed.error.message.contains(why), "{shown}: {}", failed.error.message);
        assert!(failed.error.message.len() < 600, "{shown}");
    }
}

/// A required hook blocks what it could not inspect; a hook that is not required is skipped.
#[test]
fn the_effect_of_a_failure_depends_on_the_point() {
    let table: &[(HookPoint, &[&str], &[&str])] = &[
        (
            HookPoint::BeforeAgentStart,
            &["one failed hook_failed", "end failed hook_failed"],
            &["one failed hook_failed", "ask two before_agent_start"],
        ),
        (
            HookPoint::Context,
            &["one failed hook_failed", "end failed hook_failed"],
            &["one failed hook_failed", "ask two context:before_request"],
        ),
        (
            HookPoint::Message,
            &["one failed hook_failed", "error hook_failed"],
            &["one failed hook_failed", "ask two message:user"],
        ),
        (
            HookPoint::ToolCall,
            &["one failed hook_failed", "+ tool", "model"],
            &["one failed hook_failed", "ask two tool_call"],
        ),
        (
            HookPoint::ToolResult,
            &["one failed hook_failed", "+ tool", "end failed hook_failed"],
            &["one failed hook_failed", "ask two tool_result"],
        ),
    ];
    for (point, required, optional) in table {
        let mut world = asked(at(*point).into_iter().map(HookSpec::optional).collect());
        world.fails(HookFault::failed("it broke")).check(optional);
        let mut world = asked(at(*point));
        world.fails(HookFault::failed("it broke")).check(required);
        match point {
            HookPoint::BeforeAgentStart | HookPoint::Context | HookPoint::ToolResult => {
                let error = world.ended().error.clone().unwrap();
                let event = if *point == HookPoint::Context { "context:before_request" } else { point.as_str() };
                assert_eq!(error.message, format!("the hook `one` at `{event}` failed: it broke"));
                assert_eq!(error.details, Some(json!({ "hook": "one", "point": event })));
            }
            HookPoint::ToolCall => assert_eq!(world.said("tool"), "Not called: the hook `one` failed."),
            _ => {}
        }
        if *point == HookPoint::ToolResult {
            assert_eq!(world.said("tool"), "The tool answered, but the hook `one` failed: its answer is not kept.");
        }
        // The session continues, and calls its hooks again.
        if world.asked.is_some() {
            world.model("done");
        }
        world.pass();
        if world.asked.is_some() {
            world.model("done").pass();
        }
        world.check_at_rest();
        world.say("again").pass().model("yes").pass();
        assert_eq!(end_of(world.ended()), "end completed", "{point:?}");
        world.check_at_rest();
    }
}

#[test]
fn a_failed_message_hook_discards_the_answer_and_its_turn_unless_it_is_optional() {
    let mut world = World::new(at(HookPoint::Message));
    world.say("hello").pass().model("the original").took();
    world.fails(HookFault::failed("it broke")).check(&["one failed hook_failed", "end failed hook_failed"]);
    assert_eq!(world.ended().error.as_ref().map(|error| error.retriable), Some(true));
    assert!(!world.entries.iter().any(|entry| kind_of(entry) == "assistant"));
    world.command(SessionCommand::RetryTurn(reseed_protocol::turn::RetryTurn { turn_id: None })).pass();
    world.model("another").pass();
    assert_eq!(world.said("assistant"), "another");
    world.check_at_rest();

    let mut world = World::new(at(HookPoint::Message).into_iter().map(HookSpec::optional).collect());
    world.say("hello").pass().model("the original").took();
    world.fails(HookFault::failed("it broke"));
    assert_eq!(world.asked_for()["message"]["content"][0]["text"], "the original");
    world.answer(json!({}));
    world.check(&["one failed hook_failed", "ask two message:assistant", "+ assistant", "end completed"]);
    assert_eq!(world.said("assistant"), "the original");
}

/// If a withheld answer arrives after its required hook has left, it is discarded.
#[test]
fn a_withheld_answer_is_not_shown_after_its_hook_has_left() {
    let redact = || json!({ "name": "redact", "point": "message" });
    let lost: &[&str] = &["redact failed hook_unavailable", "end failed hook_unavailable"];
    let kept: &[&str] = &["+ assistant", "end completed"];
    let asked: &[&str] = &["ask redact message:assistant"];
    let server = || vec![hook("redact", HookPoint::Message)];
    let optional = json!([{ "name": "redact", "point": "message", "required": false }]);
    let observing = json!([{ "name": "redact", "point": "message", "observe": true }]);
    let other = json!([{ "name": "other", "point": "message" }]);
    let elsewhere = json!([{ "name": "redact", "point": "tool_result" }]);
    let table: Vec<(Vec<HookSpec>, Value, Value, &[&str])> = vec![
        (vec![], json!([redact()]), json!([]), lost),
        (vec![], json!([redact()]), optional.clone(), lost),
        (vec![], json!([redact()]), observing, lost),
        (vec![], json!([redact()]), other, lost),
        (vec![], json!([redact()]), elsewhere, lost),
        (vec![], json!([redact(), redact()]), json!([redact()]), lost),
        (server(), json!([redact()]), json!([]), lost),
        (server(), json!([]), json!([]), asked),
        (vec![], json!([redact()]), json!([redact()]), asked),
        (vec![], optional, json!([]), kept),
    ];
    for (hooks, before, after, expected) in table {
        let begin = || {
            let mut world = World::new(hooks.clone());
            world.offer_hooks(before.clone()).say("hello").pass();
            assert_eq!(world.took().last().unwrap(), "model withheld", "{before}");
            world.offer_hooks(after.clone()).check(&[]);
            world
        };
        let says = |world: &World| world.entries.iter().any(|entry| json!(entry).to_string().contains("my secret"));
        let mut world = begin();
        world.model("my secret is 4711");
        assert_eq!(world.took(), expected, "{before}, then {after}");
        assert_eq!(says(&world), expected == kept, "{before}, then {after}");
        if expected == lost {
            let error = world.ended().error.clone().unwrap();
            assert!(error.retriable && error.message.contains("`redact`"), "{error:?}");
            assert_eq!(error.details, Some(json!({ "hook": "redact", "point": "message" })));
            world.check_at_rest();
            world.command(SessionCommand::RetryTurn(reseed_protocol::turn::RetryTurn { turn_id: None })).pass();
            world.model("another").pass();
            assert_eq!(world.said("assistant"), "another");
        }
        // If the turn is cancelled, no part of the answer is shown either.
        let mut world = begin();
        world.shown = vec![Part::Text { text: "my secret is 4711".into() }];
        world.cancel().check(&["hang up", "end cancelled"]);
        assert!(!says(&world), "{before}, then {after}");
    }
}

#[test]
fn a_blocked_call_is_reported_to_the_model_and_no_other_hook_is_called() {
    let mut world = World::new(at(HookPoint::ToolCall));
    world.offer_tool().say("hello");
    world.model_calls(&[r#"{"where":"left"}"#, "{}", r#"{"where":"right"}"#]).took();
    world.answer(json!({ "block": true, "reason": "the left is not yours" }));
    // The second call does not match the tool's schema, so no hook is called for it.
    world.check(&["ask one tool_call"]);
    assert_eq!(world.asked_for()["arguments"], r#"{"where":"right"}"#);
    world.answer(json!({ "block": true })).check(&["+ tool", "+ tool", "+ tool", "model"]);
    let sent = world.last_sent();
    assert_eq!(sent[2], "tool Not called: the left is not yours");
    assert!(sent[3].starts_with("tool The arguments of `look` do not fit its schema"), "{}", sent[3]);
    assert_eq!(sent[4], "tool Not called: it is not allowed here.");
    world.model("done").check_at_rest();
}

#[test]
fn one_of_two_calls_can_be_blocked() {
    let mut world = World::new(vec![hook("one", HookPoint::ToolCall)]);
    world.offer_tool().say("hello").model_calls(&[r#"{"where":"left"}"#, r#"{"where":"right"}"#]).took();
    world.answer(json!({ "block": true })).answer(json!({}));
    world.check(&["ask one tool_call", "+ tool", r#"call look {"where":"right"}"#]);
    world.tool("a cat").model("done").check_at_rest();
    let sent = world.last_sent();
    assert_eq!(sent[2..], ["tool Not called: it is not allowed here.", "tool a cat"]);
}

#[test]
fn a_hooks_system_prompt_lasts_one_turn() {
    let mut world = World::new(vec![hook("one", HookPoint::BeforeAgentStart)]);
    let before = world.agent.context_info().token_count;
    world.offer_tool().say("hello").answer(json!({ "systemPrompt": "Be kind. ".repeat(100) }));
    world.model_calls(&[r#"{"where":"left"}"#]).tool("a cat").model("done");
    let systems = |world: &World| -> Vec<bool> {
        world.sent.iter().map(|sent| sent.envelope.system.compiled.starts_with("Be kind.")).collect()
    };
    assert_eq!(systems(&world), [true, true]);
    assert!(world.agent.context_info().token_count < before + 200, "the prompt is counted no more");
    world.say("again").pass();
    assert_eq!(systems(&world), [true, true, false]);
    assert_eq!(world.sent[2].envelope.system.compiled, "Be brief.");
}

#[test]
fn entries_added_at_the_start_follow_the_users_message() {
    let mut world = World::new(at(HookPoint::BeforeAgentStart));
    world.say("hello").took();
    let entry = |kind: &str| json!({ "customType": kind, "data": { "at": 1 } });
    world.answer(json!({ "entries": [entry("a"), entry("b")] }));
    world.answer(json!({ "entries": [entry("c")], "customMessage": { "customType": "note", "content": "It rains.", "display": false } }));
    world.check(&["ask two before_agent_start", "+ custom", "+ custom", "+ custom_message", "+ custom", "model"]);
    let parents: Vec<bool> =
        world.entries.windows(2).map(|two| two[1].parent_id.as_ref() == Some(&two[0].entry_id)).collect();
    assert_eq!(parents, [true; 4]);
    assert_eq!(world.last_sent(), ["user hello", "user It rains."]);
}

#[test]
fn a_refused_answer_adds_nothing_at_the_start() {
    let optional = hook("one", HookPoint::BeforeAgentStart).optional();
    let mut world = World::new(vec![optional, hook("two", HookPoint::BeforeAgentStart)]);
    world.say("hello").took();
    let entry = json!({ "customType": "note", "data": 1 });
    let message = json!({ "customType": "note", "content": "It rains.", "display": true });
    world.answer(json!({ "entries": vec![entry.clone(); 17], "customMessage": message }));
    // The next hook's answer counts by itself.
    world.answer(json!({ "entries": vec![entry; 16] }));
    let took = world.took();
    assert!(took.contains(&"one failed hook_failed".to_owned()), "{took:?}");
    let added = |kind: &str| took.iter().filter(|line| *line == kind).count();
    assert_eq!((added("+ custom"), added("+ custom_message")), (16, 0), "{took:?}");
    assert_eq!(world.last_sent(), ["user hello"]);
}

/// Returns a session whose hook is inspecting an answer that used 30 and 12 tokens.
fn answered_for_30_and_12_tokens() -> World {
    let mut world = World::new(vec![hook("one", HookPoint::Message)]);
    world.say("hello").pass();
    let request = world.asked.take().unwrap();
    let usage =
        crate::model::ReportedUsage { input_tokens: 30, output_tokens: 12, ..crate::model::ReportedUsage::default() };
    let parts = vec![Part::Text { text: "hello to you and to all the others".into() }];
    world.tell(Input::Answered {
        request,
        answer: Answer { usage: Some(usage), ..Answer::new(parts, StopReason::Stop) },
    });
    world
}

#[test]
fn a_discarded_answer_is_billed() {
    let ends: [fn(&mut World); 2] = [
        |world| {
            world.fails(HookFault::failed("it broke"));
        },
        |world| {
            world.cancel();
        },
    ];
    for ends in ends {
        let mut world = answered_for_30_and_12_tokens();
        ends(&mut world);
        assert!(!world.entries.iter().any(|entry| kind_of(entry) == "assistant"));
        for told in [&world.ended().usage, &world.ended().withheld_usage] {
            let paid = told.as_ref().unwrap();
            assert_eq!((paid.input_tokens, paid.output_tokens), (30, 12));
        }
        assert_eq!(world.agent.session().state.cost.unpriced_requests, 1, "nobody knows its price");
    }
}

#[test]
fn a_changed_answer_is_counted_as_changed_and_billed_as_received() {
    let mut world = answered_for_30_and_12_tokens();
    world.answer(instead("assistant", &"a longer answer ".repeat(60)));
    let paid = world.ended().usage.clone().unwrap();
    assert_eq!((paid.input_tokens, paid.output_tokens), (30, 12));
    assert_eq!(world.ended().withheld_usage, None);
    let tokens = world.ended().context_info.token_count;
    assert!(tokens > 170, "{tokens} tokens: the report is of an answer that is not sent back");
}

#[test]
fn a_receipt_lists_the_hooks_that_a_request_called() {
    // Hook runs on the input do not belong to the request.
    let hooks = vec![
        hook("one", HookPoint::BeforeAgentStart),
        hook("two", HookPoint::Context).for_reasons(&[reseed_protocol::hooks::ContextReason::BeforeRequest]),
        hook("three", HookPoint::Message),
    ];
    let mut world = World::new(hooks);
    world.say("hello").wait(7).answer(json!({}));
    world.wait(40).answer(json!({ "systemPrompt": "Be kind." })).wait(5).answer(json!({}));
    let runs: Vec<(&str, &str, HookOutcome, u64)> = world
        .agent
        .turn
        .runs()
        .iter()
        .map(|run| (run.hook.as_str(), run.point.as_str(), run.outcome, run.duration_ms))
        .collect();
    assert_eq!(
        runs,
        [
            ("one", "before_agent_start", HookOutcome::Changed, 40),
            ("two", "context:before_request", HookOutcome::Unchanged, 5)
        ]
    );
}
