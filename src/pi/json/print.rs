//! Prints JSON as JavaScript does.

use super::{JsNumber, Json, Object, WHOLE_MAX};
use std::fmt::Write as _;

impl Object {
    /// Returns the members in the order in which JavaScript lists them: array indexes first, ascending.
    fn listed(&self) -> Vec<(&str, &Json)> {
        let index = |name: &str| {
            let canonical = name == "0" || (!name.starts_with('0') && name.bytes().all(|byte| byte.is_ascii_digit()));
            if canonical { name.parse::<u32>().ok().filter(|index| *index < u32::MAX) } else { None }
        };
        let mut indexed: Vec<(u32, &str, &Json)> =
            self.members().filter_map(|(name, value)| index(name).map(|at| (at, name, value))).collect();
        indexed.sort_by_key(|(at, ..)| *at);
        let others = self.members().filter(|(name, _)| index(name).is_none());
        indexed.iter().map(|(_, name, value)| (*name, *value)).chain(others).collect()
    }
}

impl Json {
    /// Returns the output of `JSON.stringify`.
    #[must_use]
    pub fn to_js_text(&self) -> String {
        let mut text = String::new();
        self.write_js(&mut text);
        text
    }

    fn write_js(&self, text: &mut String) {
        match self {
            Self::Null => text.push_str("null"),
            Self::Bool(truth) => text.push_str(if *truth { "true" } else { "false" }),
            Self::Number(number) => write_number(number, text),
            Self::Text(said) => write_text(said, text),
            Self::List(items) => {
                text.push('[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        text.push(',');
                    }
                    item.write_js(text);
                }
                text.push(']');
            }
            Self::Object(object) => {
                text.push('{');
                for (at, (name, value)) in object.listed().into_iter().enumerate() {
                    if at > 0 {
                        text.push(',');
                    }
                    write_text(name, text);
                    text.push(':');
                    value.write_js(text);
                }
                text.push('}');
            }
        }
    }

    /// Returns the members in the order in which JavaScript lists them; nothing if this is not an object.
    #[must_use]
    pub fn listed(&self) -> Vec<(&str, &Self)> {
        self.as_object().map(Object::listed).unwrap_or_default()
    }
}

fn write_text(said: &str, text: &mut String) {
    text.push('"');
    for c in said.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            c if c < ' ' => {
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text.push('"');
}

/// Prints like ECMAScript's `Number::toString`: shortest digits, exponent form from 1e21 up and below 1e-6.
fn write_number(number: &JsNumber, text: &mut String) {
    let exact = number.0.as_u64().filter(|n| *n <= WHOLE_MAX).map(|n| n.to_string());
    let exact = exact.or_else(|| number.0.as_i64().filter(|n| n.unsigned_abs() <= WHOLE_MAX).map(|n| n.to_string()));
    if let Some(exact) = exact {
        text.push_str(&exact);
        return;
    }
    let float = number.0.as_f64().unwrap_or(0.0);
    let size = float.abs();
    if float == 0.0 {
        text.push('0');
    } else if (1e-6..1e21).contains(&size) {
        let _ = write!(text, "{float}");
    } else {
        let short = format!("{float:e}");
        match short.split_once('e') {
            Some((digits, exponent)) if !exponent.starts_with('-') => {
                let _ = write!(text, "{digits}e+{exponent}");
            }
            _ => text.push_str(&short),
        }
    }
}
