//! Repairs tool schemas, so that model servers accept them from any host of tools.
//!
//! OpenAI and compatible servers refuse the whole request because of one schema. They refuse a root that is no
//! `object`, lacks `properties`, or has `anyOf`, `oneOf`, `allOf`, `enum`, `not` or `$ref`; an array without `items`;
//! and anything that is not JSON Schema 2020-12. Schemas of real tools have all of these faults. So each schema has two
//! forms:
//!
//! - [`sound`]: the form against which arguments are checked. It keeps the author's meaning, in the words of 2020-12.
//! - [`flat`]: the form that is sent. Alternatives at the root become one object, which allows more, never less.
//!
//! A valid schema is not changed. If a schema cannot be repaired, building its validator fails.

mod words;

use super::cost::{BY_NAME, WITH_SCHEMAS};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

type Fields = Map<String, Value>;

/// Keywords that refer to other schemas, or combine several.
const COMBINING: [&str; 7] = ["$ref", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas"];

/// Keywords that model servers refuse at the root.
const REFUSED: [&str; 7] = ["anyOf", "oneOf", "allOf", "enum", "const", "not", "$ref"];

/// Returns a schema with its author's meaning: JSON Schema 2020-12 whose root is an object.
///
/// # Errors
/// Its root cannot describe an object. The error is a predicate whose subject is the parameters.
pub(super) fn sound(schema: &Value) -> Result<Value, String> {
    let mut root = match schema {
        Value::Object(fields) => fields.clone(),
        Value::Null | Value::Bool(true) => Fields::new(),
        _ => {
            return Err("are not a JSON Schema object: without arguments send \
                        {\"type\":\"object\",\"properties\":{}}"
                .to_owned());
        }
    };
    let stated = root.get("type").and_then(Value::as_str).map(str::to_owned);
    mend_fields(&mut root, true);
    // In a property, an unknown type means anything. For the arguments as a whole, it is more likely a mistake.
    if let Some(stated) = stated.filter(|_| !root.contains_key("type")) {
        root.insert("type".to_owned(), stated.into());
    }
    // By now, everything is 2020-12.
    root.remove("$schema");
    let has_properties = root.get("properties").and_then(Value::as_object).is_some_and(|all| !all.is_empty());
    match root.get("type") {
        Some(Value::String(kind)) if kind != "object" && kind != "null" && !has_properties => {
            return Err(format!(
                "describe a value of the type `{kind}`, where a tool takes an object: make it a property"
            ));
        }
        Some(Value::Array(kinds)) if !kinds.iter().any(|kind| kind == "object") && !has_properties => {
            return Err("describe no object, which is what a tool takes: make the value a property".to_owned());
        }
        _ => {}
    }
    root.insert("type".to_owned(), "object".into());
    root.entry("properties").or_insert_with(|| json!({}));
    Ok(root.into())
}

/// Returns the form of a sound schema that is sent to models; `None` if both are the same.
pub(super) fn flat(sound: &Value) -> Option<Value> {
    let root = sound.as_object()?;
    if !REFUSED.iter().any(|keyword| root.contains_key(*keyword)) {
        return None;
    }
    let mut joined = Joined { root: sound, properties: BTreeMap::new(), description: None };
    let required = joined.join(root);
    let Joined { properties, description, .. } = joined;
    let mut flat = root.clone();
    flat.retain(|keyword, _| !REFUSED.contains(&keyword.as_str()));
    let required: Vec<Value> =
        required.into_iter().filter(|name| properties.contains_key(name)).map(Value::from).collect();
    let properties: Fields = properties.into_iter().map(|(name, schemas)| (name, any_of(schemas))).collect();
    flat.insert("properties".to_owned(), properties.into());
    flat.remove("required");
    if !required.is_empty() {
        flat.insert("required".to_owned(), required.into());
    }
    if let Some(description) = description {
        flat.entry("description").or_insert_with(|| description.into());
    }
    Some(flat.into())
}

/// The properties of a schema and of all that it combines.
struct Joined<'a> {
    root: &'a Value,
    properties: BTreeMap<String, Vec<&'a Value>>,
    description: Option<&'a str>,
}

impl<'a> Joined<'a> {
    /// Adds the properties of a schema. Returns the names that every alternative requires.
    fn join(&mut self, schema: &'a Fields) -> BTreeSet<String> {
        let mut required: BTreeSet<String> = BTreeSet::new();
        required.extend(schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(name));
        for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            self.properties.entry(name.clone()).or_default().push(property);
        }
        if self.description.is_none() {
            self.description = schema.get("description").and_then(Value::as_str);
        }
        // Every reference was already followed when the cost was computed, so this ends.
        let target = schema.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
        if let Some(Value::Object(target)) = target.and_then(|pointer| self.root.pointer(pointer)) {
            required.extend(self.join(target));
        }
        for part in branches(schema, "allOf") {
            required.extend(self.join(part));
        }
        for keyword in ["anyOf", "oneOf"] {
            let each: Vec<BTreeSet<String>> = branches(schema, keyword).map(|branch| self.join(branch)).collect();
            required.extend(each.into_iter().reduce(|all, next| &all & &next).unwrap_or_default());
        }
        required
    }
}

fn name(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// Returns the schemas in a list that may describe an object, because arguments are an object.
fn branches<'a>(schema: &'a Fields, keyword: &str) -> impl Iterator<Item = &'a Fields> + use<'a> {
    let all = schema.get(keyword).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object);
    all.filter(|branch| match branch.get("type") {
        Some(Value::String(kind)) => kind == "object",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        _ => true,
    })
}

/// Returns the schema of a property that several parts describe. It allows whatever any of them allows.
fn any_of(schemas: Vec<&Value>) -> Value {
    let mut seen = BTreeSet::new();
    let distinct: Vec<&Value> = schemas.into_iter().filter(|schema| seen.insert(schema.to_string())).collect();
    if let [only] = distinct[..] {
        return only.clone();
    }
    // If each alternative is a constant, they become one list.
    let listed: Option<Vec<Vec<Value>>> = distinct
        .iter()
        .map(|schema| match (schema.get("const"), schema.get("enum")) {
            (Some(value), _) => Some(vec![value.clone()]),
            (_, Some(Value::Array(values))) => Some(values.clone()),
            _ => None,
        })
        .collect();
    let Some(listed) = listed else { return json!({ "anyOf": distinct }) };
    let mut schema = json!({ "type": "string", "enum": listed.concat() });
    mend(&mut schema, true);
    schema
}

/// Repairs a schema. `whole` means that it stands alone, so it must name all its properties; a part of a combination
/// may require properties that another part names.
fn mend(schema: &mut Value, whole: bool) {
    match schema {
        Value::Null | Value::Bool(true) => *schema = json!({}),
        Value::String(word) => {
            *schema = words::kind(word).map_or_else(|| json!({ "description": word }), |kind| json!({ "type": kind }));
        }
        Value::Object(fields) => mend_fields(fields, whole),
        _ => {}
    }
}

fn mend_fields(fields: &mut Fields, whole: bool) {
    words::mend(fields);
    mend_type(fields);
    mend_required(fields, whole);
    mend_enum(fields);
    for keyword in ["allOf", "anyOf", "oneOf"] {
        match fields.get_mut(keyword) {
            Some(one @ Value::Object(_)) => *one = Value::Array(vec![one.take()]),
            Some(Value::Array(all)) if !all.is_empty() => {}
            Some(_) => drop(fields.remove(keyword)),
            None => {}
        }
    }
    for (keyword, field) in fields.iter_mut() {
        let keyword = keyword.as_str();
        if BY_NAME.contains(&keyword)
            && let Value::Object(named) = field
        {
            named.values_mut().for_each(|schema| mend(schema, matches!(keyword, "properties" | "patternProperties")));
        } else if WITH_SCHEMAS.contains(&keyword) {
            match field {
                Value::Array(all) => all.iter_mut().for_each(|schema| mend(schema, keyword == "prefixItems")),
                // `additionalProperties: true` is the usual form.
                Value::Bool(_) if keyword != "items" => {}
                field => mend(field, matches!(keyword, "items" | "additionalProperties")),
            }
        }
    }
    let is = |kind: &str| match fields.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(|one| one == kind),
        Some(one) => one == kind,
        None => false,
    };
    let (is_array, is_object) = (is("array"), is("object"));
    if is_array {
        fields.entry("items").or_insert_with(|| json!({}));
    }
    if is_object {
        fields.entry("properties").or_insert_with(|| json!({}));
    }
}

/// Converts `type` to the words of JSON Schema. An unknown word allows everything.
fn mend_type(fields: &mut Fields) {
    let mended = match fields.remove("type") {
        Some(Value::String(word)) => words::kind(&word).map(Value::from),
        Some(Value::Array(words)) => {
            let mut kinds: Vec<&str> = Vec::new();
            for kind in words.iter().filter_map(Value::as_str).filter_map(words::kind) {
                if !kinds.contains(&kind) {
                    kinds.push(kind);
                }
            }
            of_kinds(kinds)
        }
        _ => None,
    };
    if let Some(mended) = mended {
        fields.insert("type".to_owned(), mended);
    }
    // This is OpenAPI's keyword for a nullable type.
    if fields.remove("nullable") == Some(Value::Bool(true))
        && let Some(Value::String(kind)) = fields.get("type")
        && kind != "null"
    {
        let kinds = json!([kind, "null"]);
        fields.insert("type".to_owned(), kinds);
    }
}

fn of_kinds(kinds: Vec<&str>) -> Option<Value> {
    match kinds[..] {
        [] => None,
        [one] => Some(one.into()),
        _ => Some(kinds.into()),
    }
}

/// Makes `required` a list of existing properties.
fn mend_required(fields: &mut Fields, whole: bool) {
    // The oldest drafts mark a property as required inside its own schema.
    let mut lifted = Vec::new();
    for (name, property) in fields.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        if let Some(property) = property.as_object_mut()
            && let Some(Value::Bool(is_required)) = property.get("required")
        {
            if *is_required {
                lifted.push(name.clone());
            }
            property.remove("required");
        }
    }
    let (stated, was_empty) = match fields.remove("required") {
        Some(Value::Array(names)) => (names.iter().filter_map(name).collect(), names.is_empty()),
        Some(Value::String(name)) => (vec![name], false),
        _ => (Vec::new(), false),
    };
    let is_closed = whole && !COMBINING.iter().any(|keyword| fields.contains_key(*keyword));
    let properties = fields.get("properties").and_then(Value::as_object);
    let mut names: Vec<String> = Vec::new();
    for name in stated.into_iter().chain(lifted) {
        let exists = properties.is_some_and(|properties| properties.contains_key(&name));
        if (exists || !is_closed) && !names.contains(&name) {
            names.push(name);
        }
    }
    if !names.is_empty() || was_empty {
        fields.insert("required".to_owned(), names.into());
    }
}

/// Makes `enum` a list of values that the type allows.
fn mend_enum(fields: &mut Fields) {
    let values = match fields.remove("enum") {
        Some(Value::Array(values)) => values,
        Some(value @ (Value::String(_) | Value::Number(_) | Value::Bool(_))) => vec![value],
        _ => return,
    };
    let mut seen = BTreeSet::new();
    let values: Vec<Value> = values.into_iter().filter(|value| seen.insert(value.to_string())).collect();
    if values.is_empty() {
        return;
    }
    if fields.get("type").is_some_and(|kind| kind == "array") && !values.iter().any(Value::is_array) {
        // It describes the items, but is one level too high.
        let items = fields.entry("items").or_insert_with(|| json!({}));
        if let Value::Object(items) = items {
            items.entry("enum").or_insert_with(|| values.into());
        }
        return;
    }
    let allowed: Option<Vec<&str>> = match fields.get("type") {
        Some(Value::String(kind)) => Some(vec![kind]),
        Some(Value::Array(kinds)) => Some(kinds.iter().filter_map(Value::as_str).collect()),
        _ => None,
    };
    let fits = |value: &Value| {
        let kind = kind_of(value);
        allowed
            .as_ref()
            .is_none_or(|allowed| allowed.contains(&kind) || kind == "integer" && allowed.contains(&"number"))
    };
    if !values.iter().all(fits) {
        let mut kinds: Vec<&str> = Vec::new();
        for kind in values.iter().map(kind_of) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        if kinds.contains(&"number") {
            kinds.retain(|kind| *kind != "integer");
        }
        fields.extend(of_kinds(kinds).map(|kinds| ("type".to_owned(), kinds)));
    }
    fields.insert("enum".to_owned(), values.into());
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests;
