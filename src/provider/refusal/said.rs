//! The text of an error, whatever the shape of its body.

use serde_json::Value;

/// Maximum bytes of an error that are searched for names. What follows is an echo of the request.
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
    "code",
    "type",
    "raw",
    "metadata",
    "loc",
    "reason",
    "title",
    "field",
    "status",
    "body",
    "error_message",
    "error_msg",
    "error_code",
    "error_type",
];

/// Returns true if a body is a web page. Proxies answer with one, and model servers never do.
pub(in crate::provider) fn is_page(body: &[u8]) -> bool {
    let tag = body.trim_ascii_start().strip_prefix(b"<").and_then(<[u8]>::first);
    tag.is_some_and(|byte| byte.is_ascii_alphabetic() || b"!?".contains(byte))
}

/// The text of an error, in lower case.
#[derive(Default)]
pub(super) struct Said {
    /// The field that the error names as wrong.
    pub(super) param: String,
    /// The whole text.
    pub(super) text: String,
    /// True if it came as JSON.
    pub(super) is_json: bool,
}

impl Said {
    pub(super) fn of(body: &[u8]) -> Self {
        let mut said = Self::default();
        match serde_json::from_slice::<Value>(body) {
            Ok(value) => {
                said.is_json = true;
                said.read("", &value, DEPTH_MAX);
            }
            Err(_) if is_page(body) => {}
            Err(_) => said.text.push_str(&String::from_utf8_lossy(body)),
        }
        let mut end = said.text.len().min(TEXT_BYTES_MAX);
        while !said.text.is_char_boundary(end) {
            end -= 1;
        }
        said.text.truncate(end);
        Self { param: said.param.to_lowercase(), text: said.text.to_lowercase(), is_json: said.is_json }
    }

    /// Returns true if the text contains any of these words.
    pub(super) fn has(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.text.contains(word))
    }

    fn read(&mut self, field: &str, value: &Value, depth: usize) {
        match value {
            _ if depth == 0 => {}
            Value::String(text) => {
                if field == "param" {
                    self.param.push_str(text);
                }
                // Routers pass on a server's error as a string.
                match serde_json::from_str::<Value>(text) {
                    Ok(inner @ (Value::Object(_) | Value::Array(_))) => self.read(field, &inner, depth - 1),
                    _ => {
                        self.text.push_str(text);
                        self.text.push('\n');
                    }
                }
            }
            Value::Array(items) if field == "loc" => {
                let names: Vec<String> =
                    items.iter().map(|item| item.as_str().map_or(item.to_string(), str::to_owned)).collect();
                self.text.push_str(&names.join("."));
                self.text.push('\n');
            }
            Value::Array(items) => items.iter().for_each(|item| self.read(field, item, depth - 1)),
            Value::Object(fields) => {
                for (name, value) in fields.iter().filter(|(name, _)| TELLING.contains(&name.as_str())) {
                    self.read(name, value, depth - 1);
                }
            }
            _ => {}
        }
    }
}
