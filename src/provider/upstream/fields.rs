//! Fields that a server has sent for its own use. A field that arrived whole is sent back byte for byte.
//!
//! A field that arrives in pieces is assembled as clients of the streaming API do it. Strings are joined and lists are
//! continued. A list item continues the item with the same `index` and `type`.

use super::object::Object;
use serde::{Serialize, Serializer};
use serde_json::{
    Map, Value,
    value::{RawValue, to_raw_value},
};

/// Fields of a list item that arrive whole, in one of its pieces or in each.
const WHOLE: &[&str] = &["type", "id", "index", "format", "signature"];

/// Named JSON values in their order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Fields(Vec<(String, Field)>);

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Field {
    /// It arrived in one piece, and is kept in its original encoding.
    Whole(Box<RawValue>),
    /// It was assembled. Each further piece costs only its own length.
    Joined(Value),
}

impl Fields {
    /// Reads an object. Any other value has no fields.
    pub(crate) fn of(object: &str) -> Self {
        let mut fields = Self::default();
        Object::read(object).iter().flat_map(Object::fields).for_each(|(name, value)| fields.add(name, value));
        fields
    }

    /// Adds a field, or the next piece of it. Nulls are ignored.
    pub(crate) fn add(&mut self, name: &str, piece: &RawValue) {
        if piece.get() == "null" {
            return;
        }
        let Some((_, field)) = self.0.iter_mut().find(|(known, _)| known == name) else {
            return self.0.push((name.to_owned(), Field::Whole(piece.to_owned())));
        };
        if let Field::Whole(value) = field {
            *field = Field::Joined(parsed(value));
        }
        match field {
            Field::Joined(value @ (Value::String(_) | Value::Array(_))) => join(value, parsed(piece)),
            field => *field = Field::Whole(piece.to_owned()),
        }
    }

    /// Sets a field to a text.
    pub(crate) fn put_text(&mut self, name: &str, text: &str) {
        let Ok(value) = to_raw_value(text) else { return };
        self.0.retain(|(known, _)| known != name);
        self.0.push((name.to_owned(), Field::Whole(value)));
    }

    /// Returns true if there is a field of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    /// Returns true if a field has arrived in one piece with this value.
    pub(crate) fn has_value(&self, name: &str, value: &RawValue) -> bool {
        self.0
            .iter()
            .any(|(known, field)| known == name && matches!(field, Field::Whole(whole) if whole.get() == value.get()))
    }

    /// Returns true if there are no fields.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the fields as the JSON text of an object; `None` if there are none.
    pub(crate) fn into_json(self) -> Option<String> {
        (!self.0.is_empty()).then(|| serde_json::to_string(&self).expect("names and values are an object"))
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, field)| (name, field)))
    }
}

fn parsed(value: &RawValue) -> Value {
    serde_json::from_str(value.get()).unwrap_or_default()
}

/// Continues a value with its next piece. A value of another type replaces it.
fn join(value: &mut Value, piece: Value) {
    match (value, piece) {
        (Value::String(before), Value::String(after)) => before.push_str(&after),
        (Value::Array(items), Value::Array(pieces)) => {
            for piece in pieces {
                let continued = items.iter_mut().find(|item| is_continued(item, &piece));
                match (continued, piece) {
                    (Some(Value::Object(item)), Value::Object(piece)) => continue_item(item, piece),
                    (_, piece) => items.push(piece),
                }
            }
        }
        (value, piece) => *value = piece,
    }
}

fn is_continued(item: &Value, piece: &Value) -> bool {
    !item["index"].is_null()
        && item["index"] == piece["index"]
        && (piece["type"].is_null() || item["type"] == piece["type"])
}

fn continue_item(item: &mut Map<String, Value>, piece: Map<String, Value>) {
    for (name, value) in piece.into_iter().filter(|(_, value)| !value.is_null()) {
        match item.get_mut(&name) {
            Some(known) if !WHOLE.contains(&name.as_str()) && !known.is_null() => join(known, value),
            _ => drop(item.insert(name, value)),
        }
    }
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
                r#"[{"index":0,"signature":"s","text":"ab","type":"t"},{"data":"d","index":0,"type":"e"},{"index":1,"text":"c","type":"t"}]"#,
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
