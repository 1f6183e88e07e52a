//! The rules that every request must follow, whatever the test is about.

use super::{Api, compaction::unsealed};
use serde_json::Value;
use std::collections::BTreeSet;

/// The fields we send; a server that is not OpenAI's gets no others.
const CHAT_FIELDS: &[&str] = &[
    "model",
    "messages",
    "tools",
    "tool_choice",
    "stream",
    "stream_options",
    "temperature",
    "max_tokens",
    "reasoning_effort",
];
const RESPONSES_FIELDS: &[&str] = &[
    "model",
    "instructions",
    "input",
    "tools",
    "tool_choice",
    "stream",
    "temperature",
    "max_output_tokens",
    "reasoning",
    "prompt_cache_options",
];

/// Returns a rough token count of a request: one per four characters of anything in it, and four per message.
pub(crate) fn tokens(body: &Value) -> u64 {
    let characters: usize = strings(body).iter().map(|text| text.chars().count()).sum();
    let messages = ["messages", "input"].iter().filter_map(|name| body[*name].as_array()).map(Vec::len).sum::<usize>();
    (characters.div_ceil(4) + messages * 4) as u64
}

/// Returns every text in a value.
pub(crate) fn strings(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(strings).collect(),
        Value::Object(fields) => fields.values().flat_map(strings).collect(),
        _ => Vec::new(),
    }
}

/// Returns the text of a message in either dialect.
pub(crate) fn text(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
            texts.join("\n")
        }
        _ => String::new(),
    }
}

/// Returns the rules that a request violates.
pub(crate) fn violations(api: Api, body: &Value) -> Vec<String> {
    let (fields, list) = match api {
        Api::Chat => (CHAT_FIELDS, "messages"),
        Api::Responses => (RESPONSES_FIELDS, "input"),
        Api::Messages => unreachable!("`messages` has its rules"),
    };
    let mut found = Vec::new();
    for name in body.as_object().into_iter().flat_map(|body| body.keys()) {
        if !fields.contains(&name.as_str()) {
            found.push(format!("nobody asked for the field `{name}`"));
        }
    }
    // A tool choice is sent only with summary requests that carry the conversation's tools, and forbids calls.
    if !matches!(body["tool_choice"].as_str(), None | Some("none")) {
        found.push(format!("it chooses tools: {}", body["tool_choice"]));
    }
    if body["stream"] != (body["prompt_cache_options"]["prewarm"] != true) {
        found.push("it is not streamed".to_owned());
    }
    if body["model"].as_str().is_none_or(str::is_empty) {
        found.push("it names no model".to_owned());
    }
    let messages = body[list].as_array().map_or(&[][..], Vec::as_slice);
    if messages.iter().all(|message| message["role"] == "system") {
        found.push("nobody says anything".to_owned());
    }
    for (at, message) in messages.iter().enumerate() {
        let wrong = if api == Api::Chat { chat_message(at, message) } else { item(message) };
        found.extend(wrong.map(|wrong| format!("{list}[{at}] {wrong}: {message}")));
        found.extend(calls(message).filter_map(|call| Some(format!("{list}[{at}] {}: {call}", wrong_call(call)?))));
    }
    found.extend(pairs(messages));
    found.extend(compactions(messages));
    found
}

/// Returns the rules that a request for a compaction violates.
pub(crate) fn compact_violations(body: &Value) -> Vec<String> {
    let fields = body.as_object().into_iter().flat_map(|body| body.keys());
    let others = fields.filter(|name| !["model", "instructions", "input"].contains(&name.as_str()));
    let mut found: Vec<String> = others.map(|name| format!("a compaction has no field `{name}`")).collect();
    let items = body["input"].as_array().map_or(&[][..], Vec::as_slice);
    found.extend(items.iter().filter_map(|one| Some(format!("{}: {one}", item(one)?))));
    found.extend(pairs(items));
    found.extend(compactions(items));
    if items.is_empty() || body["model"].as_str().is_none_or(str::is_empty) {
        found.push("it has nothing to compact, or names no model".to_owned());
    }
    found
}

/// A compaction is unchanged and alone, and comes first, after what its server has kept beside it.
fn compactions(items: &[Value]) -> Vec<String> {
    let places: Vec<usize> = (0..items.len()).filter(|at| items[*at]["type"] == "compaction").collect();
    let is_first = |at: usize| items[..at].iter().all(|item| item["role"] == "user" && item["id"] == "kept_0");
    let mut found = Vec::new();
    for at in &places {
        if places.len() > 1 || !is_first(*at) || unsealed(&items[*at]).is_none() {
            found.push(format!("the compaction at {at} was changed, or is not alone, or does not come first"));
        }
    }
    found
}

fn chat_message(at: usize, message: &Value) -> Option<&'static str> {
    let has_calls = message["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty());
    match message["role"].as_str().unwrap_or_default() {
        "system" if at == 0 => text(message).is_empty().then_some("says nothing"),
        "system" => Some("is a system prompt that does not come first"),
        "user" => (text(message).is_empty() && !message["content"].is_array()).then_some("says nothing"),
        "assistant" => match message.get("content") {
            Some(Value::String(text)) if !text.is_empty() => None,
            None if has_calls => None,
            _ => Some("has neither text nor calls, or a content that is no text"),
        },
        "tool" => (!message["content"].is_string()).then_some("has no text"),
        _ => Some("has no legal role"),
    }
}

/// Returns the calls in a message, or the one that an item is.
fn calls(message: &Value) -> impl Iterator<Item = &Value> {
    let item = (message["type"] == "function_call").then_some(message);
    message["tool_calls"].as_array().into_iter().flatten().chain(item)
}

/// Some servers refuse a request with such a call, and with it every later one of the conversation.
fn wrong_call(call: &Value) -> Option<&'static str> {
    let function = call.get("function").unwrap_or(call);
    let name = function["name"].as_str().unwrap_or_default();
    let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let arguments = function["arguments"].as_str().unwrap_or_default();
    let id = call.get("call_id").unwrap_or(&call["id"]).as_str().unwrap_or_default();
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_letter) {
        Some("has a name that no server accepts")
    } else if !serde_json::from_str::<Value>(arguments).is_ok_and(|arguments| arguments.is_object()) {
        Some("has arguments that are no JSON object")
    } else if id.is_empty() || id.len() > 64 * 1024 {
        // A server gets its own ids back whatever their length. Ids of other servers have at most 40 characters.
        Some("has an id that no server accepts")
    } else {
        None
    }
}

fn item(item: &Value) -> Option<&'static str> {
    match item["type"].as_str().unwrap_or_default() {
        "message" => match item["role"].as_str().unwrap_or_default() {
            "user" | "assistant" => item["content"].as_array().is_none_or(Vec::is_empty).then_some("says nothing"),
            _ => Some("has no legal role"),
        },
        "function_call" => (!item["arguments"].is_string()).then_some("has no arguments"),
        "function_call_output" => (!item["output"].is_string()).then_some("has no output"),
        "compaction" => None,
        "reasoning" => (!item["encrypted_content"].is_string()).then_some("is not sealed"),
        _ => Some("has no known type"),
    }
}

/// Each call has exactly one result, before any other message, and no result lacks its call.
fn pairs(messages: &[Value]) -> Vec<String> {
    let (mut open, mut known, mut found) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for (at, message) in messages.iter().enumerate() {
        let result = message["tool_call_id"]
            .as_str()
            .or((message["type"] == "function_call_output").then(|| message["call_id"].as_str()).flatten());
        if let Some(id) = result {
            if !open.remove(id) {
                found.push(format!("the result at {at} has no open call `{id}`"));
            }
            continue;
        }
        let speaks = message["role"] == "user" || (message["role"] == "assistant" && message.get("type").is_none());
        if speaks && !open.is_empty() {
            found.push(format!("the message at {at} comes before the results of {open:?}"));
            open.clear();
        }
        for call in calls(message) {
            let id = call.get("call_id").unwrap_or(&call["id"]).as_str().unwrap_or_default();
            if !known.insert(id) {
                found.push(format!("the call `{id}` at {at} has the id of another"));
            }
            open.insert(id);
        }
    }
    if !open.is_empty() {
        found.push(format!("the calls {open:?} have no result"));
    }
    found
}
