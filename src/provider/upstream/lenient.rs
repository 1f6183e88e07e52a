//! Lenient JSON decoding, because servers disagree. A field that is null or has another type counts as absent. Unknown
//! fields are skipped. Text without escapes is borrowed from the event.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Text, borrowed from the event if possible. (`Option<Cow<str>>` would always copy.)
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub(crate) struct Text<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

impl Text<'_> {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Reads a field if it has the expected type; otherwise it counts as absent.
pub(crate) fn lax<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let raw = <&RawValue>::deserialize(deserializer)?;
    Ok(serde_json::from_str(raw.get()).ok())
}

/// A name, such as an id. Some servers write numbers.
#[derive(Debug, Clone)]
pub(crate) struct Name<'a>(Cow<'a, str>);

impl Name<'_> {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?.get();
        if raw.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
            return Ok(Self(Cow::Borrowed(raw)));
        }
        serde_json::from_str::<Text<'de>>(raw).map(|text| Self(text.0)).map_err(serde::de::Error::custom)
    }
}

/// A position in a list. Some servers write it as a string or with a decimal point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position(pub(crate) u64);

impl<'de> Deserialize<'de> for Position {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?.get();
        let number = raw.trim_matches('"').trim();
        let number = number.strip_suffix(".0").unwrap_or(number);
        number.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

/// One value or a list of them.
#[derive(Debug)]
pub(crate) struct Many<T>(pub(crate) Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Many<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?.get();
        let read = match raw.starts_with('[') {
            true => serde_json::from_str::<Vec<&RawValue>>(raw)
                .map(|items| items.iter().filter_map(|item| serde_json::from_str(item.get()).ok()).collect()),
            false => serde_json::from_str(raw).map(|one| vec![one]),
        };
        read.map(Self).map_err(serde::de::Error::custom)
    }
}

/// A token count. Some servers write it with a decimal point.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Count(pub(crate) u64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(deserializer)?;
        // This limit is far beyond any window, and exact in a double.
        if (0.0..=1e15).contains(&number) { Ok(Self(number as u64)) } else { Err(serde::de::Error::custom("no count")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_without_escapes_are_borrowed() {
        let borrowed = |json| matches!(serde_json::from_str::<Text>(json).unwrap().0, Cow::Borrowed(_));
        assert!(borrowed(r#""plain é""#));
        assert!(!borrowed(r#""a\nb""#));
    }
}
