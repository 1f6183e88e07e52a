//! The summary of an older part of a session: what is requested from the model, what is accepted from it, and how it
//! appears in the context.
//!
//! - [`prompt`](fn@prompt) builds the request; [`check`](fn@check) accepts the answer or says why not;
//! - a summary has the six [`SECTIONS`] in order, whatever headings a model wrote
//! - file lists are appended once, by [`with_files`], and removed by [`strip_files`] before a summary is merged
//! - neither input nor output contains invisible characters ([`clean`](fn@clean)) or secrets ([`mask_secrets`])
//! - constraints are those that were said, verbatim ([`settle`])
//! - [`repair`] restores important facts that a summary lost

mod check;
mod constraints;
mod garbage;
mod kind;
mod prompt;
mod prose;
mod repetition;
mod retain;

pub use crate::core::text::{
    clean::clean,
    files::{FileTools, file_operations, strip_files, with_files},
    secrets::{MASK, mask_secrets},
    sections::{RESTORED, SKELETON_CHARS, Sections, item_text},
    slot::{SECTIONS, Slot},
};
pub use check::{Unusable, check, check_completed, check_copied, check_free_form, check_prose, lacking};
pub use constraints::{CONSTRAINTS_MAX, ConstraintSources, INFERRED, Settled, settle, stated};
pub use kind::recognise;
pub use prompt::{
    Form, INSTRUCTIONS_BYTES_MAX, InPlaceParts, InPlaceRequest, PromptParts, QuotedRequest, complete, in_place, prompt,
    read_in_place, read_prompt, system_prompt,
};
pub use repetition::{Repetition, before_repetition};
pub use retain::{RepairBounds, Repaired, repair};

use reseed_protocol::{Message, Part, Role, command::SummaryKind};

/// Builds the tables with which texts are searched, on the calling thread instead of in the first compaction. The whole
/// process shares them, and building them takes longer than a small compaction.
pub fn warm() {
    let said = |role| Message::new(role, vec![Part::Text { text: "I have said this.".to_owned() }]);
    let said = [Role::User, Role::Assistant].map(said);
    let messages: Vec<&Message> = said.iter().collect();
    let bounds = RepairBounds { tokens_max: 0, count: &|_| 0 };
    let _ = recognise(said.iter());
    for kind in [SummaryKind::Chat, SummaryKind::Code, SummaryKind::Debugging, SummaryKind::Research] {
        let _ = repair("", &messages, None, kind, bounds);
    }
    let sources = ConstraintSources { messages: &messages, kept: &[], noted: &[], rules: &[], previous: None };
    let _ = settle("", sources, bounds);
}
