//! Reads an entry in one pass. Its fields and those of its data are in one object, and what serde derives for that
//! gathers all of them twice, once for the `flatten` and once for the `type`. Opening a session reads thousands of
//! entries.
//!
//! The server writes the entry's own fields and the `type` first. In any other order, fields of the data that come
//! before the `type` are gathered and read as serde derives it.
//!
//! It is as strict as what serde derives, with a few exceptions: a `type` must be a string, what a message has besides
//! its fields may be any JSON, and of a field that is there twice within an early one the last counts.

use super::{Entry, EntryData};
use crate::{content::Message, ids::EntryId, time::Timestamp};
use serde::{
    Deserialize, Deserializer,
    de::{
        DeserializeSeed, Error, IntoDeserializer, MapAccess, Visitor,
        value::{BorrowedStrDeserializer, MapAccessDeserializer},
    },
};
use serde_json::{Map, Value};
use std::{borrow::Cow, fmt, mem, vec};

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Reader)
    }
}

/// A field of an entry.
#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Field<'a> {
    EntryId,
    ParentId,
    Timestamp,
    Imported,
    Type,
    /// A field of its data.
    #[serde(borrow)]
    Other(Name<'a>),
}

#[derive(Deserialize)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Name<'de> {
    fn read<V: DeserializeSeed<'de>, E: Error>(self, seed: V) -> Result<V::Value, E> {
        match self.0 {
            Cow::Borrowed(text) => seed.deserialize(BorrowedStrDeserializer::new(text)),
            Cow::Owned(text) => seed.deserialize(text.into_deserializer()),
        }
    }
}

/// The fields that every entry has, as far as they have been read.
#[derive(Default)]
struct Common {
    entry_id: Option<EntryId>,
    parent_id: Option<Option<EntryId>>,
    timestamp: Option<Timestamp>,
    imported: Option<Option<Box<Map<String, Value>>>>,
}

impl Common {
    /// Reads one of these fields, and returns any other.
    fn read<'de, A: MapAccess<'de>>(&mut self, field: Field<'de>, map: &mut A) -> Result<Option<Field<'de>>, A::Error> {
        match field {
            Field::EntryId => set(&mut self.entry_id, "entryId", map)?,
            Field::ParentId => set(&mut self.parent_id, "parentId", map)?,
            Field::Timestamp => set(&mut self.timestamp, "timestamp", map)?,
            Field::Imported => set(&mut self.imported, "imported", map)?,
            other => return Ok(Some(other)),
        }
        Ok(None)
    }

    fn with<E: Error>(self, data: EntryData) -> Result<Entry, E> {
        let missing = |name| E::missing_field(name);
        Ok(Entry {
            entry_id: self.entry_id.ok_or_else(|| missing("entryId"))?,
            parent_id: self.parent_id.flatten(),
            timestamp: self.timestamp.ok_or_else(|| missing("timestamp"))?,
            imported: self.imported.flatten(),
            data,
        })
    }
}

fn set<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
    field: &mut Option<T>,
    name: &'static str,
    map: &mut A,
) -> Result<(), A::Error> {
    if field.is_some() {
        return Err(A::Error::duplicate_field(name));
    }
    *field = Some(map.next_value()?);
    Ok(())
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Entry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an entry")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entry, A::Error> {
        let (mut common, mut early) = (Common::default(), Vec::new());
        let kind = loop {
            let field = map.next_key()?.ok_or_else(|| A::Error::missing_field("type"))?;
            match common.read(field, &mut map)? {
                Some(Field::Type) => break map.next_value::<Name<'de>>()?,
                Some(Field::Other(name)) => early.push((name, map.next_value()?)),
                _ => {}
            }
        };
        let is_message = kind.0 == "message" && early.is_empty();
        let gathered = if is_message { None } else { Some(kind) };
        let fields = Fields { kind: gathered, early: early.into_iter(), map, common: &mut common, next: Next::Map };
        let fields = MapAccessDeserializer::new(fields);
        let data = if is_message {
            EntryData::message(Message::deserialize(fields)?)
        } else {
            EntryData::deserialize(fields)?
        };
        common.with(data)
    }
}

/// The fields of an entry's data: its `type`, unless that is known, those that came before it, and the rest of the
/// object without the fields that every entry has.
struct Fields<'a, 'de, A> {
    kind: Option<Name<'de>>,
    early: vec::IntoIter<(Name<'de>, Value)>,
    map: A,
    common: &'a mut Common,
    /// The place of the next value.
    next: Next<'de>,
}

enum Next<'de> {
    Kind(Name<'de>),
    Early(Value),
    Map,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Fields<'_, 'de, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        if let Some(kind) = self.kind.take() {
            self.next = Next::Kind(kind);
            return seed.deserialize(BorrowedStrDeserializer::new("type")).map(Some);
        }
        if let Some((name, value)) = self.early.next() {
            self.next = Next::Early(value);
            return name.read(seed).map(Some);
        }
        self.next = Next::Map;
        while let Some(field) = self.map.next_key()? {
            match self.common.read(field, &mut self.map)? {
                Some(Field::Other(name)) => return name.read(seed).map(Some),
                Some(_) => return Err(A::Error::duplicate_field("type")),
                None => {}
            }
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        match mem::replace(&mut self.next, Next::Map) {
            Next::Kind(kind) => kind.read(seed),
            Next::Early(value) => seed.deserialize(value).map_err(A::Error::custom),
            Next::Map => self.map.next_value_seed(seed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Is read as serde derives it.
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Derived {
        entry_id: EntryId,
        parent_id: Option<EntryId>,
        timestamp: Timestamp,
        #[serde(default)]
        imported: Option<Box<Map<String, Value>>>,
        #[serde(flatten)]
        data: EntryData,
    }

    fn derived(text: &str) -> Result<Entry, serde_json::Error> {
        let Derived { entry_id, parent_id, timestamp, imported, data } = serde_json::from_str(text)?;
        Ok(Entry { entry_id, parent_id, timestamp, imported, data })
    }

    /// Entries of all kinds, as `name: value` without braces, the common fields first.
    fn entries() -> Vec<Vec<String>> {
        let common = [
            json!({ "entryId": "b", "parentId": "a", "timestamp": "2026-11-21T06:45:04.123Z" }),
            json!({ "entryId": "b", "parentId": null, "timestamp": "2026-11-21T06:45:04.123Z" }),
            json!({ "entryId": "b", "timestamp": "2026-11-21T06:45:04Z", "imported": { "x": [1, "\u{1f600}"] } }),
        ];
        let content = json!([{ "type": "text", "text": "a \"b\" \u{e9}" }]);
        let data = [
            json!({ "type": "message", "role": "user", "content": content }),
            json!({ "type": "message", "role": "tool", "content": [], "surprise": { "a": 1 } }),
            json!({
                "type": "message", "role": "assistant", "content": content, "model": "m", "stopReason": "stop",
                "usage": { "inputTokens": 1, "cachedTokens": 0, "outputTokens": 2, "source": "reported" },
            }),
            json!({ "type": "compaction", "summary": "s", "tokensBefore": 7, "firstKeptEntryId": "a" }),
            json!({ "type": "branch_summary", "fromId": null, "summary": "s" }),
            json!({ "type": "context_transform", "schemaVersion": 99, "anything": [1.5] }),
            json!({ "type": "ephemeral", "transformerName": "clock", "patch": [] }),
            json!({ "type": "custom", "customType": "c", "data": { "z": 1, "a": 18_446_744_073_709_551_615_u64 } }),
            json!({ "type": "custom_message", "customType": "c", "content": content, "display": true }),
            json!({ "type": "model_change", "model": "m" }),
            json!({ "type": "thinking_level_change", "thinkingLevel": "high" }),
            json!({ "type": "label", "targetId": "a", "label": "l" }),
            json!({ "type": "session_info", "name": "n" }),
            json!({ "type": "foreign", "foreignType": "f", "data": {} }),
        ];
        let fields = |value: &Value| -> Vec<String> {
            value.as_object().unwrap().iter().map(|(name, value)| format!("{name:?}:{value}")).collect()
        };
        let all = |common: &Value| data.iter().map(|data| [fields(common), fields(data)].concat()).collect::<Vec<_>>();
        common.iter().flat_map(all).collect()
    }

    #[test]
    fn an_entry_is_read_in_any_order_as_serde_derives_it() {
        for fields in entries() {
            for first in 0..fields.len() {
                let mut turned = fields.clone();
                turned.rotate_left(first);
                for _ in 0..2 {
                    let text = format!("{{{}}}", turned.join(","));
                    let entry: Entry = serde_json::from_str(&text).unwrap();
                    assert_eq!(entry, derived(&text).unwrap(), "{text}");
                    let value: Value = serde_json::from_str(&text).unwrap();
                    assert_eq!(serde_json::from_value::<Entry>(value).unwrap(), entry, "{text}");
                    assert_eq!(serde_json::from_reader::<_, Entry>(text.as_bytes()).unwrap(), entry, "{text}");
                    let written = serde_json::to_string(&entry).unwrap();
                    assert_eq!(serde_json::from_str::<Entry>(&written).unwrap(), entry, "{written}");
                    turned.reverse();
                }
            }
        }
    }

    #[test]
    fn what_serde_refuses_is_refused_with_the_same_words() {
        for fields in entries() {
            for at in 0..fields.len() {
                let without = [&fields[..at], &fields[at + 1..]].concat();
                let twice = [&fields[..], &fields[at..=at]].concat();
                let name = fields[at].split_once(':').unwrap().0;
                let mut wrong = fields.clone();
                wrong[at] = format!("{name}:-7");
                for fields in [without, twice, wrong] {
                    let text = format!("{{{}}}", fields.join(","));
                    let (read, expected) = (serde_json::from_str::<Entry>(&text), derived(&text));
                    let words = |error: serde_json::Error| {
                        let text = error.to_string();
                        text.split(" at line").next().unwrap().to_owned()
                    };
                    match fields.iter().any(|field| field == "\"type\":-7") {
                        // Only the words for what was expected there differ.
                        true => assert!(read.is_err() && expected.is_err(), "{text}"),
                        false => assert_eq!(read.map_err(words), expected.map_err(words), "{text}"),
                    }
                }
            }
        }
        for text in ["7", "[]", "{}", r#"{"type":7}"#, r#"{"type":"surprise","entryId":"a"}"#] {
            assert!(serde_json::from_str::<Entry>(text).is_err(), "{text}");
        }
    }
}
