//! Parses the server's frames leniently. Additions of newer versions are dropped, and the rest is kept.
//!
//! A frame of this version is parsed once, as it is. If it cannot be parsed, the invalid parts are dropped, starting
//! with the innermost: an element of a list, or an optional field. A history entry of an unknown type is kept as
//! [`EntryData::Foreign`], because the path leads through it. A frame that still cannot be parsed counts as unknown.
//!
//! [`EntryData::Foreign`]: reseed_protocol::EntryData::Foreign

use reseed_protocol::{
    CommandId, SessionId,
    event::{EphemeralEvent, Event},
    reply::Reply,
    tagged::Unknown,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use serde_path_to_error::Segment;
use std::collections::BTreeSet;

/// Maximum number of unknown values dropped from one frame. Each of them costs another parse of the frame.
const LEFT_OUT_MAX: usize = 64;

/// A frame of the server.
#[derive(Debug, Clone, PartialEq)]
pub struct Incoming {
    /// The session that it is about, if any.
    pub session: Option<SessionId>,
    /// Its content.
    pub body: Body,
}

/// The content of a frame.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// The reply to this command.
    Reply(CommandId, Reply),
    /// An error about the connection, which closes next.
    Fault(Reply),
    /// A durable event, with its `seq`.
    Event(u64, Event),
    /// An ephemeral event.
    Ephemeral(EphemeralEvent),
}

impl Incoming {
    /// Parses a frame; `None` if it does not belong to the protocol.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Envelope {
            #[serde(default)]
            re: Option<CommandId>,
            #[serde(default)]
            session_id: Option<SessionId>,
            #[serde(default)]
            seq: Option<u64>,
            #[serde(default, rename = "type")]
            kind: Kind,
        }
        #[derive(Default)]
        struct Kind {
            is_error: bool,
        }
        impl<'de> Deserialize<'de> for Kind {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Ok(Self { is_error: name == "error" })
            }
        }
        let Envelope { re, session_id, seq, kind } = serde_json::from_str(text).ok()?;
        let body = match (re, seq) {
            // An unreadable reply still answers its command, which gets no other.
            (Some(re), _) => {
                let nothing = || Unknown { name: String::new(), payload: Value::Null };
                Body::Reply(re, read(text, Reply::Unknown).unwrap_or_else(|| Reply::Unknown(nothing())))
            }
            (None, Some(seq)) => Body::Event(seq, read(text, Event::Unknown)?),
            (None, None) if kind.is_error => Body::Fault(read(text, Reply::Unknown)?),
            (None, None) => Body::Ephemeral(read(text, EphemeralEvent::Unknown)?),
        };
        Some(Self { session: session_id, body })
    }
}

/// Parses a message, and drops what cannot be read.
fn read<T: DeserializeOwned>(text: &str, unknown: fn(Unknown) -> T) -> Option<T> {
    // With the path of an error from the start: another deserializer would compile each type once more.
    let parse = |text: &str| serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(text));
    if let Ok(message) = parse(text) {
        return Some(message);
    }
    #[derive(Deserialize)]
    struct Message {
        #[serde(rename = "type")]
        name: String,
        #[serde(default)]
        payload: Value,
    }
    let Message { name, mut payload } = serde_json::from_str(text).ok()?;
    for _ in 0..LEFT_OUT_MAX {
        // The type comes first, so that an error is reported at the right position.
        let text = format!(r#"{{"type":{},"payload":{payload}}}"#, json!(name));
        match parse(&text) {
            Ok(message) => return Some(message),
            Err(error) => {
                let path: Vec<&Segment> = error.path().iter().skip(1).collect();
                if !leave_out(&mut payload, &path, &error.inner().to_string()) {
                    break;
                }
            }
        }
    }
    Some(unknown(Unknown { name, payload }))
}

/// What this version cannot read, derived from the parser's error.
enum Word {
    /// An unknown value, under one of these field names or as the whole value.
    Variant(String, BTreeSet<String>),
    /// An object lacks a field. All objects with these fields lack it.
    Missing(BTreeSet<String>),
    /// Any other error. Only the same value has it.
    Value,
}

impl Word {
    fn of(error: &str, value: &Value) -> Self {
        if let Some(variant) = error.strip_prefix("unknown variant `").and_then(|rest| rest.split('`').next()) {
            let mut names = BTreeSet::new();
            names_of(variant, value, &mut names);
            return Self::Variant(variant.to_owned(), names);
        }
        match value {
            Value::Object(fields) if error.starts_with("missing field") => {
                Self::Missing(fields.keys().cloned().collect())
            }
            _ => Self::Value,
        }
    }

    /// Returns true if this value has the same problem.
    fn is_in(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Variant(variant, names), value) => says(variant, names, value),
            (Self::Missing(names), Value::Object(fields)) => fields.keys().eq(names),
            _ => false,
        }
    }
}

/// Collects the names of the fields whose value is this string.
fn names_of(text: &str, value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| names_of(text, item, names)),
        Value::Object(fields) => {
            for (name, field) in fields {
                if field == text {
                    names.insert(name.clone());
                }
                names_of(text, field, names);
            }
        }
        _ => {}
    }
}

/// Returns true if one of these fields has this string as its value, at any depth.
fn says(text: &str, names: &BTreeSet<String>, value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|item| says(text, names, item)),
        Value::Object(fields) => {
            fields.iter().any(|(name, field)| field == text && names.contains(name) || says(text, names, field))
        }
        _ => false,
    }
}

/// Drops the innermost part of a path that can be dropped. The same unknown value at the same position in other list
/// elements is dropped with it, because the limit counts distinct values. Returns false if nothing can be dropped.
fn leave_out(value: &mut Value, path: &[&Segment], error: &str) -> bool {
    let mut failed = &*value;
    let mut depth = 0;
    for segment in path {
        let inner = match (*segment, failed) {
            (Segment::Seq { index }, Value::Array(items)) => items.get(*index),
            (Segment::Map { key }, Value::Object(fields)) => fields.get(key),
            _ => None,
        };
        let Some(inner) = inner else { break };
        (failed, depth) = (inner, depth + 1);
    }
    let failed = failed.clone();
    let word = Word::of(error, &failed);
    leave_out_each(value, &path[..depth], &|value| *value == failed || word.is_in(value));
    depth > 0
}

/// Drops the end of a path in all elements of the lists along it.
fn leave_out_each(value: &mut Value, path: &[&Segment], goes: &dyn Fn(&Value) -> bool) {
    let Some((first, rest)) = path.split_first() else { return };
    match (*first, value) {
        (Segment::Seq { .. }, Value::Array(items)) if rest.is_empty() => {
            items.retain_mut(|item| !goes(item) || make_foreign(item));
        }
        (Segment::Seq { .. }, Value::Array(items)) => {
            items.iter_mut().for_each(|item| leave_out_each(item, rest, goes));
        }
        (Segment::Map { key }, Value::Object(fields)) => {
            let Some(field) = fields.get_mut(key) else { return };
            if !rest.is_empty() {
                leave_out_each(field, rest, goes);
            } else if goes(field) && !make_foreign(field) {
                fields.remove(key);
            }
        }
        _ => {}
    }
}

/// Converts an entry of an unknown type to a foreign one. Returns false if it is not an entry, or already converted.
fn make_foreign(value: &mut Value) -> bool {
    let Value::Object(fields) = value else { return false };
    let Some(Value::String(kind)) = fields.get("type").cloned() else { return false };
    if kind == "foreign" || !["entryId", "parentId", "timestamp"].iter().all(|name| fields.contains_key(*name)) {
        return false;
    }
    let mut entry = Map::new();
    for name in ["entryId", "parentId", "timestamp"] {
        entry.extend(fields.remove(name).map(|field| (name.to_owned(), field)));
    }
    fields.remove("type");
    entry.extend([
        ("type".to_owned(), json!("foreign")),
        ("foreignType".to_owned(), json!(kind)),
        ("data".to_owned(), Value::Object(std::mem::take(fields))),
    ]);
    *value = Value::Object(entry);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use reseed_protocol::{EntryData, turn::TurnStatus};
    use std::path::Path;

    /// Returns a short description of a frame.
    fn kind(text: &str) -> String {
        match Incoming::parse(text).map(|incoming| incoming.body) {
            None => "no frame".to_owned(),
            Some(Body::Reply(_, Reply::Unknown(unknown))) => format!("unknown reply {}", unknown.name),
            Some(Body::Event(_, Event::Unknown(unknown))) => format!("unknown event {}", unknown.name),
            Some(Body::Ephemeral(EphemeralEvent::Unknown(unknown))) => format!("unknown ephemeral {}", unknown.name),
            Some(Body::Reply(_, Reply::Error(error))) => format!("refused {}", error.code),
            Some(Body::Fault(_)) => "fault".to_owned(),
            Some(Body::Reply(_, reply)) => format!("reply {}", reply.name()),
            Some(Body::Event(_, event)) => format!("event {}", event.name()),
            Some(Body::Ephemeral(event)) => format!("ephemeral {}", event.name()),
        }
    }

    #[test]
    fn what_is_not_known_costs_no_more_than_itself() {
        let table = [
            ("nonsense", "no frame"),
            ("[]", "no frame"),
            ("{}", "no frame"),
            (r#"{"re":"a-1","type":"ok","payload":{"surprise":1}}"#, "reply ok"),
            (r#"{"re":"a-1","type":"ok"}"#, "unknown reply ok"),
            (r#"{"re":"a-1"}"#, "unknown reply "),
            (r#"{"sessionId":"ses","type":"surprise"}"#, "unknown ephemeral surprise"),
            (r#"{"re":"a-1","type":"surprise","payload":{}}"#, "unknown reply surprise"),
            (r#"{"sessionId":"ses","seq":1,"type":"surprise","payload":{}}"#, "unknown event surprise"),
            (r#"{"sessionId":"ses","type":"surprise","payload":[1]}"#, "unknown ephemeral surprise"),
            (
                r#"{"sessionId":"ses","seq":1,"type":"turn_started","payload":{"turnId":7}}"#,
                "unknown event turn_started",
            ),
            (r#"{"type":"error","payload":{"code":"surprise","message":"m","retriable":true}}"#, "fault"),
            (
                r#"{"re":"a-1","type":"error","payload":{"code":"surprise","message":"m","retriable":true}}"#,
                "refused surprise",
            ),
        ];
        for (text, expected) in table {
            assert_eq!(kind(text), expected, "{text}");
        }
    }

    /// Returns the example frame with this path.
    fn example(path: &str) -> Value {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/v2");
        serde_json::from_str(&std::fs::read_to_string(root.join(path)).unwrap()).unwrap()
    }

    #[test]
    fn words_of_a_newer_version_are_left_out_of_what_is_known() {
        let mut opened = example("replies/session_opened.snapshot.json");
        let whole = opened["payload"]["entries"].as_array().unwrap().len();
        opened["payload"]["entries"][0]["type"] = json!("surprise");
        opened["payload"]["queue"] = json!([{ "surprise": true }]);
        opened["payload"]["resumed"] = json!("surprise");
        let Some(Body::Reply(_, Reply::SessionOpened(read))) =
            Incoming::parse(&opened.to_string()).map(|incoming| incoming.body)
        else {
            panic!("it is not read")
        };
        let entries = read.entries.unwrap();
        assert_eq!(entries.len(), whole);
        let EntryData::Foreign(foreign) = &entries[0].data else { panic!("{:?}", entries[0]) };
        assert_eq!(foreign.foreign_type, "surprise");
        assert!(foreign.data.contains_key("content"), "it keeps its fields");
        assert_eq!((read.queue.len(), read.resumed), (0, None));

        let mut appended = example("events/entry_appended.json");
        appended["payload"]["entry"]["type"] = json!("surprise");
        appended["payload"]["turnId"] = json!(["surprise"]);
        let Some(Body::Event(_, Event::EntryAppended(read))) =
            Incoming::parse(&appended.to_string()).map(|incoming| incoming.body)
        else {
            panic!("it is not read")
        };
        assert!(matches!(read.entry.data, EntryData::Foreign(_)) && read.turn_id.is_none());

        let mut finished = example("events/turn_finished.failed.json");
        finished["payload"]["error"]["code"] = json!("surprise");
        finished["payload"]["finishReason"] = json!("surprise");
        let Some(Body::Event(_, Event::TurnFinished(read))) =
            Incoming::parse(&finished.to_string()).map(|incoming| incoming.body)
        else {
            panic!("it is not read")
        };
        assert_eq!(read.status, TurnStatus::Failed);
        assert_eq!(read.error.unwrap().code.as_str(), "surprise");
    }

    /// Parses a modified `session_opened`. Returns the number of its entries, of foreign ones, and of queued inputs.
    fn opened(change: impl FnOnce(&mut Value)) -> Option<(usize, usize, usize)> {
        let mut opened = example("replies/session_opened.snapshot.json");
        change(&mut opened["payload"]);
        let Some(Body::Reply(_, Reply::SessionOpened(read))) =
            Incoming::parse(&opened.to_string()).map(|incoming| incoming.body)
        else {
            return None;
        };
        let entries = read.entries.unwrap_or_default();
        let foreign = entries.iter().filter(|entry| matches!(entry.data, EntryData::Foreign(_))).count();
        Some((entries.len(), foreign, read.queue.len()))
    }

    #[test]
    fn a_word_is_left_out_as_often_as_it_is_said() {
        const MANY: usize = 10 * LEFT_OUT_MAX;
        let (known, foreign, queued) = opened(|_| {}).unwrap();
        let entries = |change: fn(&mut Value, usize)| {
            opened(move |payload| {
                let entries = payload["entries"].as_array_mut().unwrap();
                let message = entries.iter().find(|entry| entry["type"] == "message").unwrap().clone();
                for number in 0..MANY {
                    let mut entry = message.clone();
                    entry["entryId"] = json!(format!("entry-{number}"));
                    change(&mut entry, number);
                    entries.push(entry);
                }
            })
        };
        let of_type = entries(|entry, _| entry["type"] = json!("surprise"));
        assert_eq!(of_type, Some((known + MANY, foreign + MANY, queued)), "entries that were known stay as they are");
        let with_block = entries(|entry, _| entry["content"] = json!([{ "type": "hologram" }]));
        assert_eq!(with_block.map(|(entries, ..)| entries), Some(known + MANY), "no entry is lost for its content");
        let queue = |word: fn(usize) -> Value| {
            opened(move |payload| payload["queue"] = (0..MANY).map(word).collect()).map(|(.., queue)| queue)
        };
        assert_eq!(queue(|_| json!({ "surprise": true })), Some(0));
        assert_eq!(queue(|number| json!({ "surprise": number })), Some(0), "they lack the same");
        assert_eq!(queue(|number| json!(number)), None, "a frame of nonsense is given up");
    }

    #[test]
    fn every_example_frame_of_the_server_is_known() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/v2");
        for folder in ["replies", "events"] {
            for file in std::fs::read_dir(root.join(folder)).unwrap() {
                let path = file.unwrap().path();
                let kind = kind(&std::fs::read_to_string(&path).unwrap());
                assert!(!kind.starts_with("unknown") && kind != "no frame", "{} is {kind}", path.display());
            }
        }
    }
}
