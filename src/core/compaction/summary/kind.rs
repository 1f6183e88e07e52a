//! The kind of a conversation, and what its summary must therefore keep.

use reseed_protocol::{Message, Part, compaction::SummaryKind};

/// Returns what a summary of this kind must keep, in the words of the request.
pub(super) fn task(kind: SummaryKind) -> &'static str {
    match kind {
        SummaryKind::Auto | SummaryKind::Chat => "",
        SummaryKind::Code => {
            " Keep which files were changed and how, symbols with their signatures word for word, and decisions with \
             their reasons."
        }
        SummaryKind::Debugging => {
            " Keep the symptoms, exact errors word for word, how to reproduce them, which hypotheses were ruled out \
             and why, and what is suspected now."
        }
        SummaryKind::Research => {
            " Keep every source with its address, each claim with its source, and the questions that are open."
        }
    }
}

/// Recognises the kind of a conversation by simple signs: work on code calls tools or shows blocks of code.
#[must_use]
pub fn recognise<'a>(messages: impl Iterator<Item = &'a Message>) -> SummaryKind {
    let is_work = |part: &Part| match part {
        Part::ToolCall { .. } | Part::ToolResult { .. } => true,
        Part::Text { text } => text.contains("```"),
        Part::Image { .. } | Part::Reasoning { .. } => false,
    };
    let mut parts = messages.flat_map(|message| &message.content);
    if parts.any(is_work) { SummaryKind::Code } else { SummaryKind::Chat }
}
