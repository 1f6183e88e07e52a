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

/// The reply to each command that succeeds. A refused command is answered by `error`.
pub const REPLIES: &[(&str, &str)] = &[
    ("hello", "welcome"),
    ("open_session", "session_opened"),
    ("close_session", "ok"),
    ("list_sessions", "sessions"),
    ("rename_session", "ok"),
    ("delete_session", "ok"),
    ("get_entries", "entries"),
    ("ping", "pong"),
    ("user_input", "accepted"),
    ("cancel_turn", "ok"),
    ("retry_turn", "accepted"),
    ("edit_queue", "ok"),
    ("tool_result", "ok"),
    ("call_progress", "ok"),
    ("approval_response", "ok"),
    ("navigate", "navigated"),
    ("fork_session", "forked"),
    ("get_tree", "tree"),
    ("set_label", "ok"),
    ("append_custom", "ok"),
    ("append_custom_message", "ok"),
    ("get_context_info", "context_info"),
    ("get_context", "context"),
    ("manual_compact", "ok"),
    ("preview_compact", "compaction_preview"),
    ("cancel_compaction", "ok"),
    ("undo_compaction", "ok"),
    ("pin_entry", "ok"),
    ("unpin_entry", "ok"),
    ("set_context_strategy", "ok"),
    ("set_model", "ok"),
    ("set_instructions", "ok"),
    ("set_options", "ok"),
    ("register_tools", "ok"),
    ("register_hooks", "ok"),
    ("hook_result", "ok"),
];

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
