//! Calls tools when the user asks for one by name, with arguments from the user's text and the schema.
//!
//! A call has every required argument. One that the user did not write gets a value of the type in the schema.

use reseed_protocol::{CallId, Part, context::ToolDefinition};
use serde_json::{Map, Value, json};

/// Maximum number of calls in one answer. People do not name more in one message.
const CALLS_MAX: usize = 4;

/// Ends of a written value. Values that contain one are quoted or written as JSON.
const VALUE_ENDS: [&str; 5] = [",", ";", "\n", " and ", " then "];

/// A call to make.
#[derive(Debug)]
pub(super) struct Call {
    /// The tool's name.
    pub(super) name: String,
    /// The arguments, as JSON text.
    pub(super) arguments: String,
}

/// Returns the part of an answer that makes a call.
pub(super) fn part((at, call): (usize, Call)) -> Part {
    let call_id: CallId = format!("offline-{}", at + 1).parse().expect("a word and a small number are an id");
    Part::ToolCall { call_id, name: call.name, arguments: call.arguments }
}

/// Returns the calls that the user asks for in this text, in order.
pub(super) fn asked_for(text: &str, tools: &[ToolDefinition]) -> Vec<Call> {
    let mut named: Vec<(usize, &ToolDefinition)> =
        tools.iter().filter_map(|tool| Some((position(text, &tool.name)?, tool))).collect();
    named.sort_by_key(|(at, _)| *at);
    // Each call needs its own verb such as "use". Otherwise, a tool name among another call's arguments would count.
    let mut before = 0;
    named.retain(|(at, tool)| {
        let is_asked = text
            .get(before..*at)
            .is_some_and(|text| ["use", "call", "run"].iter().any(|verb| position(text, verb).is_some()));
        if is_asked {
            before = at + tool.name.len();
        }
        is_asked
    });
    named.truncate(CALLS_MAX);
    let ends: Vec<usize> = named.iter().skip(1).map(|(at, _)| *at).chain([text.len()]).collect();
    let call = |((at, tool), end): ((usize, &ToolDefinition), usize)| Call {
        name: tool.name.clone(),
        arguments: arguments(&text[at + tool.name.len()..end], &tool.parameters).to_string(),
    };
    named.into_iter().zip(ends).map(call).collect()
}

/// Returns the position of a name as a separate word, in any case of its letters.
fn position(text: &str, name: &str) -> Option<usize> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let lower = text.to_ascii_lowercase();
    lower
        .match_indices(&name.to_ascii_lowercase())
        .map(|(at, _)| at)
        .find(|at| !text[..*at].ends_with(is_name) && !text[at + name.len()..].starts_with(is_name))
}

/// Returns arguments for this schema: a JSON object or each `name=value` in the text, and whatever else is required.
fn arguments(text: &str, schema: &Value) -> Value {
    let json = text.find('{').and_then(|start| serde_json::Deserializer::from_str(&text[start..]).into_iter().next());
    let mut given: Map<String, Value> = json.and_then(Result::ok).unwrap_or_default();
    let properties = schema["properties"].as_object().cloned().unwrap_or_default();
    if given.is_empty() {
        for (name, schema) in &properties {
            let after = position(text, name).map(|at| text[at + name.len()..].trim_start());
            if let Some(value) = after.and_then(|after| after.strip_prefix(['=', ':'])) {
                given.insert(name.clone(), written(value, &properties, schema));
            }
        }
    }
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for name in required {
        let schema = properties.get(name).unwrap_or(&Value::Null);
        given.entry(name).or_insert_with(|| filled(schema));
    }
    Value::Object(given)
}

/// Reads a value at the beginning of a text. It ends where the next one begins.
fn written(text: &str, properties: &Map<String, Value>, schema: &Value) -> Value {
    let text = text.trim_start();
    let quoted = text.strip_prefix('"').and_then(|rest| rest.split_once('"')).map(|(quoted, _)| quoted);
    let ends = VALUE_ENDS
        .iter()
        .filter_map(|end| text.find(end))
        .chain(properties.keys().filter_map(|name| position(text, name)).filter(|at| *at > 0));
    let plain = &text[..ends.min().unwrap_or(text.len())];
    let value = quoted.unwrap_or_else(|| plain.trim().trim_end_matches(['.', '!', '?']));
    match schema["type"].as_str() {
        Some("string") | None => json!(value),
        Some(_) => serde_json::from_str(value).unwrap_or_else(|_| json!(value)),
    }
}

/// Returns a value that this schema allows, for a required argument that was not given.
fn filled(schema: &Value) -> Value {
    let least = |least: Value| schema.get("minimum").cloned().unwrap_or(least);
    let first = schema.get("default").or_else(|| schema.get("const")).or_else(|| schema.get("enum")?.get(0));
    first.cloned().unwrap_or_else(|| match schema["type"].as_str() {
        Some("integer" | "number") => least(json!(1)),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => json!("example"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(&str, Value)]) {
        let tool = |name: &str, parameters: Value| ToolDefinition {
            name: name.into(),
            description: String::new(),
            parameters,
        };
        let tools = [
            tool(
                "get_weather",
                json!({ "type": "object", "required": ["city", "unit"], "properties": {
                    "city": { "type": "string" }, "unit": { "enum": ["C", "F"] }, "days": { "type": "integer" } } }),
            ),
            tool(
                "echo",
                json!({ "type": "object", "required": ["text"], "properties": { "text": { "type": "string" } } }),
            ),
            tool("now", json!({ "type": "object" })),
        ];
        let calls = asked_for(text, &tools);
        let calls: Vec<(&str, Value)> =
            calls.iter().map(|call| (call.name.as_str(), serde_json::from_str(&call.arguments).unwrap())).collect();
        assert_eq!(calls, expected, "{text}");
    }

    #[test]
    fn tools_are_called_when_asked_for() {
        check("call now", &[("now", json!({}))]);
        check("use the tool echo with text=fair winds.", &[("echo", json!({ "text": "fair winds" }))]);
        check(r#"use echo {"text": "a {b}"} now"#, &[("echo", json!({ "text": "a {b}" }))]);
        check("please run the echo tool", &[("echo", json!({ "text": "example" }))]);
        check("Use get_weather for city = 北京", &[("get_weather", json!({ "city": "北京", "unit": "C" }))]);
        check(
            "use get_weather with city=New York and unit=F days: 3",
            &[("get_weather", json!({ "city": "New York", "unit": "F", "days": 3 }))],
        );
        check(
            "call now, then call echo text=\"x, y\" please",
            &[("now", json!({})), ("echo", json!({ "text": "x, y" }))],
        );
    }

    #[test]
    fn talk_about_a_tool_is_no_call() {
        for text in ["What does echo do?", "use the echoes", "I like to echo", ""] {
            check(text, &[]);
        }
    }
}
