//! Reading what a hook answered as a patch.

use super::{OPS_MAX, PATCH_BYTES_MAX, PatchRefused};
use reseed_protocol::{
    Message,
    patch::{MessageEdit, PatchMessage, PatchOp},
};
use serde_json::Value;

/// Characters of an op's name that are told where it is unknown.
const NAME_CHARS_MAX: usize = 64;

/// Reads ops. Of the messages that they carry only role and content are taken: what else stands on a message is told by
/// whoever answered, and measured here.
///
/// # Errors
/// The first op that is unknown, has an unknown field, or one of another type; too many of them, or too large.
pub fn read(values: Vec<Value>) -> Result<Vec<PatchOp>, PatchRefused> {
    if values.len() > OPS_MAX {
        let why = format!("a patch has at most {OPS_MAX} ops, not {}", values.len());
        return Err(PatchRefused { index: OPS_MAX, op: name_of(&values[OPS_MAX]), why });
    }
    let mut bytes = 0;
    values
        .into_iter()
        .enumerate()
        .map(|(index, value)| {
            let op = name_of(&value);
            bytes += serde_json::to_vec(&value).map_or(0, |json| json.len());
            if bytes > PATCH_BYTES_MAX {
                let why = format!("the patch has more than {PATCH_BYTES_MAX} bytes up to here");
                return Err(PatchRefused { index, op, why });
            }
            let read = serde_json::from_value(value);
            read.map(bare).map_err(|error| PatchRefused { index, op, why: shown(&error) })
        })
        .collect()
}

/// What is wrong with an op: which name is unknown or missing, never a value. The reader tells the kind of a fault in the
/// beginning of its text, and quotes what it met.
fn shown(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let quoted = text.split('`').nth(1).unwrap_or_default();
    let letters = |c: &char| c.is_ascii_alphanumeric() || "_.-".contains(*c);
    let name: String = quoted.chars().filter(letters).take(NAME_CHARS_MAX).collect();
    let begins = |beginning| text.starts_with(beginning);
    let expected = text.rsplit_once(", expected ").map_or("something else", |(_, expected)| expected);
    if begins("unknown variant ") {
        format!("unknown variant `{name}`, expected {expected}")
    } else if begins("unknown field ") {
        format!("unknown field `{name}`")
    } else if begins("missing field ") {
        format!("missing field `{name}`")
    } else if begins("duplicate field ") {
        format!("duplicate field `{name}`")
    } else if begins("invalid type") {
        format!("invalid type of a value, expected {expected}")
    } else if begins("invalid value") {
        format!("invalid value, expected {expected}")
    } else {
        "a value is not what belongs there".to_owned()
    }
}

fn name_of(value: &Value) -> String {
    let name = value.get("op").and_then(Value::as_str).unwrap_or_default();
    name.chars().filter(|c| !c.is_control()).take(NAME_CHARS_MAX).collect()
}

/// An op whose messages have a role and a content and nothing else.
#[must_use]
pub(crate) fn bare(mut op: PatchOp) -> PatchOp {
    let strip = |message: &mut Message| {
        *message = Message::new(message.role, std::mem::take(&mut message.content));
    };
    match &mut op {
        PatchOp::MessagesCachedReplace { messages, .. } => {
            messages.iter_mut().filter_map(|PatchMessage { message, .. }| message.as_mut()).for_each(strip);
        }
        PatchOp::MessagesCachedEdit { edits, .. } => {
            edits.iter_mut().filter_map(|MessageEdit { message, .. }| message.as_mut()).for_each(strip);
        }
        PatchOp::MessagesUncachedAppend { messages } => messages.iter_mut().for_each(strip),
        _ => {}
    }
    op
}
