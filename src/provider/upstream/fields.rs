//! Fields that a server has sent for its own use. They are kept in its own encoding, so that they can be sent back byte
//! for byte.
//!
//! A field that arrives in pieces is assembled as clients of the streaming API do it. Strings are joined and lists are
//! continued. A list item continues the item with the same `index` and `type`.

use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

/// Fields of a list item that arrive whole, in one of its pieces or in each.
const WHOLE: &[&str] = &["type", "id", "index", "format", "signature"];

/// Named JSON values in their order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Fields(Vec<(String, Field)>);

/// A value. A single piece is kept in its original encoding. Each further piece costs only its own length.
#[derive(Debug)]
enum Field {
    Whole(Box<RawValue>),
    Text(String),
    List(Vec<Item>),
}

/// A list item that further pieces can continue.
#[derive(Debug)]
enum Item {
    /// It arrived in one piece. If it is an object with an index, its fields are parsed once.
    Whole(Box<RawValue>, Option<Fields>),
    Continued(Fields),
}

impl Fields {
    /// Adds a field, or the next piece of it. Nulls are ignored.
    pub(crate) fn add(&mut self, name: &str, piece: &RawValue) {
        if piece.get() == "null" {
            return;
        }
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, field)) => field.add(piece),
            None => self.0.push((name.to_owned(), Field::Whole(piece.to_owned()))),
        }
    }

    /// Sets a field to a text.
    pub(crate) fn put_text(&mut self, name: &str, text: &str) {
        let Ok(value) = to_raw_value(text) else { return };
        self.0.retain(|(known, _)| known != name);
        self.0.push((name.to_owned(), Field::Whole(value)));
    }

    /// Returns the fields as the JSON text of an object; `None` if there are none.
    pub(crate) fn into_json(self) -> Option<String> {
        (!self.0.is_empty()).then(|| serde_json::to_string(&self).expect("names and values are an object"))
    }

    fn read(object: &str) -> Option<Self> {
        let mut fields = Self::default();
        let mut reader = serde_json::Deserializer::from_str(object);
        serde::Deserializer::deserialize_map(&mut reader, Reader(&mut fields)).ok()?;
        reader.end().ok()?;
        Some(fields)
    }

    /// Reads an object. Any other value has no fields.
    pub(crate) fn of(object: &str) -> Self {
        Self::read(object).unwrap_or_default()
    }

    /// Iterates over the fields that arrived in one piece. If they were read from an object, these are all fields.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &RawValue)> {
        self.0.iter().filter_map(|(name, field)| match field {
            Field::Whole(value) => Some((name.as_str(), &**value)),
            Field::Text(_) | Field::List(_) => None,
        })
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value.get())
    }

    fn is_continued_by(&self, piece: &Self) -> bool {
        let same = |name: &str| self.get(name) == piece.get(name);
        same("index") && (same("type") || piece.get("type").is_none())
    }

    fn go_on(&mut self, piece: &Self) {
        for (name, value) in piece.iter() {
            match self.0.iter_mut().find(|(known, _)| known == name) {
                Some((_, field)) if WHOLE.contains(&name) && value.get() != "null" => {
                    *field = Field::Whole(value.to_owned());
                }
                _ => self.add(name, value),
            }
        }
    }
}

impl Field {
    fn add(&mut self, piece: &RawValue) {
        if let Self::Whole(value) = self {
            *self = match (text(value), list(value)) {
                (Some(text), _) => Self::Text(text),
                (_, Some(items)) => Self::List(items.into_iter().map(Item::of).collect()),
                _ => return *self = Self::Whole(piece.to_owned()),
            };
        }
        match (&mut *self, text(piece), list(piece)) {
            (Self::Text(before), Some(after), _) => before.push_str(&after),
            (Self::List(items), _, Some(pieces)) => pieces.into_iter().for_each(|piece| continue_list(items, piece)),
            _ => *self = Self::Whole(piece.to_owned()),
        }
    }
}

impl Item {
    fn of(value: Box<RawValue>) -> Self {
        let fields = Fields::read(value.get()).filter(|fields| fields.get("index").is_some());
        Self::Whole(value, fields)
    }

    fn is_continued_by(&self, piece: &Fields) -> bool {
        match self {
            Self::Whole(_, Some(fields)) | Self::Continued(fields) => fields.is_continued_by(piece),
            Self::Whole(_, None) => false,
        }
    }

    fn go_on(&mut self, piece: &Fields) {
        if let Self::Whole(_, fields) = self {
            *self = Self::Continued(fields.take().unwrap_or_default());
        }
        if let Self::Continued(fields) = self {
            fields.go_on(piece);
        }
    }
}

fn continue_list(items: &mut Vec<Item>, piece: Box<RawValue>) {
    let piece = Item::of(piece);
    let Item::Whole(_, Some(fields)) = &piece else { return items.push(piece) };
    match items.iter().position(|item| item.is_continued_by(fields)) {
        Some(at) => items[at].go_on(fields),
        None => items.push(piece),
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, field)| (name, field)))
    }
}

impl Serialize for Field {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Whole(value) => value.serialize(serializer),
            Self::Text(text) => text.serialize(serializer),
            Self::List(items) => items.serialize(serializer),
        }
    }
}

impl Serialize for Item {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Whole(value, _) => value.serialize(serializer),
            Self::Continued(fields) => fields.serialize(serializer),
        }
    }
}

/// Collects the fields of an object.
struct Reader<'f>(&'f mut Fields);

impl<'de> serde::de::Visitor<'de> for Reader<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
            self.0.0.push((name, Field::Whole(value)));
        }
        Ok(())
    }
}

fn text(value: &RawValue) -> Option<String> {
    String::deserialize(value).ok()
}

fn list(value: &RawValue) -> Option<Vec<Box<RawValue>>> {
    serde_json::from_str(value.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_kept_as_it_was_written_and_put_together_from_its_pieces() {
        for (pieces, expected) in [
            (&[r#"{"b": 1.50, "a":1e3}"#][..], r#"{"b": 1.50, "a":1e3}"#),
            (&[r#"{"a":1}"#, r#"{"b":2}"#], r#"{"b":2}"#),
            (&[r#""one""#, "null", r#"" two""#], r#""one two""#),
            (&["[1]", "[2.0]"], "[1,2.0]"),
            (
                &[
                    r#"[{"type":"t","text":"a","index":0}]"#,
                    r#"[{"type":"t","text":"b","index":0,"signature":null}]"#,
                    r#"[{"type":"t","signature":"s","index":0}]"#,
                    r#"[{"type":"e","data":"d","index":0}]"#,
                    r#"[{"type":"t","text":"c","index":1}]"#,
                ],
                r#"[{"type":"t","text":"ab","index":0,"signature":"s"},{"type":"e","data":"d","index":0},{"type":"t","text":"c","index":1}]"#,
            ),
        ] {
            let mut fields = Fields::default();
            for piece in pieces {
                fields.add("x", &RawValue::from_string((*piece).to_owned()).unwrap());
            }
            assert_eq!(fields.into_json().unwrap(), format!("{{\"x\":{expected}}}"));
        }
        assert_eq!(Fields::default().into_json(), None);
    }
}
