//! JSON as JavaScript stores and prints it: members in insertion order, printed with integer-like names first; numbers
//! printed as 64-bit floats.
//!
//! Equality is JSON equality: the order of members does not matter, and 1 equals 1.0.

mod print;
mod serial;

use serde_json::Number;

/// The largest integer up to which a 64-bit float represents every integer exactly.
const WHOLE_MAX: u64 = 1 << 53;

/// Above this many members, objects are compared by sorting instead of searching.
const SEARCHED_MEMBERS_MAX: usize = 32;

/// A JSON value.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Json {
    /// `null`.
    #[default]
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as it was written.
    Number(JsNumber),
    /// A text.
    Text(String),
    /// An array.
    List(Vec<Json>),
    /// An object.
    Object(Object),
}

/// A number that compares as JavaScript compares numbers.
#[derive(Debug, Clone)]
pub struct JsNumber(Number);

impl PartialEq for JsNumber {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0 || self.0.as_f64() == other.0.as_f64()
    }
}

/// The members of an object in insertion order. If a name occurs twice, the later value wins.
#[derive(Debug, Clone, Default)]
pub struct Object(Vec<(String, Json)>);

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        if self.0.len() != other.0.len() {
            return false;
        }
        if self.0.len() <= SEARCHED_MEMBERS_MAX {
            return self.0.iter().all(|(name, value)| other.get(name) == Some(value));
        }
        let sorted = |object: &Self| {
            let mut members: Vec<usize> = (0..object.0.len()).collect();
            members.sort_by(|a, b| object.0[*a].0.cmp(&object.0[*b].0));
            members
        };
        sorted(self).into_iter().zip(sorted(other)).all(|(a, b)| self.0[a] == other.0[b])
    }
}

impl Object {
    /// Creates an object with these members.
    #[must_use]
    pub fn of<const N: usize>(members: [(&str, Json); N]) -> Self {
        Self(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Returns a member's value.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Json> {
        self.0.iter().find(|(member, _)| member == name).map(|(_, value)| value)
    }

    /// Returns a member's value for modification.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Json> {
        self.0.iter_mut().find(|(member, _)| member == name).map(|(_, value)| value)
    }

    /// Returns a member's text; `None` if it is missing or not text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_text()
    }

    /// Sets a member in place, or appends it.
    pub fn set(&mut self, name: &str, value: impl Into<Json>) {
        let value = value.into();
        match self.get_mut(name) {
            Some(place) => *place = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    /// Sets a member if there is a value.
    pub fn set_some(&mut self, name: &str, value: Option<impl Into<Json>>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }

    /// Removes a member.
    pub fn remove(&mut self, name: &str) -> Option<Json> {
        let at = self.0.iter().position(|(member, _)| member == name)?;
        Some(self.0.remove(at).1)
    }

    /// Iterates over the members in order.
    pub fn members(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Returns true if there are no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Converts to a serde_json map, which sorts the members.
    #[must_use]
    pub fn to_map(&self) -> serde_json::Map<String, serde_json::Value> {
        self.0.iter().map(|(name, value)| (name.clone(), value.to_value())).collect()
    }
}

impl Json {
    /// Creates an object with these members.
    #[must_use]
    pub fn object<const N: usize>(members: [(&str, Self); N]) -> Self {
        Self::Object(Object::of(members))
    }

    /// Returns the text if this is a text.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// Returns the object if this is an object.
    #[must_use]
    pub fn as_object(&self) -> Option<&Object> {
        if let Self::Object(object) = self { Some(object) } else { None }
    }

    /// Returns the items if this is a list.
    #[must_use]
    pub fn as_list(&self) -> Option<&[Self]> {
        if let Self::List(items) = self { Some(items) } else { None }
    }

    /// Returns the number if this is a number.
    #[must_use]
    pub fn as_f64(&self) -> Option<f64> {
        if let Self::Number(number) = self { number.0.as_f64() } else { None }
    }

    /// Returns the number if it is a non-negative integer.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        let Self::Number(number) = self else { return None };
        number.0.as_u64().or_else(|| {
            #[expect(clippy::cast_precision_loss, reason = "2^53 is exact")]
            let whole = number.0.as_f64().filter(|n| n.fract() == 0.0 && (0.0..=WHOLE_MAX as f64).contains(n))?;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole and within bounds")]
            Some(whole as u64)
        })
    }

    /// Returns the value of `true` or `false`.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(truth) = self { Some(*truth) } else { None }
    }

    /// Returns a member's value; `None` if it is missing or this is not an object.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Self> {
        self.as_object()?.get(name)
    }

    /// Returns a member's text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_text()
    }

    /// Converts to a serde_json value.
    #[must_use]
    pub fn to_value(&self) -> serde_json::Value {
        match self {
            Self::Null => serde_json::Value::Null,
            Self::Bool(truth) => (*truth).into(),
            Self::Number(number) => serde_json::Value::Number(number.0.clone()),
            Self::Text(text) => text.clone().into(),
            Self::List(items) => items.iter().map(Self::to_value).collect(),
            Self::Object(object) => serde_json::Value::Object(object.to_map()),
        }
    }
}

impl From<&serde_json::Value> for Json {
    fn from(value: &serde_json::Value) -> Self {
        match value {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(truth) => Self::Bool(*truth),
            serde_json::Value::Number(number) => Self::Number(JsNumber(number.clone())),
            serde_json::Value::String(text) => Self::Text(text.clone()),
            serde_json::Value::Array(items) => Self::List(items.iter().map(Self::from).collect()),
            serde_json::Value::Object(map) => Self::Object(Object::from(map)),
        }
    }
}

impl From<&serde_json::Map<String, serde_json::Value>> for Object {
    fn from(map: &serde_json::Map<String, serde_json::Value>) -> Self {
        Self(map.iter().map(|(name, value)| (name.clone(), Json::from(value))).collect())
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<bool> for Json {
    fn from(truth: bool) -> Self {
        Self::Bool(truth)
    }
}

impl From<u64> for Json {
    fn from(number: u64) -> Self {
        Self::Number(JsNumber(number.into()))
    }
}

impl From<i64> for Json {
    fn from(number: i64) -> Self {
        Self::Number(JsNumber(number.into()))
    }
}

impl From<Object> for Json {
    fn from(object: Object) -> Self {
        Self::Object(object)
    }
}

impl From<Vec<Json>> for Json {
    fn from(items: Vec<Json>) -> Self {
        Self::List(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Json {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn values_print_as_in_javascript() {
        for (written, printed) in [
            (r#"{"b":1,"a":[1.0,2.50,true,null]}"#, r#"{"b":1,"a":[1,2.5,true,null]}"#),
            (r#"{"x":1,"10":2,"9":3,"01":4,"-1":5}"#, r#"{"9":3,"10":2,"x":1,"01":4,"-1":5}"#),
            (r#"{"a":1,"b":2,"a":3}"#, r#"{"a":3,"b":2}"#),
            (r#""\u0001\b\f\n\r\t\"\\\/\u00e9\u2028""#, "\"\\u0001\\b\\f\\n\\r\\t\\\"\\\\/é\u{2028}\""),
            ("1e21", "1e+21"),
            ("123456789012345680000", "123456789012345680000"),
            ("1e-7", "1e-7"),
            ("0.000001", "0.000001"),
            ("-0.0", "0"),
            ("-5", "-5"),
            ("9007199254740993", "9007199254740992"),
            ("1.5e300", "1.5e+300"),
        ] {
            assert_eq!(read(written).to_js_text(), printed, "{written}");
        }
    }

    #[test]
    fn equal_json_is_equal() {
        assert_eq!(read(r#"{"a":1,"b":[2]}"#), read(r#"{"b":[2.0],"a":1.0}"#));
        assert_ne!(read(r#"{"a":1}"#), read(r#"{"a":1,"b":null}"#));
        assert_ne!(read("[1,2]"), read("[2,1]"));
        let many = |reversed: bool| {
            let mut members: Vec<String> = (0..100).map(|n| format!("\"k{n}\":{n}")).collect();
            if reversed {
                members.reverse();
            }
            read(&format!("{{{}}}", members.join(",")))
        };
        assert_eq!(many(false), many(true));
        assert_eq!(many(true).get("k99").and_then(Json::as_u64), Some(99));
    }
}
