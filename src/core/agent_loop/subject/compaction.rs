//! A compaction, before it is made: hooks may cancel it, supply a summary, or choose another model.

use crate::{
    compaction::{HookSupply, cut::Cut},
    hook::HookFault,
};
use reseed_protocol::hooks::HookAnswer;

/// The hooks' decision about a compaction so far.
#[derive(Debug, Default)]
pub(crate) struct ProposedCompaction {
    /// The hook that cancelled it.
    pub(crate) cancelled_by: Option<String>,
    pub(crate) given: HookSupply,
}

impl ProposedCompaction {
    pub(crate) fn take(&mut self, hook: &str, answer: HookAnswer, cut: Option<Cut>) -> Result<bool, HookFault> {
        if answer.cancel == Some(true) {
            self.cancelled_by = Some(hook.to_owned());
            return Ok(true);
        }
        let HookAnswer { summary, details, model, instructions, replace_instructions, .. } = answer;
        let told = [summary.is_some(), details.is_some(), model.is_some(), instructions.is_some(), cut.is_some()];
        let changed = told.contains(&true) || replace_instructions.is_some();
        let by = || hook.to_owned();
        self.given.cut = match (&summary, cut) {
            (_, Some(cut)) => Some(cut),
            // This summary covers what the call named. It replaces an earlier hook's summary and its cut.
            (Some(_), None) => None,
            (None, None) => self.given.cut.take(),
        };
        self.given.summary = summary.map(|summary| (by(), summary)).or(self.given.summary.take());
        let wishes = &mut self.given.wishes;
        wishes.details = details.map(|details| (by(), details)).or(wishes.details.take());
        wishes.model = model.map(|model| (by(), model)).or(wishes.model.take());
        wishes.replaces = replace_instructions.unwrap_or(wishes.replaces && instructions.is_none());
        wishes.instructions = instructions.or(wishes.instructions.take());
        Ok(changed)
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled_by.is_some()
    }
}
