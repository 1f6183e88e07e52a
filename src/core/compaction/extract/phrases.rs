//! Words and phrases that sort a sentence into a section, in the form in which they are matched: lower case, with
//! spaces for apostrophes.

use crate::core::text::{
    slot::Slot,
    words::{Listed, Phrases},
};

/// Constraints that the user sets.
pub(super) static CONSTRAINT: Phrases = Phrases::new(&[
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
]);
/// Constraints in scripts without spaces.
pub(super) static CONSTRAINT_UNSPACED: Phrases =
    Phrases::new(&["总是", "不要", "必须", "请用", "请使用", "只用", "必ず", "しないで"]);
static DECISION: Phrases = Phrases::new(&[
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
]);
static DONE: Phrases = Phrases::new(&[
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
]);
static BLOCKED: Phrases = Phrases::new(&[
    "blocked",
    "cannot",
    "can t",
    "fails",
    "failed",
    "error",
    "broken",
    "stuck",
    "waiting for",
    "geht nicht",
]);
static IN_PROGRESS: Phrases =
    Phrases::new(&["working on", "in progress", "currently", "i am now", "i m now", "half way"]);
static NEXT: Phrases = Phrases::new(&[
    "next step",
    "next steps",
    "todo",
    "to do",
    "still need",
    "still needs",
    "remaining",
    "after that",
    "follow up",
]);
/// Goals of the user.
pub(super) static GOAL: Phrases = Phrases::new(&[
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
]);
/// First words of a request.
pub(super) static ORDERS: Listed = Listed::new(
    "please can could build write make fix add implement create plan explain find show tell translate list compare \
     check review summarise summarize refactor change give use run call let help",
);

/// Returns the section for a sentence about the work.
pub(super) fn work(spaced: &str) -> Option<Slot> {
    let places: [(Slot, &Phrases); 5] = [
        (Slot::Decisions, &DECISION),
        (Slot::Done, &DONE),
        (Slot::NextSteps, &NEXT),
        (Slot::InProgress, &IN_PROGRESS),
        (Slot::Blocked, &BLOCKED),
    ];
    places.into_iter().find(|(_, phrases)| phrases.any_among(spaced)).map(|(slot, _)| slot)
}
