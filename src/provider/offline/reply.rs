//! The offline model's replies. It follows a few simple orders, calls tools, answers questions from its context, and
//! otherwise says what it has read.
//!
//! A reply depends only on the request, so the same request gets the same reply.

use super::{recall, tool_call};
use crate::core::{
    compaction::serialize::{clip, prefix},
    context::seed::unseed,
    model::ModelRequest,
};
use reseed_protocol::{Message, Part, Role};

/// Maximum number of words generated at once, which fills a window of 16,000 tokens in one answer.
const WORDS_MAX: usize = 20_000;
/// Maximum count of numbers in an answer.
const COUNT_MAX: u64 = 10_000;
/// Characters of the user's message that it repeats.
const ECHO_CHARS_MAX: usize = 200;
/// Characters of a tool result that it repeats.
const RESULT_CHARS_MAX: usize = 1_000;

/// The answer to a question whose words the context does not hold.
const NOT_HELD: &str = "My context does not hold the answer to that. I am the built-in offline model: tell me facts and \
                        ask for them later, say “count to 20” or “write 500 words”, or “use” and the name of a tool.";

/// Returns the parts of the reply to this request: a text, and the calls that it announces.
pub(super) fn reply(request: &ModelRequest, input_tokens: u64, window_tokens: u64) -> Vec<Part> {
    // Messages added for this request alone can be recalled, but the user's input is not among them.
    let said: Vec<&Message> = request.envelope.messages.cached.iter().map(|sent| sent.message.as_ref()).collect();
    let is_input = |message: &&&Message| message.role == Role::User && unseed(&message.text()).is_none();
    let input = said.iter().rev().find(is_input).map(|message| message.text()).unwrap_or_default();
    let calls = tool_call::asked_for(&input, &request.envelope.tools);
    let text = if said.last().is_some_and(|last| last.role == Role::Tool) {
        tool_results(&said)
    } else if !calls.is_empty() {
        let names: Vec<String> = calls.iter().map(|call| format!("`{}`", call.name)).collect();
        let text = format!("I call {}.", names.join(" and "));
        return std::iter::once(Part::Text { text })
            .chain(calls.into_iter().enumerate().map(tool_call::part))
            .collect();
    } else if let Some(text) = repeated(&input).or_else(|| counted(&input)).or_else(|| of_length(&input)) {
        text
    } else {
        match recall::question(&input) {
            Some(question) => recall::recall(question, request).unwrap_or_else(|| NOT_HELD.to_owned()),
            None => {
                let line = input.split_whitespace().collect::<Vec<_>>().join(" ");
                let short = prefix(&line, ECHO_CHARS_MAX);
                let dots = if short.len() < line.len() { "…" } else { "" };
                let count = match request.messages().count() {
                    1 => "1 message".to_owned(),
                    count => format!("{count} messages"),
                };
                format!(
                    "You told me: “{short}{dots}” Ask me for it later. I see {count}: {input_tokens} of \
                     {window_tokens} tokens."
                )
            }
        }
    };
    vec![Part::Text { text }]
}

/// Returns the text that the user wants repeated.
fn repeated(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let end = |order: &str| Some(lower.find(order)? + order.len());
    let from = ["repeat after me", "repeat exactly", "say exactly"].into_iter().find_map(end)?;
    let said = text[from..].trim_matches(|c: char| c.is_whitespace() || matches!(c, ':' | ',' | '"'));
    (!said.is_empty()).then(|| said.to_owned())
}

/// Returns the numbers for “count to 20” and “count 5 to 20”.
fn counted(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let (from, to) = lower.split_once("count ")?.1.split_once("to ")?;
    let number = |text: &str| {
        let digits = text.split(|c: char| !c.is_ascii_digit() && c != ',').find(|word| !word.is_empty())?;
        digits.replace(',', "").parse::<u64>().ok()
    };
    let (first, last) = (number(from).unwrap_or(1), number(to)?);
    let last = last.min(first.saturating_add(COUNT_MAX - 1));
    let numbers: Vec<String> = (first..=last).map(|number| number.to_string()).collect();
    (!numbers.is_empty()).then(|| numbers.join(", "))
}

/// Returns a text of the length that the user wants.
fn of_length(text: &str) -> Option<String> {
    let text = text.replace(',', "");
    let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).collect();
    let count = words.windows(2).find_map(|pair| match pair[1] {
        "word" | "words" => pair[0].parse::<usize>().ok(),
        _ => None,
    });
    let count = count.filter(|count| *count > 0)?.min(WORDS_MAX);
    Some(TALE.split(' ').cycle().take(count).collect::<Vec<_>>().join(" "))
}

/// The text used when only the length matters.
const TALE: &str = "In the morning the river is quiet and the mill stands still. A boy comes down the path with a \
                    bucket and looks for the heron. The heron has been awake for a long time and does not mind him. \
                    Later the miller opens the gate and the wheel begins to turn. Flour settles on the beams like a \
                    thin snow. At noon the carts arrive and the yard fills with voices. Somebody has brought plums and \
                    everybody eats them on the wall. When the last cart has left the wheel slows down and stops. The \
                    boy goes home with his bucket full of small fish. At night the river tells the mill what it has \
                    seen upstream.";

/// Reports the results at the end of these messages.
fn tool_results(messages: &[&Message]) -> String {
    let name = |id| {
        let mut calls = messages.iter().rev().flat_map(|message| message.tool_calls());
        calls.find(|(call_id, _, _)| *call_id == id).map_or("tool", |(_, name, _)| name)
    };
    let first = messages.iter().rposition(|message| message.role != Role::Tool).map_or(0, |last| last + 1);
    let results = messages[first..].iter().flat_map(|message| &message.content);
    let lines = results.filter_map(|part| match part {
        Part::ToolResult { call_id, output, is_error } => {
            let verb = if *is_error { "failed" } else { "says" };
            Some(format!("The tool `{}` {verb}: {}", name(call_id), clip(output.trim(), RESULT_CHARS_MAX)))
        }
        _ => None,
    });
    lines.collect::<Vec<_>>().join("\n")
}
