//! A sentence that may be a constraint.

use super::detect::is_constraint;
use crate::core::text::words::Words;

/// Marks a line that nobody said.
pub const INFERRED: &str = "(inferred) ";

/// A sentence of the user.
pub(super) struct Sentence {
    pub(super) text: String,
    pub(super) words: Words,
    /// True if it is an item of a list that the user introduced as rules.
    pub(super) is_rule: bool,
}

impl Sentence {
    pub(super) fn of(text: &str) -> Self {
        Self { text: text.to_owned(), words: Words::of(text), is_rule: false }
    }

    pub(super) fn is_order(&self) -> bool {
        self.is_rule || is_constraint(&self.text, &self.words)
    }
}
