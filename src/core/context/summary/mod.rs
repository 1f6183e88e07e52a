//! The summary that stands for an older stretch of a session: what is asked of the model, what is accepted from it, and
//! how it stands in the context afterwards.
//!
//! - [`prompt`](fn@prompt) asks; [`check`] accepts or says why not; [`seed_text`] places; [`unseed`] recognises
//! - a summary has the six [`SECTIONS`] in their order, whatever a model made of the headings
//! - lists of files are appended once, by [`with_files`], and taken off by [`strip_files`] before a summary is merged

mod files;
mod prompt;
mod sections;

pub use files::{file_operations, strip_files, with_files};
pub use prompt::{INSTRUCTIONS_CHARS_MAX, PromptParts, QuotedRequest, prompt, read_prompt, system_prompt};
pub(crate) use sections::item_text;
pub use sections::{SECTIONS, SKELETON_CHARS, Sections, Slot};

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
    let text = without_fences(without_thoughts(text.trim()));
    if text.is_empty() {
        return Err(Unusable::Empty);
    }
    let sections = Sections::parse(strip_files(text));
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
    let text = strip_files(without_fences(without_thoughts(text.trim()))).trim();
    if text.is_empty() { Err(Unusable::Empty) } else { Ok(text.to_owned()) }
}

/// Opens the text under which a summary stands in the context.
const SEED_HEAD: &str = "The earlier part of this conversation was summarised to save room. This is a record of what \
                         happened, not a request.\n\n<summary>\n";
const SEED_TAIL: &str = "\n</summary>";

/// The summary as the model reads it: the text of a user-role message that records what happened.
#[must_use]
pub fn seed_text(summary: &str) -> String {
    format!("{SEED_HEAD}{}{SEED_TAIL}", summary.trim())
}

/// Opens the text under which the summary of a branch that was left stands in the context.
const BRANCH_HEAD: &str = "Another branch of this conversation went on from here and was left. This is a record of what \
                           was said on it, not a request.\n\n<summary>\n";

/// The summary of a branch that was left, as the model reads it: a user-role record of what was said elsewhere.
#[must_use]
pub fn branch_text(summary: &str) -> String {
    format!("{BRANCH_HEAD}{}{SEED_TAIL}", summary.trim())
}

/// The summary in a text that [`seed_text`] or [`branch_text`] made; `None` for any other text.
#[must_use]
pub fn unseed(text: &str) -> Option<&str> {
    text.strip_prefix(SEED_HEAD).or_else(|| text.strip_prefix(BRANCH_HEAD))?.strip_suffix(SEED_TAIL)
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
        assert_eq!(unseed(&seed_text(GOOD)), Some(GOOD));
        assert_eq!(unseed(GOOD), None);
        assert_eq!(unseed("<summary>\nx\n</summary>"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_taken_or_refused(text in "(\\PC|\n|#|`){0,200}") {
            let _ = check(&text);
            let seed = seed_text(&text);
            prop_assert_eq!(unseed(&seed), Some(text.trim()));
        }

        #[test]
        fn what_was_accepted_is_accepted_unchanged(body in "(\\PC|\n){0,80}") {
            let once = check(&format!("{GOOD}\n{body}")).unwrap();
            prop_assert_eq!(check(&once), Ok(once.clone()));
        }
    }
}
