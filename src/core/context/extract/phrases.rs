//! Words and phrases by which a sentence is sorted into a section: as they stand between the words of a sentence in
//! lower case, apostrophes as spaces.

use super::fact::contains_words;
use crate::core::context::summary::Slot;

/// How the user limits what may be done.
pub(super) const CONSTRAINT: [&str; 21] = [
    "always",
    "never",
    "please use",
    "i prefer",
    "prefer",
    "must",
    "must not",
    "don t",
    "do not",
    "avoid",
    "only use",
    "should",
    "make sure",
    "instead of",
    "at most",
    "at least",
    "immer",
    "niemals",
    "nie",
    "bitte",
    "keinesfalls",
];
/// The same in scripts without spaces.
pub(super) const CONSTRAINT_UNSPACED: [&str; 8] =
    ["总是", "不要", "必须", "请用", "请使用", "只用", "必ず", "しないで"];
const DECISION: [&str; 16] = [
    "decided",
    "let s use",
    "let us use",
    "we ll use",
    "we will use",
    "i ll use",
    "go with",
    "going with",
    "chose",
    "chosen",
    "agreed",
    "settled on",
    "opted",
    "entschieden",
    "beschlossen",
    "decision",
];
const DONE: [&str; 16] = [
    "is done",
    "are done",
    "finished",
    "completed",
    "fixed",
    "implemented",
    "works now",
    "deployed",
    "merged",
    "passes",
    "passed",
    "i ve added",
    "i ve created",
    "i ve updated",
    "erledigt",
    "fertig",
];
const BLOCKED: [&str; 10] =
    ["blocked", "cannot", "can t", "fails", "failed", "error", "broken", "stuck", "waiting for", "geht nicht"];
const IN_PROGRESS: [&str; 6] = ["working on", "in progress", "currently", "i am now", "i m now", "half way"];
const NEXT: [&str; 9] =
    ["next step", "next steps", "todo", "to do", "still need", "still needs", "remaining", "after that", "follow up"];
/// What the user wants to reach.
pub(super) const GOAL: [&str; 12] = [
    "i want",
    "i d like",
    "i would like",
    "help me",
    "i need",
    "we need",
    "my goal",
    "the goal",
    "the task",
    "we are building",
    "i am building",
    "ich möchte",
];
/// First words of a request.
pub(super) const ORDERS: &str = "\
     please can could build write make fix add implement create plan explain find show tell translate list compare \
     check review summarise summarize refactor change give use run call let help";

/// Where a sentence about the work belongs.
pub(super) fn work(spaced: &str) -> Option<Slot> {
    let places: [(Slot, &[&str]); 5] = [
        (Slot::Decisions, &DECISION),
        (Slot::Done, &DONE),
        (Slot::NextSteps, &NEXT),
        (Slot::InProgress, &IN_PROGRESS),
        (Slot::Blocked, &BLOCKED),
    ];
    places
        .into_iter()
        .find(|(_, phrases)| phrases.iter().any(|phrase| contains_words(spaced, phrase)))
        .map(|(slot, _)| slot)
}
