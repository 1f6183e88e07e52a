//! Hooks that inspect input before it is accepted, and the commands that wait behind it.

use super::*;
use crate::fingerprint::withheld;
use reseed_protocol::{
    EntryId,
    content::InputContent,
    tree::{AppendCustomMessage, Navigate},
    turn::WhenBusy,
};

/// Returns a world whose input is being inspected.
fn looked_at() -> World {
    let mut world = World::new(vec![hook("one", HookPoint::Message)]);
    world.say("first").check(&["ask one message:user"]);
    world
}

fn input(text: &str) -> UserInput {
    UserInput::plain(Said::Text(text.into()))
}

fn busy(text: &str, when_busy: WhenBusy) -> SessionCommand {
    SessionCommand::UserInput(UserInput { when_busy: Some(when_busy), ..input(text) })
}

fn note() -> SessionCommand {
    let content = InputContent::Text("a note".into());
    SessionCommand::AppendCustomMessage(AppendCustomMessage {
        custom_type: "note".into(),
        content,
        display: true,
        details: None,
    })
}

#[test]
fn later_inputs_wait_for_the_inspected_one_and_keep_their_order() {
    let mut world = looked_at();
    world.say("second").check(&[]);
    world.command(note()).check(&[]);
    world.say("third").check(&[]);
    assert!(world.agent.is_busy() && world.replies.is_empty() && world.events.is_empty());
    world.answer(json!({})).check(&["+ user", "turn", "model withheld", "ask one message:user"]);
    assert_eq!(world.asked_for()["message"]["content"][0]["text"], "second");
    world.answer(json!({})).check(&["queue 1", "ask one message:user"]);
    // A client's custom message is inspected like an input.
    let asked = world.asked_for();
    assert_eq!(asked["message"]["content"][0]["text"], "a note");
    world.answer(instead("user", "a better note")).check(&["queue 2", "ask one message:user"]);
    world.answer(json!({})).check(&["queue 3"]);
    world.model("yes").pass().model("yes").pass().model("yes").pass();
    let said: Vec<String> =
        world.entries.iter().map(|entry| format!("{} {}", kind_of(entry), text_of(entry))).collect();
    let expected = [
        "user first",
        "assistant yes",
        "custom_message a better note",
        "user second",
        "assistant yes",
        "user third",
        "assistant yes",
    ];
    assert_eq!(said, expected);
    world.check_at_rest();
}

fn text_of(entry: &Entry) -> String {
    match &entry.data {
        EntryData::Message(message) => all_of(message),
        EntryData::CustomMessage(custom) => all_of(&Message::new(reseed_protocol::Role::User, custom.content.clone())),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_refused_input_leaves_no_trace_and_the_next_is_inspected() {
    let mut world = looked_at();
    world.say("second").took();
    world.fails(HookFault::failed("it broke"));
    world.check(&["one failed hook_failed", "error hook_failed", "ask one message:user"]);
    let Reply::Error(error) = world.reply() else { panic!("no error") };
    assert_eq!((error.retriable, error.details.as_ref().unwrap()["hook"].as_str()), (true, Some("one")));
    assert!(world.events.is_empty());
    world.answer(json!({})).check(&["+ user", "turn", "model withheld"]);
    assert_eq!(world.last_sent(), ["user second"]);
    world.model("yes").pass().check_at_rest();
}

#[test]
fn input_that_may_not_wait_is_refused_before_any_hook_is_called() {
    let mut world = looked_at();
    world.command(busy("now", WhenBusy::Reject)).check(&["error turn_running"]);
    let elsewhere = UserInput { parent_id: Some(None), ..input("elsewhere") };
    world.command_to(SessionCommand::UserInput(elsewhere), Some(Destination::default())).check(&["error turn_running"]);
    let move_ = Navigate {
        entry_id: None,
        position: None,
        summarize: None,
        instructions: None,
        replace_instructions: None,
        label: None,
    };
    world.command_to(SessionCommand::Navigate(move_), Some(Destination::default())).check(&["error turn_running"]);
    let Reply::Error(error) = world.reply() else { panic!("no error") };
    assert!(error.message.contains("hooks are inspecting an input"), "{}", error.message);
    let unseen = UserInput { if_leaf: Some(Some("nobody".parse().unwrap())), ..input("blind") };
    let mut world = World::new(vec![hook("one", HookPoint::Message)]);
    world.command(SessionCommand::UserInput(unseen)).check(&["error leaf_moved"]);
    world.say(" ").check(&["error empty_input"]);
    let mut world = looked_at();
    for _ in 0..16 {
        world.say("more").check(&[]);
    }
    world.say("too many").check(&["error queue_full"]);
}

#[test]
fn conditions_are_checked_again_after_hooks_have_inspected_an_input() {
    // The running turn has ended meanwhile, and the sender has not seen its latest message.
    let mut world = World::new(vec![hook("one", HookPoint::Message)]);
    world.say("first").answer(json!({})).took();
    let leaf: Option<EntryId> = world.agent.session().state.leaf.clone();
    world.command(SessionCommand::UserInput(UserInput { if_leaf: Some(leaf), ..input("second") }));
    world.check(&["ask one message:user"]);
    let call = world.open.pop_front().unwrap();
    world.model("yes").check(&["ask one message:assistant"]);
    world.answer(json!({})).check(&["+ assistant", "end completed"]);
    assert!(world.agent.is_busy(), "an input is still looked at");
    world.answer_to(call.0, call.1, json!({})).check(&["error leaf_moved"]).check_at_rest();
    // Without that condition the input starts a turn at once.
    world.say("third").answer(json!({})).check(&["ask one message:user", "+ user", "turn", "model withheld"]);
}

#[test]
fn the_next_loop_continues_the_inspection_of_an_input() {
    let mut world = World::new(vec![hook("one", HookPoint::Message)]);
    world.say("first").answer(json!({}));
    world.say("second").say("third").took();
    let call = world.open.pop_front().unwrap();
    world.model("yes").answer(json!({})).took();
    let other = reseed_protocol::session::SetModel { model: "other".into(), reasoning_effort: None };
    world.command(SessionCommand::SetModel(other)).check(&["+ model_change", "reseed"]);
    world.answer_to(call.0, call.1, instead("user", "2nd"));
    world.check(&["+ user", "turn", "model withheld", "ask one message:user"]);
    assert_eq!(world.asked_for()["message"]["content"][0]["text"], "third");
    assert_eq!(world.last_sent().last().unwrap(), "user 2nd");
}

#[test]
fn an_input_starts_its_branch_after_hooks_have_inspected_it() {
    let mut world = World::with(
        vec![hook("one", HookPoint::Message)],
        &["e0:user where", "e1:assistant there", "e2:user and", "e3:assistant so"],
        |_, _| (),
    );
    let leaf: EntryId = "e1".parse().unwrap();
    let tree = world.agent.session().tree.upto(&leaf).unwrap();
    let place = Destination { leaf: Some(leaf.clone()), tree, ..Destination::default() };
    let branch = UserInput { parent_id: Some(Some(leaf)), ..input("my number is 4711") };
    world.command_to(SessionCommand::UserInput(branch), Some(place)).check(&["ask one message:user"]);
    world.say("later").check(&[]);
    world.answer(instead("user", "my number is ----"));
    // The new branch's loop inspects the inputs that waited behind it.
    world.check(&["+ user", "turn", "reseed", "model withheld", "ask one message:user"]);
    assert_eq!(world.last_sent(), ["user where", "assistant there", "user my number is ----"]);
}

#[test]
fn a_stopping_server_refuses_inputs_under_inspection() {
    let mut world = looked_at();
    world.say("second").took();
    world.tell(Input::Stop(Box::new(stopping())));
    world.check(&["error shutting_down", "drop one", "error shutting_down"]);
    assert!(world.events.is_empty());
    world.check_at_rest();
    // A draining session does not wait for the hook either, because nothing was accepted.
    let mut world = looked_at();
    world.say("second").took();
    let late = world.question().call_id.clone();
    world.tell(Input::Hold(Box::new(stopping())));
    world.check(&["error shutting_down", "drop one", "error shutting_down"]).check_at_rest();
    world.hear(late, Ok(HookAnswer::default())).check(&[]).check_at_rest();
}

#[test]
fn deleting_a_session_refuses_inputs_under_inspection() {
    let mut world = looked_at();
    world.say("second").took();
    world.tell(Input::Stop(Box::new(gone())));
    world.check(&["error session_not_found", "drop one", "error session_not_found"]).check_at_rest();
}

#[test]
fn a_command_is_inspected_once_and_remembered_without_removed_text() {
    let mark = |answer: Value| {
        let mut world = World::new(vec![hook("one", HookPoint::Message)]);
        let id: CommandId = "command-000000000001".parse().unwrap();
        let send = |world: &mut World, fingerprint: u64| {
            let command = Box::new(SessionCommand::UserInput(input("my number is 4711")));
            let id = id.clone();
            world.agent.handle(NOW, Input::Command { origin: Origin(1), id, fingerprint, command, lookup: None })
        };
        let asked = send(&mut world, 4_711);
        let [Effect::CallHook(call)] = &asked[..] else { panic!("{asked:?}") };
        assert_eq!(send(&mut world, 4_711), [], "it waits with the first");
        let conflict = send(&mut world, 815);
        assert!(
            matches!(&conflict[..], [Effect::Reply { reply: Reply::Error(error), .. }] if error.code == ErrorCode::IdempotencyConflict),
            "{conflict:?}"
        );
        let answer = Box::new(Ok(serde_json::from_value(answer).unwrap()));
        let call_id = call.call.call_id.clone();
        let effects = world.agent.handle(NOW, Input::HookAnswered { call_id, answer });
        let marks = effects.into_iter().filter_map(|effect| match effect {
            Effect::Append(append) => Some(append.marks),
            _ => None,
        });
        let marks: Vec<u64> = marks.flatten().map(|mark| mark.fingerprint).collect();
        marks
    };
    assert_eq!(mark(json!({})), [4_711]);
    assert_eq!(mark(instead("user", "my number is ----")), [withheld("user_input")]);
}

#[test]
fn the_queue_is_bounded_in_number_and_in_bytes() {
    let busy = || {
        let roomy = Windows::new(Some(10_000_000), Vec::new());
        let mut world = World::with(Vec::new(), &[], |deployment, _| deployment.windows = roomy);
        world.say("first").check(&["+ user", "turn", "model"]);
        world
    };
    let mut world = busy();
    for waiting in ["queue 1", "queue 2", "queue 3", "queue 4"] {
        world.say("one more").check(&[waiting]);
    }
    world.say("too many").check(&["error queue_full"]);

    // Together they may have 4 MiB.
    let mut world = busy();
    let half = "x".repeat(2 * 1024 * 1024);
    world.say(&half).check(&["queue 1"]);
    world.say(&half).check(&["queue 2"]);
    world.say("x").check(&["error queue_full"]);
}
