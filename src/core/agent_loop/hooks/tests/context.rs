//! Hooks that change the request: what they see, what is kept, and what is refused.

use super::*;
use reseed_protocol::{context::ContextEnvelope, hooks::ContextReason};

fn for_reason(names: &[&str], reason: ContextReason) -> Vec<HookSpec> {
    names.iter().map(|name| hook(name, HookPoint::Context).for_reasons(&[reason])).collect()
}

fn before(names: &[&str]) -> World {
    World::new(for_reason(names, ContextReason::BeforeRequest))
}

fn ephemeral(names: &[&str]) -> World {
    World::new(for_reason(names, ContextReason::Ephemeral))
}

fn patch(ops: Value) -> Value {
    json!({ "patch": ops })
}

fn part(name: &str, text: &str) -> Value {
    json!({ "op": "system_part_set", "partName": name, "text": text, "invalidateCacheReason": "policy" })
}

fn append(text: &str) -> Value {
    let message = json!({ "role": "user", "content": [{ "type": "text", "text": text }] });
    json!({ "op": "messages_uncached_append", "messages": [message] })
}

impl World {
    fn envelope(&self) -> ContextEnvelope {
        let HookEvent::Context { envelope, .. } = &self.question().event else { panic!("another question") };
        (**envelope).clone()
    }

    fn systems(&self) -> Vec<String> {
        self.sent.iter().map(|sent| sent.envelope.system.compiled.clone()).collect()
    }

    fn transforms(&self) -> Vec<String> {
        let names = self.entries.iter().filter_map(|entry| match &entry.data {
            EntryData::ContextTransform(kept) => kept.known().map(|transform| transform.transformer_name.clone()),
            _ => None,
        });
        names.collect()
    }
}

#[test]
fn a_patch_before_a_request_is_seen_by_the_next_hook_and_kept() {
    let mut world = before(&["one", "two"]);
    world.say("hello").took();
    world.answer(patch(json!([part("policy", "Mind the gulls.")])));
    world.check(&["+ context_transform", "ask two context:before_request"]);
    let seen: Vec<(String, String)> =
        world.envelope().system.parts.into_iter().map(|part| (part.name, part.text)).collect();
    assert_eq!(seen, [("base".into(), "Be brief.".into()), ("policy".into(), "Mind the gulls.".into())]);
    let named = json!({ "patch": [part("policy", "Mind the boats.")], "transformerName": "harbour" });
    world.answer(named).check(&["+ context_transform", "model"]);
    world.model("hello").say("again").pass();
    assert!(world.systems().iter().all(|system| system.ends_with("Mind the boats.")), "{:?}", world.systems());
    assert_eq!((world.systems().len(), world.transforms()), (2, vec!["one".to_owned(), "harbour".to_owned()]));
}

#[test]
fn a_patch_that_changes_nothing_is_not_stored() {
    let mut world = before(&["one"]);
    for _ in 0..3 {
        world.say("hello").answer(patch(json!([part("policy", "Mind the gulls.")]))).model("yes");
    }
    assert_eq!(world.transforms(), ["one"]);
    assert_eq!(world.systems()[0], world.systems()[2]);
}

#[test]
fn additions_for_one_request_are_sent_last_and_once() {
    let mut world = ephemeral(&["one", "two"]);
    world.say("hello").took();
    world.answer(patch(json!([append("It is noon.")])));
    assert_eq!(world.envelope().messages.uncached.len(), 1);
    world.answer(patch(json!([append("It rains."), part("policy", "Mind the gulls.")])));
    world.check(&["ask two context:ephemeral", "+ ephemeral", "+ ephemeral", "model"]);
    assert_eq!(world.last_sent(), ["user hello", "user It is noon.", "user It rains."]);
    let sent = world.sent.last().unwrap();
    assert_eq!((sent.envelope.messages.cached.len(), sent.envelope.messages.uncached.len()), (1, 2));
    world.model("yes").say("again").pass();
    assert_eq!(world.last_sent(), ["user hello", "assistant yes", "user again"]);
    assert!(world.systems()[0].ends_with("Mind the gulls.") && !world.systems()[1].contains("gulls"));
}

#[test]
fn a_patch_at_the_end_of_a_turn_applies_to_the_next() {
    let mut world = World::new(for_reason(&["one", "two"], ContextReason::TurnEnd));
    world.say("hello").model("hello").took();
    world.answer(patch(json!([part("policy", "Mind the gulls.")])));
    world.check(&["+ context_transform", "ask two context:turn_end"]);
    world.answer(json!({})).check(&["end completed"]);
    world.say("again");
    assert!(world.systems()[1].ends_with("Mind the gulls."));
}

#[test]
fn user_input_is_stored_and_sent_as_hooks_changed_it() {
    let mut world = World::new(vec![hook("one", HookPoint::Message), hook("two", HookPoint::Message)]);
    world.say("my number is 4711").check(&["ask one message:user"]);
    let mut redacted = instead("user", "my number is ----");
    redacted["message"]["usage"] =
        json!({ "inputTokens": 1, "cachedTokens": 0, "outputTokens": 1, "source": "reported" });
    world.answer(redacted).check(&["ask two message:user"]);
    let told = world.asked_for();
    assert_eq!(told["message"]["content"][0]["text"], "my number is ----");
    world.answer(json!({})).check(&["+ user", "turn", "model withheld"]);
    assert_eq!(
        (world.said("user").as_str(), world.last_sent()),
        ("my number is ----", vec!["user my number is ----".to_owned()])
    );
    assert_eq!(world.newest("user").entry_id.as_str(), told["entryId"], "the entry that was named");
    let written = json!([world.entries, world.events, world.agent.session().state]).to_string();
    assert!(!written.contains("4711"), "the name of the session too: {written}");
    assert!(!json!(world.newest("user")).to_string().contains("usage"), "of a message only who says what is taken");
    // A role other than the user's is refused, and so is an empty message.
    let empty = json!({ "message": { "role": "user", "content": [] } });
    let said = |part: Value| json!({ "message": { "role": "user", "content": [part] } });
    let table = [
        instead("assistant", "x"),
        instead("user", " "),
        instead("user", &"word ".repeat(30_000)),
        empty,
        said(json!({ "type": "image", "url": "file:///etc/passwd" })),
        said(json!({ "type": "tool_call", "toolCallId": "mine", "name": "look", "arguments": "{}" })),
    ];
    for wrong in table {
        let mut world = World::new(vec![hook("one", HookPoint::Message)]);
        world.say("hello").took();
        world.answer(wrong).check(&["one failed hook_failed", "error hook_failed"]).check_at_rest();
        assert!(world.entries.is_empty() && world.sent.is_empty(), "nothing of it is kept or sent");
    }
}

/// Refused patches, each with the faulty op and the reason.
#[test]
fn a_patch_that_cannot_be_applied_ends_the_request_and_nothing_of_it_stays() {
    let message = |role: &str, content: Value| json!({ "role": role, "content": content });
    let call = json!([{ "type": "tool_call", "toolCallId": "c1", "name": "look", "arguments": "{}" }]);
    let result = json!([{ "type": "tool_result", "toolCallId": "c1", "output": "x" }]);
    let both = [ContextReason::BeforeRequest, ContextReason::Ephemeral];
    let [durable, once] = [&both[..1], &both[1..]];
    let good = part("policy", "Mind the gulls.");
    let table: Vec<(&[ContextReason], Value, &str)> = vec![
        (&both, json!([good, { "op": "forget_all" }]), "op 1 of the patch, `forget_all`: unknown variant"),
        (&both, json!([good, 7]), "op 1 of the patch, ``:"),
        (
            &both,
            json!([{ "op": "system_part_set", "partName": "a" }]),
            "op 0 of the patch, `system_part_set`: missing field",
        ),
        (&both, json!([{ "op": "tools_remove", "toolNames": [], "why": "x" }]), "unknown field `why`"),
        (
            &both,
            json!([{ "op": "system_part_set", "partName": "a", "text": "b", "invalidateCacheReason": " " }]),
            "does not say why",
        ),
        (&both, json!([{ "op": "system_part_set", "partName": "a", "text": "b" }]), "does not say why"),
        (&both, json!([part("a b", "x")]), "the name of a part is"),
        (
            &both,
            json!([{ "op": "tools_replace", "tools": [{ "name": "fly", "description": "", "parameters": {} }], "invalidateCacheReason": "x" }]),
            "nobody offers the tool `fly`",
        ),
        (
            &both,
            json!([{ "op": "messages_cached_edit", "edits": [{ "entryId": "nobody" }], "invalidateCacheReason": "x" }]),
            "entry `nobody` is not among the messages",
        ),
        (
            &both,
            json!([{ "op": "messages_cached_replace", "messages": [{ "message": message("assistant", call.clone()) }], "invalidateCacheReason": "x" }]),
            "leaves a tool call without its result",
        ),
        (durable, json!([append("It rains.")]), "the `ephemeral` hook's to add"),
        (
            durable,
            json!([{ "op": "compaction_apply", "summary": "x", "timestamp": "1970-01-01T00:00:00.000Z", "tokensBefore": 1, "invalidateCacheReason": "x" }]),
            "an entry of its own",
        ),
        (
            once,
            json!([{ "op": "messages_uncached_append", "messages": [message("tool", result)] }]),
            "a result without its call",
        ),
        (
            once,
            json!([{ "op": "messages_uncached_append", "messages": [message("assistant", call)] }]),
            "a tool call without",
        ),
        (&both, json!(vec![good.clone(); 65]), "a patch has at most 64 ops, not 65"),
        (&both, json!([part("big", &"x".repeat(300_000))]), "the patch has more than 262144 bytes"),
    ];
    for (reasons, ops, why) in table {
        for reason in reasons {
            let mut world = World::new(for_reason(&["one", "two"], *reason));
            world.say("hello").took();
            let shown: String = ops.to_string().chars().take(120).collect();
            world.answer(patch(ops.clone())).check(&["one failed invalid_patch", "end failed invalid_patch"]);
            let error = world.ended().error.clone().unwrap();
            assert!(error.message.starts_with("the hook `one` at `context:"), "{}", error.message);
            assert!(error.message.contains(why), "{shown}: {}", error.message);
            assert!(error.message.len() < 700, "{shown}");
            assert!(world.sent.is_empty() && world.transforms().is_empty(), "{shown}");
            // The session continues.
            world.say("again").pass();
            assert_eq!(
                (world.last_sent(), world.systems()),
                (vec!["user hello".into(), "user again".into()], vec!["Be brief.".into()])
            );
            world.model("yes").check_at_rest();
        }
    }
}

#[test]
fn a_patch_that_leaves_no_message_is_only_allowed_at_the_end_of_a_turn() {
    let nothing = || patch(json!([{ "op": "messages_cached_replace", "messages": [], "invalidateCacheReason": "x" }]));
    for reason in [ContextReason::BeforeRequest, ContextReason::Ephemeral] {
        let mut world = World::new(for_reason(&["one"], reason));
        world.say("hello").took();
        world.answer(nothing()).check(&["one failed hook_failed", "end failed hook_failed"]);
        assert!(world.ended().error.as_ref().unwrap().message.contains("leaves no message for the request"));
    }
    let mut world = World::new(for_reason(&["one"], ContextReason::TurnEnd));
    world.say("hello").model("hello").answer(nothing());
    world.say("again");
    assert_eq!(world.last_sent(), ["user again"]);
}

#[test]
fn a_request_that_hooks_made_too_large_fails_and_names_them() {
    let mut world = ephemeral(&["one", "two"]);
    world.say("hello").took();
    world.answer(patch(json!([append("a little")])));
    world.answer(patch(json!([append(&"It rains on the harbour. ".repeat(4_000))])));
    world.check(&["ask two context:ephemeral", "+ ephemeral", "+ ephemeral", "end failed context_overflow"]);
    let error = world.ended().error.clone().unwrap();
    assert!(error.message.contains("what the hook `one`, `two` added for it"), "{}", error.message);
    let details = error.details.unwrap();
    assert_eq!(details["hooks"], json!(["one", "two"]));
    assert!(details["tokens"].as_u64().unwrap() > details["windowTokens"].as_u64().unwrap());
    world.say("again").pass();
    assert_eq!(world.last_sent(), ["user hello", "user again"]);
}

#[test]
fn a_patch_that_would_fill_the_window_is_refused() {
    let long = "It rains on the harbour. ".repeat(1_000);
    let mut patches = vec![json!([part("policy", &long)])];
    let edit = |id: &str| {
        let message = json!({ "role": "user", "content": [{ "type": "text", "text": long }] });
        json!([{ "op": "messages_cached_edit", "edits": [{ "entryId": id, "message": message }], "invalidateCacheReason": "x" }])
    };
    patches.push(Value::Null);
    for ops in patches {
        let mut world = before(&["one"]);
        world.say("hello").took();
        let id = world.newest("user").entry_id.clone();
        let ops = if ops.is_null() { edit(id.as_str()) } else { ops };
        world.answer(patch(ops)).check(&["one failed hook_failed", "end failed hook_failed"]);
        let error = world.ended().error.clone().unwrap();
        assert!(error.message.contains("more than half of the model's window"), "{}", error.message);
        world.say("again").pass().model("yes").check_at_rest();
        assert_eq!(end_of(world.ended()), "end completed");
    }
    // Small steps reach the same limit.
    let mut world = before(&["one"]);
    let mut kept = 0;
    for at in 0..10 {
        world.say("hello").answer(patch(json!([part(&format!("p{at}"), &"It rains on the harbour. ".repeat(200))])));
        if world.asked.is_some() {
            world.model("yes");
            kept += 1;
        }
    }
    assert!((2..=4).contains(&kept), "{kept} kept");
    assert!(world.agent.context_info().usage_ratio < 0.75);
}
