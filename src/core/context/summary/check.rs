//! What is accepted as a summary.
//!
//! A model's answer is taken or refused as a whole, with a reason. What is taken has the one form that every summary
//! has, or the form that the user asked for, and nothing in it is invisible, secret or escaped.

use super::{
    Place, Sections, Slot, clean, escape,
    garbage::{is_copy, is_refusal_text, refuses, repeats},
    mask_secrets, prose, strip_files,
};

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
    /// The model says that it will not.
    #[error("the model refused to summarise")]
    Refused,
    /// It says the same again and again, or what is no language.
    #[error("the summary repeats itself")]
    Repetitive,
    /// It is the conversation.
    #[error("the summary is a copy of the conversation")]
    Copied,
    /// It breaks off.
    #[error("the summary is cut off")]
    CutOff,
    /// It answers the user or plays a turn.
    #[error("the answer goes on with the conversation instead of summarising it")]
    Continued,
    /// It has nothing in common with the conversation.
    #[error("the summary is about something else")]
    Unrelated,
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
    let sections = Sections::parse(prose::without_offer(&text));
    match sections.missing() {
        Some(_) if is_refusal_text(&text) => Err(Unusable::Refused),
        Some(name) => Err(Unusable::Missing(name)),
        None => whole(&sections),
    }
}

/// The sections that a model's answer lacks, in order.
#[must_use]
pub fn lacking(text: &str) -> Vec<&'static str> {
    Sections::parse(&answer(text)).lacking()
}

/// Takes an answer without all sections together with the answer to a request for the rest. What stands in the first is
/// kept as it is.
///
/// # Errors
/// The first thing that is still missing.
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

/// Takes a model's answer as a summary in a form of its own, of what was told: an introduction and an offer to the user
/// are left off.
///
/// # Errors
/// That it is empty, a refusal, repeats itself, breaks off, goes on with the conversation or is about something else.
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

/// Takes a model's answer as a summary of whatever form: thoughts and fences are left off.
///
/// # Errors
/// That it is empty, a refusal, or repeats itself.
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
pub fn check_copied(summary: &str, blocks: &[String]) -> Result<(), Unusable> {
    if is_copy(summary, blocks) { Err(Unusable::Copied) } else { Ok(()) }
}

/// What a model meant to answer: without thoughts, fences and lists of files, without invisible characters and secrets,
/// and with what it read escaped as it was before.
fn answer(text: &str) -> String {
    let text = clean(text);
    let text = strip_files(without_fences(without_thoughts(text.trim())));
    let text = escape::bare(text, Place::Summary);
    mask_secrets(text.trim()).into_owned()
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
