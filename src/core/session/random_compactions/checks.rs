//! Checks the properties that must hold after every operation.

use super::*;
use crate::compaction::cut::{Cut, GAIN_TOKENS_MIN, cut_units, find_cut, must_stay};

impl World {
    /// Finds the nearest cut, and checks that it keeps the preferred amount whenever a legal cut can.
    pub(super) fn nearest(&self, context: &Context, structure: &Structure, keep: Keep) -> Option<Cut> {
        let found = find_cut(context, structure, keep);
        let tails = (1..structure.units.len()).rev().take_while(|at| structure.units[*at].may_begin_tail);
        let shortest = cut_units(context, structure, &must_stay(context, structure));
        let legal = tails.filter_map(|at| cut_from(context, structure, at)).chain(shortest);
        let least = legal.map(|cut| cut.kept_tokens).min();
        match (&found, least) {
            (Some(found), Some(least)) => {
                let within = found.kept_tokens <= keep.tokens_max || least > keep.tokens_max;
                assert!(within, "seed {}: {} are kept, {keep:?}, and {least} could", self.seed, found.kept_tokens);
            }
            (Some(_), None) => panic!("seed {}: a cut that is not legal", self.seed),
            (None, least) => assert!(least.is_none(), "seed {}: a legal cut is not found, {keep:?}", self.seed),
        }
        found
    }

    pub(super) fn check_cut(&self, context: &Context, structure: &Structure, cut: &Cut) {
        let seed = self.seed;
        assert!(cut.dropped_tokens >= GAIN_TOKENS_MIN, "seed {seed}: nothing is gained");
        assert!(cut.summarised.is_sorted_by(|a, b| a < b), "seed {seed}: not in order");
        let gone: HashSet<usize> = cut.summarised.iter().copied().collect();
        for (at, unit) in structure.units.iter().enumerate() {
            let parted = unit.messages.clone().filter(|at| gone.contains(at)).count();
            assert!(parted == 0 || parted == unit.messages.len(), "seed {seed}: a unit is parted");
            assert!(parted == 0 || !must_stay(context, structure)[at], "seed {seed}: what must stay goes");
        }
        if let Some(prefix) = cut.turn_prefix {
            assert!(gone.contains(&prefix), "seed {seed}: the beginning of the turn stays");
            let turn =
                |at: usize| structure.units.iter().find(|unit| unit.messages.contains(&at)).map(|unit| unit.turn);
            let turns: HashSet<_> = cut.summarised.iter().filter(|at| **at >= prefix).map(|at| turn(*at)).collect();
            assert_eq!(turns.len(), 1, "seed {seed}: the beginning of the turn has parts of others");
        }
    }

    /// Checks the context after a compaction: the summary, then exactly what was kept, in order, verbatim or as a note.
    pub(super) fn check_kept(&self, kept: &[&Counted]) {
        let seed = self.seed;
        let context = self.context();
        let after = match context.messages.first().filter(|first| first.kind == Kind::Summary) {
            Some(_) => &context.messages[1..],
            None => &context.messages[..],
        };
        let ids = |messages: &mut dyn Iterator<Item = &Counted>| -> Vec<EntryId> {
            messages.filter_map(|counted| counted.entry_id.clone()).collect()
        };
        assert_eq!(ids(&mut after.iter()), ids(&mut kept.iter().copied()), "seed {seed}: not what was kept is seen");
        for counted in after.iter().filter(|counted| !counted.cleared && counted.entry_id.is_some()) {
            let was = kept.iter().find(|was| was.entry_id == counted.entry_id).unwrap();
            assert_eq!(counted.message, was.message, "seed {seed}: kept, but not word for word");
        }
    }

    pub(super) fn check(&self) {
        let seed = self.seed;
        let context = self.context();
        let again = seen(&build_context(self.read().path()));
        assert!(seen(&context) == again, "seed {seed}: reopened, another context");
        self.check_structure(&context);
        let seen: HashSet<&EntryId> = context.messages.iter().filter_map(|counted| counted.entry_id.as_ref()).collect();
        for pin in &self.session.state.pins {
            assert!(seen.contains(&pin.entry_id), "seed {seed}: pinned and not seen: {}", pin.entry_id);
        }
        let said = |entry: &&Entry| entry.message().is_some_and(|message| message.role == Role::User);
        if let Some(last) = self.entries.iter().rev().find(said) {
            let found = context.messages.iter().find(|counted| counted.entry_id.as_ref() == Some(&last.entry_id));
            assert_eq!(found.map(|found| &*found.message), last.message(), "seed {seed}: the last input is not seen");
        }
    }

    /// Checks that calls and results are adjacent, and that units have no gaps and belong to one turn each.
    pub(super) fn check_structure(&self, context: &Context) {
        let (seed, structure) = (self.seed, Structure::of(context));
        let mut next = structure.summary.map_or(0, |at| at + 1);
        let mut turn = 0;
        for unit in &structure.units {
            assert_eq!(unit.messages.start, next, "seed {seed}: a gap between units");
            next = unit.messages.end;
            let messages = &context.messages[unit.messages.clone()];
            assert_eq!(unit.tokens, messages.iter().map(|counted| counted.tokens.total()).sum::<u64>());
            assert_eq!(unit.pinned, messages.iter().any(|counted| counted.pinned));
            assert!(unit.turn == turn || unit.is_input && unit.turn == turn + 1, "seed {seed}: turns out of order");
            turn = unit.turn;
            let (mut calls, mut results) = (HashSet::new(), HashSet::new());
            for part in messages.iter().flat_map(|counted| &counted.message.content) {
                match part {
                    Part::ToolCall { call_id, .. } => assert!(calls.insert(call_id)),
                    Part::ToolResult { call_id, .. } => assert!(results.insert(call_id)),
                    _ => {}
                }
            }
            assert_eq!(calls, results, "seed {seed}: calls and results are not paired");
        }
        assert_eq!(next, context.messages.len(), "seed {seed}: messages without a unit");
    }
}
