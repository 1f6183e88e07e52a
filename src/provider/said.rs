//! The text of an error, whatever the shape of its body.

use serde_json::Value;

/// Maximum bytes of an error that are searched. Longer errors end in an echo of the request.
const TEXT_BYTES_MAX: usize = 4 * 1024;
/// Maximum depth of an error's JSON that is read.
const DEPTH_MAX: usize = 12;

/// Fields of errors that say what is wrong. Others echo the request (`input`).
const TELLING: &[&str] = &[
    "error",
    "errors",
    "message",
    "msg",
    "detail",
    "details",
    "param",
    "raw",
    "metadata",
    "loc",
    "reason",
    "title",
    "field",
    "body",
    "violations",
    "quotaId",
    "error_message",
    "error_msg",
];
/// Fields of errors that name a code or a type.
const CODES: &[&str] = &["code", "type", "status", "error_code", "error_type"];

/// An error, as far as it can be read in any server's dialect. Its texts are in lower case.
#[derive(Default)]
pub(super) struct Said {
    /// The object that describes the error; null if the body is not JSON.
    pub(super) error: Value,
    /// The field that the error names as wrong.
    pub(super) param: String,
    /// What it says, without codes and types.
    pub(super) message: String,
    /// Its codes and types, one per line.
    pub(super) codes: String,
    /// All of these.
    pub(super) text: String,
    /// The same, [`joined`].
    words: String,
    /// True if the body was empty.
    pub(super) is_empty: bool,
}

impl Said {
    /// Reads `{"error":{…}}`, `{"error":"…"}`, `{"message":…}`, `{"detail":…}`, `{"errors":[…]}`, `[{"error":…}]`, an
    /// error that a router passes on in a field of its own, or plain text. A web page says nothing: its text is meant
    /// for people, and the status determines its meaning.
    pub(super) fn of(body: &[u8]) -> Self {
        let mut said = Self { is_empty: body.trim_ascii().is_empty(), ..Self::default() };
        match serde_json::from_slice::<Value>(body) {
            Ok(root) => {
                said.read("", &root, DEPTH_MAX);
                let root = if root.is_array() { root[0].clone() } else { root };
                let nested = [&root["error"], &root["errors"][0]].into_iter().find(|error| !error.is_null());
                said.error = nested.cloned().unwrap_or(root);
            }
            Err(_) if is_page(body) => {}
            Err(_) => said.message = String::from_utf8_lossy(body).into_owned(),
        }
        for text in [&mut said.message, &mut said.codes, &mut said.param] {
            text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
            *text = text.to_lowercase();
        }
        said.text = [said.message.as_str(), &said.codes, &said.param].join("\n");
        said.words = joined(&said.text);
        said
    }

    /// Returns true if it came as JSON.
    pub(super) fn is_json(&self) -> bool {
        !self.error.is_null()
    }

    /// Returns true if the text contains any of these words.
    pub(super) fn has(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.text.contains(word))
    }

    /// Returns true if the text contains any of these words, however they are [`joined`].
    pub(super) fn names(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.words.contains(word))
    }

    /// Returns the status that is given inside the body.
    pub(super) fn status(&self) -> Option<u16> {
        let status = |name: &str| match &self.error[name] {
            Value::String(text) => text.parse().ok(),
            number => number.as_u64().and_then(|number| u16::try_from(number).ok()),
        };
        ["code", "status", "status_code"].into_iter().filter_map(status).find(|status| (400..600).contains(status))
    }

    fn read(&mut self, field: &str, value: &Value, depth: usize) {
        match value {
            _ if depth == 0 => {}
            Value::String(text) => match serde_json::from_str::<Value>(text) {
                // Routers pass on a server's error as a string.
                Ok(inner @ (Value::Object(_) | Value::Array(_))) => self.read(field, &inner, depth - 1),
                _ => {
                    let into = match field {
                        "param" => &mut self.param,
                        field if CODES.contains(&field) => &mut self.codes,
                        _ => &mut self.message,
                    };
                    into.push_str(text);
                    into.push('\n');
                }
            },
            Value::Array(items) if field == "loc" => {
                let name = |item: &Value| item.as_str().map_or_else(|| item.to_string(), str::to_owned);
                self.message.push_str(&items.iter().map(name).collect::<Vec<_>>().join("."));
                self.message.push('\n');
            }
            Value::Array(items) => items.iter().for_each(|item| self.read(field, item, depth - 1)),
            Value::Object(fields) => {
                let is_telling = |name: &str| TELLING.contains(&name) || CODES.contains(&name);
                for (name, value) in fields.iter().filter(|(name, _)| is_telling(name)) {
                    self.read(name, value, depth - 1);
                }
            }
            _ => {}
        }
    }
}

/// Returns a text without what separates and quotes words. Servers write `tool_call`, `tool-call` and "tool call".
pub(super) fn joined(text: &str) -> String {
    text.replace([' ', '_', '-', ':', '\'', '`', '"'], "")
}

/// Returns true if a body is a web page. Proxies answer with one, and model servers never do.
fn is_page(body: &[u8]) -> bool {
    let tag = body.trim_ascii_start().strip_prefix(b"<").and_then(<[u8]>::first);
    tag.is_some_and(|byte| byte.is_ascii_alphabetic() || b"!?".contains(byte))
}
