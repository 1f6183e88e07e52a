//! Shared by both request dialects: which texts of a message are sent.

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
