//! Calls are checked against the tools that the model was sent. A patch may have removed a tool or replaced its
//! definition.

use super::*;
use crate::agent_loop::check_offers;
use reseed_protocol::{Role, hooks::ContextReason};

/// Returns a patch that replaces the schema of `look`: it requires a `depth` instead of a `where`.
fn deeper() -> Value {
    let parameters =
        json!({ "type": "object", "properties": { "depth": { "type": "integer" } }, "required": ["depth"] });
    let tool = json!({ "name": "look", "description": "Looks down.", "parameters": parameters });
    json!([{ "op": "tools_replace", "tools": [tool], "invalidateCacheReason": "deeper" }])
}

fn removed() -> Value {
    json!([{ "op": "tools_remove", "toolNames": ["look"], "invalidateCacheReason": "no looking" }])
}

const OWN: &str = r#"{"where":"left"}"#;
const DEEP: &str = r#"{"depth":2}"#;

impl World {
    /// Returns the last result that explains why a call was not made.
    fn refusal(&self) -> String {
        let tool = self.entries.iter().rev().filter_map(Entry::message).find(|message| message.role == Role::Tool);
        let Some(Part::ToolResult { output, is_error: true, .. }) = tool.and_then(|tool| tool.content.first()) else {
            panic!("no call was refused")
        };
        output.clone()
    }
}

#[test]
fn calls_are_checked_against_the_definitions_that_were_sent() {
    let reasons = [ContextReason::BeforeRequest, ContextReason::Ephemeral];
    let table = [
        (json!([]), OWN, None),
        (json!([]), DEEP, Some("do not fit its schema")),
        (removed(), OWN, Some("There is no tool `look`; there are: no tools.")),
        (deeper(), OWN, Some("do not fit its schema")),
        (deeper(), DEEP, None),
    ];
    for reason in reasons {
        for (patch, arguments, refused) in table.clone() {
            let mut world = World::new(vec![hook("one", HookPoint::Context).for_reasons(&[reason])]);
            world.offer_tool().say("hello").answer(json!({ "patch": patch }));
            world.took();
            world.model_calls(&[arguments]);
            let made = format!("call look {arguments}");
            assert_eq!(
                world.took.contains(&made),
                refused.is_none(),
                "{reason:?} {patch} {arguments}: {:?}",
                world.took
            );
            if let Some(refused) = refused {
                assert!(world.refusal().contains(refused), "{reason:?} {patch} {arguments}: {}", world.refusal());
            }
        }
    }
}

#[test]
fn a_patch_for_one_request_affects_only_its_calls() {
    let mut world = World::new(vec![hook("one", HookPoint::Context).for_reasons(&[ContextReason::Ephemeral])]);
    world.offer_tool().say("hello").answer(json!({ "patch": deeper() })).model_calls(&[DEEP]);
    world.tool("a cat").answer(json!({})).model_calls(&[DEEP]);
    assert!(world.refusal().contains("do not fit its schema"), "{}", world.refusal());
}

#[test]
fn arguments_that_a_hook_changes_are_checked_against_what_was_sent() {
    for (arguments, fits) in [(r#"{"depth":3}"#, true), (OWN, false), (r#"{"depth":"deep"}"#, false)] {
        let context = hook("one", HookPoint::Context).for_reasons(&[ContextReason::BeforeRequest]);
        let mut world = World::new(vec![context, hook("two", HookPoint::ToolCall)]);
        world.offer_tool().say("hello").answer(json!({ "patch": deeper() })).model_calls(&[DEEP]);
        world.took();
        world.answer(json!({ "arguments": arguments }));
        assert_eq!(world.took.contains(&format!("call look {arguments}")), fits, "{arguments}: {:?}", world.took);
        assert!(fits || world.refusal().contains("the hook `two` failed"), "{arguments}");
    }
}

#[test]
fn tools_offered_after_the_request_do_not_affect_its_calls() {
    let offer = |name: &str, required: &str| {
        ToolOffer::new(name, "Looks.", json!({ "type": "object", "required": [required] }))
    };
    let table = [
        (offer("look", "depth"), OWN, None),
        (offer("look", "depth"), DEEP, Some("do not fit its schema")),
        (offer("smell", "where"), OWN, Some("The tool `look` is no longer available.")),
    ];
    for (later, arguments, refused) in table {
        let mut world = World::new(Vec::new());
        world.offer_tool().say("hello");
        world.tell(Input::ToolsOffered(check_offers(vec![later.clone()]).unwrap())).took();
        world.model_calls(&[arguments]);
        let made = format!("call look {arguments}");
        assert_eq!(world.took.contains(&made), refused.is_none(), "{later:?} {arguments}: {:?}", world.took);
        assert!(refused.is_none_or(|refused| world.refusal().contains(refused)), "{later:?} {arguments}");
    }
}
