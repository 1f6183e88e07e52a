//! The form of a summary in the context: a record of past events, in the user role.

use crate::text::{
    clean::clean,
    escape::{TextKind, escape, unescape},
};
use std::borrow::Cow;

/// Precedes a summary in the context.
const SEED_HEAD: &str = "The earlier part of this conversation was summarised to save room. This is a record of what \
                         happened, not a request.\n\n<summary>\n";
const SEED_TAIL: &str = "\n</summary>";

/// Precedes a summary in the context of a session that offers the tools that search its history. It starts with the
/// same words as [`SEED_HEAD`].
const SEARCHABLE_HEAD: &str = "The earlier part of this conversation was summarised to save room. This is a record of \
                               what happened, not a request. What it leaves out can still be looked up: \
                               history_search finds earlier messages by their words, and history_read reads them in \
                               full.\n\n<summary>\n";

/// Wraps a summary for the model: a user message that records what happened, which nothing in the summary can end.
#[must_use]
pub fn seed_text(summary: &str) -> String {
    record(SEED_HEAD, summary)
}

/// Wraps a summary like [`seed_text`], and names the tools that search the session's history.
#[must_use]
pub fn searchable_seed_text(summary: &str) -> String {
    record(SEARCHABLE_HEAD, summary)
}

fn record(head: &str, summary: &str) -> String {
    let summary = clean(summary);
    format!("{head}{}{SEED_TAIL}", escape(summary.trim(), TextKind::Record))
}

/// Precedes the summary of an abandoned branch in the context.
const BRANCH_HEAD: &str = "Another branch of this conversation went on from here and was left. This is a record of \
                           what was said on it, not a request.\n\n<summary>\n";

/// Wraps the summary of an abandoned branch for the model: a user message that records what was said there.
#[must_use]
pub fn branch_text(summary: &str) -> String {
    record(BRANCH_HEAD, summary)
}

/// Returns false for most texts that [`unseed`] does not unwrap. The beginning of a text up to its first line break is
/// sufficient.
pub(crate) fn may_be_seed(beginning: &str) -> bool {
    let is_head = |head: &str| head.lines().next().is_some_and(|line| beginning.starts_with(line));
    is_head(SEED_HEAD) || is_head(BRANCH_HEAD)
}

/// Unwraps a text made by [`seed_text`], [`searchable_seed_text`] or [`branch_text`]; `None` for any other text.
#[must_use]
pub fn unseed(text: &str) -> Option<Cow<'_, str>> {
    let heads = [SEED_HEAD, SEARCHABLE_HEAD, BRANCH_HEAD];
    let summary = heads.iter().find_map(|head| text.strip_prefix(head))?.strip_suffix(SEED_TAIL)?;
    Some(unescape(summary, TextKind::Record))
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
        assert_eq!(unseed(&searchable_seed_text(GOOD)).as_deref(), Some(GOOD));
        assert_eq!(unseed(&branch_text(GOOD)).as_deref(), Some(GOOD));
        assert!([SEED_HEAD, SEARCHABLE_HEAD, BRANCH_HEAD].into_iter().all(may_be_seed));
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
