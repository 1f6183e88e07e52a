//! Frames: one JSON object per text frame.
//!
//! | frame | fields besides `type` and `payload` |
//! | --- | --- |
//! | command | `id`; `sessionId` if it is about a session; `traceparent` if it belongs to a trace |
//! | reply | `re`, the command's id; `sessionId` as in the command |
//! | event | `sessionId` if it is about a session; `seq` if it is stored |
//! | `error` without `re` | none: it is about the connection |
//!
//! In v1 every frame has an `id`, and there is one session a connection.
//!
//! A frame is checked twice. [`check`] scans all of it, whatever it contains: JSON, depth, duplicate keys, valid
//! characters. The typed parser then names the first field that is unknown, missing or of the wrong type.

mod check;
mod depth;
pub(crate) mod payload;

pub use self::{
    check::check,
    depth::{DEPTH_MAX, is_too_deep, nests_too_deep},
};

use crate::{
    command::{Address, Command},
    error::{ErrorBody, ErrorCode},
    ids::{COMMAND_ID_CHARS_MIN, CommandId, SERVER_ID_PREFIX, SessionId, check_id},
    reply::Reply,
    v1,
};
use payload::{clip, payload, strict};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::{borrow::Cow, fmt::Write as _};

/// The id that an error shows as an example.
const ID_EXAMPLE: &str = "6f1c0b1e-5a1c-4d7e-9b30-2f6c8e41d7aa";

/// A command of a v2 client.
#[derive(Debug, Clone, PartialEq)]
pub struct Received {
    /// The client's id.
    pub id: CommandId,
    /// The session that the command is about; as its [`Address`] demands.
    pub session: Option<SessionId>,
    /// The command.
    pub command: Command,
    /// The W3C trace context that it belongs to, as the client wrote it. An invalid one is ignored.
    pub traceparent: Option<String>,
}

/// A refused frame. `id` is the client's, if it can be echoed.
#[derive(Debug, Clone, PartialEq)]
pub struct Refused {
    /// The client's id, if the frame had a usable one.
    pub id: Option<CommandId>,
    /// The session that the frame names, if its envelope could be read.
    pub session: Option<SessionId>,
    /// The error to reply with.
    pub error: ErrorBody,
}

/// Parses a v2 frame.
///
/// # Errors
/// The first error in it.
pub fn parse_v2(text: &str) -> Result<Received, Refused> {
    let (id, envelope) = envelope(text, |envelope: &StrictEnvelope<'_>| &envelope.id)?;
    let named = envelope.session_id.clone();
    let refuse = |error| Refused { id: Some(id.clone()), session: named.clone(), error };
    let payload = envelope.payload.filter(|payload| payload.get() != "null").map_or("{}", RawValue::get);
    let name: &str = &envelope.kind;
    let command = match Command::parse(name, payload) {
        None => return Err(refuse(unknown_command(name, Command::NAMES))),
        Some(Err(fault)) => return Err(refuse(fault.into_error(name))),
        Some(Ok(command)) => command,
    };
    let session = addressed(&command, envelope.session_id).map_err(refuse)?;
    if (command.writes() || command.creates(session.as_ref())) && id.as_str().len() < COMMAND_ID_CHARS_MIN {
        let message = format!(
            "the id of `{name}` has {} characters, a writing command's has {COMMAND_ID_CHARS_MIN} to 64; use a UUID, for \
             instance `{ID_EXAMPLE}`",
            id.as_str().len()
        );
        return Err(refuse(ErrorBody::new(ErrorCode::InvalidId, message).with_field("id")));
    }
    let traceparent = envelope.traceparent.map(|raw| raw.get().trim_matches('"').to_owned());
    Ok(Received { id, session, command, traceparent })
}

/// Returns the session that a command's envelope names.
fn addressed(command: &Command, session: Option<SessionId>) -> Result<Option<SessionId>, ErrorBody> {
    let name = command.name();
    let fault = match (command.spec().address, &session) {
        (Address::Required, None) => {
            let message = format!("`{name}` is about a session: put its `sessionId` beside `id` and `type`");
            ErrorBody::new(ErrorCode::MissingField, message)
        }
        (Address::None, Some(_)) => {
            ErrorBody::new(ErrorCode::UnknownField, format!("`{name}` is not about a session; leave out `sessionId`"))
        }
        _ => return Ok(session),
    };
    Err(fault.with_field("sessionId"))
}

/// Returns the `type` of a frame, if it has one: distinguishes v2's `hello` from v1's commands.
#[must_use]
pub fn peek_type(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Peek<'a> {
        #[serde(rename = "type", borrow)]
        kind: Cow<'a, str>,
    }
    serde_json::from_str::<Peek>(text).ok().map(|peek| peek.kind.into_owned())
}

/// Parses a v1 frame, leniently where that is harmless.
///
/// # Errors
/// The first error in it.
pub fn parse_v1(text: &str) -> Result<(CommandId, v1::Command), Refused> {
    let (id, envelope) = envelope(text, |envelope: &LenientEnvelope<'_>| &envelope.id)?;
    let refuse = |error| Refused { id: Some(id.clone()), session: None, error };
    let raw = envelope.payload.filter(|payload| payload.get() != "null").map_or("{}", RawValue::get);
    let name: &str = &envelope.kind;
    let command = match name {
        "user_input" => payload(raw).map(v1::Command::UserInput),
        "approval_response" => payload(raw).map(v1::Command::ApprovalResponse),
        "get_context_info" => Ok(v1::Command::GetContextInfo),
        "manual_compact" => Ok(v1::Command::ManualCompact),
        _ => return Err(refuse(unknown_command(name, v1::Command::NAMES))),
    };
    command.map(|command| (id.clone(), command)).map_err(|fault| refuse(fault.into_error(name)))
}

/// The fields of a frame from this side, around its message.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Written<'a, T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    re: Option<&'a CommandId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a SessionId>,
    #[serde(flatten)]
    message: &'a T,
}

impl<T: Serialize> Written<'_, T> {
    fn text(&self) -> String {
        serde_json::to_string(self).expect("wire types have text keys and finite numbers")
    }
}

/// Serialises a v1 frame, or the command of a v1 client.
#[must_use]
pub fn encode_v1<T: Serialize>(id: &str, message: &T) -> String {
    Written { id: Some(id), re: None, session_id: None, message }.text()
}

/// Serialises a command.
#[must_use]
pub fn encode_command(id: &CommandId, session: Option<&SessionId>, command: &Command) -> String {
    Written { id: Some(id.as_str()), re: None, session_id: session, message: command }.text()
}

/// Serialises a reply. Without `re` it is an error about the connection.
#[must_use]
pub fn encode_reply(re: Option<&CommandId>, session: Option<&SessionId>, reply: &Reply) -> String {
    Written { id: None, re, session_id: session, message: reply }.text()
}

/// Serialises an event that is not stored.
#[must_use]
pub fn encode_event<T: Serialize>(session: Option<&SessionId>, event: &T) -> String {
    Written { id: None, re: None, session_id: session, message: event }.text()
}

/// Serialises the frame of a durable event around its stored body, `{"type":…,"payload":…}`, without parsing it.
#[must_use]
pub fn encode_stored(session: &SessionId, seq: u64, body: &str) -> String {
    debug_assert!(body.starts_with('{'), "a stored body is an object");
    let mut frame = String::with_capacity(body.len() + session.as_str().len() + 40);
    // An id needs no escapes: it is letters, digits and a few signs.
    let _ = write!(frame, "{{\"sessionId\":\"{session}\",\"seq\":{seq},");
    frame.push_str(body.get(1..).unwrap_or("}"));
    frame
}

fn unknown_command(name: &str, known: &[&str]) -> ErrorBody {
    let shown = clip(name);
    ErrorBody::new(ErrorCode::UnknownCommand, format!("there is no command `{shown}`; there are {}", known.join(", ")))
        .with_field("type")
}

/// The fields of a v2 frame beside its payload.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct StrictEnvelope<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(default)]
    session_id: Option<SessionId>,
    #[serde(borrow, default)]
    payload: Option<&'a RawValue>,
    /// Any value is accepted: a malformed context is no reason to refuse a command.
    #[serde(borrow, default)]
    traceparent: Option<&'a RawValue>,
}

/// The fields of a v1 frame beside its payload; others are ignored.
#[derive(Deserialize)]
struct LenientEnvelope<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    payload: Option<&'a RawValue>,
}

fn envelope<'a, E: Deserialize<'a>>(text: &'a str, id_of: fn(&E) -> &str) -> Result<(CommandId, E), Refused> {
    let nameless = |error| Refused { id: None, session: None, error };
    check(text).map_err(|error| Refused { id: peek_id(text), session: None, error })?;
    let envelope: E = strict(text).map_err(|fault| {
        let id = peek_id(text);
        let error = match (fault.code, fault.field.as_str()) {
            (ErrorCode::UnknownField, _) | (_, "sessionId") => fault.into_error("the frame"),
            _ => ErrorBody { code: ErrorCode::InvalidFrame, ..fault.into_error("the frame") },
        };
        Refused { id, session: None, error }
    })?;
    let id = id_of(&envelope);
    let invalid = |message: String| nameless(ErrorBody::new(ErrorCode::InvalidId, message).with_field("id"));
    check_id(id).map_err(|error| invalid(error.to_string()))?;
    if id.starts_with(SERVER_ID_PREFIX) {
        return Err(invalid(format!("ids that begin `{SERVER_ID_PREFIX}` are the server's; use another")));
    }
    let id = id.parse().map_err(|error: crate::ids::InvalidId| invalid(error.to_string()))?;
    Ok((id, envelope))
}

/// Returns the id of a frame that is otherwise invalid or was not parsed, so that the error can name its command.
#[must_use]
pub fn peek_id(text: &str) -> Option<CommandId> {
    #[derive(Deserialize)]
    struct Peek<'a> {
        #[serde(borrow)]
        id: Cow<'a, str>,
    }
    let peek: Peek = serde_json::from_str(text).ok()?;
    if peek.id.starts_with(SERVER_ID_PREFIX) { None } else { peek.id.parse().ok() }
}

/// Returns the session that a frame names, if it was not parsed, so that the error can name it too.
#[must_use]
pub fn peek_session(text: &str) -> Option<SessionId> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Peek<'a> {
        #[serde(borrow)]
        session_id: Cow<'a, str>,
    }
    serde_json::from_str::<Peek>(text).ok()?.session_id.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_not_repeated_in_full() {
        let long = "é".repeat(100_000);
        for text in [
            format!(r#"{{"id":"{ID_EXAMPLE}","type":"ping","payload":{{"{long}":1}}}}"#),
            format!(r#"{{"id":"{ID_EXAMPLE}","type":"ping","{long}":1}}"#),
            format!(r#"{{"id":"{ID_EXAMPLE}","type":"{long}"}}"#),
            format!(r#"{{"id":"{ID_EXAMPLE}","type":"ping","payload":{{"{long}":1,"{long}":1}}}}"#),
            format!(r#"{{"id":"{ID_EXAMPLE}","type":"ping","sessionId":"{long}"}}"#),
            format!(
                r#"{{"id":"{ID_EXAMPLE}","type":"navigate","sessionId":"s","payload":{{"entryId":"e","position":"{long}"}}}}"#
            ),
        ] {
            let error = parse_v2(&text).unwrap_err().error;
            let told = serde_json::to_string(&error).unwrap();
            assert!(told.len() < 1_500, "{} bytes: {}", told.len(), clip(&told));
        }
    }

    fn code(text: &str) -> (ErrorCode, Option<String>) {
        let refused = parse_v2(text).unwrap_err();
        let field = refused.error.details.and_then(|d| d["field"].as_str().map(str::to_owned));
        (refused.error.code, field)
    }

    #[test]
    fn a_short_id_is_refused_with_one_that_would_do() {
        let refused = parse_v2(r#"{"id":"1","type":"cancel_turn","sessionId":"s"}"#).unwrap_err();
        assert!(refused.error.message.contains(ID_EXAMPLE), "{}", refused.error.message);
        assert!(parse_v2(&format!(r#"{{"id":"{ID_EXAMPLE}","type":"cancel_turn","sessionId":"s"}}"#)).is_ok());
    }

    #[test]
    fn each_bad_frame_gets_its_code_and_names_the_field() {
        let deep = format!(r#"{{"id":"1","type":"ping","payload":{}{}}}"#, "[".repeat(40), "]".repeat(40));
        let table: Vec<(&str, ErrorCode, Option<&str>)> = vec![
            ("", ErrorCode::InvalidJson, None),
            ("nope", ErrorCode::InvalidJson, None),
            ("[]", ErrorCode::InvalidFrame, None),
            ("{}", ErrorCode::InvalidFrame, Some("id")),
            (r#"{"id":"1","type":"ping"} x"#, ErrorCode::InvalidJson, None),
            (r#"{"id":"1"}"#, ErrorCode::InvalidFrame, Some("type")),
            (r#"{"id":1,"type":"ping"}"#, ErrorCode::InvalidFrame, Some("id")),
            (r#"{"id":"","type":"ping"}"#, ErrorCode::InvalidId, Some("id")),
            (r#"{"id":"s_1","type":"ping"}"#, ErrorCode::InvalidId, Some("id")),
            (r#"{"id":"1","id":"2","type":"ping"}"#, ErrorCode::DuplicateKey, Some("id")),
            (r#"{"id":"1","type":"pong"}"#, ErrorCode::UnknownCommand, Some("type")),
            (r#"{"id":"1","type":"ping","extra":1}"#, ErrorCode::UnknownField, Some("extra")),
            (r#"{"id":"1","type":"ping","payload":{"sq":1}}"#, ErrorCode::UnknownField, Some("sq")),
            (r#"{"id":"1","type":"ping","payload":{"seq":"x"}}"#, ErrorCode::InvalidField, Some("seq")),
            (r#"{"id":"1","type":"ping","payload":[]}"#, ErrorCode::InvalidField, Some("payload")),
            (r#"{"id":"1","type":"user_input","payload":{}}"#, ErrorCode::MissingField, Some("input")),
            (r#"{"id":"1","type":"user_input","payload":{"input":"x"}}"#, ErrorCode::MissingField, Some("sessionId")),
            (
                r#"{"id":"1","type":"user_input","sessionId":"s","payload":{"input":"x"}}"#,
                ErrorCode::InvalidId,
                Some("id"),
            ),
            (r#"{"id":"1","type":"cancel_turn","sessionId":null}"#, ErrorCode::MissingField, Some("sessionId")),
            (r#"{"id":"1","type":"cancel_turn","sessionId":"a b"}"#, ErrorCode::InvalidField, Some("sessionId")),
            (r#"{"id":"1","type":"list_sessions","sessionId":"s"}"#, ErrorCode::UnknownField, Some("sessionId")),
            (r#"{"id":"1","type":"open_session"}"#, ErrorCode::InvalidId, Some("id")),
            (r#"{"id":"1","type":"x","payload":"\ud800"}"#, ErrorCode::InvalidJson, None),
            (&deep, ErrorCode::TooDeep, None),
        ];
        for (text, expected, field) in table {
            let shown: String = text.chars().take(80).collect();
            assert_eq!(code(text), (expected, field.map(str::to_owned)), "{shown}");
        }
    }

    #[test]
    fn a_refusal_is_about_the_session_that_the_frame_names() {
        let session = |text: &str| parse_v2(text).unwrap_err().session.map(|session| session.to_string());
        let id = ID_EXAMPLE;
        for rest in
            [r#""user_input","payload":{"text":"x"}"#, r#""pong""#, r#""hello","payload":{"protocolVersion":2}"#]
        {
            let text = format!(r#"{{"id":"{id}","sessionId":"s","type":{rest}}}"#);
            assert_eq!(session(&text).as_deref(), Some("s"), "{text}");
        }
        assert_eq!(session(&format!(r#"{{"id":"{id}","sessionId":"s","type":"ping","surprise":1}}"#)), None);
        assert_eq!(session(&format!(r#"{{"id":"{id}","type":"pong"}}"#)), None);
    }

    #[test]
    fn a_stored_body_becomes_a_frame_without_being_read() {
        let session = "k7m2q9xw4hfatz8n".parse().unwrap();
        let frame = encode_stored(&session, 7, r#"{"type":"queue_released","payload":{}}"#);
        assert_eq!(frame, r#"{"sessionId":"k7m2q9xw4hfatz8n","seq":7,"type":"queue_released","payload":{}}"#);
    }

    #[test]
    fn unknown_fields_of_input_items_are_refused_on_v2_and_left_out_on_v1() {
        let frame = |item: &str| {
            format!(r#"{{"id":"0123456789abcdef","sessionId":"s","type":"user_input","payload":{{"input":[{item}]}}}}"#)
        };
        let known = frame(r#"{"type":"message","id":"x","status":"completed","role":"user","content":"hi"}"#);
        assert!(parse_v2(&known).is_ok() && parse_v1(&known).is_ok());
        for (unknown, field) in [
            (r#"{"role":"user","content":"hi","parentId":"x"}"#, "input[0].parentId"),
            (
                r#"{"role":"user","content":[{"type":"input_text","text":"hi","cache":true}]}"#,
                "input[0].content[0].cache",
            ),
        ] {
            let unknown = frame(unknown);
            assert_eq!(code(&unknown), (ErrorCode::UnknownField, Some(field.to_owned())), "{unknown}");
            assert!(parse_v1(&unknown).is_ok(), "{unknown}");
        }
    }

    #[test]
    fn v1_takes_null_and_unknown_fields() {
        let text = r#"{"id":"a","type":"approval_response","payload":{"review":"NO_CONTINUE","customDenyMessage":null,"x":1}}"#;
        let (_, command) = parse_v1(text).unwrap();
        let v1::Command::ApprovalResponse(response) = command else { panic!("{command:?}") };
        assert_eq!(response.review, v1::Review::NoContinue);
    }
}
