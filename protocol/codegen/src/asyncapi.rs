//! Generates an AsyncAPI 3 document of v2: the socket, its messages and how commands are answered.
//!
//! It describes the server, so a command is an operation that receives. The messages refer to the JSON Schema beside
//! it; their examples are those of `examples/v2`.

use super::{Dialect, Kind, Message, NOTICE};
use reseed_protocol::{PROTOCOL_VERSION, SUBPROTOCOL_V2, command::Command};
use serde_json::{Map, Value, json};
use std::{fs, path::Path};

const SCHEMA: &str = "./reseed.v2.schema.json";

/// Returns the document.
pub(crate) fn document(v2: &Dialect) -> Value {
    let mut messages = Map::new();
    let mut listed = Map::new();
    let mut operations = Map::new();
    for message in &v2.messages {
        let key = key(message);
        listed.insert(key.clone(), json!({ "$ref": format!("#/components/messages/{key}") }));
        messages.insert(key, described(message));
    }
    for spec in Command::TABLE {
        let operation = json!({
            "action": "receive",
            "channel": { "$ref": "#/channels/socket" },
            "summary": summary(v2, Kind::Command, spec.name),
            "messages": [on_socket("command", spec.name)],
            "reply": {
                "channel": { "$ref": "#/channels/socket" },
                "messages": [on_socket("reply", spec.reply), on_socket("reply", "error")],
            },
        });
        operations.insert(camel(spec.name), operation);
    }
    let sends = |kind: Kind, what: &str| {
        let messages = v2.messages.iter().filter(|message| message.kind == kind);
        let messages: Vec<Value> = messages.map(|message| on_socket("event", &message.name)).collect();
        json!({
            "action": "send",
            "channel": { "$ref": "#/channels/socket" },
            "summary": what,
            "messages": messages,
        })
    };
    let durable = "Durable events: stored records, in `seq` order without a gap, also after a `resume`.";
    operations.insert("durableEvents".to_owned(), sends(Kind::DurableEvent, durable));
    let ephemeral = "Ephemeral events: they have no `seq` and may be missed.";
    operations.insert("ephemeralEvents".to_owned(), sends(Kind::Event, ephemeral));
    let error = json!({
        "action": "send",
        "channel": { "$ref": "#/channels/socket" },
        "summary": "An error about the connection as a whole: it has no `re`.",
        "messages": [on_socket("reply", "error")],
    });
    operations.insert("connectionError".to_owned(), error);
    json!({
        "asyncapi": "3.0.0",
        "info": {
            "title": "reseed",
            "version": format!("{PROTOCOL_VERSION}.0.0"),
            "description": "The WebSocket protocol of reseed, v2. One JSON object per text frame. A frame with `re` is \
                            a reply, a frame with `seq` a durable event. README.md beside the schema says how a client \
                            uses it.",
            "license": { "name": "MIT OR Apache-2.0" },
        },
        "x-generated": NOTICE,
        "defaultContentType": "application/json",
        "servers": servers(),
        "channels": { "socket": socket(listed) },
        "operations": operations,
        "components": { "messages": messages, "securitySchemes": security_schemes() },
    })
}

fn servers() -> Value {
    let security = json!([
        { "$ref": "#/components/securitySchemes/bearer" },
        { "$ref": "#/components/securitySchemes/ticket" },
    ]);
    json!({
        "local": {
            "host": "127.0.0.1:8080",
            "protocol": "ws",
            "description": "A server on this machine. It needs no credentials unless AUTH_TOKENS is set.",
        },
        "remote": {
            "host": "{host}",
            "protocol": "wss",
            "description": "A server behind TLS. It requires a token of AUTH_TOKENS or a ticket: with the upgrade, or \
                            in `hello`.",
            "variables": { "host": { "description": "The name under which the server is reached.", "default": "localhost" } },
            "security": security,
        },
    })
}

fn security_schemes() -> Value {
    json!({
        "bearer": {
            "type": "http",
            "scheme": "bearer",
            "description": "`Authorization: Bearer TOKEN` with the upgrade. `token` in `hello` does the same.",
        },
        "ticket": {
            "type": "httpApiKey",
            "in": "query",
            "name": "ticket",
            "description": "A ticket of `POST /api/tickets`; it works once. `ticket` in `hello` does the same.",
        },
    })
}

fn socket(messages: Map<String, Value>) -> Value {
    json!({
        "address": "/ws",
        "title": "The socket",
        "description": "Carries every session that the connection is subscribed to. The first frame is `hello`.",
        "servers": [{ "$ref": "#/servers/local" }, { "$ref": "#/servers/remote" }],
        "messages": messages,
        "bindings": {
            "ws": {
                "method": "GET",
                "headers": {
                    "type": "object",
                    "properties": { "Sec-WebSocket-Protocol": { "type": "string", "const": SUBPROTOCOL_V2 } },
                },
                "bindingVersion": "0.1.0",
            },
        },
    })
}

fn described(message: &Message) -> Value {
    let (folder, definition) = (folder(message.kind), key(message));
    let mut described = json!({
        "name": message.name,
        "title": message.name,
        "summary": message.description.replace('\n', " "),
        "payload": { "$ref": format!("{SCHEMA}#/$defs/{definition}") },
    });
    match message.kind {
        Kind::Command => described["correlationId"] = json!({ "location": "$message.payload#/id" }),
        // An `error` about the connection has no `re`.
        Kind::Reply if message.name != "error" => {
            described["correlationId"] = json!({ "location": "$message.payload#/re" });
        }
        Kind::Reply | Kind::DurableEvent | Kind::Event => {}
    }
    if let Some(example) = example(folder, &message.name) {
        described["examples"] = json!([{ "name": message.name, "payload": example }]);
    }
    described
}

/// Returns the example of a message, or its first special one if it has no plain one.
fn example(folder: &str, name: &str) -> Option<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/v2").join(folder);
    let files = fs::read_dir(&folder).ok()?.filter_map(|file| file.ok()?.file_name().into_string().ok());
    let mut files: Vec<String> = files.filter(|file| file.split('.').next() == Some(name)).collect();
    files.sort_by_key(|file| (*file != format!("{name}.json"), file.clone()));
    let text = fs::read_to_string(folder.join(files.first()?)).ok()?;
    serde_json::from_str(&text).ok()
}

fn summary(v2: &Dialect, kind: Kind, name: &str) -> String {
    let found = v2.messages.iter().find(|message| message.kind == kind && message.name == name);
    found.map(|message| message.description.replace('\n', " ")).unwrap_or_default()
}

fn on_socket(kind: &str, name: &str) -> Value {
    json!({ "$ref": format!("#/channels/socket/messages/{kind}.{name}") })
}

/// Returns the message's name in the document, which is that of its definition in the schema.
fn key(message: &Message) -> String {
    let kind = match message.kind {
        Kind::Command => "command",
        Kind::Reply => "reply",
        Kind::DurableEvent | Kind::Event => "event",
    };
    format!("{kind}.{}", message.name)
}

fn folder(kind: Kind) -> &'static str {
    match kind {
        Kind::Command => "commands",
        Kind::Reply => "replies",
        Kind::DurableEvent | Kind::Event => "events",
    }
}

/// Returns `user_input` as `userInput`.
fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let (head, tail) = word.split_at(word.len().min(1));
        name + &head.to_ascii_uppercase() + tail
    })
}
