//! Decides what is accepted as a summary.
//!
//! A model's answer is accepted or rejected as a whole, with a reason. An accepted one has the form of every summary,
//! or the form that the user requested, and contains nothing invisible, secret or escaped.

use super::{
    garbage::{is_copy, is_refusal_text, refuses, repeats},
    prose,
};
use crate::core::text::{
    clean::clean,
    escape::{self, TextKind},
    files::strip_files,
    secrets::mask_secrets,
    sections::Sections,
    slot::Slot,
};

/// Why an answer is not a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// There is no text.
    #[error("the summary is empty")]
    Empty,
    /// A section is missing, for example because the answer is cut off or about something else.
    #[error("the summary has no section `{0}`")]
    Missing(&'static str),
    /// Every section exists and all are empty.
    #[error("no section of the summary says anything")]
    Nothing,
    /// The model refused.
    #[error("the model refused to summarise")]
    Refused,
    /// It repeats itself, or is not language.
    #[error("the summary repeats itself")]
    Repetitive,
    /// It is a copy of the conversation.
    #[error("the summary is a copy of the conversation")]
    Copied,
    /// It is cut off.
    #[error("the summary is cut off")]
    CutOff,
    /// It answers the user or plays a turn.
    #[error("the answer goes on with the conversation instead of summarising it")]
    Continued,
    /// It has nothing in common with the conversation.
    #[error("the summary is about something else")]
    Unrelated,
}

/// Accepts a model's answer as a summary with sections: reasoning, fences and text before the first section are
/// removed, headings normalised and ordered, and the text below them kept.
///
/// # Errors
/// The first missing section, or why the text is no summary.
pub fn check(text: &str) -> Result<String, Unusable> {
    let text = answer(text);
    if text.is_empty() {
        return Err(Unusable::Empty);
    }
    let sections = Sections::parse(prose::without_offer(&text));
    match sections.missing() {
        Some(_) if is_refusal_text(&text) => Err(Unusable::Refused),
        Some(name) => Err(Unusable::Missing(name)),
        None => whole(&sections),
    }
}

/// Returns the sections that a model's answer lacks, in order.
#[must_use]
pub fn lacking(text: &str) -> Vec<&'static str> {
    Sections::parse(&answer(text)).lacking()
}

/// Merges an incomplete answer with the answer to the request for the rest. The first answer's text is kept unchanged.
///
/// # Errors
/// The first section that is still missing.
pub fn check_completed(first: &str, rest: &str) -> Result<String, Unusable> {
    let mut sections = Sections::parse(&answer(first));
    sections.complete_with(Sections::parse(&answer(rest)));
    sections.missing().map_or_else(|| whole(&sections), |name| Err(Unusable::Missing(name)))
}

fn whole(sections: &Sections) -> Result<String, Unusable> {
    if sections.is_empty() {
        return Err(Unusable::Nothing);
    }
    if refuses(Slot::ALL.into_iter().flat_map(|slot| sections.lines(slot)).map(String::as_str)) {
        return Err(Unusable::Refused);
    }
    let summary = sections.to_string();
    if repeats(&summary) { Err(Unusable::Repetitive) } else { Ok(summary) }
}

/// Accepts a model's answer as a free-form summary of `told`: an introduction and a final offer to the user are
/// removed.
///
/// # Errors
/// It is empty, a refusal, repetitive, cut off, about something else, or continues the conversation.
pub fn check_prose<'a>(text: &str, told: impl Iterator<Item = &'a str>) -> Result<String, Unusable> {
    let text = check_free_form(text)?;
    if prose::continues(&text) {
        return Err(Unusable::Continued);
    }
    match prose::bare(&text) {
        text if prose::is_too_short(text) => Err(Unusable::Empty),
        text if prose::is_cut_off(text) => Err(Unusable::CutOff),
        text if prose::is_unrelated(text, told) => Err(Unusable::Unrelated),
        text => Ok(text.to_owned()),
    }
}

/// Accepts a model's answer as a summary in any form: reasoning and fences are removed.
///
/// # Errors
/// It is empty, a refusal, or repetitive.
pub fn check_free_form(text: &str) -> Result<String, Unusable> {
    let text = answer(text);
    match text {
        text if text.is_empty() => Err(Unusable::Empty),
        text if is_refusal_text(&text) => Err(Unusable::Refused),
        text if repeats(&text) => Err(Unusable::Repetitive),
        text => Ok(text),
    }
}

/// Checks that a summary is not the conversation itself, given as the blocks of the request.
///
/// # Errors
/// [`Unusable::Copied`].
pub fn check_copied(summary: &str, blocks: &[&str]) -> Result<(), Unusable> {
    if is_copy(summary, blocks) { Err(Unusable::Copied) } else { Ok(()) }
}

/// Returns what a model meant to answer: without reasoning, fences, file lists, invisible characters and secrets, and
/// with what it copied in escaped form unescaped.
fn answer(text: &str) -> String {
    let text = clean(text);
    let text = strip_files(without_fences(without_thoughts(text.trim())));
    let text = escape::bare(text, TextKind::Summary);
    mask_secrets(text.trim()).into_owned()
}

/// Removes reasoning, which such models put first; if it does not end, there is no answer after it.
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
        accepted(&format!("{GOOD}\n\nLet me know if you need more!"));
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
            ("\u{200b}\u{202e}\u{7}", Unusable::Empty),
            ("I am sorry, I cannot do that.", Unusable::Refused),
            ("Well then: the boat.", Unusable::Missing("Goal")),
            (
                &GOOD
                    .replace("Feed Miso", "I'm sorry, I can't help with that")
                    .replace("- The cat is called Miso", "- none")
                    .replace("- Buy food", "- none"),
                Unusable::Refused,
            ),
            (&format!("{GOOD}{}", "\n- the cat eats".repeat(40)), Unusable::Repetitive),
            (GOOD.split_once("## Key").unwrap().0, Unusable::Missing("Key Decisions")),
            (GOOD.split_once("## Critical").unwrap().0, Unusable::Missing("Critical Context")),
        ] {
            assert_eq!(check(text), Err(expected), "from {text}");
        }
        let apology = GOOD.replace("Feed Miso", "I'm sorry, I can't help with that");
        assert_eq!(check(&apology), Ok(apology.clone()), "the rest of it is a summary");
        for (text, expected) in [
            ("", Err(Unusable::Empty)),
            ("Lo siento, no puedo ayudar.", Err(Unusable::Refused)),
            ("The cat eats. I'm sorry, I can't say more.", Ok(())),
            (&"yes ".repeat(100), Err(Unusable::Repetitive)),
        ] {
            assert_eq!(check_free_form(text).map(|_| ()), expected, "{text}");
        }
        assert_eq!(check(&Sections::default().to_string()), Err(Unusable::Nothing));
    }

    proptest! {
        #[test]
        fn what_was_accepted_is_accepted_unchanged(body in "(\\PC|\n){0,80}") {
            let once = check(&format!("{GOOD}\n{body}")).unwrap();
            prop_assert_eq!(check(&once), Ok(once.clone()));
        }
    }
}
