//! What an extract keeps, drops and bounds.

use super::*;
use crate::core::compaction::summary::check;
use proptest::prelude::*;

fn user(text: &str) -> Message {
    Message::user(text)
}

fn assistant(text: &str) -> Message {
    Message::new(Role::Assistant, vec![Part::Text { text: text.into() }])
}

fn summarise(messages: &[Message], previous: Option<&str>, chars_max: usize) -> String {
    extract(&messages.iter().collect::<Vec<_>>(), previous, None, chars_max)
}

/// Checks that the summary of these user messages has this line in this section.
#[track_caller]
fn finds(texts: &[&str], slot: Slot, expected: &str) {
    let messages: Vec<Message> = texts.iter().map(|text| user(text)).collect();
    let summary = summarise(&messages, None, 4_000);
    let sections = Sections::parse(&summary);
    assert!(sections.lines(slot).iter().any(|line| line == &format!("- {expected}")), "{summary}");
}

#[test]
fn sentences_go_where_they_belong() {
    finds(&["Hi! Help me to build a boat."], Slot::Goal, "First request: Help me to build a boat.");
    finds(&["Build a boat.", "ok", "Paint it."], Slot::Goal, "First request: Build a boat.");
    finds(&["Build a boat.", "ok", "What next?"], Slot::Goal, "Latest request: What next?");
    finds(&["Never use plastic."], Slot::Constraints, "Never use plastic.");
    finds(&["不要用塑料。"], Slot::Constraints, "不要用塑料。");
    finds(&["I prefer oak over pine."], Slot::Constraints, "I prefer oak over pine.");
    finds(&["We decided to sail in May."], Slot::Decisions, "We decided to sail in May.");
    finds(&["The hull is finished."], Slot::Done, "The hull is finished.");
    finds(&["The keel is broken and I am stuck."], Slot::Blocked, "The keel is broken and I am stuck.");
    finds(&["My boat is called Argo."], Slot::Context, "User: My boat is called Argo.");
    finds(&["我的船叫阿尔戈。"], Slot::Context, "User: 我的船叫阿尔戈。");
    finds(&["How long is it?"], Slot::NextSteps, "answer the user: How long is it?");
}

#[test]
fn tools_leave_their_traces() {
    let call_id: reseed_protocol::CallId = "c".parse().unwrap();
    let messages = [
        Message::new(
            Role::Assistant,
            vec![Part::ToolCall { call_id: call_id.clone(), name: "ls".into(), arguments: "{}".into() }],
        ),
        Message::new(
            Role::Tool,
            vec![Part::ToolResult { call_id: call_id.clone(), output: "boat.rs\nnothing".into(), is_error: false }],
        ),
        Message::new(Role::Tool, vec![Part::ToolResult { call_id, output: "no disk".into(), is_error: true }]),
    ];
    let sections = Sections::parse(&summarise(&messages, None, 4_000));
    assert_eq!(sections.lines(Slot::Done), ["- called ls {}"]);
    assert_eq!(sections.lines(Slot::Context), ["- Tool: boat.rs"]);
    assert_eq!(sections.lines(Slot::Blocked), ["- a tool failed: no disk"]);
}

#[test]
fn the_newest_claim_about_the_same_stands_alone() {
    for (older, newer) in [
        ("My cat is called Miso.", "Actually my cat is called Luna now."),
        ("The port is 8080.", "The port is 9090."),
        ("My car is red.", "My car is blue now."),
    ] {
        let first = summarise(&[user(older)], None, 2_000);
        let second = summarise(&[user(newer)], Some(&first), 2_000);
        let facts = Sections::parse(&second).lines(Slot::Context).to_vec();
        assert_eq!(facts, [format!("- User: {newer}")]);
    }
}

#[test]
fn what_held_before_can_hold_again() {
    let summary =
        summarise(&["Miso", "Luna", "Miso"].map(|name| user(&format!("My cat is called {name}."))), None, 2_000);
    assert_eq!(Sections::parse(&summary).lines(Slot::Context), ["- User: My cat is called Miso."]);
}

#[test]
fn an_answer_or_a_tool_replaces_nothing_that_the_user_said() {
    let summary = summarise(&[user("The port is 8080."), assistant("The port is 1.")], None, 2_000);
    assert!(summary.contains("User: The port is 8080."), "{summary}");
}

#[test]
fn nothing_stands_twice() {
    let summary = summarise(&[user("My cat is Miso."), user("my cat is miso!")], None, 2_000);
    assert_eq!(Sections::parse(&summary).lines(Slot::Context).len(), 1);
    let again = summarise(&[user("My cat is Miso.")], Some(&summary), 2_000);
    assert_eq!(Sections::parse(&again).lines(Slot::Context), Sections::parse(&summary).lines(Slot::Context));
}

#[test]
fn a_summary_of_any_make_is_taken_over() {
    let free = summarise(&[], Some("The user has a cat. It is called Miso."), 2_000);
    assert!(free.contains("- It is called Miso."), "{free}");
    let model = "## Goal\n- Build a boat\n## Constraints & Preferences\n- oak only\n## Progress\n### Done\n- [x] hull\n\
                 ## Key Decisions\n- sail in May\n## Next Steps\n1. paint\n## Critical Context\n- Boat name: Argo";
    let taken = summarise(&[user("ok")], Some(model), 2_000);
    for expected in ["- Build a boat", "- oak only", "- hull", "- sail in May", "- 1. paint", "- Boat name: Argo"] {
        assert!(taken.contains(expected), "{expected} in {taken}");
    }
}

#[test]
fn what_the_instructions_ask_for_stays_when_there_is_no_room() {
    let texts: Vec<Message> =
        (0..100).map(|n| user(&format!("My {n}th pet has the colour number {n} and is called Pet{n}."))).collect();
    let messages: Vec<&Message> = texts.iter().collect();
    let without = extract(&messages, None, None, 1_000);
    let with = extract(&messages, None, Some("keep pet50"), 1_000);
    assert!(!without.contains("Pet50"), "{without}");
    assert!(with.contains("Pet50"), "{with}");
}

const CHATTER: [&str; 10] = [
    "How was your day?",
    "It is 21 degrees in Lisbon today, and the tram was late again.",
    "I had 3 coffees with Paul and we talked about the match.",
    "haha yes that is funny",
    "Tell me a joke about bakers.",
    "The bus is always late here.",
    "I think the film was called Something or other, we saw it in Berlin.",
    "今天天气很好，我们去公园散步了。",
    "Can you write 40 words about rain?",
    "We should decide what to cook on Friday at 19:30.",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_was_told_early_outlives_hundreds_of_turns(
        fact in prop::sample::select(vec![
            "My cat is called Miso.", "我的猫叫咪咪。", "Please remember that the password is tulip-77.",
            "I live in Ulm.", "Mein Hund heißt Rex.", "Our production database is called orders_v2.",
        ]),
        rounds in 3usize..7,
        turns in 20usize..60,
        seed in any::<u64>(),
    ) {
        let mut chatter = seed;
        let mut previous: Option<String> = None;
        for round in 0..rounds {
            let mut messages = Vec::new();
            for turn in 0..turns {
                if round == 0 && turn == 3 {
                    messages.push(user(fact));
                }
                chatter = chatter.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let text = CHATTER[(chatter >> 33) as usize % CHATTER.len()];
                messages.push(user(&format!("{text} ({turn}-{round})")));
                messages.push(assistant(&format!("You said: {text} I see {turn} messages, 100 % fine, said Bob.")));
            }
            let summary = summarise(&messages, previous.as_deref(), 1_500);
            prop_assert!(summary.contains(fact), "after round {round}: {summary}");
            previous = Some(summary);
        }
    }
}

proptest! {
    #[test]
    fn any_text_gives_a_bounded_summary_in_form(
        texts in prop::collection::vec("(\\PC|\n|。|\\. |## Goal|- ){0,120}", 0..8),
        previous in prop::option::of("(\\PC|\n|## Goal\n|## Progress\n|- ){0,200}"),
        chars_max in 0usize..1_500,
    ) {
        let messages: Vec<Message> = texts
            .iter()
            .enumerate()
            .map(|(at, text)| if at % 2 == 0 { user(text) } else { assistant(text) })
            .collect();
        let summary = summarise(&messages, previous.as_deref(), chars_max);
        prop_assert!(summary.chars().count() <= chars_max.max(SKELETON_CHARS), "{} > {chars_max}", summary.chars().count());
        prop_assert_eq!(Sections::parse(&summary).missing(), None);
        if let Ok(checked) = check(&summary) {
            prop_assert_eq!(checked, summary);
        }
    }
}

#[test]
fn a_megabyte_is_no_trouble() {
    let words: String = (0..200_000).map(|n| format!("w{n} ")).collect();
    let summary = summarise(&[user(&words), assistant(&"界".repeat(300_000))], Some(&words), 2_000);
    assert!(summary.chars().count() <= 2_000);
}
