//! Fields that a server sent for itself, kept as it wrote them so that they can go back byte for byte.
//!
//! A field that comes in pieces is put together as clients of the streamed form do: texts are joined, lists are
//! continued, and an item of a list continues the one with its `index` and `type`.

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

/// Fields of a list's item that come whole, in one of its pieces or in each.
const WHOLE: &[&str] = &["type", "id", "index", "format", "signature"];

/// Named JSON values in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Fields(Vec<(String, Box<RawValue>)>);

impl Fields {
    /// Adds a field, or the next piece of it. Nulls say nothing.
    pub(crate) fn add(&mut self, name: &str, piece: &RawValue) {
        if piece.get() == "null" {
            return;
        }
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, value)) => *value = continued(value, piece),
            None => self.0.push((name.to_owned(), piece.to_owned())),
        }
    }

    /// Sets a field to a text.
    pub(crate) fn put_text(&mut self, name: &str, text: &str) {
        let Ok(value) = to_raw_value(text) else { return };
        self.0.retain(|(known, _)| known != name);
        self.0.push((name.to_owned(), value));
    }

    /// Returns the fields as the JSON text of an object; `None` if there are none.
    pub(crate) fn into_json(self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.object())
    }

    fn read(object: &str) -> Option<Self> {
        let mut fields = Self::default();
        let mut reader = serde_json::Deserializer::from_str(object);
        serde::Deserializer::deserialize_map(&mut reader, Reader(&mut fields)).ok()?;
        reader.end().ok()?;
        Some(fields)
    }

    /// Reads an object; anything else has no fields.
    pub(crate) fn of(object: &str) -> Self {
        Self::read(object).unwrap_or_default()
    }

    /// Iterates over the fields.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &RawValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), &**value))
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value.get())
    }

    fn object(&self) -> String {
        struct Object<'a>(&'a Fields);
        impl Serialize for Object<'_> {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map(self.0.iter())
            }
        }
        serde_json::to_string(&Object(self)).expect("names and raw JSON are an object")
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
            self.0.0.push((name, value));
        }
        Ok(())
    }
}

/// Returns a value with its next piece.
fn continued(value: &RawValue, piece: &RawValue) -> Box<RawValue> {
    let joined = match (text(value), text(piece), list(value), list(piece)) {
        (Some(before), Some(after), ..) => to_raw_value(&(before + &after)),
        (.., Some(before), Some(after)) => to_raw_value(&continued_list(before, after)),
        _ => return piece.to_owned(),
    };
    joined.unwrap_or_else(|_| piece.to_owned())
}

fn continued_list(mut items: Vec<Box<RawValue>>, pieces: Vec<Box<RawValue>>) -> Vec<Box<RawValue>> {
    for piece in pieces {
        let place = Fields::read(piece.get()).and_then(|fields| {
            fields.get("index")?;
            items.iter().position(|item| Fields::read(item.get()).is_some_and(|item| item.is_continued_by(&fields)))
        });
        match place {
            Some(at) => items[at] = continued_item(&items[at], &piece),
            None => items.push(piece),
        }
    }
    items
}

impl Fields {
    fn is_continued_by(&self, piece: &Self) -> bool {
        let same = |name: &str| self.get(name) == piece.get(name);
        same("index") && (same("type") || piece.get("type").is_none())
    }
}

fn continued_item(item: &RawValue, piece: &RawValue) -> Box<RawValue> {
    let (Some(mut fields), Some(pieces)) = (Fields::read(item.get()), Fields::read(piece.get())) else {
        return piece.to_owned();
    };
    for (name, value) in pieces.iter() {
        match fields.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, kept)) if WHOLE.contains(&name) && value.get() != "null" => *kept = value.to_owned(),
            _ => fields.add(name, value),
        }
    }
    RawValue::from_string(fields.object()).unwrap_or_else(|_| piece.to_owned())
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
