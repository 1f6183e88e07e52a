//! Parses the patch that a hook returned.

use super::rules::{OPS_MAX, PatchRefused};
use reseed_protocol::{
    Message,
    context::{MessageEdit, PatchMessage, PatchOp},
};
use serde_json::Value;

/// Characters quoted of an unknown op's name.
const NAME_CHARS_MAX: usize = 64;

/// Parses ops. Only role and content are taken from their messages. Everything else on a message would be its author's
/// claim, and is measured here instead.
///
/// The forms of the proposal that these ops follow (pull request 383 of pi-mono) are accepted too: an op may state its
/// `scope`, a message's content may be a plain string, a replacement may list messages directly, and `options_set` may
/// use `reasoning` and `maxTokens`.
///
/// # Errors
/// The first op that is unknown or has an unknown field, a wrong scope, or a value of the wrong type; or too many ops.
pub fn read(values: Vec<Value>) -> Result<Vec<PatchOp>, PatchRefused> {
    if values.len() > OPS_MAX {
        let why = format!("a patch has at most {OPS_MAX} ops, not {}", values.len());
        return Err(PatchRefused { index: OPS_MAX, op: name_of(&values[OPS_MAX]), why });
    }
    values
        .into_iter()
        .enumerate()
        .map(|(index, value)| {
            let op = name_of(&value);
            let read = own_form(value, &op).and_then(|value| serde_json::from_value(value).map_err(|e| shown(&e)));
            read.map(bare).map_err(|why| PatchRefused { index, op, why })
        })
        .collect()
}

/// Converts an op from the form of the proposal to ours.
fn own_form(mut value: Value, op: &str) -> Result<Value, String> {
    let Some(fields) = value.as_object_mut() else { return Ok(value) };
    let own_scope = if op == "messages_uncached_append" { "uncached" } else { "cached" };
    if fields.remove("scope").is_some_and(|scope| scope != own_scope) {
        return Err(format!("its `scope` is `{own_scope}` and cannot be another"));
    }
    if op == "options_set" {
        for (theirs, ours) in [("reasoning", "reasoningEffort"), ("maxTokens", "maxOutputTokens")] {
            if let Some(set) = fields.remove(theirs)
                && fields.insert(ours.to_owned(), set).is_some()
            {
                return Err(format!("it has both `{theirs}` and `{ours}`, which mean the same"));
            }
        }
    }
    let list = fields.get_mut(if op == "messages_cached_edit" { "edits" } else { "messages" });
    for item in list.and_then(Value::as_array_mut).into_iter().flatten() {
        if op == "messages_uncached_append" {
            parts_of_text(item);
            continue;
        }
        let is_bare = item.get("role").is_some() && item.get("message").is_none() && item.get("entryId").is_none();
        if is_bare && op == "messages_cached_replace" {
            *item = serde_json::json!({ "message": item.take() });
        }
        item.get_mut("message").into_iter().for_each(parts_of_text);
    }
    Ok(value)
}

/// Converts plain string content to a list with one text.
fn parts_of_text(message: &mut Value) {
    if let Some(content) = message.get_mut("content").filter(|content| content.is_string()) {
        *content = serde_json::json!([{ "type": "text", "text": content.take() }]);
    }
}

/// Describes what is wrong with an op. It repeats unknown or missing names but never values. serde states the kind of
/// error at the beginning of its message, and quotes names.
fn shown(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let quoted = text.split('`').nth(1).unwrap_or_default();
    let letters = |c: &char| c.is_ascii_alphanumeric() || "_.-".contains(*c);
    let name: String = quoted.chars().filter(letters).take(NAME_CHARS_MAX).collect();
    let begins = |beginning| text.starts_with(beginning);
    let expected = text.rsplit_once(", expected ").map_or("something else", |(_, expected)| expected);
    if begins("unknown variant ") {
        format!("unknown variant `{name}`, expected {expected}")
    } else if begins("unknown field ") {
        format!("unknown field `{name}`")
    } else if begins("missing field ") {
        format!("missing field `{name}`")
    } else if begins("duplicate field ") {
        format!("duplicate field `{name}`")
    } else if begins("invalid type") {
        format!("invalid type of a value, expected {expected}")
    } else if begins("invalid value") {
        format!("invalid value, expected {expected}")
    } else {
        "a value has the wrong form".to_owned()
    }
}

fn name_of(value: &Value) -> String {
    let name = value.get("op").and_then(Value::as_str).unwrap_or_default();
    name.chars().filter(|c| !c.is_control()).take(NAME_CHARS_MAX).collect()
}

/// Strips an op's messages to role and content.
#[must_use]
pub(crate) fn bare(mut op: PatchOp) -> PatchOp {
    let strip = |message: &mut Message| {
        *message = Message::new(message.role, std::mem::take(&mut message.content));
    };
    match &mut op {
        PatchOp::MessagesCachedReplace { messages, .. } => {
            messages.iter_mut().filter_map(|PatchMessage { message, .. }| message.as_mut()).for_each(strip);
        }
        PatchOp::MessagesCachedEdit { edits, .. } => {
            edits.iter_mut().filter_map(|MessageEdit { message, .. }| message.as_mut()).for_each(strip);
        }
        PatchOp::MessagesUncachedAppend { messages } => messages.iter_mut().for_each(strip),
        _ => {}
    }
    op
}
