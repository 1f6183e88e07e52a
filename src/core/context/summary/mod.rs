//! The summary that stands for an older stretch of a session: what is asked of the model, what is accepted from it, and
//! how it stands in the context afterwards.
//!
//! - [`prompt`](fn@prompt) asks; [`check`] accepts or says why not; [`seed_text`] places; [`unseed`] recognises
//! - a summary has the six [`SECTIONS`] in their order, whatever a model made of the headings
//! - lists of files are appended once, by [`with_files`], and taken off by [`strip_files`] before a summary is merged
//! - what goes in and what comes out has no invisible characters ([`clean`](fn@clean)) and no secrets ([`mask_secrets`])
//! - constraints are those that were said, word for word ([`settle`])
//! - what a summary has lost of what matters is put back by [`repair`]

mod check;
mod clean;
mod constraints;
mod escape;
mod files;
mod garbage;
mod headings;
mod kind;
mod prompt;
mod prose;
mod retain;
mod secrets;
mod sections;

pub use check::{Unusable, check, check_completed, check_copied, check_free_form, check_prose, lacking};
pub use clean::clean;
pub use constraints::{CONSTRAINTS_MAX, INFERRED, Said, Settled, settle, stated};
pub(crate) use escape::{Place, escape, unescape};
pub use files::{FileTools, file_operations, strip_files, with_files};
pub use kind::recognise;
pub use prompt::{
    Form, INSTRUCTIONS_BYTES_MAX, InPlaceParts, InPlaceRequest, PromptParts, QuotedRequest, complete, in_place, prompt,
    read_in_place, read_prompt, system_prompt,
};
pub use retain::{RepairBounds, Repaired, repair};
pub use secrets::{MASK, mask_secrets};
pub use sections::item_text;
pub use sections::{RESTORED, SECTIONS, SKELETON_CHARS, Sections, Slot};

use std::borrow::Cow;

/// A text as it may go into a summary or to a model that makes one: nothing invisible, no secrets.
pub(crate) fn presentable(text: &str) -> Cow<'_, str> {
    match clean(text) {
        Cow::Borrowed(text) => mask_secrets(text),
        Cow::Owned(text) => Cow::Owned(mask_secrets(&text).into_owned()),
    }
}

/// Opens the text under which a summary stands in the context.
const SEED_HEAD: &str = "The earlier part of this conversation was summarised to save room. This is a record of what \
                         happened, not a request.\n\n<summary>\n";
const SEED_TAIL: &str = "\n</summary>";

/// The summary as the model reads it: the text of a user-role message that records what happened, and that nothing in
/// the summary can end.
#[must_use]
pub fn seed_text(summary: &str) -> String {
    record(SEED_HEAD, summary)
}

fn record(head: &str, summary: &str) -> String {
    let summary = clean(summary);
    format!("{head}{}{SEED_TAIL}", escape(summary.trim(), Place::Record))
}

/// Opens the text under which the summary of a branch that was left stands in the context.
const BRANCH_HEAD: &str = "Another branch of this conversation went on from here and was left. This is a record of what \
                           was said on it, not a request.\n\n<summary>\n";

/// The summary of a branch that was left, as the model reads it: a user-role record of what was said elsewhere.
#[must_use]
pub fn branch_text(summary: &str) -> String {
    record(BRANCH_HEAD, summary)
}

/// The summary in a text that [`seed_text`] or [`branch_text`] made, as it was; `None` for any other text.
#[must_use]
pub fn unseed(text: &str) -> Option<Cow<'_, str>> {
    let summary = text.strip_prefix(SEED_HEAD).or_else(|| text.strip_prefix(BRANCH_HEAD))?.strip_suffix(SEED_TAIL)?;
    Some(unescape(summary, Place::Record))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOOD: &str = "## Goal\n- Feed Miso\n\n## Constraints & Preferences\n- none\n\n## Progress\n### Done\n- none\n\
                        ### In Progress\n- none\n### Blocked\n- none\n\n## Key Decisions\n- none\n\n## Next Steps\n- \
                        Buy food\n\n## Critical Context\n- The cat is called Miso";

    #[test]
    fn a_seed_is_recognised_and_nothing_else() {
        assert_eq!(unseed(&seed_text(GOOD)).as_deref(), Some(GOOD));
        assert_eq!(unseed(&branch_text(GOOD)).as_deref(), Some(GOOD));
        assert_eq!(unseed(GOOD), None);
        assert_eq!(unseed("<summary>\nx\n</summary>"), None);
    }

    proptest! {
        #[test]
        fn any_text_comes_back_from_its_seed(text in "(\\PC|\n|#|`){0,200}") {
            let seed = seed_text(&text);
            let visible = clean(&text);
            prop_assert_eq!(unseed(&seed).unwrap(), visible.trim());
            prop_assert_eq!(seed.matches("</summary>").count(), 1);
        }
    }
}
