//! Hooks before a move in the tree.

use super::*;
use reseed_protocol::{
    EntryId,
    tree::{BranchSummary, Navigate, NavigatePosition},
};

const LINES: &[&str] =
    &["e0:user where is the harbour", "e1:assistant to the west", "e2:user and the boats", "e3:assistant at sea"];

fn id(id: &str) -> EntryId {
    id.parse().unwrap()
}

/// Returns a world whose hooks are skipped if they fail.
fn optional(names: &[&str]) -> World {
    let spec = |name: &&str| hook(name, HookPoint::BeforeNavigate).optional();
    World::with(names.iter().map(spec).collect(), LINES, |_, _| ())
}

fn world(names: &[&str]) -> World {
    World::with(names.iter().map(|name| hook(name, HookPoint::BeforeNavigate)).collect(), LINES, |_, _| ())
}

impl World {
    /// Moves to `e1`.
    fn go(&mut self, change: impl FnOnce(&mut Navigate)) -> &mut Self {
        let mut navigate = Navigate {
            entry_id: Some(id("e1")),
            position: Some(NavigatePosition::At),
            summarize: None,
            instructions: None,
            replace_instructions: None,
            label: None,
        };
        change(&mut navigate);
        let leaf = navigate.entry_id.clone();
        let tree = &self.agent.session().tree;
        let place = Destination {
            tree: leaf.as_ref().and_then(|leaf| tree.upto(leaf)).unwrap_or_default(),
            left: self
                .entries
                .iter()
                .rev()
                .take_while(|entry| Some(&entry.entry_id) != leaf.as_ref())
                .cloned()
                .collect(),
            common: leaf.clone(),
            leaf,
            ..Destination::default()
        };
        self.command_to(SessionCommand::Navigate(navigate), Some(place))
    }

    fn leaf(&self) -> Option<&str> {
        self.agent.session().state.leaf.as_ref().map(EntryId::as_str)
    }

    fn branch_summary(&self) -> &BranchSummary {
        let EntryData::BranchSummary(summary) = &self.newest("branch_summary").data else { panic!("no summary") };
        summary
    }
}

#[test]
fn a_hook_is_called_before_every_move_with_its_destination() {
    for wanted in [None, Some(false), Some(true)] {
        let mut world = world(&["one"]);
        world.go(|navigate| {
            navigate.summarize = wanted;
            navigate.label = Some("the harbour".into());
        });
        world.check(&["ask one before_navigate"]);
        let HookEvent::BeforeNavigate(told) = &world.question().event else { panic!("another question") };
        assert_eq!((&told.target_id, &told.new_leaf_id), (&Some(id("e1")), &Some(id("e1"))));
        assert_eq!((&told.old_leaf_id, &told.common_ancestor_id), (&Some(id("e3")), &Some(id("e1"))));
        let ids: Vec<&str> = told.entries_to_summarize.iter().map(|entry| entry.entry_id.as_str()).collect();
        assert_eq!((ids, told.position), (vec!["e2", "e3"], NavigatePosition::At));
        assert_eq!((told.user_wants_summary, told.label.as_deref()), (wanted == Some(true), Some("the harbour")));
        assert_eq!((&told.custom_instructions, told.replace_instructions, &told.summary), (&None, false, &None));
        assert_eq!(world.leaf(), Some("e3"), "nothing has moved");
    }
}

#[test]
fn a_move_that_a_hook_cancels_is_not_made_and_no_other_hook_is_called() {
    let mut world = world(&["one", "two"]);
    world.go(|_| ()).took();
    world.answer(json!({ "cancel": true })).check(&["error navigation_cancelled"]);
    let Reply::Error(error) = world.reply() else { panic!("no error") };
    assert!(error.message.contains("the hook `one` cancelled the move"), "{}", error.message);
    assert_eq!(world.leaf(), Some("e3"));
    world.check_at_rest();
}

#[test]
fn a_move_that_waits_for_hooks_can_be_cancelled() {
    use reseed_protocol::compaction::CancelCompaction;
    let mut world = world(&["one"]);
    world.go(|_| ()).took();
    world.command(SessionCommand::CancelCompaction(CancelCompaction { job_id: Some("another".parse().unwrap()) }));
    world.check(&["error no_compaction"]);
    world.command(SessionCommand::CancelCompaction(CancelCompaction { job_id: None }));
    world.check(&["drop one", "error navigation_cancelled"]);
    assert_eq!(world.leaf(), Some("e3"));
    world.check_at_rest();
}

#[test]
fn a_hooks_summary_is_used_only_if_one_was_requested() {
    let answer = json!({ "summary": " They spoke of boats. ", "details": { "by": "rule" } });
    let mut wanted = world(&["one"]);
    wanted.go(|navigate| navigate.summarize = Some(true)).took();
    wanted.answer(answer.clone()).check(&["+ branch_summary", "navigated", "reseed"]);
    let summary = wanted.branch_summary();
    assert_eq!((summary.summary.as_str(), summary.hook.as_deref()), ("They spoke of boats.", Some("one")));
    assert_eq!(summary.hook_details, Some(json!({ "by": "rule" })));
    assert_eq!(summary.left_leaf_id, Some(id("e3")));
    assert!(wanted.sent.is_empty());
    let mut unwanted = world(&["one"]);
    unwanted.go(|_| ()).took();
    unwanted.answer(answer).check(&["navigated", "reseed"]);
    assert_eq!(unwanted.leaf(), Some("e1"));
}

#[test]
fn a_hook_can_change_the_focus_of_the_models_summary() {
    let mut world = world(&["one"]);
    world.go(|navigate| {
        navigate.summarize = Some(true);
        navigate.instructions = Some("mind the boats".into());
    });
    world.took();
    world.answer(json!({ "instructions": "mind the gulls", "replaceInstructions": true })).check(&["summary"]);
    let text: String = world.sent[0].messages().map(|message| message.message.text()).collect();
    assert!(text.contains("mind the gulls") && !text.contains("mind the boats"), "{text}");
    world.summary().check(&["+ branch_summary", "navigated", "reseed"]);
    assert_eq!(world.branch_summary().hook, None);
}

#[test]
fn hooks_see_the_requests_of_earlier_hooks() {
    let mut world = world(&["one", "two", "three"]);
    world.go(|navigate| navigate.summarize = Some(true));
    world.answer(json!({ "label": " west ", "instructions": "mind the gulls" }));
    let told = world.asked_for();
    assert_eq!((&told["label"], &told["customInstructions"]), (&json!("west"), &json!("mind the gulls")));
    world.answer(json!({ "summary": "They spoke of boats." }));
    assert_eq!(world.asked_for()["summary"], "They spoke of boats.");
    world.took();
    world.answer(json!({ "label": "further west" })).check(&["+ branch_summary", "+ label", "navigated", "reseed"]);
    assert_eq!(world.branch_summary().hook.as_deref(), Some("two"));
    let EntryData::Label(label) = &world.newest("label").data else { panic!("no label") };
    assert_eq!(label.label.as_deref(), Some("further west"));
}

#[test]
fn an_optional_hook_that_fails_is_skipped() {
    let refused = [
        (json!({ "summary": "" }), "its summary is blank"),
        (json!({ "label": " " }), "a label must have 1 to 200 characters"),
        (json!({ "label": "a\nb" }), "no control characters"),
        (json!({ "replaceInstructions": true }), "there are no instructions to take the place of ours"),
        (json!({ "instructions": " ", "replaceInstructions": true }), "there are no instructions"),
        (json!({ "model": "cheaper" }), "`before_navigate` does not take the field `model`"),
        (json!({ "error": "no" }), "it says: no"),
    ];
    for (answer, why) in refused {
        let mut world = optional(&["one", "two"]);
        world.go(|_| ()).took();
        let shown = answer.to_string();
        world.answer(answer).check(&["one failed hook_failed", "ask two before_navigate"]);
        let Some(EphemeralEvent::HookFailed(failed)) = world.emitted.last() else { panic!("not told") };
        assert!(failed.error.message.contains(why), "{shown}: {}", failed.error.message);
        // Nothing of the refused answer is kept.
        assert_eq!(
            (&world.asked_for()["label"], &world.asked_for()["replaceInstructions"]),
            (&Value::Null, &json!(false))
        );
        world.answer(json!({})).check(&["navigated", "reseed"]);
        assert_eq!(world.leaf(), Some("e1"));
    }
    let mut late = optional(&["one"]);
    late.go(|_| ()).took();
    late.wait(1_000).check(&["drop one", "one failed hook_timeout", "navigated", "reseed"]);
}

#[test]
fn a_move_that_a_required_hook_did_not_inspect_is_not_made() {
    let mut failed = world(&["one", "two"]);
    failed.go(|_| ()).took();
    failed.answer(json!({ "error": "no" })).check(&["one failed hook_failed", "error hook_failed"]);
    let Reply::Error(error) = failed.reply() else { panic!("no error") };
    assert!(error.message.contains("the hook `one` at `before_navigate` failed"), "{}", error.message);
    let mut late = world(&["one"]);
    late.go(|_| ()).took();
    late.wait(1_000).check(&["drop one", "one failed hook_timeout", "error hook_timeout"]);
    for world in [&failed, &late] {
        assert_eq!(world.leaf(), Some("e3"));
        world.check_at_rest();
    }
}

#[test]
fn a_label_before_the_first_entry_is_refused_but_the_move_is_made() {
    let mut world = optional(&["one"]);
    world.go(|navigate| navigate.entry_id = None).took();
    world.answer(json!({ "label": "the start" })).check(&["one failed hook_failed", "navigated", "reseed"]);
    assert_eq!(world.leaf(), None);
}

#[test]
fn input_during_the_inspection_of_a_move_is_for_its_destination() {
    let mut world = world(&["one"]);
    world.go(|_| ()).took();
    world.say("hello").check(&["queue 1"]);
    world.answer(json!({})).check(&["queue 1", "navigated", "reseed", "queue 0", "+ user", "turn", "model"]);
    assert_eq!(world.last_sent(), ["user where is the harbour", "assistant to the west", "user hello"]);
}

#[test]
fn a_move_is_refused_when_its_session_is_deleted() {
    let mut world = world(&["one"]);
    world.go(|_| ()).took();
    let late = world.question().call_id.clone();
    // The pending command gets the reason: the session is deleted.
    world.tell(Input::Stop(Box::new(gone()))).check(&["drop one", "error session_not_found"]);
    world.hear(late, Ok(HookAnswer::default())).check(&[]);
    assert_eq!(world.leaf(), Some("e3"));
    world.check_at_rest();
}

#[test]
fn a_second_move_is_refused_while_hooks_inspect_the_first() {
    let mut world = world(&["one"]);
    world.go(|_| ()).took();
    world.go(|_| ()).check(&["error turn_running"]);
    let Reply::Error(error) = world.reply() else { panic!("no error") };
    assert!(error.message.contains("hooks are inspecting a move"), "{}", error.message);
}

/// Returns input that continues from `e1` and abandons the rest.
fn branch(summarize: bool) -> UserInput {
    let mut said = UserInput::plain(Said::Text("and the gulls".into()));
    said.parent_id = Some(Some(id("e1")));
    said.summarize = Some(summarize);
    said
}

impl World {
    fn branch_off(&mut self, said: UserInput) -> &mut Self {
        let leaf = said.parent_id.clone().flatten();
        let tree = leaf.as_ref().and_then(|leaf| self.agent.session().tree.upto(leaf)).unwrap_or_default();
        let left = self.entries.iter().rev().take_while(|entry| Some(&entry.entry_id) != leaf.as_ref());
        let place =
            Destination { tree, left: left.cloned().collect(), common: leaf.clone(), leaf, ..Destination::default() };
        self.command_to(SessionCommand::UserInput(said), Some(place))
    }
}

#[test]
fn input_at_another_entry_calls_the_hooks_before_it_moves() {
    let mut world = world(&["one"]);
    world.branch_off(branch(false)).check(&["ask one before_navigate"]);
    let told = world.asked_for();
    assert_eq!((&told["targetId"], &told["oldLeafId"], &told["newLeafId"]), (&json!("e1"), &json!("e3"), &json!("e1")));
    assert_eq!(told["entriesToSummarize"].as_array().map(Vec::len), Some(2));
    world.answer(json!({})).check(&["+ user", "turn", "reseed", "model"]);
    assert_eq!(world.last_sent(), ["user where is the harbour", "assistant to the west", "user and the gulls"]);
    assert!(matches!(world.reply(), Reply::Accepted(accepted) if accepted.entry_id.is_some()));
    // A move cancelled by a hook is refused, and nothing of it is kept.
    let mut world = super::navigation::world(&["one"]);
    world.branch_off(branch(true)).took();
    let before = world.entries.len();
    world.answer(json!({ "cancel": true })).check(&["error navigation_cancelled"]).check_at_rest();
    assert_eq!((world.leaf(), world.entries.len()), (Some("e3"), before));
}

#[test]
fn input_at_another_entry_can_request_a_summary_of_the_branch() {
    let mut world = World::with(Vec::new(), LINES, |_, _| ());
    world.branch_off(branch(true)).check(&["summary"]);
    // Input sent meanwhile is meant for the destination.
    world.say("later").check(&["queue 1"]);
    world.summary().check(&["+ branch_summary", "+ user", "turn", "queue 1", "reseed", "model"]);
    assert_eq!(world.branch_summary().left_leaf_id, Some(id("e3")));
    let sent = world.last_sent();
    assert_eq!((sent.len(), sent[3].as_str()), (4, "user and the gulls"), "the summary stands before it: {sent:?}");
    // A hook supplies a summary and a label for it.
    let mut world = super::navigation::world(&["one"]);
    world.branch_off(branch(true)).took();
    world.answer(json!({ "summary": "boats at sea", "label": "boats" }));
    world.check(&["+ branch_summary", "+ label", "+ user", "turn", "reseed", "model"]);
    assert_eq!(world.branch_summary().summary, "boats at sea");
    // Without a destination there is nothing to summarise.
    let mut plain = UserInput::plain(Said::Text("here".into()));
    plain.summarize = Some(true);
    let mut world = World::with(Vec::new(), LINES, |_, _| ());
    world.command(SessionCommand::UserInput(plain)).check(&["error invalid_field"]);
    let mut blank = branch(true);
    blank.replace_instructions = Some(true);
    world.branch_off(blank).check(&["error missing_field"]);
}

#[test]
fn a_retry_that_leaves_a_cancelled_answer_calls_the_hooks_before_it_moves() {
    let mut world = world(&["one"]);
    world.say("how far is it").took();
    world.shown = vec![Part::Text { text: "half a".into() }];
    world.cancel().took();
    let question = world.newest("user").entry_id.clone();
    let retry = || SessionCommand::RetryTurn(reseed_protocol::turn::RetryTurn { turn_id: None });
    world.command(retry()).check(&["ask one before_navigate"]);
    let told = world.asked_for();
    assert_eq!(told["newLeafId"], question.as_str(), "{told}");
    assert_eq!(told["entriesToSummarize"][0]["content"][0]["text"], "half a", "{told}");
    // Input sent meanwhile is for the current position, whether or not the session moves.
    world.say("later").check(&["queue 1"]);
    world.answer(json!({ "cancel": true })).check(&[
        "error navigation_cancelled",
        "queue 0",
        "+ user",
        "turn",
        "model",
    ]);
    world.model("yes").took();
    let mut world = super::navigation::world(&["one"]);
    world.say("how far is it");
    world.shown = vec![Part::Text { text: "half a".into() }];
    world.cancel().command(retry()).took();
    world.answer(json!({})).check(&["turn", "reseed", "model"]);
    assert_eq!(world.last_sent().last().unwrap(), "user how far is it");
}
