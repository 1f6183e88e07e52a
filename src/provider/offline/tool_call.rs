//! Calls tools when the user asks for one by name, with arguments from the user's text and the schema.
//!
//! A call always has every required argument. The values have the types in the schema, as far as the schema is
//! understood (`type`, `enum`, `const`, `default`, bounds, `required`, nested objects).

use super::words::Listed;
use reseed_protocol::context::ToolDefinition;
use serde_json::{Map, Number, Value, json};

/// Maximum number of calls in one answer. People do not name more in one message.
const CALLS_MAX: usize = 4;
/// The depth to which nested objects are filled. Deeper ones stay empty, because a schema can refer to itself.
const DEPTH_MAX: usize = 4;
/// Maximum number of items generated for `minItems`, and of characters for `minLength`.
const FILLED_MAX: usize = 64;

static VERBS: Listed = Listed::new("use using call run invoke execute try");

/// A call to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    /// The tool's name.
    pub(super) name: String,
    /// The arguments, as JSON text.
    pub(super) arguments: String,
}

/// Returns the calls that the user asks for in this text, in order.
pub(super) fn asked_for(text: &str, tools: &[ToolDefinition]) -> Vec<Call> {
    let mut mentions: Vec<(usize, &ToolDefinition)> =
        tools.iter().filter_map(|tool| Some((mention(text, &tool.name)?, tool))).collect();
    mentions.sort_by_key(|(at, tool)| (*at, tool.name.len()));
    // Each call needs its own verb such as "use". Otherwise, a tool name among another call's arguments would count.
    let mut calls: Vec<(usize, &ToolDefinition)> = Vec::new();
    for (at, tool) in mentions {
        let before = calls.last().map_or(0, |(at, tool)| at + tool.name.len());
        let is_asked = text
            .get(before..at)
            .is_some_and(|between| between.split(|c: char| !c.is_alphanumeric()).any(|word| VERBS.has_any_case(word)));
        if is_asked && calls.len() < CALLS_MAX {
            calls.push((at, tool));
        }
    }
    let ends: Vec<usize> = calls.iter().skip(1).map(|(at, _)| *at).chain([text.len()]).collect();
    let call = |((at, tool), end): ((usize, &ToolDefinition), usize)| Call {
        name: tool.name.clone(),
        arguments: arguments(&text[at + tool.name.len()..end], &tool.parameters).to_string(),
    };
    calls.into_iter().zip(ends).map(call).collect()
}

/// Returns the name of a tool that the user asks for but that is not available.
pub(super) fn unknown_tool<'a>(text: &'a str, tools: &[ToolDefinition]) -> Option<&'a str> {
    let mut words = text.split_whitespace().map(|word| word.trim_matches(|c: char| !is_name(c)));
    words.next().filter(|word| VERBS.has_any_case(word))?;
    let name = words.skip_while(|word| !word.eq_ignore_ascii_case("tool")).nth(1).filter(|name| !name.is_empty())?;
    (!tools.iter().any(|tool| tool.name.eq_ignore_ascii_case(name))).then_some(name)
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// Returns the position of the name as a separate word.
fn mention(text: &str, name: &str) -> Option<usize> {
    let lower = text.to_ascii_lowercase();
    lower.match_indices(&name.to_ascii_lowercase()).map(|(at, _)| at).find(|at| {
        let before = text[..*at].chars().next_back();
        let after = text[at + name.len()..].chars().next();
        !before.is_some_and(is_name) && !after.is_some_and(is_name)
    })
}

/// Builds arguments for this schema from the text after the tool's name.
fn arguments(text: &str, schema: &Value) -> Value {
    let properties = schema.get("properties").and_then(Value::as_object);
    let mut given = written_json(text).unwrap_or_default();
    let Some(properties) = properties else { return Value::Object(given) };
    if given.is_empty() {
        given = written_pairs(text, properties);
    }
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let missing: Vec<&str> = required.iter().copied().filter(|name| !given.contains_key(*name)).collect();
    let mut numbers = loose_numbers(text);
    for name in &missing {
        let Some(schema) = properties.get(*name) else { continue };
        let loose = match kind(schema) {
            // "add 2 and 3": unnamed numbers fill the required numbers in order.
            "integer" | "number" if !numbers.is_empty() => Some(numbers.remove(0)),
            // "echo hello": the rest of the text fills the only missing string.
            "string" if missing.len() == 1 && given.is_empty() => loose_text(text),
            _ => None,
        };
        let value = loose.and_then(|loose| coerced(&loose, schema)).unwrap_or_else(|| filled(schema, 0));
        given.insert((*name).to_owned(), value);
    }
    Value::Object(given)
}

fn written_json(text: &str) -> Option<Map<String, Value>> {
    let start = text.find('{')?;
    match serde_json::Deserializer::from_str(&text[start..]).into_iter().next()? {
        Ok(Value::Object(map)) => Some(map),
        _ => None,
    }
}

/// Parses `name=value` and `name: value` for every name in the schema.
fn written_pairs(text: &str, properties: &Map<String, Value>) -> Map<String, Value> {
    let mut found: Vec<(usize, usize, &String)> = Vec::new();
    for name in properties.keys() {
        let Some(at) = mention(text, name) else { continue };
        let after = text[at + name.len()..].trim_start();
        if let Some(value) = after.strip_prefix(['=', ':']) {
            found.push((at, text.len() - value.len(), name));
        }
    }
    found.sort_unstable();
    let ends: Vec<usize> = found.iter().skip(1).map(|(at, _, _)| *at).chain([text.len()]).collect();
    let mut given = Map::new();
    for ((_, start, name), end) in found.into_iter().zip(ends) {
        if let Some(value) = text.get(start..end).and_then(|value| coerced(value_text(value), &properties[name])) {
            given.insert(name.clone(), value);
        }
    }
    given
}

/// Returns a written value without quotes, and without the conjunction that joins it to the next value.
fn value_text(written: &str) -> &str {
    let written = written.trim();
    for quote in ['"', '\'', '`'] {
        if let Some((quoted, _)) = written.strip_prefix(quote).and_then(|rest| rest.split_once(quote)) {
            return quoted;
        }
    }
    let written = written.trim_end_matches([',', ';', ' ']);
    let written = [" and", " then", ", and", " and call", " and use", " and run"]
        .iter()
        .rev()
        .find_map(|joint| written.strip_suffix(joint))
        .unwrap_or(written);
    written.trim_end_matches([',', ';', '.', '!', '?', ' '])
}

fn loose_numbers(text: &str) -> Vec<String> {
    let words = text.split(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | '(' | ')' | '='));
    let words = words.map(|word| word.trim_end_matches(['.', '!', '?']));
    words.filter(|word| word.parse::<f64>().is_ok_and(f64::is_finite)).map(str::to_owned).collect()
}

fn loose_text(text: &str) -> Option<String> {
    let mut rest = text.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, ':' | '=' | ',' | '"' | '`'));
    for lead in ["tool ", "with ", "for ", "on ", "to say ", "saying ", "the text "] {
        rest = rest.strip_prefix(lead).unwrap_or(rest).trim_start();
    }
    let rest = value_text(rest.trim_end_matches(['"', '`']));
    (!rest.is_empty()).then(|| rest.to_owned())
}

/// Returns the schema's type. If there are several, returns the first that is not null.
fn kind(schema: &Value) -> &str {
    match schema.get("type") {
        Some(Value::String(kind)) => kind,
        Some(Value::Array(kinds)) => {
            kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null").unwrap_or("null")
        }
        _ if schema.get("properties").is_some() => "object",
        _ => "string",
    }
}

/// Converts a written text to a value of this schema, if possible.
fn coerced(text: &str, schema: &Value) -> Option<Value> {
    let text = text.trim();
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array) {
        let written = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        return allowed.iter().find(|value| written(value).eq_ignore_ascii_case(text)).cloned();
    }
    match kind(schema) {
        "integer" => first_word(text).parse::<i64>().ok().map(Value::from),
        "number" => number(first_word(text)),
        "boolean" => match first_word(text).to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Some(Value::Bool(true)),
            "false" | "no" | "off" | "0" => Some(Value::Bool(false)),
            _ => None,
        },
        "array" => {
            let items = schema.get("items").cloned().unwrap_or_default();
            let written = text.trim_matches(['[', ']']).split(',').filter(|item| !item.trim().is_empty());
            written.map(|item| coerced(value_text(item), &items)).collect::<Option<Vec<Value>>>().map(Value::Array)
        }
        "object" => serde_json::from_str(text).ok().filter(Value::is_object),
        "null" => Some(Value::Null),
        _ => (!text.is_empty()).then(|| json!(text)),
    }
}

fn first_word(text: &str) -> &str {
    text.split_whitespace().next().unwrap_or("").trim_end_matches([',', ';', '.'])
}

fn number(text: &str) -> Option<Value> {
    match text.parse::<i64>() {
        Ok(whole) => Some(Value::from(whole)),
        Err(_) => text.parse().ok().and_then(Number::from_f64).map(Value::Number),
    }
}

/// Returns a value that this schema allows, for a required argument that was not given.
fn filled(schema: &Value, depth: usize) -> Value {
    if let Some(value) = schema.get("default").or_else(|| schema.get("const")) {
        return value.clone();
    }
    if let Some(first) = schema.get("enum").and_then(Value::as_array).and_then(|allowed| allowed.first()) {
        return first.clone();
    }
    let least = |key: &str| schema.get(key).and_then(Value::as_u64).map_or(0, |least| (least as usize).min(FILLED_MAX));
    match kind(schema) {
        "integer" => {
            let minimum = schema.get("minimum").and_then(Value::as_i64);
            let maximum = schema.get("maximum").and_then(Value::as_i64).unwrap_or(i64::MAX);
            json!(minimum.unwrap_or(1).min(maximum))
        }
        "number" => {
            let minimum = schema.get("minimum").and_then(Value::as_f64);
            let maximum = schema.get("maximum").and_then(Value::as_f64).unwrap_or(f64::MAX);
            json!(minimum.unwrap_or(1.0).min(maximum))
        }
        "boolean" => json!(true),
        "null" => Value::Null,
        "array" => {
            let item = schema.get("items").map_or(Value::Null, |items| filled(items, depth + 1));
            Value::Array(vec![item; least("minItems")])
        }
        "object" if depth < DEPTH_MAX => {
            let required =
                schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
            let property =
                |name: &str| schema.get("properties").and_then(|all| all.get(name)).cloned().unwrap_or_default();
            Value::Object(required.map(|name| (name.to_owned(), filled(&property(name), depth + 1))).collect())
        }
        "object" => json!({}),
        _ => match schema.get("format").and_then(Value::as_str) {
            Some("date") => json!("2000-01-01"),
            Some("date-time") => json!("2000-01-01T00:00:00Z"),
            Some("uri") => json!("https://example.com/"),
            Some("email") => json!("user@example.com"),
            _ => json!(format!("{:e<1$}", "example", least("minLength"))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> Vec<ToolDefinition> {
        let tool = |name: &str, parameters: Value| ToolDefinition {
            name: name.into(),
            description: String::new(),
            parameters,
        };
        vec![
            tool(
                "add",
                json!({ "type": "object", "required": ["a", "b"],
                "properties": { "a": { "type": "integer" }, "b": { "type": "number" } } }),
            ),
            tool(
                "echo",
                json!({ "type": "object", "required": ["text"], "properties": { "text": { "type": "string" } } }),
            ),
            tool(
                "get_weather",
                json!({ "type": "object", "required": ["city", "unit"], "properties": {
                "city": { "type": "string" }, "unit": { "enum": ["C", "F"] }, "days": { "type": "integer" },
                "hourly": { "type": ["boolean", "null"] } } }),
            ),
            tool(
                "plan",
                json!({ "type": "object", "required": ["when", "who", "place", "tags", "size", "ok"], "properties": {
                "when": { "type": "string", "format": "date" },
                "who": { "type": "array", "items": { "type": "string" }, "minItems": 2 },
                "place": { "type": "object", "required": ["room"], "properties": { "room": { "type": "integer", "minimum": 7 } } },
                "tags": { "type": "array", "items": { "type": "string" } },
                "size": { "type": "string", "default": "small" }, "ok": { "type": "boolean" } } }),
            ),
            tool("now", json!({ "type": "object" })),
        ]
    }

    #[track_caller]
    fn check(text: &str, expected: &[(&str, Value)]) {
        let calls = asked_for(text, &tools());
        let calls: Vec<(&str, Value)> =
            calls.iter().map(|call| (call.name.as_str(), serde_json::from_str(&call.arguments).unwrap())).collect();
        assert_eq!(calls, expected, "{text}");
    }

    #[test]
    fn tools_are_called_when_asked_for() {
        check("use the tool add with a=2, b=3.5", &[("add", json!({ "a": 2, "b": 3.5 }))]);
        check("Call add with 2 and 3.", &[("add", json!({ "a": 2, "b": 3 }))]);
        check("please run add", &[("add", json!({ "a": 1, "b": 1.0 }))]);
        check(r#"use echo {"text": "a {b}"} now"#, &[("echo", json!({ "text": "a {b}" }))]);
        check("call echo with hello world!", &[("echo", json!({ "text": "hello world" }))]);
        check("call echo text='x, y' please", &[("echo", json!({ "text": "x, y" }))]);
        check(
            "use get_weather with city=New York and unit=f, days: 3, hourly=yes",
            &[("get_weather", json!({ "city": "New York", "unit": "F", "days": 3, "hourly": true }))],
        );
        check("use get_weather for city = 北京", &[("get_weather", json!({ "city": "北京", "unit": "C" }))]);
        check("call now", &[("now", json!({}))]);
        check(
            "call add with a=1 b=2 and then call echo text=hi",
            &[("add", json!({ "a": 1, "b": 2 })), ("echo", json!({ "text": "hi" }))],
        );
        check(
            "run the plan tool with tags=red, blue",
            &[(
                "plan",
                json!({
            "when": "2000-01-01", "who": ["example", "example"], "place": { "room": 7 }, "tags": ["red", "blue"],
            "size": "small", "ok": true }),
            )],
        );
    }

    #[test]
    fn talk_about_a_tool_is_no_call() {
        check("What does add do?", &[]);
        check("use the adder", &[]);
        check("I like to echo", &[]);
        check("", &[]);
    }

    #[test]
    fn a_tool_that_is_not_there_is_named() {
        for (text, expected) in [
            ("use the tool foo with x=1", Some("foo")),
            ("call the tool `foo`.", Some("foo")),
            ("use the tool add", None),
            ("use the hammer", None),
            ("what is a tool for?", None),
        ] {
            assert_eq!(unknown_tool(text, &tools()), expected, "{text}");
        }
    }
}
