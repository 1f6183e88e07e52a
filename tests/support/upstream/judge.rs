//! Compares requests as Anthropic's and OpenAI's documents on cache diagnostics say: with the earlier request that the
//! new one names, the model first, then the tools, the system prompt, the options and the messages.

use super::{Api, Asked};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What a cache sees of a request.
#[derive(Debug)]
struct Known {
    model: Value,
    tools: Value,
    system: String,
    /// Options that are part of the prompt, each with OpenAI's word for its change.
    options: [(&'static str, Value); 3],
    /// The contents of the messages, each with its role.
    contents: Vec<(String, Value)>,
}

/// The requests that can be named, by the ids of their answers.
#[derive(Debug, Default)]
pub(super) struct Judge {
    known: BTreeMap<String, Known>,
}

impl Judge {
    /// Remembers a request whose answer gets this id, and returns the verdict on it. `None` leaves the field out.
    pub(super) fn verdict(&mut self, asked: &Asked, id: &str) -> Option<Value> {
        let (body, now) = (&asked.body, Known::of(asked));
        let is_messages = asked.api == Api::Messages;
        let earlier = match is_messages {
            true => body["diagnostics"]["previous_message_id"].as_str(),
            false => body["prompt_cache_options"]["comparison_response_id"].as_str(),
        };
        let verdict = earlier.map(|earlier| match self.known.get(earlier) {
            None if is_messages => json!({ "cache_miss_reason": { "type": "previous_message_not_found" } }),
            None => json!({ "type": "comparison_response_not_found" }),
            Some(before) => match (now.differs(before, is_messages), is_messages) {
                (None, true) => Value::Null,
                (None, false) => json!({ "type": "cache_hit" }),
                (Some("unavailable"), true) => json!({ "cache_miss_reason": { "type": "unavailable" } }),
                (Some(reason), true) => {
                    json!({ "cache_miss_reason": { "type": reason, "cache_missed_input_tokens": 321 } })
                }
                (Some(reason), false) => json!({ "type": "cache_miss", "reason": reason, "cache_missed_tokens": 321 }),
            },
        });
        // Anthropic remembers only those that have the field.
        if !is_messages || body.get("diagnostics").is_some() {
            self.known.insert(id.to_owned(), now);
        }
        match verdict {
            None if is_messages && body.get("diagnostics").is_some() => Some(Value::Null),
            verdict => verdict,
        }
    }
}

impl Known {
    fn of(asked: &Asked) -> Self {
        let body = &asked.body;
        let options = match asked.api {
            Api::Messages => [("", "thinking"), ("", "output_config"), ("", "tool_choice")],
            _ => [("text_format_changed", "text"), ("reasoning_effort_changed", "reasoning"), ("", "")],
        };
        let mut contents = Vec::new();
        for message in asked.messages() {
            let role = message["role"].as_str().unwrap_or_default();
            match message["content"].as_array() {
                Some(parts) => contents.extend(parts.iter().map(|part| (role.to_owned(), unmarked(part)))),
                None => contents.push((role.to_owned(), unmarked(message))),
            }
        }
        Self {
            model: body["model"].clone(),
            tools: unmarked(&body["tools"]),
            system: asked.system().to_owned(),
            options: options.map(|(reason, name)| (reason, body[name].clone())),
            contents,
        }
    }

    /// Returns the first difference.
    fn differs(&self, before: &Self, is_messages: bool) -> Option<&'static str> {
        let of_input = |reason| Some(if is_messages { reason } else { "input_changed" });
        if self.model != before.model {
            return Some("model_changed");
        }
        if self.tools != before.tools {
            return Some("tools_changed");
        }
        if self.system != before.system {
            return of_input("system_changed");
        }
        let mut options = self.options.iter().zip(&before.options);
        if let Some(((reason, _), _)) = options.find(|(now, then)| now.1 != then.1) {
            return Some(if is_messages { "unavailable" } else { reason });
        }
        if self.contents.starts_with(&before.contents) { None } else { of_input("messages_changed") }
    }
}

/// Returns a value without the marks for the cache, which move on with each request.
fn unmarked(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(unmarked).collect(),
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| *name != "cache_control");
            kept.map(|(name, field)| (name.clone(), unmarked(field))).collect()
        }
        other => other.clone(),
    }
}
