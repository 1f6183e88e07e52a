//! Schemas as people write them, and their repaired forms.

use super::super::{Arguments, Budget};
use serde_json::{Value, json};

fn sent(schema: &Value) -> Value {
    let mut arguments = Arguments::of(schema, &mut Budget::default()).unwrap_or_else(|why| panic!("{schema}: {why}"));
    arguments.take_sent()
}

/// Returns what OpenAI's rules for a function's schema would refuse.
fn refused(schema: &Value) -> Option<String> {
    let at_root = ["oneOf", "anyOf", "allOf", "enum", "not", "$ref"];
    if schema["type"] != "object" || !schema["properties"].is_object() {
        return Some("its root is no object with properties".into());
    }
    if let Some(keyword) = at_root.into_iter().find(|keyword| schema.get(keyword).is_some()) {
        return Some(format!("{keyword} at its root"));
    }
    inside(schema)
}

fn inside(value: &Value) -> Option<String> {
    if value["type"] == "array" && value.get("items").is_none() {
        return Some(format!("an array without items: {value}"));
    }
    match value {
        Value::Object(fields) => fields.values().find_map(inside),
        Value::Array(items) => items.iter().find_map(inside),
        _ => None,
    }
}

#[test]
fn a_valid_schema_is_not_changed() {
    let person = json!({ "type": "object", "properties": { "name": { "type": "string", "minLength": 1 } }, "required": ["name"] });
    for schema in [
        json!({ "type": "object", "properties": {} }),
        json!({ "type": "object", "properties": {}, "required": [], "additionalProperties": true }),
        person.clone(),
        json!({
            "type": "object", "additionalProperties": false,
            "properties": {
                "who": { "$ref": "#/$defs/person" },
                "how": { "anyOf": [{ "type": "string" }, { "type": "null" }], "default": null },
                "many": { "type": ["array", "null"], "items": { "type": "integer", "enum": [1, 2] } },
                "rest": { "type": "object", "properties": {}, "additionalProperties": { "type": "number" } },
            },
            "required": ["who"], "$defs": { "person": person },
        }),
    ] {
        assert_eq!(sent(&schema), schema);
    }
}

#[test]
fn schemas_become_what_model_servers_take() {
    let bare = json!({ "type": "object", "properties": {} });
    let of = |property: Value| json!({ "type": "object", "properties": { "x": property } });
    for (name, schema, expected) in [
        ("none", Value::Null, bare.clone()),
        ("empty", json!({}), bare.clone()),
        ("everything", json!(true), bare.clone()),
        ("no properties", json!({ "type": "object" }), bare.clone()),
        ("null properties", json!({ "type": "object", "properties": null, "required": null }), bare.clone()),
        ("null type", json!({ "type": null, "properties": {} }), bare.clone()),
        ("a list of types", json!({ "type": ["null", "object"] }), bare.clone()),
        (
            "in capitals",
            json!({ "type": "OBJECT", "properties": { "x": { "type": "STRING" } } }),
            of(json!({ "type": "string" })),
        ),
        ("no type", json!({ "properties": { "x": { "type": "int" } } }), of(json!({ "type": "integer" }))),
        ("a wrong type", json!({ "type": "string", "properties": { "x": {} } }), of(json!({}))),
        (
            "an older draft",
            json!({ "$schema": "http://json-schema.org/draft-04/schema#", "type": "object", "properties": {
            "x": { "type": "number", "minimum": 0, "exclusiveMinimum": true } } }),
            of(json!({ "type": "number", "exclusiveMinimum": 0 })),
        ),
        ("any", of(json!({ "type": "any" })), of(json!({}))),
        ("a word", of(json!("bool")), of(json!({ "type": "boolean" }))),
        ("types", of(json!({ "type": ["str", "None", "string"] })), of(json!({ "type": ["string", "null"] }))),
        ("nullable", of(json!({ "type": "string", "nullable": true })), of(json!({ "type": ["string", "null"] }))),
        ("no items", of(json!({ "type": "array" })), of(json!({ "type": "array", "items": {} }))),
        (
            "a tuple",
            of(json!({ "type": "array", "items": [{ "type": "float" }] })),
            of(json!({ "type": "array", "prefixItems": [{ "type": "number" }], "items": {} })),
        ),
        (
            "numbers among texts",
            of(json!({ "type": "string", "enum": [1, 2, 2] })),
            of(json!({ "type": "integer", "enum": [1, 2] })),
        ),
        (
            "null among texts",
            of(json!({ "type": "string", "enum": ["a", null] })),
            of(json!({ "type": ["string", "null"], "enum": ["a", null] })),
        ),
        ("an empty list", of(json!({ "type": "string", "enum": [] })), of(json!({ "type": "string" }))),
        (
            "the items' list",
            of(json!({ "type": "array", "items": { "type": "string" }, "enum": ["a"] })),
            of(json!({ "type": "array", "items": { "type": "string", "enum": ["a"] } })),
        ),
        (
            "a bound as text",
            of(json!({ "type": "integer", "minimum": "3", "maximum": "many", "minLength": -1 })),
            of(json!({ "type": "integer", "minimum": 3 })),
        ),
        (
            "required, absent",
            json!({ "type": "object", "properties": { "x": {} }, "required": ["x", "y", "x", 4] }),
            json!({ "type": "object", "properties": { "x": {} }, "required": ["x"] }),
        ),
        (
            "required where it is described",
            of(json!({ "type": "string", "required": true })),
            json!({ "type": "object", "properties": { "x": { "type": "string" } }, "required": ["x"] }),
        ),
        ("an empty combination", json!({ "anyOf": [], "properties": { "x": { "allOf": [] } } }), of(json!({}))),
    ] {
        let made = sent(&schema);
        assert_eq!(made, expected, "{name}");
        assert_eq!(refused(&made), None, "{name}");
        assert_eq!(sent(&made), made, "{name}: repaired once more");
    }
}

#[test]
fn alternatives_at_the_root_are_sent_as_one_object_and_checked_as_they_are() {
    let text = json!({ "type": "string" });
    let either = json!({ "anyOf": [
        { "type": "object", "properties": { "city": text, "days": { "type": "integer" } }, "required": ["city", "days"] },
        { "type": "object", "properties": { "lat": { "type": "number" }, "days": { "type": "integer" } }, "required": ["lat", "days"] },
        { "type": "null" },
    ] });
    let tagged = json!({ "oneOf": [
        { "properties": { "do": { "const": "add" }, "text": text }, "required": ["do", "text"] },
        { "properties": { "do": { "const": "drop" }, "at": { "type": "integer" } }, "required": ["do"] },
    ] });
    let named = json!({ "$ref": "#/definitions/Put", "definitions": {
        "Put": { "type": "object", "description": "Puts.", "properties": { "key": { "$ref": "#/definitions/Key" } }, "required": ["key"] },
        "Key": text,
    } });
    let all = json!({ "allOf": [{ "$ref": "#/$defs/a" }, { "properties": { "b": text } }], "required": ["b"],
        "$defs": { "a": { "properties": { "a": text }, "required": ["a"] } } });
    let whole = json!({ "type": "object", "properties": { "a": text, "b": text }, "anyOf": [{ "required": ["a"] }, { "required": ["b"] }] });
    for (schema, names, required, fits, misfits) in [
        (&either, vec!["city", "days", "lat"], json!(["days"]), json!({ "lat": 1, "days": 2 }), json!({ "days": 2 })),
        (&tagged, vec!["at", "do", "text"], json!(["do"]), json!({ "do": "drop" }), json!({ "do": "add" })),
        (&named, vec!["key"], json!(["key"]), json!({ "key": "k" }), json!({ "key": 1 })),
        (&all, vec!["a", "b"], json!(["a", "b"]), json!({ "a": "1", "b": "2" }), json!({ "b": "2" })),
        (&whole, vec!["a", "b"], Value::Null, json!({ "a": "1" }), json!({})),
        (&json!({ "not": { "required": ["x"] } }), vec![], Value::Null, json!({}), json!({ "x": 1 })),
    ] {
        let arguments = Arguments::of(schema, &mut Budget::default()).unwrap();
        assert_eq!(arguments.check(&fits, 20), Ok(()), "{schema}");
        assert!(arguments.check(&misfits, 20).is_err(), "{schema}");
        let made = sent(schema);
        assert_eq!(refused(&made), None, "{made}");
        assert_eq!(made["properties"].as_object().unwrap().keys().collect::<Vec<_>>(), names, "{made}");
        assert_eq!(made["required"], required, "{made}");
        let loose = Arguments::of(&made, &mut Budget::default()).unwrap();
        assert_eq!(loose.check(&fits, 20), Ok(()), "{made}");
        assert_eq!(sent(&made), made, "repaired once more");
    }
    assert_eq!(sent(&tagged)["properties"]["do"], json!({ "type": "string", "enum": ["add", "drop"] }));
    assert_eq!(sent(&named)["description"], "Puts.");
}

#[test]
fn a_schema_that_cannot_be_repaired_is_refused_with_advice() {
    for (schema, told) in [
        (json!("object"), "send {\"type\":\"object\""),
        (json!([]), "send {\"type\":\"object\""),
        (json!({ "type": "array", "items": {} }), "make it a property"),
        (json!({ "type": "nonsense" }), "make it a property"),
        (json!({ "type": ["string", "null"] }), "make the value a property"),
        (
            json!({ "properties": { "a": { "$ref": "https://example.org/a.json" } } }),
            "put the definition below `$defs`",
        ),
        (json!({ "properties": ["a"] }), "at `/properties`"),
        (
            json!({ "anyOf": [{ "properties": { "a": {}, "b": { "$ref": "#/anyOf/0/properties/a" } } }] }),
            "below `$defs`",
        ),
    ] {
        let why = Arguments::of(&schema, &mut Budget::default()).unwrap_err();
        assert!(why.contains(told), "{schema}: {why}");
    }
}
