//! Limits on tool schemas, so that validating a call's arguments always ends quickly.
//!
//! A validator follows references wherever they occur: two in each of twenty definitions are a million steps, a long
//! chain is a deep stack, and a recursive definition may never end. This module computes the expanded size of a schema
//! beforehand and rejects what is too large, too deep or endless.

use serde_json::Value;
use std::collections::BTreeMap;

/// Maximum values in a schema with every reference expanded. The largest published tool schemas have a few thousand.
const UNFOLDED_MAX: u64 = 20_000;

/// Maximum length of a chain of references.
const CHAIN_MAX: usize = 32;

/// Maximum bytes of a schema: it is sent with every request.
const SCHEMA_BYTES_MAX: usize = 64 * 1024;

/// Checks that a tool's schema is a small object without endless references, and builds the validator for arguments.
///
/// # Errors
/// What is wrong, for the sender of the schema: a predicate whose subject, the parameters, the caller supplies.
pub(crate) fn arguments_of(schema: &Value) -> Result<jsonschema::Validator, String> {
    if !schema.is_object() {
        return Err("are not a JSON Schema object".to_owned());
    }
    check_schema(schema)?;
    jsonschema::validator_for(schema)
        .map_err(|error| format!("are not a valid JSON Schema, at `{}`", error.instance_path()))
}

/// Checks that a schema is small and that its references end.
fn check_schema(schema: &Value) -> Result<(), String> {
    let bytes = schema.to_string().len();
    if bytes > SCHEMA_BYTES_MAX {
        return Err(format!("have {bytes} bytes, more than the maximum of {SCHEMA_BYTES_MAX}"));
    }
    let mut unfolding = Unfolding { schema, sizes: BTreeMap::new(), open: Vec::new() };
    let size = unfolding.size(schema)?;
    if size > UNFOLDED_MAX {
        return Err(format!(
            "have {size} values with every reference expanded, more than the maximum of {UNFOLDED_MAX}"
        ));
    }
    Ok(())
}

struct Unfolding<'a> {
    schema: &'a Value,
    /// Sizes of the definitions expanded so far.
    sizes: BTreeMap<&'a str, u64>,
    /// References being expanded, outermost first.
    open: Vec<&'a str>,
}

impl<'a> Unfolding<'a> {
    fn size(&mut self, value: &'a Value) -> Result<u64, String> {
        let mut size: u64 = 1;
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    match (name.as_str(), field) {
                        ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(reference)) => {
                            size = size.saturating_add(self.reference(reference)?);
                        }
                        // Counted where they are referenced.
                        ("$defs" | "definitions", _) => {}
                        _ => size = size.saturating_add(self.size(field)?),
                    }
                }
            }
            Value::Array(items) => {
                for item in items {
                    size = size.saturating_add(self.size(item)?);
                }
            }
            _ => {}
        }
        Ok(size)
    }

    fn reference(&mut self, reference: &'a str) -> Result<u64, String> {
        if let Some(size) = self.sizes.get(reference) {
            return Ok(*size);
        }
        let shown: String = reference.chars().take(80).collect();
        if self.open.contains(&reference) {
            return Err(format!("have a recursive definition, `{shown}`; expand it to the depth that you need"));
        }
        if self.open.len() >= CHAIN_MAX {
            return Err(format!("have a chain of more than {CHAIN_MAX} references, at `{shown}`"));
        }
        let place = reference.strip_prefix('#').and_then(|pointer| self.schema.pointer(pointer));
        let Some(definition) = place else {
            return Err(format!("reference `{shown}`, which they do not contain"));
        };
        self.open.push(reference);
        let size = self.size(definition)?;
        self.open.pop();
        self.sizes.insert(reference, size);
        Ok(size)
    }
}

#[cfg(test)]
mod tests {
    use super::check_schema;
    use serde_json::{Map, Value, json};

    /// Builds `count` definitions, each made of `width` references to the next.
    fn chain(count: usize, width: usize) -> Value {
        let mut defs = Map::new();
        for at in 0..count {
            let next = json!({ "$ref": format!("#/$defs/d{}", at + 1) });
            defs.insert(format!("d{at}"), json!({ "allOf": vec![next; width] }));
        }
        defs.insert(format!("d{count}"), json!({ "type": "string" }));
        json!({ "type": "object", "properties": { "x": { "$ref": "#/$defs/d0" } }, "$defs": defs })
    }

    #[test]
    fn a_schema_is_small_and_ends() {
        let table = [
            ("plain", json!({ "type": "object", "properties": { "at": { "type": "string" } } }), true),
            ("a short chain", chain(8, 1), true),
            ("a long chain", chain(40, 1), false),
            ("doubling", chain(16, 2), false),
            (
                "endless",
                json!({ "$defs": { "a": { "allOf": [{ "$ref": "#/$defs/a" }] } }, "$ref": "#/$defs/a" }),
                false,
            ),
            ("elsewhere", json!({ "$ref": "https://example.com/schema.json" }), false),
            ("nowhere", json!({ "$ref": "#/$defs/nothing" }), false),
            ("large", json!({ "description": "x".repeat(70_000) }), false),
        ];
        for (name, schema, fine) in table {
            let checked = check_schema(&schema);
            assert_eq!(checked.is_ok(), fine, "{name}: {checked:?}");
        }
    }
}
