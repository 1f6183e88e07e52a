//! Tool calls: the meaning of their arguments, and their names and arguments in the form that requests send.
//!
//! Models and servers write a JSON object in several ways. Its meaning is determined once, when the answer is taken
//! ([`meant_arguments`]), so that hooks, approvals, tools and the model all get the same text.
//!
//! Apart from that, an entry keeps what the model wrote. If the arguments are not a JSON object, or no tool may have
//! the name, some servers refuse this request and every later one of the session. So such arguments are sent wrapped,
//! and such names with other letters. The envelope contains the sent form, so the counted, shown and sent texts are the
//! same.

use reseed_protocol::{Message, Part};
use std::{borrow::Cow, sync::Arc};

/// Maximum length of a tool's name. OpenAI set this limit, and others follow it.
const NAME_LENGTH_MAX: usize = 64;

/// The name that is sent for a call without one.
const UNNAMED: &str = "unnamed";

/// Returns true if every server accepts a tool of this name.
#[must_use]
pub fn is_tool_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_LENGTH_MAX && name.chars().all(is_letter)
}

fn is_letter(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// Returns a call's name in a form that every server accepts.
#[must_use]
pub fn sent_name(written: &str) -> Cow<'_, str> {
    if is_tool_name(written) {
        return Cow::Borrowed(written);
    }
    if written.is_empty() {
        return Cow::Borrowed(UNNAMED);
    }
    Cow::Owned(written.chars().take(NAME_LENGTH_MAX).map(|c| if is_letter(c) { c } else { '_' }).collect())
}

/// Returns the JSON object that a call's arguments mean, as text. Empty arguments mean an empty object. An object that
/// was encoded as text once more, or written several times, means that object; an unpaired surrogate in it becomes
/// U+FFFD. Any other text is returned unchanged.
#[must_use]
pub fn meant_arguments(written: &str) -> Cow<'_, str> {
    let trimmed = written.trim();
    if is_object(trimmed) {
        return Cow::Borrowed(trimmed);
    }
    if matches!(trimmed, "" | "null" | "\"\"") {
        return Cow::Borrowed("{}");
    }
    if let Some(object) = mended(trimmed) {
        return Cow::Owned(object);
    }
    if trimmed.starts_with('"')
        && let Ok(text) = serde_json::from_str::<String>(trimmed)
    {
        return match meant_arguments(&text) {
            meant if is_object(&meant) => Cow::Owned(meant.into_owned()),
            _ => Cow::Borrowed(written),
        };
    }
    only_object(trimmed).unwrap_or(Cow::Borrowed(written))
}

/// Returns true for an object that every parser accepts: without unpaired surrogates (`\ud83d` alone) and numbers out
/// of range (`1e999`), which only a complete parse finds.
fn is_object(text: &str) -> bool {
    text.starts_with('{') && serde_json::from_str::<serde_json::Value>(text).is_ok()
}

/// Returns the object in a series of equal objects, ignoring empty ones.
fn only_object(text: &str) -> Option<Cow<'_, str>> {
    let mut only: Option<(&str, serde_json::Value)> = None;
    let mut objects = serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>();
    loop {
        let from = objects.byte_offset();
        let Some(object) = objects.next() else { break };
        let object = object.ok().filter(serde_json::Value::is_object)?;
        let is_empty = |object: &serde_json::Value| object.as_object().is_some_and(serde_json::Map::is_empty);
        match &only {
            Some((_, first)) if *first == object || is_empty(&object) => {}
            Some((_, first)) if !is_empty(first) => return None,
            _ => only = Some((text[from..objects.byte_offset()].trim(), object)),
        }
    }
    only.map(|(text, _)| Cow::Borrowed(text))
}

/// Returns an object with U+FFFD in place of unpaired surrogates (`\ud83d` alone); `None` if it is not an object even
/// then.
fn mended(text: &str) -> Option<String> {
    let mut mended = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        mended.push_str(before);
        let unit = |text: &str| u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok();
        let length = match unit(escape) {
            Some(0xD800..0xDC00) if matches!(escape.get(6..).and_then(unit), Some(0xDC00..0xE000)) => 12,
            Some(0xD800..0xE000) => {
                mended.push_str("\\ufffd");
                rest = &escape[6..];
                continue;
            }
            Some(_) => 6,
            None => 1 + escape[1..].chars().next().map_or(0, char::len_utf8),
        };
        let (escape, after) = escape.split_at(length);
        mended.push_str(escape);
        rest = after;
    }
    mended.push_str(rest);
    is_object(&mended).then_some(mended)
}

/// Returns a call's arguments in a form that every server accepts: a JSON object.
#[must_use]
pub fn sent_arguments(written: &str) -> Cow<'_, str> {
    let written = written.trim();
    if written.is_empty() {
        return Cow::Borrowed("{}");
    }
    if is_object(written) {
        return Cow::Borrowed(written);
    }
    Cow::Owned(serde_json::json!({ "malformed": written }).to_string())
}

/// Returns a message as requests send it: with its calls in the sent form.
pub(super) fn sent_message(message: &Arc<Message>) -> Arc<Message> {
    if message.tool_calls().all(|(_, name, written)| is_tool_name(name) && sent_arguments(written) == written) {
        return message.clone();
    }
    let mut message = Message::clone(message);
    for part in &mut message.content {
        if let Part::ToolCall { name, arguments, .. } = part {
            *name = sent_name(name).into_owned();
            *arguments = sent_arguments(arguments).into_owned();
        }
    }
    Arc::new(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use reseed_protocol::Role;

    #[test]
    fn arguments_are_always_an_object() {
        for (written, expected) in [
            (r#"{"a":1}"#, r#"{"a":1}"#),
            (" {} ", "{}"),
            ("", "{}"),
            (r#"{"a":"#, r#"{"malformed":"{\"a\":"}"#),
            ("[1]", r#"{"malformed":"[1]"}"#),
            ("{} {}", r#"{"malformed":"{} {}"}"#),
            ("look it up", r#"{"malformed":"look it up"}"#),
            (r#"{"a":"\ud83d\ude00","b":[null,-1,1.5,true]}"#, r#"{"a":"\ud83d\ude00","b":[null,-1,1.5,true]}"#),
            (r#"{"a":"\ud83d"}"#, r#"{"malformed":"{\"a\":\"\\ud83d\"}"}"#),
            (r#"{"\ud83d":1}"#, r#"{"malformed":"{\"\\ud83d\":1}"}"#),
            (r#"{"a":[1e999]}"#, r#"{"malformed":"{\"a\":[1e999]}"}"#),
        ] {
            assert_eq!(sent_arguments(written), expected, "{written}");
            assert_eq!(sent_arguments(expected), expected, "the sent form stays as it is");
        }
    }

    #[test]
    fn arguments_are_read_as_the_object_that_they_mean() {
        for (written, expected) in [
            (r#"{"a":1}"#, r#"{"a":1}"#),
            (" {\"a\": 1}\n\n", r#"{"a": 1}"#),
            ("", "{}"),
            (" \n", "{}"),
            ("null", "{}"),
            ("\"\"", "{}"),
            (r#""{\"a\":1}""#, r#"{"a":1}"#),
            (r#""\"{\\\"a\\\":1}\"""#, r#"{"a":1}"#),
            (r#"{"a":1}{"a":1}"#, r#"{"a":1}"#),
            (r#"{"a":1} { "a" : 1 } {"a":1}"#, r#"{"a":1}"#),
            (r#"{}{"a":1}"#, r#"{"a":1}"#),
            (r#"{"a":1}{}"#, r#"{"a":1}"#),
            ("{}{}", "{}"),
            (r#"{"a":"sea \ud99c."}"#, r#"{"a":"sea \ufffd."}"#),
            (r#"{"\ude00":"\ud83d\ude00 \\ud83d"}"#, r#"{"\ufffd":"\ud83d\ude00 \\ud83d"}"#),
            // These mean no object and stay unchanged.
            (r#"{"a":1}{"a":2}"#, r#"{"a":1}{"a":2}"#),
            (r#"{"a":1}, then"#, r#"{"a":1}, then"#),
            (r#"{"a":"#, r#"{"a":"#),
            (r#""look it up""#, r#""look it up""#),
            ("[1]", "[1]"),
            ("7", "7"),
        ] {
            assert_eq!(meant_arguments(written), expected, "{written}");
            assert_eq!(meant_arguments(expected), expected, "it stays");
        }
    }

    #[test]
    fn names_are_always_those_of_a_tool() {
        let (long, cut) = ("é".repeat(100), "_".repeat(64));
        for (written, expected) in [
            ("look_up-2", "look_up-2"),
            ("functions.look", "functions_look"),
            ("look\n⚓", "look__"),
            ("", "unnamed"),
            (&long, &cut),
        ] {
            assert_eq!(sent_name(written), expected, "{written}");
            assert!(is_tool_name(expected));
        }
    }

    #[test]
    fn a_message_without_malformed_arguments_is_not_copied() {
        let call = |arguments: &str| Part::ToolCall {
            call_id: "c".parse().unwrap(),
            name: "look".into(),
            arguments: arguments.into(),
        };
        let message = |calls: &[&str]| {
            Arc::new(Message::new(Role::Assistant, calls.iter().map(|arguments| call(arguments)).collect()))
        };
        let whole = message(&[r#"{"at":"sea"}"#, "{}"]);
        assert!(Arc::ptr_eq(&sent_message(&whole), &whole));
        assert_eq!(sent_message(&message(&["{}", "{"])), message(&["{}", r#"{"malformed":"{"}"#]));
        let named = |name: &str| {
            let call = Part::ToolCall { call_id: "c".parse().unwrap(), name: name.into(), arguments: "{}".into() };
            Arc::new(Message::new(Role::Assistant, vec![call]))
        };
        assert_eq!(sent_message(&named("look:0")), named("look_0"));
    }
}
