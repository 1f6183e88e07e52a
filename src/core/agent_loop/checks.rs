//! Checks of texts from clients and hooks: names, custom messages, and summaries with their instructions.

use crate::{
    compaction::summary::INSTRUCTIONS_BYTES_MAX, context::arguments::is_tool_name, hook::HookFault, session::input,
};
use reseed_protocol::{
    ErrorBody, ErrorCode, Part,
    content::{Input, InputContent, InputItem},
    context::{AnswerFormat, AnswerOptions, ToolChoice},
    session::SetOptions,
};

/// Maximum length of a session's name or an entry's label, in characters.
const NAME_CHARS_MAX: usize = 200;

/// Maximum length of a model's name, a reasoning effort, or a custom type, in characters.
const WORD_CHARS_MAX: usize = 200;

/// Maximum bytes of a program's details on a message. An entry stays in memory while the model sees it.
const DETAILS_BYTES_MAX: usize = 64 * 1024;

/// Maximum bytes of the schema of an answer's format. It is part of the session's settings, which are stored with each
/// change of any of them.
const FORMAT_BYTES_MAX: usize = 64 * 1024;

/// Maximum bytes of a hook's summary, and of the details stored with it.
const SUMMARY_BYTES_MAX: usize = 256 * 1024;

/// Error for a hook whose message has a different role.
pub(crate) const ANOTHER_ROLE: &str = "its message has another role; the role stays";

/// Validates a name and returns it trimmed.
pub(crate) fn check_name(field: &str, name: &str) -> Result<String, ErrorBody> {
    let name = name.trim();
    if name.chars().any(char::is_control) {
        let message = format!("a {field} has no control characters");
        return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field(field));
    }
    if name.is_empty() || name.chars().count() > NAME_CHARS_MAX {
        let message = format!("a {field} must have 1 to {NAME_CHARS_MAX} characters, not {}", name.chars().count());
        return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field(field));
    }
    Ok(name.to_owned())
}

/// Checks the size of a program's details on a message.
///
/// # Errors
/// `invalid_field`, with the size and the limit.
pub(crate) fn check_details(details: Option<&serde_json::Value>) -> Result<(), ErrorBody> {
    let bytes = details.map_or(0, |details| details.to_string().len());
    if bytes > DETAILS_BYTES_MAX {
        let message = format!("`details` has {bytes} bytes; at most {DETAILS_BYTES_MAX} are allowed");
        return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("details"));
    }
    Ok(())
}

/// Checks the form of answers that a session is set to.
///
/// # Errors
/// `invalid_field`, with the field.
pub(crate) fn check_answer_options(set: &SetOptions) -> Result<(), ErrorBody> {
    let invalid =
        |field: &str, message: String| Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field(field));
    if let Some(count) = set.answer.as_ref().and_then(|answer| answer.top_logprobs).filter(|count| *count > 20) {
        return invalid("answer.topLogprobs", format!("topLogprobs must be 0 to 20, not {count}"));
    }
    if let Some(top_p) = set.top_p.filter(|top_p| !(0.0..=1.0).contains(top_p)) {
        return invalid("topP", format!("topP must be 0 to 1, not {top_p}"));
    }
    let Some(AnswerOptions { tool_choice, format, .. }) = &set.answer else { return Ok(()) };
    if matches!(tool_choice, Some(ToolChoice::Tool { name }) if !is_tool_name(name)) {
        return invalid("answer.toolChoice.name", "a tool's name must be 1 to 64 of A-Za-z0-9_-".to_owned());
    }
    if let Some(AnswerFormat::JsonSchema { name, description, schema, .. }) = format {
        if !is_tool_name(name) {
            return invalid("answer.format.name", "a format's name must be 1 to 64 of A-Za-z0-9_-".to_owned());
        }
        if !schema.is_object() {
            return invalid("answer.format.schema", "it must be a JSON Schema as an object".to_owned());
        }
        let bytes = schema.to_string().len() + description.as_ref().map_or(0, String::len);
        if bytes > FORMAT_BYTES_MAX {
            let message = format!("the format has {bytes} bytes; at most {FORMAT_BYTES_MAX} are allowed");
            return invalid("answer.format", message);
        }
    }
    Ok(())
}

pub(crate) fn check_custom_type(custom_type: &str) -> Result<(), ErrorBody> {
    check_word("customType", custom_type)
}

pub(crate) fn check_word(field: &str, text: &str) -> Result<(), ErrorBody> {
    if text.trim().is_empty() || text.chars().count() > WORD_CHARS_MAX || text.chars().any(char::is_control) {
        let message = format!("`{field}` must have 1 to {WORD_CHARS_MAX} characters, none of them a control character");
        return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field(field));
    }
    Ok(())
}

/// Checks that instructions are not blank if they replace the server's own.
pub(crate) fn check_replaced(instructions: Option<&str>, replace: Option<bool>) -> Result<(), ErrorBody> {
    if replace == Some(true) && instructions.is_none_or(|text| text.trim().is_empty()) {
        let message = "replaceInstructions is true, and there are no instructions to take the place of ours";
        return Err(ErrorBody::new(ErrorCode::MissingField, message).with_field("instructions"));
    }
    Ok(())
}

/// Checks the form and size of a hook's summary and its details.
pub(crate) fn check_summary(
    summary: Option<&str>,
    details: Option<&serde_json::Value>,
    instructions: Option<&str>,
) -> Result<(), HookFault> {
    if summary.is_some_and(|summary| summary.trim().is_empty()) {
        return Err(HookFault::failed("its summary is blank; leave the field out to have one made"));
    }
    let sizes = [
        ("summary", summary.map_or(0, str::len), SUMMARY_BYTES_MAX),
        ("details", details.map_or(0, |details| details.to_string().len()), SUMMARY_BYTES_MAX),
        ("instructions", instructions.map_or(0, str::len), INSTRUCTIONS_BYTES_MAX),
    ];
    match sizes.into_iter().find(|(_, bytes, max)| bytes > max) {
        Some((what, bytes, max)) => {
            Err(HookFault::failed(format!("its `{what}` has {bytes} bytes; at most {max} are allowed")))
        }
        None => Ok(()),
    }
}

pub(crate) fn custom_parts(content: InputContent) -> Result<Vec<Part>, ErrorBody> {
    let item = InputItem { kind: None, id: None, status: None, role: "user".to_owned(), content };
    input::parts(Input::Items(vec![item])).map_err(|error| error.with_field("content"))
}

/// Converts the error for an invalid answer to a hook failure.
pub(crate) fn refused(error: ErrorBody) -> HookFault {
    HookFault::failed(error.message)
}

/// Returns the error for work that a failed hook has ended.
pub(crate) fn hook_error(hook: &str, point: &str, fault: &HookFault) -> ErrorBody {
    let message = format!("the hook `{hook}` at `{point}` failed: {}", fault.message);
    ErrorBody::new(fault.code, message).with_details(serde_json::json!({ "hook": hook, "point": point }))
}
