//! Shared by both request dialects: which parts of a message can be sent, and in what form.

use reseed_protocol::Part;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Joins the texts of these parts; `None` if they are empty.
pub(super) fn joined_text(parts: &[Part]) -> Option<Cow<'_, str>> {
    let mut joined: Option<Cow<'_, str>> = None;
    for part in parts {
        if let Part::Text { text } = part
            && !text.is_empty()
        {
            joined = Some(match joined {
                None => Cow::Borrowed(text),
                Some(before) => Cow::Owned(format!("{before}\n{text}")),
            });
        }
    }
    joined
}

/// Returns a call's arguments as text that every server accepts. If the model once wrote something that is not a JSON
/// object, some servers refuse that request and every later one of the session; such text is sent wrapped.
pub(super) fn arguments(written: &str) -> Cow<'_, str> {
    let written = written.trim();
    if written.is_empty() {
        return Cow::Borrowed("{}");
    }
    if written.starts_with('{') && serde_json::from_str::<&RawValue>(written).is_ok() {
        return Cow::Borrowed(written);
    }
    Cow::Owned(serde_json::json!({ "malformed": written }).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_always_an_object() {
        for (written, expected) in [
            (r#"{"a":1}"#, r#"{"a":1}"#),
            (" {} ", "{}"),
            ("", "{}"),
            (r#"{"a":"#, r#"{"malformed":"{\"a\":"}"#),
            ("[1]", r#"{"malformed":"[1]"}"#),
            ("look it up", r#"{"malformed":"look it up"}"#),
        ] {
            assert_eq!(arguments(written), expected, "{written}");
        }
    }
}
