//! The arguments of tool calls as requests send them.
//!
//! An entry keeps what the model wrote. If that is not a JSON object, some servers refuse the request with it and every
//! later one of the session, so it is sent wrapped. The envelope has the sent form: what is counted, shown and sent is
//! the same.

use reseed_protocol::{Message, Part};
use serde::de::IgnoredAny;
use std::{borrow::Cow, sync::Arc};

/// Returns a call's arguments as text that every server accepts: a JSON object.
#[must_use]
pub fn sent_arguments(written: &str) -> Cow<'_, str> {
    let written = written.trim();
    if written.is_empty() {
        return Cow::Borrowed("{}");
    }
    if written.starts_with('{') && serde_json::from_str::<IgnoredAny>(written).is_ok() {
        return Cow::Borrowed(written);
    }
    Cow::Owned(serde_json::json!({ "malformed": written }).to_string())
}

/// Returns a message as requests send it: with the sent form of its calls' arguments.
pub(super) fn sent_message(message: &Arc<Message>) -> Arc<Message> {
    if message.tool_calls().all(|(_, _, written)| sent_arguments(written) == written) {
        return message.clone();
    }
    let mut message = Message::clone(message);
    for part in &mut message.content {
        if let Part::ToolCall { arguments, .. } = part {
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
        ] {
            assert_eq!(sent_arguments(written), expected, "{written}");
            assert_eq!(sent_arguments(expected), expected, "the sent form stays as it is");
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
    }
}
