//! What is reported of the next request is what the upstream server receives: `get_context`, just before a request
//! whose input is known, compared with the body that then arrives. The operators' endpoint and the command line report
//! the same, byte for byte.

mod world;

use crate::support::scripted::Gate;
use crate::support::talk::words;
use reseed::provider::openai::ApiChoice;
use serde_json::{Value, json};
use world::{Wish, World};

/// The steps of a conversation before its next request is inspected.
enum Step {
    /// A turn.
    Say(&'static str),
    /// A turn of many words.
    Long,
    /// A turn in which the model thinks and calls a tool.
    Tool,
    /// The client sends this command, and its reply is not an error.
    Do(&'static str, &'static str),
    /// A compaction, to its end.
    Compact,
    /// Every compaction keeps this message, counted from the first entry.
    Pin(usize),
    /// The session continues from this entry, counted from the first.
    GoBack(usize),
    /// A hook changes the request, starting with the next one.
    Wish(Wish),
    /// A hook adds this to each request, starting with the next one.
    Add(&'static str),
    /// The server is started again.
    Restart,
}

use Step::{Add, Compact, Do, GoBack, Long, Pin, Restart, Say, Tool};

/// Sessions: the steps of each, and what its last request contains as a result or, with `-`, does not contain.
const TABLE: &[(&str, &[Step], &[&str])] = &[
    ("nothing was said", &[], &["What now?"]),
    ("plain", &[Say("one"), Say("two")], &["one", "two"]),
    (
        "settings",
        &[
            Say("one"),
            Do("set_instructions", r#"{"instructions":"Answer in verse."}"#),
            Do("set_options", r#"{"temperature":0.5,"maxOutputTokens":99}"#),
            Do("set_model", r#"{"model":"another","reasoningEffort":"low"}"#),
        ],
        &["Answer in verse.", "another", "low"],
    ),
    ("tools", &[Tool, Say("two"), Tool], &["It is blue.", "Can look at something."]),
    ("a note of a client's", &[Say("one"), Do("append_custom_message", NOTE)], &["The tide is low."]),
    ("compacted", &[Tool, Long, Long, Compact, Say("four")], &["the harbour", "-How is the sea?"]),
    (
        "compacted, with pins",
        &[Say("first"), Tool, Long, Long, Pin(0), Compact, Say("four"), Pin(3)],
        &["the harbour", "first", "-How is the sea?"],
    ),
    (
        "undone",
        &[Say("first"), Long, Long, Compact, Say("four"), Do("undo_compaction", "{}")],
        &["-the harbour", "first", "four"],
    ),
    ("moved", &[Say("first"), Tool, Say("three"), GoBack(1), Say("other")], &["first", "-three", "other"]),
    (
        "moved behind a compaction",
        &[Say("first"), Long, Long, Compact, Say("four"), GoBack(3)],
        &["first", "-the harbour", "-four"],
    ),
    ("a stored patch", &[Say("one"), Step::Wish(Wish::Policy), Say("two")], &["Be kind."]),
    (
        "patches of all kinds",
        &[
            Tool,
            Step::Wish(Wish::Policy),
            Step::Wish(Wish::Options),
            Step::Wish(Wish::Tools),
            Step::Wish(Wish::Edit),
            Step::Wish(Wish::Replace),
            Say("two"),
        ],
        &["Be kind.", "Much was said before.", "-How is the sea?", "Can look at something. With care.", "-fetch"],
    ),
    (
        "patches, compacted and moved",
        &[
            Say("first"),
            Step::Wish(Wish::Policy),
            Step::Wish(Wish::Edit),
            Long,
            Step::Wish(Wish::Replace),
            Long,
            Long,
            Compact,
            Say("four"),
            GoBack(5),
        ],
        &["Be kind.", "Much was said before.", "-first", "-the harbour", "-four"],
    ),
    ("added to one request", &[Say("one"), Add("It is noon."), Say("two"), Tool], &["It is noon."]),
    (
        "everything",
        &[
            Do("set_instructions", r#"{"instructions":"Answer in verse."}"#),
            Tool,
            Step::Wish(Wish::Policy),
            Add("It is noon."),
            Long,
            Pin(1),
            Restart,
            Long,
            Compact,
            // The oldest user message is now the summary.
            Step::Wish(Wish::Edit),
            Tool,
            Restart,
            Say("five"),
        ],
        &["Answer in verse.", "Be kind.", "It is noon.", "[something was said here]", "-the harbour", "five"],
    ),
];

const NOTE: &str = r#"{"customType":"note","content":"The tide is low.","display":true}"#;

async fn take(world: &mut World, step: &Step) {
    match step {
        Say(text) => world.say(text).await,
        Long => world.say(&words(7, 200)).await,
        Tool => world.call_a_tool().await,
        Do(command, payload) => world.ask(command, serde_json::from_str(payload).unwrap()).await,
        Compact => world.compact().await,
        Pin(at) => world.pin(*at).await,
        GoBack(at) => world.go_back(*at).await,
        Step::Wish(wish) => world.wish(*wish),
        Add(text) => world.add(text),
        Restart => world.restart().await,
    }
}

async fn sessions(api: ApiChoice, names: &[&str]) {
    for (name, steps, says) in TABLE.iter().filter(|(name, ..)| names.is_empty() || names.contains(name)) {
        let mut world = World::start(api, name).await;
        for step in *steps {
            take(&mut world, step).await;
        }
        // A question, one with a tool's answer and input during the turn, and both again after a restart.
        world.ask_exactly("What now?").await;
        world.ask_exactly_with_a_tool("And now?").await;
        world.restart().await;
        world.ask_exactly("And after all that?").await;
        world.ask_exactly_with_a_tool("And then?").await;
        world.check_last(says);
        world.end().await;
    }
}

#[tokio::test]
async fn what_is_told_is_what_is_sent_over_chat_completions() {
    sessions(ApiChoice::Chat, &[]).await;
}

#[tokio::test]
async fn what_is_told_is_what_is_sent_over_responses() {
    sessions(ApiChoice::Responses, &["tools", "patches of all kinds", "everything"]).await;
}

/// What hooks added is for one request: it is shown if asked for, until the next request is built.
#[tokio::test]
async fn what_was_added_to_one_request_is_told_until_the_next() {
    let mut world = World::start(ApiChoice::Chat, "added").await;
    let added = async |world: &mut World| {
        let uncached = async |world: &mut World, ephemeral| {
            let told = world.told(ephemeral).await;
            told["envelope"]["messages"]["uncached"].as_array().unwrap().len()
        };
        assert_eq!(uncached(world, false).await, 0);
        uncached(world, true).await
    };
    assert_eq!(added(&mut world).await, 0);
    world.say("one").await;
    assert_eq!(added(&mut world).await, 0);
    world.add("It is noon.");
    assert_eq!(added(&mut world).await, 0, "looking asks no hook");
    world.say("two").await;
    assert_eq!(added(&mut world).await, 1);
    world.ask("set_context_strategy", json!({ "strategy": "threshold" })).await;
    assert_eq!(added(&mut world).await, 1, "it lives on from loop to loop");
    world.add("");
    world.say("three").await;
    assert_eq!(added(&mut world).await, 0);
    world.add("It is one o'clock.");
    world.say("four").await;
    world.add("");
    world.restart().await;
    assert_eq!(added(&mut world).await, 0, "it is only in memory");
    world.end().await;
}

/// While an answer is being written, the next request is the one after it; neither that answer nor the waiting input is
/// known yet.
#[tokio::test]
async fn while_an_answer_is_written_it_is_the_request_after_it() {
    let mut world = World::start(ApiChoice::Chat, "written").await;
    let gate = Gate::new();
    let of = |told: &Value| {
        let messages = told["envelope"]["messages"]["cached"].as_array().unwrap().len();
        let meta = &told["envelope"]["meta"];
        (messages, meta["request"].as_u64().unwrap(), meta["turnId"].is_string())
    };
    assert_eq!(of(&world.told(false).await), (0, 1, false));
    world.begin("one", &gate).await;
    world.ask("user_input", json!({ "input": "quick", "whenBusy": "steer" })).await;
    world.ask("user_input", json!({ "input": "two" })).await;
    assert_eq!(of(&world.told(false).await), (1, 2, true));
    gate.open();
    // No tool was called, so the waiting inputs get turns of their own.
    for _turn in 0..3 {
        world.finished().await;
    }
    assert_eq!(of(&world.told(true).await), (6, 1, false));
    world.end().await;
}
