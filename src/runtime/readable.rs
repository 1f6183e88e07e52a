//! Refuses answers that could not be read back once stored. In debug builds, checks that stored records can be read
//! back.

use crate::{
    core::model::{Answer, ModelFault},
    store::NewRecord,
};
use reseed_protocol::{
    ErrorCode, Part,
    event::Event,
    frame::{DEPTH_MAX, nests_too_deep},
};

/// Refuses an answer with a payload that could not be read back.
pub(super) fn readable(answer: Answer) -> Result<Answer, ModelFault> {
    let is_too_deep = |part: &Part| match part {
        Part::Reasoning { payload: Some(payload), .. } => nests_too_deep(payload),
        _ => false,
    };
    if answer.parts.iter().any(is_too_deep) {
        let message = format!("the model's reasoning has a payload that is nested more than {DEPTH_MAX} deep");
        let mut fault = ModelFault::new(ErrorCode::UpstreamMalformed, message);
        fault.origin.usage = answer.usage;
        return Err(fault);
    }
    Ok(answer)
}

/// Checks in debug builds, and so in tests, that each record parses as the event it was made from.
pub(super) fn check_read_back(events: &[Event], records: &[NewRecord]) {
    if cfg!(debug_assertions) {
        for (event, record) in events.iter().zip(records) {
            let read: Event = serde_json::from_str(&record.body).expect("a record reads back");
            assert_eq!(read, *event, "a record reads back as it was");
        }
    }
}
