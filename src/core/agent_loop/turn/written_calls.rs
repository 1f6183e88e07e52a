//! Calls that a model writes as text instead of making them: blocks of JSON that name a tool.
//!
//! Models that were not trained for tools do this with whatever is offered to them. Such a text is never executed as a
//! call: it may be an example, or what the user asked for. It only shows that offering more tools to this model is
//! useless. A call to a tool that the user's message names does not count: the user may have asked for that text, and
//! the conclusion would affect other users too.

use crate::agent_loop::tools::SentTools;
use reseed_protocol::{Message, Part};
use serde_json::Value;

/// Maximum bytes of a text that is searched; a call is short.
const TEXT_BYTES_MAX: usize = 32 * 1024;

/// Maximum blocks that are parsed per text.
const BLOCKS_MAX: usize = 32;

/// Marks that models put around a call: its beginning and its end.
const MARKS: [(&str, &str); 8] = [
    ("```", "```"),
    ("<tool_call>", "</tool_call>"),
    ("<tool_calls>", "</tool_calls>"),
    ("<function_call>", "</function_call>"),
    ("<|tool_call|>", "<|/tool_call|>"),
    ("<|tool_call_begin|>", "<|tool_call_end|>"),
    ("<|python_tag|>", "<|eom_id|>"),
    ("[TOOL_CALLS]", "</s>"),
];

/// Marks directly before a tool's name: `<function=name>`, `[TOOL_CALLS]name[ARGS]`, `to=functions.name`.
const BEFORE_NAMES: [&str; 10] = [
    "<function=",
    "<function name=",
    "<invoke name=",
    "<tool_call>",
    "<|tool_call>call:",
    "<|python_tag|>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "[TOOL_CALLS]",
    "to=functions.",
];

/// The fields that hold a tool's name, and those that hold its arguments.
const NAMES: [&str; 6] = ["name", "tool", "tool_name", "function", "function_name", "action"];
const ARGUMENTS: [&str; 7] =
    ["arguments", "parameters", "args", "input", "tool_input", "tool_arguments", "action_input"];

/// The fields in which calls are wrapped.
const WRAPPERS: [&str; 5] = ["tool_calls", "tool_call", "function_call", "function", "calls"];

/// Returns true if an answer makes no call, but contains the text of one to a tool that was sent and that the user did
/// not name.
pub(super) fn has_call(message: &Message, sent: &SentTools, was_named: impl Fn(&str) -> bool) -> bool {
    let makes_calls = message.content.iter().any(|part| matches!(part, Part::ToolCall { .. }));
    let texts = message.content.iter().filter_map(|part| match part {
        Part::Text { text } if text.len() <= TEXT_BYTES_MAX => Some(text.as_str()),
        _ => None,
    });
    !makes_calls && texts.into_iter().any(|text| writes_call(text, &|name| sent.has(name) && !was_named(name)))
}

fn writes_call(text: &str, is_sent: &dyn Fn(&str) -> bool) -> bool {
    blocks(text).into_iter().any(|block| is_call_text(block, is_sent)) || names_function(text, is_sent)
}

/// Returns the whole text, and each marked part of it.
fn blocks(text: &str) -> Vec<&str> {
    let mut blocks = vec![text];
    for (open, close) in MARKS {
        let mut rest = text;
        while let Some((_, after)) = rest.split_once(open)
            && blocks.len() < BLOCKS_MAX
        {
            // A block that was cut off, or that ends with the answer, extends to the end.
            let (block, next) = after.split_once(close).unwrap_or((after, ""));
            blocks.push(block);
            rest = next;
        }
    }
    blocks
}

/// Returns true if a block consists only of JSON values, including a call.
fn is_call_text(block: &str, is_sent: &dyn Fn(&str) -> bool) -> bool {
    // The word after a fence names the block's type: `json`, `tool_call`.
    let start = block.find(['{', '[']).unwrap_or(block.len());
    let is_word = block[..start].trim().chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-');
    if !is_word {
        return false;
    }
    let mut found = false;
    for value in serde_json::Deserializer::from_str(&block[start..]).into_iter::<Value>() {
        let Ok(value) = value else { return false };
        found |= is_call(&value, is_sent);
    }
    found
}

fn is_call(value: &Value, is_sent: &dyn Fn(&str) -> bool) -> bool {
    match value {
        Value::Array(values) => values.iter().any(|value| is_call(value, is_sent)),
        Value::Object(fields) => {
            let names_tool = NAMES.iter().any(|field| fields.get(*field).and_then(Value::as_str).is_some_and(is_sent));
            let has_arguments = ARGUMENTS.iter().any(|field| fields.get(*field).is_some_and(is_arguments));
            let wraps = WRAPPERS.iter().any(|field| fields.get(*field).is_some_and(|inside| is_call(inside, is_sent)));
            let is_keyed = fields.len() == 1 && fields.iter().all(|(name, inside)| is_sent(name) && inside.is_object());
            names_tool && has_arguments || wraps || is_keyed
        }
        _ => false,
    }
}

/// Returns true for an object, or for a text that contains one.
fn is_arguments(value: &Value) -> bool {
    value.is_object() || value.as_str().is_some_and(|text| text.trim_start().starts_with('{'))
}

/// Returns true if a tool's name follows one of the marks, or if the text is a list of calls in Python syntax.
fn names_function(text: &str, is_sent: &dyn Fn(&str) -> bool) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let begins_with_name = |rest: &str| {
        let rest = rest.trim_start_matches(['"', '\'', ' ', '\n']);
        let name = rest.split(|c| !is_name(c)).next().unwrap_or_default();
        // A mark alone may be an example of a mark; a real call has arguments in some form.
        is_sent(name) && rest.len() > name.len()
    };
    let marked = |mark: &str| text.split(mark).skip(1).take(BLOCKS_MAX).any(begins_with_name);
    let whole = text.trim();
    let listed = whole.strip_prefix('[').filter(|_| whole.ends_with(")]")).and_then(|calls| calls.split_once('('));
    BEFORE_NAMES.iter().any(|mark| marked(mark)) || listed.is_some_and(|(name, _)| is_sent(name.trim()))
}

#[cfg(test)]
mod tests {
    use super::writes_call;

    #[test]
    fn calls_as_text_are_distinguished_from_text_that_users_request() {
        let is_sent = |name: &str| ["history_search", "weather"].contains(&name);
        for (text, expected) in [
            (r#"{"name": "history_search", "arguments": {"query": "boat"}}"#, true),
            ("```json\n{\"name\": \"history_search\", \"parameters\": {\"query\": \"boat\"}}\n```", true),
            ("Let me look.\n\n```\n[{\"tool\": \"weather\", \"args\": {}}]\n```\nOne moment.", true),
            (r#"<tool_call>{"name": "weather", "arguments": "{\"at\": \"sea\"}"}</tool_call>"#, true),
            ("<tool_call>\n{\"name\": \"weather\", \"arguments\": {}}", true),
            (r#"[TOOL_CALLS][{"name": "weather", "arguments": {"at": "sea"}}]"#, true),
            (r#"{"tool_calls": [{"type": "function", "function": {"name": "weather", "arguments": "{}"}}]}"#, true),
            (r#"{"action": "weather", "action_input": {"at": "sea"}}"#, true),
            (r#"{"weather": {"at": "sea"}}"#, true),
            ("{\"name\": \"weather\", \"arguments\": {}}\n{\"name\": \"weather\", \"arguments\": {}}", true),
            ("<function=weather>{\"at\": \"sea\"}</function>", true),
            ("[TOOL_CALLS]weather[ARGS]{\"at\": \"sea\"}", true),
            ("<tool_call>weather\n<arg_key>at</arg_key>\n<arg_value>sea</arg_value>\n</tool_call>", true),
            ("<invoke name=\"weather\">\n<parameter name=\"at\">sea</parameter>", true),
            ("<｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"at\": \"sea\"}\n```", true),
            ("<|start|>assistant<|channel|>commentary to=functions.weather <|message|>{\"at\": \"sea\"}", true),
            ("<|python_tag|>weather.call(at=\"sea\")", true),
            ("[weather(at=\"sea\"), history_search(query=\"boat\")]", true),
            ("[Weather](https://example.org/(a))", false),
            ("The mark is <tool_call>weather", false),
            // These are ordinary data.
            (r#"{"name": "weather", "unit": "celsius"}"#, false),
            (r#"{"name": "Ada", "arguments": {"for": 1, "against": 2}}"#, false),
            (r#"{"name": "other_tool", "arguments": {}}"#, false),
            ("```json\n{\"weather\": \"calm\", \"sea\": {}}\n```", false),
            (r#"The call {"name": "weather", "arguments": {}} would do it."#, false),
            ("```json\n{\"name\": \"weather\", \"arguments\": {}\n```", false),
            ("I call weather with {}.", false),
            ("```rust\nfn weather() {}\n```", false),
            ("", false),
        ] {
            assert_eq!(writes_call(text, &is_sent), expected, "{text}");
        }
    }
}
