//! When it pays to refresh a provider's cache while nobody writes.
//!
//! A provider keeps the beginning of a conversation for some time after its last use. If the user comes back later, the
//! next request writes all of it again. A request that asks for no answer reads it instead, which is cheaper, and the
//! cache lives on for another period.
//!
//! The arithmetic is per token, because both cost as many. A refresh costs `cached`. If the user comes back within the
//! period that it adds, it saves `written − cached`. So it pays if the chance of that is above
//! `cached / (written − cached)`: 9 % for Anthropic's five minutes (0.1 and 1.25 of the input price), 5 % for its hour.
//! The chance comes from the session itself: of its user's pauses that lasted as long as this one, the share that ended
//! within the period. Two more that did not are assumed, so a session without such pauses is not
//! refreshed. Later periods are not counted, because each refresh is decided anew.

use crate::prices::Price;

/// Maximum number of refreshes in a row. Pauses of more periods are counted together, as having ended too late.
pub const REFRESHES_MAX: usize = 8;

/// What a provider's cache does, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheTerms {
    /// The time for which it keeps a request after its last use, in milliseconds.
    pub lifetime_ms: u64,
    /// True if what is written costs the price of an hour.
    pub for_an_hour: bool,
}

impl CacheTerms {
    /// Returns the time after which the cache is refreshed, in milliseconds: a tenth before the end of its lifetime.
    #[must_use]
    pub fn period_ms(self) -> u64 {
        (self.lifetime_ms - self.lifetime_ms / 10).max(1)
    }

    /// Returns what a token costs that is written, in picodollars.
    fn written(self, price: Price) -> u64 {
        if self.for_an_hour { price.written_hour } else { price.written }
    }

    /// Returns what it saves, in billionths of a dollar, to read this many tokens instead of writing them.
    #[must_use]
    pub fn saved_nano_usd(self, price: Price, tokens: u64) -> u64 {
        tokens.saturating_mul(self.written(price).saturating_sub(price.cached)) / 1_000
    }

    /// Returns true if another refresh is worth its cost, after this many in a row.
    #[must_use]
    pub fn refresh_pays(self, price: Price, rhythm: &Rhythm, refreshes: usize) -> bool {
        // The first refresh comes when the user has been away for one period.
        let period = refreshes + 1;
        if period > REFRESHES_MAX {
            return false;
        }
        let ended = u64::from(rhythm.pauses[period]);
        let lasted: u64 = rhythm.pauses[period..].iter().copied().map(u64::from).sum::<u64>() + 2;
        let saves = self.written(price).saturating_sub(price.cached);
        u128::from(ended) * u128::from(saves) > u128::from(lasted) * u128::from(price.cached)
    }
}

/// The pauses of a user, from the end of an answer to the next input, by the number of whole periods that each lasted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rhythm {
    pauses: [u32; REFRESHES_MAX + 2],
}

impl Rhythm {
    /// Counts pauses, in milliseconds.
    #[must_use]
    pub fn of(pauses_ms: impl IntoIterator<Item = u64>, period_ms: u64) -> Self {
        let mut rhythm = Self::default();
        for pause_ms in pauses_ms {
            let periods = usize::try_from(pause_ms / period_ms.max(1)).unwrap_or(usize::MAX);
            let pauses = &mut rhythm.pauses[periods.min(REFRESHES_MAX + 1)];
            *pauses = pauses.saturating_add(1);
        }
        rhythm
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTES: CacheTerms = CacheTerms { lifetime_ms: 300_000, for_an_hour: false };
    const HOUR: CacheTerms = CacheTerms { lifetime_ms: 3_600_000, for_an_hour: true };

    fn rhythm(pauses_mins: &[u64], terms: CacheTerms) -> Rhythm {
        Rhythm::of(pauses_mins.iter().map(|pause| pause * 60_000), terms.period_ms())
    }

    #[test]
    fn a_refresh_pays_if_the_session_came_back_in_time_often_enough() {
        let price = |text: &str| Price::parse(text).unwrap();
        let (dear, flat) = (price("3/0.3/15/3.75/6"), price("1/1/1"));
        // The pauses in minutes, the terms, the refreshes so far, and whether one more pays. A period has 4.5 minutes,
        // or 54.
        for (pauses, terms, refreshes, expected) in [
            (&[][..], MINUTES, 0, false),
            // Short pauses say nothing about this one, which is already longer.
            (&[1; 100], MINUTES, 0, false),
            (&[6], MINUTES, 0, true),
            // One in 11 and 2 more is 7.7 %: too few for five minutes (8.7 %), and enough for an hour (5.3 %).
            (&[6, 600, 600, 600, 600, 600, 600, 600, 600, 600, 600], MINUTES, 0, false),
            (&[6, 600, 600, 600, 600, 600, 600, 600, 600], MINUTES, 0, true),
            (&[60, 999, 999, 999, 999, 999, 999, 999, 999, 999, 999], HOUR, 0, true),
            // It comes back after ten minutes: the first period saves nothing, the second does.
            (&[10; 5], MINUTES, 0, false),
            (&[10; 5], MINUTES, 1, true),
            (&[10; 5], MINUTES, 2, false),
            (&[39], MINUTES, 7, true),
            (&[41; 50], MINUTES, 8, false),
            (&[400; 50], MINUTES, 9, false),
        ] {
            let found = terms.refresh_pays(dear, &rhythm(pauses, terms), refreshes);
            assert_eq!(found, expected, "{pauses:?} {refreshes}");
            assert!(!terms.refresh_pays(flat, &rhythm(pauses, terms), refreshes), "the cache saves nothing");
        }
        assert_eq!(MINUTES.saved_nano_usd(dear, 1_000), 3_450_000);
        assert_eq!(HOUR.saved_nano_usd(dear, 1_000), 5_700_000);
        assert_eq!((MINUTES.period_ms(), CacheTerms { lifetime_ms: 0, ..HOUR }.period_ms()), (270_000, 1));
    }
}
