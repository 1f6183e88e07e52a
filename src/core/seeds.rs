//! The number of seeds that a random test plays.

use std::{env, ops::RangeInclusive};

/// Returns the seeds of a random test. `SEED` repeats a single one, and `VARIABLE` sets their number. The default
/// `count` is large enough to find planted bugs, and small enough for every test run. `tests/soak/full.sh` plays more.
pub(crate) fn seeds(variable: &str, count: u64) -> RangeInclusive<u64> {
    let number = |name: &str| {
        let value = env::var(name).ok()?;
        Some(value.parse().unwrap_or_else(|_| panic!("{name} is a number, not `{value}`")))
    };
    match number("SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number(variable).unwrap_or(count),
    }
}
