//! The scan of a whole frame, whatever it contains, before it is parsed.

use super::depth::DEPTH_MAX;
use crate::error::{ErrorBody, ErrorCode};
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use std::{collections::HashSet, fmt};

/// Scans the whole text once: valid JSON, an object, no duplicate keys in an object, not nested deeper than
/// [`DEPTH_MAX`]. The JSON reader refuses lone surrogates, because UTF-8 cannot represent them.
///
/// # Errors
/// The first of these rules that is violated.
pub fn check(text: &str) -> Result<(), ErrorBody> {
    if !text.trim_start_matches([' ', '\t', '\r', '\n']).starts_with('{') {
        return match serde_json::from_str::<serde::de::IgnoredAny>(text) {
            Ok(_) => {
                Err(ErrorBody::new(ErrorCode::InvalidFrame, "a frame is a JSON object, this is another JSON value"))
            }
            Err(error) => Err(not_json(&error)),
        };
    }
    let mut fault = None;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let walked = Walk { depth: 0, fault: &mut fault }.deserialize(&mut deserializer).and_then(|()| deserializer.end());
    match (fault, walked) {
        (Some(error), _) => Err(error),
        (None, Err(error)) => Err(not_json(&error)),
        (None, Ok(())) => Ok(()),
    }
}

fn not_json(error: &serde_json::Error) -> ErrorBody {
    let message = error.to_string();
    if message.contains("recursion limit") {
        return too_deep();
    }
    ErrorBody::new(ErrorCode::InvalidJson, format!("not JSON: {message}"))
}

fn too_deep() -> ErrorBody {
    ErrorBody::new(ErrorCode::TooDeep, format!("arrays and objects are nested more than {DEPTH_MAX} deep"))
}

struct Walk<'f> {
    depth: usize,
    fault: &'f mut Option<ErrorBody>,
}

impl Walk<'_> {
    fn deeper<E: serde::de::Error>(&mut self) -> Result<Walk<'_>, E> {
        if self.depth >= DEPTH_MAX {
            return Err(self.fail(too_deep()));
        }
        Ok(Walk { depth: self.depth + 1, fault: self.fault })
    }

    fn fail<E: serde::de::Error>(&mut self, error: ErrorBody) -> E {
        let message = E::custom(&error.message);
        self.fault.get_or_insert(error);
        message
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();
    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        loop {
            let inner = self.deeper()?;
            if seq.next_element_seed(inner)?.is_none() {
                return Ok(());
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let mut keys: HashSet<String> = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if keys.contains(&key) {
                let shown = super::payload::clip(&key);
                let error =
                    ErrorBody::new(ErrorCode::DuplicateKey, format!("the key `{shown}` stands twice in one object"));
                return Err(self.fail(error.with_field(shown)));
            }
            keys.insert(key);
            let inner = self.deeper()?;
            map.next_value_seed(inner)?;
        }
        Ok(())
    }
}
