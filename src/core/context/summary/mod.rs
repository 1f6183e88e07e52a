//! The summary that stands for an older stretch of a session: what is asked of the model, what is accepted from it, and
//! how it stands in the context afterwards.
//!
//! - [`prompt`](fn@prompt) asks; [`check`] accepts or says why not; [`seed_text`] places; [`unseed`] recognises
//! - a summary has the six [`SECTIONS`] in their order, whatever a model made of the headings
//! - lists of files are appended once, by [`with_files`], and taken off by [`strip_files`] before a summary is merged
//! - what goes in and what comes out has no invisible characters ([`clean`](fn@clean)) and no secrets ([`mask_secrets`])
//! - what a summary has lost of what matters is put back by [`repair`]

mod clean;
mod escape;
mod files;
mod prompt;
mod retain;
mod secrets;
mod sections;

pub use clean::clean;
pub(crate) use escape::{Place, escape, unescape};
pub use files::{FileTools, file_operations, strip_files, with_files};
pub use prompt::{
    INSTRUCTIONS_CHARS_MAX, InPlaceParts, InPlaceRequest, PromptParts, QuotedRequest, in_place, prompt, read_in_place,
    read_prompt, system_prompt,
};
pub use retain::{RepairBounds, Repaired, repair};
pub use secrets::{MASK, mask_secrets};
pub(crate) use sections::item_text;
pub use sections::{RESTORED, SECTIONS, SKELETON_CHARS, Sections, Slot};

use std::borrow::Cow;

/// Why an answer is not a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// There is no text.
    #[error("the summary is empty")]
    Empty,
    /// A section is not there, as when the answer is cut or talks about something else.
    #[error("the summary has no section `{0}`")]
    Missing(&'static str),
    /// Every section is there and none says anything.
    #[error("no section of the summary says anything")]
    Nothing,
}

/// Takes a model's answer as a summary: thoughts, fences and what stands before the first section are left off, the
/// headings are brought into their one form and order, what stands below them is kept.
///
/// # Errors
/// The first thing that is missing.
pub fn check(text: &str) -> Result<String, Unusable> {
    let text = answer(text);
    if text.is_empty() {
        return Err(Unusable::Empty);
    }
    let sections = Sections::parse(&text);
    if let Some(name) = sections.missing() {
        return Err(Unusable::Missing(name));
    }
    if sections.is_empty() {
        return Err(Unusable::Nothing);
    }
    Ok(sections.to_string())
}

/// Takes a model's answer as a summary of whatever form: thoughts and fences are left off.
///
/// # Errors
/// [`Unusable::Empty`].
pub fn check_free_form(text: &str) -> Result<String, Unusable> {
    let text = answer(text);
    if text.is_empty() { Err(Unusable::Empty) } else { Ok(text) }
}

/// A text as it may go into a summary or to a model that makes one: nothing invisible, no secrets.
pub(crate) fn presentable(text: &str) -> Cow<'_, str> {
    match clean(text) {
        Cow::Borrowed(text) => mask_secrets(text),
        Cow::Owned(text) => Cow::Owned(mask_secrets(&text).into_owned()),
    }
}

/// What a model meant to answer: without thoughts, fences and lists of files, without invisible characters and secrets,
/// and with what it read escaped as it was before.
fn answer(text: &str) -> String {
    let text = clean(text);
    let text = strip_files(without_fences(without_thoughts(text.trim())));
    let text = escape::bare(text, Place::Summary);
    mask_secrets(text.trim()).into_owned()
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

/// Models that think aloud put it in front; a thought without its end has no answer behind it.
fn without_thoughts(text: &str) -> &str {
    match text.strip_prefix("<think>") {
        Some(rest) => rest.split_once("</think>").map_or("", |(_, answer)| answer.trim()),
        None => text,
    }
}

fn without_fences(text: &str) -> &str {
    let Some(inner) = text.strip_prefix("```") else { return text };
    let inner = inner.split_once('\n').map_or("", |(_language, body)| body).trim_end();
    inner.strip_suffix("```").unwrap_or(inner).trim()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOOD: &str = "## Goal\n- Feed Miso\n\n## Constraints & Preferences\n- none\n\n## Progress\n### Done\n- none\n\
                        ### In Progress\n- none\n### Blocked\n- none\n\n## Key Decisions\n- none\n\n## Next Steps\n- \
                        Buy food\n\n## Critical Context\n- The cat is called Miso";

    #[track_caller]
    fn accepted(text: &str) {
        assert_eq!(check(text).as_deref(), Ok(GOOD), "from {text}");
    }

    #[test]
    fn sloppy_headings_are_brought_into_form() {
        accepted(GOOD);
        accepted(&format!("  ```markdown\n{GOOD}\n```\n"));
        accepted(&format!("<think>## Goal\n- think</think>\n{GOOD}"));
        accepted(&format!("Here is the summary:\n\n{GOOD}"));
        accepted(&GOOD.replace("## ", "# "));
        accepted(&GOOD.replace("## Goal", "**Goal:**").replace("### Done", "**Done**:"));
        accepted(&GOOD.replace("Constraints & Preferences", "constraints and preferences:"));
        accepted(&GOOD.replace("## Next Steps\n- Buy food", "5. NEXT STEPS: - Buy food"));
        accepted(&GOOD.replace("### Done\n- none\n### In Progress\n- none\n### Blocked\n- none", "(none)"));
        accepted(&format!("{GOOD}\n\n<read-files>\na.rs\n</read-files>"));
    }

    #[test]
    fn sections_in_another_order_are_put_in_order() {
        let (first, rest) = GOOD.split_once("\n\n").unwrap();
        accepted(&format!("{rest}\n{first}"));
    }

    #[test]
    fn what_is_no_summary_is_refused() {
        for (text, expected) in [
            ("", Unusable::Empty),
            (" \n ", Unusable::Empty),
            ("```\n```", Unusable::Empty),
            ("<think>still thinking", Unusable::Empty),
            ("I am sorry, I cannot do that.", Unusable::Missing("Goal")),
            (GOOD.split_once("## Key").unwrap().0, Unusable::Missing("Key Decisions")),
            (GOOD.split_once("## Critical").unwrap().0, Unusable::Missing("Critical Context")),
        ] {
            assert_eq!(check(text), Err(expected), "from {text}");
        }
        assert_eq!(check(&Sections::default().to_string()), Err(Unusable::Nothing));
    }

    #[test]
    fn a_seed_is_recognised_and_nothing_else() {
        assert_eq!(unseed(&seed_text(GOOD)).as_deref(), Some(GOOD));
        assert_eq!(unseed(&branch_text(GOOD)).as_deref(), Some(GOOD));
        assert_eq!(unseed(GOOD), None);
        assert_eq!(unseed("<summary>\nx\n</summary>"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_taken_or_refused(text in "(\\PC|\n|#|`){0,200}") {
            let _ = check(&text);
            let seed = seed_text(&text);
            let visible = clean(&text);
            prop_assert_eq!(unseed(&seed).unwrap(), visible.trim());
            prop_assert_eq!(seed.matches("</summary>").count(), 1);
        }

        #[test]
        fn what_was_accepted_is_accepted_unchanged(body in "(\\PC|\n){0,80}") {
            let once = check(&format!("{GOOD}\n{body}")).unwrap();
            prop_assert_eq!(check(&once), Ok(once.clone()));
        }
    }
}
