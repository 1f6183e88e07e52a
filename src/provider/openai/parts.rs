//! Shared by both request dialects: which texts of a message are sent, and whether tools may be called.

use super::plan::Plan;
use crate::core::{model::Purpose, need::Need};
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

/// Returns the `tool_choice` that forbids calls. A summary's request carries the conversation's own tools, so that it
/// hits the provider's cache, but the model must write the summary instead of calling them.
pub(super) fn forbids_calls(plan: &Plan<'_>) -> Option<&'static str> {
    let is_forbidden = plan.request.purpose == Purpose::Summary && plan.has_tools();
    (is_forbidden && !plan.does(Need::NoToolChoice)).then_some("none")
}
