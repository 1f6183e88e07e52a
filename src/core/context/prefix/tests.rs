//! The first part that differs, its tokens, and what remains known after a restart.

use super::*;
use crate::context::{build_context, counter::Counter, testing::path};
use reseed_protocol::{Usage, receipt::Receipt};
use serde_json::json;

/// A request written as lines: `model NAME`, `tool NAME`, `system NAME TEXT`, `- MESSAGE` for one request only,
/// anything else an entry.
struct Written {
    model: String,
    system: SystemPrompt,
    tools: Vec<ToolDefinition>,
    messages: Vec<Counted>,
    cached: usize,
}

fn written(lines: &[&str]) -> Written {
    let counter = Counter::for_model("test");
    let (mut model, mut system, mut tools) = ("m".to_owned(), SystemPrompt::default(), Vec::new());
    let (mut cached, mut uncached) = (Vec::new(), Vec::new());
    for line in lines {
        let (word, rest) = line.split_once(' ').unwrap();
        match word {
            "model" => model = rest.to_owned(),
            "tool" => tools.push(ToolDefinition {
                name: rest.to_owned(),
                description: "Does something.".repeat(20),
                parameters: json!({ "type": "object" }),
            }),
            "system" => {
                let (name, text) = rest.split_once(' ').unwrap();
                system.parts.push(SystemPart { name: name.to_owned(), text: text.repeat(200) });
            }
            "-" => uncached.push(rest),
            _ => cached.push(*line),
        }
    }
    let messages = |lines: &[&str]| build_context(&path(lines, &counter)).messages;
    let (mut messages, uncached) = (messages(&cached), messages(&uncached));
    let cached = messages.len();
    messages.extend(uncached.into_iter().map(|counted| Counted { entry_id: None, ..counted }));
    Written { model, system, tools, messages, cached }
}

impl Written {
    fn outgoing(&self) -> PlannedRequest<'_> {
        let fixed = Fixed { system: 300, tools: 100 * self.tools.len() as u64, ..Fixed::default() };
        let (cached, uncached) = self.messages.split_at(self.cached);
        let outgoing =
            PlannedRequest::new(&self.model, &self.system, &self.tools, fixed).with_messages(cached, uncached);
        let tokens = outgoing.estimate();
        outgoing.counted_at(tokens)
    }
}

/// Returns what is known about the request after a restart.
fn read_back(sent: &SentRequest) -> SentRequest {
    let receipt = Receipt { tokens: sent.tokens, sent: sent.parts(), ..Receipt::default() };
    let mut answer = Message::user("");
    answer.model = Some(sent.model.clone());
    answer.receipt = Some(Box::new(receipt));
    SentRequest::of_answer(&answer).unwrap()
}

const BEFORE: &[&str] = &[
    "tool look",
    "system base Be brief. ",
    "system policy Be civil. ",
    "a:user one and more",
    "b:assistant two",
    "c:user three",
];

fn with(change: impl FnOnce(&mut Vec<&'static str>)) -> Vec<&'static str> {
    let mut lines = BEFORE.to_vec();
    change(&mut lines);
    lines
}

fn without(at: usize) -> Vec<&'static str> {
    let mut lines = BEFORE.to_vec();
    lines.remove(at);
    lines
}

#[test]
fn the_first_part_that_differs_is_named() {
    let told = |lines: &mut Vec<&'static str>| lines.extend(["d:assistant four", "e:user five"]);
    let table: &[(Vec<&str>, Option<&str>)] = &[
        (BEFORE.to_vec(), None),
        (with(told), None),
        (with(|lines| lines.insert(0, "model other")), Some("model")),
        (with(|lines| lines[0] = "tool find"), Some("tools")),
        (with(|lines| lines.insert(1, "tool find")), Some("tools")),
        (without(0), Some("tools")),
        (with(|lines| lines[1] = "system base Be long. "), Some("system:base")),
        (with(|lines| lines.insert(1, "system first Hear. ")), Some("system:first")),
        (with(|lines| lines.insert(3, "system last Hear. ")), Some("system:last")),
        (without(1), Some("system:base")),
        (without(2), Some("system:policy")),
        // A part's name is not sent.
        (with(|lines| lines[2] = "system rules Be civil. "), None),
        (with(|lines| lines[3] = "a:user one and less"), Some("message:a")),
        (with(|lines| lines[5] = "d:user four"), Some("message:d")),
        (without(5), Some("message")),
    ];
    let before = written(BEFORE);
    let sent = before.outgoing().sent();
    for (lines, expected) in table {
        let after = written(lines);
        let outgoing = after.outgoing();
        let shared = outgoing.shares(&sent);
        let part = shared.broke.as_ref().map(|(place, _)| place.part());
        assert_eq!(part.as_deref(), *expected, "{lines:?}");
        let lost = shared.broke.map_or(0, |(_, lost)| lost);
        assert_eq!(shared.tokens + lost, sent.tokens, "{lines:?}");
        assert!(shared.tokens <= outgoing.tokens);
        // After a restart the same is known, except which message it was.
        let again = outgoing.shares(&read_back(&sent));
        let known = |part: &str| part.split(':').next().unwrap().to_owned();
        let part = again.broke.as_ref().map(|(place, _)| place.part());
        assert_eq!(part.as_deref().map(known), expected.map(known), "{lines:?}");
        assert!(again.tokens <= shared.tokens);
        assert!(expected.is_some_and(|part| part.starts_with("message")) || again.tokens == shared.tokens);
    }
}

#[test]
fn tokens_are_those_before_the_part() {
    let before = written(BEFORE);
    let sent = before.outgoing().sent();
    let share = |change: fn(&mut Vec<&'static str>)| {
        let after = written(&with(change));
        after.outgoing().shares(&sent).tokens
    };
    assert_eq!(share(|lines| lines.insert(0, "model other")), 0);
    assert_eq!(share(|lines| lines[0] = "tool find"), 0);
    assert_eq!(share(|lines| lines.insert(1, "tool find")), 100);
    assert_eq!(share(|lines| lines[1] = "system base Be tidy. "), 100);
    assert_eq!(share(|lines| lines[2] = "system policy Be tardy. "), 250);
    assert_eq!(share(|lines| lines[3] = "a:user another"), 400);
}

#[test]
fn one_time_messages_break_the_cache_only_after_the_repeated_ones() {
    let first = written(&["a:user one", "- x:user the time is noon"]);
    let sent = first.outgoing().sent();
    let second = written(&["a:user one", "b:assistant two", "c:user three", "- x:user the time is one"]);
    for earlier in [sent.clone(), read_back(&sent)] {
        let shared = second.outgoing().shares(&earlier);
        assert_eq!(shared.broke.as_ref().map(|(place, _)| place.clone()), Some(Divergence::Uncached));
        assert!(shared.tokens >= first.messages[0].tokens.total());
        // Sending exactly the same again loses nothing.
        assert_eq!(first.outgoing().shares(&earlier).broke, None);
    }
}

#[test]
fn a_report_gives_the_size_of_the_shared_prefix() {
    let before = written(BEFORE);
    let mut sent = before.outgoing().sent();
    sent.answered(1_000);
    let after = written(&with(|lines| lines.extend(["d:assistant four", "e:user five"])));
    let outgoing = after.outgoing().counted_at(1_200);
    assert_eq!(outgoing.shares(&sent), SharedPrefix { tokens: 1_000, broke: None });
    let answer = Message {
        model: Some("m".into()),
        usage: Some(Usage {
            input_tokens: 1_000,
            cached_tokens: 0,
            cache_write_tokens: None,
            cache_write_hour_tokens: None,
            output_tokens: 1,
            reasoning_tokens: None,
            prefix_tokens: None,
            further: None,
            cost_nano_usd: None,
            source: UsageSource::Reported,
        }),
        receipt: Some(Box::new(Receipt { tokens: 7, sent: sent.parts(), ..Receipt::default() })),
        ..Message::user("")
    };
    let read = SentRequest::of_answer(&answer).unwrap();
    assert_eq!(outgoing.shares(&read), SharedPrefix { tokens: 1_000, broke: None });
    assert_eq!(SentRequest::of_answer(&Message::user("")), None);
}
