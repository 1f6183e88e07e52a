//! Reads the envelope of a frame, so that the edge can pass the frame on without parsing its payload.
//!
//! Every server frame begins with its envelope, which consists of numbers and of strings without escapes. The scan
//! stops at the payload, so it costs the same for a delta and for a page of entries. A frame of another shape is parsed
//! completely.

use serde::Deserialize;
use std::borrow::Cow;

/// The envelope of a frame.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Peek<'a> {
    /// The command that it answers.
    #[serde(borrow, default)]
    pub(super) re: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) session_id: Option<Cow<'a, str>>,
    /// The `seq` of a durable event.
    #[serde(default)]
    pub(super) seq: Option<u64>,
    #[serde(rename = "type", borrow, default)]
    pub(super) kind: Option<Cow<'a, str>>,
}

impl<'a> Peek<'a> {
    /// Reads a frame's envelope; `None` if it is not a frame.
    pub(super) fn at(frame: &'a str) -> Option<Self> {
        scan(frame).or_else(|| serde_json::from_str(frame).ok())
    }

    /// Returns true if the frame has this type.
    pub(super) fn is(&self, kind: &str) -> bool {
        self.kind.as_deref() == Some(kind)
    }
}

fn scan(frame: &str) -> Option<Peek<'_>> {
    let mut peek = Peek::default();
    let mut rest = frame.strip_prefix('{')?;
    loop {
        let (key, after) = text(rest)?;
        rest = after.strip_prefix(':')?;
        if key == "payload" {
            return peek.kind.is_some().then_some(peek);
        }
        rest = if rest.starts_with('"') {
            let (value, after) = text(rest)?;
            match key {
                "re" => peek.re = Some(value.into()),
                "sessionId" => peek.session_id = Some(value.into()),
                "type" => peek.kind = Some(value.into()),
                _ => {}
            }
            after
        } else {
            let after = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
            if key == "seq" {
                peek.seq = Some(rest.strip_suffix(after)?.parse().ok()?);
            }
            after
        };
        match rest.as_bytes().first()? {
            b',' => rest = &rest[1..],
            b'}' if rest.len() == 1 => return Some(peek),
            _ => return None,
        }
    }
}

/// Returns a string without escapes, and the rest of the text.
fn text(from: &str) -> Option<(&str, &str)> {
    let (text, rest) = from.strip_prefix('"')?.split_once('"')?;
    (!text.contains('\\')).then_some((text, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peek(re: Option<&'static str>, session: Option<&'static str>, kind: &'static str) -> Option<Peek<'static>> {
        Some(Peek { re: re.map(Cow::from), session_id: session.map(Cow::from), seq: None, kind: Some(kind.into()) })
    }

    #[test]
    fn an_envelope_is_read_up_to_the_payload() {
        let long = format!(r#"{{"sessionId":"s","seq":7,"type":"x","payload":{{"a":"{}"}}}}"#, "\u{e9}".repeat(1000));
        let table = [
            (r#"{"re":"1","sessionId":"s","type":"ok","payload":{}}"#, peek(Some("1"), Some("s"), "ok")),
            (long.as_str(), peek(None, Some("s"), "x").map(|peek| Peek { seq: Some(7), ..peek })),
            (r#"{"sessionId":"s","type":"x","payload":{"type":"y"}}"#, peek(None, Some("s"), "x")),
            (r#"{"type":"wrong_node","re":"1","sessionId":"s"}"#, peek(Some("1"), Some("s"), "wrong_node")),
            // Frames of other shapes must be parsed completely.
            (r#"{"payload":{"type":"y"},"type":"x"}"#, peek(None, None, "x")),
            (r#"{ "type":"\u0078", "extra":[1,{"re":"no"}] }"#, peek(None, None, "x")),
        ];
        for (frame, expected) in table {
            assert_eq!(Peek::at(frame), expected, "{frame}");
        }
        for broken in ["", "{", r#"{"type""#, r#"{"type":"x","#, r#"{"type":"x"} x"#] {
            assert_eq!(Peek::at(broken), None, "{broken}");
        }
    }

    #[test]
    fn what_the_server_writes_is_never_read_as_a_whole() {
        use reseed_protocol::{frame, reply, session::SubscriptionEnd};
        let (id, session) = ("a".parse().expect("an id"), "s".parse().expect("an id"));
        let done = reply::Reply::Ok(reply::Done::default());
        let frames = [
            frame::encode_reply(Some(&id), Some(&session), &done),
            frame::encode_event(Some(&session), &SubscriptionEnd::Moved.event()),
            frame::encode_stored(&session, 3, r#"{"type":"queue_released","payload":{}}"#),
        ];
        for frame in frames {
            assert!(scan(&frame).is_some(), "{frame}");
        }
    }
}
