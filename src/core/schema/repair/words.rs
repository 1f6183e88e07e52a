//! Translates keywords and types of older drafts, of OpenAPI and of programming languages to JSON Schema 2020-12.
//! Keywords with invalid values are removed.

use super::Fields;
use serde_json::{Value, json};

/// Keywords whose value is a text.
const TEXTS: [&str; 9] =
    ["title", "format", "pattern", "$ref", "$id", "$anchor", "$comment", "contentEncoding", "contentMediaType"];

/// Keywords whose value is a number.
const NUMBERS: [&str; 5] = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];

/// Keywords whose value is a count.
const COUNTS: [&str; 8] =
    ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains"];

/// Keywords whose value is a boolean.
const FLAGS: [&str; 4] = ["uniqueItems", "readOnly", "writeOnly", "deprecated"];

/// Keywords whose value is data, for which `null` is a value.
const DATA: [&str; 4] = ["const", "default", "example", "examples"];

/// Returns the type that a word means; `None` for an unknown word, such as `any`.
pub(super) fn kind(word: &str) -> Option<&'static str> {
    Some(match word.trim().to_ascii_lowercase().as_str() {
        "string" | "str" | "text" | "char" | "date" | "datetime" | "date-time" | "time" | "uuid" | "uri" | "url"
        | "email" | "file" | "path" => "string",
        "number" | "float" | "float32" | "float64" | "double" | "decimal" | "numeric" => "number",
        "integer" | "int" | "int32" | "int64" | "long" | "short" | "uint" | "uint32" | "uint64" => "integer",
        "boolean" | "bool" => "boolean",
        "object" | "dict" | "dictionary" | "map" | "mapping" | "record" | "struct" => "object",
        "array" | "list" | "tuple" | "set" | "sequence" => "array",
        "null" | "none" | "nil" | "undefined" | "void" => "null",
        _ => return None,
    })
}

/// Translates the keywords of one schema, but not of the schemas inside it.
pub(super) fn mend(fields: &mut Fields) {
    fields.retain(|keyword, value| !value.is_null() || DATA.contains(&keyword.as_str()));
    older_bound(fields, "exclusiveMinimum", "minimum");
    older_bound(fields, "exclusiveMaximum", "maximum");
    older_items(fields);
    older_dependencies(fields);
    if let Some(description) = fields.get_mut("description").filter(|description| !description.is_string()) {
        *description = description.to_string().into();
    }
    if let Some(examples) = fields.get_mut("examples").filter(|examples| !examples.is_array()) {
        *examples = json!([examples.take()]);
    }
    fields.retain(|keyword, value| {
        let keyword = keyword.as_str();
        if TEXTS.contains(&keyword) {
            value.is_string()
        } else if FLAGS.contains(&keyword) {
            value.is_boolean()
        } else if NUMBERS.contains(&keyword) {
            written(value);
            value.is_number() && (keyword != "multipleOf" || value.as_f64().is_some_and(|step| step > 0.0))
        } else if COUNTS.contains(&keyword) {
            written(value);
            value.as_f64().is_some_and(|count| count >= 0.0 && count.fract() == 0.0)
        } else {
            true
        }
    });
}

/// Parses a number that is written as text.
fn written(value: &mut Value) {
    if let Value::String(text) = value
        && let Ok(number @ Value::Number(_)) = serde_json::from_str(text.trim())
    {
        *value = number;
    }
}

/// Translates draft 4, where `true` marks a bound as exclusive.
fn older_bound(fields: &mut Fields, exclusive: &str, inclusive: &str) {
    if let Some(Value::Bool(is_excluded)) = fields.get(exclusive) {
        let bound = if *is_excluded { fields.remove(inclusive) } else { None };
        fields.remove(exclusive);
        fields.extend(bound.map(|bound| (exclusive.to_owned(), bound)));
    }
}

/// Translates the form before 2020-12, where `items` may list the schemas of a tuple and `additionalItems` covers the
/// rest.
fn older_items(fields: &mut Fields) {
    if matches!(fields.get("items"), Some(Value::Array(_))) {
        let tuple = fields.remove("items").unwrap_or_default();
        let rest = fields.remove("additionalItems").unwrap_or_else(|| json!({}));
        if tuple.as_array().is_some_and(|tuple| !tuple.is_empty()) {
            fields.insert("prefixItems".to_owned(), tuple);
        }
        fields.insert("items".to_owned(), rest);
    }
}

/// Translates the form before 2019-09, where `dependencies` combines names and schemas.
fn older_dependencies(fields: &mut Fields) {
    if let Some(Value::Object(all)) = fields.remove("dependencies") {
        for (name, needed) in all {
            let keyword = if needed.is_array() { "dependentRequired" } else { "dependentSchemas" };
            if let Value::Object(of_kind) = fields.entry(keyword).or_insert_with(|| json!({})) {
                of_kind.insert(name, needed);
            }
        }
    }
}
