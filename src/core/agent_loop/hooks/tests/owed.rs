//! Required hooks whose client is gone: another client took over, or the client has not returned since the session was
//! read from the store. Also covers inputs that are withdrawn, or extended by hooks, during inspection.

use super::*;
use reseed_protocol::{content::InputContent, tree::AppendCustomMessage, turn::WhenBusy};

fn required(names: &[(&str, &str)]) -> Value {
    names.iter().map(|(name, point)| json!({ "name": name, "point": point })).collect()
}

impl World {
    /// Transfers the session to another client that offers these hooks.
    fn taken_over(&mut self, offers: Value) -> &mut Self {
        self.tell(Input::HostLeft);
        self.open.retain(|(place, _)| *place != HookPlace::Client);
        self.offer_hooks(offers)
    }

    /// Reads the session from the store in another process.
    fn restarted(&mut self) -> &mut Self {
        let old = std::mem::replace(&mut self.agent, World::new(Vec::new()).agent).into_seed();
        let calibration = Calibration::new(Counter::for_model("test").method());
        let seed = Seed::new(old.session, old.deployment, calibration, IdSource::seeded(2));
        self.agent = AgentLoop::seeded(2, seed);
        (self.asked, self.open) = (None, VecDeque::new());
        self.tell(Input::Recovered)
    }

    fn kept(&self) -> Vec<&str> {
        let hooks = &self.agent.session().state.hooks;
        hooks.iter().filter_map(|offer| offer.name.as_deref()).collect()
    }
}

const LOOK: &str = r#"{"where":"left"}"#;

#[test]
fn later_points_of_a_turn_still_require_the_old_hosts_hooks() {
    let hooks =
        || required(&[("calls", "tool_call"), ("results", "tool_result"), ("said", "message"), ("sent", "context")]);
    // Each case is the turn's progress when another client takes over, and the hook that this progress requires.
    type Case = (&'static str, fn(&mut World));
    let table: [Case; 4] = [
        ("sent", |world| {
            world.say("what is there").answer(json!({})).took();
        }),
        ("said", |world| {
            world.say("what is there").pass().took();
        }),
        ("calls", |world| {
            world.say("what is there").pass().model_calls(&[LOOK]).answer(json!({})).took();
        }),
        ("results", |world| {
            world.say("what is there").pass().model_calls(&[LOOK]).pass().took();
        }),
    ];
    let goes_on = |world: &mut World, at: &str| match at {
        "said" => {
            world.model("a cat");
        }
        "results" => {
            world.tool("a cat");
        }
        _ => {}
    };
    for (at, begins) in table {
        // No client offers the hook again.
        let mut world = World::new(Vec::new());
        world.offer_tool().offer_hooks(hooks());
        begins(&mut world);
        world.taken_over(json!([])).took();
        goes_on(&mut world, at);
        let took = world.took();
        assert!(took.iter().all(|line| !line.starts_with("ask") && !line.starts_with("end")), "{at}: {took:?}");
        world.wait(4_999);
        assert_eq!(world.took(), [] as [&str; 0], "{at}: it waits");
        world.wait(1).took();
        let error = world.ended().error.as_ref().unwrap_or_else(|| panic!("{at}: it went on"));
        assert_eq!((error.code, error.retriable), (ErrorCode::HookUnavailable, true), "{at}");
        assert_eq!(error.details.as_ref().unwrap()["hook"], at, "{at}: {error:?}");
        assert!(world.entries.iter().all(|entry| !json!(entry).to_string().contains("a cat")), "{at}");
        // The new host's input does not need the old host's hook.
        world.say("and now").check(&["+ user", "turn", "model"]);
        assert_eq!(world.kept(), [] as [&str; 0], "{at}");
        world.model("nothing").check_at_rest();
        // A client offers the hook again, after the new host.
        let mut world = World::new(Vec::new());
        world.offer_tool().offer_hooks(hooks());
        begins(&mut world);
        world.taken_over(required(&[("own", "before_compaction")])).took();
        goes_on(&mut world, at);
        world.offer_hooks(hooks());
        assert_eq!(world.question().hook, at);
        world.pass();
        while !world.agent.is_idle() {
            match world.asked.is_some() {
                true => world.model("a dog").pass(),
                false => world.tool("a cat").pass(),
            };
        }
        assert_eq!(world.ended().error, None, "{at}");
    }
}

#[test]
fn the_new_host_can_send_input_while_the_old_turn_waits() {
    let mut world = World::new(Vec::new());
    world.offer_hooks(required(&[("said", "message"), ("sent", "context")]));
    world.say("first").pass().took();
    world.say("second").answer(json!({})).took();
    world.taken_over(json!([])).took();
    // No hook is called for it, and it waits behind the earlier input.
    world.say("third").check(&["queue 2"]);
    world.model("yes").check(&[]);
    world.wait(5_000).check(&[
        "said failed hook_unavailable",
        "end failed hook_unavailable",
        "queue 1",
        "+ user",
        "turn",
    ]);
    assert_eq!(world.kept(), ["said", "sent"], "the second was accepted under them");
    world.wait(5_000);
    assert_eq!(world.took().last().unwrap(), "model", "the third was not");
    assert_eq!(world.last_sent().last().unwrap(), "user third");
    assert_eq!(world.kept(), [] as [&str; 0]);
    world.model("yes").check_at_rest();
}

#[test]
fn queued_input_needs_its_required_hooks_after_a_restart() {
    let begun = || {
        let mut world = World::new(Vec::new());
        world.offer_hooks(json!([
            { "name": "said", "point": "message" },
            { "name": "sent", "point": "context", "reasons": ["before_request"], "timeoutMs": 500 },
            { "name": "more", "point": "context", "required": false },
        ]));
        world.say("first").pass();
        world.say("second").answer(json!({})).took();
        assert_eq!(world.kept(), ["said", "sent"]);
        world.restarted().check(&["end interrupted interrupted", "queue 0", "+ user", "turn"]);
        world
    };
    // No client returns.
    let mut world = begun();
    world.wait(5_000).check(&["sent failed hook_unavailable", "end failed hook_unavailable"]);
    assert!(world.ended().error.as_ref().unwrap().retriable);
    assert_eq!(world.sent.len(), 1, "only what was asked before");
    world.check_at_rest();
    // Its client returns.
    let mut world = begun();
    world.wait(3_000).offer_hooks(required(&[("said", "message"), ("sent", "context")]));
    world.check(&["ask sent context:before_request"]);
    world.pass().model("yes").check(&["ask sent context:ephemeral", "model withheld", "ask said message:assistant"]);
    world.pass().check_at_rest();
    // A session without required hooks continues at once.
    let mut world = World::new(Vec::new());
    world.say("first").say("second").took();
    world.restarted().check(&["end interrupted interrupted", "queue 0", "+ user", "turn", "model"]);
}

#[test]
fn a_client_can_unregister_its_own_hooks() {
    let mut world = World::new(Vec::new());
    world.offer_tool().offer_hooks(required(&[("calls", "tool_call")]));
    world.say("what is there");
    assert_eq!(world.kept(), ["calls"]);
    world.offer_hooks(json!([])).took();
    assert_eq!(world.kept(), [] as [&str; 0]);
    world.model_calls(&[LOOK]).check(&["+ assistant", &format!("call look {LOOK}")]);
}

#[test]
fn an_input_whose_hook_does_not_answer_can_be_withdrawn() {
    let mut world = World::new(Vec::new());
    world.offer_hooks(required(&[("said", "message")]));
    world.say("first").say("second").check(&["ask said message:user"]);
    let (_, first) = world.open[0].clone();
    world.hear(first.call_id, Err(HookFault::unavailable("its client is not connected"))).check(&[]);
    world.cancel().check(&["drop said", "error input_cancelled", "ask said message:user"]);
    assert_eq!(world.asked_for()["message"]["content"][0]["text"], "second");
    assert!(world.events.is_empty() && world.replies.iter().any(|(_, reply)| matches!(reply, Reply::Ok(_))));
    world.answer(json!({})).took();
    // While a turn is running, the turn is cancelled.
    world.say("third").cancel();
    assert!(world.took().contains(&"hang up".to_owned()));
    world.answer(json!({})).took();
    world.model("yes").pass().check_at_rest();
}

#[test]
fn messages_that_a_hook_adds_during_inspection_go_with_the_input() {
    let content = InputContent::Text("a note".into());
    let note = AppendCustomMessage { custom_type: "note".into(), content, display: true, details: None };
    let unseen = UserInput { if_leaf: Some(None), ..UserInput::plain(Said::Text("hello".into())) };
    let now = UserInput { when_busy: Some(WhenBusy::Reject), ..UserInput::plain(Said::Text("hello".into())) };
    for input in [unseen, now] {
        let mut world = World::new(vec![hook("one", HookPoint::Message)]);
        world.command(SessionCommand::UserInput(input)).check(&["ask one message:user"]);
        let id = "hook-command-0001".parse().unwrap();
        let command = Box::new(SessionCommand::AppendCustomMessage(note.clone()));
        world.tell(Input::Command { origin: Origin::HOOK, id, fingerprint: 0, command, lookup: None });
        world.check(&["queue 1"]);
        world.answer(json!({})).check(&["+ user", "turn", "queue 0", "+ custom_message", "model withheld"]);
        assert_eq!(world.last_sent(), ["user hello", "user a note"]);
        world.model("yes").pass().check_at_rest();
        // It is kept even if the input is refused.
        let mut world = World::new(vec![hook("one", HookPoint::Message)]);
        world.say("hello").took();
        let (id, command) =
            ("hook-command-0001".parse().unwrap(), Box::new(SessionCommand::AppendCustomMessage(note.clone())));
        world.tell(Input::Command { origin: Origin::HOOK, id, fingerprint: 0, command, lookup: None }).took();
        world.fails(HookFault::failed("it broke"));
        world.check(&["one failed hook_failed", "error hook_failed", "queue 0", "+ custom_message"]).check_at_rest();
    }
}

#[test]
fn a_tool_that_has_answered_gets_no_withdrawal() {
    let mut world = World::new(vec![hook("one", HookPoint::ToolResult)]);
    world.offer_tool().say("look").model_calls(&[LOOK, LOOK]);
    let answered = world.calls[0].clone();
    world.tool("a cat").took();
    world.fails(HookFault::failed("it broke")).took();
    let withdrawn: Vec<&CallId> = world
        .emitted
        .iter()
        .filter_map(|event| match event {
            EphemeralEvent::ToolCancelled(cancelled) => Some(&cancelled.call_id),
            _ => None,
        })
        .collect();
    assert_eq!(withdrawn, [&world.calls[0]], "only the one that had not answered");
    assert_ne!(withdrawn[0], &answered);
    let results: Vec<String> = world.entries.iter().filter_map(Entry::message).map(all_of).collect();
    assert!(results.iter().any(|said| said.contains("The tool answered, but the hook `one` failed")), "{results:?}");
    assert!(results.iter().all(|said| !said.contains("a cat")), "{results:?}");
    world.check_at_rest();
}
