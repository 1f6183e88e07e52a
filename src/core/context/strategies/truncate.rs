//! `truncate`: the oldest turns are left out whole. The model is never asked.

use crate::core::context::{
    ContextManager,
    cut::{Keep, find_cut, last_turn_cut, least_cut, turns_cut},
    strategy::{Options, Planning, Step},
};

/// Tokens of the word that something is missing, which stands in the place of what was left out.
const NOTE_TOKENS: u64 = 64;

/// Keeps as many of the newest turns as the target has room for. What must stay stays beside them; a summary that
/// another strategy made stays too.
#[derive(Debug, Clone)]
pub struct Truncate {
    options: Options,
}

impl Truncate {
    /// With these settings.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options }
    }
}

impl ContextManager for Truncate {
    fn name(&self) -> &'static str {
        "truncate"
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn summarises(&self) -> bool {
        false
    }

    fn steps(&self, planning: &Planning<'_>) -> Vec<Step> {
        let (context, structure) = (planning.context, planning.structure);
        let beside = structure.summary_tokens.min(planning.summary_tokens).max(NOTE_TOKENS);
        let room = planning.target_tokens.saturating_sub(beside);
        let cut = turns_cut(context, structure, usize::MAX, room)
            .or_else(|| find_cut(context, structure, Keep { tokens: room, tokens_max: room }))
            .or_else(|| last_turn_cut(context, structure));
        let least = least_cut(context, structure).filter(|least| cut.as_ref() != Some(least));
        cut.into_iter().chain(least).map(Step::Truncate).collect()
    }
}
