//! The structure of a context: where it may be cut, computed once.
//!
//! A unit is the smallest part that can be removed: a single message, or an answer with calls and all their results, so
//! that a call and its result are never separated. Messages that a patch added before an entry's message belong to that
//! message's unit; those after the last entry belong to the last unit. A turn starts with a user message.
//!
//! Invariants: units follow one another without gaps from the first message after the summary to the last; a unit
//! belongs to one turn; turns are in order.

use crate::context::messages::{Context, Counted, GoesWith, Kind};
use reseed_protocol::Role;
use std::ops::Range;

/// The smallest removable part of a context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// Index range of its messages.
    pub messages: Range<usize>,
    /// Its estimated tokens.
    pub tokens: u64,
    /// Index of its turn; the oldest is 0.
    pub turn: usize,
    /// True if a user wrote it.
    pub is_input: bool,
    /// True if one of its messages is pinned.
    pub pinned: bool,
    /// True if a tail may start here: after the messages that an earlier compaction kept individually, because these
    /// have gaps between them.
    pub may_begin_tail: bool,
}

/// A context divided into units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Structure {
    /// The units, oldest first, without the summary in front.
    pub units: Vec<Unit>,
    /// Index of the summary in front, if any. Messages that a patch added before it are removed with it.
    pub summary: Option<usize>,
    /// Estimated tokens of the summary and what precedes it.
    pub summary_tokens: u64,
}

impl Structure {
    /// Divides a context into units.
    #[must_use]
    pub fn of(context: &Context) -> Self {
        let messages = &context.messages;
        let first = messages.iter().position(|counted| counted.goes_with() == GoesWith::Itself);
        let summary = first.filter(|at| messages[*at].kind == Kind::Summary);
        let mut units: Vec<Unit> = Vec::with_capacity(messages.len());
        let mut turn = 0;
        let mut begun = false;
        // Messages that a patch added before an entry that has not been reached yet.
        let mut waiting: Option<Unit> = None;
        for (at, counted) in messages.iter().enumerate().skip(summary.map_or(0, |at| at + 1)) {
            let goes_with = counted.goes_with();
            // In a context, results follow their calls, so call ids need not be compared.
            if let Some(last) = waiting.as_mut().or(units.last_mut()).filter(|_| counted.is_result) {
                last.take(at, counted);
                if goes_with == GoesWith::Itself {
                    units.extend(waiting.take());
                }
                continue;
            }
            if goes_with == GoesWith::Next {
                waiting.get_or_insert_with(|| Unit::begun(at, turn)).take(at, counted);
                continue;
            }
            let mut unit = waiting.take().unwrap_or_else(|| Unit::begun(at, turn));
            unit.take(at, counted);
            if unit.is_input && begun {
                turn += 1;
            }
            begun = true;
            unit.turn = turn;
            units.push(unit);
        }
        match (units.last_mut(), waiting) {
            (Some(last), Some(waiting)) => {
                last.messages.end = waiting.messages.end;
                last.tokens += waiting.tokens;
                last.pinned |= waiting.pinned;
                last.is_input |= waiting.is_input;
            }
            (None, waiting) => units.extend(waiting),
            (_, None) => {}
        }
        let front = summary.map_or(0, |at| at + 1);
        let summary_tokens = messages[..front].iter().map(|counted| counted.tokens.total()).sum();
        Self { units, summary, summary_tokens }
    }

    /// Returns the number of turns.
    #[must_use]
    pub fn turns(&self) -> usize {
        self.units.last().map_or(0, |unit| unit.turn + 1)
    }

    /// Returns the index of the unit with the last user message; if there is none, that of the last client note in the
    /// user role.
    #[must_use]
    pub fn last_input(&self, context: &Context) -> Option<usize> {
        let said = self.units.iter().rposition(|unit| unit.is_input);
        said.or_else(|| {
            let first =
                |unit: &Unit| context.messages[unit.messages.clone()].iter().find(|message| message.entry_id.is_some());
            self.units.iter().rposition(|unit| first(unit).is_some_and(|first| first.message.role == Role::User))
        })
    }

    /// Returns the tokens of all units.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.units.iter().map(|unit| unit.tokens).sum()
    }
}

impl Unit {
    fn begun(at: usize, turn: usize) -> Self {
        Self { messages: at..at, tokens: 0, turn, is_input: false, pinned: false, may_begin_tail: true }
    }

    /// Adds the next message, at this index.
    fn take(&mut self, at: usize, counted: &Counted) {
        if self.messages.is_empty() {
            self.may_begin_tail = counted.kind != Kind::Beside;
        }
        self.messages.end = at + 1;
        self.tokens += counted.tokens.total();
        self.pinned |= counted.pinned;
        self.is_input |= counted.is_input;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{build::build_context, counter::Counter, testing::path};

    #[test]
    fn calls_and_results_are_one_unit_and_inputs_begin_turns() {
        /// Lines of the path, and the units as message ranges with their turns.
        type Case<'a> = (&'a [&'a str], &'a [(Range<usize>, usize)]);
        let table: &[Case<'_>] = &[
            (&[], &[]),
            (&["a:user x", "b:assistant y", "c:user z"], &[(0..1, 0), (1..2, 0), (2..3, 1)]),
            (
                &["a:user x", "b:call p q", "c:result p 1", "d:result q 2", "e:assistant y"],
                &[(0..1, 0), (1..4, 0), (4..5, 0)],
            ),
            (&["a:call p", "b:result p 1", "c:user x"], &[(0..2, 0), (2..3, 1)]),
            (&["a:user x", "b:note y", "c:user z"], &[(0..1, 0), (1..2, 0), (2..3, 1)]),
            (&["a:user x", "b:compaction S first=zz", "c:user y", "d:assistant z"], &[(1..2, 0), (2..3, 0)]),
        ];
        for (lines, expected) in table {
            let context = build_context(&path(lines, &Counter::for_model("test")));
            let structure = Structure::of(&context);
            let units: Vec<_> = structure.units.iter().map(|unit| (unit.messages.clone(), unit.turn)).collect();
            assert_eq!(units, *expected, "{lines:?}");
        }
    }
}
