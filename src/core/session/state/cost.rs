//! The cost of a session's requests.

use reseed_protocol::{
    EntryData, Role, Usage,
    tree::{BranchSummary, EntryAppended},
};
use serde::{Deserialize, Serialize};

/// Cost of a session's requests as recorded in its log: the answers of its turns, and the summaries that were kept.
/// Answers in copied or imported history were paid for elsewhere.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cost {
    /// Known cost in billionths of a US dollar; `None` if no request's cost is known.
    pub nano_usd: Option<u64>,
    /// Requests with unknown cost.
    pub unpriced_requests: u64,
}

impl Cost {
    pub(super) fn add(&mut self, usage: Option<&Usage>) {
        match usage.and_then(|usage| usage.cost_nano_usd) {
            Some(cost) => self.nano_usd = Some(self.nano_usd.unwrap_or(0).saturating_add(cost)),
            None => self.unpriced_requests += 1,
        }
    }

    /// Adds the cost that came with an entry.
    pub(super) fn pay(&mut self, appended: &EntryAppended) {
        match &appended.entry.data {
            EntryData::Message(message) if message.role == Role::Assistant && appended.turn_id.is_some() => {
                self.add(message.usage.as_ref());
            }
            EntryData::BranchSummary(BranchSummary { summary_usage: Some(usage), .. })
                if appended.command_id.is_some() =>
            {
                self.add(Some(usage));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::tests::usage;
    use reseed_protocol::UsageSource;

    #[test]
    fn a_sessions_cost_is_the_sum_of_the_known_costs() {
        let mut cost = Cost::default();
        for usage in [None, Some(usage(Some(5), UsageSource::Reported)), Some(usage(None, UsageSource::Estimated))] {
            cost.add(usage.as_ref());
        }
        cost.add(Some(&usage(Some(7), UsageSource::Reported)));
        assert_eq!(cost, Cost { nano_usd: Some(12), unpriced_requests: 2 });
    }
}
