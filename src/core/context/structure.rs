//! The structure of a context: where it may be cut, computed once.
//!
//! A unit is the least that can be taken out by itself: one message, or an answer with calls together with the results
//! of all of them, so that no call and result are ever parted. What a patch put in front of an entry's message is of that
//! one's unit, and behind the last entry of the last unit. A turn begins with what a user said.
//!
//! Invariants: units follow each other without gaps from the first message behind the summary to the last; a unit
//! belongs to one turn; turns are in order.

use crate::core::context::build::{Context, Counted, GoesWith, Kind};
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
    /// The place of the summary in front, if there is one. What a patch put in front of it goes when it goes.
    pub summary: Option<usize>,
    /// What the summary costs with what stands in front of it, as estimated.
    pub summary_tokens: u64,
}

impl Structure {
    /// The structure of this context.
    #[must_use]
    pub fn of(context: &Context) -> Self {
        let messages = &context.messages;
        let first = messages.iter().position(|counted| counted.goes_with() == GoesWith::Itself);
        let summary = first.filter(|at| messages[*at].kind == Kind::Summary);
        let mut units: Vec<Unit> = Vec::with_capacity(messages.len());
        let mut turn = 0;
        let mut begun = false;
        // What a patch put in front of an entry that is still to come.
        let mut waiting: Option<Unit> = None;
        for (at, counted) in messages.iter().enumerate().skip(summary.map_or(0, |at| at + 1)) {
            let goes_with = counted.goes_with();
            // In a context results follow their calls, so neither need be read.
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
            let first =
                |unit: &Unit| context.messages[unit.messages.clone()].iter().find(|message| message.entry_id.is_some());
            self.units.iter().rposition(|unit| first(unit).is_some_and(|first| first.message.role == Role::User))
        })
    }

    /// What all units cost together.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.units.iter().map(|unit| unit.tokens).sum()
    }
}

impl Unit {
    fn begun(at: usize, turn: usize) -> Self {
        Self { messages: at..at, tokens: 0, turn, is_input: false, pinned: false, may_begin_tail: true }
    }

    /// Takes the next message, at this place.
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
