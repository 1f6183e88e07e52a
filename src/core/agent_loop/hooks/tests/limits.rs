//! Time limits of hooks, and what happens when they do not answer.

use super::*;
use reseed_protocol::tools::CallProgress;

impl World {
    fn progress(&mut self) -> &mut Self {
        let hook_call_id = Some(self.question().call_id.clone());
        self.command(SessionCommand::CallProgress(CallProgress { tool_call_id: None, hook_call_id, message: None }))
    }

    /// Disconnects the client of the oldest pending call.
    fn is_away(&mut self) -> &mut Self {
        let call_id = self.question().call_id.clone();
        self.hear(call_id, Err(HookFault::unavailable("its client is not connected")));
        let open = self.agent.open_client_calls();
        self.open.retain(|(_, asked)| open.iter().any(|call| call.call_id == asked.call_id));
        self
    }

    fn is_back(&mut self) -> &mut Self {
        self.tell(Input::AskAgain { only_away: false })
    }

    fn failure(&self) -> String {
        let error = self.ended().error.clone().expect("the turn failed");
        error.message
    }
}

fn client(offer: Value) -> World {
    let mut world = World::new(Vec::new());
    world.offer_hooks(json!([offer])).say("hello").took();
    world
}

#[test]
fn a_hook_has_its_own_limit_or_the_servers() {
    for (spec, limit) in [(hook("one", HookPoint::Context), 1_000), (hook("one", HookPoint::Context).within(30), 30)] {
        let mut world = World::new(vec![spec]);
        world.say("hello").took();
        assert_eq!(world.question().deadline, Some(NOW.plus_millis(limit)));
        assert_eq!(world.agent.next_deadline(), Some(NOW.plus_millis(limit)));
        world.wait(limit - 1).check(&[]);
        world.wait(1).check(&["drop one", "one failed hook_timeout", "end failed hook_timeout"]);
        assert_eq!(
            world.failure(),
            format!(
                "the hook `one` at `context:before_request` failed: it did not answer within its limit of {limit} ms, \
                 nor say that it is still at work"
            )
        );
        world.check_at_rest();
    }
}

#[test]
fn the_effect_of_a_timeout_depends_on_the_point() {
    let table: &[(HookPoint, &[&str])] = &[
        (HookPoint::BeforeAgentStart, &["drop one", "one failed hook_timeout", "end failed hook_timeout"]),
        (HookPoint::Context, &["drop one", "one failed hook_timeout", "end failed hook_timeout"]),
        (HookPoint::Message, &["drop one", "one failed hook_timeout", "error hook_timeout"]),
        (HookPoint::ToolCall, &["drop one", "one failed hook_timeout", "+ tool", "model"]),
        (HookPoint::ToolResult, &["drop one", "one failed hook_timeout", "+ tool", "end failed hook_timeout"]),
    ];
    for (point, expected) in table {
        let mut world = World::new(vec![hook("one", *point)]);
        world.offer_tool().say("hello");
        if matches!(point, HookPoint::ToolCall | HookPoint::ToolResult) {
            world.model_calls(&[r#"{"where":"left"}"#]);
        }
        if *point == HookPoint::ToolResult {
            world.tool("a cat");
        }
        world.took();
        world.wait(1_000).check(expected);
    }
}

#[test]
fn a_late_answer_changes_nothing() {
    let mut world = World::new(vec![hook("one", HookPoint::Message)]);
    world.say("hello").pass().model("the original");
    let call_id = world.question().call_id.clone();
    world.wait(1_000).took();
    let answer = serde_json::from_value(instead("assistant", "another")).unwrap();
    world.hear(call_id, Ok(answer)).check(&[]);
    assert!(!world.entries.iter().any(|entry| kind_of(entry) == "assistant"), "nor is the original shown");

    let mut world = client(json!({ "point": "message", "timeoutMs": 50 }));
    let call_id = world.question().call_id.clone();
    world.wait(50).took();
    let late = json!({ "hookCallId": call_id, "message": instead("user", "x")["message"] });
    world
        .command(SessionCommand::HookResult(Box::new(serde_json::from_value(late).unwrap())))
        .check(&["error too_late"]);
    let Reply::Error(error) = world.reply() else { panic!("no error") };
    assert_eq!(error.message, format!("the hook call `{call_id}` has timed out; nothing was stored"));
}

#[test]
fn progress_moves_the_limit_up_to_its_hard_cap() {
    let mut world = client(json!({ "point": "context", "timeoutMs": 100 }));
    for at in 1..=10 {
        world.wait(95).progress();
        let expected = NOW.plus_millis((at * 95 + 100).min(1_000));
        assert_eq!(world.agent.next_deadline(), Some(expected), "after progress {at}");
        world.check(&[]);
    }
    world.wait(49).check(&[]);
    world.wait(1).check(&["drop client", "client failed hook_timeout", "end failed hook_timeout"]);
}

#[test]
fn a_required_hook_whose_client_is_away_is_waited_for() {
    let mut world = client(json!({ "point": "context", "timeoutMs": 100, "required": false }));
    world.is_away().check(&["ask client context:ephemeral"]);
    world.is_away().check(&["model"]);
    world.model("hello").is_away().check(&["+ assistant", "ask client context:turn_end", "end completed"]);
    assert!(world.emitted.iter().all(|event| !matches!(event, EphemeralEvent::HookFailed(_))));

    let mut world = client(json!({ "point": "context", "timeoutMs": 100 }));
    let first = world.question().clone();
    // The hook's own limit is paused, however short it is.
    world.wait(60).is_away().wait(3_000).check(&[]);
    // The client is back: it gets the same call again, with the remaining time.
    world.is_back().check(&["ask again client context:before_request"]);
    let again = HookCall { deadline: Some(NOW.plus_millis(3_100)), ..first };
    assert_eq!(*world.question(), again);
    world.wait(39).check(&[]);
    // Absences add up.
    world.is_away().wait(1_999).check(&[]);
    world.is_back().check(&["ask again client context:before_request"]);
    world.answer(json!({})).check(&["ask client context:ephemeral"]);
    world.is_away().wait(4_999).check(&[]);
    world.wait(1).check(&["drop client", "client failed hook_unavailable", "end failed hook_unavailable"]);
    assert_eq!(world.ended().error.as_ref().map(|error| error.retriable), Some(true));
    let why = "its client is not connected, and did not come back in time";
    assert_eq!(world.failure(), format!("the hook `client` at `context:ephemeral` failed: {why}"));
    world.check_at_rest();
}

#[test]
fn absences_of_a_client_add_up_to_a_limit() {
    let mut world = client(json!({ "point": "context", "timeoutMs": 100 }));
    for _ in 0..4 {
        world.is_away().wait(1_200).is_back().check(&["ask again client context:before_request"]);
    }
    world.is_away().wait(199).check(&[]);
    world.wait(1).check(&["drop client", "client failed hook_unavailable", "end failed hook_unavailable"]);
}

/// For each point, checks what ends when a required hook's client stays away.
#[test]
fn a_client_that_stays_away_ends_the_subject_at_every_point() {
    let gone = "client failed hook_unavailable";
    let ended = "end failed hook_unavailable";
    let table: &[(&str, &[&str])] = &[
        ("before_agent_start", &["drop client", gone, ended]),
        ("context", &["drop client", gone, ended]),
        ("message", &["drop client", gone, "error hook_unavailable"]),
        ("tool_call", &["drop client", gone, "+ tool", ended]),
        ("tool_result", &["drop client", gone, "+ tool", ended]),
    ];
    for (event, expected) in table {
        let mut world = World::new(Vec::new());
        world.offer_hooks(json!([{ "point": event }])).offer_tool().say("hello");
        if event.starts_with("tool") {
            world.model_calls(&[r#"{"where":"left"}"#]);
        }
        if *event == "tool_result" {
            world.tool("a cat");
        }
        world.is_away().took();
        world.wait(4_999).check(&[]);
        world.wait(1).check(expected);
        world.check_at_rest();
    }
    // An answer that the hook did not inspect is not shown.
    let mut world = client(json!({ "point": "message" }));
    world.answer(json!({})).model("the original").is_away().took();
    world.wait(5_000).check(&["drop client", gone, ended]);
    assert!(!world.entries.iter().any(|entry| kind_of(entry) == "assistant"));
}

#[test]
fn another_client_that_offers_the_same_hook_takes_it_over() {
    let offer = |name: &str| json!([{ "name": name, "point": "context", "reasons": ["before_request"] }]);
    let mut world = World::new(Vec::new());
    world.offer_hooks(offer("policy")).say("hello").took();
    let call_id = world.question().call_id.clone();
    world.is_away().offer_hooks(offer("other")).check(&[]);
    let stray = json!({ "hookCallId": call_id });
    let stray = SessionCommand::HookResult(Box::new(serde_json::from_value(stray).unwrap()));
    world.command(stray).check(&["error unknown_call"]);
    world.wait(3_000).offer_hooks(offer("policy")).check(&["ask again policy context:before_request"]);
    world.answer(json!({})).check(&["model"]);
    world.model("hello").check_at_rest();
}

#[test]
fn a_client_that_returns_but_does_not_answer_times_out() {
    let mut world = client(json!({ "point": "context", "timeoutMs": 100 }));
    world.is_away().wait(60).progress();
    world.wait(100).check(&["drop client", "client failed hook_timeout", "end failed hook_timeout"]);
}

#[test]
fn a_client_may_replace_its_hooks_during_a_call() {
    let offer = json!({ "point": "context", "reasons": ["before_request"] });
    // Registering the same hooks again, any number of times, keeps the call pending.
    let mut world = client(offer.clone());
    for _ in 0..5 {
        world.offer_hooks(json!([offer])).check(&[]);
    }
    world.offer_hooks(json!([offer, { "point": "context", "name": "more", "reasons": ["ephemeral"] }])).check(&[]);
    world.answer(json!({})).check(&["ask more context:ephemeral"]);
    world.answer(json!({})).check(&["model"]);
    // If no hook is offered, a required one counts as away and any other one is skipped.
    let mut world = client(offer.clone());
    world.offer_hooks(json!([])).check(&[]);
    assert!(world.agent.open_client_calls().is_empty());
    world.wait(5_000).check(&["drop client", "client failed hook_unavailable", "end failed hook_unavailable"]);
    let mut optional = offer.clone();
    optional["required"] = json!(false);
    let mut world = client(optional);
    world.offer_hooks(json!([])).check(&["model"]);
}

#[test]
fn a_clients_answer_for_a_servers_hook_is_unknown() {
    let mut world = World::new(vec![hook("one", HookPoint::Context)]);
    world.say("hello").took();
    let result = json!({ "hookCallId": world.question().call_id });
    world
        .command(SessionCommand::HookResult(Box::new(serde_json::from_value(result).unwrap())))
        .check(&["error unknown_call"]);
    world.progress().check(&["error unknown_call"]);
    world.pass().model("hello").pass().check_at_rest();
}

#[test]
fn slow_hooks_do_not_time_out_a_tool_that_has_answered() {
    let mut world = World::new(vec![hook("one", HookPoint::ToolResult).within(60_000)]);
    world.offer_tool().say("hello").model_calls(&[r#"{"where":"left"}"#, r#"{"where":"right"}"#]);
    world.tool("a cat").took();
    // The other tool exceeds its time limit.
    world.wait(10_000).check(&["+ tool"]);
    assert!(world.said("tool").starts_with("The tool did not answer within 10000 ms"));
    // Hooks are still inspecting the first tool's answer.
    assert_ne!(world.agent.next_deadline(), None);
    world.wait(30_000).answer(json!({})).check(&["+ tool", "model"]);
    assert_eq!(world.said("tool"), "a cat");
    world.model("done").check_at_rest();
}
