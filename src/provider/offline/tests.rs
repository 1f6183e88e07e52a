//! Tests of the offline model as the runtime sees it.

use super::*;
use crate::core::compaction::{
    segments::{self, Said, Segment},
    serialize,
    summary::{self, PromptParts},
};
use crate::core::context::seed;
use futures_util::FutureExt;
use reseed_protocol::{
    CallId, Message, Role,
    compaction::SummaryKind,
    context::{
        ContextEnvelope, ContextMessage, EnvelopeMessages, EnvelopeMeta, RequestOptions, SystemPart, SystemPrompt,
        ToolDefinition,
    },
};
use serde_json::json;
use std::sync::Arc;

/// What was shown: the pieces of the text, and the calls with their names and arguments.
#[derive(Default)]
struct Shown {
    texts: Vec<String>,
    calls: Vec<(String, String)>,
    ended: usize,
}

impl DeltaSink for Shown {
    fn delta(&mut self, delta: Delta<'_>) {
        match delta {
            Delta::Text { part: 0, text } => self.texts.push(text.to_owned()),
            Delta::Call { part, name } => {
                self.calls.push((name.to_owned(), String::new()));
                assert_eq!(part, self.calls.len(), "calls follow the text");
            }
            Delta::Arguments { part, text } => self.calls[part - 1].1.push_str(text),
            Delta::CallEnd { .. } => self.ended += 1,
            other => panic!("the offline model says one text: {other:?}"),
        }
    }
}

fn request(messages: &[Message]) -> ModelRequest {
    let message = |message: &Message| ContextMessage { entry_id: None, message: Arc::new(message.clone()) };
    ModelRequest {
        model: MODEL.into(),
        envelope: ContextEnvelope {
            system: SystemPrompt::default(),
            tools: vec![],
            messages: EnvelopeMessages { cached: messages.iter().map(message).collect(), uncached: vec![] },
            options: RequestOptions::default(),
            meta: EnvelopeMeta::default(),
        },
        purpose: Purpose::Turn,
        compared_with: None,
        compacts: None,
    }
}

fn model(window_tokens: u64) -> Offline {
    Offline::new(OfflineOptions { window_tokens, pace: None })
}

fn assistant(text: &str) -> Message {
    Message::new(Role::Assistant, vec![Part::Text { text: text.into() }])
}

/// Sends a request and checks the properties that every answer has.
#[track_caller]
fn ask(window_tokens: u64, request: &ModelRequest) -> Answer {
    let mut shown = Shown::default();
    let answer = model(window_tokens).answer(request, &mut shown).now_or_never();
    let answer = answer.expect("without a pace there is nothing to wait for").unwrap_or_else(|fault| panic!("{fault}"));
    let Some(Part::Text { text }) = answer.parts.first() else { panic!("no text first: {answer:?}") };
    assert_eq!(&shown.texts.concat(), text);
    let calls = answer.parts.iter().filter_map(|part| match part {
        Part::ToolCall { name, arguments, .. } => Some((name.clone(), arguments.clone())),
        _ => None,
    });
    assert_eq!(shown.calls, calls.collect::<Vec<_>>());
    assert_eq!(shown.ended, shown.calls.len());
    let usage = answer.usage.expect("usage is reported");
    assert!(usage.input_tokens + usage.output_tokens <= window_tokens);
    assert_eq!(usage.output_tokens, answer.parts.iter().map(part_tokens).sum::<u64>());
    answer
}

fn text(answer: &Answer) -> &str {
    match &answer.parts[0] {
        Part::Text { text } => text,
        other => panic!("{other:?}"),
    }
}

/// Checks that the answer to these user messages contains `expected`.
#[track_caller]
fn says(inputs: &[&str], expected: &str) {
    let mut messages = Vec::new();
    for input in inputs {
        messages.push(Message::user(*input));
        let answer = ask(8_000, &request(&messages));
        messages.push(assistant(text(&answer)));
    }
    let last = messages.last().unwrap().text();
    assert!(last.contains(expected), "{last}");
}

#[test]
fn questions_are_answered_from_the_context() {
    says(&["Hello there"], "You told me: “Hello there”");
    says(&["Hi", "So-so."], "see 3 messages:");
    says(&["My cat is called Miso.", "Nice day", "What is my cat called?"], "You told me: My cat is called Miso.");
    says(&["My cat is called Miso. What's my cat's name?"], "You told me: My cat is called Miso.");
    says(&["My cat is called Miso.", "And what is my dog called?"], "My context does not hold the answer");
    says(&["My cat is called Miso.", "What did I tell you about Miso?"], "You told me: My cat is called Miso.");
    says(&["I live in Ulm.", "Do you remember where I live?"], "You told me: I live in Ulm.");
    says(&["What is the capital of France?"], "My context does not hold the answer");
    says(&["My cat is called Miso.", "Sorry, my cat is called Luna!", "What's my cat called?"], "Luna");
    says(&["我的猫叫咪咪。", "我的猫叫什么？"], "我的猫叫咪咪。");
    says(&[""], "You told me: “”");
}

#[test]
fn orders_are_followed_to_the_word() {
    for (text, expected) in [
        ("Repeat after me: \"Guten Tag, 猫!\"", "Guten Tag, 猫!"),
        ("My code is 7. Say exactly one two", "one two"),
        ("Count to 5", "1, 2, 3, 4, 5"),
        ("count from 3 to 5, please", "3, 4, 5"),
        ("Count 9 to 10", "9, 10"),
        ("say 3 words", "In the morning"),
    ] {
        assert_eq!(text_of(text), expected);
    }
    for text in ["please repeat after me", "count to zero", "count to 0", "write 0 words"] {
        assert!(text_of(text).starts_with("You told me"), "{text}");
    }
    assert_eq!(text_of("write 1,000 words, please").split(' ').count(), 1_000);
    assert_eq!(text_of("write 999999 words").split(' ').count(), 20_000);
    assert_eq!(text_of("count to 99999999999").split(", ").count(), 10_000);
    assert_eq!(text_of("count from 18446744073709551615 to 18446744073709551615"), u64::MAX.to_string());
}

/// Returns the answer to one input.
fn text_of(input: &str) -> String {
    text(&ask(1_000_000, &request(&[Message::user(input)]))).to_owned()
}

#[test]
fn pieces_are_words_and_count_a_token_for_four_bytes() {
    for (text, expected, count) in [
        ("one  twofold\n", vec!["one", "  twofold", "\n"], 3),
        ("我的猫叫咪咪。", vec!["我的猫叫咪咪。"], 6),
        ("", vec![], 0),
        (" ", vec![" "], 0),
    ] {
        assert_eq!((pieces(text).collect::<Vec<_>>(), tokens(text)), (expected, count), "{text:?}");
    }
    assert_eq!(pieces(&"x".repeat(100)).map(str::len).collect::<Vec<_>>(), [40, 40, 20]);
}

#[test]
fn what_is_added_for_one_request_is_known_and_is_not_what_the_user_says() {
    let mut asked = request(&[Message::user("What is my position?")]);
    let added = Message::user("My position is the market square.");
    asked.envelope.messages.uncached = vec![ContextMessage { entry_id: None, message: Arc::new(added) }];
    assert_eq!(text(&ask(8_000, &asked)), "You told me: My position is the market square.");
    std::mem::swap(&mut asked.envelope.messages.uncached, &mut asked.envelope.messages.cached);
    asked.envelope.messages.uncached.clear();
    assert!(text(&ask(8_000, &asked)).contains("You told me: “My position is the market square.”"));
}

#[test]
fn what_the_system_prompt_and_the_summary_say_is_known() {
    let mut asked = request(&[
        Message::user(seed::seed_text("## Critical Context\n- The server runs on port 8443")),
        Message::user("Which port does my server run on?"),
    ]);
    assert_eq!(text(&ask(8_000, &asked)), "The summary of our earlier conversation says: The server runs on port 8443");
    asked.envelope.messages.cached.remove(0);
    let prompt = "Your favourite port is 8443.".to_owned();
    asked.envelope.system =
        SystemPrompt { parts: vec![SystemPart { name: "base".into(), text: prompt.clone() }], compiled: prompt };
    asked.envelope.messages.cached[0] =
        ContextMessage { entry_id: None, message: Arc::new(Message::user("Which port is your favourite?")) };
    assert_eq!(text(&ask(8_000, &asked)), "My instructions say: Your favourite port is 8443.");
}

#[test]
fn a_tool_is_called_and_its_answer_told() {
    let mut messages = vec![Message::user("Use the tool add with a=2 and b=3")];
    let mut asked = request(&messages);
    asked.envelope.tools = vec![ToolDefinition {
        name: "add".into(),
        description: "Adds".into(),
        parameters: json!({ "type": "object", "properties": { "a": { "type": "integer" }, "b": { "type": "integer" } },
            "required": ["a", "b"] }),
    }];
    let answer = ask(8_000, &asked);
    let call_id: CallId = "offline-1".parse().unwrap();
    let call = Part::ToolCall { call_id: call_id.clone(), name: "add".into(), arguments: r#"{"a":2,"b":3}"#.into() };
    assert_eq!(answer.parts, [Part::Text { text: "I call `add`.".into() }, call]);
    assert_eq!(answer.stop_reason, StopReason::ToolCalls);
    messages.push(Message::new(Role::Assistant, answer.parts));
    let result = |is_error| Part::ToolResult { call_id: call_id.clone(), output: "5".into(), is_error };
    for (is_error, expected) in [(false, "The tool `add` says: 5"), (true, "The tool `add` failed: 5")] {
        let mut answered = messages.clone();
        answered.push(Message::new(Role::Tool, vec![result(is_error)]));
        assert_eq!(text(&ask(8_000, &request(&answered))), expected);
    }
    asked.envelope.options.max_output_tokens = Some(10);
    let cut = ask(8_000, &asked);
    assert_eq!((cut.parts.len(), cut.stop_reason), (1, StopReason::Length));
}

#[test]
fn an_answer_ends_at_the_limit_or_the_window() {
    let mut asked = request(&[Message::user("Repeat after me: a b c d e f g h i j")]);
    let input_tokens = request_tokens(&asked);
    for (room_tokens, max_output_tokens, expected) in [
        (1_000, None, (10, StopReason::Stop)),
        (10, None, (10, StopReason::Stop)),
        (9, None, (9, StopReason::Length)),
        (1, Some(100), (1, StopReason::Length)),
        (1_000, Some(4), (4, StopReason::Length)),
        (1_000, Some(0), (1, StopReason::Length)),
    ] {
        asked.envelope.options.max_output_tokens = max_output_tokens;
        let answer = ask(input_tokens + room_tokens, &asked);
        let said = answer.usage.map(|usage| usage.output_tokens);
        assert_eq!((said, answer.stop_reason), (Some(expected.0), expected.1));
    }
}

#[test]
fn a_limit_shorter_than_the_first_word_cuts_the_word() {
    let mut asked = request(&[Message::user(format!("Repeat after me: {}", "x".repeat(200)))]);
    asked.envelope.options.max_output_tokens = Some(2);
    assert_eq!(text(&ask(8_000, &asked)), "xx");
}

#[tokio::test]
async fn a_request_that_fills_the_window_is_refused_with_its_numbers() {
    let asked = request(&[Message::user("a ".repeat(100))]);
    let tokens = request_tokens(&asked);
    let fault = model(tokens).answer(&asked, &mut Shown::default()).await.unwrap_err();
    assert_eq!(fault.code, ErrorCode::ContextOverflow);
    let hint = OverflowHint { prompt_tokens: Some(tokens), window_tokens: Some(tokens) };
    assert_eq!((fault.overflow, fault.shown), (hint, false));
    assert!(model(tokens + 1).answer(&asked, &mut Shown::default()).await.is_ok());
}

#[tokio::test]
async fn words_come_one_by_one_and_dropping_stops_them() {
    let asked = request(&[Message::user("Count to 5")]);
    let mut shown = Shown::default();
    let paced = Offline::new(OfflineOptions { window_tokens: 8_000, pace: Some(Duration::from_secs(3_600)) });
    tokio::select! {
        biased;
        _ = paced.answer(&asked, &mut shown) => panic!("four hours have not passed"),
        () = std::future::ready(()) => {}
    }
    assert_eq!(shown.texts, ["1,"]);
}

#[tokio::test]
async fn it_lists_itself_with_its_window() {
    let listed = model(2_000).models().await.unwrap();
    let takes = Takes { tools: Some(true), images: Some(false) };
    assert_eq!(listed, [ListedModel { id: "offline".into(), window_tokens: Some(2_000), takes }]);
}

/// Compacts these messages as the server does: serialise, request a summary, check it, add a segment, seed.
fn compacted(messages: &[Message], segments: &mut Vec<Segment>, words_max: u32) -> Message {
    let blocks: Vec<String> = messages.iter().flat_map(serialize::blocks).collect();
    let parts = PromptParts {
        blocks: &blocks,
        previous: None,
        instructions: None,
        replaced: None,
        kind: SummaryKind::Chat,
        split_turn: false,
        delimiter: "q8r2k1",
        words_max,
        keeps_words: true,
    };
    let mut asked = request(&[Message::user(summary::prompt(parts))]);
    asked.envelope.system.compiled = summary::system_prompt().to_owned();
    asked.purpose = Purpose::Summary;
    let answer = ask(16_000, &asked);
    assert_eq!(answer.stop_reason, StopReason::Stop);
    let text = summary::check(text(&answer), "q8r2k1", &[]).unwrap();
    let said = messages.iter().filter(|message| message.role == Role::User);
    let said = said.map(|message| Said { entry_id: None, text: message.text() }).collect();
    segments.push(Segment { said, text });
    Message::user(seed::seed_text(&segments::write(segments, false).0))
}

const CHATTER: [&str; 8] = [
    "How was your day?",
    "It is raining in Lisbon again, the 28 tram is late.",
    "Tell me something about bread.",
    "haha nice",
    "I had coffee with Paul, it was 3 euros.",
    "What is the capital of France?",
    "write 30 words about rain",
    "My neighbour's bicycle is green.",
];

#[test]
fn a_fact_told_in_turn_three_is_answered_after_each_of_four_compactions() {
    for (words_max, fact, question, expected) in [
        (250, "My cat is called Miso.", "What is my cat called?", "Miso"),
        (128, "Remember that the launch code is tulip-77.", "What is the launch code?", "tulip-77"),
        (128, "I was born in Ulm.", "Where was I born?", "Ulm"),
        (250, "我的猫叫咪咪。", "我的猫叫什么？", "咪咪"),
    ] {
        let mut messages: Vec<Message> = Vec::new();
        let mut segments = Vec::new();
        for round in 0..4 {
            for turn in 0..40 {
                let is_told = round == 0 && turn == 2;
                let input = if is_told { fact } else { CHATTER[(turn * 3 + round) % CHATTER.len()] };
                messages.push(Message::user(input));
                let answer = ask(100_000, &request(&messages));
                messages.push(assistant(text(&answer)));
            }
            let spoken = if segments.is_empty() { &messages[..] } else { &messages[1..] };
            let seed = compacted(spoken, &mut segments, words_max);
            messages = vec![seed, Message::user(question)];
            let answer = ask(100_000, &request(&messages));
            assert!(text(&answer).contains(expected), "round {round}: {}\n{segments:?}", text(&answer));
            messages.push(assistant(text(&answer)));
        }
    }
}

#[test]
fn a_summary_keeps_within_its_limit() {
    let chatter: Vec<Message> = (0..200).map(|n| Message::user(format!("我的第{n}只猫叫咪{n}。"))).collect();
    let mut asked = request(&chatter);
    asked
        .envelope
        .messages
        .cached
        .push(ContextMessage { entry_id: None, message: Arc::new(Message::user("Summarise.")) });
    asked.purpose = Purpose::Summary;
    asked.envelope.options.max_output_tokens = Some(300);
    let answer = ask(16_000, &asked);
    assert_eq!(answer.stop_reason, StopReason::Stop);
    assert!(summary::check(text(&answer), "", &[]).is_ok(), "{}", text(&answer));
}

#[test]
fn a_summary_that_rides_on_the_conversation_merges_the_one_before() {
    let mut asked = request(&[
        Message::user(seed::seed_text("## Critical Context\n- The boat is called Argo")),
        Message::user("My cat is called Miso."),
        Message::user("Summarise the conversation."),
    ]);
    asked.purpose = Purpose::Summary;
    let answer = ask(8_000, &asked);
    for expected in ["- The boat is called Argo", "- User: My cat is called Miso."] {
        assert!(text(&answer).contains(expected), "{}", text(&answer));
    }
}

#[test]
fn a_summary_in_place_leaves_out_what_is_kept() {
    let kept = Message::user("My dog is called Rex.");
    let ask_for = summary::in_place(summary::InPlaceParts {
        kept_messages: 2,
        first_kept: Some(&kept),
        instructions: None,
        replaced: None,
        kind: SummaryKind::Chat,
        split_turn: false,
        words_max: 200,
        keeps_words: false,
        keeps_summary: false,
    });
    let mut asked = request(&[
        Message::user(seed::seed_text("## Critical Context\n- The boat is called Argo")),
        Message::user("My cat is called Miso."),
        kept.clone(),
        assistant("Nice."),
        Message::user(ask_for),
    ]);
    asked.purpose = Purpose::Summary;
    let answer = ask(8_000, &asked);
    for expected in ["- The boat is called Argo", "- User: My cat is called Miso."] {
        assert!(text(&answer).contains(expected), "{}", text(&answer));
    }
    assert!(!text(&answer).contains("Rex"), "{}", text(&answer));
}

#[test]
fn a_text_without_breaks_is_counted_in_one_pass() {
    // With a second pass for every piece, this takes minutes.
    for (text, expected) in [("x", 250_000), (" ", 0), ("ab ", 333_334)] {
        let text: String = text.chars().cycle().take(1_000_000).collect();
        assert_eq!(super::tokens(&text), expected);
        assert_eq!(super::pieces(&text).collect::<String>(), text);
    }
}
