//! The sources of constraints: the messages that go, those that stay, and what an earlier compaction recorded.

use super::Job;
use crate::core::compaction::{cut::Cut, summary::ConstraintSources};
use reseed_protocol::Message;
use std::collections::HashSet;

impl Job {
    /// Passes the sources of constraints for this cut to `take`.
    pub(super) fn with_sources<T>(&self, cut: &Cut, take: impl FnOnce(ConstraintSources<'_>) -> T) -> T {
        let messages = self.taken_out(cut);
        let messages: Vec<&Message> = messages.iter().map(|message| &**message).collect();
        let gone: HashSet<usize> = cut.summarised.iter().copied().chain(cut.previous).collect();
        let kept = (0..self.messages.len()).filter(|at| !gone.contains(at)).map(|at| &*self.messages[at].1);
        let kept: Vec<&Message> = kept.collect();
        let (noted, previous) = (self.noted_constraints(), self.previous(cut));
        let rules = &self.rules;
        take(ConstraintSources { messages: &messages, kept: &kept, noted, rules, previous: previous.as_deref() })
    }

    pub(super) fn noted_constraints(&self) -> &[String] {
        self.earlier.as_ref().map(|earlier| earlier.constraints.as_slice()).unwrap_or_default()
    }
}
