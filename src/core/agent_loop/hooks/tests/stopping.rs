//! Hooks and their subjects when their turn is cancelled or the server stops.

use super::*;
use reseed_protocol::turn::{TurnStatus, WhenBusy};

/// Returns each point at which a turn waits, with the world once its hook is called.
fn open() -> Vec<(&'static str, World)> {
    let look = r#"{"where":"left"}"#;
    let at = |point: HookPoint| {
        let mut world = World::new(vec![hook("one", point)]);
        world.offer_tool();
        world
    };
    let context = |reason: &str| {
        let mut world = World::new(Vec::new());
        world.offer_tool().offer_hooks(json!([{ "name": "one", "point": "context", "reasons": [reason] }]));
        world.say("hello");
        world
    };
    let mut worlds = Vec::new();
    let mut world = at(HookPoint::BeforeAgentStart);
    world.say("hello");
    worlds.push(("before_agent_start", world));
    worlds.push(("context:before_request", context("before_request")));
    worlds.push(("context:ephemeral", context("ephemeral")));
    let mut world = at(HookPoint::Message);
    world.say("hello").pass().model_calls(&[look]);
    worlds.push(("message:assistant", world));
    let mut world = at(HookPoint::ToolCall);
    world.say("hello").model_calls(&[look, "{}", look]).answer(json!({ "block": true }));
    worlds.push(("tool_call", world));
    let mut world = at(HookPoint::ToolResult);
    world.say("hello").model_calls(&[look, look]).tool("a cat");
    worlds.push(("tool_result", world));
    let mut world = context("turn_end");
    world.model("done");
    worlds.push(("context:turn_end", world));
    for (name, world) in &mut worlds {
        let last = world.took().pop().unwrap();
        assert_eq!(last, format!("ask one {name}"));
    }
    worlds
}

#[test]
fn cancelling_a_turn_cancels_its_hooks_and_gives_every_call_a_result() {
    for (name, mut world) in open() {
        let late = world.question().call_id.clone();
        world.cancel();
        let expected: &[&str] = match name {
            "tool_call" => &["drop one", "+ tool", "+ tool", "+ tool", "end cancelled"],
            "tool_result" => &["drop one", "+ tool", "+ tool", "error too_late", "end cancelled"],
            _ => &["drop one", "end cancelled"],
        };
        assert_eq!(world.took(), expected, "{name}");
        world.check_at_rest();
        // A late answer has no effect.
        world.hear(late, Ok(HookAnswer::cancel())).check(&[]);
        world.say("again");
        while world.asked.is_none() {
            world.answer(json!({}));
        }
        world.model("yes").pass();
        assert_eq!(world.ended().status, TurnStatus::Completed, "{name}");
        world.check_at_rest();
    }
}

#[test]
fn a_stopping_server_waits_for_no_hook() {
    for (name, mut world) in open() {
        let call_id = world.calls.front().cloned();
        world.tell(Input::Stop(Box::new(gone())));
        assert_eq!(world.took().last().unwrap(), "end interrupted interrupted", "{name}");
        world.check_at_rest();
        // A tool answer under inspection was accepted: its command had its reply.
        assert_eq!(world.replies.len(), world.commands as usize, "{name}: {call_id:?}");
        world.tell(Input::Go);
        world.check_at_rest();
    }
}

#[test]
fn a_draining_server_finishes_the_turn_and_starts_no_other() {
    for (name, mut world) in open() {
        world.say("and then").tell(Input::Hold(Box::new(stopping())));
        for _ in 0..12 {
            if world.asked.is_some() {
                world.model("done");
            } else if !world.open.is_empty() {
                world.answer(json!({}));
            } else if !world.calls.is_empty() && !world.agent.is_idle() {
                world.tool("seen");
            }
        }
        assert_eq!(world.ended().status, TurnStatus::Completed, "{name}");
        world.check_at_rest();
        if name == "message:assistant" {
            // Input under inspection must be sent again.
            assert!(
                world.replies.iter().any(|(_, reply)| {
                    matches!(reply, Reply::Error(error) if error.code == ErrorCode::ShuttingDown)
                })
            );
            continue;
        }
        assert_eq!(world.agent.session().state.queue.len(), 1, "{name}");
        world.took();
        world.tell(Input::Go);
        assert_eq!(world.took()[..3], ["queue 0", "+ user", "turn"], "{name}");
    }
}

#[test]
fn a_turn_can_be_retried_after_the_process_died_during_a_hook() {
    for (name, mut world) in open() {
        // Only the log is left.
        let session = world.agent.session().clone();
        let deployment = world.agent.ledger.deployment.clone();
        let calibration = Calibration::new(Counter::for_model("test").method());
        let seed = Seed::new(session, deployment, calibration, IdSource::seeded(2));
        world.agent = AgentLoop::seeded(2, seed);
        (world.asked, world.open) = (None, VecDeque::new());
        world.took();
        world.tell(Input::Recovered);
        assert_eq!(world.took().last().unwrap(), "end interrupted interrupted", "{name}");
        world.check_at_rest();
        world.offer_tool().command(SessionCommand::RetryTurn(reseed_protocol::turn::RetryTurn { turn_id: None }));
        for _ in 0..12 {
            if world.asked.is_some() {
                world.model("done");
            } else if !world.open.is_empty() {
                world.answer(json!({}));
            }
        }
        assert_eq!(world.ended().status, TurnStatus::Completed, "{name}");
        world.check_at_rest();
        if name == "context:turn_end" {
            assert_eq!(world.sent.len(), 1, "what is answered is not asked again");
        }
    }
}

#[test]
fn a_turn_whose_last_hook_failed_is_retried_without_asking_the_model_again() {
    let mut world = World::new(vec![hook("one", HookPoint::Context)]);
    world.say("hello").answer(json!({})).answer(json!({})).model("the answer").took();
    world.fails(HookFault::failed("it broke")).check(&["one failed hook_failed", "end failed hook_failed"]);
    world.command(SessionCommand::RetryTurn(reseed_protocol::turn::RetryTurn { turn_id: None }));
    world.check(&["turn", "ask one context:turn_end"]);
    world.answer(json!({})).check(&["end completed"]);
    assert_eq!(world.sent.len(), 1);
}

#[test]
fn an_answer_that_was_not_shown_leaves_no_trace() {
    let mut world = World::new(vec![hook("one", HookPoint::Message)]);
    world.say("hello").pass().model("all of it").took();
    world.cancel().check(&["drop one", "end cancelled"]);
    let mut world = World::new(vec![hook("one", HookPoint::Message)]);
    world.say("hello").pass().took();
    world.cancel().check(&["hang up", "end cancelled"]);
    let mut world = World::new(vec![hook("one", HookPoint::Message)]);
    world.say("hello").pass().took();
    let request = world.asked.take().unwrap();
    let fault = ModelFault::new(ErrorCode::UpstreamError, "a fault");
    let shown = vec![Part::Text { text: "a secret".into() }];
    world.tell(Input::Failed { request, fault, shown }).check(&["end failed upstream_error"]);
}

#[test]
fn a_tools_answer_is_inspected_once() {
    let mut world = World::new(vec![hook("one", HookPoint::ToolResult)]);
    world.offer_tool().say("hello").model_calls(&[r#"{"where":"left"}"#]);
    let call = world.calls[0].clone();
    world.tool("a cat").took();
    world.calls.push_back(call);
    world.tool("a dog").check(&["error too_late"]);
    world.pass().model("done").check_at_rest();
    assert_eq!(world.said("tool"), "a cat");
}

#[test]
fn input_during_a_hook_call_waits() {
    for (name, mut world) in open() {
        let mut said = UserInput::plain(Said::Text("now".into()));
        said.when_busy = Some(WhenBusy::Reject);
        world.command(SessionCommand::UserInput(said)).check(&["error turn_running"]);
        world.say("later");
        let waits = if name == "message:assistant" { "ask one message:user" } else { "queue 1" };
        assert_eq!(world.took(), [waits], "{name}");
    }
}
