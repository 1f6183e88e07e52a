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
        let key = message.key();
        listed.insert(key.clone(), json!({ "$ref": format!("#/components/messages/{key}") }));
        if let Some(spec) = Command::spec_of(&message.name).filter(|_| message.kind == Kind::Command) {
            let mut operation = operation("receive", &summary(message), vec![on_socket(&key)]);
            let replies = [on_socket(&format!("reply.{}", spec.reply)), on_socket("reply.error")];
            operation["reply"] = json!({ "channel": operation["channel"], "messages": replies });
            operations.insert(camel(spec.name), operation);
        }
        messages.insert(key, described(message));
    }
    let events = |kind: Kind| {
        let messages = v2.messages.iter().filter(|message| message.kind == kind);
        messages.map(|message| on_socket(&message.key())).collect()
    };
    let durable = "Durable events: stored records, in `seq` order without a gap, also after a `resume`.";
    let ephemeral = "Ephemeral events: they have no `seq` and may be missed.";
    let error = "An error about the connection as a whole: it has no `re`.";
    for (name, summary, messages) in [
        ("durableEvents", durable, events(Kind::DurableEvent)),
        ("ephemeralEvents", ephemeral, events(Kind::Event)),
        ("connectionError", error, vec![on_socket("reply.error")]),
    ] {
        operations.insert(name.to_owned(), operation("send", summary, messages));
    }
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
            "variables": {
                "host": { "description": "The name under which the server is reached.", "default": "localhost" },
            },
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

fn operation(action: &str, summary: &str, messages: Vec<Value>) -> Value {
    let channel = json!({ "$ref": "#/channels/socket" });
    json!({ "action": action, "channel": channel, "summary": summary, "messages": messages })
}

fn described(message: &Message) -> Value {
    let mut described = json!({
        "name": message.name,
        "title": message.name,
        "summary": summary(message),
        "payload": { "$ref": format!("{SCHEMA}#/$defs/{}", message.key()) },
    });
    let (folder, id) = match message.kind {
        Kind::Command => ("commands", Some("id")),
        // An `error` about the connection has no `re`.
        Kind::Reply => ("replies", Some("re").filter(|_| message.name != "error")),
        Kind::DurableEvent | Kind::Event => ("events", None),
    };
    if let Some(id) = id {
        described["correlationId"] = json!({ "location": format!("$message.payload#/{id}") });
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

fn summary(message: &Message) -> String {
    message.description.replace('\n', " ")
}

/// Refers to the message with this name in the schema.
fn on_socket(key: &str) -> Value {
    json!({ "$ref": format!("#/channels/socket/messages/{key}") })
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
