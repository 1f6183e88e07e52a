//! Parses payloads, and says which field of one is invalid.

use crate::error::{ErrorBody, ErrorCode};
use serde::{Deserialize, de::DeserializeOwned};

/// Characters of a client's name for something that an error repeats.
const SHOWN_CHARS_MAX: usize = 64;

/// An error in a payload.
#[derive(Debug)]
pub(crate) struct PayloadError {
    pub(super) code: ErrorCode,
    pub(super) field: String,
    message: String,
}

impl PayloadError {
    pub(super) fn into_error(self, what: &str) -> ErrorBody {
        let at = if self.field.is_empty() { String::new() } else { format!(" at `{}`", self.field) };
        let error = ErrorBody::new(self.code, format!("{what}{at}: {}", self.message));
        if self.field.is_empty() { error } else { error.with_field(self.field) }
    }
}

/// Parses a payload, naming the invalid field.
///
/// Accepts only objects: serde would accept an array for a struct, field by field.
pub(crate) fn payload<T: DeserializeOwned>(text: &str) -> Result<T, PayloadError> {
    if !text.starts_with('{') {
        let message = "a payload is an object".to_owned();
        return Err(PayloadError { code: ErrorCode::InvalidField, field: "payload".to_owned(), message });
    }
    strict(text)
}

pub(super) fn strict<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, PayloadError> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let path = if path == "." { String::new() } else { path };
        classify(&path, &error.into_inner().to_string())
    })
}

/// Classifies a serde error: serde reports its kind only in its text, whose beginnings are stable.
fn classify(path: &str, message: &str) -> PayloadError {
    let message = message.rsplit_once(" at line ").map_or(message, |(head, _)| head);
    let quoted = message.split('`').nth(1).unwrap_or_default();
    let join = |name: &str| {
        let path = path.trim_end_matches('?').trim_end_matches('.');
        if path.is_empty() || path == name || path.ends_with(&format!(".{name}")) {
            if path.is_empty() { name.to_owned() } else { path.to_owned() }
        } else {
            format!("{path}.{name}")
        }
    };
    let (code, field) = if message.starts_with("unknown field") {
        (ErrorCode::UnknownField, join(quoted))
    } else if message.starts_with("missing field") {
        (ErrorCode::MissingField, join(quoted))
    } else if message.starts_with("duplicate field") {
        (ErrorCode::DuplicateKey, join(quoted))
    } else {
        (ErrorCode::InvalidField, path.to_owned())
    };
    // What a client has named it may be of any length; its beginning is enough to find it.
    let (clipped, field) = (clip(quoted), clip(&field).to_owned());
    let message =
        &*if clipped.len() < quoted.len() { message.replacen(quoted, clipped, 1) } else { message.to_owned() };
    // The value itself may be long or secret: its type is enough to correct it.
    let message = match message.strip_prefix("invalid type: string ") {
        Some(rest) => format!("invalid type: string,{}", rest.rsplit_once(',').map_or("", |(_, tail)| tail)),
        None => message.chars().take(300).collect(),
    };
    PayloadError { code, field, message }
}

/// Returns the beginning of a name that a client made up.
pub(super) fn clip(name: &str) -> &str {
    name.char_indices().nth(SHOWN_CHARS_MAX).map_or(name, |(end, _)| &name[..end])
}
