//! How many seeds a random test plays.

use std::{env, ops::RangeInclusive};

/// Returns the seeds of a random test: `SEED` alone repeats one, and `VARIABLE` sets their number, which is `count`
/// otherwise: enough to find what is put in, few enough for every run of the tests. `tests/soak/full.sh` plays more.
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
