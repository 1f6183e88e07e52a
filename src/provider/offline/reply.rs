//! The offline model's replies. It follows a few simple instructions, recalls from its context, and otherwise makes
//! conversation.
//!
//! A reply depends only on the request, so the same request gets the same reply.

use super::{
    fact::is_told,
    recall::{Origin, Recalled, Statement, recall, statements},
    sentences::sentences,
    tool_call::{Call, asked_for, unknown_tool},
    words::{Listed, Words, is_question},
};
use crate::core::{
    compaction::serialize::{clip, prefix},
    context::seed::unseed,
    model::ModelRequest,
};
use reseed_protocol::{Message, Part, Role};

/// Maximum number of words generated at once, which fills a window of 16,000 tokens in one answer.
const WORDS_MAX: usize = 20_000;
/// Number of words in a long answer.
const WORDS_LONG: usize = 400;
/// The highest number it counts to.
const COUNT_MAX: u64 = 10_000;
/// Characters of the user's message that it repeats.
const ECHO_CHARS_MAX: usize = 200;
/// Characters of a tool result that it repeats.
const RESULT_CHARS_MAX: usize = 1_000;

/// The answer to give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    /// This text.
    Say(String),
    /// These calls.
    Call(Vec<Call>),
}

/// Sizes that the reply mentions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// Tokens of the request.
    pub(super) input_tokens: u64,
    /// Tokens that the model can take.
    pub(super) window_tokens: u64,
}

/// Returns the reply to this request.
pub(super) fn reply(request: &ModelRequest, sizes: Sizes) -> Reply {
    // Messages added for this request alone provide facts, but the user's question is not among them.
    let (said, added) = (&request.envelope.messages.cached, &request.envelope.messages.uncached);
    let (said, sent) = (if said.is_empty() { added } else { said }, said.len() + added.len());
    let messages: Vec<&Message> = said.iter().map(|message| message.message.as_ref()).collect();
    if messages.last().is_some_and(|last| last.role == Role::Tool) {
        return Reply::Say(tool_results(&messages));
    }
    let is_input = |message: &&&Message| message.role == Role::User && unseed(&message.text()).is_none();
    let Some(input) = messages.iter().rev().find(is_input) else {
        return Reply::Say(format!("Hello! {}", about_me(request, sizes, sent)));
    };
    let text = input.text();
    let tools = &request.envelope.tools;
    let calls = asked_for(&text, tools);
    if !calls.is_empty() {
        return Reply::Call(calls);
    }
    Reply::Say(match unknown_tool(&text, tools) {
        Some(name) => format!("I have no tool called `{}`. {}", prefix(name, 64), tools_on_offer(request)),
        None => to_order(&text).unwrap_or_else(|| to_talk(&text, input, request, sizes, sent)),
    })
}

/// Returns the text if the user asks for an exact text or for a length.
fn to_order(text: &str) -> Option<String> {
    repeated(text).or_else(|| counted(text)).or_else(|| long_text(text))
}

fn repeated(text: &str) -> Option<String> {
    let after = ["repeat after me", "repeat exactly", "say exactly"]
        .iter()
        .find_map(|order| Some(&text[text.to_ascii_lowercase().find(order)? + order.len()..]))?;
    let said = after.trim_matches(|c: char| c.is_whitespace() || matches!(c, ':' | ',' | '"' | '“' | '”'));
    (!said.is_empty()).then(|| said.to_owned())
}

fn counted(text: &str) -> Option<String> {
    let words = Words::of(&text.replace(',', ""));
    let words = words.list();
    let from = words.iter().position(|word| *word == "count")?;
    let to = words[from..].iter().position(|word| *word == "to")? + from;
    let last: u64 = words.get(to + 1)?.parse().ok()?;
    let first: u64 = words[from..to].iter().find_map(|word| word.parse().ok()).unwrap_or(1);
    let last = last.min(first.saturating_add(COUNT_MAX - 1));
    let numbers: Vec<String> = (first..=last).map(|number| number.to_string()).collect();
    (!numbers.is_empty()).then(|| numbers.join(", "))
}

fn long_text(text: &str) -> Option<String> {
    let words = Words::of(&text.replace(',', ""));
    let words = words.list();
    let wanted = words.windows(2).find_map(|pair| match pair[1] {
        "word" | "words" => pair[0].parse::<usize>().ok(),
        _ => None,
    });
    let is_long = words
        .windows(2)
        .any(|pair| pair[0] == "long" && matches!(pair[1], "answer" | "story" | "text" | "output" | "reply" | "poem"));
    let count = wanted.or(is_long.then_some(WORDS_LONG))?.min(WORDS_MAX);
    let tale: Vec<&str> = TALE.split(' ').cycle().take(count).collect();
    (!tale.is_empty()).then(|| tale.join(" "))
}

/// The text used when only the length matters.
const TALE: &str = "In the morning the river is quiet and the mill stands still. A boy comes down the path with a \
                    bucket and looks for the heron. The heron has been awake for a long time and does not mind him. \
                    Later the miller opens the gate and the wheel begins to turn. Flour settles on the beams like a \
                    thin snow. At noon the carts arrive and the yard fills with voices. Somebody has brought plums and \
                    everybody eats them on the wall. When the last cart has left the wheel slows down and stops. The \
                    boy goes home with his bucket full of small fish. At night the river tells the mill what it has \
                    seen upstream.";

fn to_talk(text: &str, input: &Message, request: &ModelRequest, sizes: Sizes, messages: usize) -> String {
    let found = sentences(text);
    let asked = found.iter().rev().find(|sentence| is_question(sentence, &Words::of(sentence).list()));
    if let Some(question) = asked {
        let is_personal = is_personal(question);
        match recall(question, &statements(request)) {
            Recalled::Found(fact) => return quoted(&fact),
            Recalled::Close(fact) => {
                return format!("I do not find exactly that in my context; the closest is this. {}", quoted(&fact));
            }
            Recalled::Listed(list) if is_personal => {
                let facts: Vec<String> = list.iter().map(|fact| format!("- {}", fact.sentence)).collect();
                return format!("This is what my context holds of what you told me:\n{}", facts.join("\n"));
            }
            Recalled::Nothing(looked_for) if is_personal => return not_held(&looked_for, messages),
            Recalled::Listed(_) | Recalled::Nothing(_) => {}
        }
    }
    let echo = echo(text);
    let sees_picture = input.content.iter().any(|part| matches!(part, Part::Image { .. }));
    let picture = if sees_picture { " I cannot see pictures, so I go by your words." } else { "" };
    let about = about_me(request, sizes, messages);
    let facts: Vec<&str> = found.iter().copied().filter(|sentence| is_told(sentence)).collect();
    match (facts.first(), asked) {
        (Some(fact), _) => format!(
            "Thank you, I see that you told me: “{}” Ask me later and I will find it, also after my context was \
             compacted.{picture}",
            prefix(fact, ECHO_CHARS_MAX)
        ),
        (None, Some(_)) => format!(
            "You asked: “{echo}” I know only what stands in my context, and the answer is not there.{picture} {about}"
        ),
        (None, None) if echo.is_empty() => format!("I got a message without words.{picture} {about}"),
        (None, None) => format!("You said: “{echo}” {}{picture} {about}", REMARKS[messages % REMARKS.len()]),
    }
}

/// Rotated, so that a long conversation does not repeat one line.
const REMARKS: [&str; 4] = [
    "I have taken note of it.",
    "It is in my context now.",
    "I read it with care, as far as a program of a few hundred lines can.",
    "Fine with me.",
];

/// Returns true if a question is about the user or what the user said.
fn is_personal(question: &str) -> bool {
    static PERSONAL: Listed =
        Listed::new("i my mine me we our us tell told said say remember recall mein meine meinen ich wir 我 私");
    Words::of(question).iter().any(|word| PERSONAL.has(word))
}

fn quoted(fact: &Statement) -> String {
    let sentence = &fact.sentence;
    match fact.origin {
        Origin::User => format!("You told me: {sentence}"),
        Origin::SummarisedUser => format!("You told me earlier, and my summary has kept it: {sentence}"),
        Origin::Summary => format!("The summary of our earlier conversation says: {sentence}"),
        Origin::Tool => format!("A tool said: {sentence}"),
        Origin::System => format!("My instructions say: {sentence}"),
    }
}

fn not_held(looked_for: &[String], messages: usize) -> String {
    let seen = count_of(messages, "message");
    match looked_for {
        [] => format!("My context does not hold that: in the {seen} that I see you have told me no facts."),
        words => format!(
            "My context does not hold that. I looked for “{}” in the {seen} that I see. Tell me, and I will remember.",
            prefix(&words.join(" "), ECHO_CHARS_MAX)
        ),
    }
}

fn about_me(request: &ModelRequest, sizes: Sizes, messages: usize) -> String {
    let has_summary = request.messages().any(|message| unseed(&message.message.text()).is_some());
    let summary = if has_summary { ", a summary of what came before among them" } else { "" };
    format!(
        "I am the built-in offline model and see {}{summary}: {} of {} tokens. Tell me facts and ask for them later, \
         or say “count to 20” or “write 500 words”. {}",
        count_of(messages, "message"),
        sizes.input_tokens,
        sizes.window_tokens,
        tools_on_offer(request)
    )
}

fn tools_on_offer(request: &ModelRequest) -> String {
    /// With more names than this, the sentence would become a list.
    const NAMED_MAX: usize = 8;
    let tools = &request.envelope.tools;
    let names: Vec<String> = tools.iter().take(NAMED_MAX).map(|tool| format!("`{}`", tool.name)).collect();
    match names.as_slice() {
        [] => "No tools are on offer.".to_owned(),
        names => format!("Say “use” and a tool's name to have it called: {}.", names.join(", ")),
    }
}

fn tool_results(messages: &[&Message]) -> String {
    let answered = messages.iter().rev().take_while(|message| message.role == Role::Tool).count();
    let (before, results) = messages.split_at(messages.len() - answered);
    let name = |id| {
        let calls = before.iter().rev().flat_map(|message| message.tool_calls());
        calls.into_iter().find(|(call_id, _, _)| *call_id == id).map_or("tool", |(_, name, _)| name)
    };
    let lines: Vec<String> = results
        .iter()
        .flat_map(|message| &message.content)
        .filter_map(|part| match part {
            Part::ToolResult { call_id, output, is_error } => {
                let verb = if *is_error { "failed" } else { "says" };
                let output = clip(output.trim(), RESULT_CHARS_MAX);
                let output = if output.is_empty() { "(nothing)" } else { &output };
                Some(format!("The tool `{}` {verb}: {output}", name(call_id)))
            }
            _ => None,
        })
        .collect();
    lines.join("\n")
}

fn echo(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let short = prefix(&line, ECHO_CHARS_MAX);
    if short.len() < line.len() { format!("{short}…") } else { line }
}

fn count_of(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_followed_to_the_word() {
        for (text, expected) in [
            ("Repeat after me: \"Guten Tag, 猫!\"", Some("Guten Tag, 猫!")),
            ("please repeat after me", None),
            ("Count to 5", Some("1, 2, 3, 4, 5")),
            ("count from 3 to 5, please", Some("3, 4, 5")),
            ("count to zero", None),
            ("count to 0", None),
            ("say 3 words", Some("In the morning")),
            ("write 0 words", None),
            ("hello", None),
        ] {
            assert_eq!(to_order(text).as_deref(), expected, "{text}");
        }
        for (text, words) in
            [("write 1,000 words", 1_000), ("tell me a long story", 400), ("say 999999 words", WORDS_MAX)]
        {
            assert_eq!(to_order(text).unwrap().split(' ').count(), words, "{text}");
        }
        assert_eq!(to_order("count to 99999999999").unwrap().split(", ").count() as u64, COUNT_MAX);
        assert_eq!(to_order("count from 18446744073709551615 to 18446744073709551615").unwrap(), u64::MAX.to_string());
    }
}
