//! What a server counted in a minute, for the ring of minutes. It is read from the rendered metrics, so that nothing is
//! counted twice.

use serde_json::{Value, json};

/// Says which series count, by their labels.
type IsMeant = fn(&str) -> bool;

/// A number of a minute: the object and the field that it is in, the samples that make it up, and their unit.
struct Number {
    place: (&'static str, &'static str),
    name: &'static str,
    is_meant: IsMeant,
    factor: f64,
    /// True for what is there at the end of a minute; otherwise the growth counts.
    is_gauge: bool,
}

const fn grown(place: (&'static str, &'static str), name: &'static str, is_meant: IsMeant) -> Number {
    Number { place, name, is_meant, factor: 1.0, is_gauge: false }
}

const fn now(place: (&'static str, &'static str), name: &'static str, is_meant: IsMeant) -> Number {
    Number { is_gauge: true, ..grown(place, name, is_meant) }
}

const ANY: IsMeant = |_| true;
const FAILED: IsMeant = |labels| labels.contains("\"failed\"");
const COMPACTIONS: &str = "reseed_compactions_total";

/// Every number. Those in the same place are added up.
const NUMBERS: [Number; 20] = [
    grown(("compactions", "committed"), COMPACTIONS, |labels| labels.contains("\"committed\"")),
    grown(("compactions", "failed"), COMPACTIONS, FAILED),
    grown(("compactions", "no_gain"), COMPACTIONS, |labels| labels.contains("\"no_gain\"")),
    grown(("compactions", "cancelled"), COMPACTIONS, |labels| labels.contains("\"cancelled\"")),
    grown(("compactions", "void"), COMPACTIONS, |labels| labels.contains("\"void\"")),
    now(("", "waiting"), "reseed_model_requests_waiting", ANY),
    // Compactions for which nobody waited are in the first bucket, up to a millisecond.
    grown(("pauses", "count"), "reseed_compaction_paused_seconds_count", ANY),
    Number {
        factor: -1.0,
        ..grown(("pauses", "count"), "reseed_compaction_paused_seconds_bucket", |labels| labels.contains("\"0.001\""))
    },
    Number { factor: 1_000.0, ..grown(("pauses", "totalMs"), "reseed_compaction_paused_seconds_sum", ANY) },
    grown(("failures", "turns"), "reseed_turns_total", FAILED),
    grown(("failures", "requests"), "reseed_model_requests_total", |labels| {
        !labels.contains("outcome=\"ok\"") && !labels.contains("outcome=\"cancelled\"")
    }),
    grown(("failures", "store"), "reseed_store_commits_total", FAILED),
    grown(("failures", "hooks"), "reseed_hook_calls_total", |labels| labels.contains("outcome=\"hook_")),
    grown(("failures", "tools"), "reseed_tool_calls_total", |labels| labels.contains("outcome=\"failed\"")),
    grown(("", "turns"), "reseed_turns_total", ANY),
    grown(("", "requests"), "reseed_model_requests_total", ANY),
    grown(("firstDelta", "count"), "reseed_first_delta_seconds_count", ANY),
    Number { factor: 1_000.0, ..grown(("firstDelta", "totalMs"), "reseed_first_delta_seconds_sum", ANY) },
    now(("", "sessionsOpen"), "reseed_sessions_open", ANY),
    // Another node counts the clients of relays.
    now(("", "connections"), "reseed_connections", |labels| !labels.contains("\"relay\"")),
];

/// The values of all numbers at one time.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Sample([f64; NUMBERS.len()]);

impl Sample {
    /// Reads the rendered metrics.
    pub(crate) fn of(rendered: &str) -> Self {
        let mut sample = Self::default();
        for line in rendered.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            for (number, sum) in NUMBERS.iter().zip(&mut sample.0) {
                if number.name == name && (number.is_meant)(labels) {
                    *sum += number.factor * value.parse::<f64>().unwrap_or(0.0);
                }
            }
        }
        sample
    }

    /// Returns what was counted since an earlier sample, and what is there now.
    pub(crate) fn since(&self, earlier: &Self) -> Value {
        let mut counted = json!({});
        for ((number, now), before) in NUMBERS.iter().zip(self.0).zip(earlier.0) {
            let (object, field) = number.place;
            let place = if object.is_empty() { &mut counted[field] } else { &mut counted[object][field] };
            let value = if number.is_gauge { now } else { now - before };
            #[expect(clippy::cast_possible_truncation, reason = "what one server counts in a minute")]
            let sum = place.as_i64().unwrap_or(0) + value.round() as i64;
            *place = sum.into();
        }
        counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{
        COMPACTION_PAUSED_SECONDS, CONNECTIONS, FIRST_DELTA_SECONDS, SESSIONS_OPEN,
        tests::{record_all, rendered},
    };
    use std::time::Duration;

    #[test]
    fn a_minute_has_what_was_counted_in_it() {
        let before = Sample::of(&rendered(record_all));
        let after = Sample::of(&rendered(|| {
            record_all();
            record_all();
            for millis in [0, 250, 1_250] {
                COMPACTION_PAUSED_SECONDS.record([], Duration::from_millis(millis));
            }
            FIRST_DELTA_SECONDS.record([], Duration::from_millis(700));
            std::mem::forget((CONNECTIONS.hold(["relay"]), SESSIONS_OPEN.hold([])));
        }));
        let expected = json!({
            "compactions": { "committed": 1, "failed": 0, "no_gain": 0, "cancelled": 0, "void": 1 },
            "waiting": 0, "pauses": { "count": 2, "totalMs": 1_500 },
            "failures": { "turns": 0, "requests": 0, "store": 1, "hooks": 0, "tools": 0 },
            "firstDelta": { "count": 1, "totalMs": 700 },
            "turns": 1, "requests": 3, "sessionsOpen": 3, "connections": 2,
        });
        assert_eq!(after.since(&before), expected);
        let nothing = after.since(&after);
        assert_eq!((&nothing["requests"], &nothing["connections"]), (&json!(0), &json!(2)));
    }

    #[test]
    fn every_number_is_of_a_metric() {
        let text = rendered(record_all);
        for number in NUMBERS {
            let is_there = text
                .lines()
                .any(|line| line.strip_prefix(number.name).is_some_and(|rest| rest.starts_with(['{', ' '])));
            assert!(is_there, "{} is rendered nowhere", number.name);
        }
    }
}
