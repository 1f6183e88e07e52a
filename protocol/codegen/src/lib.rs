//! Generates the files for other languages from the Rust types: JSON Schema, TypeScript, AsyncAPI, the page of error
//! codes, and the tables of README.md.
//!
//! The files are committed. The tests of `reseed-protocol` compare them with the output of this crate;
//! `UPDATE=1 cargo test -p reseed-protocol` regenerates them. None of this is in the server.

mod asyncapi;
mod errors;
mod layout;
mod readme;
mod schema;
mod typescript;

pub use readme::{LIMITS, Limit};

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

impl Message {
    /// Returns the name of its definition in the schema.
    fn key(&self) -> String {
        let kind = match self.kind {
            Kind::Command => "command",
            Kind::Reply => "reply",
            Kind::DurableEvent | Kind::Event => "event",
        };
        format!("{kind}.{}", self.name)
    }
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
        ("schema/reseed.asyncapi.json".to_owned(), pretty(&asyncapi::document(&v2()))),
        ("ERRORS.md".to_owned(), errors::page()),
    ];
    files.extend(typescript::files().into_iter().map(|(name, text)| (format!("typescript/{name}"), text)));
    files
}

/// Returns the generated parts of README.md: the name in their markers and their text.
#[must_use]
pub fn readme_parts() -> Vec<(&'static str, String)> {
    vec![("commands", readme::commands(&v2().schema)), ("limits", readme::limits(&v2().schema))]
}

/// Replaces what stands between the markers of a generated part, `<!-- NAME: … -->` and `<!-- NAME ends -->`.
///
/// Returns `None` if the page lacks the markers.
#[must_use]
pub fn with_part(page: &str, name: &str, text: &str) -> Option<String> {
    let (before, rest) = page.split_once(&format!("<!-- {name}: "))?;
    let (_, after) = rest.split_once(&format!("<!-- {name} ends -->"))?;
    Some(format!("{before}<!-- {name}: {NOTICE} -->\n\n{text}\n<!-- {name} ends -->{after}"))
}

fn pretty(schema: &Value) -> String {
    let mut text = serde_json::to_string_pretty(schema).expect("a schema is JSON with text keys");
    text.push('\n');
    text
}
