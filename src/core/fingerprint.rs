//! A hash that is stable across versions and machines; it is stored with commands and messages.

use reseed_protocol::{CallId, Message, Part};
use serde::{Serialize, Serializer};
use std::io;

/// Returns the 64-bit FNV-1a hash. It is not for secrets: it only detects changed content from an honest client.
#[must_use]
pub fn fingerprint(bytes: &[u8]) -> u64 {
    Fingerprint::default().and(bytes).0
}

/// Returns the fingerprint of a value's JSON without building the text.
#[must_use]
pub fn fingerprint_of<T: Serialize + ?Sized>(value: &T) -> u64 {
    let mut sum = Fingerprint::default();
    serde_json::to_writer(&mut sum, value).expect("wire types have text keys and finite numbers");
    sum.0
}

/// Returns the value stored instead of the fingerprint of a command whose content a hook changed: one per command type.
/// A fingerprint of the content would let anyone who reads the store test guesses at it.
#[must_use]
pub fn withheld(command: &str) -> u64 {
    Fingerprint::default().and(b"withheld:").and(command.as_bytes()).0
}

/// Returns the fingerprint of a message's role and content, ignoring metadata such as usage and receipt.
#[must_use]
pub fn message_fingerprint(message: &Message) -> u64 {
    fingerprint_of(&(message.role, HashedParts(&message.content)))
}

/// A message's parts in hashed form. Its field names never change, whatever the wire calls them, because the hash is
/// stored and compared after an upgrade.
struct HashedParts<'a>(&'a [Part]);

impl Serialize for HashedParts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|part| match part {
            Part::ToolCall { call_id, name, arguments } => {
                HashedPart::Of(HashedCall::ToolCall { call_id, name, arguments })
            }
            Part::ToolResult { call_id, output, is_error } => {
                HashedPart::Of(HashedCall::ToolResult { call_id, output, is_error: *is_error })
            }
            other => HashedPart::Other(other),
        }))
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum HashedPart<'a> {
    Of(HashedCall<'a>),
    Other(&'a Part),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
enum HashedCall<'a> {
    ToolCall {
        call_id: &'a CallId,
        name: &'a str,
        arguments: &'a str,
    },
    ToolResult {
        call_id: &'a CallId,
        output: &'a str,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

/// Combines the fingerprints of a list's items into that of the list.
#[must_use]
pub fn chained(items: impl IntoIterator<Item = u64>) -> u64 {
    items.into_iter().fold(Fingerprint::default().0, chain)
}

/// Extends a list's fingerprint by one item.
#[must_use]
pub fn chain(list: u64, item: u64) -> u64 {
    Fingerprint(list).and(&item.to_le_bytes()).0
}

/// A fingerprint in progress.
#[derive(Debug, Clone, Copy)]
struct Fingerprint(u64);

impl Default for Fingerprint {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fingerprint {
    fn and(self, bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(self.0, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)))
    }
}

impl io::Write for Fingerprint {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        *self = self.and(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_values_hold() {
        assert_eq!(fingerprint(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fingerprint(b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(fingerprint_of(&["a", "b"]), fingerprint(br#"["a","b"]"#));
    }

    #[test]
    fn the_hash_of_calls_and_results_is_that_of_every_version() {
        let message = |role: &str, parts: &str| -> Message {
            let parts = parts.replace("callId", "toolCallId");
            serde_json::from_str(&format!(r#"{{"role":{role},"content":{parts}}}"#)).unwrap()
        };
        let table = [
            (
                r#""assistant""#,
                r#"[{"type":"text","text":"So."},{"type":"tool_call","callId":"c1","name":"look","arguments":"{}"}]"#,
            ),
            (r#""tool""#, r#"[{"type":"tool_result","callId":"c1","output":"It is blue."}]"#),
            (r#""tool""#, r#"[{"type":"tool_result","callId":"c1","output":"no","isError":true}]"#),
        ];
        for (role, parts) in table {
            let first = fingerprint(format!("[{role},{parts}]").as_bytes());
            assert_eq!(message_fingerprint(&message(role, parts)), first, "{parts}");
        }
    }

    #[test]
    fn a_messages_fingerprint_follows_its_content() {
        let said = Message::user("Good morning");
        let noted = Message { envelope_key: Some("k".into()), model: Some("m".into()), ..said.clone() };
        assert_eq!(message_fingerprint(&noted), message_fingerprint(&said));
        assert_ne!(message_fingerprint(&Message::user("Good evening")), message_fingerprint(&said));
        assert_ne!(chained([1, 2]), chained([2, 1]));
    }
}
