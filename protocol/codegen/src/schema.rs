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

/// A field of a frame: its name, its schema, and whether it is required.
type Field = (&'static str, Value, bool);

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
        let name = variant["properties"]["type"]["const"].as_str().expect("a variant has its tag as constant");
        let message = Message {
            kind,
            name: name.to_owned(),
            description: variant["description"].as_str().unwrap_or_default().to_owned(),
        };
        let spec = command::Command::spec_of(name).filter(|_| self.closed && kind == Kind::Command);
        let mut fields = self.envelope(kind, name, spec);
        let others = command::OTHER_NAMES.into_iter().filter(|(_, of)| spec.is_some_and(|spec| spec.name == *of));
        let names: Vec<&str> = std::iter::once(name).chain(others.map(|(other, _)| other)).collect();
        let tag = if names.len() == 1 { json!({ "const": name }) } else { json!({ "enum": names }) };
        fields.push(("type", tag, true));
        match variant["properties"].get("payload") {
            Some(payload) => {
                let is_required = kind != Kind::Command || self.requires_something(payload);
                fields.push(("payload", payload.clone(), is_required));
            }
            None if kind == Kind::Command => fields.push(("payload", json!({ "description": "Ignored." }), false)),
            None => {}
        }
        if kind == Kind::DurableEvent {
            let says = "Its position in the session's log.";
            fields.push(("seq", json!({ "type": "integer", "minimum": 1, "description": says }), true));
        }
        let required: Vec<&str> =
            fields.iter().filter(|(_, _, is_required)| *is_required).map(|field| field.0).collect();
        let mut frame = json!({ "type": "object", "description": message.description, "required": required });
        frame["properties"] = fields.into_iter().map(|(name, schema, _)| (name.to_owned(), schema)).collect();
        if let Some(spec) = spec {
            frame["additionalProperties"] = json!(false);
            if spec.does == command::Does::Creates {
                // It creates a session unless it names one.
                frame["anyOf"] = json!([
                    { "required": ["sessionId"] },
                    { "properties": { "id": { "pattern": WRITING_ID_PATTERN } } },
                ]);
            }
        }
        let union = match kind {
            Kind::Command => "CommandFrame",
            Kind::Reply => "ReplyFrame",
            Kind::DurableEvent => "DurableFrame",
            Kind::Event if self.closed => "EphemeralFrame",
            Kind::Event => "EventFrame",
        };
        let key = message.key();
        self.unions.entry(union).or_default().push(json!({ "$ref": format!("#/$defs/{key}") }));
        self.definitions.insert(key, frame);
        self.messages.push(message);
    }

    /// Returns the fields beside `type`, `payload` and `seq`.
    fn envelope(&self, kind: Kind, name: &str, spec: Option<&command::Spec>) -> Vec<Field> {
        let id = |pattern: &str, says: &str| json!({ "type": "string", "pattern": pattern, "not": { "pattern": "^s_" }, "description": says });
        let says = "The session that the frame is about.";
        let session = json!({ "type": "string", "pattern": ID_PATTERN, "description": says });
        match kind {
            Kind::Command => {
                let id = match spec {
                    None => id(ID_PATTERN, "Chosen by the client."),
                    Some(spec) if spec.does.writes() => {
                        id(WRITING_ID_PATTERN, "Chosen by the client; the command is executed once for each id.")
                    }
                    Some(_) => id(ID_PATTERN, "Chosen by the client; the reply has it as `re`."),
                };
                let address = spec.map_or(Address::None, |spec| spec.address);
                let session = (address != Address::None).then(|| ("sessionId", session, address == Address::Required));
                let says = "The W3C trace context that the command belongs to. An invalid one is ignored.";
                let trace = spec.map(|_| ("traceparent", json!({ "type": "string", "description": says }), false));
                [("id", id, true)].into_iter().chain(session).chain(trace).collect()
            }
            _ if !self.closed => {
                let says = "The id of the command, or one of the server's own if this answers no command.";
                vec![("id", json!({ "type": "string", "description": says }), true)]
            }
            Kind::Reply => {
                let says = "The `id` of the command that this answers.";
                let re = json!({ "type": "string", "pattern": ID_PATTERN, "description": says });
                // An error without it is about the connection.
                vec![("re", re, name != "error"), ("sessionId", session, false)]
            }
            Kind::DurableEvent => vec![("sessionId", session, true)],
            Kind::Event => {
                let is_of_session = !matches!(name, "session_changed" | "token_expiring");
                let session = is_of_session.then_some(("sessionId", session, true));
                // The absence of both tells an event from a reply.
                session.into_iter().chain([("re", json!(false), false), ("seq", json!(false), false)]).collect()
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
    each_object(schema, &mut |object| {
        let is_of_rust = |format: &str| format.starts_with("uint") || format == "double";
        object.retain(|key, value| key != "format" || !value.as_str().is_some_and(is_of_rust));
        if !is_written {
            return;
        }
        object.retain(|key, value| key != "additionalProperties" || *value != false);
        let required = object.get("required").cloned().unwrap_or_default();
        let is_required = |name: &str| required.as_array().is_some_and(|names| names.iter().any(|known| known == name));
        if let Some(Value::Object(properties)) = object.get_mut("properties") {
            let optional = properties.iter_mut().filter(|(name, _)| !is_required(name));
            optional.for_each(|(_, property)| without_null(property));
        }
    });
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
    each_object(schema, &mut |object| {
        let name = object.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix("#/$defs/"));
        if let Some(new) = name.and_then(|name| renamed.get(name)) {
            object.insert("$ref".to_owned(), json!(format!("#/$defs/{new}")));
        }
    });
}

/// Changes every object in a value, the outer ones first.
fn each_object(value: &mut Value, change: &mut impl FnMut(&mut Map<String, Value>)) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| each_object(item, change)),
        Value::Object(object) => {
            change(object);
            object.values_mut().for_each(|value| each_object(value, change));
        }
        _ => {}
    }
}
