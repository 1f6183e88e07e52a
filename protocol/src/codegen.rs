//! Generates the files for other languages from the Rust types: JSON Schema, TypeScript and the page of error codes.
//!
//! The files are committed. `tests/generated.rs` compares them with the output of this module; `UPDATE=1 cargo test -p
//! reseed-protocol` regenerates them. None of this is in the server.

mod errors;
mod layout;
mod schema;
mod typescript;

use serde_json::Value;

/// The notice at the head of each generated file that can contain one.
const NOTICE: &str = "Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.";

/// The kind of a frame's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Client to server.
    Command,
    /// The reply to a command.
    Reply,
    /// A stored event, with `seq`.
    DurableEvent,
    /// Any other event; all events of v1.
    Event,
}

/// A message of a protocol version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its kind.
    pub kind: Kind,
    /// Its `type`.
    pub name: String,
    /// The first sentence of its doc comment.
    pub description: String,
}

/// A protocol version: its schema and its messages, in the order of the types.
#[derive(Debug, Clone, PartialEq)]
pub struct Dialect {
    /// JSON Schema, draft 2020-12, of a frame in either direction.
    pub schema: Value,
    /// Every message.
    pub messages: Vec<Message>,
}

/// Returns protocol v1.
#[must_use]
pub fn v1() -> Dialect {
    schema::v1()
}

/// Returns protocol v2.
#[must_use]
pub fn v2() -> Dialect {
    schema::v2()
}

/// Returns every generated text file: its path below `protocol/` and its content.
#[must_use]
pub fn files() -> Vec<(String, String)> {
    let mut files = vec![
        ("schema/reseed.v1.schema.json".to_owned(), pretty(&v1().schema)),
        ("schema/reseed.v2.schema.json".to_owned(), pretty(&v2().schema)),
        ("ERRORS.md".to_owned(), errors::page()),
    ];
    files.extend(typescript::files().into_iter().map(|(name, text)| (format!("typescript/{name}"), text)));
    files
}

fn pretty(schema: &Value) -> String {
    let mut text = serde_json::to_string_pretty(schema).expect("a schema is JSON with text keys");
    text.push('\n');
    text
}
