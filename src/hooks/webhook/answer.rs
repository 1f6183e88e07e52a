//! Reads a webhook's answer. Errors in external JSON are reported by position and by what is expected there, never by
//! the actual value. Even the names of unknown fields in an answer are not repeated. They are the hook's text, and may
//! contain what the hook should have removed from a message.

use crate::core::hook::HookFault;
use reqwest::{
    Response,
    header::{CONTENT_TYPE, HeaderMap},
};
use reseed_protocol::hooks::HookAnswer;
use serde::Deserialize;
use serde_path_to_error::Segment;

/// Maximum bytes of an answer. A client may send as many in one message by default. The longest sensible answer, a
/// summary or a handful of messages, is much shorter. Anything longer is a mistake or an attack, and would be held in
/// memory and in the log.
pub(super) const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// Maximum characters of an external name in a message.
const NAME_CHARS_MAX: usize = 64;

/// Reads the answer of a successful call.
pub(super) async fn read(mut response: Response) -> Result<HookAnswer, HookFault> {
    let too_long = || HookFault::failed(format!("its answer has more than {ANSWER_BYTES_MAX} bytes"));
    if response.content_length().is_some_and(|bytes| bytes > ANSWER_BYTES_MAX as u64) {
        return Err(too_long());
    }
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(bytes)) if body.len() + bytes.len() > ANSWER_BYTES_MAX => return Err(too_long()),
            Ok(Some(bytes)) => body.extend_from_slice(&bytes),
            Ok(None) => break,
            Err(_) => return Err(HookFault::failed("its answer was cut off")),
        }
    }
    if body.trim_ascii().is_empty() {
        return Ok(HookAnswer::default());
    }
    if !is_json(response.headers()) {
        return Err(HookFault::failed("its answer is not application/json"));
    }
    parsed(&body).map_err(|wrong| HookFault::failed(format!("its answer is invalid: {wrong}")))
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

/// Parses the text of an answer, or returns the reason why it is invalid.
fn parsed(body: &[u8]) -> Result<HookAnswer, String> {
    // serde would accept a list as an object, field by field.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err("it is not a JSON object".to_owned());
    }
    object(body, Unknown::Placed)
}

/// How an unknown field is reported.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Unknown {
    /// By name, because the operator wrote the text.
    Named,
    /// Only by line and column.
    Placed,
}

/// Parses JSON, or returns where it is wrong.
pub(super) fn object<'a, T: Deserialize<'a>>(text: &'a [u8], unknown: Unknown) -> Result<T, String> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let text = error.inner().to_string();
        let is_unknown = |segment: &&Segment| match segment {
            Segment::Map { key } => text.starts_with(&format!("unknown field `{key}`")),
            _ => false,
        };
        // The path to an unknown field ends with its name, if the parser got that far.
        let mut segments: Vec<&Segment> = error.path().iter().collect();
        if segments.last().is_some_and(is_unknown) {
            segments.pop();
        }
        wrong(&place(&segments), error.inner(), unknown)
    })?;
    reader.end().map_err(|error| wrong("it", &error, unknown))?;
    Ok(value)
}

/// Formats a position in JSON for people.
fn place(segments: &[&Segment]) -> String {
    let mut path = String::new();
    for segment in segments {
        match segment {
            Segment::Seq { index } => path.push_str(&format!("[{index}]")),
            Segment::Map { key: word } | Segment::Enum { variant: word } => {
                path.push_str(if path.is_empty() { "" } else { "." });
                path.push_str(word);
            }
            Segment::Unknown => {}
        }
    }
    if path.is_empty() { "it".to_owned() } else { format!("`{}`", name(&path)) }
}

/// Describes in one sentence what is wrong with JSON. serde reports the kind of an error only in its text, which begins
/// with a stable phrase. Then follow the actual value and the expected one.
fn wrong(place: &str, error: &serde_json::Error, unknown: Unknown) -> String {
    let position = format!("(line {}, column {})", error.line(), error.column());
    if !error.is_data() {
        return format!("it is not JSON {position}");
    }
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(head, _)| head);
    let quoted = text.split('`').nth(1).map(name).unwrap_or_default();
    let expected = text.rsplit_once(", expected ").map(|(_, expected)| expected);
    let begins = |beginnings: &[&str]| beginnings.iter().any(|beginning| text.starts_with(beginning));
    match expected {
        Some(expected) if begins(&["unknown field `"]) => match unknown {
            Unknown::Named => format!("unknown field `{quoted}`; allowed: {expected}"),
            Unknown::Placed => format!("{place} has an unknown field {position}; allowed: {expected}"),
        },
        Some(expected) if begins(&["unknown variant `", "invalid type: ", "invalid value: ", "invalid length "]) => {
            format!("{place} is not {expected}")
        }
        _ if begins(&["missing field `"]) => format!("{place} is missing `{quoted}`"),
        _ if begins(&["duplicate field `"]) => format!("duplicate field `{quoted}`"),
        _ => format!("{place} is invalid"),
    }
}

/// Returns an external name, restricted to what may be repeated. A path of fields may be, and other text may not.
fn name(text: &str) -> String {
    let letters = |c: &char| c.is_ascii_alphanumeric() || "_.-[]".contains(*c);
    text.chars().filter(letters).take(NAME_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::{is_json, parsed};
    use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
    use reseed_protocol::hooks::HookAnswer;

    #[test]
    fn an_answer_is_read_as_it_is() {
        assert_eq!(parsed(b" {} "), Ok(HookAnswer::default()));
        assert_eq!(parsed(br#"{"block":true,"reason":"no"}"#), Ok(HookAnswer::block("no")));
    }

    #[test]
    fn what_is_wrong_is_told_by_its_place_and_never_repeated() {
        for (answer, expected) in [
            (r#"[]"#, "it is not a JSON object"),
            (r#""secret""#, "it is not a JSON object"),
            ("<html>secret</html>", "it is not a JSON object"),
            (r#"{"cancel":true"#, "it is not JSON (line 1, column 14)"),
            (r#"{"cancel":secret}"#, "it is not JSON (line 1, column 11)"),
            (r#"{} secret"#, "it is not JSON (line 1, column 4)"),
            (r#"{"patches":[]}"#, "it has an unknown field (line 1, column 10); allowed: one of `error`, `patch`,"),
            (r#"{"a\nsecret`\u0007, expected secret":1}"#, "it has an unknown field (line 1, column "),
            (r#"{"secret":1}"#, "it has an unknown field (line 1, column 9); allowed: one of `error`, "),
            (
                "{\"display\":\n{\"title\":\"a\",\"se.cret at line \":1}}",
                "`display` has an unknown field (line 2, column 31); allowed: one of `title`, `summary`, ",
            ),
            (
                r#"{"message":{"role":"user","content":[],"secret":1}}"#,
                "`message` has an unknown field (line 1, column 47); allowed: one of `role`, `content`, ",
            ),
            (
                r#"{"message":{"role":"user","content":[{"type":"text","text":"","secret":1}]}}"#,
                "`message.content[0]` has an unknown field (line 1, column ",
            ),
            (r#"{"entries":[{"secret":1}]}"#, "`entries[0]` has an unknown field (line 1, column "),
            (r#"{"cancel":"secret"}"#, "`cancel` is not a boolean"),
            (r#"{"cancel":"secret, expected secret"}"#, "`cancel` is not a boolean"),
            (r#"{"cancel":true,"cancel":false}"#, "duplicate field `cancel`"),
            (r#"{"entries":[{"customType":"a","data":1},{"customType":"a"}]}"#, "`entries[1]` is missing `data`"),
            (
                r#"{"message":{"role":"secret","content":[]}}"#,
                "`message.role` is not one of `user`, `assistant`, `tool`",
            ),
            (
                r#"{"message":{"role":"user","content":[{"type":"text","text":1}]}}"#,
                "`message.content[0]` is not a string",
            ),
            (
                r#"{"message":{"role":"user","content":[{"type":"tool_call","toolCallId":"secret, expected !","name":"a","arguments":"a"}]}}"#,
                "`message.content[0]` is invalid",
            ),
        ] {
            let wrong = parsed(answer.as_bytes()).unwrap_err();
            assert!(wrong.starts_with(expected), "{answer}: {wrong}");
            assert!(!wrong.contains("secret") && !wrong.contains(char::is_control), "{answer}: {wrong}");
        }
    }

    #[test]
    fn json_is_known_by_its_type() {
        for (kind, json) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/hook+json", true),
            ("text/html", false),
            ("text/json", false),
            ("application/jsonp", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            assert_eq!(is_json(&headers), json, "{kind}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }
}
