//! JSON Schema of whole frames, one definition per message.
//!
//! Invariants: what a v2 client sends is closed (`additionalProperties: false`), what the server sends and everything
//! in v1 is open; an optional field that a client sends may be null, which counts as absent, and one that the server
//! sends is never null; every definition is reachable from the root.

use super::{Dialect, Kind, Message, NOTICE};
use reseed_protocol::{
    command::{self, Address},
    event::{EphemeralEvent, Event},
    reply::Reply,
    v1,
};
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

const ID_PATTERN: &str = "^[A-Za-z0-9._:-]{1,64}$";
const WRITING_ID_PATTERN: &str = "^[A-Za-z0-9._:-]{16,64}$";

pub(crate) fn v1() -> Dialect {
    let mut document = Document::new("reseed, the older dialect (v1)");
    document.add(Side::Client, |schemas| vec![(Kind::Command, variants::<v1::Command>(schemas))]);
    document.add(Side::Server, |schemas| vec![(Kind::Event, variants::<v1::Event>(schemas))]);
    document.finish()
}

pub(crate) fn v2() -> Dialect {
    let mut document = Document::new("reseed, v2");
    document.closed = true;
    document.add(Side::Client, |schemas| vec![(Kind::Command, variants::<command::Command>(schemas))]);
    document.add(Side::Server, |schemas| {
        vec![
            (Kind::Reply, variants::<Reply>(schemas)),
            (Kind::DurableEvent, variants::<Event>(schemas)),
            (Kind::Event, variants::<EphemeralEvent>(schemas)),
        ]
    });
    document.finish()
}

/// The side that writes a frame, which decides whether the schema describes reading or writing.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Client,
    Server,
}

struct Document {
    title: &'static str,
    /// True if unknown fields of a command are refused.
    closed: bool,
    definitions: BTreeMap<String, Value>,
    unions: BTreeMap<&'static str, Vec<Value>>,
    messages: Vec<Message>,
}

impl Document {
    fn new(title: &'static str) -> Self {
        Self { title, closed: false, definitions: BTreeMap::new(), unions: BTreeMap::new(), messages: Vec::new() }
    }

    /// Adds everything that one side writes: each variant of an enum of messages becomes a frame.
    fn add(&mut self, side: Side, messages: impl FnOnce(&mut SchemaGenerator) -> Vec<(Kind, Vec<Value>)>) {
        let settings = SchemaSettings::draft2020_12();
        let settings = if side == Side::Server { settings.for_serialize() } else { settings };
        let mut generator = settings.into_generator();
        let messages = messages(&mut generator);
        let definitions = generator.take_definitions(true);
        let renamed = self.merge(side, definitions.into_iter().collect());
        for (kind, variants) in messages {
            for mut variant in variants {
                rename_references(&mut variant, &renamed);
                self.add_frame(kind, &variant);
            }
        }
    }

    /// Merges the definitions. If the other side has a different one with the same name, this one is renamed: what is
    /// closed for a client that writes it is open for one that reads it.
    fn merge(&mut self, side: Side, mut definitions: BTreeMap<String, Value>) -> BTreeMap<String, String> {
        let mut renamed = BTreeMap::new();
        for (name, definition) in &mut definitions {
            tidy(definition, side == Side::Server);
            if self.definitions.get(name).is_some_and(|known| known != definition) {
                renamed.insert(name.clone(), format!("{name}Received"));
            }
        }
        for (name, mut definition) in definitions {
            rename_references(&mut definition, &renamed);
            self.definitions.insert(renamed.get(&name).cloned().unwrap_or(name), definition);
        }
        renamed
    }

    fn add_frame(&mut self, kind: Kind, variant: &Value) {
        let name =
            variant["properties"]["type"]["const"].as_str().expect("a variant has its tag as constant").to_owned();
        let description = variant["description"].as_str().unwrap_or_default().to_owned();
        let payload = variant["properties"].get("payload").cloned();
        let mut properties = Map::new();
        let mut required = vec!["type"];
        self.add_envelope(kind, &name, &mut properties, &mut required);
        let others: Vec<&str> = match kind {
            Kind::Command if self.closed => {
                command::OTHER_NAMES.into_iter().filter(|(_, of)| *of == name).map(|(other, _)| other).collect()
            }
            _ => Vec::new(),
        };
        let tag = if others.is_empty() {
            json!({ "const": name })
        } else {
            let names: Vec<&str> = std::iter::once(name.as_str()).chain(others).collect();
            json!({ "enum": names })
        };
        properties.insert("type".to_owned(), tag);
        if let Some(payload) = payload {
            let may_be_absent = kind == Kind::Command && !self.requires_something(&payload);
            properties.insert("payload".to_owned(), payload);
            if !may_be_absent {
                required.push("payload");
            }
        } else if kind == Kind::Command {
            properties.insert("payload".to_owned(), json!({ "description": "Ignored." }));
        }
        if kind == Kind::DurableEvent {
            let seq = json!({ "type": "integer", "minimum": 1, "description": "Its place in the session's log." });
            properties.insert("seq".to_owned(), seq);
            required.push("seq");
        }
        let mut frame = json!({
            "type": "object",
            "description": description,
            "properties": properties,
            "required": required,
        });
        if kind == Kind::Command && self.closed {
            frame["additionalProperties"] = json!(false);
            if command::Command::spec_of(&name).is_some_and(|spec| spec.does == command::Does::Creates) {
                // It creates a session unless it names one.
                frame["anyOf"] = json!([
                    { "required": ["sessionId"] },
                    { "properties": { "id": { "pattern": WRITING_ID_PATTERN } } },
                ]);
            }
        }
        let (folder, union) = match kind {
            Kind::Command => ("command", "CommandFrame"),
            Kind::Reply => ("reply", "ReplyFrame"),
            Kind::DurableEvent => ("event", "DurableFrame"),
            Kind::Event if self.closed => ("event", "EphemeralFrame"),
            Kind::Event => ("event", "EventFrame"),
        };
        let key = format!("{folder}.{name}");
        self.unions.entry(union).or_default().push(json!({ "$ref": format!("#/$defs/{key}") }));
        self.definitions.insert(key, frame);
        self.messages.push(Message { kind, name, description });
    }

    /// Adds the fields beside `type` and `payload`, except `seq`.
    fn add_envelope(
        &self,
        kind: Kind,
        name: &str,
        properties: &mut Map<String, Value>,
        required: &mut Vec<&'static str>,
    ) {
        let session = || {
            let says = "The session that the frame is about.";
            json!({ "type": "string", "pattern": ID_PATTERN, "description": says })
        };
        let mut add = |field: &'static str, schema: Value, must: bool| {
            properties.insert(field.to_owned(), schema);
            if must {
                required.insert(0, field);
            }
        };
        match kind {
            _ if !self.closed => {
                let says = match kind {
                    Kind::Command => "The client's own.",
                    _ => "The command's; the server's own where there is none to answer.",
                };
                let id = match kind {
                    Kind::Command => json!({
                        "type": "string", "pattern": ID_PATTERN, "not": { "pattern": "^s_" }, "description": says,
                    }),
                    _ => json!({ "type": "string", "description": says }),
                };
                add("id", id, true);
            }
            Kind::Command => {
                let spec = command::Command::spec_of(name).expect("every command has a row");
                let (pattern, says) = match spec.does.writes() {
                    true => (WRITING_ID_PATTERN, "The client's own; the key under which the command is done once."),
                    false => (ID_PATTERN, "The client's own; the reply carries it as `re`."),
                };
                let id =
                    json!({ "type": "string", "pattern": pattern, "not": { "pattern": "^s_" }, "description": says });
                if spec.address != Address::None {
                    add("sessionId", session(), spec.address == Address::Required);
                }
                add("id", id, true);
            }
            Kind::Reply => {
                add("sessionId", session(), false);
                // An error without it is about the connection.
                let says = "The `id` of the command that this answers.";
                add("re", json!({ "type": "string", "pattern": ID_PATTERN, "description": says }), name != "error");
            }
            Kind::DurableEvent => add("sessionId", session(), true),
            Kind::Event => {
                if !matches!(name, "session_changed" | "token_expiring") {
                    add("sessionId", session(), true);
                }
                // This tells an event from a reply.
                add("re", json!(false), false);
                add("seq", json!(false), false);
            }
        }
    }

    fn requires_something(&self, payload: &Value) -> bool {
        let definition = payload["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/"));
        let definition = definition.and_then(|name| self.definitions.get(name)).unwrap_or(payload);
        definition["required"].as_array().is_some_and(|required| !required.is_empty())
    }

    fn finish(mut self) -> Dialect {
        let union = |names: &[&str]| -> Vec<Value> {
            names.iter().map(|name| json!({ "$ref": format!("#/$defs/{name}") })).collect()
        };
        let mut server = Vec::new();
        for (name, members) in std::mem::take(&mut self.unions) {
            if name != "CommandFrame" {
                server.push(name);
            }
            self.definitions.insert(name.to_owned(), json!({ "oneOf": members }));
        }
        self.definitions.insert("ServerFrame".to_owned(), json!({ "anyOf": union(&server) }));
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$comment": NOTICE,
            "title": self.title,
            "description": "One text frame, in either direction. `CommandFrame` and `ServerFrame` tell the directions apart.",
            "anyOf": union(&["CommandFrame", "ServerFrame"]),
            "$defs": self.definitions,
        });
        Dialect { schema, messages: self.messages }
    }
}

/// Returns the variants of an enum as schemas; their payloads become definitions of `generator`.
fn variants<T: JsonSchema>(generator: &mut SchemaGenerator) -> Vec<Value> {
    let schema = T::json_schema(generator).to_value();
    schema["oneOf"].as_array().expect("an enum of messages has a schema per variant").clone()
}

/// Removes what applies to Rust but not to JSON: names of integer types, and in what the server writes `null` for
/// absent. What the server writes is also open, whatever the type says about reading it.
fn tidy(schema: &mut Value, is_written: bool) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(|item| tidy(item, is_written)),
        Value::Object(object) => {
            if object.get("format").and_then(Value::as_str).is_some_and(|f| f.starts_with("uint") || f == "double") {
                object.remove("format");
            }
            if is_written && object.get("additionalProperties") == Some(&Value::Bool(false)) {
                object.remove("additionalProperties");
            }
            if is_written {
                let required: Vec<String> = object
                    .get("required")
                    .and_then(Value::as_array)
                    .map(|names| names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect())
                    .unwrap_or_default();
                if let Some(Value::Object(properties)) = object.get_mut("properties") {
                    let optional = properties.iter_mut().filter(|(name, _)| !required.contains(name));
                    optional.for_each(|(_, property)| without_null(property));
                }
            }
            object.values_mut().for_each(|value| tidy(value, is_written));
        }
        _ => {}
    }
}

fn without_null(property: &mut Value) {
    let Value::Object(object) = property else { return };
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            object.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(any)) = object.get_mut("anyOf") {
        any.retain(|schema| schema["type"] != "null");
        if let [Value::Object(only)] = any.as_slice() {
            let only = only.clone();
            object.remove("anyOf");
            object.extend(only);
        }
    }
}

fn rename_references(schema: &mut Value, renamed: &BTreeMap<String, String>) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(|item| rename_references(item, renamed)),
        Value::Object(object) => {
            let name = object.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix("#/$defs/"));
            if let Some(new) = name.and_then(|name| renamed.get(name)) {
                object.insert("$ref".to_owned(), json!(format!("#/$defs/{new}")));
            }
            object.values_mut().for_each(|value| rename_references(value, renamed));
        }
        _ => {}
    }
}
