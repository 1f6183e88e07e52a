//! Stores and reads back half of the outcomes before they are applied, as held compactions are.

use super::World;
use crate::compaction::{Held, Outcome, read_key};
use reseed_protocol::{Role, Timestamp, compaction::CompactionTrigger};

impl World {
    /// Holds half of the outcomes: writes them, reads them back, and applies them after more was said. They depend only
    /// on what was said before.
    pub(super) fn hold(&mut self, outcome: Outcome) -> Outcome {
        let context = self.context();
        let Some(first) = outcome.first_kept.clone().filter(|_| self.rng.bool()) else { return outcome };
        let read = read_key(&context, Some(&first), None).expect("what is kept is seen");
        let held = Held {
            job_id: "job".parse().unwrap(),
            trigger: CompactionTrigger::Threshold,
            started_at: Timestamp(0),
            ended_at: Timestamp(1),
            base: None,
            read_before: Some(first.clone()),
            last_read: None,
            read,
            settings: "settings".into(),
            is_last: false,
            outcome,
        };
        let written = serde_json::to_string(&held.record()).unwrap();
        let read_back = Held::read_back(&serde_json::from_str(&written).unwrap());
        assert_eq!(read_back.as_ref(), Some(&held), "seed {}: read back it is another", self.seed);
        for _ in 0..self.rng.usize(..4) {
            self.say(Role::User);
            self.say(Role::Assistant);
        }
        let mut now = self.context();
        assert!(held.still_reads(&now), "seed {}: what is said later changes nothing", self.seed);
        if now.messages.first().is_some_and(|message| message.entry_id.as_ref() != Some(&first)) {
            now.messages[0].hash ^= 1;
            assert!(!held.still_reads(&now), "seed {}: what it takes out says something else", self.seed);
        }
        self.count("held".into());
        held.outcome
    }
}
