//! JSON objects read leniently, because servers disagree. A field that is null or has another type counts as absent.
//! Unknown fields are skipped. A text without escapes is borrowed from the event.

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;
use std::{borrow::Cow, fmt};

/// The fields of an object. Only those that are looked up are parsed.
#[derive(Debug)]
pub(crate) struct Object<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

/// A text, borrowed if possible. (`Cow<str>` alone would always copy.)
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> Object<'a> {
    /// Reads an object; `None` if it is anything else.
    pub(crate) fn read(json: &'a str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }

    /// Creates an object from its fields.
    pub(crate) fn of(fields: impl Iterator<Item = (&'a str, &'a RawValue)>) -> Self {
        Self(fields.map(|(name, value)| (Cow::Borrowed(name), value)).collect())
    }

    /// Iterates over the fields in their order.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(name, value)| (&**name, *value))
    }

    /// Returns a field's JSON, unless it is null.
    pub(crate) fn raw(&self, name: &str) -> Option<&'a RawValue> {
        self.fields().find(|(known, _)| *known == name).map(|(_, value)| value).filter(|value| value.get() != "null")
    }

    /// Returns a text.
    pub(crate) fn text(&self, name: &str) -> Option<Cow<'a, str>> {
        text(self.raw(name)?)
    }

    /// Returns an id. Some servers write numbers.
    pub(crate) fn id(&self, name: &str) -> Option<Cow<'a, str>> {
        let raw = self.raw(name)?;
        let is_number = raw.get().starts_with(|c: char| c.is_ascii_digit() || c == '-');
        if is_number { Some(Cow::Borrowed(raw.get())) } else { text(raw) }
    }

    /// Returns a position in a list. Some servers write it as a string or with a decimal point.
    pub(crate) fn position(&self, name: &str) -> Option<u64> {
        let number = self.raw(name)?.get().trim_matches('"').trim();
        number.strip_suffix(".0").unwrap_or(number).parse().ok()
    }

    /// Returns a token count. Some servers write it with a decimal point.
    pub(crate) fn count(&self, name: &str) -> Option<u64> {
        let number: f64 = serde_json::from_str(self.raw(name)?.get()).ok()?;
        // This limit is far beyond any window, and exact in a double.
        (0.0..=1e15).contains(&number).then_some(number as u64)
    }

    /// Returns an object.
    pub(crate) fn object(&self, name: &str) -> Option<Self> {
        Self::read(self.raw(name)?.get())
    }

    /// Returns the values of a list. An object that is not in a list counts as one.
    pub(crate) fn values(&self, name: &str) -> Vec<&'a RawValue> {
        match self.raw(name) {
            Some(raw) if raw.get().starts_with('[') => serde_json::from_str(raw.get()).unwrap_or_default(),
            Some(raw) if raw.get().starts_with('{') => vec![raw],
            _ => Vec::new(),
        }
    }

    /// Returns the objects of a list, like [`Self::values`].
    pub(crate) fn objects(&self, name: &str) -> impl Iterator<Item = Self> {
        self.values(name).into_iter().filter_map(|value| Self::read(value.get()))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Object<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
        let mut fields = Vec::with_capacity(8);
        while let Some((Text(name), value)) = map.next_entry()? {
            fields.push((name, value));
        }
        Ok(Object(fields))
    }
}

/// Returns a JSON text; `None` for any other value.
pub(crate) fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    let text = raw.get().starts_with('"').then(|| serde_json::from_str(raw.get()));
    text?.ok().map(|Text(text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_leniently_and_texts_without_escapes_are_borrowed() {
        let object = Object::read(
            r#"{"a":"plain é","b":"a\nb","n":7,"z":null,"p":"3","q":2.0,"o":{"a":"x"},"l":[{"a":"y"},5],"bad":-1}"#,
        )
        .unwrap();
        assert!(matches!(object.text("a"), Some(Cow::Borrowed("plain é"))));
        assert!(matches!(object.text("b"), Some(Cow::Owned(text)) if text == "a\nb"));
        assert_eq!((object.text("n"), object.text("z"), object.text("none")), (None, None, None));
        assert_eq!((object.id("n").as_deref(), object.id("a").as_deref()), (Some("7"), Some("plain é")));
        assert_eq!((object.position("p"), object.position("q"), object.position("a")), (Some(3), Some(2), None));
        assert_eq!((object.count("q"), object.count("bad"), object.count("a")), (Some(2), None, None));
        let texts = |name| object.objects(name).filter_map(|object| object.text("a")).collect::<Vec<_>>();
        assert_eq!((texts("o"), texts("l"), texts("a")), (vec!["x".into()], vec!["y".into()], vec![]));
        assert!(Object::read("[]").is_none() && Object::read("7").is_none());
    }
}
