//! The structure of a context: where it may be cut, computed once.
//!
//! A unit is the least that can be taken out by itself: one message, or an answer with calls together with the results
//! of all of them, so that no call and result are ever parted. A turn begins with what a user said.
//!
//! Invariants: units follow each other without gaps from the first message behind the summary to the last; a unit
//! belongs to one turn; turns are in order.

use crate::core::context::build::{Context, Counted, Kind};
use reseed_protocol::Role;
use std::ops::Range;

/// The least that can be taken out of a context by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// Its messages, as places in the context.
    pub messages: Range<usize>,
    /// What they cost, as estimated.
    pub tokens: u64,
    /// Its turn, counted from the oldest, which is 0.
    pub turn: usize,
    /// A user said it.
    pub is_input: bool,
    /// One of its messages is pinned.
    pub pinned: bool,
    /// It stands behind what an earlier compaction kept one by one: what lies between was left out, so a tail may begin
    /// here and not before.
    pub may_begin_tail: bool,
}

/// A context as units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Structure {
    /// The units, oldest first; the summary in front is none.
    pub units: Vec<Unit>,
    /// The place of the summary in front, if there is one.
    pub summary: Option<usize>,
    /// What the summary costs, as estimated.
    pub summary_tokens: u64,
}

impl Structure {
    /// The structure of this context.
    #[must_use]
    pub fn of(context: &Context) -> Self {
        let messages = &context.messages;
        let summary = messages.first().filter(|first| first.kind == Kind::Summary).map(|_| 0);
        let mut units: Vec<Unit> = Vec::with_capacity(messages.len());
        let mut turn = 0;
        let mut begun = false;
        for (at, counted) in messages.iter().enumerate().skip(summary.map_or(0, |at| at + 1)) {
            // In a context results follow their calls, so neither need be read.
            if let Some(last) = units.last_mut().filter(|_| counted.is_result) {
                last.messages.end = at + 1;
                last.tokens += counted.tokens.total();
                last.pinned |= counted.pinned;
                continue;
            }
            if counted.is_input && begun {
                turn += 1;
            }
            begun = true;
            units.push(unit(at, counted, turn));
        }
        let summary_tokens = summary.map_or(0, |at| messages[at].tokens.total());
        Self { units, summary, summary_tokens }
    }

    /// How many turns there are.
    #[must_use]
    pub fn turns(&self) -> usize {
        self.units.last().map_or(0, |unit| unit.turn + 1)
    }

    /// The unit that holds the last thing a user said; where a client's note stands in the user's place and no user said
    /// anything, that.
    #[must_use]
    pub fn last_input(&self, context: &Context) -> Option<usize> {
        let said = self.units.iter().rposition(|unit| unit.is_input);
        said.or_else(|| {
            self.units.iter().rposition(|unit| context.messages[unit.messages.start].message.role == Role::User)
        })
    }

    /// What all units cost together.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.units.iter().map(|unit| unit.tokens).sum()
    }
}

fn unit(at: usize, counted: &Counted, turn: usize) -> Unit {
    Unit {
        messages: at..at + 1,
        tokens: counted.tokens.total(),
        turn,
        is_input: counted.is_input,
        pinned: counted.pinned,
        may_begin_tail: counted.kind != Kind::Beside,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::context::{build::build_context, counter::Counter, testing::path};

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
