//! Shared by both request dialects: which texts of a message can be sent, and whether tools may be called.

use crate::core::model::{ModelRequest, Purpose};
use reseed_protocol::Part;
use std::borrow::Cow;

/// Joins the texts of these parts; `None` if they are empty.
pub(super) fn joined_text(parts: &[Part]) -> Option<Cow<'_, str>> {
    let mut joined: Option<Cow<'_, str>> = None;
    for part in parts {
        if let Part::Text { text } = part
            && !text.is_empty()
        {
            joined = Some(match joined {
                None => Cow::Borrowed(text),
                Some(before) => Cow::Owned(format!("{before}\n{text}")),
            });
        }
    }
    joined
}

/// Returns the `tool_choice` that forbids calls: a summary that goes out with the conversation's own tools, so that the
/// provider's cache is used, is to be written and not to call any.
pub(super) fn forbids_calls(request: &ModelRequest) -> Option<&'static str> {
    (request.purpose == Purpose::Summary && !request.envelope.tools.is_empty()).then_some("none")
}
