//! The AsyncAPI document: what version 3 requires is there, every reference leads somewhere, every message is sent or
//! received, and its examples fit its schema.
//!
//! `tests/clients/run` passes it to AsyncAPI's own parser.

#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

use reseed_protocol_codegen as codegen;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const SCHEMA: &str = "./reseed.v2.schema.json#";

fn document() -> Value {
    let files = codegen::files();
    let (_, text) = files.iter().find(|(name, _)| name == "schema/reseed.asyncapi.json").unwrap();
    serde_json::from_str(text).unwrap()
}

/// Calls `see` with every object of a value.
fn walk(value: &Value, see: &mut impl FnMut(&serde_json::Map<String, Value>)) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| walk(item, see)),
        Value::Object(object) => {
            see(object);
            // The frames in examples are not part of the document's structure.
            object.iter().filter(|(key, _)| *key != "examples").for_each(|(_, value)| walk(value, see));
        }
        _ => {}
    }
}

fn names(value: &Value) -> BTreeSet<String> {
    value.as_object().unwrap().keys().cloned().collect()
}

#[test]
fn the_document_has_what_version_3_requires() {
    let document = document();
    let version = document["asyncapi"].as_str();
    assert_eq!(version, Some("3.0.0"));
    let required: [(&str, &[&str]); 5] = [
        ("/info", &["title", "version"]),
        ("/servers/*", &["host", "protocol"]),
        ("/channels/*", &["address", "messages"]),
        ("/operations/*", &["action", "channel"]),
        ("/components/securitySchemes/*", &["type"]),
    ];
    for (place, fields) in required {
        let (of, every) = place.strip_suffix("/*").map_or((place, false), |of| (of, true));
        let found = document.pointer(of).unwrap();
        let objects = if every { found.as_object().unwrap().values().collect() } else { vec![found] };
        assert!(!objects.is_empty(), "{place}");
        for object in objects {
            fields.iter().for_each(|field| assert!(object.get(field).is_some(), "{place} lacks `{field}`: {object}"));
        }
    }
    for operation in document["operations"].as_object().unwrap().values() {
        assert!(["send", "receive"].contains(&operation["action"].as_str().unwrap()), "{operation}");
    }
}

#[test]
fn every_reference_leads_somewhere() {
    let (document, schema) = (document(), codegen::v2().schema);
    let mut seen = 0;
    walk(&document, &mut |object| {
        let Some(reference) = object.get("$ref").and_then(Value::as_str) else { return };
        let found = match reference.strip_prefix(SCHEMA) {
            Some(pointer) => schema.pointer(pointer),
            None => document.pointer(reference.strip_prefix('#').unwrap()),
        };
        assert!(found.is_some(), "{reference} leads nowhere");
        assert_eq!(object.len(), 1, "what stands beside {reference} is ignored");
        seen += 1;
    });
    assert!(seen > 200, "only {seen} references were found");
}

#[test]
fn every_message_is_on_the_channel_and_part_of_an_operation() {
    let document = document();
    let mut used = BTreeSet::new();
    walk(&document["operations"], &mut |object| {
        let Some(reference) = object.get("$ref").and_then(Value::as_str) else { return };
        used.extend(reference.strip_prefix("#/channels/socket/messages/").map(str::to_owned));
    });
    let declared = names(&document["components"]["messages"]);
    assert_eq!((&used, &names(&document["channels"]["socket"]["messages"])), (&declared, &declared));
}

#[test]
fn every_message_has_an_example_that_fits_its_schema() {
    let (document, schema) = (document(), codegen::v2().schema);
    for (name, message) in document["components"]["messages"].as_object().unwrap() {
        let definition = message["payload"]["$ref"].as_str().unwrap().strip_prefix("./reseed.v2.schema.json").unwrap();
        let validator = jsonschema::validator_for(&json!({ "$ref": definition, "$defs": schema["$defs"] })).unwrap();
        let examples = message["examples"].as_array().unwrap_or_else(|| panic!("{name} has no example"));
        assert!(examples.iter().all(|example| validator.is_valid(&example["payload"])), "{name}");
    }
}
