//! User input: converts the wire forms to message parts.

use crate::model::is_picture_address;
use reseed_protocol::{
    CallId, Entry, EntryData, ErrorBody, ErrorCode, Message, Part, Role,
    content::{Input, InputContent, InputItem, InputPart},
};
use std::collections::HashSet;

/// Parses user input: plain text, or Responses input items with role `user`.
///
/// # Errors
/// `empty_input` if there is neither text nor image; `invalid_field`, with the field, for items that are not user
/// messages and for image URLs that are neither `https:` nor `data:image/`.
pub fn parts(input: Input) -> Result<Vec<Part>, ErrorBody> {
    let parts = match input {
        Input::Text(text) => vec![Part::Text { text }],
        Input::Items(items) => {
            let mut parts = Vec::new();
            for (index, item) in items.into_iter().enumerate() {
                item_parts(index, item, &mut parts)?;
            }
            parts
        }
    };
    let says_something = parts.iter().any(|part| match part {
        Part::Text { text } => !text.trim().is_empty(),
        _ => true,
    });
    if says_something {
        Ok(parts)
    } else {
        Err(ErrorBody::new(ErrorCode::EmptyInput, "the input has no text and no image").with_field("input"))
    }
}

fn item_parts(index: usize, item: InputItem, parts: &mut Vec<Part>) -> Result<(), ErrorBody> {
    let invalid = |field: &str, message: String| {
        Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field(format!("input[{index}].{field}")))
    };
    let short = |text: &str| text.chars().take(40).collect::<String>();
    match item.kind.as_deref() {
        None | Some("message") => {}
        Some(kind) => return invalid("type", format!("an input item must be a `message`, not `{}`", short(kind))),
    }
    if item.role != "user" {
        let role = short(&item.role);
        return invalid(
            "role",
            format!("the role of input must be `user`, not `{role}`; use set_instructions for the system prompt"),
        );
    }
    match item.content {
        InputContent::Text(text) => parts.push(Part::Text { text }),
        InputContent::Parts(content) => {
            for part in content {
                let field = if matches!(part, InputPart::Image { .. }) { "content.url" } else { "content.image_url" };
                match part {
                    InputPart::Text { text } | InputPart::InputText { text } => parts.push(Part::Text { text }),
                    InputPart::Image { url, detail } | InputPart::InputImage { image_url: url, detail } => {
                        if detail.as_deref().is_some_and(|detail| !matches!(detail, "low" | "high" | "auto")) {
                            return invalid("content.detail", "an image's detail must be low, high or auto".to_owned());
                        }
                        if !is_picture_address(&url) {
                            let message = "an image URL must begin with https:// or data:image/".to_owned();
                            return invalid(field, message);
                        }
                        parts.push(Part::Image { url, detail });
                    }
                }
            }
        }
    }
    Ok(())
}

/// Maximum messages of a history that comes with an input. They are appended in one step.
const HISTORY_MAX: usize = 10_000;

/// Checks the messages that come before an input. Returns them with nothing but their roles and contents.
///
/// # Errors
/// `invalid_field`, with the field, for too many messages, an empty one, and parts that a role cannot have.
pub fn history(messages: Vec<Message>) -> Result<Vec<Message>, ErrorBody> {
    let invalid = |field: String, message: String| ErrorBody::new(ErrorCode::InvalidField, message).with_field(field);
    if messages.len() > HISTORY_MAX {
        let message = format!("a history has at most {HISTORY_MAX} messages, not {}", messages.len());
        return Err(invalid("history".to_owned(), message));
    }
    let checked = |(at, message): (usize, Message)| {
        let Message { role, content, .. } = message;
        if content.is_empty() {
            return Err(invalid(format!("history[{at}].content"), "a message has at least one part".to_owned()));
        }
        for (part_at, part) in content.iter().enumerate() {
            let fault = match (role, part) {
                (_, Part::Image { url, .. }) if !is_picture_address(url) => {
                    Some("an image URL must begin with https:// or data:image/")
                }
                (Role::User, Part::Text { .. } | Part::Image { .. })
                | (Role::Assistant, Part::Text { .. } | Part::Reasoning { .. } | Part::ToolCall { .. }) => None,
                (Role::Tool, Part::ToolResult { .. }) if part_at == 0 => None,
                (Role::Tool, Part::Image { .. }) if part_at > 0 => None,
                (Role::User, _) => Some("a user's message has texts and images"),
                (Role::Assistant, _) => Some("an answer has texts, reasoning and calls"),
                (Role::Tool, _) => Some("a tool's message has one result, and images after it"),
            };
            if let Some(fault) = fault {
                return Err(invalid(format!("history[{at}].content[{part_at}]"), fault.to_owned()));
            }
        }
        Ok(Message::new(role, content))
    };
    messages.into_iter().enumerate().map(checked).collect()
}

/// Checks that each result in these messages is the only one of a call that comes before it: in them, or in the last
/// answer of the path, whose messages are given newest first.
///
/// # Errors
/// `unknown_call`, with the field.
pub fn check_results<'a>(path: impl Iterator<Item = &'a Message>, messages: &'a [Message]) -> Result<(), ErrorBody> {
    let mut open: HashSet<&CallId> = HashSet::new();
    let mut answered: HashSet<&CallId> = HashSet::new();
    for message in path {
        match message.role {
            Role::Tool => answered.extend(results(message)),
            Role::Assistant => {
                open.extend(message.tool_calls().map(|(id, _, _)| id).filter(|id| !answered.contains(id)));
                break;
            }
            Role::User => {}
        }
    }
    for (at, message) in messages.iter().enumerate() {
        open.extend(message.tool_calls().map(|(id, _, _)| id));
        for call in results(message) {
            if !open.remove(call) {
                let message = format!("`{call}` is not a call of the last answer that has no result yet");
                let error = ErrorBody::new(ErrorCode::UnknownCall, message);
                return Err(error.with_field(format!("history[{at}].content[0].toolCallId")));
            }
        }
    }
    Ok(())
}

fn results(message: &Message) -> impl Iterator<Item = &CallId> {
    message.content.iter().filter_map(|part| match part {
        Part::ToolResult { call_id, .. } => Some(call_id),
        _ => None,
    })
}

/// Derives a session's name for the list from its first message: one line of at most 60 characters.
#[must_use]
pub fn name_from(parts: &[Part]) -> String {
    const NAME_CHARS_MAX: usize = 60;
    let text = parts.iter().find_map(|part| match part {
        Part::Text { text } if !text.trim().is_empty() => Some(text.as_str()),
        _ => None,
    });
    let line: String = text.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= NAME_CHARS_MAX {
        return line;
    }
    let cut: String = line.chars().take(NAME_CHARS_MAX - 1).collect();
    format!("{}…", cut.trim_end())
}

/// Returns true if an entry is a message. `ifLeaf` relies on this check.
#[must_use]
pub fn is_message(entry: &Entry) -> bool {
    matches!(entry.data, EntryData::Message(_) | EntryData::CustomMessage(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(json: &str) -> Result<Vec<Part>, (ErrorCode, String)> {
        let input = serde_json::from_str(json).unwrap();
        parts(input).map_err(|error| (error.code, error.details.unwrap()["field"].as_str().unwrap().to_owned()))
    }

    #[test]
    fn input_is_read_or_refused_by_field() {
        let text = |text: &str| vec![Part::Text { text: text.into() }];
        let image = |detail: Option<&str>| Part::Image {
            url: "https://example.org/a.png".into(),
            detail: detail.map(str::to_owned),
        };
        let table = [
            (r#""hi""#, Ok(text("hi"))),
            (r#"[{"role":"user","content":"hi"}]"#, Ok(text("hi"))),
            (r#"[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}]"#, Ok(text("hi"))),
            (r#"[{"role":"user","content":[{"type":"text","text":"hi"}]}]"#, Ok(text("hi"))),
            (
                r#"[{"role":"user","content":[{"type":"image","url":"https://example.org/a.png","detail":"low"},
                    {"type":"input_image","image_url":"https://example.org/a.png"}]}]"#,
                Ok(vec![image(Some("low")), image(None)]),
            ),
            (
                r#"[{"role":"user","content":[{"type":"image","url":"/etc/passwd"}]}]"#,
                Err((ErrorCode::InvalidField, "input[0].content.url".into())),
            ),
            (
                r#"[{"role":"user","content":[{"type":"image","url":"https://a.example","detail":"best"}]}]"#,
                Err((ErrorCode::InvalidField, "input[0].content.detail".into())),
            ),
            (r#"" \n""#, Err((ErrorCode::EmptyInput, "input".into()))),
            ("[]", Err((ErrorCode::EmptyInput, "input".into()))),
            (r#"[{"role":"system","content":"x"}]"#, Err((ErrorCode::InvalidField, "input[0].role".into()))),
            (
                r#"[{"type":"reasoning","role":"user","content":"x"}]"#,
                Err((ErrorCode::InvalidField, "input[0].type".into())),
            ),
            (
                r#"[{"role":"user","content":[{"type":"input_image","image_url":"file:///etc/passwd"}]}]"#,
                Err((ErrorCode::InvalidField, "input[0].content.image_url".into())),
            ),
        ];
        for (json, expected) in table {
            assert_eq!(code(json), expected, "{json}");
        }
    }

    #[test]
    fn a_name_is_one_short_line() {
        assert_eq!(name_from(&[Part::Text { text: " a\n b ".into() }]), "a b");
        assert_eq!(name_from(&[Part::Text { text: "é".repeat(100) }]).chars().count(), 60);
    }
}
