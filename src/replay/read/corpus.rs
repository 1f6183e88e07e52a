//! Reads conversations as one JSON value per line: the corpus format, and arrays of messages as OpenAI's APIs take
//! them.
//!
//! | form | a line |
//! | --- | --- |
//! | corpus | `{"chat", "messages": [{"id", "role", "text"}], "questions": [{"sources": [ids]}]}` |
//! | OpenAI, chat or fine-tuning | `[{"role", "content", …}]`, or an object with these as its `messages` |
//!
//! Questions and ids are read in both formats.

use crate::{
    core::context::counter::Counter,
    pi::call_id,
    replay::recorded::{Builder, Recorded, Sources},
};
use reseed_protocol::{Message, Part, Role};
use serde_json::Value;

/// Reads a line.
///
/// # Errors
/// A description of what is wrong with the line.
pub(super) fn conversation(line: &str, name: &str, counter: Counter) -> Result<Recorded, String> {
    let value: Value = serde_json::from_str(line).map_err(|error| format!("it is not JSON: {error}"))?;
    let messages = match &value {
        Value::Array(messages) => messages,
        Value::Object(object) => match object.get("messages") {
            Some(Value::Array(messages)) => messages,
            _ => return Err("it has no list `messages`".to_owned()),
        },
        _ => return Err("it is neither a list of messages nor an object with one".to_owned()),
    };
    let named = ["chat", "id", "name"].iter().find_map(|field| id_of(value.get(field)?));
    let mut builder = Builder::new(named.unwrap_or_else(|| name.to_owned()), counter);
    for (at, message) in messages.iter().enumerate() {
        add(&mut builder, message).map_err(|why| format!("message {}: {why}", at + 1))?;
    }
    let questions = value.get("questions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let sources = |question: &Value| {
        let ids = question.get("sources").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        Sources(ids.iter().filter_map(id_of).collect())
    };
    Ok(builder.finish(&questions.iter().map(sources).collect::<Vec<_>>()))
}

fn add(builder: &mut Builder, message: &Value) -> Result<(), String> {
    let role = message.get("role").and_then(Value::as_str).ok_or("it has no `role`")?;
    let id = message.get("id").and_then(id_of);
    let content = message.get("content").or_else(|| message.get("text")).unwrap_or(&Value::Null);
    match role {
        "system" | "developer" => {
            let text = Message::new(Role::User, parts(content)?).text();
            builder.instructions(&text);
        }
        "user" => builder.message(id, Message::new(Role::User, parts(content)?)),
        "assistant" => {
            let mut parts = parts(content)?;
            let calls = message.get("tool_calls").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            for call in calls {
                parts.push(tool_call(call)?);
            }
            builder.message(id, Message::new(Role::Assistant, parts));
        }
        "tool" => {
            let call = message.get("tool_call_id").and_then(Value::as_str).ok_or("it has no `tool_call_id`")?;
            let output = Message::new(Role::User, parts(content)?).text();
            let result = Part::ToolResult { call_id: call_id(call), output, is_error: false };
            builder.message(id, Message::new(Role::Tool, vec![result]));
        }
        other => return Err(format!("its role is `{other}`; known are system, developer, user, assistant and tool")),
    }
    Ok(())
}

fn tool_call(call: &Value) -> Result<Part, String> {
    let function = call.get("function").ok_or("a call has no `function`")?;
    let name = function.get("name").and_then(Value::as_str).ok_or("a call has no `name`")?;
    let id = call.get("id").and_then(Value::as_str).ok_or("a call has no `id`")?;
    let arguments = match function.get("arguments") {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => "{}".to_owned(),
    };
    Ok(Part::ToolCall { call_id: call_id(id), name: name.to_owned(), arguments })
}

/// Reads a text or a list of parts. Parts other than text and images are left out.
fn parts(content: &Value) -> Result<Vec<Part>, String> {
    match content {
        Value::Null => Ok(Vec::new()),
        Value::String(text) => Ok(vec![Part::Text { text: text.clone() }]),
        Value::Array(parts) => Ok(parts.iter().filter_map(part).collect()),
        _ => Err("its content is neither a text nor a list of parts".to_owned()),
    }
}

fn part(part: &Value) -> Option<Part> {
    let text = || part.get("text").and_then(Value::as_str);
    match part.get("type").and_then(Value::as_str)? {
        "text" | "input_text" | "output_text" => Some(Part::Text { text: text()?.to_owned() }),
        "image_url" => {
            let image = part.get("image_url")?;
            let url = image.as_str().or_else(|| image.get("url")?.as_str())?;
            Some(Part::Image { url: url.to_owned(), detail: None })
        }
        _ => None,
    }
}

/// Returns an id, which may be a number.
fn id_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}
